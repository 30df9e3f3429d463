//! Ports of servers that cannot be told to take any free one, or that come back where they were; and the name `localhost`,
//! which a machine without `/etc/hosts` cannot resolve.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Mutex;

use super::needs;

/// Returns a free address that stays free until a server takes it, and while that is down.
///
/// Its port is below those that the kernel gives to connections and to listeners at port 0. Of the others, one that
/// is free now may belong to another test a moment later; and a client that retries may be connected to itself.
pub fn reserved() -> SocketAddr {
    static RESERVED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let address = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let port = std::iter::repeat_with(|| fastrand::u16(10_000..32_000)).find(|&port| {
        RESERVED.lock().unwrap().insert(port) && TcpListener::bind(address(port)).is_ok()
    });
    address(port.unwrap())
}

/// Returns true if the name `localhost` can be resolved. If it cannot, the calling test is recorded as skipped.
pub fn is_localhost_known() -> bool {
    if ("localhost", 0).to_socket_addrs().is_ok() {
        return true;
    }
    needs::skip(
        "localhost is unknown: /etc/hosts wants a line `127.0.0.1 localhost`",
        "",
    );
    false
}

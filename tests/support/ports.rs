//! Ports of servers that cannot be told to take any free one, or that come back where they were.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Mutex;

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

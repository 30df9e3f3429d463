//! The name `localhost`, which a machine without `/etc/hosts` cannot resolve.

use std::net::ToSocketAddrs;

use super::needs;

/// Returns true if the name can be resolved. If it cannot, the calling test is recorded as skipped.
pub fn is_known() -> bool {
    if ("localhost", 0).to_socket_addrs().is_ok() {
        return true;
    }
    needs::skip(
        "localhost is unknown: /etc/hosts wants a line `127.0.0.1 localhost`",
        "",
    );
    false
}

//! Helpers of the tests with the real binary: it, its documents, and those around it.

pub mod brokers;
pub mod changes;
pub mod daemon;
pub mod documents;
pub mod http;
pub mod hub;
pub mod listener;
pub mod manager;
pub mod namespace;
pub mod needs;
pub mod ports;
pub mod python;
pub mod source;
pub mod state;
pub mod stomp;

use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

/// Longest wait for an event before a test fails. Generous: the machine may be busy, and where a hub did not get what
/// it was told to fetch, it is told of the next change only a minute later (R24).
pub const DEADLINE: Duration = Duration::from_secs(180);

/// Polls until a condition holds.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it did not come to that in time");
        std::thread::sleep(Duration::from_millis(10)); // polls until the deadline
    }
}

/// Returns true if the name `localhost` can be resolved, which takes a line in `/etc/hosts`. If it cannot, the calling test
/// is recorded as skipped.
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

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

/// Longest wait for an event before a test fails. Generous: the machine may be busy, and where a hub did not get what
/// it was told to fetch, it is told of the next change only a minute later (R24).
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(180);

/// Polls until a condition holds.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + DEADLINE;
    while !is_so() {
        assert!(
            std::time::Instant::now() < deadline,
            "it did not come to that in time"
        );
        std::thread::sleep(std::time::Duration::from_millis(10)); // polls until the deadline
    }
}

//! The embedded hub of the real binary against the WebSub Recommendation of 2018-01-23 (`w…`) and Framework
//! Notification 1.0.1 section 4 (`f…`); each test is named after a clause.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/daemon.rs"]
mod daemon;
#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/documents.rs"]
mod documents;

mod callback;
mod delivery;
mod leases;
mod requests;
mod source;
mod verification;

/// How long an event is awaited before a test fails. Generous: the machine may be busy.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(30);

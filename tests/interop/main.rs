//! What others wrote, beside ours: a WebSub hub, the reference library, and a validator of XML.
//!
//! They are installed from package registries, by the tests themselves where that needs no privilege. Where they
//! cannot be had, their tests pass and say on standard error that they were skipped; never where `CI` is set.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/daemon.rs"]
mod daemon;
#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/documents.rs"]
mod documents;
#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/hub.rs"]
mod hub;
#[path = "../e2e/listener.rs"]
mod listener;
#[path = "../e2e/python.rs"]
mod python;

mod flask_websub;
mod front;
mod payloads;
mod readers;
mod schema;
mod sent;
mod stories;
mod subscriber;
mod web_servers;

/// How long an event is awaited before a test fails. Generous: the machine may be busy, and where a hub did not
/// get what it was told to fetch, it is told of the next change only a minute later (R24).
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(180);

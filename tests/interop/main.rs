//! Software of others: a WebSub hub, the reference library, web servers, and a validator of XML.
//!
//! `.ci/run` installs them from package registries. If one is missing, its tests are skipped.

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
#[path = "../needs/mod.rs"]
mod needs;
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

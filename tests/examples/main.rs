//! The examples and the image: the files that they name exist, they agree with each other, and they work together.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/daemon.rs"]
mod daemon;
#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/documents.rs"]
mod documents;
#[path = "../e2e/listener.rs"]
mod listener;
#[path = "../needs/mod.rs"]
mod needs;

mod compose;
mod image;
mod kustomize;
mod manifest;
mod site;

/// How long an event is awaited before a test fails. Generous: the machine may be busy.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

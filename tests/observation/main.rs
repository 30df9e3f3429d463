//! No change missed, none false: the real binary over trees that are written in every possible way.
//!
//! Each story runs on inotify and by polling, a core of them on `notify` too. docs/watching.md lists the
//! exceptions of each backend.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/daemon.rs"]
mod daemon;
#[path = "../e2e/documents.rs"]
mod documents;
#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/hub.rs"]
mod hub;
#[path = "../e2e/manager.rs"]
#[expect(dead_code, reason = "the end-to-end stories use the rest")]
mod manager;
#[path = "../tree/namespace.rs"]
mod namespace;
#[path = "../needs/mod.rs"]
mod needs;
#[path = "../e2e/python.rs"]
mod python;

mod deletions;
mod directories;
mod downtime;
mod generators;
mod indexes;
mod links;
mod load;
mod oddities;
mod roots;
mod silence;
mod state_file;
mod story;
mod tools;
mod unmounted;
mod writing;

/// How long an event is awaited before a test fails. Generous: the machine may be busy.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

//! No change missed, none false: the real binary over trees that are written in every possible way.
//!
//! Each story runs on inotify and by polling, a core of them on `notify` too. docs/operations.md lists the
//! exceptions of each backend.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

mod deletions;
mod downtime;
mod generators;
mod links;
mod load;
mod oddities;
mod silence;
mod state_file;
mod story;
#[expect(dead_code, reason = "other programs use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod writing;

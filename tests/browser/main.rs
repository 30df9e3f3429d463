//! The status page in a real browser: mouse, keyboard, small screen, dark mode.
//!
//! Without chromium and chromedriver, these tests are skipped. With `RSNOTIFY_SCREENSHOTS=DIRECTORY` they save
//! screenshots there.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/daemon.rs"]
mod daemon;
#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/documents.rs"]
mod documents;
mod driver;
#[expect(dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../e2e/hub.rs"]
mod hub;
#[path = "../needs/mod.rs"]
mod needs;

mod looks;
mod reading;
mod troubled;

/// How long an event is awaited before a test fails. Generous: the machine may be busy.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

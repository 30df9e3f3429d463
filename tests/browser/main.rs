//! The status page in a real browser: mouse, keyboard, small screen, dark mode.
//!
//! Without chromium and chromedriver, these tests are skipped. With `RSNOTIFY_TEST_SCREENSHOTS=DIRECTORY` they save
//! screenshots there.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

mod driver;
mod looks;
mod reading;
#[expect(dead_code, reason = "other programs use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod troubled;

//! The tree adaptor against a real file system, on each backend alike.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod directories;
mod explain;
mod files;
mod harness;
mod links;
mod load;
mod mounts;
#[path = "../support/namespace.rs"]
mod namespace;
#[path = "../support/needs.rs"]
mod needs;
mod nested;
mod restart;

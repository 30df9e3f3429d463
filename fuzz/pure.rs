//! The folders that the fuzz targets exercise, without the rest: a build with sanitizers takes seconds then,
//! and no database, TLS or network is in it.

#![allow(dead_code, reason = "what only the rest of the crate uses")]

#[path = "../src/announce/mod.rs"]
pub mod announce;
#[path = "../src/config/mod.rs"]
pub mod config;

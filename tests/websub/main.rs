//! The HTTP adaptor on real sockets: requests byte for byte, and the handling of answers.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod hub;
mod inspect;
#[path = "../support/localhost.rs"]
mod localhost;
#[expect(dead_code, reason = "other programs need more")]
#[path = "../support/needs.rs"]
mod needs;
mod publish;
mod subscribe;
mod support;
mod topics;

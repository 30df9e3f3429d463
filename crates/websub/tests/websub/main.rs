//! The HTTP adaptor on real sockets: requests byte for byte, and the handling of answers.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod examples;
mod hub;
mod probe;
mod publish;
mod subscribe;
mod support;
mod topics;

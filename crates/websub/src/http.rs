//! The basis of publisher, hub and subscriber over HTTP: client, server, and the words for failures.

pub mod client;
pub mod clock;
mod connection_slots;
pub mod failure;
pub mod server;

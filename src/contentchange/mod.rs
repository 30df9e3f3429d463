//! Content change messages for the consumers of message brokers: [`message`]s with their properties and ids. Pure.

pub mod message;

//! Messages for the consumers of brokers: [`objects`] makes the content change messages of a change notification, each a
//! [`Feed`](resourcesync::feed::Feed), with the properties and ids of [`message`]. Pure.

pub mod identifier;
pub mod message;
pub mod objects;

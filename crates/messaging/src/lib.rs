//! Change notifications as messages of brokers (ActiveMQ, Artemis, RabbitMQ), over STOMP 1.2 on TCP or TLS.
//!
//! | module | content |
//! |---|---|
//! | [`message`] | messages of a notification: headers, properties that consumers select by, ids |
//! | [`objects`] | identifiers of objects, and the content change messages of a change notification, each a [`ObjectFeed`](resourcesync::feed::ObjectFeed) |
//! | [`frame`] | the codec: bytes become frames, without I/O |
//! | [`refusal`] | the meaning of an `ERROR`, and of a connection that fails |
//! | `settings` | the connection settings of a broker, and TLS to it |
//! | `session` | one connection: connecting, heart-beats, reading and writing frames; messages, each acknowledged once it was handed over |
//! | `client` | makes messages of notifications, and sends each in one transaction, over one connection per broker |
//!
//! The code that is compiled without a feature has no I/O, clock or randomness. The feature `client` adds the connection.

#![warn(missing_docs, clippy::missing_errors_doc)]

#[cfg(feature = "client")]
pub mod client;
pub mod frame;
pub mod message;
pub mod objects;
pub mod refusal;
#[cfg(feature = "client")]
pub mod session;
#[cfg(feature = "client")]
pub mod settings;

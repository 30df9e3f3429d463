//! Change notifications as messages of brokers (ActiveMQ, Artemis, RabbitMQ), over STOMP 1.2 on TCP or TLS.
//!
//! | module | content |
//! |---|---|
//! | [`message`] | messages of a notification: headers, properties that consumers select by, ids |
//! | [`objects`] | the content change messages of a change notification, each a [`ContentChangeMessage`](resourcesync::feed::ContentChangeMessage) |
//! | [`identifier`] | identifiers of objects and items, and locations of their content |
//! | [`frame`] | the codec: bytes become frames, without I/O |
//! | [`refusal`] | the meaning of an `ERROR`, and of a connection that fails |
//! | `settings` | the connection settings of a broker |
//! | `session` | one connection: connecting, heart-beats, reading and writing frames |
//! | `client` | makes messages of notifications, and sends each in one transaction, over one connection per broker |
//! | `subscribe` | reads messages, each acknowledged once it was handed over |
//! | `tls` | TLS to a broker |
//!
//! The code that is compiled without a feature has no I/O, clock or randomness. The feature `client` adds the connection.

#![warn(missing_docs, clippy::missing_errors_doc)]

#[cfg(feature = "client")]
pub mod client;
pub mod frame;
pub mod identifier;
pub mod message;
pub mod objects;
pub mod refusal;
#[cfg(feature = "client")]
pub mod session;
#[cfg(feature = "client")]
pub mod settings;
#[cfg(feature = "client")]
pub mod subscribe;
#[cfg(feature = "client")]
mod tls;

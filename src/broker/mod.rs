//! The site's message broker, over STOMP 1.2 on TCP or TLS.
//!
//! | file | content |
//! |---|---|
//! | [`feeds`] | messages for consumers: a change notification becomes Atom feeds, and they become changes; pure |
//! | [`frame`] | the codec: bytes become frames, without I/O |
//! | [`settings`] | the connection settings of a broker |
//! | `tls` | TLS to a broker |
//! | [`session`] | one connection: connecting, heart-beats, reading and writing frames |
//! | [`client`] | makes messages of notifications, and sends each in one transaction, over one connection per broker |
//! | [`refusal`] | the meaning of an `ERROR`, and of a connection that fails |
//! | [`subscribe`] | reads messages, each acknowledged once it was handed over |

pub mod client;

/// Messages for the consumers of brokers: [`objects`](feeds::objects) makes the content change messages of a change
/// notification, each a [`Feed`](resourcesync::feed::Feed), with the properties and ids of [`message`](feeds::message). Pure.
pub mod feeds {
    pub mod identifier;
    pub mod message;
    pub mod objects;
}
pub mod frame;
pub mod refusal;
pub mod session;
pub mod settings;
pub mod subscribe;
mod tls;

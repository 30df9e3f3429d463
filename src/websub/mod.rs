//! WebSub over HTTP (also Framework Notification 1.0.1 section 4). An adaptor: the requests and the meaning of answers are
//! decided in [`announce`](crate::announce) and [`hub`](crate::hub).
//!
//! Publisher: [`publish`] submits to hubs, [`preview`] shows submissions without sending, [`topics`] answers at topic
//! URIs, [`public`] is the listener for those and for the embedded [`hub`]. Destination: [`discover`] reads `Link`
//! headers, [`retrieve`] documents, [`subscribe`] receives. [`inspect`] probes both for `check`. [`client`],
//! [`failure`] and [`server`] are common to them.

pub mod client;
mod connection_slots;
pub mod discover;
pub mod failure;
pub mod hub;
pub mod inspect;
pub mod preview;
pub mod public;
pub mod publish;
pub mod retrieve;
pub mod server;
pub mod subscribe;
pub mod topics;

//! HTTP as WebSub and Framework Notification 1.0.1 section 4 use it. An adaptor: what is said, and what an
//! answer means, is decided in [`announce`](crate::announce).
//!
//! As a publisher: [`publish`] submits to hubs, [`preview`] shows what it would submit, [`topics`] answers at topic
//! URIs, [`public`] is the listener for those and for the embedded [`hub`]. As a Destination: [`discover`] reads [`link`]s, [`subscribe`]
//! receives. [`inspect`] asks both for `check`. [`client`], [`failure`] and [`server`] hold what they share.

pub mod client;
pub mod discover;
pub mod failure;
pub mod hub;
pub mod inspect;
pub mod link;
mod places;
pub mod preview;
pub mod public;
pub mod publish;
pub mod server;
pub mod subscribe;
pub mod topics;

//! HTTP as WebSub and Framework Notification 1.0.1 section 4 use it. An adaptor: what is said, and what an
//! answer means, is decided in [`announce`](crate::announce).
//!
//! As a publisher: [`publish`] submits to hubs, [`topics`] answers at topic URIs, [`public`] is the listener
//! for those and for the embedded [`hub`]. As a Destination: [`discover`] reads [`link`]s, [`subscribe`]
//! receives. [`client`] and [`server`] hold what they share.

pub mod client;
pub mod discover;
pub mod hub;
pub mod link;
mod places;
pub mod public;
pub mod publish;
pub mod server;
pub mod subscribe;
pub mod topics;

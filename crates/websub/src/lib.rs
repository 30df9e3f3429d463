//! WebSub (and Framework Notification 1.0.1 section 4): what decides, and what speaks HTTP.
//!
//! A publisher: [`publisher`] makes requests to hubs of notifications and judges the answers, [`topics`] are served. A
//! [`hub`], embedded or for many publishers. A subscriber: [`subscriber`]. [`probe`] looks at topics and hubs as others see
//! them. [`http`] has the clients and the server that they share.
//!
//! The code that is compiled without a feature has no I/O, clock or randomness. The features `publisher`, `hub` and
//! `subscriber` add what speaks HTTP, each beside the decisions that it carries out: `hub/delivery.rs`,
//! `hub/delivery/http.rs`.

#![doc = include_str!("../README.md")]
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod answer;
pub mod form;
pub mod histogram;
pub mod host;
#[cfg(feature = "http")]
pub mod http;
pub mod hub;
pub mod link;
pub mod probe;
pub mod publisher;
pub mod retention;
pub mod retry;
pub mod secret;
#[cfg(feature = "subscriber")]
pub mod subscriber;
pub mod topics;

//! WebSub (and Framework Notification 1.0.1 section 4): what decides, and what speaks HTTP.
//!
//! A publisher: [`publisher`] makes requests to hubs of notifications and judges the answers, [`topics`] are served. A
//! [`hub`], embedded or for many publishers. A subscriber: [`subscriber`]. [`probe`] looks at topics and hubs as others see
//! them. [`http`] has the clients and the server that they share.
//!
//! The code that is compiled without a feature has no I/O, clock or randomness. The features `publisher`, `hub` and
//! `subscriber` add what speaks HTTP, each beside the decisions that it carries out: `hub/delivery.rs`,
//! `hub/delivery/http.rs`.
//!
//! A subscriber is this:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use resourcesync::receive::Notification;
//! use resourcesync::uri::Topic;
//! use websub::subscriber::retrieve::discover;
//! use websub::subscriber::{CallbackKey, SignatureCheck, HttpSubscriber};
//!
//! # async fn subscribe() -> Result<(), Box<dyn std::error::Error>> {
//! let found = discover(&Topic::new("https://example.org/topics/reports/")).await?;
//! let hub = found.hubs.first().ok_or("the topic names no hub")?;
//! // The hub must reach it at this URL.
//! let public = "https://destination.example.net/callbacks/".parse()?;
//! let destination = HttpSubscriber::bind("0.0.0.0:8080".parse()?, Some(public)).await?;
//! let (mut subscription, mut requests) = destination.open_callback(&CallbackKey::random(), &found.self_uri);
//! destination.serve();
//! let hour = Duration::from_secs(3_600);
//! destination.subscribe(&mut subscription, hub, &found.self_uri, hour).await?;
//! while let Some(request) = requests.recv().await {
//!     if let SignatureCheck::Notification(received) = request {
//!         println!("{:?}", Notification::parse(&received.body)?);
//!         received.acknowledge();
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod answer;
pub mod counts;
pub mod headers;
#[cfg(feature = "http")]
pub mod http;
pub mod hub;
pub mod probe;
pub mod publisher;
pub mod retry;
pub mod secret;
#[cfg(feature = "subscriber")]
pub mod subscriber;
pub mod topics;

//! The hub, embedded or for many publishers: subscription requests, their limits, subscriptions and deliveries.
//!
//! A request: [`request`] parses the form and checks the callback URL against the address ranges of [`address`],
//! [`client_address`] determines the client's address, [`admission`] enforces the limits, `verification` builds and judges
//! verification requests.
//! A notification: [`subscriptions`] knows what each subscriber has yet to receive, [`delivery`] builds the request and
//! judges the answer, [`fair_queue`] schedules requests fairly over callback hosts, which `callback` calls.
//! In a hub for many Sources, [`publication`] decides who may publish what, and [`published_topics`] knows repeats. `http`
//! joins the parts; the example `hub` has them all in memory.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::payload::PAYLOAD_TYPE;
use resourcesync::uri::{Topic, Uri};
use sha2::{Digest, Sha256};

use crate::hub::admission::QuotaKeys;
use crate::hub::client_address::Requester;
use crate::hub::published_topics::{BodyDigest, PublishedTopic};
use crate::hub::request::SubscriptionRequest;
use crate::secret::Secret;

pub mod address;
pub mod admission;
#[cfg(feature = "hub")]
pub(crate) mod callback;
pub mod client_address;
pub mod delivery;
pub mod fair_queue;
#[cfg(feature = "hub")]
pub mod http;
pub mod publication;
pub mod published_topics;
pub mod request;
pub mod subscriptions;
#[cfg(feature = "hub")]
pub(crate) mod verification;

/// A callback URL, kept byte for byte. It is a capability URL: anyone who knows it can post there, so logs and reports
/// show only its origin and a digest.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Callback(Arc<str>);

impl Callback {
    /// Wraps a URL that [`request::CallbackPolicy`] accepted, now or before it was saved.
    pub fn new(text: impl Into<Arc<str>>) -> Callback {
        Callback(text.into())
    }

    /// Returns the URL, byte for byte.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a short digest that identifies the callback without revealing it.
    pub fn digest(&self) -> String {
        let digest = Sha256::digest(self.0.as_bytes());
        let [first, second, third, fourth, ..] = <[u8; 32]>::from(digest);
        let number = u32::from_be_bytes([first, second, third, fourth]);
        format!("{number:08x}")
    }
}

impl fmt::Display for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(url) = url::Url::parse(&self.0) {
            write!(f, "{}/", url.origin().ascii_serialization())?;
        }
        write!(f, "…({})", self.digest())
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The identity of a subscription: its topic and callback (WebSub section 2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionKey {
    /// The topic.
    pub topic: Topic,
    /// The callback.
    pub callback: Callback,
}

/// A verified subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The topic.
    pub topic: Topic,
    /// The callback.
    pub callback: Callback,
    /// The secret that deliveries are signed with (WebSub section 7.1).
    pub secret: Option<Secret>,
    /// The end of its lease.
    pub expires: Timestamp,
    /// Unknown behind a proxy that does not forward it, and for subscriptions of an earlier run.
    pub requester: Option<Requester>,
}

impl SubscriptionKey {
    /// Returns the key of a subscription.
    pub fn new(topic: &Topic, callback: &Callback) -> SubscriptionKey {
        SubscriptionKey {
            topic: topic.clone(),
            callback: callback.clone(),
        }
    }
}

impl Subscription {
    /// Returns its identity.
    pub fn key(&self) -> SubscriptionKey {
        SubscriptionKey::new(&self.topic, &self.callback)
    }

    /// Returns the key under which it is counted.
    pub fn buckets(&self) -> QuotaKeys {
        QuotaKeys::new(&self.callback, self.requester)
    }
}

/// The number of a relayed notification in the state file. Later ones have higher numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelayId(pub u64);

/// Bytes of a body that are stored, read and sent at a time.
pub const PART_BYTES: usize = 64 * 1024;

/// A notification to deliver to each subscriber of a topic that has not received it. In memory only until it is saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// Its number in the state file; none until it is numbered.
    pub id: RelayId,
    /// The topic that it is delivered for.
    pub topic: Topic,
    /// The notification's number in its channel.
    pub seq: u64,
    /// Content of the topic.
    pub body: Arc<[u8]>,
    /// Header values that are delivered with it.
    pub headers: RelayHeaders,
}

/// A notification of the state file that some subscriber has not received, without its body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelaySize {
    /// Its number in the state file.
    pub id: RelayId,
    /// Bytes of its body.
    pub size: u64,
}

/// A notification as it is read from the state file to be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRelay {
    /// Its number in the state file.
    pub id: RelayId,
    /// The one before it on its topic that is still in the state file, or 0.
    pub previous: RelayId,
    /// The notification's number in its channel.
    pub seq: u64,
    /// Header values that are delivered with it.
    pub headers: RelayHeaders,
    /// Bytes of its body.
    pub size: u64,
    /// The first [`PART_BYTES`] of its body.
    pub beginning: Arc<[u8]>,
}

/// Header values of a notification, which stay its own whatever is published on the topic later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayHeaders {
    /// The media type with its parameters.
    pub content_type: String,
    /// The target of `rel="resourcesync"`.
    pub capability_list: Option<Uri>,
}

impl Default for RelayHeaders {
    fn default() -> RelayHeaders {
        RelayHeaders {
            content_type: PAYLOAD_TYPE.to_owned(),
            capability_list: None,
        }
    }
}

/// A subscriber's delivery progress: every later notification of its topic is pending for it, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeliveryProgress {
    /// The last notification that was delivered or abandoned.
    pub heard: RelayId,
    /// Failed attempts to deliver the next one.
    pub attempts: u32,
    /// The time of the next attempt; none before the first.
    pub next_try: Option<Timestamp>,
}

/// A change for the state file. Each replaces the earlier one with the same key or number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubRecord {
    /// A new subscription, or a new secret and lease for an existing one, whose progress stays.
    Subscribed(Subscription, RelayId),
    /// Unsubscribed, gone (410), or expired.
    Unsubscribed(SubscriptionKey),
    /// The progress of the deliveries to a subscription.
    Progressed(SubscriptionKey, DeliveryProgress),
    /// The notifications of a topic up to this one are no longer pending for any subscriber.
    Ended(Topic, RelayId),
    /// All requests that were answered with 202 and are not verified yet, in order for each topic and callback.
    Unverified(Vec<(SubscriptionKey, SubscriptionRequest)>),
    /// A topic that was published or pinged, in a hub for many Sources.
    Published(Box<PublishedTopic>),
    /// A topic that is forgotten.
    Forgotten(Topic),
}

/// The hub's part of the saved state.
#[derive(Debug, Clone, Default)]
pub struct SavedHub {
    /// The subscriptions with their progress.
    pub subscriptions: Vec<(Subscription, DeliveryProgress)>,
    /// The topics with notifications in the state file.
    pub topics: Vec<SavedTopicRelays>,
}

/// The notifications of a topic in the state file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedTopicRelays {
    /// The topic.
    pub topic: Topic,
    /// In order; at least one.
    pub relays: Vec<RelaySize>,
    /// The digest of the last one's body.
    pub last: BodyDigest,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_tell_callbacks_apart_without_showing_them() {
        let callback = Callback::new("http://127.0.0.1:9/secret?path");
        let other = Callback::new("http://127.0.0.1:9/other");
        assert_eq!(
            format!("{callback} {other:?}"),
            "http://127.0.0.1:9/…(5b9efc35) http://127.0.0.1:9/…(8a301bfe)"
        );
        assert_eq!(format!("{}", Callback::new("")), "…(e3b0c442)");
    }
}

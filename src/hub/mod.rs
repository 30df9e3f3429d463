//! The embedded hub's decisions: what a subscription request asks for, and what it is granted.
//!
//! Here are the words; [`request`] reads a form, [`callback`] says which callbacks are accepted, by what [`address`]
//! and [`network`] know, and [`verification`] how they are verified. [`requester`] finds out who asks, [`admission`]
//! how much of the hub that one may take, at which [`pace`], and [`fairness`] who gets the next of the slots that all
//! share. [`relay`] says how a notification reaches a subscriber, [`counts`] what came of all that, [`quota`] how many
//! lines of it are logged.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::announce::delivery::secret::Secret;
use crate::resourcesync::uri::Topic;

pub mod address;
pub mod admission;
pub mod audience;
pub mod callback;
pub mod counts;
pub mod fairness;
pub mod limits;
pub mod name;
pub mod network;
pub mod pace;
pub mod quota;
pub mod relay;
pub mod request;
pub mod requester;
pub mod tally;
pub mod verification;

/// Where a subscriber wants its notifications, kept byte for byte. Whoever knows it may write there, so
/// reports show its origin only, and a digest that tells two of them apart.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Callback(Arc<str>);

impl Callback {
    /// For what [`callback::CallbackPolicy`] has let pass, now or before it was saved.
    pub fn new(text: impl Into<Arc<str>>) -> Callback {
        Callback(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What tells it apart, and gives nothing of it away.
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

/// What makes a subscription one and the same (WebSub section 2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub topic: Topic,
    pub callback: Callback,
}

/// A verified subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    pub topic: Topic,
    pub callback: Callback,
    pub secret: Option<Secret>,
    /// When its lease ends.
    pub expires: Timestamp,
}

impl Subscription {
    pub fn key(&self) -> Key {
        Key {
            topic: self.topic.clone(),
            callback: self.callback.clone(),
        }
    }

    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires
    }
}

/// A notification that is owed to subscribers, as the state file numbers it. Later ones have higher numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelayId(pub u64);

/// A notification that is owed to each subscriber of a topic who has not heard it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    pub id: RelayId,
    pub topic: Topic,
    /// The notification's number in its channel.
    pub seq: u64,
    pub body: Arc<[u8]>,
}

/// How far a subscriber has come: it is owed every later notification of its topic, one after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last notification that it took, or will never take.
    pub heard: RelayId,
    /// How often the next one was tried.
    pub attempts: u32,
    /// When it is tried again; nothing before the first time.
    pub next_try: Option<Timestamp>,
}

/// What the hub wants remembered. Each replaces what was known under the same key or number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubRecord {
    /// A new subscription, or one whose secret and lease are new: its progress stays.
    Subscribed(Subscription, RelayId),
    /// Asked for, gone (410), or its lease has ended.
    Unsubscribed(Key),
    Progressed(Key, Progress),
    /// Nobody is owed it any more.
    Ended(RelayId),
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

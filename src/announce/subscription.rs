//! The embedded hub's decisions: what a subscription request asks for, and what it is granted.
//!
//! Here are the words; [`request`] reads a form, [`callback`] says which addresses are accepted and how
//! they are verified, and [`relay`] says how a notification reaches a subscriber.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::announce::delivery::secret::Secret;
use crate::resourcesync::uri::Topic;

pub mod audience;
pub mod callback;
pub mod relay;
pub mod request;

/// Where a subscriber wants its notifications, kept byte for byte. Whoever knows it may write there, so
/// reports show its origin only.
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
}

impl fmt::Display for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match url::Url::parse(&self.0) {
            Ok(url) => write!(f, "{}/…", url.origin().ascii_serialization()),
            Err(_) => f.write_str("…"),
        }
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

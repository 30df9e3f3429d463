//! The last notifications and their outcomes.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic};
use serde::{Deserialize, Serialize};

/// A notification, whatever became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationView {
    #[serde(default)]
    pub kind: ChannelKind,
    pub topic: Topic,
    pub seq: u64,
    /// The time when it was cut.
    pub cut: Timestamp,
    /// The number of its changes; nothing where only its sequence number outlived a restart.
    pub changes: Option<usize>,
    pub hubs: Vec<OutcomeView>,
    pub bytes: Option<usize>,
    /// Nothing where it is not kept any more.
    pub payload: Option<PayloadText>,
}

/// The outcome at one hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeView {
    pub hub: Hub,
    pub outcome: Outcome,
    /// The time of the last answer.
    pub at: Option<Timestamp>,
    /// Nothing where that is not known any more.
    pub attempts: Option<u32>,
    /// The reason why the last attempt failed.
    pub reason: Option<String>,
}

/// The outcome of a notification at a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It follows another one in the log of a change channel, which the hub has not accepted yet.
    Due,
    /// It was not answered yet.
    InFlight,
    /// The hub did not accept it yet; it is retried.
    Refused,
    Accepted,
    /// It was too large for the hub, which was then told in smaller ones.
    Withdrawn,
    /// An operator dropped it, or it has no hub any more.
    Dropped,
}

impl Outcome {
    /// Returns the outcome in words.
    pub fn in_words(self) -> &'static str {
        match self {
            Outcome::Due => "due",
            Outcome::InFlight => "in flight",
            Outcome::Refused => "not accepted yet",
            Outcome::Accepted => "accepted",
            Outcome::Withdrawn => "too large, sent in parts",
            Outcome::Dropped => "dropped",
        }
    }
}

/// A payload, shared and not copied until somebody reads it; ours, and so UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct PayloadText(pub Arc<[u8]>);

impl PayloadText {
    pub fn as_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl From<String> for PayloadText {
    fn from(text: String) -> PayloadText {
        PayloadText(text.into_bytes().into())
    }
}

impl From<PayloadText> for String {
    fn from(body: PayloadText) -> String {
        body.as_text().into_owned()
    }
}

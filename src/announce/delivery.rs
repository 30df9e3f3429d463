//! How a notification is submitted to a hub, and what its answer means.

use std::sync::Arc;

use crate::announce::plan::Mode;
use crate::resourcesync::uri::{Hub, Topic, Uri};

/// A channel, as the state file numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u64);

/// One attempt to tell one hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    pub channel: ChannelId,
    pub hub: Hub,
    pub mode: Mode,
    /// Counts the notifications of a channel, from 1.
    pub seq: u64,
    pub topic: Topic,
    pub capability_list: Uri,
    /// The payload; a ping sends none of it.
    pub body: Arc<[u8]>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Status {
        status: u16,
        content_type: Option<String>,
        retry_after: Option<String>,
        /// The beginning of the body, for reports; at most a few hundred characters.
        excerpt: String,
    },
    /// No answer: what failed, on what.
    Failed(String),
}

/// What a topic URI answers (R25 and the contract).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPage {
    pub topic: Topic,
    pub capability_list: Uri,
    pub hubs: Vec<Hub>,
    /// Empty before the first notification, if no ping hub is told.
    pub body: Arc<[u8]>,
    /// Whether a fetch must be reported to the engine, because a ping hub is told.
    pub report_fetches: bool,
}

pub enum Verdict {
    Accepted,
    Retry { at: jiff::Timestamp, reason: String },
    TooLarge,
    NeedsPerson { at: jiff::Timestamp, reason: String },
}
pub fn verdict(_a: &Answer, _n: u32, now: jiff::Timestamp, _j: f64) -> Verdict {
    let _ = now;
    Verdict::Accepted
}

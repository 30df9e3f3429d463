//! Topics, as their URIs answer (R25).

use std::sync::Arc;

use resourcesync::uri::{Hub, Topic, Uri};

#[cfg(any(feature = "publisher", feature = "hub"))]
pub mod http;

/// Body of the answer for an unknown topic, by which it is recognised.
pub const NO_SUCH_TOPIC: &str = "no such topic\n";

/// The answer of a topic URI (R25 and the contract).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPage {
    pub topic: Topic,
    pub capability_list: Uri,
    pub hubs: Vec<Hub>,
    /// Empty before the first notification, if no ping hub is told.
    pub body: Arc<[u8]>,
    /// True if a fetch must be reported, because a ping hub is told.
    pub report_fetches: bool,
}

/// Requests for topics, by the class of what they were answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicRequests {
    pub answered: u64,
    pub not_modified: u64,
    pub refused: u64,
}

impl TopicRequests {
    pub fn count(&mut self, status: u16) {
        match status {
            200..=299 => self.answered += 1,
            300..=399 => self.not_modified += 1,
            _ => self.refused += 1,
        }
    }
}

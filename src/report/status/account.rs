//! The changes due to one hub on one channel, as `outbox show` prints them.

use jiff::Timestamp;
use resourcesync::change::Change;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::payload::Entry;
use resourcesync::uri::{Topic, Uri};
use serde::{Deserialize, Serialize};

use crate::report::status::{HubView, WaitingView};

/// One hub on one channel, with all changes due to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccountView {
    /// The time of this report.
    pub at: Timestamp,
    pub source: String,
    #[serde(default)]
    pub kind: ChannelKind,
    pub set: Uri,
    pub topic: Topic,
    pub retired: Option<Timestamp>,
    #[serde(flatten)]
    pub hub: HubView,
    pub notification: Option<FlightView>,
    /// The entries of the next notification, in order, and the number of further ones.
    pub changes: Vec<Entry>,
    pub more_changes: usize,
    /// The event that these changes wait for, besides the answer to what is in flight.
    pub waits: Option<String>,
    /// The changes that are held, and the number of further ones.
    pub held: Vec<WaitingView>,
    pub more_held: usize,
}

/// The notification in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlightView {
    pub seq: u64,
    pub changes: Vec<Entry>,
    /// On a change channel, the changes of resources instead.
    #[serde(default)]
    pub resources: Vec<ResourceView>,
    pub bytes: usize,
    /// The payload for the hub, or for readers of the topic that it is pinged about; if it was asked for.
    pub payload: Option<String>,
}

/// A change of a resource, as its Change List has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceView {
    pub uri: String,
    /// `created`, `updated` or `deleted`.
    pub change: String,
    pub datetime: Option<String>,
}

impl From<&Change> for ResourceView {
    fn from(change: &Change) -> ResourceView {
        ResourceView {
            uri: change.loc.to_string(),
            change: change.kind.as_str().to_owned(),
            datetime: change.datetime.as_ref().map(ToString::to_string),
        }
    }
}

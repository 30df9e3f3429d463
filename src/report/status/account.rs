//! All that one hub is due on one channel, as `outbox show` tells it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::report::status::{HubView, WaitingView};
use crate::resourcesync::payload::Entry;
use crate::resourcesync::uri::{Topic, Uri};

/// One hub's account on one channel, with all that it is due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccountView {
    /// When it was so.
    pub at: Timestamp,
    pub source: String,
    pub set: Uri,
    pub topic: Topic,
    pub retired: Option<Timestamp>,
    #[serde(flatten)]
    pub hub: HubView,
    pub notification: Option<FlightView>,
    /// What the next notification would say, in order, and how many changes more.
    pub changes: Vec<Entry>,
    pub more_changes: usize,
    /// What these changes wait for, besides what is in flight.
    pub waits: Option<String>,
    /// What is not said yet, and how many documents more.
    pub held: Vec<WaitingView>,
    pub more_held: usize,
}

/// The notification in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlightView {
    pub seq: u64,
    pub changes: Vec<Entry>,
    pub bytes: usize,
    /// What the hub, or who fetches the topic that it is pinged about, gets to read; if it was asked for.
    pub payload: Option<String>,
}

//! How everything stands, as programs read it: `/status.json`, and what `status` and `outbox` print as JSON.
//! What is absent is `null`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::announce::delivery::attempt::{Attempt, Kind, Refusal};
use crate::announce::engine::SourceView;
use crate::announce::figures::Figures;
use crate::announce::plan::Mode;
use crate::announce::subscription::audience::view::HubStatus;
use crate::resourcesync::capability::Capability;
use crate::resourcesync::payload::Entry;
use crate::resourcesync::uri::{Hub, Topic, Uri};

/// How everything stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// When it was so.
    pub at: Timestamp,
    /// Why the state cannot be saved; nothing is sent until it can.
    pub unsaved: Option<String>,
    pub sources: Vec<SourceStatus>,
    pub channels: Vec<ChannelView>,
    /// Nothing where there is no embedded hub.
    pub embedded_hub: Option<HubStatus>,
    pub findings: Vec<String>,
    /// Nothing where no daemon runs.
    pub configuration: Option<ConfigurationStatus>,
    /// For the metrics alone.
    #[serde(skip)]
    pub figures: Figures,
}

/// What a daemon goes by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationStatus {
    /// Since when the configuration in force is.
    pub loaded: Timestamp,
    /// The last attempt at another one, if it failed and none came after it.
    pub refused: Option<RefusedConfiguration>,
    /// Every key with its value, secrets masked.
    pub in_force: String,
}

/// A configuration that was not taken: the one before it goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedConfiguration {
    pub at: Timestamp,
    pub error: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    pub name: String,
    /// Whether every present mount was swept.
    pub settled: bool,
    /// Whether deletions are not believed for now (R15), and what to do about it.
    pub suspended: bool,
    pub suspension: Option<String>,
    pub documents: usize,
    pub missing: usize,
    pub broken: usize,
    pub mounts: Vec<MountStatus>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MountStatus {
    pub directory: String,
    pub url: Uri,
    /// Nothing while nobody has looked.
    pub present: Option<bool>,
}

impl From<SourceView> for SourceStatus {
    fn from(source: SourceView) -> SourceStatus {
        let mounts = source.mounts.into_iter().map(|mount| MountStatus {
            directory: mount.directory.to_string_lossy().into_owned(),
            url: mount.prefix,
            present: mount.present,
        });
        SourceStatus {
            name: source.name,
            settled: source.settled,
            suspended: source.suspension.is_some(),
            suspension: source.suspension.as_ref().map(ToString::to_string),
            documents: source.documents,
            missing: source.missing,
            broken: source.broken,
            mounts: mounts.collect(),
        }
    }
}

/// A channel and how its hubs stand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChannelView {
    pub source: String,
    pub set: Uri,
    pub topic: Topic,
    pub retired: Option<Timestamp>,
    pub seq: u64,
    pub hubs: Vec<HubView>,
}

/// One hub's account on one channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HubView {
    pub hub: Hub,
    pub mode: Mode,
    pub state: Condition,
    /// How many documents there is something to say of, those in flight included.
    pub due: usize,
    /// The number of the notification in flight, and since when it is.
    pub in_flight: Option<u64>,
    pub since: Option<Timestamp>,
    pub attempts: u32,
    /// Whether it is being submitted now.
    pub sending: bool,
    pub next_try: Option<Timestamp>,
    /// Why the notification in flight was not accepted when it was last tried.
    pub last_failure: Option<String>,
    /// What came of the last attempt, whether it was accepted or not.
    pub last: Option<Attempt>,
    /// When it last accepted a notification.
    pub accepted: Option<Timestamp>,
    /// Whether the topic was fetched after the last ping, or not in time; nothing until either is known, and
    /// for hubs that are not pinged (R26).
    pub fetch_confirmed: Option<bool>,
}

/// How a hub stands on a channel, in a word; the worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// It refuses what is in flight, and waiting alone will not help.
    NeedsPerson,
    /// It refuses what is in flight, or does not answer.
    Failing,
    /// It accepted a ping and did not fetch the topic (R26).
    Unfetched,
    /// It refuses what is in flight, probably because nobody has subscribed.
    NoSubscribers,
    /// There is something to say, and nothing wrong.
    Due,
    Fine,
}

impl HubView {
    /// Why the notification in flight was not accepted when it was last tried.
    pub fn failure(&self) -> Option<&Refusal> {
        let last = self.last.as_ref()?;
        last.refusal
            .as_ref()
            .filter(|_| self.in_flight == Some(last.seq))
    }

    pub(crate) fn condition(&self) -> Condition {
        match self.failure() {
            Some(refusal) if refusal.needs_person => Condition::NeedsPerson,
            Some(refusal) if refusal.kind != Kind::NoSubscribersLikely => Condition::Failing,
            _ if self.fetch_confirmed == Some(false) => Condition::Unfetched,
            Some(_) => Condition::NoSubscribers,
            None if self.due > 0 => Condition::Due,
            None => Condition::Fine,
        }
    }
}

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
    pub held: Vec<HeldView>,
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

/// A document of which something will be said, but not yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldView {
    pub uri: Uri,
    pub capability: Capability,
    pub reason: String,
}

//! The status as programs read it: `/status.json`, and the JSON of `status` and `outbox`. What is absent is `null`.
//!
//! [`alerts`] sums up each hub and has the conditions that an operator should know of, and [`words`] numbers and times in
//! words. The status page and the commands print these.

pub mod alerts;
pub mod words;

use std::fmt;

use jiff::Timestamp;
use resourcesync::capability::{Capability, ChannelKind};
use resourcesync::uri::{Hub, Topic, Uri};
use serde::{Deserialize, Serialize};
use websub::hub::publication::{PublisherView, UnknownTokenCount};
use websub::hub::subscriptions::view::{HubStatus, SubscriptionList};
use websub::publisher::reason::{Refusal, RefusalKind};

use crate::report::figures::MetricFigures;
use announce::delivery::KeptAnswer;
use announce::history::NotificationView;
use announce::observation::UnreadableDirectory;
use announce::plan::PublishMode;

use announce::state::{ChannelId, HubId};

pub use announce::steps::change_log::BacklogView;

/// Intervals of a day.
pub const INTERVALS: usize = 96;
/// Length of an interval, in seconds.
pub const INTERVAL: i64 = 15 * 60;

/// The amount of detail that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    Everything,
    /// The figures of the metrics, without the lists, which take longer to make: Prometheus asks every few seconds.
    Figures,
    /// The figures, and the subscriptions at the hub in this process.
    Subscriptions,
}

/// The daemon's status.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The time of this report.
    pub at: Timestamp,
    /// The reason why the state cannot be saved; nothing is sent until it can.
    pub unsaved: Option<String>,
    pub sources: Vec<SourceStatus>,
    pub channels: Vec<ChannelView>,
    /// The hubs that accept nothing at the moment (R23).
    pub failing_hubs: Vec<FailingHub>,
    /// The hubs and brokers that could not be reached since the start.
    pub unreached: Vec<NeverReachedHub>,
    /// The hubs that fell behind on a change channel within a day, since the daemon began (C22).
    pub fell_behind: Vec<BacklogOverflow>,
    /// The first sets of which no change is sent to any hub, and how many more.
    pub muted: Vec<MutedSet>,
    pub more_muted: usize,
    /// Nothing where there is no embedded hub.
    pub embedded_hub: Option<HubStatus>,
    /// The publishers of `rsnotify hub`, whose part that serves subscribers is `embedded_hub`.
    pub publishers: Vec<PublisherView>,
    /// Requests with tokens that no publisher has, those sent last at the end.
    pub unknown_tokens: Vec<UnknownTokenCount>,
    /// The first candidates that cannot be read, and how many more: those that lasted come first, then those that
    /// cannot be read for longest. Without a daemon, only those that could not be read when their mount was first swept
    /// (R13).
    pub broken: Vec<BrokenCandidateView>,
    pub more_broken: usize,
    /// The first findings, and how many more.
    pub findings: Vec<String>,
    pub more_findings: usize,
    /// The findings by kind, the acknowledged last.
    pub finding_groups: Vec<FindingGroup>,
    /// The last notifications, the newest first.
    pub notifications: Vec<NotificationView>,
    /// The deliveries of the last 24 hours.
    pub last_day: Vec<IntervalDeliveries>,
    /// Nothing where no daemon runs.
    pub daemon: Option<DaemonView>,
    /// Nothing where no daemon runs.
    pub configuration: Option<ConfigurationStatus>,
    /// Figures that only the metrics show.
    #[serde(skip)]
    pub figures: MetricFigures,
    /// Subscriptions, where they were asked for.
    #[serde(skip)]
    pub subscriptions: SubscriptionList,
}

impl Status {
    /// Returns true if it is the status of `rsnotify hub`, which has no source, and at first no publisher either.
    pub fn is_of_hub(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns the number of documents, or of changes of resources, that hubs are due, over all channels.
    pub fn pending_count(&self) -> usize {
        self.channels.iter().map(ChannelView::pending_count).sum()
    }

    /// Returns the number of held documents, over all channels.
    pub fn held_count(&self) -> usize {
        self.channels.iter().map(ChannelView::held_count).sum()
    }

    /// Returns the number of acknowledged findings.
    pub fn acknowledged_finding_count(&self) -> usize {
        let known = self.finding_groups.iter().filter(|it| it.acknowledged);
        known.map(|group| group.count).sum()
    }

    /// Returns the channels, those with problems first, then those on which something waits.
    pub fn channels_by_trouble(&self) -> Vec<&ChannelView> {
        let mut channels: Vec<&ChannelView> = self.channels.iter().collect();
        channels.sort_by_key(|channel| (channel.worst(), channel.held.is_empty(), &channel.topic));
        channels
    }
}

/// The process of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonView {
    /// The name of the machine, or of the container or pod.
    pub host: String,
    pub version: String,
    /// The start of the process.
    pub began: Timestamp,
}

/// Findings of one kind (R8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingGroup {
    pub kind: String,
    pub count: usize,
    /// The first of them, in words.
    pub examples: Vec<String>,
    /// True if the configuration acknowledges them: no alarm is about those.
    pub acknowledged: bool,
}

impl FindingGroup {
    /// Returns the number of findings besides the examples.
    pub fn more(&self) -> usize {
        self.count.saturating_sub(self.examples.len())
    }
}

/// The effective configuration of a daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationStatus {
    /// The time since when it is effective.
    pub loaded: Timestamp,
    /// The last attempt at another one, if it failed and none came after it.
    pub refused: Option<RefusedConfiguration>,
    /// Every key with its value, secrets masked.
    #[serde(rename = "in_force")]
    pub effective: String,
}

/// A configuration that was not reloaded: the previous one is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedConfiguration {
    pub at: Timestamp,
    pub error: String,
}

/// A candidate that exists and cannot be read (R3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenCandidateView {
    pub source: String,
    /// In the file system.
    pub path: String,
    pub uri: Uri,
    /// With the line, where there is one.
    pub reason: String,
    pub since: Timestamp,
    /// True if an earlier version was read: that one is kept.
    pub known: bool,
    /// True if it has been so for `broken_after`: what is shorter may be a writer who is not done.
    pub lasting: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    pub name: String,
    /// True if every present mount was swept.
    pub settled: bool,
    /// True while deletions are suspended (R15), and the numbers with the remedy.
    pub suspended: bool,
    pub suspension: Option<String>,
    pub documents: usize,
    /// The number of files read instead, and why the first is none, where there is no document.
    #[serde(default)]
    pub without_document: Option<String>,
    pub missing: usize,
    /// While deletions are suspended, the directories with most of what is missing, and how many more there are.
    pub missing_in: Vec<MissingInDirectory>,
    pub more_missing_in: usize,
    pub broken: usize,
    pub mounts: Vec<MountStatus>,
}

/// The missing documents of one directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingInDirectory {
    pub directory: String,
    pub missing: usize,
    pub of: usize,
}

impl fmt::Display for MissingInDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} in {}", self.missing, self.of, self.directory)
    }
}

/// The documents and resources (C29) that would be accepted as deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptableDeletions {
    pub source: String,
    pub documents: usize,
    pub directories: Vec<MissingInDirectory>,
    /// The Capability Lists whose Resource Lists lack some, with these and those before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<(Uri, usize, usize)>,
    /// Mounts that are not there: nothing below them can be accepted.
    pub absent: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MountStatus {
    pub directory: String,
    pub url: Uri,
    /// Nothing while nobody has looked.
    pub present: Option<bool>,
    /// The reason why it is not.
    pub reason: Option<String>,
    /// The first directories in it that may not be read, and how many more. Nothing where no daemon runs.
    pub unreadable: Vec<UnreadableDirectory>,
    pub more_unreadable: usize,
}

impl MountStatus {
    /// Returns the number of directories in it that may not be read.
    pub fn unreadable_directory_count(&self) -> usize {
        self.unreadable.len() + self.more_unreadable
    }
}

/// A channel and the state of its hubs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChannelView {
    #[serde(skip)]
    pub id: ChannelId,
    pub source: String,
    #[serde(default)]
    pub kind: ChannelKind,
    pub set: Uri,
    pub topic: Topic,
    pub retired: Option<Timestamp>,
    pub seq: u64,
    pub hubs: Vec<HubView>,
    /// The documents that have been due to some hub for longest, and the number of others. For a change channel, the
    /// number of changes that the hub furthest behind is due.
    pub pending: Vec<WaitingDocument>,
    pub more_pending: usize,
    /// The held documents that have waited for longest, and the number of others.
    pub held: Vec<WaitingDocument>,
    pub more_held: usize,
}

/// A document with a pending change, and what that waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingDocument {
    pub uri: Uri,
    pub capability: Capability,
    /// Since when it changed, is missing or is held.
    pub since: Timestamp,
    pub reason: String,
}

/// One hub on one channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HubView {
    #[serde(skip)]
    pub id: HubId,
    /// The event that what is due waits for, if nothing is in flight.
    #[serde(skip)]
    pub waits: Option<String>,
    /// True if it is not advertised any more, and still due something (R11).
    #[serde(skip)]
    pub has_left: bool,
    pub hub: Hub,
    pub mode: PublishMode,
    pub state: AccountCondition,
    /// The number of documents with a change that is due, or of changes of resources, those in flight included.
    pub due: usize,
    /// On a change channel, what it is due; nothing on another.
    #[serde(default)]
    pub backlog: Option<BacklogView>,
    /// The number of the notification in flight, and since when it is.
    pub in_flight: Option<u64>,
    pub since: Option<Timestamp>,
    pub attempts: u32,
    /// True while it is being submitted.
    pub sending: bool,
    pub next_try: Option<Timestamp>,
    /// The reason why the last attempt at the notification in flight failed.
    pub last_failure: Option<String>,
    /// The hub's last failure on any channel, where the notification in flight waits for the hub to accept anything.
    #[serde(default)]
    pub hub_failure: Option<Refusal>,
    /// The last attempt, accepted or not.
    pub last: Option<KeptAnswer>,
    /// The time of the last accepted notification.
    pub accepted: Option<Timestamp>,
    /// True if the topic was fetched after the last ping, false if not in time; nothing until either is known, and
    /// for hubs that are not pinged (R26).
    pub fetch_confirmed: Option<bool>,
}

/// A hub that accepts nothing, and is tried with one submission at a time (R23).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingHub {
    pub hub: Hub,
    pub since: Timestamp,
    /// Submissions that failed since then, over all channels.
    pub attempts: u32,
    /// The last failure.
    pub refusal: Refusal,
    pub next_try: Timestamp,
    /// Notifications that wait for it.
    pub waiting: usize,
}

/// A hub or broker that could not be reached since the start, whether or not there was anything to tell it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeverReachedHub {
    pub hub: Hub,
    pub since: Timestamp,
    /// The failure of the last attempt.
    pub reason: String,
    /// It refuses the login, and is not tried again before there is something to send.
    #[serde(default)]
    pub is_refused: bool,
}

/// A hub that fell so far behind that changes count as told although it was not told them (C22).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BacklogOverflow {
    pub hub: Hub,
    pub topic: Topic,
    pub changes: usize,
    pub last: Timestamp,
}

/// The deliveries of one interval, or of all since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalDeliveries {
    /// Its start; it lasts for 15 minutes. The time of the count of those since the start.
    pub from: Timestamp,
    /// Deliveries that a hub, a broker or a subscriber accepted.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were not the first with their notification, failed or not.
    #[serde(default)]
    pub retries: u64,
    /// Maximum that was pending at a time; what is pending now.
    pub pending: u64,
    /// The number of times that the daemon started.
    #[serde(default)]
    pub starts: u64,
}

/// A set of which no change is sent to any hub, because of what its Capability List advertises (R9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MutedSet {
    pub source: String,
    pub set: Uri,
    pub topic: Option<Topic>,
    /// A name for the cause, as findings have it.
    pub kind: String,
    pub reason: String,
    /// The remedy.
    pub remedy: String,
}

/// The condition of a hub on a channel; the worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountCondition {
    /// No hub is told: none that is configured is advertised.
    Muted,
    /// It refuses what is in flight, and waiting alone will not help.
    #[serde(rename = "needs_person")]
    NeedsOperator,
    /// It refuses what is in flight, or does not answer.
    Failing,
    /// It accepted a ping and did not fetch the topic (R26).
    Unfetched,
    /// It refuses what is in flight, probably because nobody has subscribed.
    NoSubscribers,
    /// A change is due, and nothing is wrong.
    Due,
    Fine,
}

impl AccountCondition {
    /// Those of hubs, with their names in JSON and on the command line.
    pub const NAMES: [(AccountCondition, &str); 6] = [
        (AccountCondition::NeedsOperator, "needs_person"),
        (AccountCondition::Failing, "failing"),
        (AccountCondition::Unfetched, "unfetched"),
        (AccountCondition::NoSubscribers, "no_subscribers"),
        (AccountCondition::Due, "due"),
        (AccountCondition::Fine, "fine"),
    ];

    /// Returns the condition of a hub that is told, as the rest of its view says.
    pub fn of(view: &HubView) -> AccountCondition {
        match view.failure() {
            Some(refusal) if refusal.needs_operator => AccountCondition::NeedsOperator,
            Some(refusal) if refusal.kind != RefusalKind::NoSubscribersLikely => {
                AccountCondition::Failing
            }
            _ if view.fetch_confirmed == Some(false) => AccountCondition::Unfetched,
            Some(_) => AccountCondition::NoSubscribers,
            None if view.due > 0 => AccountCondition::Due,
            None => AccountCondition::Fine,
        }
    }

    /// Returns the condition in words.
    pub fn in_words(self) -> &'static str {
        match self {
            AccountCondition::Muted => "muted",
            AccountCondition::NeedsOperator => "action required",
            AccountCondition::Failing => "failing",
            AccountCondition::Unfetched => "not fetched",
            AccountCondition::NoSubscribers => "no subscribers",
            AccountCondition::Due => "due",
            AccountCondition::Fine => "fine",
        }
    }

    /// Returns true if an operator should look at it.
    pub fn is_trouble(self) -> bool {
        self <= AccountCondition::Unfetched
    }
}

impl ChannelView {
    /// Returns the number of documents, or of changes of resources, that some hub is due.
    pub fn pending_count(&self) -> usize {
        self.pending.len() + self.more_pending
    }

    pub fn held_count(&self) -> usize {
        self.held.len() + self.more_held
    }

    /// Returns when a hub last accepted a notification.
    pub fn last_accepted_at(&self) -> Option<Timestamp> {
        self.hubs.iter().filter_map(|hub| hub.accepted).max()
    }

    /// Returns the worst condition of its hubs; a retired channel without hubs is fine.
    pub fn worst(&self) -> AccountCondition {
        // Nothing is sent on it, because it has no hub.
        if self.retired.is_none() && self.hubs.is_empty() {
            return AccountCondition::Muted;
        }
        let states = self.hubs.iter().map(|hub| hub.state);
        states.min().unwrap_or(AccountCondition::Fine)
    }
}

/// Returns the pending and held changes of channels with their state, the oldest first and without repetitions.
pub fn pending_and_held<'a>(
    channels: impl IntoIterator<Item = &'a ChannelView>,
) -> Vec<(&'static str, &'a WaitingDocument)> {
    let all = channels.into_iter().flat_map(|channel| {
        let pending = channel.pending.iter().map(|view| ("pending", view));
        pending.chain(channel.held.iter().map(|view| ("held", view)))
    });
    let mut all: Vec<(&str, &WaitingDocument)> = all.collect();
    all.sort_by_key(|(state, view)| (view.since, *state, &view.uri, &view.reason));
    all.dedup();
    all
}

impl HubView {
    /// Returns why the notification in flight was not accepted when it was last tried, or waits to be tried at all.
    pub fn failure(&self) -> Option<&Refusal> {
        let attempt = self.last.as_ref();
        let last = attempt.filter(|last| self.in_flight == Some(last.seq));
        let refusal = last.and_then(|last| last.refusal.as_ref());
        self.hub_failure.as_ref().or(refusal)
    }

    /// Returns the reason for trouble, if there is any.
    pub fn trouble_reason(&self) -> Option<&str> {
        match self.failure() {
            Some(refusal) => Some(&refusal.reason),
            None if self.fetch_confirmed == Some(false) => {
                Some("it accepted a ping, and did not fetch the topic")
            }
            None => None,
        }
    }
}

//! Figures for the metrics alone: numbers of each kind, and counts since the daemon began. Nothing here is saved.

use std::collections::BTreeMap;

use jiff::Timestamp;
use resourcesync::capability::{Capability, ChannelKind};
use resourcesync::uri::{Hub, Topic};
use websub::counts::{DurationHistogram, RequestCounts};
use websub::publisher::reason::RefusalKind;

use crate::report::documents::DocumentState;
use crate::report::status::BacklogOverflow;

/// All figures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetricFigures {
    /// By source.
    pub holdings: BTreeMap<String, SourceContents>,
    /// Hints of each source's tree.
    pub hints: BTreeMap<String, HintCounts>,
    /// The time that each hub took to answer a submission, or not to.
    pub attempts: BTreeMap<Hub, DurationHistogram>,
    pub topics: RequestCounts,
    pub counts: DaemonCounts,
}

/// The documents and findings of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceContents {
    /// Documents by their state, whatever a hub is due of them.
    pub documents: BTreeMap<(Capability, DocumentState), usize>,
    /// Candidates that cannot be read.
    pub broken: usize,
    /// The time since when the oldest broken candidate cannot be read.
    pub broken_since: Option<Timestamp>,
    pub findings: BTreeMap<&'static str, usize>,
    /// Sets of which nothing is sent.
    pub muted: usize,
}

/// The kernel's events about a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HintCounts {
    /// Events that may mean a document or a directory.
    pub taken: u64,
    /// The number of times that events were lost.
    pub overflows: u64,
}

/// The counts of the event loop.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DaemonCounts {
    pub began: Timestamp,
    /// The durations of saves.
    pub saves: DurationHistogram,
    pub save_failures: u64,
    pub hubs: BTreeMap<(Hub, ChannelKind), HubCounts>,
    /// Counts of Change Lists, by source.
    pub changes: BTreeMap<String, ChangeListCounts>,
    /// The durations of reading Change Lists and comparing them with what was taken.
    pub rounds: DurationHistogram,
    /// Hubs that fell behind, by topic (C22).
    pub fell_behind: BTreeMap<(Hub, Topic), BacklogOverflow>,
    /// By source and directory.
    pub mounts: BTreeMap<(String, String), SweepFigures>,
    /// By source, of trees that were replaced.
    pub hints: BTreeMap<String, HintCounts>,
}

/// The changes of a source that were taken from its Change Lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeListCounts {
    /// By kind: created, updated, deleted.
    pub taken: [u64; 3],
    /// Told without a datetime (C15), by reason: it is missing, invalid, back-dated or ahead.
    pub undated: [u64; 4],
    /// Entries that cannot be told (C2).
    pub skipped: u64,
    /// Lists that were read: learned, taken, stale. The entries of the first count as taken without being told (C10); the
    /// last had changed meanwhile, or could not be read, and are read again (C8).
    pub reads: [u64; 3],
}

/// The outcomes of submissions to one hub.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HubCounts {
    pub accepted: u64,
    /// Attempts that failed.
    pub refused: BTreeMap<RefusalKind, u64>,
    /// Attempts that were not the first with their notification.
    pub retries: u64,
    /// Changes in what was accepted.
    pub changes: u64,
    /// Changes that count as told because the hub fell behind.
    pub dropped: u64,
    /// The times from the cut of a notification to its acceptance.
    pub took: DurationHistogram,
}

/// The complete sweeps of a mount.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepFigures {
    pub took: DurationHistogram,
    /// The end of the last one.
    pub last: Timestamp,
    /// Candidates that the last one met.
    pub files: u64,
    /// True if events should tell of changes and do not, everywhere.
    pub unwatched: bool,
}

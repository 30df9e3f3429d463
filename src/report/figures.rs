//! Figures for the metrics alone: numbers of each kind, and counts since the daemon began. Nothing here is saved.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::delivery::attempt::RefusalKind;
use crate::announce::event::Fact;
use crate::histogram::Histogram;
use crate::report::documents::DocumentState;
use crate::resourcesync::capability::Capability;
use crate::resourcesync::uri::Hub;

/// All figures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// By source.
    pub holdings: BTreeMap<String, Holdings>,
    /// Of each source's tree.
    pub hints: BTreeMap<String, Hints>,
    /// The time that each hub took to answer a submission, or not to.
    pub attempts: BTreeMap<Hub, Histogram>,
    pub topics: TopicRequests,
    pub counts: Counts,
}

/// The documents and findings of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Documents by their state, whatever a hub is due of them.
    pub documents: BTreeMap<(Capability, DocumentState), usize>,
    /// The time since when the oldest broken candidate cannot be read.
    pub broken_since: Option<Timestamp>,
    pub findings: BTreeMap<&'static str, usize>,
}

/// The kernel's events about a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// Events that may mean a document or a directory.
    pub taken: u64,
    /// The number of times that events were lost.
    pub overflows: u64,
}

impl Hints {
    /// Returns the sum of these and others.
    pub fn and(self, others: Hints) -> Hints {
        Hints {
            taken: self.taken + others.taken,
            overflows: self.overflows + others.overflows,
        }
    }
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

/// The counts of the event loop.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    pub began: Timestamp,
    /// The durations of saves.
    pub saves: Histogram,
    pub save_failures: u64,
    pub hubs: BTreeMap<Hub, HubCounts>,
    /// By source and directory.
    pub mounts: BTreeMap<(String, String), Sweeps>,
    /// By source, of trees that others have taken the place of.
    pub hints: BTreeMap<String, Hints>,
}

impl Counts {
    /// Counts a fact that the operator is told.
    pub fn tell(&mut self, fact: &Fact) {
        match fact {
            Fact::Delivered {
                hub,
                changes,
                attempts,
                took,
                ..
            } => {
                let counts = self.attempted(hub, *attempts);
                counts.accepted += 1;
                counts.changes += *changes as u64;
                counts.took.observe(*took);
            }
            Fact::Refused {
                hub,
                attempts,
                kind,
                ..
            } => {
                *self
                    .attempted(hub, *attempts)
                    .refused
                    .entry(*kind)
                    .or_default() += 1
            }
            Fact::Halved { hub, attempts, .. } => {
                let counts = self.attempted(hub, *attempts);
                *counts.refused.entry(RefusalKind::TooLarge).or_default() += 1;
            }
            _ => {}
        }
    }

    fn attempted(&mut self, hub: &Hub, attempts: u32) -> &mut HubCounts {
        let counts = self.hubs.entry(hub.clone()).or_default();
        counts.retries += u64::from(attempts > 1);
        counts
    }
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
    /// The times from the cut of a notification to its acceptance.
    pub took: Histogram,
}

/// The complete sweeps of a mount.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sweeps {
    pub took: Histogram,
    /// The end of the last one.
    pub last: Timestamp,
    /// Candidates that the last one met.
    pub files: u64,
    /// True if events should tell of changes and do not, everywhere.
    pub unwatched: bool,
}

impl Sweeps {
    pub fn ended(&mut self, took: Duration, files: u64, unwatched: bool, now: Timestamp) {
        self.took.observe(took);
        (self.last, self.files, self.unwatched) = (now, files, unwatched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resourcesync::uri::Topic;

    #[test]
    fn each_attempt_counts_once_under_what_came_of_it() {
        let (topic, hub) = (
            Topic::new("https://t.example/"),
            Hub::new("https://h.example/"),
        );
        let refused = |attempts, kind| Fact::Refused {
            topic: topic.clone(),
            hub: hub.clone(),
            seq: 1,
            attempts,
            reason: "it is down".to_owned(),
            next_try: Timestamp::UNIX_EPOCH,
            kind,
            needs_operator: false,
            is_news: true,
        };
        let mut counts = Counts::default();
        for fact in [
            refused(1, RefusalKind::NoAnswer),
            refused(2, RefusalKind::NoAnswer),
            refused(3, RefusalKind::Unavailable),
            Fact::Halved {
                topic: topic.clone(),
                hub: hub.clone(),
                seq: 1,
                attempts: 4,
                limit: 2,
                is_news: true,
            },
            Fact::Delivered {
                topic: topic.clone(),
                hub: hub.clone(),
                seq: 2,
                changes: 7,
                attempts: 1,
                took: Duration::from_secs(3),
            },
            Fact::Cut {
                topic: topic.clone(),
                seq: 2,
                changes: 7,
                hubs: 1,
            },
        ] {
            counts.tell(&fact);
        }
        let mut took = Histogram::default();
        took.observe(Duration::from_secs(3));
        let want = HubCounts {
            accepted: 1,
            refused: BTreeMap::from([
                (RefusalKind::NoAnswer, 2),
                (RefusalKind::Unavailable, 1),
                (RefusalKind::TooLarge, 1),
            ]),
            retries: 3,
            changes: 7,
            took,
        };
        assert_eq!(counts.hubs, BTreeMap::from([(hub.clone(), want)]));
    }
}

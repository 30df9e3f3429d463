//! Figures for the metrics alone: numbers of each kind, and counts since the daemon began. Nothing here is saved.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic};
use websub::histogram::Histogram;
use websub::publisher::reason::RefusalKind;
use websub::topics::TopicRequests;

use crate::announce::changes::round::{TakeOutcome, TakeRequest, UndatedChanges};
use crate::announce::event::{DropCause, Fact};
use crate::report::documents::DocumentState;
use crate::report::status::FellBehindView;

/// All figures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// By source.
    pub holdings: BTreeMap<String, Holdings>,
    /// Hints of each source's tree.
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

/// The counts of the event loop.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    pub began: Timestamp,
    /// The durations of saves.
    pub saves: Histogram,
    pub save_failures: u64,
    pub hubs: BTreeMap<(Hub, ChannelKind), HubCounts>,
    /// Counts of Change Lists, by source.
    pub changes: BTreeMap<String, ChangeCounts>,
    /// The durations of reading Change Lists and comparing them with what was taken.
    pub rounds: Histogram,
    /// Hubs that fell behind, by topic (C22).
    pub fell_behind: BTreeMap<(Hub, Topic), FellBehindView>,
    /// By source and directory.
    pub mounts: BTreeMap<(String, String), Sweeps>,
    /// By source, of trees that were replaced.
    pub hints: BTreeMap<String, Hints>,
}

impl Counts {
    /// Counts a fact that the operator is told. `kind` returns the kind of a channel.
    pub fn tell(&mut self, fact: &Fact, kind: impl Fn(&Topic) -> ChannelKind, now: Timestamp) {
        match fact {
            Fact::Delivered {
                topic,
                hub,
                changes,
                attempts,
                took,
                ..
            } => {
                let counts = self.attempted(hub, kind(topic), *attempts);
                counts.accepted += 1;
                counts.changes += *changes as u64;
                counts.took.observe(*took);
            }
            Fact::Refused {
                topic,
                hub,
                attempts,
                kind: refusal,
                ..
            } => {
                let counts = self.attempted(hub, kind(topic), *attempts);
                *counts.refused.entry(*refusal).or_default() += 1;
            }
            Fact::Took {
                source,
                created,
                updated,
                deleted,
                undated,
                back_dated,
                ..
            } => {
                let counts = self.changes.entry(source.clone()).or_default();
                add(&mut counts.taken, [*created, *updated, *deleted]);
                let UndatedChanges {
                    missing,
                    invalid,
                    ahead,
                } = *undated;
                add(&mut counts.undated, [missing, invalid, *back_dated, ahead]);
            }
            Fact::SkippedEntries { source, count, .. } => {
                let counts = self.changes.entry(source.clone()).or_default();
                counts.skipped += *count as u64;
            }
            Fact::Dropped {
                topic,
                hub,
                changes,
                cause: DropCause::FellBehind,
            } => {
                let counts = self.hubs.entry((hub.clone(), ChannelKind::Change));
                counts.or_default().dropped += *changes as u64;
                let account = (hub.clone(), topic.clone());
                let behind = self.fell_behind.entry(account);
                let behind = behind.or_insert_with(|| FellBehindView {
                    hub: hub.clone(),
                    topic: topic.clone(),
                    changes: 0,
                    last: now,
                });
                behind.changes += changes;
                behind.last = now;
            }
            Fact::Halved {
                topic,
                hub,
                attempts,
                ..
            } => {
                let counts = self.attempted(hub, kind(topic), *attempts);
                *counts.refused.entry(RefusalKind::TooLarge).or_default() += 1;
            }
            _ => {}
        }
    }

    /// Counts a round over Change Lists of a source.
    pub fn read_changes(
        &mut self,
        source: &str,
        request: &TakeRequest,
        outcome: &TakeOutcome,
        took: Duration,
    ) {
        self.rounds.observe(took);
        let counts = self.changes.entry(source.to_owned()).or_default();
        match outcome {
            TakeOutcome::Taken(_) => {
                let learned = request
                    .lists
                    .iter()
                    .filter(|list| list.is_learned || list.is_archived);
                let learned = learned.count();
                add(
                    &mut counts.reads,
                    [learned, request.lists.len() - learned, 0],
                );
            }
            TakeOutcome::Stale(_) | TakeOutcome::Unreadable(..) | TakeOutcome::Failed(_) => {
                add(&mut counts.reads, [0, 0, request.lists.len()]);
            }
        }
    }

    fn attempted(&mut self, hub: &Hub, kind: ChannelKind, attempts: u32) -> &mut HubCounts {
        let counts = self.hubs.entry((hub.clone(), kind)).or_default();
        counts.retries += u64::from(attempts > 1);
        counts
    }
}

/// The changes of a source that were taken from its Change Lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeCounts {
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

/// Adds numbers to sums, each to its own.
fn add<const N: usize>(sums: &mut [u64; N], numbers: [usize; N]) {
    for (sum, number) in sums.iter_mut().zip(numbers) {
        *sum += number as u64;
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
    /// Changes that count as told because the hub fell behind.
    pub dropped: u64,
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
            counts.tell(&fact, |_| ChannelKind::Change, Timestamp::UNIX_EPOCH);
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
            dropped: 0,
            took,
        };
        let account = (hub.clone(), ChannelKind::Change);
        assert_eq!(counts.hubs, BTreeMap::from([(account, want)]));
    }

    #[test]
    fn changes_that_are_taken_count_by_kind_and_by_what_their_datetimes_lack() {
        let topic = Topic::new("https://t.example/");
        let took = Fact::Took {
            source: "main".to_owned(),
            topic: topic.clone(),
            seq: 1,
            created: 1,
            updated: 2,
            deleted: 0,
            lists: 1,
            notifications: 1,
            undated: UndatedChanges {
                missing: 1,
                invalid: 0,
                ahead: 1,
            },
            back_dated: 1,
        };
        let hub = Hub::new("https://h.example/");
        let behind = Fact::Dropped {
            topic: topic.clone(),
            hub: hub.clone(),
            changes: 5,
            cause: DropCause::FellBehind,
        };
        let mut counts = Counts::default();
        for fact in [&took, &took, &behind, &behind] {
            counts.tell(fact, |_| ChannelKind::Change, Timestamp::UNIX_EPOCH);
        }
        let changes = &counts.changes["main"];
        assert_eq!(changes.taken, [2, 4, 0]);
        assert_eq!(changes.undated, [2, 0, 2, 2]);
        let dropped = counts.hubs[&(hub.clone(), ChannelKind::Change)].dropped;
        assert_eq!(
            (dropped, counts.fell_behind[&(hub, topic)].changes),
            (10, 10)
        );
    }
}

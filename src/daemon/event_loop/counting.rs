//! Counting what the metrics show: the facts that the operator is told, and the rounds over Change Lists.

use std::time::Duration;

use jiff::Timestamp;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic};
use websub::publisher::reason::RefusalKind;

use crate::report::figures::{DaemonCounts, HubCounts};
use crate::report::status::BacklogOverflow;
use announce::changes::round::{RoundOutcome, RoundRequest};
use announce::event::{DropCause, Fact};

impl DaemonCounts {
    /// Counts a fact that the operator is told. `kind` returns the kind of a channel.
    pub fn count_fact(
        &mut self,
        fact: &Fact,
        kind: impl Fn(&Topic) -> ChannelKind,
        now: Timestamp,
    ) {
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
                let (missing, invalid) = (undated.missing, undated.invalid);
                let undated = [missing, invalid, *back_dated, undated.ahead];
                add(&mut counts.undated, undated);
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
                let behind = behind.or_insert_with(|| BacklogOverflow {
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
    pub fn count_round(
        &mut self,
        source: &str,
        request: &RoundRequest,
        outcome: &RoundOutcome,
        took: Duration,
    ) {
        self.rounds.observe(took);
        let counts = self.changes.entry(source.to_owned()).or_default();
        match outcome {
            RoundOutcome::Taken(_) => {
                let lists = request.lists.iter();
                let learned = lists.filter(|list| list.is_learned || list.is_archived);
                let learned = learned.count();
                let taken = request.lists.len() - learned;
                add(&mut counts.reads, [learned, taken, 0]);
            }
            RoundOutcome::Stale(_) | RoundOutcome::Unreadable(..) | RoundOutcome::Failed(_) => {
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

/// Adds numbers to sums, each to its own.
fn add<const N: usize>(sums: &mut [u64; N], numbers: [usize; N]) {
    for (sum, number) in sums.iter_mut().zip(numbers) {
        *sum += number as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use websub::counts::DurationHistogram;

    use announce::changes::round::UndatedCounts;

    use std::sync::Arc;

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
        let mut counts = DaemonCounts::default();
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
                body: Arc::new([]),
            },
        ] {
            counts.count_fact(&fact, |_| ChannelKind::Change, Timestamp::UNIX_EPOCH);
        }
        let mut took = DurationHistogram::default();
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
            notifications: Vec::new(),
            undated: UndatedCounts {
                missing: 1,
                invalid: 0,
                ahead: 1,
            },
            back_dated: 1,
        };
        let hub = Hub::new("https://h.example/");
        let behind = Fact::Dropped {
            cause: DropCause::FellBehind,
            topic: topic.clone(),
            hub: hub.clone(),
            changes: 5,
        };
        let mut counts = DaemonCounts::default();
        for fact in [&took, &took, &behind, &behind] {
            counts.count_fact(fact, |_| ChannelKind::Change, Timestamp::UNIX_EPOCH);
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

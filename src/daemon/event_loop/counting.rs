//! Counting what the metrics show: the facts that the operator is told, and the rounds over Change Lists; and what the status
//! page shows: the deliveries of the last 24 hours, in intervals, which are saved at most once in the length of an interval, and
//! when the daemon stops.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use announce::changes::round::{RoundOutcome, RoundRequest};
use announce::event::{AnswerOutcome, DropCause, Fact};
use announce::time::later;
use jiff::Timestamp;
use resourcesync::capability::ChannelKind;
use websub::publisher::reason::RefusalKind;

use crate::report::figures::DaemonCounts;
use crate::report::status::{BacklogOverflow, INTERVAL, INTERVALS, IntervalDeliveries};

impl DaemonCounts {
    /// Counts a fact that the operator is told.
    pub fn count_fact(&mut self, fact: &Fact, now: Timestamp) {
        match fact {
            Fact::Answered(answered, outcome) => {
                let account = (answered.hub.clone(), answered.kind);
                let counts = self.hubs.entry(account).or_default();
                counts.retries += u64::from(answered.attempts > 1);
                let refused = match outcome {
                    AnswerOutcome::Delivered { changes, took } => {
                        counts.accepted += 1;
                        counts.changes += *changes as u64;
                        return counts.took.observe(*took);
                    }
                    AnswerOutcome::Refused { refusal, .. } => refusal.kind,
                    AnswerOutcome::Halved { .. } => RefusalKind::TooLarge,
                };
                *counts.refused.entry(refused).or_default() += 1;
            }
            Fact::Took {
                source,
                changes,
                undated,
                ..
            } => {
                let counts = self.changes.entry(source.clone()).or_default();
                add_each(&mut counts.taken, *changes);
                let (missing, invalid) = (undated.missing, undated.invalid);
                let undated = [missing, invalid, undated.back_dated, undated.ahead];
                add_each(&mut counts.undated, undated);
            }
            Fact::SkippedEntries { source, count, .. } => {
                self.changes.entry(source.clone()).or_default().skipped += *count as u64;
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
                let entry = self.fell_behind.entry(account);
                let behind = entry.or_insert_with(|| BacklogOverflow {
                    hub: hub.clone(),
                    topic: topic.clone(),
                    changes: 0,
                    last: now,
                });
                behind.changes += changes;
                behind.last = now;
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
                let learned = lists
                    .filter(|list| list.is_learned || list.is_archived)
                    .count();
                let taken = request.lists.len() - learned;
                add_each(&mut counts.reads, [learned, taken, 0]);
            }
            RoundOutcome::Stale(_) | RoundOutcome::Unreadable(..) | RoundOutcome::Failed(_) => {
                add_each(&mut counts.reads, [0, 0, request.lists.len()]);
            }
        }
    }
}

/// Adds numbers to sums, each to its own.
fn add_each<const N: usize>(sums: &mut [u64; N], numbers: [usize; N]) {
    for (sum, number) in sums.iter_mut().zip(numbers) {
        *sum += number as u64;
    }
}

const LENGTH: Duration = Duration::from_secs(INTERVAL.unsigned_abs());

/// Counts by interval.
#[derive(Debug, Clone)]
pub struct LastDay {
    /// The intervals since the first start, at most those of a day, the oldest first.
    pub intervals: VecDeque<IntervalDeliveries>,
    last: IntervalDeliveries,
    /// True if something was counted since they were saved.
    is_unsaved: bool,
    saved: Option<Instant>,
}

impl LastDay {
    /// Continues the counts that were saved, of JSON, at a start of the daemon.
    pub fn new(saved: Option<&str>, now: Timestamp) -> LastDay {
        let intervals = saved.and_then(|saved| serde_json::from_str(saved).ok());
        let intervals: VecDeque<IntervalDeliveries> = intervals.unwrap_or_default();
        let pending = intervals.back().map_or(0, |last| last.pending);
        let mut day = LastDay {
            intervals,
            last: IntervalDeliveries {
                pending,
                ..IntervalDeliveries::default()
            },
            is_unsaved: true,
            saved: None,
        };
        day.advance(now);
        if let Some(interval) = day.intervals.back_mut() {
            interval.starts += 1;
        }
        day
    }

    /// Returns what is to be saved, as JSON: if something was counted, and the last time was an interval ago or
    /// `is_stopping`.
    pub fn take_unsaved(&mut self, is_stopping: bool) -> Option<String> {
        let is_due = self.saved.is_none_or(|saved| saved.elapsed() >= LENGTH);
        if !self.is_unsaved || !(is_due || is_stopping) {
            return None;
        }
        (self.is_unsaved, self.saved) = (false, Some(Instant::now()));
        serde_json::to_string(&self.intervals).ok()
    }

    /// Adds what was counted since the last time, of all since the start, to the interval of now.
    pub fn note_totals(&mut self, totals: IntervalDeliveries) {
        self.advance(totals.from);
        let last = std::mem::replace(&mut self.last, totals);
        if let Some(interval) = self.intervals.back_mut() {
            let before = *interval;
            interval.delivered += totals.delivered.saturating_sub(last.delivered);
            interval.failed += totals.failed.saturating_sub(last.failed);
            interval.retries += totals.retries.saturating_sub(last.retries);
            interval.pending = interval.pending.max(totals.pending);
            self.is_unsaved |= *interval != before;
        }
    }

    /// Begins the intervals up to `now`; the first one with it.
    fn advance(&mut self, now: Timestamp) {
        let wanted = start_of_interval(now);
        let last = self.intervals.back();
        let mut next = last.map_or(now, |last| later(start_of_interval(last.from), LENGTH));
        let day = LENGTH.saturating_mul(u32::try_from(INTERVALS).unwrap_or(u32::MAX));
        if later(next, day) < wanted {
            self.intervals.clear();
            next = wanted;
        }
        while next <= wanted || self.intervals.is_empty() {
            if self.intervals.len() == INTERVALS {
                self.intervals.pop_front();
            }
            self.intervals.push_back(IntervalDeliveries {
                from: next,
                pending: self.last.pending,
                ..IntervalDeliveries::default()
            });
            next = later(next, LENGTH);
        }
    }
}

fn start_of_interval(time: Timestamp) -> Timestamp {
    let second = time.as_second();
    Timestamp::from_second(second - second.rem_euclid(INTERVAL)).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use announce::changes::round::UndatedByReason;
    use announce::event::AnsweredNotification;
    use resourcesync::uri::{Hub, Topic};
    use websub::counts::DurationHistogram;
    use websub::publisher::reason::Refusal;

    use super::*;
    use crate::report::figures::HubCounts;

    #[test]
    fn each_attempt_counts_once_under_what_came_of_it() {
        let (topic, hub) = (
            Topic::new("https://t.example/"),
            Hub::new("https://h.example/"),
        );
        let answered = |seq, attempts, outcome| {
            let (topic, hub) = (topic.clone(), hub.clone());
            let answered = AnsweredNotification {
                kind: ChannelKind::Change,
                topic,
                hub,
                seq,
                attempts,
            };
            Fact::Answered(answered, outcome)
        };
        let refused = |kind| AnswerOutcome::Refused {
            refusal: Refusal::new(kind, "it is down", false),
            next_try: Timestamp::UNIX_EPOCH,
            is_news: true,
        };
        let halved = AnswerOutcome::Halved {
            limit: 2,
            is_news: true,
        };
        let delivered = AnswerOutcome::Delivered {
            changes: 7,
            took: Duration::from_secs(3),
        };
        let mut counts = DaemonCounts::default();
        for fact in [
            answered(1, 1, refused(RefusalKind::NoAnswer)),
            answered(1, 2, refused(RefusalKind::NoAnswer)),
            answered(1, 3, refused(RefusalKind::Unavailable)),
            answered(1, 4, halved),
            answered(2, 1, delivered),
            Fact::Cut {
                topic: topic.clone(),
                seq: 2,
                changes: 7,
                hubs: 1,
                body: Arc::new([]),
            },
        ] {
            counts.count_fact(&fact, Timestamp::UNIX_EPOCH);
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
            changes: [1, 2, 0],
            lists: 1,
            notifications: Vec::new(),
            undated: UndatedByReason {
                missing: 1,
                invalid: 0,
                ahead: 1,
                back_dated: 1,
            },
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
            counts.count_fact(fact, Timestamp::UNIX_EPOCH);
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

    fn totals(text: &str, delivered: u64, failed: u64, pending: u64) -> IntervalDeliveries {
        IntervalDeliveries {
            from: time(text),
            delivered,
            failed,
            retries: failed / 2,
            pending,
            starts: 0,
        }
    }

    fn time(text: &str) -> Timestamp {
        format!("2026-11-{text}Z").parse().unwrap()
    }

    /// Returns start, delivered, failed and pending of each interval.
    fn view(day: &LastDay) -> Vec<String> {
        let view = Vec::from(day.intervals.clone()).into_iter();
        let rows = view.map(|one| {
            let from = one.from.to_string();
            let (delivered, failed, pending) = (one.delivered, one.failed, one.pending);
            format!("{} {delivered} {failed} {pending}", &from[11..16])
        });
        rows.collect()
    }

    #[test]
    fn counts_belong_to_the_interval_in_which_they_are_noted() {
        let mut day = LastDay::new(None, time("20T10:07:00"));
        day.note_totals(totals("20T10:07:00", 3, 0, 2));
        day.note_totals(totals("20T10:14:59", 5, 1, 4));
        day.note_totals(totals("20T10:50:00", 9, 1, 0));
        assert_eq!(
            view(&day),
            ["10:07 5 1 4", "10:15 0 0 4", "10:30 0 0 4", "10:45 4 0 4"]
        );
        day.note_totals(totals("20T11:00:00", 9, 1, 0));
        assert_eq!(view(&day).last().unwrap(), "11:00 0 0 0");
    }

    #[test]
    fn older_intervals_than_those_of_a_day_are_forgotten() {
        let mut day = LastDay::new(None, time("20T10:00:00"));
        day.note_totals(totals("20T10:00:00", 1, 0, 1));
        day.note_totals(totals("21T10:00:00", 2, 0, 1));
        assert_eq!(Vec::from(day.intervals.clone()).len(), INTERVALS);
        assert_eq!(view(&day)[0], "10:15 0 0 1");
        day.note_totals(totals("25T10:00:00", 4, 0, 0));
        assert_eq!(view(&day), ["10:00 2 0 1"]);
    }

    #[test]
    fn a_restart_continues_what_was_saved_and_is_marked() {
        let mut day = LastDay::new(None, time("20T10:07:00"));
        let start = day.take_unsaved(false);
        assert!(start.is_some(), "a start is saved with the first step");
        day.note_totals(totals("20T10:08:00", 4, 2, 1));
        assert_eq!(day.take_unsaved(false), None, "within a quarter of an hour");
        let saved = day.take_unsaved(true);
        assert_eq!(day.take_unsaved(true), None, "nothing was counted since");

        let mut day = LastDay::new(saved.as_deref(), time("20T10:31:00"));
        day.note_totals(totals("20T10:32:00", 3, 0, 0));
        assert_eq!(view(&day), ["10:07 4 2 1", "10:15 0 0 1", "10:30 3 0 1"]);
        let all = Vec::from(day.intervals.clone());
        let starts: Vec<_> = all.iter().map(|one| (one.starts, one.retries)).collect();
        assert_eq!(starts, [(1, 1), (0, 0), (1, 0)]);

        let day = LastDay::new(saved.as_deref(), time("22T10:31:00"));
        assert_eq!(view(&day), ["10:30 0 0 1"], "a day later");
        let day = LastDay::new(Some("no JSON"), time("20T10:31:00"));
        assert_eq!(view(&day), ["10:31 0 0 0"]);
    }
}

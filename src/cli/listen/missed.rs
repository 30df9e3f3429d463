//! The selection of missed changes from Change Lists: later than what was handed over, in order of time. Pure.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};

use crate::cli::listen::memory::{Memory, key};
use crate::resourcesync::receive::{ReceivedChange, time_span};

/// Distance from now beyond which a change is dated in the future, so that its time says nothing.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// A missed change, with the time that orders it: its own, or that of the dated one before it in its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missed {
    pub change: ReceivedChange,
    pub effective: Option<Timestamp>,
}

/// The changes that were missed, list by list.
#[derive(Debug)]
pub struct Selection<'a> {
    memory: &'a Memory,
    /// Start of the notification that ends the gap, which has the later changes.
    before: Option<Timestamp>,
    now: Timestamp,
    missed: Vec<Missed>,
    /// Keys in the lists before: a change that was copied to another list is one change.
    keys: HashSet<String>,
}

impl<'a> Selection<'a> {
    /// Begins a selection of the changes later than the last `until` in `memory` and not later than `before`.
    pub fn new(memory: &'a Memory, before: Option<Timestamp>, now: Timestamp) -> Selection<'a> {
        Selection {
            memory,
            before,
            now,
            missed: Vec::new(),
            keys: HashSet::new(),
        }
    }

    /// Adds the changes of a list, in its order.
    pub fn add(&mut self, list: Vec<ReceivedChange>) {
        let ahead = self.now.saturating_add(AHEAD).unwrap_or(Timestamp::MAX);
        let mut last_dated = None;
        let mut keys = Vec::new();
        for change in list {
            let dated = change.datetime.as_deref().and_then(time_span);
            let dated = dated
                .map(|(start, _)| start)
                .filter(|dated| *dated <= ahead);
            last_dated = dated.or(last_dated);
            let is_later_than_wanted = match (last_dated, self.before) {
                (Some(effective), Some(before)) => effective > before,
                _ => false,
            };
            let key = key(&change);
            if is_later_than_wanted
                || !self.memory.is_missed(&change, last_dated)
                || self.keys.contains(&key)
            {
                continue;
            }
            keys.push(key);
            self.missed.push(Missed {
                change,
                effective: last_dated,
            });
        }
        self.keys.extend(keys);
    }

    /// Returns the number of changes that were selected.
    pub fn len(&self) -> usize {
        self.missed.len()
    }

    /// Returns the changes in order of time; those of one time keep the order of their lists, and those without any time
    /// come last.
    pub fn in_order(mut self) -> Vec<Missed> {
        self.missed
            .sort_by_key(|missed| missed.effective.unwrap_or(Timestamp::MAX));
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, ReceivedChange, Selection, Timestamp};
    use crate::cli::listen::memory::Identity;
    use crate::resourcesync::channel_kind::ChannelKind;
    use crate::resourcesync::payload::ChangeKind;

    /// A list of changes such as `a 10:05:00`, or `b` without a time.
    fn list(text: &str) -> Vec<ReceivedChange> {
        let changes = text.split(", ").map(|change| {
            let (loc, time) = change.split_once(' ').unwrap_or((change, ""));
            let day = if time.contains('-') {
                ""
            } else {
                "2026-11-20T"
            };
            ReceivedChange {
                loc: loc.to_owned(),
                change: ChangeKind::Updated,
                datetime: (!time.is_empty()).then(|| format!("{day}{time}Z")),
                lastmod: None,
                hash: None,
                length: None,
                media_type: None,
                encoding: None,
                links: Vec::new(),
            }
        });
        changes.collect()
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn missed(before: Option<&str>, lists: &[&str]) -> Vec<String> {
        let told = Identity {
            kind: ChannelKind::Change,
            from: None,
            until: Some("2026-11-20T10:00:00Z".to_owned()),
            up: None,
            digest: String::new(),
        };
        let memory = Memory::default().after(&told, &[]);
        let now = time("2026-11-20T12:00:00Z");
        let mut selection = Selection::new(&memory, before.map(time), now);
        for text in lists {
            selection.add(list(text));
        }
        let missed = selection.in_order().into_iter();
        missed.map(|missed| missed.change.loc).collect()
    }

    #[test]
    fn what_is_later_comes_in_order_of_time() {
        let lists = [
            "a 09:00:00, d 10:04:00, b 10:02:00",
            "c 10:03:00, a 10:01:00",
        ];
        assert_eq!(missed(None, &lists), ["a", "b", "c", "d"]);
    }

    #[test]
    fn what_the_next_notification_has_is_left_to_it() {
        let lists = ["a 10:01:00, b 10:02:00, c 10:02:01"];
        let before = Some("2026-11-20T10:02:00Z");
        assert_eq!(missed(before, &lists), ["a", "b"]);
    }

    #[test]
    fn a_change_that_was_copied_to_another_list_is_one() {
        let lists = ["a 10:01:00, a 10:01:00", "a 10:01:00, b 10:02:00"];
        assert_eq!(missed(None, &lists), ["a", "a", "b"]);
    }

    #[test]
    fn changes_without_a_time_stay_where_they_are_or_come_last() {
        let lists = ["x, a 10:01:00, b, c 10:03:00", "d 10:02:00"];
        assert_eq!(missed(None, &lists), ["a", "b", "d", "c", "x"]);
        assert_eq!(missed(None, &["a 09:00:00, b"]), [""; 0]);
    }

    #[test]
    fn a_time_in_the_future_says_nothing() {
        let lists = ["a 2027-01-01T00:00:00, b 10:01:00"];
        let before = Some("2026-11-20T10:02:00Z");
        assert_eq!(missed(before, &lists), ["b", "a"]);
    }
}

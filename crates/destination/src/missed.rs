//! The selection of missed changes from Change Lists: later than what was handed over, in order of time. Pure.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use resourcesync::receive::{ReceivedChange, time_span};

use crate::change_key::{Occurrences, ReceivedKey};
use crate::memory::Memory;

/// Distance from now beyond which a change is dated in the future, so that its time says nothing.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// A missed change, with the time that orders it: its own, or that of the dated one before it in its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissedChange {
    pub change: ReceivedChange,
    pub key: ReceivedKey,
    pub effective: Option<Timestamp>,
    /// True if its place is after the start of the notification that follows, which does not have it: it is missed, or is
    /// in a later one, which is not to be without it. It is handed over and not remembered.
    pub is_ahead: bool,
}

/// The notification that follows missed changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextNotification {
    /// Start of its interval: it has the later changes.
    pub from: Timestamp,
    pub keys: HashSet<ReceivedKey>,
}

/// The changes that were missed, list by list.
#[derive(Debug)]
pub struct MissedSelection<'a> {
    memory: &'a Memory,
    /// Keys that the memory has.
    handed_over: HashSet<ReceivedKey>,
    following: Option<&'a NextNotification>,
    now: Timestamp,
    pub missed: Vec<MissedChange>,
    /// Keys in the lists before: a change that was copied to another list is one change.
    keys: HashSet<ReceivedKey>,
}

impl<'a> MissedSelection<'a> {
    /// Begins a selection of the changes that are later than the last `until` in `memory`, and not in the notification
    /// that follows.
    pub fn new(
        memory: &'a Memory,
        following: Option<&'a NextNotification>,
        now: Timestamp,
    ) -> MissedSelection<'a> {
        MissedSelection {
            memory,
            handed_over: memory.handed_over(),
            following,
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
        let mut occurrences = Occurrences::default();
        let mut resources = HashSet::new();
        for change in list {
            let written = change.datetime.as_deref().and_then(time_span);
            let written = written.map(|(start, _)| start);
            let dated = written.filter(|dated| *dated <= ahead);
            last_dated = dated.or(last_dated);
            let key = match written {
                Some(_) => ReceivedKey::of(&change),
                None => occurrences.key(&change),
            };
            // A change without a time that is known, such as a deletion, is another one if something else happened before.
            let is_missed = self.memory.is_missed(&change, key, &self.handed_over)
                || (written.is_none() && resources.contains(&change.loc));
            if !is_missed || self.keys.contains(&key) {
                continue;
            }
            let is_ahead = match (self.following, last_dated) {
                (Some(following), Some(effective)) if effective > following.from => {
                    // That notification has it, or by its time one that comes later.
                    if dated.is_some() || following.keys.contains(&ReceivedKey::of(&change)) {
                        continue;
                    }
                    true
                }
                _ => false,
            };
            keys.push(key);
            resources.insert(change.loc.clone());
            self.missed.push(MissedChange {
                change,
                key,
                effective: last_dated,
                is_ahead,
            });
        }
        self.keys.extend(keys);
    }

    /// Returns the changes in order of time; those of one time keep the order of their lists, and those without any time
    /// come last.
    pub fn in_order(mut self) -> Vec<MissedChange> {
        self.missed
            .sort_by_key(|missed| missed.effective.unwrap_or(Timestamp::MAX));
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::channel_kind::ChannelKind;
    use rstest::rstest;

    use super::{Memory, MissedSelection, NextNotification, ReceivedKey, Timestamp};
    use crate::change_key::tests::changes;
    use crate::notification::{Handed, HandedEntries};

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The missed changes in these lists, if those of `told` were handed over by a notification up to 10:00:00, and
    /// `following` begins at a time and has changes.
    fn missed_after(
        told: &str,
        following: Option<(&str, &str)>,
        lists: &[&str],
    ) -> Vec<(String, bool)> {
        let told = Handed {
            topic: String::new(),
            kind: ChannelKind::Change,
            from: None,
            until: Some("2026-11-20T10:00:00Z".to_owned()),
            up: None,
            caught_up: false,
            entries: HandedEntries::Change(changes(told)),
            digest: String::new(),
        };
        let memory = Memory::default().after(&told);
        let following = following.map(|(from, later)| NextNotification {
            from: time(from),
            keys: changes(later).iter().map(ReceivedKey::of).collect(),
        });
        let now = time("2026-11-20T12:00:00Z");
        let mut selection = MissedSelection::new(&memory, following.as_ref(), now);
        for text in lists {
            selection.add(changes(text));
        }
        let missed = selection.in_order().into_iter();
        missed
            .map(|missed| (missed.change.loc, missed.is_ahead))
            .collect()
    }

    fn missed(before: Option<&str>, lists: &[&str]) -> Vec<String> {
        let following = before.map(|before| (before, "other"));
        let missed = missed_after("other", following, lists).into_iter();
        missed.map(|(loc, _)| loc).collect()
    }

    #[rstest]
    #[case::in_order_of_time(None, &["a 09:00:00, d 10:04:00, b 10:02:00", "c 10:03:00, a 10:01:00"], "a b c d")]
    #[case::without_what_the_next_has(NEXT, &["a 10:01:00, b 10:02:00, c 10:02:01"], "a b")]
    #[case::copied_to_another_list(None, &["a 10:01:00, a 10:01:00", "a 10:01:00, b 10:02:00"], "a a b")]
    #[case::without_a_time_in_place_or_last(None, &["x, a 10:01:00, b, c 10:03:00", "d 10:02:00"], "a b d c x")]
    #[case::a_time_in_the_future_says_nothing(NEXT, &["a 2027-01-01T00:00:00, b 10:01:00"], "b a")]
    fn missed_changes_are_in_order(
        #[case] before: Option<&str>,
        #[case] lists: &[&str],
        #[case] want: &str,
    ) {
        assert_eq!(missed(before, lists).join(" "), want);
    }

    /// The beginning of the notification that follows.
    const NEXT: Option<&str> = Some("2026-11-20T10:02:00Z");

    #[test]
    fn a_change_without_a_time_is_missed_wherever_it_stands() {
        for list in ["a 09:00:00, b", "a 10:00:00, b", "b, a 09:00:00"] {
            let missed = missed(NEXT, &[list]);
            assert!(missed.contains(&"b".to_owned()), "{list}");
        }
        let after = |told: &str, list: &str| {
            let missed = missed_after(told, None, &[list]).into_iter();
            missed.map(|(loc, _)| loc).collect::<Vec<String>>()
        };
        assert_eq!(after("b", "a 09:00:00, b, c"), ["c"]);
        assert_eq!(after("b", "b, b"), ["b"], "the second is another one");
        // The list was rewritten: something else has happened to it since.
        assert_eq!(after("b", "b 10:01:00, b"), ["b", "b"]);
    }

    #[test]
    fn a_change_without_a_time_is_left_only_to_a_notification_that_has_it() {
        let lists = ["a 10:01:00, c 10:03:00, b"];
        let missed =
            |changes| missed_after("other", Some(("2026-11-20T10:02:00Z", changes)), &lists);
        let a = || ("a".to_owned(), false);
        assert_eq!(missed("c 10:03:00, b"), [a()]);
        assert_eq!(missed("c 10:03:00"), [a(), ("b".to_owned(), true)]);
    }
}

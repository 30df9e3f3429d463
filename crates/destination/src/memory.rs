//! The memory of what was handed over of one topic, and the decisions taken from it: repeats, gaps, overlaps. Pure.

use std::collections::{HashMap, HashSet, VecDeque};

use jiff::Timestamp;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::receive::{ReceivedChange, time_span};
use serde::{Deserialize, Serialize};

use crate::change_key::{KeySet, Occurrences, ReceivedKey};
use crate::missed::MissedChange;
use crate::notification::Handed;

/// Digests of notifications kept to recognise repeats: more than a hub has in flight.
const DIGESTS: usize = 32;
/// Keys kept of changes whose time reaches beyond the last `until`, of notifications and of Change Lists each.
const EDGE_KEYS: usize = 10_000;

/// Notifications of one topic that were handed over, as the state file keeps them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ChannelKind>,
    /// The last `until` of a notification, as written. Changes that were read from Change Lists do not move it: a list that
    /// was not written yet may have others of the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Time of the first subscription, by our clock; it counts until there is a last `until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// URI of the Capability List of the set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<String>,
    /// Digests of the last notifications, the newest last.
    #[serde(default)]
    digests: VecDeque<String>,
    /// Changes that were handed over and whose time, such as a whole second, reaches beyond `until`: others of the same
    /// time may come.
    #[serde(default)]
    edge: VecDeque<DatedKey>,
    /// Changes that were read from Change Lists and handed over, whose notification may follow.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    caught_up: VecDeque<DatedKey>,
    /// Changes without a time that were handed over, or that were listed before the first subscription.
    #[serde(default, skip_serializing_if = "KeySet::is_empty")]
    undated: KeySet,
}

/// The key of a change that was handed over, kept until its time is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DatedKey {
    key: ReceivedKey,
    /// End of its time.
    ends: Timestamp,
}

/// The relation of a notification to those that were handed over before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continuity {
    /// The next one, or the first.
    Next,
    /// It was handed over before.
    Repeat,
    /// It begins before the last `until`: some of it may have been handed over.
    Overlap,
    /// It begins later than the last `until`, so that notifications between them are missing.
    Gap,
}

impl Memory {
    /// Returns the memory of a topic of which nothing was handed over.
    pub fn new(kind: Option<ChannelKind>, up: Option<&str>) -> Memory {
        Memory {
            kind,
            up: up.map(str::to_owned),
            ..Memory::default()
        }
    }

    /// Returns the relation of a notification to those before it (Change Notification 1.0.1 section 3: intervals are
    /// consecutive and do not overlap).
    pub fn relation(&self, new: &Handed) -> Continuity {
        if self.digests.contains(&new.digest) {
            return Continuity::Repeat;
        }
        let Some(last) = span_start(self.known_until()) else {
            return Continuity::Next;
        };
        // The interval of a framework notification ends at a time of the Source's own, and may be left out.
        let is_change = new.kind == ChannelKind::Change;
        if is_change && self.until.is_some() && span_start(new.until.as_deref()) == Some(last) {
            return Continuity::Repeat;
        }
        match span_start(new.from.as_deref()) {
            Some(from) if from > last => Continuity::Gap,
            Some(from) if from < last && self.until.is_some() => Continuity::Overlap,
            Some(_) | None => Continuity::Next,
        }
    }

    /// Returns the time up to which nothing is missed: the last `until`, or the first subscription.
    pub fn known_until(&self) -> Option<&str> {
        self.until.as_deref().or(self.since.as_deref())
    }

    /// Returns the memory after a notification was handed over.
    pub fn after(&self, new: &Handed) -> Memory {
        let mut memory = self.clone();
        memory.kind = Some(new.kind);
        memory.up = new.up.clone().or(memory.up);
        memory.digests.push_back(new.digest.clone());
        shorten(&mut memory.digests, DIGESTS);
        // Forward, never back.
        if self.is_extended_by(new) {
            memory.until = new.until.clone();
        }
        let last = span_start(memory.known_until());
        let mut occurrences = Occurrences::default();
        let mut undated = Vec::new();
        for change in new.changes() {
            let key = ReceivedKey::of(change);
            match change_end(change) {
                Some(ends) => memory.edge.push_back(DatedKey { key, ends }),
                None => undated.push(occurrences.key(change)),
            }
        }
        memory.undated.add(undated);
        for keys in [&mut memory.edge, &mut memory.caught_up] {
            keys.retain(|edge| last.is_some_and(|last| edge.ends > last));
            shorten(keys, EDGE_KEYS);
        }
        memory
    }

    /// Returns the memory after changes from Change Lists were handed over.
    pub fn after_missed(&self, missed: &[MissedChange]) -> Memory {
        let mut memory = self.clone();
        let known = span_start(memory.known_until()).unwrap_or(Timestamp::MIN);
        let remembered = || missed.iter().filter(|missed| !missed.is_ahead);
        let keys = remembered().map(|missed| DatedKey {
            key: ReceivedKey::of(&missed.change),
            ends: change_end(&missed.change)
                .or(missed.effective)
                .unwrap_or(known),
        });
        memory.caught_up.extend(keys);
        shorten(&mut memory.caught_up, EDGE_KEYS);
        memory.undated.add(undated(remembered()));
        memory
    }

    /// Returns the memory of a set whose lists had these changes before the first subscription, though nothing else says
    /// that they were not missed.
    pub fn after_listed(&self, listed: &[MissedChange]) -> Memory {
        let mut memory = self.clone();
        memory.undated.add(undated(listed.iter()));
        // Changes later than a notification are not announced yet.
        if memory.until.is_none() {
            let keys = listed.iter().filter_map(|listed| {
                let (key, ends) = (listed.key, change_end(&listed.change)?);
                Some(DatedKey { key, ends })
            });
            memory.edge.extend(keys);
            shorten(&mut memory.edge, EDGE_KEYS);
        }
        memory
    }

    /// Returns the keys of changes that were handed over and are not known from the last `until`.
    pub fn handed_over(&self) -> HashSet<ReceivedKey> {
        let dated = self.edge.iter().chain(&self.caught_up);
        dated
            .map(|edge| edge.key)
            .chain(self.undated.iter())
            .collect()
    }

    /// Returns true if a listed change is later than what was handed over, and not one of these keys. One whose time is
    /// missing, or cannot be read, is: nothing proves that it was.
    pub fn is_missed(
        &self,
        change: &ReceivedChange,
        key: ReceivedKey,
        handed_over: &HashSet<ReceivedKey>,
    ) -> bool {
        let Some(last) = span_start(self.known_until()) else {
            return true;
        };
        change_end(change).is_none_or(|end| end > last) && !handed_over.contains(&key)
    }

    /// Removes the changes of a notification that were read from Change Lists and handed over before. Each of these removes
    /// one.
    pub fn remove_caught_up(&mut self, changes: &mut Vec<ReceivedChange>) {
        let (mut left, mut removed) = (HashMap::new(), HashMap::new());
        for edge in &self.caught_up {
            add_one(&mut left, edge.key);
        }
        changes.retain(|change| {
            let key = ReceivedKey::of(change);
            let is_caught_up = remove_one(&mut left, key);
            if is_caught_up {
                add_one(&mut removed, key);
            }
            !is_caught_up
        });
        // They count as changes of a notification from now on.
        let caught_up = self.caught_up.drain(..);
        let (announced, caught_up): (VecDeque<_>, _) =
            caught_up.partition(|edge| remove_one(&mut removed, edge.key));
        self.edge.extend(announced);
        self.caught_up = caught_up;
    }

    /// Returns true if a notification reaches beyond the last `until`: one that overlaps is then the content of a topic
    /// that has the notifications before it too, and not one of these that comes late.
    pub fn is_extended_by(&self, new: &Handed) -> bool {
        span_start(new.until.as_deref()) > span_start(self.until.as_deref())
    }

    /// Returns true if a change of a notification that overlaps has a time up to which all notifications were handed over,
    /// or is one of these keys.
    pub fn has_had(&self, change: &ReceivedChange, handed_over: &HashSet<ReceivedKey>) -> bool {
        change_end(change).is_some()
            && !self.is_missed(change, ReceivedKey::of(change), handed_over)
    }
}

/// Returns the keys of those without a time.
fn undated<'a>(
    missed: impl Iterator<Item = &'a MissedChange>,
) -> impl Iterator<Item = ReceivedKey> {
    missed
        .filter(|missed| change_end(&missed.change).is_none())
        .map(|missed| missed.key)
}

/// Returns the end of the time of a change, if that can be read.
fn change_end(change: &ReceivedChange) -> Option<Timestamp> {
    Some(time_span(change.datetime.as_deref()?)?.1)
}

/// Returns the start of a time, if that can be read.
fn span_start(text: Option<&str>) -> Option<Timestamp> {
    Some(time_span(text?)?.0)
}

/// Counts one more of a key.
fn add_one(counts: &mut HashMap<ReceivedKey, u32>, key: ReceivedKey) {
    *counts.entry(key).or_default() += 1;
}

/// Counts one less of a key. Returns false if there is none.
fn remove_one(counts: &mut HashMap<ReceivedKey, u32>, key: ReceivedKey) -> bool {
    let count = counts.get_mut(&key).filter(|count| **count > 0);
    count.map(|count| *count -= 1).is_some()
}

/// Removes the oldest when there are more than so many.
fn shorten<T>(kept: &mut VecDeque<T>, most: usize) {
    kept.drain(..kept.len().saturating_sub(most));
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{
        ChannelKind, Continuity, EDGE_KEYS, Handed, Memory, MissedChange, ReceivedChange,
        ReceivedKey,
    };
    use crate::change_key::tests::{change, changes};
    use crate::notification::HandedEntries;

    /// A notification between two times, such as `10:00:00Z`, without changes.
    fn notification(from: &str, until: &str, body: &str) -> Handed {
        let text = |time: &str| match time {
            "" => None,
            time if time.contains(':') => Some(format!("2026-11-20T{time}")),
            other => Some(other.to_owned()),
        };
        Handed {
            topic: "https://e.org/t".to_owned(),
            kind: ChannelKind::Change,
            from: text(from),
            until: text(until),
            up: None,
            caught_up: false,
            entries: HandedEntries::Change(Vec::new()),
            digest: body.to_owned(),
        }
    }

    /// The memory after a notification that has changes.
    fn after(memory: &Memory, notification: &Handed, changes: &[ReceivedChange]) -> Memory {
        memory.after(&Handed {
            entries: HandedEntries::Change(changes.to_vec()),
            ..notification.clone()
        })
    }

    /// A memory of one notification, up to 10:00:00.
    fn memory() -> Memory {
        let first = notification("09:00:00Z", "10:00:00Z", "first");
        assert_eq!(Memory::default().relation(&first), Continuity::Next);
        after(&Memory::default(), &first, &changes("a 10:00:00"))
    }

    fn is_missed(memory: &Memory, change: &ReceivedChange) -> bool {
        memory.is_missed(change, ReceivedKey::of(change), &memory.handed_over())
    }

    /// A change from a Change List.
    fn listed(change: ReceivedChange) -> MissedChange {
        let time = change.datetime.as_deref();
        MissedChange {
            key: ReceivedKey::of(&change),
            effective: time.and_then(|time| time.parse().ok()),
            change,
            is_ahead: false,
        }
    }

    /// Changes from Change Lists.
    fn missed(text: &str) -> Vec<MissedChange> {
        changes(text).into_iter().map(listed).collect()
    }

    #[rstest]
    #[case::the_next("10:00:00Z", "10:05:00Z", Continuity::Next)]
    #[case::as_an_equal_time("11:00:00+01:00", "10:05:00Z", Continuity::Next)]
    #[case::later("10:00:00.000001Z", "10:05:00Z", Continuity::Gap)]
    #[case::overlapping("09:00:00Z", "10:05:00Z", Continuity::Overlap)]
    #[case::before("08:00:00Z", "09:00:00Z", Continuity::Overlap)]
    #[case::the_same_end("09:30:00Z", "10:00:00Z", Continuity::Repeat)]
    #[case::without_times("", "", Continuity::Next)]
    #[case::no_time("soon", "later", Continuity::Next)]
    fn an_interval_has_a_relation_to_the_last(
        #[case] from: &str,
        #[case] until: &str,
        #[case] want: Continuity,
    ) {
        assert_eq!(memory().relation(&notification(from, until, "new")), want);
    }

    #[test]
    fn the_same_bytes_are_a_repeat_whatever_came_since() {
        let first = notification("", "", "first");
        let mut memory = memory();
        for number in 0..31 {
            assert_eq!(memory.relation(&first), Continuity::Repeat, "{number}");
            memory = memory.after(&notification("", "", &number.to_string()));
        }
        assert_eq!(memory.relation(&first), Continuity::Repeat);
        memory = memory.after(&notification("", "", "last"));
        assert_eq!(memory.relation(&first), Continuity::Next);
    }

    #[test]
    fn the_first_subscription_counts_until_there_is_a_notification() {
        let mut memory = Memory::new(None, None);
        memory.since = Some("2026-11-20T10:00:00Z".to_owned());
        let before = notification("08:00:00Z", "09:00:00Z", "before");
        assert_eq!(memory.relation(&before), Continuity::Next);
        let later = notification("11:00:00Z", "12:00:00Z", "later");
        assert_eq!(memory.relation(&later), Continuity::Gap);
        assert_eq!(memory.known_until(), Some("2026-11-20T10:00:00Z"));
        let at = |time| change("b", Some(time));
        assert!(!is_missed(&memory, &at("2026-11-20T09:00:00Z")));
        assert!(is_missed(&memory, &at("2026-11-20T10:00:00Z")));
        // The Source's time may be behind ours.
        let memory = memory.after(&before);
        assert_eq!(memory.until.as_deref(), Some("2026-11-20T09:00:00Z"));
    }

    #[test]
    fn an_earlier_notification_does_not_move_the_last_until_back() {
        let late = notification("08:00:00Z", "09:00:00Z", "late");
        let after = memory().after(&late);
        assert_eq!(after.until.as_deref(), Some("2026-11-20T10:00:00Z"));
    }

    #[rstest]
    #[case::of_that_second_and_handed_over("a", "2026-11-20T10:00:00Z", false)]
    #[case::of_that_second_and_new("b", "2026-11-20T10:00:00Z", true)]
    #[case::a_second_before("b", "2026-11-20T09:59:59Z", false)]
    #[case::later("a", "2026-11-20T10:00:01Z", true)]
    #[case::on_that_day("b", "2026-11-20", true)]
    #[case::on_the_day_before("b", "2026-11-19", false)]
    fn a_listed_change_is_missed_if_it_is_later(
        #[case] loc: &str,
        #[case] datetime: &str,
        #[case] want: bool,
    ) {
        assert_eq!(is_missed(&memory(), &change(loc, Some(datetime))), want);
    }

    #[test]
    fn a_change_without_a_readable_time_is_missed_until_it_was_handed_over() {
        for undated in [change("b", None), change("b", Some("yesterday"))] {
            let memory = memory();
            assert!(is_missed(&memory, &undated));
            let next = notification("10:00:00Z", "10:05:00Z", "next");
            let told = after(&memory, &next, std::slice::from_ref(&undated));
            assert!(!is_missed(&told, &undated));
            let mut missed = [listed(undated.clone())];
            assert!(!is_missed(&memory.after_missed(&missed), &undated));
            missed[0].is_ahead = true;
            assert!(is_missed(&memory.after_missed(&missed), &undated));
        }
        let any = change("a", Some("2026-11-20"));
        assert!(is_missed(&Memory::default(), &any));
    }

    #[test]
    fn changes_from_lists_do_not_move_the_last_until() {
        let mut memory = memory().after_missed(&missed("b 10:05:31, c"));
        assert_eq!(memory.until.as_deref(), Some("2026-11-20T10:00:00Z"));
        for known in changes("b 10:05:31, c") {
            assert!(!is_missed(&memory, &known), "{known:?}");
        }
        // A list that was written late has one of the same time, and the notification has them all.
        assert!(is_missed(&memory, &changes("d 10:05:31")[0]));
        let all = notification("10:00:00Z", "10:05:31Z", "all");
        assert_eq!(memory.relation(&all), Continuity::Next);
        let mut told = changes("b 10:05:31, c, d 10:05:31");
        memory.remove_caught_up(&mut told);
        assert_eq!(told, changes("d 10:05:31"));
        // They count once.
        let mut again = changes("b 10:05:31, c");
        memory.remove_caught_up(&mut again);
        assert_eq!(again.len(), 2);
        let after = after(&memory, &all, &told);
        for known in changes("b 10:05:31, c, d 10:05:31") {
            assert!(!is_missed(&after, &known), "{known:?}");
        }
        assert!(is_missed(&after, &changes("e 10:05:31")[0]));
    }

    #[test]
    fn what_follows_a_caught_up_change_of_the_same_key_is_kept() {
        let mut memory = memory().after_missed(&missed("x"));
        let mut told = changes("x, y, x");
        memory.remove_caught_up(&mut told);
        assert_eq!(told, changes("y, x"));
    }

    #[test]
    fn a_notification_forgets_the_caught_up_changes_that_it_covers() {
        let memory = memory().after_missed(&missed("b 10:04:00, c 10:06:00, d"));
        let next = notification("10:00:00Z", "10:05:00Z", "next");
        let mut memory = memory.after(&next);
        let mut told = changes("b 10:04:00, c 10:06:00, d");
        memory.remove_caught_up(&mut told);
        assert_eq!(told, changes("b 10:04:00, d"));
    }

    #[test]
    fn our_own_time_never_becomes_the_last_until() {
        let mut memory = Memory::new(None, None);
        memory.since = Some("2026-11-20T10:00:00Z".to_owned());
        let memory = memory.after_listed(&missed("a 10:00:00, b"));
        for listed in changes("a 10:00:00, b") {
            assert!(!is_missed(&memory, &listed), "{listed:?}");
        }
        assert!(is_missed(&memory, &changes("c")[0]));
        let memory = memory.after_missed(&missed("c"));
        assert_eq!(memory.until, None);
        let first = notification("09:00:00Z", "10:00:00Z", "first");
        assert_eq!(memory.relation(&first), Continuity::Next);
    }

    #[test]
    fn a_listed_change_that_is_not_announced_yet_stays_missed() {
        let memory = memory().after_listed(&missed("a 10:00:05, b"));
        assert!(is_missed(&memory, &changes("a 10:00:05")[0]));
        assert!(!is_missed(&memory, &changes("b")[0]));
    }

    #[test]
    fn keys_of_caught_up_changes_are_bounded() {
        let many = (0..=EDGE_KEYS)
            .map(|number| listed(change(&number.to_string(), Some("2026-11-20T11:00:00Z"))));
        let many: Vec<MissedChange> = many.collect();
        let memory = memory().after_missed(&many);
        assert!(is_missed(&memory, &many[0].change));
        assert!(!is_missed(&memory, &many[1].change));
    }

    #[test]
    fn a_memory_is_saved_and_loaded() {
        let read = |text: &str| serde_json::from_str::<Memory>(text).unwrap();
        assert_eq!(read("{}"), Memory::default());
        for memory in [memory(), memory().after_missed(&missed("b 10:05:31, c"))] {
            assert_eq!(read(&serde_json::to_string(&memory).unwrap()), memory);
        }
    }
}

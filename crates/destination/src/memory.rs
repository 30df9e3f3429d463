//! The memory of what was handed over of one topic, and the decisions taken from it: repeats, gaps, overlaps, and which
//! changes of Change Lists were missed: later than what was handed over, in order of time. Pure.

use std::collections::{HashMap, HashSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use resourcesync::capability::ChannelKind;
use resourcesync::receive::{ReceivedChange, time_span};
use serde::{Deserialize, Serialize};

use crate::notification::HandedMessage;

/// Hexadecimal digits of a key.
const DIGITS: usize = 16;
/// Distance from now beyond which a change is dated in the future, so that its time says nothing.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);

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
    pub fn relation(&self, new: &HandedMessage) -> Continuity {
        if self.digests.contains(&new.digest) {
            return Continuity::Repeat;
        }
        let Some(last) = start_of_time(self.known_until()) else {
            return Continuity::Next;
        };
        // The interval of a framework notification ends at a time of the Source's own, and may be left out.
        let is_change = new.kind == ChannelKind::Change;
        if is_change && self.until.is_some() && start_of_time(new.until.as_deref()) == Some(last) {
            return Continuity::Repeat;
        }
        match start_of_time(new.from.as_deref()) {
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
    pub fn after(mut self, new: &HandedMessage) -> Memory {
        self.kind = Some(new.kind);
        self.up = new.up.clone().or(self.up);
        self.digests.push_back(new.digest.clone());
        shorten(&mut self.digests, DIGESTS);
        // Forward, never back.
        if self.is_extended_by(new) {
            self.until = new.until.clone();
        }
        let last = start_of_time(self.known_until());
        let mut occurrences = EqualChangeCounts::default();
        let mut undated = Vec::new();
        for change in new.changes() {
            let key = ReceivedKey::of(change);
            match datetime_end(change) {
                Some(ends) => self.edge.push_back(DatedKey { key, ends }),
                None => undated.push(occurrences.key(change)),
            }
        }
        self.undated.add(undated);
        for keys in [&mut self.edge, &mut self.caught_up] {
            keys.retain(|edge| last.is_some_and(|last| edge.ends > last));
            shorten(keys, EDGE_KEYS);
        }
        self
    }

    /// Returns the memory after changes from Change Lists were handed over.
    pub fn after_missed(mut self, missed: &[MissedChange]) -> Memory {
        let known = start_of_time(self.known_until()).unwrap_or(Timestamp::MIN);
        let remembered = || missed.iter().filter(|missed| !missed.is_ahead);
        let keys = remembered().map(|missed| DatedKey {
            key: ReceivedKey::of(&missed.change),
            ends: datetime_end(&missed.change)
                .or(missed.effective)
                .unwrap_or(known),
        });
        self.caught_up.extend(keys);
        shorten(&mut self.caught_up, EDGE_KEYS);
        self.undated.add(undated(remembered()));
        self
    }

    /// Returns the memory of a set whose lists had these changes before the first subscription, though nothing else says
    /// that they were not missed.
    pub fn with_listed_before(mut self, listed: &[MissedChange]) -> Memory {
        self.undated.add(undated(listed.iter()));
        // Changes later than a notification are not announced yet.
        if self.until.is_none() {
            let keys = listed.iter().filter_map(|listed| {
                let (key, ends) = (listed.key, datetime_end(&listed.change)?);
                Some(DatedKey { key, ends })
            });
            self.edge.extend(keys);
            shorten(&mut self.edge, EDGE_KEYS);
        }
        self
    }

    /// Returns the keys of changes that were handed over and are not known from the last `until`.
    pub fn handed_over_keys(&self) -> HashSet<ReceivedKey> {
        let dated = self.edge.iter().chain(&self.caught_up).map(|edge| edge.key);
        dated.chain(self.undated.order.iter().copied()).collect()
    }

    /// Returns true if a listed change is later than what was handed over, and not one of these keys. One whose time is
    /// missing, or cannot be read, is: nothing proves that it was.
    pub fn is_missed(
        &self,
        change: &ReceivedChange,
        key: ReceivedKey,
        handed_over: &HashSet<ReceivedKey>,
    ) -> bool {
        let Some(last) = start_of_time(self.known_until()) else {
            return true;
        };
        datetime_end(change).is_none_or(|end| end > last) && !handed_over.contains(&key)
    }

    /// Removes the changes of a notification that were read from Change Lists and handed over before. Each of these removes
    /// one.
    pub fn remove_caught_up(&mut self, changes: &mut Vec<ReceivedChange>) {
        let mut left = count_keys(self.caught_up.iter().map(|edge| edge.key));
        let removed = changes.extract_if(.., |it| remove_one(&mut left, ReceivedKey::of(it)));
        let mut removed = count_keys(removed.map(|change| ReceivedKey::of(&change)));
        // They count as changes of a notification from now on.
        let caught_up = self.caught_up.drain(..);
        let (announced, caught_up): (VecDeque<_>, _) =
            caught_up.partition(|edge| remove_one(&mut removed, edge.key));
        self.edge.extend(announced);
        self.caught_up = caught_up;
    }

    /// Returns true if a notification reaches beyond the last `until`: one that overlaps is then the content of a topic
    /// that has the notifications before it too, and not one of these that comes late.
    pub fn is_extended_by(&self, new: &HandedMessage) -> bool {
        start_of_time(new.until.as_deref()) > start_of_time(self.until.as_deref())
    }

    /// Returns true if a change of a notification that overlaps has a time up to which all notifications were handed over,
    /// or is one of these keys.
    pub fn has_had(&self, change: &ReceivedChange, handed_over: &HashSet<ReceivedKey>) -> bool {
        datetime_end(change).is_some()
            && !self.is_missed(change, ReceivedKey::of(change), handed_over)
    }
}

/// Returns the keys of those without a time.
fn undated<'a>(all: impl Iterator<Item = &'a MissedChange>) -> impl Iterator<Item = ReceivedKey> {
    let missed = all.filter(|missed| datetime_end(&missed.change).is_none());
    missed.map(|missed| missed.key)
}

/// Returns the end of the time of a change, if that can be read.
fn datetime_end(change: &ReceivedChange) -> Option<Timestamp> {
    Some(time_span(change.datetime.as_deref()?)?.1)
}

/// Returns the start of a time, if that can be read.
fn start_of_time(text: Option<&str>) -> Option<Timestamp> {
    Some(time_span(text?)?.0)
}

/// Returns the number of each key.
fn count_keys(keys: impl Iterator<Item = ReceivedKey>) -> HashMap<ReceivedKey, u32> {
    let mut counts = HashMap::new();
    keys.for_each(|key| *counts.entry(key).or_default() += 1);
    counts
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

/// The key of a change: its resource, kind and time, or without a time the version of the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReceivedKey(u64);

impl ReceivedKey {
    pub fn of(change: &ReceivedChange) -> ReceivedKey {
        let mut hasher = blake3::Hasher::new();
        let mut part = |text: Option<&str>| {
            hasher.update(text.unwrap_or_default().as_bytes());
            hasher.update(&[0]);
        };
        part(Some(&change.loc));
        part(Some(change.change.as_str()));
        if let Some(datetime) = change.datetime.as_deref() {
            let instant = time_span(datetime).map(|(start, _)| start.to_string());
            part(Some(instant.as_deref().unwrap_or(datetime)));
        } else {
            part(change.lastmod.as_deref());
            part(change.hash.as_deref());
            part(change.length.as_deref());
        }
        ReceivedKey::from_hash(&hasher.finalize())
    }

    fn from_hash(hash: &blake3::Hash) -> ReceivedKey {
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        ReceivedKey(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

impl From<ReceivedKey> for String {
    fn from(key: ReceivedKey) -> String {
        format!("{:016x}", key.0)
    }
}

impl TryFrom<String> for ReceivedKey {
    type Error = String;

    fn try_from(text: String) -> Result<ReceivedKey, String> {
        match u64::from_str_radix(&text, 16) {
            Ok(key) if text.len() == DIGITS => Ok(ReceivedKey(key)),
            _ => Err(format!("\"{text}\" is no key of a change")),
        }
    }
}

/// The changes without a time of one list or notification, counted: the second that is equal is another change.
#[derive(Debug, Default)]
struct EqualChangeCounts(HashMap<ReceivedKey, u32>);

impl EqualChangeCounts {
    /// Returns the key of the next change, which after others depends on how many these are.
    fn key(&mut self, change: &ReceivedChange) -> ReceivedKey {
        let key = ReceivedKey::of(change);
        let others = self.0.entry(key).or_default();
        *others += 1;
        match *others - 1 {
            0 => key,
            others => {
                let parts = [key.0.to_be_bytes().as_slice(), &others.to_be_bytes()].concat();
                ReceivedKey::from_hash(&blake3::hash(&parts))
            }
        }
    }
}

/// Keys of changes, the newest last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeySet {
    pub keys: HashSet<ReceivedKey>,
    order: VecDeque<ReceivedKey>,
}

impl KeySet {
    /// Keys kept at most: those of the entries of two full lists.
    const MAX: usize = 100_000;

    /// Adds keys. The oldest are forgotten when there are too many.
    pub fn add(&mut self, keys: impl IntoIterator<Item = ReceivedKey>) {
        for key in keys {
            if self.keys.insert(key) {
                self.order.push_back(key);
            }
        }
        while self.order.len() > KeySet::MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.keys.remove(&oldest);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// One text of all keys: a line for each would make a long file.
impl From<KeySet> for String {
    fn from(keys: KeySet) -> String {
        keys.order.into_iter().map(String::from).collect()
    }
}

impl TryFrom<String> for KeySet {
    type Error = String;

    fn try_from(text: String) -> Result<KeySet, String> {
        let keys = (0..text.len()).step_by(DIGITS).map(|start| {
            let key = text.get(start..start + DIGITS);
            ReceivedKey::try_from(key.unwrap_or_default().to_owned())
        });
        let mut all = KeySet::default();
        all.add(keys.collect::<Result<Vec<ReceivedKey>, String>>()?);
        Ok(all)
    }
}

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
pub struct NotificationAfterMissed {
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
    following: Option<&'a NotificationAfterMissed>,
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
        following: Option<&'a NotificationAfterMissed>,
        now: Timestamp,
    ) -> MissedSelection<'a> {
        MissedSelection {
            memory,
            handed_over: memory.handed_over_keys(),
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
        let mut occurrences = EqualChangeCounts::default();
        let mut resources = HashSet::new();
        for change in list {
            let written = change.datetime.as_deref().and_then(time_span);
            let written = written.map(|(start, _)| start);
            let dated = written.filter(|dated| *dated <= ahead);
            last_dated = dated.or(last_dated);
            let undated = || occurrences.key(&change);
            let key = written.map_or_else(undated, |_| ReceivedKey::of(&change));
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
    use resourcesync::listing::ListedEntry;

    use super::{
        ChannelKind, Continuity, EDGE_KEYS, EqualChangeCounts, HandedMessage, KeySet, Memory,
        MissedChange, MissedSelection, NotificationAfterMissed, ReceivedChange, ReceivedKey,
        Timestamp,
    };
    use crate::notification::HandedEntries;

    fn change(loc: &str, datetime: Option<&str>) -> ReceivedChange {
        let entry = ListedEntry {
            loc: Some(loc.to_owned()),
            change: Some("updated".to_owned()),
            datetime: datetime.map(str::to_owned),
            ..ListedEntry::default()
        };
        ReceivedChange::of(entry).unwrap()
    }

    /// Changes such as `a 10:05:00`, `a 2027-01-01T00:00:00`, or `b` without a time.
    fn changes(text: &str) -> Vec<ReceivedChange> {
        let changes = text.split(", ").map(|text| match text.split_once(' ') {
            Some((loc, time)) if time.contains('-') => change(loc, Some(&format!("{time}Z"))),
            Some((loc, time)) => change(loc, Some(&format!("2026-11-20T{time}Z"))),
            None => change(text, None),
        });
        changes.collect()
    }

    #[test]
    fn a_key_is_that_of_the_instant_or_of_the_version() {
        let at = |datetime| ReceivedKey::of(&change("a", Some(datetime)));
        assert_eq!(at("2026-11-20T10:00:00Z"), at("2026-11-20T11:00:00+01:00"));
        assert_ne!(at("2026-11-20T10:00:00Z"), at("2026-11-20T10:00:01Z"));
        let mut versions = change("a", None);
        let without = ReceivedKey::of(&versions);
        versions.lastmod = Some("2026".to_owned());
        assert_ne!(without, ReceivedKey::of(&versions));
        assert_ne!(without, ReceivedKey::of(&change("b", None)));
    }

    #[test]
    fn equal_changes_of_one_list_are_several() {
        let (mut one, mut other) = (EqualChangeCounts::default(), EqualChangeCounts::default());
        let change = change("a", None);
        let keys = [one.key(&change), one.key(&change), one.key(&change)];
        assert_eq!(keys[0], ReceivedKey::of(&change));
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        assert_eq!(keys[..2], [other.key(&change), other.key(&change)]);
    }

    #[test]
    fn as_many_keys_are_kept_as_there_is_room() {
        let key = |number: usize| ReceivedKey(number as u64);
        let mut keys = KeySet::default();
        keys.add((0..=KeySet::MAX).chain([1]).map(key));
        assert!(!keys.keys.contains(&key(0)));
        assert!(keys.keys.contains(&key(1)));
        assert_eq!(keys.order.len(), KeySet::MAX);
        assert_eq!(keys.order.front(), Some(&key(1)));
    }

    #[test]
    fn keys_are_saved_and_loaded() {
        let mut keys = KeySet::default();
        keys.add([ReceivedKey(7), ReceivedKey(u64::MAX)]);
        let text = serde_json::to_string(&keys).unwrap();
        assert_eq!(text, "\"0000000000000007ffffffffffffffff\"");
        assert_eq!(serde_json::from_str::<KeySet>(&text).unwrap(), keys);
        for wrong in ["\"7\"", "\"00000000000000xx\"", "\"é00000000000000é\""] {
            let key = serde_json::from_str::<ReceivedKey>(wrong);
            assert!(key.is_err(), "{wrong}");
            assert!(serde_json::from_str::<KeySet>(wrong).is_err(), "{wrong}");
        }
    }

    /// A notification between two times, such as `10:00:00Z`, without changes.
    fn notification(from: &str, until: &str, body: &str) -> HandedMessage {
        let text = |time: &str| match time {
            "" => None,
            time if time.contains(':') => Some(format!("2026-11-20T{time}")),
            other => Some(other.to_owned()),
        };
        HandedMessage {
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
    fn after(memory: &Memory, notification: &HandedMessage, changes: &[ReceivedChange]) -> Memory {
        memory.clone().after(&HandedMessage {
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
        memory.is_missed(change, ReceivedKey::of(change), &memory.handed_over_keys())
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

    #[test]
    fn an_interval_has_a_relation_to_the_last_until_which_moves_only_forward() {
        for (from, until, want, last) in [
            ("10:00:00Z", "10:05:00Z", Continuity::Next, "10:05:00Z"),
            ("11:00:00+01:00", "10:05:00Z", Continuity::Next, "10:05:00Z"),
            (
                "10:00:00.000001Z",
                "10:05:00Z",
                Continuity::Gap,
                "10:05:00Z",
            ),
            ("09:00:00Z", "10:05:00Z", Continuity::Overlap, "10:05:00Z"),
            ("08:00:00Z", "09:00:00Z", Continuity::Overlap, "10:00:00Z"),
            ("09:30:00Z", "10:00:00Z", Continuity::Repeat, "10:00:00Z"),
            ("", "", Continuity::Next, "10:00:00Z"),
            ("soon", "later", Continuity::Next, "10:00:00Z"),
        ] {
            let new = notification(from, until, "new");
            assert_eq!(memory().relation(&new), want, "{from} {until}");
            let kept = memory().after(&new).until.unwrap();
            assert_eq!(kept, format!("2026-11-20T{last}"), "{from} {until}");
        }
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
    fn the_first_subscription_counts_until_there_is_a_notification_and_never_becomes_until() {
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
        let told = memory.clone().after(&before);
        assert_eq!(told.until.as_deref(), Some("2026-11-20T09:00:00Z"));
        let memory = memory.with_listed_before(&missed("a 10:00:00, b"));
        for listed in changes("a 10:00:00, b") {
            assert!(!is_missed(&memory, &listed), "{listed:?}");
        }
        assert!(is_missed(&memory, &changes("c")[0]));
        let memory = memory.after_missed(&missed("c"));
        assert_eq!(memory.until, None);
        assert_eq!(memory.relation(&before), Continuity::Next);
    }

    #[test]
    fn a_listed_change_is_missed_if_it_is_later() {
        for (loc, datetime, want) in [
            // The second of the last: handed over, and new.
            ("a", "2026-11-20T10:00:00Z", false),
            ("b", "2026-11-20T10:00:00Z", true),
            ("b", "2026-11-20T09:59:59Z", false),
            ("a", "2026-11-20T10:00:01Z", true),
            ("b", "2026-11-20", true),
            ("b", "2026-11-19", false),
        ] {
            let change = change(loc, Some(datetime));
            assert_eq!(is_missed(&memory(), &change), want, "{loc} {datetime}");
        }
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
            assert!(!is_missed(&memory.clone().after_missed(&missed), &undated));
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
    fn a_caught_up_change_is_removed_once_unless_a_notification_covered_it() {
        let all = "b 10:04:00, c 10:06:00, d";
        let next = notification("10:00:00Z", "10:05:00Z", "next");
        let covered = memory().after_missed(&missed(all)).after(&next);
        for (mut memory, told, left) in [
            (memory().after_missed(&missed("x")), "x, y, x", "y, x"),
            (covered, all, "b 10:04:00, d"),
        ] {
            let mut told = changes(told);
            memory.remove_caught_up(&mut told);
            assert_eq!(told, changes(left));
        }
    }

    #[test]
    fn a_listed_change_that_is_not_announced_yet_stays_missed() {
        let memory = memory().with_listed_before(&missed("a 10:00:05, b"));
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
        let last = notification("", "10:00:00Z", "");
        let memory = after(&Memory::default(), &last, &changes(told));
        let following = following.map(|(from, later)| NotificationAfterMissed {
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

    fn missed_before(before: Option<&str>, lists: &[&str]) -> Vec<String> {
        let following = before.map(|before| (before, "other"));
        locs(missed_after("other", following, lists))
    }

    fn locs(missed: Vec<(String, bool)>) -> Vec<String> {
        missed.into_iter().map(|(loc, _)| loc).collect()
    }

    /// The beginning of the notification that follows.
    const NEXT: Option<&str> = Some("2026-11-20T10:02:00Z");

    #[test]
    fn missed_changes_are_in_order_without_those_that_the_next_has() {
        for (before, lists, want) in [
            (
                None,
                [
                    "a 09:00:00, d 10:04:00, b 10:02:00",
                    "c 10:03:00, a 10:01:00",
                ],
                "a b c d",
            ),
            (NEXT, ["a 10:01:00, b 10:02:00", "c 10:02:01"], "a b"),
            // One was copied to another list.
            (
                None,
                ["a 10:01:00, a 10:01:00", "a 10:01:00, b 10:02:00"],
                "a a b",
            ),
            // Without a time: in its place, or last.
            (
                None,
                ["x, a 10:01:00, b, c 10:03:00", "d 10:02:00"],
                "a b d c x",
            ),
            // A time in the future says nothing.
            (
                NEXT,
                ["a 2027-01-01T00:00:00, b 10:01:00", "d 10:02:01"],
                "b a",
            ),
        ] {
            assert_eq!(missed_before(before, &lists).join(" "), want, "{lists:?}");
        }
    }

    #[test]
    fn a_change_without_a_time_is_missed_unless_it_was_told_or_the_next_has_it() {
        for list in ["a 09:00:00, b", "a 10:00:00, b", "b, a 09:00:00"] {
            let missed = missed_before(NEXT, &[list]);
            assert!(missed.contains(&"b".to_owned()), "{list}");
        }
        let after = |told: &str, list: &str| locs(missed_after(told, None, &[list]));
        assert_eq!(after("b", "a 09:00:00, b, c"), ["c"]);
        assert_eq!(after("b", "b, b"), ["b"], "the second is another one");
        // The list was rewritten: something else has happened to it since.
        assert_eq!(after("b", "b 10:01:00, b"), ["b", "b"]);
        let before = |changes| {
            let following = NEXT.map(|next| (next, changes));
            missed_after("other", following, &["a 10:01:00, c 10:03:00, b"])
        };
        let a = || ("a".to_owned(), false);
        assert_eq!(before("c 10:03:00, b"), [a()]);
        assert_eq!(before("c 10:03:00"), [a(), ("b".to_owned(), true)]);
    }
}

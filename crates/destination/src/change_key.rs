//! The key of a change, by which it is recognised in notifications and Change Lists, and bounded sets of keys. Pure.

use std::collections::{HashMap, HashSet, VecDeque};

use resourcesync::receive::{ReceivedChange, time_span};
use serde::{Deserialize, Serialize};

/// Hexadecimal digits of a key.
const DIGITS: usize = 16;

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
        match change.datetime.as_deref() {
            Some(datetime) => {
                let instant = time_span(datetime).map(|(start, _)| start.to_string());
                part(Some(instant.as_deref().unwrap_or(datetime)));
            }
            None => {
                part(change.lastmod.as_deref());
                part(change.hash.as_deref());
                part(change.length.as_deref());
            }
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
pub struct Occurrences(HashMap<ReceivedKey, u32>);

impl Occurrences {
    /// Returns the key of the next change, which after others depends on how many these are.
    pub fn key(&mut self, change: &ReceivedChange) -> ReceivedKey {
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
    keys: HashSet<ReceivedKey>,
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

    pub fn contains(&self, key: ReceivedKey) -> bool {
        self.keys.contains(&key)
    }

    pub fn iter(&self) -> impl Iterator<Item = ReceivedKey> {
        self.order.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// One text of all keys: a line for each would make a long file.
impl From<KeySet> for String {
    fn from(keys: KeySet) -> String {
        keys.iter().map(String::from).collect()
    }
}

impl TryFrom<String> for KeySet {
    type Error = String;

    fn try_from(text: String) -> Result<KeySet, String> {
        let starts = (0..text.len()).step_by(DIGITS);
        let keys = starts.map(|start| {
            let key = text.get(start..start + DIGITS);
            ReceivedKey::try_from(key.unwrap_or_default().to_owned())
        });
        let mut all = KeySet::default();
        all.add(keys.collect::<Result<Vec<ReceivedKey>, String>>()?);
        Ok(all)
    }
}

#[cfg(test)]
pub mod tests {
    use resourcesync::listing::ListedEntry;

    use super::{KeySet, Occurrences, ReceivedChange, ReceivedKey};

    pub fn change(loc: &str, datetime: Option<&str>) -> ReceivedChange {
        let entry = ListedEntry {
            loc: Some(loc.to_owned()),
            change: Some("updated".to_owned()),
            datetime: datetime.map(str::to_owned),
            ..ListedEntry::default()
        };
        ReceivedChange::of(entry).unwrap()
    }

    /// Changes such as `a 10:05:00`, `a 2027-01-01T00:00:00`, or `b` without a time.
    pub fn changes(text: &str) -> Vec<ReceivedChange> {
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
        let (mut one, mut other) = (Occurrences::default(), Occurrences::default());
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
        assert!(!keys.contains(key(0)));
        assert!(keys.contains(key(1)));
        assert_eq!(keys.iter().count(), KeySet::MAX);
        assert_eq!(keys.iter().next(), Some(key(1)));
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
}

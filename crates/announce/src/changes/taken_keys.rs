//! The keys that were taken from one Change List, as they are stored, and what a new version of it changes in them (C7).
//!
//! They are kept in rows, in the order in which they were taken. Only rows in which something changed are written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::change::ChangeKey;
use resourcesync::change_list::ListedChange;
use resourcesync::uri::Uri;

use crate::changes::round::AbsenceGrace;

/// Keys of entries that were taken from one Change List, 16 bytes each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    pub bytes: Arc<[u8]>,
    /// The time at which the list was seen without these entries (C7).
    pub vanished: Option<Timestamp>,
}

/// Keys in one row of the state file.
pub const KEYS_PER_ROW: usize = 4_096;

/// A number for each of some keys.
pub type KeyMap<T> = HashMap<ChangeKey, T, BuildHasherDefault<KeyHasher>>;

/// Hashes keys, which are hashes already.
#[derive(Debug, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    fn write_usize(&mut self, _: usize) {}
}

/// Rows of keys to write, by list and number; nothing for a row to delete.
pub type KeyChanges = BTreeMap<(Uri, u32), Option<KeyRow>>;

/// The keys that were taken from one list.
///
/// Rows of what vanished are numbered from the top, the others from 0.
#[derive(Debug, Default)]
pub struct TakenKeys {
    rows: BTreeMap<u32, KeyRow>,
    changed: BTreeSet<u32>,
}

/// An entry that was not taken from its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UntakenPosition {
    /// Its index among the entries that count.
    pub index: usize,
    /// Its number among the entries with its key, from 1, in order of their times; those that vanished come first.
    pub copy: u32,
}

impl TakenKeys {
    /// Returns the keys in some rows. Keys that vanished for longer than the grace are forgotten (C7).
    pub fn new(rows: BTreeMap<u32, KeyRow>, watch: &AbsenceGrace) -> TakenKeys {
        let mut keys = TakenKeys {
            rows,
            changed: BTreeSet::new(),
        };
        let is_old = |row: &KeyRow| row.vanished.is_some_and(|at| watch.is_forgotten(at));
        let old = keys.rows.extract_if(.., |_, row| is_old(row));
        keys.changed.extend(old.map(|(number, _)| number));
        keys
    }

    /// Returns the rows of the list that are to be written.
    pub fn into_changes(mut self, list: &Uri) -> KeyChanges {
        let changed = self.changed.into_iter();
        let changed = changed.map(|number| ((list.clone(), number), self.rows.remove(&number)));
        changed.collect()
    }

    fn present(&self) -> impl Iterator<Item = ChangeKey> {
        let rows = self.rows.values().filter(|row| row.vanished.is_none());
        rows.flat_map(KeyRow::keys)
    }

    /// Compares the keys with the entries that are listed now: those that are listed no more have vanished, and those that
    /// had vanished and are there again are present. Returns the entries that were not taken, in their order. `times` are
    /// their effective times: of equal entries, the earliest were taken.
    pub fn reconcile(
        &mut self,
        entries: &[ListedChange],
        times: &[Timestamp],
        at: Timestamp,
    ) -> Vec<UntakenPosition> {
        let before: Vec<ChangeKey> = self.present().collect();
        // Most lists only grow: what they begin with is what was stored.
        let keys = entries.iter().map(|entry| entry.place.key);
        let pairs = keys.clone().zip(&before);
        let same = pairs.take_while(|(key, stored)| key == *stored).count();
        let mut gone = before[same..].to_vec();
        gone.sort_unstable();
        let mut new: Vec<(ChangeKey, usize)> = keys.zip(0..).skip(same).collect();
        new.sort_unstable_by_key(|(key, index)| (*key, times.get(*index), *index));
        let vanished = subtract(&mut new, &gone);
        if !vanished.is_empty() {
            self.vanish(&vanished, at);
        }
        if self.rows.is_empty() {
            return number_copies(new, |_| 0);
        }
        let mut counts: KeyMap<(u32, u32)> = KeyMap::default();
        counts.extend(new.iter().map(|(key, _)| (*key, (0, 0))));
        for row in self.rows.values() {
            for key in row.keys() {
                if let Some((present, vanished)) = counts.get_mut(&key) {
                    let count = match row.vanished {
                        None => present,
                        Some(_) => vanished,
                    };
                    *count += 1;
                }
            }
        }
        self.bring_back(&mut new, &counts);
        let taken = |key: &ChangeKey| counts.get(key).map_or(0, |(here, gone)| here + gone);
        number_copies(new, taken)
    }

    /// Makes keys present again that had vanished, and removes their entries from those that are new. `counts` are the
    /// numbers of taken keys, present and vanished.
    fn bring_back(&mut self, new: &mut Vec<(ChangeKey, usize)>, counts: &KeyMap<(u32, u32)>) {
        let vanished = counts.iter().filter(|(_, (_, vanished))| *vanished > 0);
        let mut back: KeyMap<u32> = vanished.map(|(key, (_, count))| (*key, *count)).collect();
        if back.is_empty() {
            return;
        }
        let returned = new.extract_if(.., |(key, _)| take_one(&mut back, *key));
        let returned: Vec<ChangeKey> = returned.map(|(key, _)| key).collect();
        self.remove(&returned, true);
        self.add(returned);
    }

    /// Notes that keys are listed no more.
    fn vanish(&mut self, keys: &[ChangeKey], at: Timestamp) {
        self.remove(keys, false);
        self.pack();
        let lowest = self.rows.iter().find(|(_, row)| row.vanished.is_some());
        let mut next = lowest.map_or(u32::MAX, |(number, _)| number.saturating_sub(1));
        for keys in keys.chunks(KEYS_PER_ROW) {
            self.rows.insert(next, KeyRow::new(keys, Some(at)));
            self.changed.insert(next);
            next = next.saturating_sub(1);
        }
    }

    /// Removes keys from the rows of those that vanished, or from the others.
    fn remove(&mut self, keys: &[ChangeKey], is_vanished: bool) {
        let mut left: KeyMap<u32> = KeyMap::default();
        for key in keys {
            *left.entry(*key).or_default() += 1;
        }
        let rows = self.rows.iter_mut();
        for (number, row) in rows.filter(|(_, row)| row.vanished.is_some() == is_vanished) {
            if !row.keys().any(|key| left.contains_key(&key)) {
                continue;
            }
            let kept = row.keys().filter(|key| !take_one(&mut left, *key));
            let kept: Vec<ChangeKey> = kept.collect();
            if kept.len() < row.count() {
                *row = KeyRow::new(&kept, row.vanished);
                self.changed.insert(*number);
            }
        }
        self.rows.retain(|_, row| !row.bytes.is_empty());
    }

    /// Writes the keys that are present in as few rows as they need, once they are in twice as many.
    fn pack(&mut self) {
        let rows = self.rows.values().filter(|row| row.vanished.is_none());
        let keys: Vec<ChangeKey> = self.present().collect();
        if rows.count() <= 2 * keys.len().div_ceil(KEYS_PER_ROW) {
            return;
        }
        let present = self.rows.extract_if(.., |_, row| row.vanished.is_none());
        self.changed.extend(present.map(|(number, _)| number));
        self.add(keys);
    }

    /// Adds keys that were taken.
    pub fn add(&mut self, keys: impl IntoIterator<Item = ChangeKey>) {
        let mut rows = self.rows.iter().rev();
        let last = rows.find(|(_, row)| row.vanished.is_none());
        let last = last.map(|(number, row)| (*number, row.clone()));
        for (number, row) in appended(last, keys) {
            self.rows.insert(number, row);
            self.changed.insert(number);
        }
    }
}

/// Takes one from the count of a key. Returns false if there is none left.
fn take_one(counts: &mut KeyMap<u32>, key: ChangeKey) -> bool {
    let left = counts.get_mut(&key).filter(|count| **count > 0);
    left.map(|count| *count -= 1).is_some()
}

/// Returns the rows that some more keys make after the last row of a list.
pub fn appended(
    last: Option<(u32, KeyRow)>,
    keys: impl IntoIterator<Item = ChangeKey>,
) -> Vec<(u32, KeyRow)> {
    let number = last.as_ref().map_or(0, |(number, _)| *number);
    let mut all: Vec<ChangeKey> = last.iter().flat_map(|(_, row)| row.keys()).collect();
    let before = all.len();
    all.extend(keys);
    if all.len() == before {
        return Vec::new();
    }
    let rows = (number..=u32::MAX).zip(all.chunks(KEYS_PER_ROW));
    let rows = rows.map(|(number, keys)| (number, KeyRow::new(keys, None)));
    // The last row is as it was if it is full.
    rows.skip(before / KEYS_PER_ROW).collect()
}

/// Removes keys from entries; both are in order. Returns the keys that no entry has.
fn subtract(entries: &mut Vec<(ChangeKey, usize)>, keys: &[ChangeKey]) -> Vec<ChangeKey> {
    let mut without = Vec::new();
    let mut keys = keys.iter().copied().peekable();
    entries.retain(|(entry, _)| {
        while let Some(key) = keys.next_if(|key| key < entry) {
            without.push(key);
        }
        keys.next_if_eq(entry).is_none()
    });
    without.extend(keys);
    without
}

/// Numbers the entries of each key, which are in order of the keys, after so many that were taken. Returns them in their order.
fn number_copies(
    entries: Vec<(ChangeKey, usize)>,
    taken: impl Fn(&ChangeKey) -> u32,
) -> Vec<UntakenPosition> {
    let mut before: Option<(ChangeKey, u32)> = None;
    let numbered = entries.into_iter().map(|(key, index)| {
        let copy = match before {
            Some((same, copy)) if same == key => copy + 1,
            _ => taken(&key) + 1,
        };
        before = Some((key, copy));
        UntakenPosition { index, copy }
    });
    let mut numbered: Vec<UntakenPosition> = numbered.collect();
    numbered.sort_unstable_by_key(|entry| entry.index);
    numbered
}

impl KeyRow {
    /// Makes a row.
    pub fn new(keys: &[ChangeKey], vanished: Option<Timestamp>) -> KeyRow {
        let bytes: Vec<u8> = keys.iter().flat_map(|key| key.0).collect();
        KeyRow {
            bytes: Arc::from(bytes),
            vanished,
        }
    }

    pub fn count(&self) -> usize {
        self.bytes.len() / size_of::<ChangeKey>()
    }

    pub fn keys(&self) -> impl Iterator<Item = ChangeKey> {
        self.bytes.as_chunks().0.iter().map(|key| ChangeKey(*key))
    }
}

//! The keys that were taken from Change Lists, as they are stored, what a new version of one changes in them (C7), and the
//! entries that were not taken yet: listed − taken, by keys (C4).
//!
//! They are kept in rows, in the order in which they were taken. Only rows in which something changed are written.
//!
//! An entry is compared first with what was taken from its own list. Most are known there, so that only the others are
//! kept, and compared with what was taken from all lists; of too many, only the earliest.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::change::ChangeKey;
use resourcesync::change_list::{EntryPlace, ListedKey};
use resourcesync::uri::Uri;

use crate::changes::round::WatchTime;

/// Keys of entries that were taken from one Change List, 16 bytes each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysRow {
    pub bytes: Arc<[u8]>,
    /// The time at which the list was seen without these entries (C7).
    pub vanished: Option<Timestamp>,
}

/// Keys in one row of the state file.
pub const KEYS_PER_ROW: usize = 4_096;

/// A value for each of some keys.
type KeyMap<T> = HashMap<ChangeKey, T, BuildHasherDefault<HashedKeyHasher>>;

/// Hashes keys, which are hashes already.
#[derive(Debug, Default)]
struct HashedKeyHasher(u64);

impl Hasher for HashedKeyHasher {
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
pub type KeyChanges = BTreeMap<(Uri, u32), Option<KeysRow>>;

/// The keys that were taken from one list.
///
/// Rows of what vanished are numbered from the top, the others from 0.
#[derive(Debug, Default)]
pub struct ListTakenKeys {
    rows: BTreeMap<u32, KeysRow>,
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

impl ListTakenKeys {
    /// Returns the keys in some rows. Keys that vanished for longer than the grace are forgotten (C7).
    pub fn new(mut rows: BTreeMap<u32, KeysRow>, watch: &WatchTime) -> ListTakenKeys {
        let is_old = |row: &KeysRow| row.vanished.is_some_and(|at| watch.is_forgotten(at));
        let old = rows.extract_if(.., |_, row| is_old(row));
        let changed = old.map(|(number, _)| number).collect();
        ListTakenKeys { rows, changed }
    }

    /// Returns the rows of the list that are to be written.
    pub fn into_changes(mut self, list: &Uri) -> KeyChanges {
        let numbers = self.changed.into_iter();
        let changed = numbers.map(|number| ((list.clone(), number), self.rows.remove(&number)));
        changed.collect()
    }

    fn unvanished_keys(&self) -> impl Iterator<Item = ChangeKey> {
        let rows = self.rows.values().filter(|row| row.vanished.is_none());
        rows.flat_map(KeysRow::keys)
    }

    /// Compares the keys with the entries that are listed now: those that are listed no more have vanished, and those that
    /// had vanished and are there again are present. Returns the entries that were not taken, in their order. `times` are
    /// their effective times: of equal entries, the earliest were taken.
    pub fn reconcile(
        &mut self,
        entries: &[ListedKey],
        times: &[Timestamp],
        at: Timestamp,
    ) -> Vec<UntakenPosition> {
        let before: Vec<ChangeKey> = self.unvanished_keys().collect();
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
        // Numbers of taken keys, present and vanished.
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
        let vanished = counts.iter().filter(|(_, (_, vanished))| *vanished > 0);
        let mut back: KeyMap<u32> = vanished.map(|(key, (_, count))| (*key, *count)).collect();
        if !back.is_empty() {
            let returned = new.extract_if(.., |(key, _)| decrement(&mut back, *key));
            let returned: Vec<ChangeKey> = returned.map(|(key, _)| key).collect();
            self.remove(&returned, true);
            self.add(returned);
        }
        let taken = |key: &ChangeKey| counts.get(key).map_or(0, |(here, gone)| here + gone);
        number_copies(new, taken)
    }

    /// Notes that keys are listed no more.
    fn vanish(&mut self, keys: &[ChangeKey], at: Timestamp) {
        self.remove(keys, false);
        self.pack();
        let lowest = self.rows.iter().find(|(_, row)| row.vanished.is_some());
        let mut next = lowest.map_or(u32::MAX, |(number, _)| number.saturating_sub(1));
        for keys in keys.chunks(KEYS_PER_ROW) {
            self.rows.insert(next, KeysRow::new(keys, Some(at)));
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
            let kept = row.keys().filter(|key| !decrement(&mut left, *key));
            let kept: Vec<ChangeKey> = kept.collect();
            if kept.len() < row.keys().len() {
                *row = KeysRow::new(&kept, row.vanished);
                self.changed.insert(*number);
            }
        }
        self.rows.retain(|_, row| !row.bytes.is_empty());
    }

    /// Writes the keys that are present in as few rows as they need, once they are in twice as many.
    fn pack(&mut self) {
        let rows = self.rows.values().filter(|row| row.vanished.is_none());
        let keys: Vec<ChangeKey> = self.unvanished_keys().collect();
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
        let last = rows
            .find(|(_, row)| row.vanished.is_none())
            .map(|(number, row)| (*number, row.clone()));
        for (number, row) in appended_rows(last, keys) {
            self.rows.insert(number, row);
            self.changed.insert(number);
        }
    }
}

/// Takes one from the count of a key. Returns false if there is none left.
fn decrement(counts: &mut KeyMap<u32>, key: ChangeKey) -> bool {
    let left = counts.get_mut(&key).filter(|count| **count > 0);
    left.map(|count| *count -= 1).is_some()
}

/// Returns the rows that some more keys make after the last row of a list.
pub fn appended_rows(
    last: Option<(u32, KeysRow)>,
    keys: impl IntoIterator<Item = ChangeKey>,
) -> Vec<(u32, KeysRow)> {
    let number = last.as_ref().map_or(0, |(number, _)| *number);
    let mut all: Vec<ChangeKey> = last.iter().flat_map(|(_, row)| row.keys()).collect();
    let before = all.len();
    all.extend(keys);
    if all.len() == before {
        return Vec::new();
    }
    let rows = (number..=u32::MAX)
        .zip(all.chunks(KEYS_PER_ROW))
        .map(|(number, keys)| (number, KeysRow::new(keys, None)));
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

impl KeysRow {
    /// Makes a row.
    pub fn new(keys: &[ChangeKey], vanished: Option<Timestamp>) -> KeysRow {
        let bytes = keys.iter().flat_map(|key| key.0).collect();
        KeysRow { bytes, vanished }
    }

    pub fn keys(&self) -> impl ExactSizeIterator<Item = ChangeKey> {
        self.bytes.as_chunks().0.iter().map(|key| ChangeKey(*key))
    }
}

/// An entry that was not taken from its own list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UntakenEntry {
    pub place: EntryPlace,
    /// Effective time (C13).
    pub time: Timestamp,
    /// Number of its list.
    pub list: u32,
    /// Its number among the entries of its list with the same key, from 1, in order of their times; those that were taken
    /// come first. So an entry is never kept, or told, without those before it.
    pub copy: u32,
    /// True if its datetime lies ahead (C15).
    pub is_ahead: bool,
    /// True if its list does not tell it: others do, or nobody does (C1, C7).
    pub is_silent: bool,
}

/// Place in the order in which entries are kept and told: time, list, and position in the list. Silent ones come last: if
/// one of them is kept, every other list's entry with its key is kept too, and is not taken for it.
type Rank = (bool, Timestamp, u32, u32);

impl UntakenEntry {
    fn rank(&self) -> Rank {
        (self.is_silent, self.time, self.list, self.place.position)
    }
}

/// The result of a comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ComparedEntries {
    /// Entries that were taken from other lists.
    pub taken: Vec<UntakenEntry>,
    /// Silent entries that no other list tells.
    pub untold: Vec<UntakenEntry>,
    /// Fresh entries, in the order in which they are told.
    pub fresh: Vec<UntakenEntry>,
    /// Entries that other lists have too, which are told for them; in order of their keys and numbers.
    pub copies: Vec<UntakenEntry>,
}

/// From so many candidates on they have so much more room: glibc gives an allocation of over 32 MiB back to the system, and
/// keeps up to twice the largest one below that for later. Room that is not used takes no memory.
const MANY_CANDIDATES: usize = 1 << 16;
const ROOM_FOR_MANY: usize = 32 << 20;

/// The comparison of some lists of a channel with everything that was taken on it.
#[derive(Debug, Default)]
pub struct ChannelComparison {
    candidates: Vec<UntakenEntry>,
    /// Candidates that are kept, and up to a sixteenth more.
    max: usize,
    /// The first of those that were too late to be kept.
    bound: Option<Rank>,
    /// Numbers of the entries with a key that are learned in this comparison.
    learned: KeyMap<u32>,
}

impl ChannelComparison {
    /// Begins a comparison that keeps so many entries.
    pub fn new(max: usize) -> ChannelComparison {
        ChannelComparison {
            max: max.max(1),
            ..ChannelComparison::default()
        }
    }

    /// Counts an entry as taken without telling it, because nobody could hear of it before (C10).
    pub fn learn(&mut self, key: ChangeKey, copy: u32) {
        let learned = self.learned.entry(key).or_default();
        *learned = copy.max(*learned);
    }

    /// Adds an entry. If there are too many, hands the latest to `drop`, possibly this one.
    pub fn add(&mut self, candidate: UntakenEntry, mut drop: impl FnMut(&UntakenEntry)) {
        if self.bound.is_some_and(|bound| candidate.rank() >= bound) {
            drop(&candidate);
            return;
        }
        if self.candidates.len() == MANY_CANDIDATES {
            self.candidates
                .reserve_exact(ROOM_FOR_MANY / size_of::<UntakenEntry>());
        }
        self.candidates.push(candidate);
        if self.candidates.len() <= self.max.saturating_add(self.max / 16) {
            return;
        }
        let rank = UntakenEntry::rank;
        let (_, first, _) = self.candidates.select_nth_unstable_by_key(self.max, rank);
        self.bound = Some(first.rank());
        let late = self.candidates.drain(self.max..);
        late.for_each(|late| drop(&late));
    }

    /// Compares with what was taken from all lists. `stored` passes each taken key with the number of its list, list by
    /// list.
    pub fn compare_across_lists<E>(
        mut self,
        stored: impl FnOnce(&mut dyn FnMut(u32, ChangeKey)) -> Result<(), E>,
    ) -> Result<ComparedEntries, E> {
        if self.candidates.is_empty() {
            return Ok(ComparedEntries::default());
        }
        let candidates = &mut self.candidates;
        candidates.sort_unstable_by_key(|entry| {
            (entry.place.key, entry.is_silent, entry.list, entry.copy)
        });
        let mut counts = KeyCounts::new(candidates);
        stored(&mut |list, key| counts.count_taken(candidates, list, key))?;
        let mut compared = ComparedEntries::default();
        let mut is_fresh = Vec::with_capacity(candidates.len());
        for group in candidates.chunk_by(|one, other| one.place.key == other.place.key) {
            let learned = self.learned.get(&group[0].place.key);
            let taken = counts.taken[is_fresh.len()].max;
            let taken = learned.map_or(taken, |learned| taken.max(*learned));
            // The first list that has an entry of this number tells it.
            let mut told = BTreeSet::new();
            is_fresh.extend(group.iter().map(|entry| {
                let is_told = told.contains(&entry.copy);
                let kept = match entry {
                    entry if entry.copy <= taken => &mut compared.taken,
                    _ if is_told => &mut compared.copies,
                    entry if entry.is_silent => &mut compared.untold,
                    _ => return told.insert(entry.copy),
                };
                kept.push(*entry);
                false
            }));
        }
        let mut is_fresh = is_fresh.into_iter();
        self.candidates
            .retain(|_| is_fresh.next().unwrap_or_default());
        self.candidates.sort_unstable_by_key(UntakenEntry::rank);
        compared.fresh = self.candidates;
        let number = |entry: &UntakenEntry| (entry.place.key, entry.copy, entry.list);
        compared.copies.sort_unstable_by_key(number);
        Ok(compared)
    }
}

/// Numbers of times that the keys of some entries were taken.
struct KeyCounts {
    /// By the index of the first entry with a key.
    taken: Vec<KeyOccurrences>,
    /// A bit for each key that may be among them, by some bits of it.
    filter: Vec<u64>,
}

/// Occurrences of one key.
#[derive(Debug, Clone, Copy, Default)]
struct KeyOccurrences {
    /// Maximum in one list.
    max: u32,
    /// Occurrences in the list that passes by, and its number.
    here: u32,
    list: u32,
}

impl KeyCounts {
    fn new(candidates: &[UntakenEntry]) -> KeyCounts {
        let words = (candidates.len() / 4).next_power_of_two();
        let mut filter = vec![0; words];
        for entry in candidates {
            let (word, bit) = filter_bit(entry.place.key, words);
            filter[word] |= bit;
        }
        KeyCounts {
            taken: vec![KeyOccurrences::default(); candidates.len()],
            filter,
        }
    }

    /// Notes a key that was taken from a list.
    fn count_taken(&mut self, candidates: &[UntakenEntry], list: u32, key: ChangeKey) {
        let (word, bit) = filter_bit(key, self.filter.len());
        if self.filter[word] & bit == 0 {
            return;
        }
        let first = candidates.partition_point(|entry| entry.place.key < key);
        let found = candidates.get(first);
        if found.is_none_or(|entry| entry.place.key != key) {
            return;
        }
        let count = &mut self.taken[first];
        if count.list != list {
            (count.list, count.here) = (list, 0);
        }
        count.here += 1;
        count.max = count.max.max(count.here);
    }
}

/// Returns the word of a filter that has a key's bit, and the bit.
fn filter_bit(key: ChangeKey, words: usize) -> (usize, u64) {
    let mut low = [0; 8];
    low.copy_from_slice(&key.0[..8]);
    let low = u64::from_le_bytes(low);
    let word = usize::try_from(low >> 6).unwrap_or_default() & (words - 1);
    (word, 1 << (low & 63))
}

#[cfg(test)]
mod tests;

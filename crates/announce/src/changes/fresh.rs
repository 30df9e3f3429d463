//! The entries of Change Lists that were not taken yet: listed − taken, by keys (C4).
//!
//! An entry is compared first with what was taken from its own list. Most are known there, so that only the others are
//! kept, and compared with what was taken from all lists; of too many, only the earliest.

use std::collections::BTreeSet;

use jiff::Timestamp;
use resourcesync::change::ChangeKey;
use resourcesync::change_list::EntryPlace;

use crate::changes::taken_keys::KeyMap;

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

/// The comparison of some lists of a channel with everything that was taken on it.
#[derive(Debug)]
pub struct Comparison {
    candidates: Vec<UntakenEntry>,
    /// Candidates that are kept, beside half as many for a moment.
    max: usize,
    /// The first of those that were too late to be kept.
    bound: Option<Rank>,
    /// Numbers of the entries with a key that are learned in this comparison.
    learned: KeyMap<u32>,
}

impl Comparison {
    /// Begins a comparison that keeps so many entries.
    pub fn new(max: usize) -> Comparison {
        Comparison {
            candidates: Vec::new(),
            max: max.max(1),
            bound: None,
            learned: KeyMap::default(),
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
        self.candidates.push(candidate);
        if self.candidates.len() <= self.max.saturating_add(self.max / 2) {
            return;
        }
        let rank = UntakenEntry::rank;
        let (_, first, _) = self.candidates.select_nth_unstable_by_key(self.max, rank);
        self.bound = Some(first.rank());
        self.candidates
            .drain(self.max..)
            .for_each(|late| drop(&late));
    }

    /// Compares with what was taken from all lists. `stored` passes each taken key with the number of its list, list by
    /// list.
    pub fn conclude<E>(
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
        stored(&mut |list, key| counts.pass(candidates, list, key))?;
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
            let (word, bit) = place(entry.place.key, words);
            filter[word] |= bit;
        }
        KeyCounts {
            taken: vec![KeyOccurrences::default(); candidates.len()],
            filter,
        }
    }

    /// Notes a key that was taken from a list.
    fn pass(&mut self, candidates: &[UntakenEntry], list: u32, key: ChangeKey) {
        let (word, bit) = place(key, self.filter.len());
        if self.filter[word] & bit == 0 {
            return;
        }
        let first = candidates.partition_point(|entry| entry.place.key < key);
        if candidates
            .get(first)
            .is_none_or(|entry| entry.place.key != key)
        {
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
fn place(key: ChangeKey, words: usize) -> (usize, u64) {
    let mut low = [0; 8];
    low.copy_from_slice(&key.0[..8]);
    let low = u64::from_le_bytes(low);
    let word = usize::try_from(low >> 6).unwrap_or_default() & (words - 1);
    (word, 1 << (low & 63))
}

#[cfg(test)]
mod tests;

//! The fresh entries of a selection, in the order in which they are told, of which each round takes the earliest (C13).

use std::ops::Range;

use crate::changes::fresh::UntakenEntry;
use crate::changes::round::{ROUND_BYTES, RoundRequest};

/// Fresh entries, with the same ones in other lists.
#[derive(Debug, Default)]
pub struct FreshEntries {
    /// In the order in which they are told.
    entries: Vec<UntakenEntry>,
    /// Number of these that were taken.
    next: usize,
    /// Entries that are taken with the same ones in other lists, in order of their keys; and whether they were.
    copies: Vec<(UntakenEntry, bool)>,
}

impl FreshEntries {
    /// Returns entries in the order in which they are told, with their copies in order of their keys.
    pub fn new(entries: Vec<UntakenEntry>, copies: Vec<UntakenEntry>) -> FreshEntries {
        FreshEntries {
            entries,
            next: 0,
            copies: copies.into_iter().map(|copy| (copy, false)).collect(),
        }
    }

    /// Returns the number of entries that are kept.
    pub fn count(&self) -> usize {
        self.entries.len() + self.copies.len()
    }

    /// Returns true if all were taken.
    pub fn are_exhausted(&self) -> bool {
        self.next == self.entries.len()
    }

    /// Returns those that were not taken, copies among them.
    pub fn left(&self) -> impl Iterator<Item = &UntakenEntry> {
        let copies = self.copies.iter().filter(|(_, is_taken)| !is_taken);
        self.entries[self.next..]
            .iter()
            .chain(copies.map(|(copy, _)| copy))
    }

    /// Returns the entries that a round tells.
    pub fn next(&self, request: &RoundRequest) -> &[UntakenEntry] {
        let left = &self.entries[self.next..];
        let is_before =
            |entry: &UntakenEntry| request.beyond.is_none_or(|beyond| entry.time < beyond);
        let left = &left[..left.partition_point(is_before).min(request.limit)];
        let mut bytes = 0;
        let is_beyond = |entry: &UntakenEntry| {
            bytes += u64::from(entry.place.end.saturating_sub(entry.place.offset));
            bytes > ROUND_BYTES
        };
        let fitting = left.iter().position(is_beyond);
        &left[..fitting.map_or(left.len(), |fitting| fitting.max(1))]
    }

    /// Returns the copies that are taken with an entry.
    pub fn copies(&self, entry: &UntakenEntry) -> impl Iterator<Item = &UntakenEntry> {
        let copies = self.copies[self.copies_of(entry)].iter();
        copies.map(|(copy, _)| copy)
    }

    /// Takes so many entries, and hands over each, followed by its copies.
    pub fn take(&mut self, count: usize, mut taken: impl FnMut(&UntakenEntry)) {
        for number in self.next..self.next + count {
            let entry = self.entries[number];
            taken(&entry);
            let copies = self.copies_of(&entry);
            for (copy, is_taken) in &mut self.copies[copies] {
                *is_taken = true;
                taken(copy);
            }
        }
        self.next += count;
        if self.are_exhausted() {
            *self = FreshEntries::default();
        }
    }

    /// Returns the range of an entry's copies.
    fn copies_of(&self, entry: &UntakenEntry) -> Range<usize> {
        let number = |entry: &UntakenEntry| (entry.place.key, entry.copy);
        let wanted = number(entry);
        let begin = self
            .copies
            .partition_point(|(copy, _)| number(copy) < wanted);
        let of_entry = self.copies[begin..].partition_point(|(copy, _)| number(copy) == wanted);
        begin..begin + of_entry
    }
}

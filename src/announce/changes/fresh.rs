//! The entries of Change Lists that were not taken yet: listed − taken, by keys (C4).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::resourcesync::change::ChangeKey;
use crate::resourcesync::change_list::Listed;
use crate::resourcesync::uri::Uri;

/// A version of a Change List, in the order in which its entries stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedEntries<'a> {
    pub list: &'a Uri,
    pub entries: &'a [Listed],
    /// True if its entries were there before anybody could hear of them: they count as taken (C10).
    pub is_learned: bool,
}

/// The comparison of some lists of a channel with everything that was taken on it.
///
/// Keys that were taken pass by list after list, so that memory is bounded by the lists that are compared.
#[derive(Debug)]
pub struct Comparison<'a> {
    lists: &'a [ListedEntries<'a>],
    keys: HashMap<ChangeKey, Count, BuildHasherDefault<KeyHasher>>,
    /// Number of the list whose taken keys pass by; those that vanished from it are among them.
    passing: u32,
}

/// Occurrences of one key.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    /// The most in one list of those taken.
    taken: u32,
    /// Those in the list that passes by, and its number.
    here: u32,
    passing: u32,
}

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

impl<'a> Comparison<'a> {
    /// Begins a comparison of lists, which are in order of their URIs.
    pub fn new(lists: &'a [ListedEntries<'a>]) -> Comparison<'a> {
        let size = lists.iter().map(|list| list.entries.len()).sum();
        let mut keys = HashMap::with_capacity_and_hasher(size, BuildHasherDefault::default());
        for entry in lists.iter().flat_map(|list| list.entries) {
            keys.entry(entry.key).or_insert_with(Count::default);
        }
        Comparison {
            lists,
            keys,
            passing: 0,
        }
    }

    /// Notes the keys that were taken from one list.
    pub fn pass(&mut self, taken: impl IntoIterator<Item = ChangeKey>) {
        self.passing += 1;
        for key in taken {
            self.pass_one(key);
        }
    }

    /// Begins the next list whose keys pass by.
    pub fn pass_next(&mut self) {
        self.passing += 1;
    }

    /// Notes one key that was taken from the list that passes by.
    pub fn pass_one(&mut self, key: ChangeKey) {
        let passing = self.passing;
        if let Some(count) = self.keys.get_mut(&key) {
            if count.passing != passing {
                (count.passing, count.here) = (passing, 0);
            }
            count.here += 1;
            count.taken = count.taken.max(count.here);
        }
    }

    /// Returns the fresh entries of each list, as positions in its entries: of several lists that have the same one, it is
    /// fresh in the first. They count as taken from then on.
    pub fn fresh(&mut self) -> Vec<Vec<usize>> {
        for list in self.lists.iter().filter(|list| list.is_learned) {
            self.pass(list.entries.iter().map(|entry| entry.key));
        }
        self.beyond_taken(true)
    }

    /// Lets a fresh entry with this key be fresh again in the next comparison.
    pub fn leave(&mut self, key: ChangeKey) {
        if let Some(count) = self.keys.get_mut(&key) {
            count.taken = count.taken.saturating_sub(1);
        }
    }

    /// Returns the entries of each list that do not count as taken, as positions in its entries. As long as one is to be
    /// told, no list has more of its key than were.
    pub fn left(&mut self) -> Vec<Vec<usize>> {
        self.beyond_taken(false)
    }

    /// Returns the entries of each list beyond the number that was taken of their key, and takes them if so wanted.
    fn beyond_taken(&mut self, takes: bool) -> Vec<Vec<usize>> {
        let mut beyond = Vec::with_capacity(self.lists.len());
        for list in self.lists {
            self.passing += 1;
            let mut beyond_here = Vec::new();
            for (position, entry) in list.entries.iter().enumerate() {
                let Some(count) = self.keys.get_mut(&entry.key) else {
                    continue;
                };
                if count.passing != self.passing {
                    (count.passing, count.here) = (self.passing, 0);
                }
                count.here += 1;
                if count.here > count.taken {
                    beyond_here.push(position);
                    if takes {
                        count.taken = count.here;
                    }
                }
            }
            beyond.push(beyond_here);
        }
        beyond
    }
}

#[cfg(test)]
mod tests;

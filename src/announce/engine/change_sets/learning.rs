//! Learning: entries that were there when a set's channel opened, or that came with a mount's baseline, count as taken and
//! are not told (C10, R13).

use std::collections::BTreeSet;

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::changes::round::{ListToRead, TakenList};
use crate::announce::state::ListKind;

/// Largest size of the lists that are learned in one round, in bytes; one list at least.
const LEARNED_SIZE: u64 = 32 << 20;

/// Entries of one set that were learned, and lists that are still to be learned.
#[derive(Debug, Default)]
pub struct Learning {
    /// Kind of the lists whose first contents were learned last; nothing until all entries that were there when the
    /// channel opened have been learned.
    kind: Option<ListKind>,
    /// Lists of which what is new counts as taken. Their rows are empty.
    to_learn: BTreeSet<Uri>,
    learned: Learned,
    /// True if the round that is under way reads only some of the lists that are to be learned.
    is_partial: bool,
}

/// Entries that were learned, which may take several rounds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Learned {
    pub lists: usize,
    pub entries: usize,
    /// The latest datetime that is not ahead.
    pub latest: Option<Timestamp>,
}

impl Learning {
    /// Takes up what is stored: lists with empty rows are to be learned.
    pub fn restore(kind: Option<ListKind>, to_learn: BTreeSet<Uri>) -> Learning {
        Learning {
            kind,
            to_learn,
            ..Learning::default()
        }
    }

    /// Returns true once everything was learned that was there when the channel opened.
    pub fn is_complete(&self) -> bool {
        self.kind.is_some()
    }

    /// Returns the lists whose first contents were learned last.
    pub fn kind(&self) -> Option<ListKind> {
        self.kind
    }

    /// Notes that lists of another kind are compared from now on.
    pub fn turn_to(&mut self, kind: ListKind) {
        self.kind = Some(kind);
    }

    /// Returns true if what is new in a list counts as taken.
    pub fn learns(&self, list: &Uri) -> bool {
        !self.is_complete() || self.to_learn.contains(list)
    }

    /// Marks a list whose new entries count as taken.
    pub fn add(&mut self, list: Uri) {
        self.to_learn.insert(list);
    }

    /// Unmarks a list, because it was learned or is gone: its new entries are told.
    pub fn remove(&mut self, list: &Uri) {
        self.to_learn.remove(list);
    }

    /// Notes lists that the next round leaves out. While the set is learned, these are learned later.
    pub fn leave_out(&mut self, lists: BTreeSet<Uri>) {
        if !self.is_complete() {
            self.to_learn.extend(lists);
        }
    }

    pub fn to_learn(&self) -> &BTreeSet<Uri> {
        &self.to_learn
    }

    /// Begins a round, of only some of the lists if it `is_partial`.
    pub fn begin(&mut self, is_partial: bool) {
        self.is_partial = is_partial && !self.is_complete();
    }

    /// Notes what a round learned of lists of a kind, before all of the set was. `has_more` is true if it learned only some
    /// of the entries of its lists.
    pub fn taken(&mut self, kind: ListKind, lists: &[TakenList], has_more: bool) {
        self.kind = (!(has_more || self.is_partial)).then_some(kind);
        for taken in lists {
            self.learned.lists += 1;
            self.learned.entries += taken.taken;
            self.learned.latest = self.learned.latest.max(taken.latest);
        }
    }

    /// Returns what was learned so far.
    pub fn learned(&self) -> Learned {
        self.learned
    }
}

/// Returns the first of some lists, as many as are learned in one round, so that memory is bounded.
pub fn learned_at_once(mut lists: Vec<ListToRead>) -> Vec<ListToRead> {
    let mut size = 0;
    let mut number = 0;
    lists.retain(|list| {
        size += list.stat.size;
        number += 1;
        number == 1 || size <= LEARNED_SIZE
    });
    lists
}

#[cfg(test)]
mod tests {
    use super::learned_at_once;
    use crate::announce::engine::change_sets::tests::{list, names};

    #[test]
    fn what_is_learned_is_read_in_portions() {
        let lists = vec![
            list("a", 20 << 20),
            list("b", 10 << 20),
            list("c", 10 << 20),
        ];
        assert_eq!(names(&learned_at_once(lists)), "a b");
        let large = vec![list("a", 200 << 20), list("b", 1)];
        assert_eq!(names(&learned_at_once(large)), "a");
    }
}

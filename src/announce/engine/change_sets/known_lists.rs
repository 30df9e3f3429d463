//! The lists from which a set's entries were taken: as which version, what of it is left or waits, and when what was taken
//! is forgotten (C6, C7).

use std::collections::BTreeMap;

use jiff::Timestamp;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::uri::Uri;

use crate::announce::changes::round::{LeftEntries, ListToRead, ROUND, TakenList};
use crate::announce::engine::change_sets::list_index::ListIndex;
use crate::announce::engine::change_sets::odd_entries::{LastOddEntries, OddEntries};
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::state::{ChangeListRow, ClosedList};

/// The lists of one set. Each change of a row is saved, and noted in the index of lists.
#[derive(Debug)]
pub struct KnownLists {
    set: Uri,
    lists: BTreeMap<Uri, KnownList>,
    /// Lists with entries that are not taken yet, because another list may tell them.
    waiting: BTreeMap<Uri, WaitingEntries>,
    /// Documents that are Change Lists no more, and until when what was taken from them counts (C7).
    ended: BTreeMap<Uri, Timestamp>,
}

/// A list as far as its entries were taken.
#[derive(Debug, Default)]
struct KnownList {
    row: ChangeListRow,
    /// Entries of a version that were left for a later round.
    left: Option<(Fingerprint, LeftEntries)>,
    odd: LastOddEntries,
}

/// Entries of a version that are not taken yet.
#[derive(Debug, Clone, Copy)]
struct WaitingEntries {
    version: Fingerprint,
    /// End of the wait; nothing once it is over.
    until: Option<Timestamp>,
}

impl KnownLists {
    pub fn new(set: Uri) -> KnownLists {
        KnownLists {
            set,
            lists: BTreeMap::new(),
            waiting: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    /// Takes up what is stored.
    pub fn restore(
        set: Uri,
        rows: BTreeMap<Uri, ChangeListRow>,
        index: &mut ListIndex,
    ) -> KnownLists {
        let mut known = KnownLists::new(set);
        for (list, row) in rows {
            index.add(&list, &known.set);
            known.lists.entry(list).or_default().row = row;
        }
        known
    }

    /// Returns a list as far as its entries were taken.
    pub fn row(&self, list: &Uri) -> Option<&ChangeListRow> {
        self.lists.get(list).map(|known| &known.row)
    }

    pub fn uris(&self) -> impl Iterator<Item = &Uri> {
        self.lists.keys()
    }

    // Versions.

    /// Returns true if this version of a list was taken as a whole.
    pub fn has_taken(&self, list: &Uri, version: Fingerprint) -> bool {
        self.row(list)
            .is_some_and(|row| row.fingerprint == Some(version))
    }

    /// Returns true if the entries of this version of a list that no list tells are not taken yet.
    pub fn waits(&self, list: &Uri, version: Fingerprint) -> bool {
        let waiting = self.waiting(list, version);
        waiting.is_none_or(|waiting| waiting.until.is_some())
    }

    /// Returns true if this version of a list was taken except for entries whose wait is not over, so that it is not
    /// read again yet.
    pub fn is_waiting(&self, list: &Uri, version: Fingerprint) -> bool {
        let waiting = self.waiting(list, version);
        waiting.is_some_and(|waiting| waiting.until.is_some())
    }

    fn waiting(&self, list: &Uri, version: Fingerprint) -> Option<WaitingEntries> {
        let waiting = self.waiting.get(list).copied();
        waiting.filter(|waiting| waiting.version == version)
    }

    /// Ends the waits for entries that no list told in time: the next round takes them. Returns
    /// true if there are any.
    pub fn end_waiting(&mut self, step: &mut Step) -> bool {
        let mut is_any = false;
        for waiting in self.waiting.values_mut() {
            if waiting.until.is_some_and(|until| until <= step.now()) {
                waiting.until = None;
                is_any = true;
            }
        }
        self.wake(step);
        is_any
    }

    /// Returns those of some lists that the next round reads, so that memory is bounded: those with the earliest entries
    /// that were left. Entries from the time on that is returned wait, because lists that are not read may have earlier
    /// ones.
    pub fn earliest(&self, mut lists: Vec<ListToRead>) -> (Vec<ListToRead>, Option<Timestamp>) {
        // A silent entry is compared with all that may tell it (C1, C7).
        if lists.iter().any(ListToRead::may_be_silent) {
            return (lists, None);
        }
        let left = |list: &ListToRead| {
            let (version, left) = self.lists.get(&list.list)?.left?;
            (version == list.fingerprint && !list.is_learned).then_some(left)
        };
        let firsts: Option<Vec<LeftEntries>> = lists.iter().map(left).collect();
        let Some(mut firsts) = firsts else {
            return (lists, None);
        };
        firsts.sort_unstable_by_key(|left| left.first);
        let mut entries = 0;
        let beyond = firsts.iter().find(|left| {
            let is_enough = entries >= ROUND;
            entries += left.count;
            is_enough && left.first > firsts[0].first
        });
        let beyond = beyond.map(|left| left.first);
        lists.retain(|list| match (left(list), beyond) {
            (Some(left), Some(beyond)) => left.first < beyond,
            _ => true,
        });
        (lists, beyond)
    }

    // Lists that are closed.

    /// Returns how a list was closed for good (C7).
    pub fn closed_for_good(&self, list: &Uri, step: &Step) -> Option<ClosedList> {
        let closed = self.row(list).and_then(|row| row.closed);
        closed.filter(|closed| closed.is_final(step.now()))
    }

    /// Returns how a list that was taken now is closed. Another version of one that was closed for good has to stay for as
    /// long once it was taken as a whole; its last entry counts as no earlier than before.
    fn closed(&self, taken: &TakenList, step: &Step) -> Option<ClosedList> {
        let before = self.closed_for_good(&taken.list, step);
        if taken.fingerprint.is_none() {
            return before;
        }
        let last = taken.closed_until?;
        Some(ClosedList {
            since: step.now(),
            last: before.map_or(last, |before| last.max(before.last)),
        })
    }

    // Changes.

    /// Takes what a round has taken of a list as known.
    pub fn take(&mut self, taken: &TakenList, index: &mut ListIndex, step: &mut Step) {
        let row = ChangeListRow {
            fingerprint: taken.fingerprint,
            listed: taken.listed,
            taken: taken.taken,
            closed: self.closed(taken, step),
        };
        self.put(&taken.list, row, index, step);
    }

    /// Adds a list of which nothing is known, or makes a known one such: an empty row is stored for what is to be learned.
    pub fn put_empty(&mut self, list: &Uri, index: &mut ListIndex, step: &mut Step) {
        self.put(list, ChangeListRow::default(), index, step);
    }

    /// Stores a list, which is added unless it is known.
    pub fn store(&mut self, list: &Uri, index: &mut ListIndex, step: &mut Step) {
        let row = self.row(list).copied().unwrap_or_default();
        self.put(list, row, index, step);
    }

    fn put(&mut self, list: &Uri, row: ChangeListRow, index: &mut ListIndex, step: &mut Step) {
        self.lists.entry(list.clone()).or_default().row = row;
        index.add(list, &self.set);
        let key = (self.set.clone(), list.clone());
        step.rows().change_lists.insert(key, Some(row));
    }

    pub fn remove(&mut self, list: &Uri, index: &mut ListIndex, step: &mut Step) {
        self.lists.remove(list);
        self.waiting.remove(list);
        self.ended.remove(list);
        index.remove(list, &self.set);
        let key = (self.set.clone(), list.clone());
        step.rows().change_lists.insert(key, None);
    }

    /// Notes which entries of the lists a round left, and until when others wait.
    pub fn note_rest(&mut self, lists: &[TakenList], until: Timestamp, step: &mut Step) {
        for taken in lists {
            self.note_rest_of(taken, until);
        }
        self.wake(step);
    }

    fn note_rest_of(&mut self, taken: &TakenList, waiting_until: Timestamp) {
        // While others are left, the next round goes on with the same version.
        let are_all_waiting = taken.taken + taken.waiting == taken.listed;
        if taken.waiting > 0 && are_all_waiting {
            let waiting = WaitingEntries {
                version: taken.version,
                until: Some(waiting_until),
            };
            self.waiting.insert(taken.list.clone(), waiting);
        } else if taken.fingerprint.is_some() {
            self.waiting.remove(&taken.list);
        }
        if let Some(known) = self.lists.get_mut(&taken.list) {
            known.left = taken.left.map(|left| (taken.version, left));
        }
    }

    /// Notes what a round found odd about the entries of a list: see [`LastOddEntries::note`].
    pub fn note_odd(&mut self, taken: &TakenList, back_dated: usize) -> (OddEntries, usize) {
        match self.lists.get_mut(&taken.list) {
            Some(known) => known.odd.note(taken, back_dated),
            None => LastOddEntries::default().note(taken, back_dated),
        }
    }

    // Documents that are no Change Lists any more.

    /// Notes that a document is no Change List any more: what was taken from it counts until a time.
    pub fn end(&mut self, list: &Uri, until: Timestamp, step: &mut Step) {
        self.ended.entry(list.clone()).or_insert(until);
        self.wake(step);
    }

    /// Notes that a document is a Change List, perhaps again.
    pub fn revive(&mut self, list: &Uri) {
        self.ended.remove(list);
    }

    /// Returns true if a document is no Change List any more, and what was taken from it counts.
    pub fn has_ended(&self, list: &Uri) -> bool {
        self.ended.contains_key(list)
    }

    /// Returns the lists that ended, and of which what was taken counts no more.
    pub fn ended(&self, now: Timestamp) -> Vec<Uri> {
        let ended = self.ended.iter().filter(|(_, until)| **until <= now);
        ended.map(|(list, _)| list.clone()).collect()
    }

    // The timer.

    /// Sets a timer for the first time at which entries wait no more or a list is forgotten.
    fn wake(&self, step: &mut Step) {
        let waiting = self.waiting.values().flat_map(|waiting| waiting.until);
        let next = waiting.chain(self.ended.values().copied()).min();
        if let Some(next) = next {
            step.wake_at(next, Timer::Changes(self.set.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use resourcesync::fingerprint::Fingerprint;
    use resourcesync::uri::Uri;

    use super::KnownLists;
    use crate::announce::changes::round::{LeftEntries, ListToRead, TakenList};
    use crate::announce::engine::change_sets::list_index::ListIndex;
    use crate::announce::engine::change_sets::tests::{list, moment, names, taken, timers};
    use crate::announce::engine::step::Step;

    /// Lists of which so many entries are left, the earliest at these seconds.
    fn known(left: &[(&str, i64, usize)]) -> (KnownLists, Vec<ListToRead>) {
        let mut known = KnownLists::new(Uri::parse("https://e.org/cl.xml").unwrap());
        let (mut index, mut step) = (
            ListIndex::default(),
            Step::new(Timestamp::UNIX_EPOCH.into()),
        );
        let lists: Vec<ListToRead> = left.iter().map(|(name, ..)| list(name, 1)).collect();
        for (list, (_, first, count)) in lists.iter().zip(left) {
            let left = LeftEntries {
                first: Timestamp::new(*first, 0).unwrap(),
                count: *count,
            };
            let taken = TakenList {
                left: Some(left),
                ..taken(list)
            };
            known.put_empty(&list.list, &mut index, &mut step);
            known.note_rest(&[taken], Timestamp::UNIX_EPOCH, &mut step);
        }
        (known, lists)
    }

    fn earliest(known: &KnownLists, lists: Vec<ListToRead>) -> (String, Option<i64>) {
        let (lists, beyond) = known.earliest(lists);
        (names(&lists), beyond.map(Timestamp::as_second))
    }

    #[test]
    fn a_round_reads_the_lists_with_the_earliest_entries() {
        for (left, names, beyond) in [
            (&[("a", 10, 30_000), ("b", 20, 30_000)][..], "a", Some(20)),
            (&[("a", 20, 30_000), ("b", 10, 30_000)], "b", Some(20)),
            (
                &[("a", 10, 15_000), ("b", 20, 15_000), ("c", 30, 9)],
                "a b",
                Some(30),
            ),
            (
                &[("a", 10, 30_000), ("b", 10, 30_000), ("c", 11, 1)],
                "a b",
                Some(11),
            ),
            (&[("a", 10, 30_000), ("b", 10, 30_000)], "a b", None),
            (&[("a", 10, 5), ("b", 20, 5)], "a b", None),
        ] {
            let (known, lists) = known(left);
            assert_eq!(
                earliest(&known, lists),
                (names.to_owned(), beyond),
                "{left:?}"
            );
        }
    }

    #[test]
    fn a_set_is_not_found_by_a_list_that_was_removed() {
        let set = Uri::parse("https://e.org/cl.xml").unwrap();
        let mut known = KnownLists::new(set.clone());
        let (mut index, mut step) = (
            ListIndex::default(),
            Step::new(Timestamp::UNIX_EPOCH.into()),
        );
        let (a, b) = (list("a", 1), list("b", 1));
        for list in [&a, &b] {
            known.put_empty(&list.list, &mut index, &mut step);
        }
        known.remove(&a.list, &mut index, &mut step);
        assert_eq!(index.sets(&a.list), []);
        assert_eq!(index.sets(&b.list), std::slice::from_ref(&set));
        assert_eq!(step.rows().change_lists[&(set, a.list)], None);
    }

    #[test]
    fn entries_wait_once_no_others_of_their_list_are_left() {
        let mut known = KnownLists::new(Uri::parse("https://e.org/cl.xml").unwrap());
        let mut step = Step::new(Timestamp::UNIX_EPOCH.into());
        let list = list("a", 1);
        for (taken_of_three, is_waiting) in [(1, false), (2, true)] {
            let taken = TakenList {
                fingerprint: None,
                listed: 3,
                taken: taken_of_three,
                waiting: 1,
                ..taken(&list)
            };
            known.note_rest(&[taken], Timestamp::UNIX_EPOCH, &mut step);
            assert_eq!(known.is_waiting(&list.list, list.fingerprint), is_waiting);
        }
    }

    #[test]
    fn one_timer_is_set_for_all_lists() {
        let set = Uri::parse("https://e.org/cl.xml").unwrap();
        let mut known = KnownLists::new(set);
        let mut step = Step::new(Timestamp::UNIX_EPOCH.into());
        step.begin(moment(0));
        let rests = [("a", 60), ("b", 50), ("c", 70)];
        for (name, until) in rests {
            let taken = TakenList {
                waiting: 1,
                ..taken(&list(name, 1))
            };
            known.note_rest(&[taken], moment(until).now, &mut step);
        }
        assert_eq!(timers(&mut step), [60, 50, 50], "equal ones are one");
        known.end(&list("d", 1).list, moment(40).now, &mut step);
        assert_eq!(timers(&mut step), [40]);
        known.revive(&list("d", 1).list);
        step.begin(moment(40));
        assert!(!known.end_waiting(&mut step));
        assert_eq!(timers(&mut step), [50]);
        step.begin(moment(60));
        assert!(known.end_waiting(&mut step));
        assert_eq!(timers(&mut step), [70]);
    }

    #[test]
    fn a_list_of_which_nothing_is_known_makes_a_round_read_all() {
        let (known, mut lists) = known(&[("a", 10, 30_000), ("b", 20, 30_000)]);
        lists.push(list("new", 1));
        assert_eq!(
            earliest(&known, lists.clone()),
            ("a b new".to_owned(), None)
        );
        lists.pop();
        lists[1].fingerprint = Fingerprint([2; 32]);
        assert_eq!(
            earliest(&known, lists),
            ("a b".to_owned(), None),
            "another version"
        );
    }
}

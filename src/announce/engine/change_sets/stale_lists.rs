//! Lists that were not the version that was asked for: when each is asked for again, and that it does not keep the others
//! from being read (C8).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::changes::round::{ListToRead, TakenList};
use crate::announce::observation::Stat;
use crate::announce::time::later;

/// Number of times that a list is asked for in vain before the others are read without it.
const ROUNDS: u32 = 2;
/// Number of times that a list is asked for in vain before the operator is told, after half a minute.
const ROUNDS_TO_REPORT: u32 = 5;
/// Half of the first delay before something that could not be read is read again; the delay doubles each time.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum of these delays.
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The lists of one set that were not the version that was asked for. Once they are left out of rounds, what they tell
/// comes as if it was published later.
#[derive(Debug, Default)]
pub struct StaleLists {
    lists: BTreeMap<Uri, StaleList>,
    /// True from when such lists were found until a round took the others: a list that changes all the time must not keep
    /// these from being read.
    must_take_others: bool,
}

/// A list that was not the version that was asked for.
#[derive(Debug, Clone, Copy)]
struct StaleList {
    /// Stat data of that version.
    stat: Stat,
    /// Number of times that it was asked for, or another one that was not there either.
    times: u32,
    /// Time until which the same version is not asked for again.
    until: Timestamp,
}

/// The lists that a round found stale.
#[derive(Debug)]
pub struct FoundStale {
    /// Lists that the operator is to be told of.
    pub reported: Vec<Uri>,
    /// True if the others can be read at once, because all of these are left out.
    pub are_left_out: bool,
}

impl StaleLists {
    /// Notes lists that were not the version that was asked for, with its stat data.
    pub fn note(&mut self, lists: BTreeMap<Uri, Stat>, now: Timestamp) -> FoundStale {
        self.must_take_others = true;
        let mut found = FoundStale {
            reported: Vec::new(),
            are_left_out: true,
        };
        for (list, stat) in lists {
            let times = self.lists.get(&list).map_or(0, |stale| stale.times);
            let times = times.saturating_add(1);
            let until = later(now, retry_delay(times));
            found.are_left_out &= times >= ROUNDS;
            if times == ROUNDS_TO_REPORT {
                found.reported.push(list.clone());
            }
            let stale = StaleList { stat, times, until };
            self.lists.insert(list, stale);
        }
        found
    }

    /// Removes those of the lists to read that cannot be read now, and returns them. The entries of the others wait: it may
    /// be a removed one that tells them. Forgets lists that are not to be read.
    pub fn leave_out(&mut self, lists: &mut Vec<ListToRead>, now: Timestamp) -> BTreeSet<Uri> {
        let is_to_read = |stale: &Uri| lists.iter().any(|list| list.list == *stale);
        self.lists.retain(|stale, _| is_to_read(stale));
        let left_out = self.left_out(lists, now);
        if !left_out.is_empty() {
            lists.retain(|list| !left_out.contains(&list.list));
            for list in lists {
                list.waits = true;
            }
        }
        left_out
    }

    fn left_out(&self, lists: &[ListToRead], now: Timestamp) -> BTreeSet<Uri> {
        let stale = |list: &ListToRead| {
            let stale = self.lists.get(&list.list);
            stale.filter(|stale| stale.times >= ROUNDS)
        };
        let is_read_later = |list: &&ListToRead| {
            stale(list).is_some_and(|stale| stale.stat == list.stat && stale.until > now)
        };
        let is_any_version_left_out =
            self.must_take_others && lists.iter().any(|list| stale(list).is_none());
        let left_out = lists.iter().filter(|list| match is_any_version_left_out {
            true => stale(list).is_some(),
            false => is_read_later(list),
        });
        left_out.map(|list| list.list.clone()).collect()
    }

    /// Returns the earliest time at which a list is asked for again; nothing if there is none.
    pub fn next(&self) -> Option<Timestamp> {
        self.lists.values().map(|stale| stale.until).min()
    }

    /// Notes that a round took these lists.
    pub fn taken(&mut self, lists: &[TakenList]) {
        self.must_take_others = false;
        for taken in lists {
            self.forget(&taken.list);
        }
    }

    pub fn forget(&mut self, list: &Uri) {
        self.lists.remove(list);
    }
}

/// Returns how long something is not read again that could not be read so many times.
pub fn retry_delay(times: u32) -> Duration {
    let delay = RETRY_DELAY.saturating_mul(1 << times.min(6));
    delay.min(LONGEST_RETRY_DELAY)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{StaleLists, retry_delay};
    use crate::announce::changes::round::ListToRead;
    use crate::announce::engine::change_sets::tests::{list, moment, names, taken};

    /// Notes that a list was stale, at this second. Returns whether it is reported, and whether the others can be read.
    fn note(stale: &mut StaleLists, list: &ListToRead, second: i64) -> (bool, bool) {
        let lists = BTreeMap::from([(list.list.clone(), list.stat)]);
        let found = stale.note(lists, moment(second).now);
        (!found.reported.is_empty(), found.are_left_out)
    }

    /// Returns the names of those that are read at this second.
    fn read(stale: &mut StaleLists, lists: &[&ListToRead], second: i64) -> String {
        let mut lists: Vec<ListToRead> = lists.iter().map(|list| (*list).clone()).collect();
        let left_out = stale.leave_out(&mut lists, moment(second).now);
        assert!(lists.iter().all(|list| list.waits != left_out.is_empty()));
        names(&lists)
    }

    #[test]
    fn a_list_is_left_out_once_it_was_asked_for_twice_in_vain() {
        let (a, b) = (list("a", 1), list("b", 1));
        let mut stale = StaleLists::default();
        assert_eq!(note(&mut stale, &a, 0), (false, false));
        assert_eq!(read(&mut stale, &[&a, &b], 0), "a b");
        assert_eq!(note(&mut stale, &a, 2), (false, true));
        assert_eq!(read(&mut stale, &[&a, &b], 2), "b");
    }

    #[test]
    fn no_version_of_it_is_read_until_the_others_were() {
        let (a, b) = (list("a", 1), list("b", 1));
        let mut stale = StaleLists::default();
        note(&mut stale, &a, 0);
        note(&mut stale, &a, 0);
        let another = list("a", 2);
        assert_eq!(read(&mut stale, &[&another, &b], 900), "b");
        stale.taken(&[taken(&b)]);
        assert_eq!(read(&mut stale, &[&a, &b], 3), "b", "the same version");
        assert_eq!(read(&mut stale, &[&a, &b], 4), "a b", "after a while");
        assert_eq!(read(&mut stale, &[&another, &b], 3), "a b", "another one");
    }

    #[test]
    fn alone_it_is_read_again_after_a_while_or_in_another_version() {
        let a = list("a", 1);
        let mut stale = StaleLists::default();
        note(&mut stale, &a, 0);
        note(&mut stale, &a, 0);
        assert_eq!(stale.next(), Some(moment(4).now));
        assert_eq!(read(&mut stale, &[&a], 3), "");
        assert_eq!(read(&mut stale, &[&list("a", 2)], 3), "a");
        assert_eq!(read(&mut stale, &[&a], 4), "a");
    }

    #[test]
    fn it_is_reported_once_until_it_is_taken_or_not_to_be_read() {
        let (a, b) = (list("a", 1), list("b", 1));
        let mut stale = StaleLists::default();
        let reported = |stale: &mut StaleLists| -> Vec<bool> {
            (0..7).map(|_| note(stale, &a, 0).0).collect()
        };
        let once = [false, false, false, false, true, false, false];
        assert_eq!(reported(&mut stale), once);
        stale.taken(&[taken(&a)]);
        assert_eq!(reported(&mut stale), once);
        read(&mut stale, &[&b], 0);
        assert_eq!(stale.next(), None);
        assert_eq!(reported(&mut stale), once);
    }

    #[test]
    fn it_is_asked_for_ever_less_often() {
        let delays = [1, 2, 5, 6, 7, u32::MAX].map(|times| retry_delay(times).as_secs());
        assert_eq!(delays, [2, 4, 32, 60, 60, 60]);
    }
}

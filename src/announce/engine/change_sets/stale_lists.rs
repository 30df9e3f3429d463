//! Lists that were not the version that was asked for: when each is asked for again, and that it does not keep the others
//! from being read (C8).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::announce::changes::round::ListToRead;
use crate::announce::engine::change_sets::round_schedule::retry_delay;
use crate::announce::observation::Stat;
use crate::announce::time::later;
use crate::resourcesync::uri::Uri;

/// Number of times that a list is asked for in vain before the others are read without it.
const ROUNDS: u32 = 2;
/// Number of times that a list is asked for in vain before the operator is told, after half a minute.
const ROUNDS_TO_REPORT: u32 = 5;

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
    /// That version.
    stat: Stat,
    /// Number of times that it was asked for, or another one that was not there either.
    times: u32,
    /// Time until which the same version is not asked for again, by the steady clock.
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
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Notes lists that were not the version that was asked for, with its stat data. `steady` is the moment by the steady
    /// clock.
    pub fn note(&mut self, lists: BTreeMap<Uri, Stat>, steady: Timestamp) -> FoundStale {
        self.must_take_others = true;
        let mut found = FoundStale {
            reported: Vec::new(),
            are_left_out: true,
        };
        for (list, stat) in lists {
            let times = self.lists.get(&list).map_or(0, |stale| stale.times);
            let times = times.saturating_add(1);
            let until = later(steady, retry_delay(times));
            found.are_left_out &= times >= ROUNDS;
            if times == ROUNDS_TO_REPORT {
                found.reported.push(list.clone());
            }
            let stale = StaleList { stat, times, until };
            self.lists.insert(list, stale);
        }
        found
    }

    /// Forgets all but those that are to be read.
    pub fn keep_only(&mut self, lists: &[ListToRead]) {
        let is_to_read = |stale: &Uri| lists.iter().any(|list| list.list == *stale);
        self.lists.retain(|stale, _| is_to_read(stale));
    }

    /// Returns those of some lists that are left out of the next round, because they cannot be read now.
    pub fn left_out(&self, lists: &[ListToRead], steady: Timestamp) -> BTreeSet<Uri> {
        let stale = |list: &ListToRead| {
            let stale = self.lists.get(&list.list);
            stale.filter(|stale| stale.times >= ROUNDS)
        };
        let is_read_later = |list: &&ListToRead| {
            stale(list).is_some_and(|stale| stale.stat == list.stat && stale.until > steady)
        };
        let is_any_version_left_out =
            self.must_take_others && lists.iter().any(|list| stale(list).is_none());
        let left_out = lists.iter().filter(|list| match is_any_version_left_out {
            true => stale(list).is_some(),
            false => is_read_later(list),
        });
        left_out.map(|list| list.list.clone()).collect()
    }

    /// Returns the earliest time at which a list is asked for again, by the steady clock.
    pub fn next(&self) -> Option<Timestamp> {
        self.lists.values().map(|stale| stale.until).min()
    }

    /// Notes that a round took what it read.
    pub fn taken(&mut self) {
        self.must_take_others = false;
    }

    pub fn forget(&mut self, list: &Uri) {
        self.lists.remove(list);
    }
}

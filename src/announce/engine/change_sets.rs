//! The sets with a change channel: which versions of their Change Lists were taken, and when the next round is due (C6,
//! C10, C20).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::changes::inventory::MissingResources;
use crate::announce::changes::round::{LeftEntries, ListToRead, ROUND, TakenList};
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::ids::ChannelId;
use crate::announce::observation::Stat;
use crate::announce::plan::ChangeWindowPlan;
use crate::announce::small_set::SmallSet;
use crate::announce::state::{ChangeListRow, ChangeSetRow, ClosedList};
use crate::announce::time::{earlier, elapsed, later};
use crate::resourcesync::fingerprint::Fingerprint;
use crate::resourcesync::uri::{Uri, UriMap};

/// Delay before lists are read again that were not the version that was asked for.
const STALE_WAIT: Duration = Duration::from_secs(1);
/// The longest of these delays.
const LONGEST_STALE_WAIT: Duration = Duration::from_secs(60);
/// Number of times that a list is asked for in vain before the others are read without it.
const STALE_ROUNDS: u32 = 2;
/// Number of times that a list is asked for in vain before the operator is told, after half a minute.
const STALE_ROUNDS_TO_REPORT: u32 = 5;
/// The longest that fresh changes wait because no hub has heard what was cut (C20).
const HUB_WAIT: Duration = Duration::from_secs(5 * 60);

/// Signs of a change for which a round is due at once.
const AT_ONCE: (Timestamp, Timestamp) = (Timestamp::MIN, Timestamp::MIN);

/// All sets with a change channel, live or retired.
///
/// `by_list` is derived from `sets`, and changes only with them.
#[derive(Debug, Default)]
pub struct ChangeSets {
    sets: BTreeMap<Uri, ChangeSet>,
    by_list: UriMap<SmallSet<Uri>>,
    /// Sets with a round that was due while their source was not settled.
    parked: BTreeSet<Uri>,
    /// Sets that lost a channel in this step, and may have another one at its end.
    bereft: BTreeSet<Uri>,
    last_round: u64,
}

/// A set of which changes are told.
#[derive(Debug)]
pub struct ChangeSet {
    source: usize,
    /// False until the entries were learned that were there when its channel opened (C10).
    is_learned: bool,
    lists: BTreeMap<Uri, ChangeListRow>,
    /// Lists of which what is new counts as taken: they came with a mount's baseline (R13). Their rows are empty.
    to_learn: BTreeSet<Uri>,
    /// Documents that are Change Lists no more, and until when what was taken from them counts (C7), by the steady clock.
    ended: BTreeMap<Uri, Timestamp>,
    /// The retiring channel that hears what is fresh now (C12).
    last_words_on: Option<ChannelId>,
    /// End of the last interval on a channel that it lost: another one goes on from there (C12).
    told_until: Option<Timestamp>,
    /// First sign of a change since the last round, and the last.
    signs: Option<(Timestamp, Timestamp)>,
    /// Time before which no round begins.
    not_before: Option<Timestamp>,
    /// The round that is under way.
    round: Option<u64>,
    /// The last round of which something was taken, if nothing else was done to its lists and keys since.
    last_taken: Option<u64>,
    stale: u32,
    /// Lists that were not the version that was asked for. Once they are left out of rounds, what they tell comes as if it
    /// was published later.
    stale_lists: BTreeMap<Uri, StaleList>,
    /// True from when lists were not the version that was asked for until a round took the others: a list that changes all
    /// the time must not keep these from being read.
    has_stale: bool,
    /// The time of the last cut.
    cut: Option<Timestamp>,
    /// Entries that were learned in the rounds so far.
    learned: Learned,
    /// True if the round that is under way reads only some of the lists that are to be learned.
    is_partial: bool,
    /// Lists of which entries were left for a later round.
    left: BTreeMap<Uri, (Fingerprint, LeftEntries)>,
    /// Versions of lists with entries that are not taken yet, because another list may tell them; and until when they are
    /// not, by the steady clock. Nothing once that is over.
    waiting: BTreeMap<Uri, (Fingerprint, Option<Timestamp>)>,
    /// What was odd about the entries of lists, in the version that was read last.
    odd: BTreeMap<Uri, (Fingerprint, OddEntries)>,
    /// Resources of its Resource Lists that are missing, if changes are taken from these (C29).
    missing: Option<MissingResources>,
    /// True until the next round if an operator accepts what is missing as deleted.
    is_accepted: bool,
    /// The time since which this run sees all its lists, by the steady clock: what is absent from them is absent since
    /// then at the earliest (R15).
    watched_since: Option<Timestamp>,
}

/// A list that was not the version that was asked for (C8).
#[derive(Debug, Clone, Copy)]
struct StaleList {
    /// That version.
    stat: Stat,
    /// Number of times that it was asked for, or another one that was not there either.
    times: u32,
    /// Time until which the same version is not asked for again, by the steady clock.
    until: Timestamp,
}

/// Numbers of entries of one version of a list that the operator should know of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OddEntries {
    /// Entries that do not count (C2).
    pub skipped: usize,
    /// Entries that are told without their datetime (C15).
    pub back_dated: usize,
    pub ahead: usize,
    /// Present if the list was closed for good: entries that are not told (C7).
    pub rewritten: Option<usize>,
}

impl OddEntries {
    /// Adds what a later round found in the same version.
    fn add(&mut self, later: OddEntries) {
        self.back_dated += later.back_dated;
        self.ahead += later.ahead;
        if let Some(rewritten) = later.rewritten {
            *self.rewritten.get_or_insert_default() += rewritten;
        }
    }
}

/// Entries that were learned, which may take several rounds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Learned {
    pub lists: usize,
    pub entries: usize,
    /// The latest datetime that is not ahead.
    pub latest: Option<Timestamp>,
}

/// Largest size of the lists that are learned in one round, in bytes; one list at least.
const LEARNED_SIZE: u64 = 32 << 20;

impl ChangeSet {
    fn new(source: usize) -> ChangeSet {
        ChangeSet {
            source,
            is_learned: false,
            lists: BTreeMap::new(),
            to_learn: BTreeSet::new(),
            ended: BTreeMap::new(),
            last_words_on: None,
            told_until: None,
            signs: None,
            not_before: None,
            round: None,
            last_taken: None,
            stale: 0,
            stale_lists: BTreeMap::new(),
            has_stale: false,
            cut: None,
            learned: Learned::default(),
            is_partial: false,
            left: BTreeMap::new(),
            waiting: BTreeMap::new(),
            odd: BTreeMap::new(),
            missing: None,
            is_accepted: false,
            watched_since: None,
        }
    }

    fn row(&self) -> ChangeSetRow {
        ChangeSetRow {
            is_learned: self.is_learned,
            last_words_on: self.last_words_on,
        }
    }

    pub fn source(&self) -> usize {
        self.source
    }

    pub fn is_learned(&self) -> bool {
        self.is_learned
    }

    pub fn last_words_on(&self) -> Option<ChannelId> {
        self.last_words_on
    }

    /// Returns the end of the last interval on a channel that it lost.
    pub fn told_until(&self) -> Option<Timestamp> {
        self.told_until
    }

    /// Returns the number of lists that were taken.
    pub fn lists(&self) -> usize {
        self.lists.len()
    }

    /// Returns the last round of which something was taken, if its comparison still holds.
    pub fn last_taken(&self) -> Option<u64> {
        self.last_taken
    }

    /// Returns what was learned so far.
    pub fn learned(&self) -> Learned {
        self.learned
    }

    /// Returns those of some lists that the next round reads, so that memory is bounded: while lists are learned, as many
    /// as fit; then those with the earliest entries that were left. In the second case, entries from the time on that is
    /// returned wait, because lists that are not read may have earlier ones.
    pub fn next_lists(&self, mut lists: Vec<ListToRead>) -> (Vec<ListToRead>, Option<Timestamp>) {
        if !self.is_learned {
            let mut size = 0;
            let mut number = 0;
            lists.retain(|list| {
                size += list.stat.size;
                number += 1;
                number == 1 || size <= LEARNED_SIZE
            });
            return (lists, None);
        }
        // A silent entry is compared with all that may tell it (C1, C7).
        if lists.iter().any(ListToRead::may_be_silent) {
            return (lists, None);
        }
        let left = |list: &ListToRead| {
            let (fingerprint, left) = self.left.get(&list.list)?;
            (*fingerprint == list.fingerprint && !list.is_learned).then_some(*left)
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

    /// Returns those of some lists that are left out of the next round, because they cannot be read now (C8).
    fn stale_among(&self, lists: &[ListToRead], steady: Timestamp) -> BTreeSet<Uri> {
        let stale = |list: &ListToRead| {
            let stale = self.stale_lists.get(&list.list);
            stale.filter(|stale| stale.times >= STALE_ROUNDS)
        };
        let is_read_later = |list: &&ListToRead| {
            stale(list).is_some_and(|stale| stale.stat == list.stat && stale.until > steady)
        };
        let is_any_version_left_out =
            self.has_stale && lists.iter().any(|list| stale(list).is_none());
        let left_out = lists.iter().filter(|list| match is_any_version_left_out {
            true => stale(list).is_some(),
            false => is_read_later(list),
        });
        left_out.map(|list| list.list.clone()).collect()
    }

    /// Returns the earliest time at which a list is asked for again, by the steady clock.
    fn next_stale(&self) -> Option<Timestamp> {
        self.stale_lists.values().map(|stale| stale.until).min()
    }

    /// Returns the lists from which entries were taken.
    pub fn known_lists(&self) -> impl Iterator<Item = &Uri> {
        self.lists.keys()
    }

    /// Returns true if what is new in a list counts as taken.
    pub fn learns(&self, list: &Uri) -> bool {
        !self.is_learned || self.to_learn.contains(list)
    }

    /// Returns true if the entries of this version of a list that no list tells are not taken yet.
    pub fn waits(&self, list: &Uri, fingerprint: Fingerprint) -> bool {
        self.waiting.get(list) != Some(&(fingerprint, None))
    }

    /// Returns true if this version of a list was taken but for such entries, and is not read again yet.
    pub fn is_waiting(&self, list: &Uri, fingerprint: Fingerprint) -> bool {
        let waiting = self.waiting.get(list);
        waiting.is_some_and(|(version, until)| *version == fingerprint && until.is_some())
    }

    /// Returns true if this version of a list was taken as a whole.
    pub fn has_taken(&self, list: &Uri, fingerprint: Fingerprint) -> bool {
        let row = self.lists.get(list);
        row.is_some_and(|row| row.fingerprint == Some(fingerprint))
    }

    /// Returns the resources that are missing, if changes are taken from Resource Lists.
    pub fn missing(&self) -> Option<MissingResources> {
        self.missing
    }

    /// Returns true if an operator accepts what is missing as deleted.
    pub fn is_accepted(&self) -> bool {
        self.is_accepted
    }

    /// Returns true if resources that are missing are to be looked for, although no list changed. `steady` is the moment by
    /// the steady clock.
    pub fn is_deletion_due(&self, steady: Timestamp) -> bool {
        let next = self.next_deletion();
        self.is_accepted || next.is_some_and(|next| next <= steady)
    }

    fn next_deletion(&self) -> Option<Timestamp> {
        self.missing.and_then(|missing| missing.next)
    }

    /// Returns a list as far as its entries were taken.
    pub fn list(&self, list: &Uri) -> Option<&ChangeListRow> {
        self.lists.get(list)
    }

    /// Returns the time of the last entry of a list that was closed for good (C7).
    pub fn closed_until(&self, list: &Uri, step: &Step) -> Option<Timestamp> {
        let settled = self.closed_for_good(list, step);
        settled.map(|closed| closed.last)
    }

    /// Returns how a list was closed for good. A clock that was set forward closes none: it has to be so by both clocks.
    fn closed_for_good(&self, list: &Uri, step: &Step) -> Option<ClosedList> {
        let closed = self.lists.get(list).and_then(|row| row.closed);
        let now = step.now().min(step.steady());
        closed.filter(|closed| closed.is_settled(now))
    }

    /// Returns how a list that was taken now is closed. One that was closed for good remains so.
    fn closed(&self, taken: &TakenList, step: &Step) -> Option<ClosedList> {
        let (settled, now) = (self.closed_for_good(&taken.list, step), step.now());
        if taken.fingerprint.is_none() {
            return settled;
        }
        let last = taken.closed_until?;
        Some(match settled {
            Some(ClosedList {
                since,
                last: before,
            }) => ClosedList {
                since,
                last: last.max(before),
            },
            None => ClosedList { since: now, last },
        })
    }

    /// Returns the numbers of entries that the set's lists have, and that were taken of them.
    pub fn counts(&self) -> (usize, usize) {
        let rows = self.lists.values();
        rows.fold((0, 0), |(listed, taken), row| {
            (listed + row.listed, taken + row.taken)
        })
    }

    /// Returns false if nothing but an event lets a round begin.
    pub fn may_be_due(&self) -> bool {
        let has_reason = self.signs.is_some() || self.is_accepted || self.next_deletion().is_some();
        self.round.is_none() && has_reason
    }

    /// Returns when a round is due; nothing if there is no reason for one, or one is under way.
    fn due_at(&self, plan: &ChangeWindowPlan, step: &Step) -> Option<Timestamp> {
        if self.round.is_some() {
            return None;
        }
        let Some((first, last)) = self.signs else {
            return self.is_deletion_due(step.steady()).then_some(step.now());
        };
        let due = later(last, plan.quiet).min(later(first, plan.max_wait));
        Some(self.not_before.map_or(due, |at| due.max(at)))
    }
}

impl ChangeSets {
    pub fn get(&self, set: &Uri) -> Option<&ChangeSet> {
        self.sets.get(set)
    }

    /// Returns the sets of a source.
    pub fn of_source(&self, source: usize) -> impl Iterator<Item = &Uri> {
        let sets = self.sets.iter();
        sets.filter(move |(_, of)| of.source == source)
            .map(|(set, _)| set)
    }

    /// Returns the sets that have taken entries of a list.
    pub fn of_list(&self, list: &Uri) -> Vec<Uri> {
        let sets = self.by_list.get(list).into_iter().flatten();
        sets.cloned().collect()
    }

    /// Adds a stored set.
    pub fn restore(
        &mut self,
        set: Uri,
        source: usize,
        row: ChangeSetRow,
        lists: BTreeMap<Uri, ChangeListRow>,
        step: &mut Step,
    ) {
        for list in lists.keys() {
            let sets = self.by_list.entry(list.clone()).or_default();
            sets.insert(set.clone());
        }
        let is_empty = |(_, row): &(&Uri, &ChangeListRow)| **row == ChangeListRow::default();
        let to_learn = lists.iter().filter(is_empty).map(|(list, _)| list.clone());
        // What was fresh when the channel retired was not told before the daemon stopped.
        let signs = row.last_words_on.map(|_| AT_ONCE);
        if signs.is_some() {
            step.wake_at(step.now(), Timer::Changes(set.clone()));
        }
        let restored = ChangeSet {
            is_learned: row.is_learned,
            last_words_on: row.last_words_on,
            signs,
            to_learn: to_learn.collect(),
            lists,
            ..ChangeSet::new(source)
        };
        self.sets.insert(set, restored);
    }

    /// Adds a set, unless it is known.
    pub fn open(&mut self, set: &Uri, source: usize) {
        let known = self.sets.entry(set.clone());
        known.or_insert_with(|| ChangeSet::new(source)).source = source;
    }

    /// Notes that a set lost a channel, on which it was told until a time. What is fresh is told on another one, if the set
    /// has that at the end of the step.
    pub fn lose_channel(&mut self, set: &Uri, channel: ChannelId, until: Option<Timestamp>) {
        if let Some(known) = self.sets.get_mut(set) {
            known.last_words_on = known.last_words_on.filter(|on| *on != channel);
            known.told_until = known.told_until.max(until);
            self.bereft.insert(set.clone());
        }
    }

    /// Takes the sets that lost a channel.
    pub fn take_bereft(&mut self) -> BTreeSet<Uri> {
        std::mem::take(&mut self.bereft)
    }

    /// Forgets a set with all that was taken of it.
    pub fn remove(&mut self, set: &Uri, step: &mut Step) {
        let Some(removed) = self.sets.remove(set) else {
            return;
        };
        for list in removed.lists.keys() {
            self.unlink(list, set);
            // The set may be there again before this is saved.
            let key = (set.clone(), list.clone());
            step.rows().change_lists.insert(key, None);
        }
        step.rows().forgotten_inventories.insert(set.clone());
        step.rows().change_sets.insert(set.clone(), None);
    }

    /// Forgets what was taken of a list that ended (C7).
    pub fn forget_list(&mut self, list: &Uri, step: &mut Step) {
        for set in self.of_list(list) {
            if let Some(known) = self.sets.get_mut(&set) {
                known.lists.remove(list);
                known.ended.remove(list);
                known.left.remove(list);
                known.odd.remove(list);
                known.waiting.remove(list);
                known.to_learn.remove(list);
                known.stale_lists.remove(list);
                known.last_taken = None;
                // What is being compared was compared with keys that are gone now.
                if known.round.take().is_some() {
                    known.signs = Some((step.now(), step.now()));
                    step.wake_at(step.now(), Timer::Changes(set.clone()));
                }
            }
            step.rows()
                .change_lists
                .insert((set.clone(), list.clone()), None);
            self.unlink(list, &set);
        }
    }

    /// Forgets after a grace what was taken of a document that is no Change List any more (C7).
    pub fn end_list(&mut self, list: &Uri, grace: Duration, step: &mut Step) {
        let at = later(step.steady(), grace);
        for set in self.of_list(list) {
            if let Some(known) = self.sets.get_mut(&set) {
                known.ended.entry(list.clone()).or_insert(at);
                step.wake_at_steady(at, Timer::Changes(set));
            }
        }
    }

    /// Notes that a document is a Change List, perhaps again.
    pub fn revive_list(&mut self, list: &Uri) {
        for set in self.of_list(list) {
            if let Some(known) = self.sets.get_mut(&set) {
                known.ended.remove(list);
            }
        }
    }

    /// Forgets what was taken of the lists of a set that ended a grace ago.
    pub fn forget_ended(&mut self, set: &Uri, step: &mut Step) {
        let Some(known) = self.sets.get(set) else {
            return;
        };
        let now = step.steady();
        let ended = known.ended.iter().filter(|(_, at)| **at <= now);
        let ended: Vec<Uri> = ended.map(|(list, _)| list.clone()).collect();
        // The wall clock was set forward.
        if let Some(next) = known.ended.values().filter(|at| **at > now).min() {
            step.wake_at_steady(*next, Timer::Changes(set.clone()));
        }
        for list in ended {
            self.forget_list(&list, step);
        }
    }

    /// Lets entries be taken that no list told for a grace.
    pub fn end_waiting(&mut self, set: &Uri, step: &mut Step) {
        let (now, steady) = (step.now(), step.steady());
        let Some(known) = self.sets.get_mut(set) else {
            return;
        };
        for (_, until) in known.waiting.values_mut() {
            match *until {
                Some(at) if at <= steady => {
                    *until = None;
                    known.signs.get_or_insert((now, now));
                }
                // The wall clock was set forward.
                Some(at) => step.wake_at_steady(at, Timer::Changes(set.clone())),
                None => {}
            }
        }
    }

    /// Lets the next round of a set wait until its source is settled.
    pub fn park(&mut self, set: &Uri) {
        self.parked.insert(set.clone());
    }

    /// Lets the rounds of a source begin that waited for it to be settled.
    pub fn unpark(&mut self, source: usize, step: &mut Step) {
        let sets = &self.sets;
        let is_of_source = |set: &Uri| sets.get(set).is_none_or(|known| known.source == source);
        for set in self.parked.extract_if(.., is_of_source) {
            step.wake_at(step.now(), Timer::Changes(set));
        }
    }

    fn unlink(&mut self, list: &Uri, set: &Uri) {
        if let Some(sets) = self.by_list.get_mut(list) {
            sets.remove(set);
            if sets.is_empty() {
                self.by_list.remove(list);
            }
        }
    }

    /// Takes what a list has now as known, because it came with a mount's baseline.
    pub fn learn(&mut self, set: &Uri, list: &Uri, step: &mut Step) {
        let Some(known) = self.sets.get_mut(set) else {
            return;
        };
        known.to_learn.insert(list.clone());
        known.last_taken = None;
        if known.is_learned {
            let row = ChangeListRow::default();
            known.lists.insert(list.clone(), row);
            let sets = self.by_list.entry(list.clone()).or_default();
            sets.insert(set.clone());
            let key = (set.clone(), list.clone());
            step.rows().change_lists.insert(key, Some(row));
        }
    }

    /// Notes that a list of a set changed.
    pub fn sign(&mut self, set: &Uri, plan: &ChangeWindowPlan, step: &mut Step) {
        let now = step.now();
        let Some(known) = self.sets.get_mut(set) else {
            return;
        };
        let first = known.signs.map_or(now, |(first, _)| first);
        known.signs = Some((first, now));
        // A version that is seen now need not wait like a round that is repeated without one.
        known.not_before = None;
        if let Some(due) = known.due_at(plan, step) {
            step.wake_at(due, Timer::Changes(set.clone()));
        }
    }

    /// Takes what is missing of a source's resources as deleted, as an operator wants it (C29).
    pub fn accept(&mut self, source: usize, step: &mut Step) {
        for (set, known) in &mut self.sets {
            let missing = known.missing.is_some_and(|missing| missing.missing > 0);
            if known.source == source && missing {
                known.is_accepted = true;
                step.wake_at(step.now(), Timer::Changes(set.clone()));
            }
        }
    }

    /// Notes which resources are missing, and looks again once the first of them counts as deleted.
    pub fn note_missing(&mut self, set: &Uri, missing: MissingResources, step: &mut Step) {
        let Some(known) = self.sets.get_mut(set) else {
            return;
        };
        known.missing = Some(missing);
        known.is_accepted = false;
        if let Some(next) = missing.next {
            step.wake_at_steady(next, Timer::Changes(set.clone()));
        }
    }

    /// Looks at the next occasion for resources that were missing when the state was saved.
    pub fn look_for_missing(&mut self, set: &Uri, step: &Step) {
        let next = Some(step.steady());
        if let Some(known) = self.sets.get_mut(set) {
            known.missing = Some(MissingResources {
                next,
                ..MissingResources::default()
            });
        }
    }

    /// Forgets the resources of a set that has Change Lists now.
    pub fn forget_inventory(&mut self, set: &Uri, step: &mut Step) {
        if let Some(known) = self.sets.get_mut(set)
            && known.missing.take().is_some()
        {
            step.rows().forgotten_inventories.insert(set.clone());
        }
    }

    /// Begins to learn a set at once that opened with its source: what its lists have was there before, and what comes now
    /// is told (C10).
    pub fn learn_at_once(&mut self, set: &Uri, step: &mut Step) {
        if let Some(known) = self.sets.get_mut(set).filter(|known| !known.is_learned) {
            known.signs = Some(AT_ONCE);
            step.wake_at(step.now(), Timer::Changes(set.clone()));
        }
    }

    /// Lets a retiring channel hear what is fresh at once, if anything may be.
    pub fn give_last_words(&mut self, set: &Uri, channel: ChannelId, step: &mut Step) {
        let Some(known) = self.sets.get_mut(set) else {
            return;
        };
        if known.is_learned && (known.signs.is_some() || known.round.is_some()) {
            known.last_words_on = Some(channel);
            let row = known.row();
            step.rows().change_sets.insert(set.clone(), Some(row));
            if known.signs.is_some() {
                known.signs = Some(AT_ONCE);
                known.not_before = None;
                step.wake_at(step.now(), Timer::Changes(set.clone()));
            }
        }
    }

    /// Returns true if a round of a set is due. While no hub of its channel `is_free`, it waits.
    pub fn is_ready(
        &mut self,
        set: &Uri,
        is_free: bool,
        plan: &ChangeWindowPlan,
        step: &mut Step,
    ) -> bool {
        let now = step.now();
        let Some(known) = self.sets.get(set) else {
            return false;
        };
        let Some(due) = known.due_at(plan, step) else {
            if let Some(next) = known.next_deletion().filter(|_| known.round.is_none()) {
                step.wake_at_steady(next, Timer::Changes(set.clone()));
            }
            return false;
        };
        let waits_until = match (is_free, known.cut) {
            (false, Some(cut)) => due.max(later(cut, HUB_WAIT)),
            _ => due,
        };
        if waits_until > now {
            step.wake_at(waits_until, Timer::Changes(set.clone()));
        }
        waits_until <= now
    }

    /// Begins a round, of only some of the lists if it `is_partial`. Returns its number, and since when this run watches the
    /// lists; times are by the steady clock.
    pub fn begin(
        &mut self,
        set: &Uri,
        is_partial: bool,
        steady: Timestamp,
    ) -> Option<(u64, Timestamp)> {
        let known = self.sets.get_mut(set)?;
        known.is_partial = is_partial && !known.is_learned;
        self.last_round += 1;
        known.round = Some(self.last_round);
        known.signs = None;
        known.not_before = None;
        let since = *known.watched_since.get_or_insert(steady);
        Some((self.last_round, since))
    }

    /// Notes that the lists of a source are seen from now on, if they were not.
    pub fn watch(&mut self, source: usize, step: &Step) {
        let sets = self.sets.values_mut();
        for known in sets.filter(|known| known.source == source) {
            known.watched_since.get_or_insert(step.steady());
        }
    }

    /// Notes that a list of a set is not seen now, so that nobody knows what is absent.
    pub fn overlook(&mut self, set: &Uri) {
        if let Some(known) = self.sets.get_mut(set) {
            known.watched_since = None;
        }
    }

    /// Notes that lists of a source may not be seen now: a mount is away.
    pub fn lose_sight(&mut self, source: usize) {
        let sets = self.sets.values_mut();
        for known in sets.filter(|known| known.source == source) {
            known.watched_since = None;
        }
    }

    /// Ends a round without reading anything: there is nothing to read.
    pub fn skip(&mut self, set: &Uri, step: &mut Step) {
        if let Some(known) = self.sets.get_mut(set) {
            known.signs = None;
            if known.last_words_on.take().is_some() {
                step.rows()
                    .change_sets
                    .insert(set.clone(), Some(known.row()));
            }
        }
    }

    /// Ends a round. Returns false if another one took its place.
    pub fn end(&mut self, set: &Uri, round: u64) -> bool {
        let Some(known) = self.sets.get_mut(set) else {
            return false;
        };
        known.last_taken = None;
        known
            .round
            .take_if(|under_way| *under_way == round)
            .is_some()
    }

    /// Notes that nothing was taken in a round. It is repeated for the version that was seen meanwhile, or else after a
    /// while.
    pub fn repeat(&mut self, set: &Uri, plan: &ChangeWindowPlan, step: &mut Step) {
        let known = self.sets.get(set).filter(|known| known.signs.is_some());
        match known.and_then(|known| known.due_at(plan, step)) {
            Some(due) => step.wake_at(due, Timer::Changes(set.clone())),
            None => self.wait(set, step),
        }
    }

    /// Notes the lists that were not the version that was asked for, with its stat data. Returns those that the operator
    /// is to be told of.
    pub fn note_stale(
        &mut self,
        set: &Uri,
        lists: BTreeMap<Uri, Stat>,
        plan: &ChangeWindowPlan,
        step: &mut Step,
    ) -> Vec<Uri> {
        let (now, steady) = (step.now(), step.steady());
        let Some(known) = self.sets.get_mut(set) else {
            return Vec::new();
        };
        known.has_stale = true;
        let mut reported = Vec::new();
        let mut is_left_out = true;
        for (list, stat) in lists {
            let times = known.stale_lists.get(&list).map_or(0, |stale| stale.times);
            let times = times.saturating_add(1);
            let until = later(steady, stale_wait(times));
            is_left_out &= times >= STALE_ROUNDS;
            if times == STALE_ROUNDS_TO_REPORT {
                reported.push(list.clone());
            }
            let stale = StaleList { stat, times, until };
            known.stale_lists.insert(list, stale);
        }
        // The others are read at once.
        if is_left_out {
            known.signs.get_or_insert((now, now));
        }
        self.repeat(set, plan, step);
        reported
    }

    /// Puts a round off that would read nothing but lists which are asked for again later.
    fn wait_for_stale(&mut self, set: &Uri, step: &mut Step) {
        let (now, steady) = (step.now(), step.steady());
        let Some(known) = self.sets.get_mut(set) else {
            return;
        };
        let wait = known.next_stale().map(|next| elapsed(steady, next));
        let at = later(now, wait.unwrap_or(LONGEST_STALE_WAIT));
        known.signs = Some((now, now));
        known.not_before = Some(at);
        step.wake_at(at, Timer::Changes(set.clone()));
    }

    /// Removes those of the lists to read that cannot be read now, unless that leaves none: then returns false, and the round
    /// is put off. While a set is learned, these are learned later.
    pub fn leave_stale_out(
        &mut self,
        set: &Uri,
        lists: &mut Vec<ListToRead>,
        step: &mut Step,
    ) -> bool {
        let Some(known) = self.sets.get_mut(set) else {
            return false;
        };
        let is_to_read = |stale: &Uri| lists.iter().any(|list| list.list == *stale);
        known.stale_lists.retain(|stale, _| is_to_read(stale));
        let left_out = known.stale_among(lists, step.steady());
        lists.retain(|list| !left_out.contains(&list.list));
        if lists.is_empty() && !left_out.is_empty() {
            self.wait_for_stale(set, step);
            return false;
        }
        for list in lists {
            // It may be one of these that tells them.
            list.waits |= !left_out.is_empty();
        }
        if !known.is_learned {
            known.to_learn.extend(left_out);
        }
        true
    }

    /// Puts a round off: the next one begins after a while, or once another version is seen.
    pub fn wait(&mut self, set: &Uri, step: &mut Step) {
        let now = step.now();
        let Some(known) = self.sets.get_mut(set) else {
            return;
        };
        known.stale = known.stale.saturating_add(1);
        let at = later(now, stale_wait(known.stale));
        known.signs = Some((now, now));
        known.not_before = Some(at);
        step.wake_at(at, Timer::Changes(set.clone()));
    }

    /// Notes what was taken in a round, and saves it. If there is more, another round is due.
    pub fn taken(
        &mut self,
        (set, round): (&Uri, u64),
        lists: &[TakenList],
        has_more: bool,
        is_inventory: bool,
        grace: Duration,
        step: &mut Step,
    ) {
        let now = step.now();
        let Some(known) = self.sets.get_mut(set) else {
            return;
        };
        known.last_taken = Some(round);
        let was_learned = known.is_learned;
        // What is large is learned in several rounds.
        let is_partial = (is_inventory && has_more) || known.is_partial;
        known.is_learned |= !is_partial;
        if !was_learned {
            let row = known.row();
            step.rows().change_sets.insert(set.clone(), Some(row));
            for taken in lists {
                known.learned.lists += 1;
                known.learned.entries += taken.taken;
                known.learned.latest = known.learned.latest.max(taken.latest);
            }
        }
        let has_more = has_more || (is_partial && !was_learned);
        known.stale = 0;
        known.has_stale = false;
        if is_inventory {
            let is_gone = |list: &Uri| !lists.iter().any(|taken| taken.list == *list);
            let gone: Vec<Uri> = known
                .lists
                .keys()
                .filter(|list| is_gone(list))
                .cloned()
                .collect();
            for list in gone {
                known.lists.remove(&list);
                step.rows().change_lists.insert((set.clone(), list), None);
            }
        }
        for taken in lists {
            let was_learning = !was_learned || known.to_learn.contains(&taken.list);
            let row = if is_inventory && has_more && was_learning {
                known.to_learn.insert(taken.list.clone());
                ChangeListRow::default()
            } else {
                known.to_learn.remove(&taken.list);
                ChangeListRow {
                    fingerprint: taken.fingerprint,
                    listed: taken.listed,
                    taken: taken.taken,
                    closed: known.closed(taken, step),
                }
            };
            known.stale_lists.remove(&taken.list);
            if taken.waiting > 0 {
                let until = later(step.steady(), grace);
                let waiting = (taken.version, Some(until));
                known.waiting.insert(taken.list.clone(), waiting);
                step.wake_at_steady(until, Timer::Changes(set.clone()));
            } else if taken.fingerprint.is_some() {
                known.waiting.remove(&taken.list);
            }
            match taken.left {
                Some(left) => known.left.insert(taken.list.clone(), (taken.version, left)),
                None => known.left.remove(&taken.list),
            };
            known.lists.insert(taken.list.clone(), row);
            let sets = self.by_list.entry(taken.list.clone()).or_default();
            sets.insert(set.clone());
            let key = (set.clone(), taken.list.clone());
            step.rows().change_lists.insert(key, Some(row));
        }
        if !was_learned && known.is_learned {
            for list in &known.to_learn {
                let row = *known.lists.entry(list.clone()).or_default();
                let sets = self.by_list.entry(list.clone()).or_default();
                sets.insert(set.clone());
                let key = (set.clone(), list.clone());
                step.rows().change_lists.insert(key, Some(row));
            }
        }
        let is_urgent = known
            .signs
            .is_some_and(|(first, _)| first == Timestamp::MIN);
        if has_more {
            known.signs = Some(AT_ONCE);
        } else if !is_urgent && known.last_words_on.take().is_some() {
            let row = known.row();
            step.rows().change_sets.insert(set.clone(), Some(row));
        }
        if known.signs.is_some() {
            step.wake_at(now, Timer::Changes(set.clone()));
        } else if !known.stale_lists.is_empty() {
            self.wait_for_stale(set, step);
        }
    }

    /// Notes what a round found odd about the entries of a list. Returns all that was found in this version, and how many
    /// more entries do not count than in the one before: most of them stand there in every version.
    pub fn note_odd(
        &mut self,
        set: &Uri,
        list: &TakenList,
        back_dated: usize,
    ) -> (OddEntries, usize) {
        let found = OddEntries {
            skipped: list.skipped,
            back_dated,
            ahead: list.undated.ahead,
            rewritten: list.rewritten,
        };
        let Some(known) = self.sets.get_mut(set) else {
            return (found, 0);
        };
        let before = known.odd.remove(&list.list);
        let more = before.map_or(0, |(_, before)| before.skipped);
        let more = found.skipped.saturating_sub(more);
        let of_version = before.filter(|(version, _)| *version == list.version);
        let mut odd = found;
        if let Some((_, before)) = of_version {
            odd.add(before);
        }
        if odd != OddEntries::default() {
            known.odd.insert(list.list.clone(), (list.version, odd));
        }
        (odd, more)
    }

    /// Notes that notifications were cut.
    pub fn note_cut(&mut self, set: &Uri, now: Timestamp) {
        if let Some(known) = self.sets.get_mut(set) {
            known.cut = Some(now);
        }
    }

    /// Continues the numbers of rounds of another engine, whose answers do not count any more, and what it watched.
    pub fn inherit(&mut self, before: &ChangeSets) {
        self.last_round = self.last_round.max(before.last_round);
        for (set, known) in &mut self.sets {
            known.watched_since = before.sets.get(set).and_then(|set| set.watched_since);
        }
    }

    /// Moves all times as the clock was set back.
    pub fn set_back(&mut self, by: Duration) {
        for set in self.sets.values_mut() {
            if let Some((first, last)) = &mut set.signs {
                (*first, *last) = (earlier(*first, by), earlier(*last, by));
            }
            for at in [&mut set.not_before, &mut set.cut].into_iter().flatten() {
                *at = earlier(*at, by);
            }
        }
    }
}

/// Returns how long lists are not read again that were not the version that was asked for so many times.
fn stale_wait(times: u32) -> Duration {
    let wait = STALE_WAIT.saturating_mul(1 << times.min(6));
    wait.min(LONGEST_STALE_WAIT)
}

#[cfg(test)]
mod tests {
    use std::slice;
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{ChangeSet, ChangeSets, OddEntries};
    use crate::announce::changes::round::{LeftEntries, ListToRead, TakenList, UndatedChanges};
    use crate::announce::engine::step::Step;
    use crate::announce::observation::{DocumentPath, MountId, Stat};
    use crate::resourcesync::fingerprint::Fingerprint;
    use crate::resourcesync::uri::Uri;

    fn list(name: &str, size: u64) -> ListToRead {
        ListToRead {
            list: Uri::parse(&format!("https://e.org/{name}.xml")).unwrap(),
            path: DocumentPath {
                mount: MountId(1),
                below: Arc::from(name.as_bytes()),
            },
            stat: Stat {
                size,
                modified: Timestamp::UNIX_EPOCH,
                changed: Timestamp::UNIX_EPOCH,
                inode: 1,
            },
            fingerprint: Fingerprint([1; 32]),
            is_learned: false,
            is_archived: false,
            closed_until: None,
            waits: false,
        }
    }

    /// A list of which one entry was taken, and one is left.
    fn taken(list: &ListToRead) -> TakenList {
        TakenList {
            list: list.list.clone(),
            version: list.fingerprint,
            fingerprint: None,
            left: None,
            listed: 2,
            taken: 1,
            waiting: 0,
            untold: 0,
            told: 1,
            latest: None,
            skipped: 0,
            first_skipped: None,
            undated: UndatedChanges::default(),
            rewritten: None,
            closed_until: None,
        }
    }

    /// A set with lists of which so many entries are left, the earliest at these seconds.
    fn set(left: &[(&str, i64, usize)]) -> (ChangeSet, Vec<ListToRead>) {
        let mut set = ChangeSet::new(0);
        set.is_learned = true;
        let lists: Vec<ListToRead> = left.iter().map(|(name, ..)| list(name, 1)).collect();
        for (list, (_, first, count)) in lists.iter().zip(left) {
            let left = LeftEntries {
                first: Timestamp::new(*first, 0).unwrap(),
                count: *count,
            };
            set.left.insert(list.list.clone(), (list.fingerprint, left));
        }
        (set, lists)
    }

    fn read(set: &ChangeSet, lists: Vec<ListToRead>) -> (String, Option<i64>) {
        let (lists, beyond) = set.next_lists(lists);
        let names = lists
            .iter()
            .map(|list| String::from_utf8_lossy(&list.path.below).into_owned());
        let names: Vec<String> = names.collect();
        (names.join(" "), beyond.map(Timestamp::as_second))
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
            let (set, lists) = set(left);
            assert_eq!(read(&set, lists), (names.to_owned(), beyond), "{left:?}");
        }
    }

    #[test]
    fn a_list_of_which_nothing_is_known_makes_a_round_read_all() {
        let (set, mut lists) = set(&[("a", 10, 30_000), ("b", 20, 30_000)]);
        lists.push(list("new", 1));
        assert_eq!(read(&set, lists.clone()), ("a b new".to_owned(), None));
        lists.pop();
        lists[1].fingerprint = Fingerprint([2; 32]);
        assert_eq!(
            read(&set, lists),
            ("a b".to_owned(), None),
            "another version"
        );
    }

    #[test]
    fn a_comparison_holds_until_something_else_happens_to_the_set() {
        let (known, lists) = set(&[("a", 10, 1)]);
        let uri = Uri::parse("https://e.org/cl.xml").unwrap();
        let mut sets = ChangeSets::default();
        sets.sets.insert(uri.clone(), known);
        let taken = taken(&lists[0]);
        let mut step = Step::new(Timestamp::UNIX_EPOCH);
        let take = |sets: &mut ChangeSets, step: &mut Step| {
            let (round, _) = sets.begin(&uri, false, step.steady()).unwrap();
            assert!(sets.end(&uri, round));
            assert_eq!(
                sets.get(&uri).unwrap().last_taken(),
                None,
                "nothing was taken yet"
            );
            let lists = slice::from_ref(&taken);
            sets.taken((&uri, round), lists, true, false, Duration::ZERO, step);
            assert_eq!(sets.get(&uri).unwrap().last_taken(), Some(round));
        };
        take(&mut sets, &mut step);
        sets.learn(&uri, &lists[0].list, &mut step);
        assert_eq!(sets.get(&uri).unwrap().last_taken(), None);
        take(&mut sets, &mut step);
        sets.forget_list(&lists[0].list, &mut step);
        assert_eq!(sets.get(&uri).unwrap().last_taken(), None);
    }

    #[test]
    fn entries_that_cannot_be_told_count_once() {
        let (set, lists) = set(&[("a", 10, 1)]);
        let uri = Uri::parse("https://e.org/cl.xml").unwrap();
        let mut sets = ChangeSets::default();
        sets.sets.insert(uri.clone(), set);
        let counted = [3, 3, 5, 0, 2].map(|skipped| {
            let taken = TakenList {
                skipped,
                ..taken(&lists[0])
            };
            sets.note_odd(&uri, &taken, 0).1
        });
        assert_eq!(counted, [3, 0, 2, 0, 2]);
    }

    #[test]
    fn what_rounds_find_in_one_version_adds_up() {
        let (set, lists) = set(&[("a", 10, 1)]);
        let uri = Uri::parse("https://e.org/cl.xml").unwrap();
        let mut sets = ChangeSets::default();
        sets.sets.insert(uri.clone(), set);
        let mut list = TakenList {
            skipped: 1,
            rewritten: Some(2),
            ..taken(&lists[0])
        };
        list.undated.ahead = 3;
        sets.note_odd(&uri, &list, 4);
        list.rewritten = None;
        let (odd, _) = sets.note_odd(&uri, &list, 5);
        let expected = OddEntries {
            skipped: 1,
            back_dated: 9,
            ahead: 6,
            rewritten: Some(2),
        };
        assert_eq!(odd, expected);
        list.version = Fingerprint([2; 32]);
        let (odd, _) = sets.note_odd(&uri, &list, 0);
        assert_eq!((odd.back_dated, odd.ahead, odd.rewritten), (0, 3, None));
    }

    #[test]
    fn what_is_learned_is_read_in_portions() {
        let set = ChangeSet::new(0);
        let lists = vec![
            list("a", 20 << 20),
            list("b", 10 << 20),
            list("c", 10 << 20),
        ];
        assert_eq!(read(&set, lists), ("a b".to_owned(), None));
        let large = vec![list("a", 200 << 20), list("b", 1)];
        assert_eq!(read(&set, large), ("a".to_owned(), None));
    }
}

//! A set with a change channel: its rounds, and the rows of the state file that say what was taken in them (C6, C10, C12,
//! C20).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::changes::round::{ListToRead, Taken};
use crate::announce::engine::change_sets::known_lists::KnownLists;
use crate::announce::engine::change_sets::learning::{Learned, Learning, learned_at_once};
use crate::announce::engine::change_sets::list_index::ListIndex;
use crate::announce::engine::change_sets::pending_deletions::PendingDeletions;
use crate::announce::engine::change_sets::round_schedule::{LONGEST_RETRY_DELAY, RoundSchedule};
use crate::announce::engine::change_sets::stale_lists::StaleLists;
use crate::announce::engine::channels::Channels;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::ids::ChannelId;
use crate::announce::observation::Stat;
use crate::announce::plan::ChangeWindowPlan;
use crate::announce::state::{ChangeListRow, ChangeSetRow};
use crate::announce::time::{elapsed, later};
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::uri::Uri;

/// A set of which changes are told.
#[derive(Debug)]
pub struct ChangeSet {
    /// Its Capability List.
    uri: Uri,
    /// The position of its source in the plan.
    source: usize,
    lists: KnownLists,
    learning: Learning,
    schedule: RoundSchedule,
    stale: StaleLists,
    deletions: PendingDeletions,
    /// The time since which this run sees all its lists, by the steady clock: what is absent from them is absent since
    /// then at the earliest (R15).
    watched_since: Option<Timestamp>,
    /// The retiring channel that hears what is fresh now (C12).
    last_words_on: Option<ChannelId>,
    /// End of the last interval on a channel that it lost: another one goes on from there (C12).
    told_until: Option<Timestamp>,
}

impl ChangeSet {
    pub fn new(uri: Uri, source: usize) -> ChangeSet {
        ChangeSet {
            lists: KnownLists::new(uri.clone()),
            deletions: PendingDeletions::new(uri.clone()),
            uri,
            source,
            learning: Learning::default(),
            schedule: RoundSchedule::default(),
            stale: StaleLists::default(),
            watched_since: None,
            last_words_on: None,
            told_until: None,
        }
    }

    /// Takes up what is stored.
    pub fn restore(
        uri: Uri,
        source: usize,
        row: ChangeSetRow,
        lists: BTreeMap<Uri, ChangeListRow>,
        index: &mut ListIndex,
        step: &mut Step,
    ) -> ChangeSet {
        let is_empty = |(_, row): &(&Uri, &ChangeListRow)| **row == ChangeListRow::default();
        let to_learn = lists.iter().filter(is_empty).map(|(list, _)| list.clone());
        let mut set = ChangeSet {
            learning: Learning::restore(row.is_learned, to_learn.collect()),
            lists: KnownLists::restore(uri.clone(), lists, index),
            last_words_on: row.last_words_on,
            ..ChangeSet::new(uri, source)
        };
        // What was fresh when the channel retired was not told before the daemon stopped.
        if row.last_words_on.is_some() {
            set.hurry(step);
        }
        set
    }

    fn save(&self, step: &mut Step) {
        let row = ChangeSetRow {
            is_learned: self.learning.is_complete(),
            last_words_on: self.last_words_on,
        };
        step.rows().change_sets.insert(self.uri.clone(), Some(row));
    }

    fn wake_at(&self, at: Timestamp, step: &mut Step) {
        step.wake_at(at, Timer::Changes(self.uri.clone()));
    }

    /// Returns the URI of its Capability List.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    pub fn source(&self) -> usize {
        self.source
    }

    pub fn move_to(&mut self, source: usize) {
        self.source = source;
    }

    /// Returns the lists from which entries were taken.
    pub fn lists(&self) -> &KnownLists {
        &self.lists
    }

    pub fn lists_mut(&mut self) -> &mut KnownLists {
        &mut self.lists
    }

    /// Returns true once everything was learned that was there when its channel opened (C10).
    pub fn is_learned(&self) -> bool {
        self.learning.is_complete()
    }

    /// Returns true if what is new in a list counts as taken.
    pub fn learns(&self, list: &Uri) -> bool {
        self.learning.learns(list)
    }

    /// Returns what is missing from its Resource Lists, if these are compared (C27).
    pub fn deletions(&self) -> &PendingDeletions {
        &self.deletions
    }

    pub fn deletions_mut(&mut self) -> &mut PendingDeletions {
        &mut self.deletions
    }

    // Its channels.

    /// Returns the channel that hears the next changes, and whether they are its last words (C12). A retiring channel that
    /// another set has taken over hears no more of this one.
    pub fn hearing_channel(&self, channels: &Channels) -> Option<(ChannelId, bool)> {
        let is_of_set = |id: &ChannelId| {
            let channel = channels.get(*id);
            channel.is_some_and(|channel| channel.row.set == self.uri)
        };
        match self.last_words_on.filter(is_of_set) {
            Some(id) => Some((id, true)),
            None => Some((channels.live(&self.uri, ChannelKind::Change)?, false)),
        }
    }

    /// Lets a retiring channel hear what is fresh at once, if anything may be.
    pub fn give_last_words(&mut self, channel: ChannelId, step: &mut Step) {
        let has_signs = self.schedule.has_signs();
        if self.is_learned() && (has_signs || self.schedule.is_under_way()) {
            self.last_words_on = Some(channel);
            self.save(step);
            if has_signs {
                self.hurry(step);
            }
        }
    }

    fn end_last_words(&mut self, step: &mut Step) {
        if self.last_words_on.take().is_some() {
            self.save(step);
        }
    }

    /// Notes that it lost a channel, on which it was told until a time.
    pub fn lose_channel(&mut self, channel: ChannelId, until: Option<Timestamp>, step: &mut Step) {
        if self.last_words_on == Some(channel) {
            self.end_last_words(step);
        }
        self.told_until = self.told_until.max(until);
    }

    /// Returns the end of the last interval on a channel that it lost.
    pub fn told_until(&self) -> Option<Timestamp> {
        self.told_until
    }

    // When a round is due.

    /// Notes that a list changed.
    pub fn sign(&mut self, window: &ChangeWindowPlan, step: &mut Step) {
        self.schedule.sign(step.now());
        if let Some(due) = self.due_at(window, step) {
            self.wake_at(due, step);
        }
    }

    fn hurry(&mut self, step: &mut Step) {
        self.schedule.hurry();
        self.wake_at(step.now(), step);
    }

    /// Begins to learn a set at once that opened with its source: what its lists have was there before, and what comes now
    /// is told (C10).
    pub fn learn_at_once(&mut self, step: &mut Step) {
        if !self.is_learned() {
            self.hurry(step);
        }
    }

    /// Lets entries be taken that no list told for a grace.
    pub fn end_waiting(&mut self, step: &mut Step) {
        if self.lists.end_waiting(step.steady()) {
            self.schedule.sign_if_none(step.now());
        }
        self.lists.wake(step);
    }

    /// Returns false if nothing but an event lets a round begin.
    pub fn may_be_due(&self) -> bool {
        let has_reason = self.schedule.has_signs() || self.deletions.is_any();
        has_reason && !self.schedule.is_under_way()
    }

    /// Returns when a round is due; nothing if there is no reason for one, or one is under way.
    fn due_at(&self, window: &ChangeWindowPlan, step: &Step) -> Option<Timestamp> {
        if self.schedule.is_under_way() {
            return None;
        }
        let is_deletion_due = self.deletions.is_due(step.steady());
        let due = self.schedule.due_at(window);
        due.or(is_deletion_due.then_some(step.now()))
    }

    /// Returns true if a round is due. While no hub of its channel `is_free`, it waits.
    pub fn is_ready(&self, is_free: bool, window: &ChangeWindowPlan, step: &mut Step) -> bool {
        let Some(due) = self.due_at(window, step) else {
            if !self.schedule.is_under_way() {
                self.deletions.wake(step);
            }
            return false;
        };
        let due = match is_free {
            true => due,
            false => self.schedule.after_hubs(due),
        };
        if due > step.now() {
            self.wake_at(due, step);
        }
        due <= step.now()
    }

    // A round.

    /// Returns those of some lists that the next round reads, so that memory is bounded: while lists are learned, as many
    /// as fit; then those of [`KnownLists::earliest`].
    pub fn next_lists(&self, lists: Vec<ListToRead>) -> (Vec<ListToRead>, Option<Timestamp>) {
        match self.is_learned() {
            true => self.lists.earliest(lists),
            false => (learned_at_once(lists), None),
        }
    }

    /// Begins a round with this number, of only some of the lists if it `is_partial`. Returns since when this run watches
    /// the lists; times are by the steady clock.
    pub fn begin(&mut self, round: u64, is_partial: bool, steady: Timestamp) -> Timestamp {
        self.learning.begin(is_partial);
        self.schedule.begin(round);
        self.watch(steady)
    }

    /// Returns the last round of which something was taken, if its comparison still holds.
    pub fn last_taken(&self) -> Option<u64> {
        self.schedule.last_taken()
    }

    /// Ends a round without reading anything: there is nothing to read.
    pub fn skip(&mut self, step: &mut Step) {
        self.schedule.skip();
        self.end_last_words(step);
    }

    /// Ends a round. Returns false if another one took its place.
    pub fn end(&mut self, round: u64) -> bool {
        self.schedule.end(round)
    }

    /// Puts a round off: the next one begins after a while, or once another version is seen.
    pub fn delay(&mut self, step: &mut Step) {
        let at = self.schedule.delay(step.now());
        self.wake_at(at, step);
    }

    /// Notes that nothing was taken in a round. It is repeated for the version that was seen meanwhile, or else after a
    /// while.
    pub fn repeat(&mut self, window: &ChangeWindowPlan, step: &mut Step) {
        let due = self.due_at(window, step);
        match due.filter(|_| self.schedule.has_signs()) {
            Some(due) => self.wake_at(due, step),
            None => self.delay(step),
        }
    }

    /// Notes the lists that were not the version that was asked for, with its stat data. Returns those that the operator
    /// is to be told of.
    pub fn note_stale(
        &mut self,
        lists: BTreeMap<Uri, Stat>,
        window: &ChangeWindowPlan,
        step: &mut Step,
    ) -> Vec<Uri> {
        let found = self.stale.note(lists, step.steady());
        // The others are read at once.
        if found.are_left_out {
            self.schedule.sign_if_none(step.now());
        }
        self.repeat(window, step);
        found.reported
    }

    /// Removes those of the lists to read that cannot be read now, unless that leaves none: then returns nothing, and the
    /// round is put off. While a set is learned, these are learned later.
    pub fn leave_stale_out(
        &mut self,
        mut lists: Vec<ListToRead>,
        step: &mut Step,
    ) -> Option<Vec<ListToRead>> {
        self.stale.keep_only(&lists);
        let left_out = self.stale.left_out(&lists, step.steady());
        if left_out.is_empty() {
            return Some(lists);
        }
        lists.retain(|list| !left_out.contains(&list.list));
        if lists.is_empty() {
            self.wait_for_stale(step);
            return None;
        }
        for list in &mut lists {
            // It may be one of these that tells them.
            list.waits = true;
        }
        self.learning.leave_out(left_out);
        Some(lists)
    }

    /// Puts a round off that would read nothing but lists which are asked for again later.
    fn wait_for_stale(&mut self, step: &mut Step) {
        let wait = self.stale.next().map(|next| elapsed(step.steady(), next));
        let at = later(step.now(), wait.unwrap_or(LONGEST_RETRY_DELAY));
        self.schedule.delay_until(at, step.now());
        self.wake_at(at, step);
    }

    /// Notes what was taken in a round, and saves it. If there is more, another round is due. Returns what was learned, once
    /// that is all.
    pub fn taken(
        &mut self,
        round: u64,
        taken: &Taken,
        grace: Duration,
        index: &mut ListIndex,
        step: &mut Step,
    ) -> Option<Learned> {
        let is_inventory = taken.missing.is_some();
        let was_learned = self.is_learned();
        if !was_learned {
            // What is large is learned in several rounds.
            let is_partial = is_inventory && taken.has_more;
            self.learning.taken(&taken.lists, is_partial);
            self.save(step);
        }
        let is_learned_now = self.is_learned() && !was_learned;
        let has_more = taken.has_more || !self.is_learned();
        if is_inventory {
            self.lists.keep_only(&taken.lists, index, step);
        }
        for list in &taken.lists {
            if is_inventory && has_more && self.learns(&list.list) {
                self.learning.add(list.list.clone());
                self.lists
                    .put(&list.list, ChangeListRow::default(), index, step);
            } else {
                self.learning.remove(&list.list);
                let row = ChangeListRow {
                    fingerprint: list.fingerprint,
                    listed: list.listed,
                    taken: list.taken,
                    closed: self.lists.closed(list, step),
                };
                self.lists.put(&list.list, row, index, step);
            }
            self.stale.forget(&list.list);
            let until = later(step.steady(), grace);
            self.lists.note_rest(list, until);
        }
        self.lists.wake(step);
        if is_learned_now {
            // These are known by their rows from now on.
            for list in self.learning.to_learn().clone() {
                let row = self.lists.row(&list).copied().unwrap_or_default();
                self.lists.put(&list, row, index, step);
            }
        }
        self.stale.taken();
        self.schedule.taken(round);
        self.go_on(has_more, step);
        is_learned_now.then(|| self.learning.learned())
    }

    /// Lets another round follow one in which something was taken, if there is a reason for it.
    fn go_on(&mut self, has_more: bool, step: &mut Step) {
        if has_more {
            self.schedule.hurry();
        } else if !self.schedule.is_hurried() {
            self.end_last_words(step);
        }
        if self.schedule.has_signs() {
            self.wake_at(step.now(), step);
        } else if !self.stale.is_empty() {
            self.wait_for_stale(step);
        }
    }

    /// Notes that notifications were cut.
    pub fn note_cut(&mut self, now: Timestamp) {
        self.schedule.cut(now);
    }

    // Its lists.

    /// Takes what a list has now as known, because it came with a mount's baseline.
    pub fn learn(&mut self, list: &Uri, index: &mut ListIndex, step: &mut Step) {
        self.learning.add(list.clone());
        self.schedule.compare_anew();
        if self.is_learned() {
            self.lists.put(list, ChangeListRow::default(), index, step);
        }
    }

    /// Forgets what was taken of a list.
    pub fn forget_list(&mut self, list: &Uri, index: &mut ListIndex, step: &mut Step) {
        self.learning.remove(list);
        self.stale.forget(list);
        self.lists.remove(list, index, step);
        self.schedule.compare_anew();
        // What is being compared was compared with keys that are gone now.
        if self.schedule.give_up(step.now()) {
            self.wake_at(step.now(), step);
        }
    }

    /// Notes that a document is no Change List any more: what was taken of it counts until a time, by the steady clock.
    pub fn end_list(&mut self, list: &Uri, until: Timestamp, step: &mut Step) {
        self.lists.end(list, until);
        self.lists.wake(step);
    }

    /// Forgets all that was taken.
    pub fn forget(mut self, index: &mut ListIndex, step: &mut Step) {
        let lists: Vec<Uri> = self.lists.uris().cloned().collect();
        for list in lists {
            // The set may be there again before this is saved.
            self.lists.remove(&list, index, step);
        }
        let rows = step.rows();
        rows.forgotten_inventories.insert(self.uri.clone());
        rows.change_sets.insert(self.uri, None);
    }

    // Since when its lists are seen.

    /// Notes that its lists are seen from now on, if they were not. Returns since when; times are by the steady clock.
    pub fn watch(&mut self, steady: Timestamp) -> Timestamp {
        *self.watched_since.get_or_insert(steady)
    }

    /// Notes that a list is not seen now, so that nobody knows what is absent.
    pub fn overlook(&mut self) {
        self.watched_since = None;
    }

    /// Continues what another engine watched.
    pub fn inherit(&mut self, before: Option<&ChangeSet>) {
        self.watched_since = before.and_then(|set| set.watched_since);
    }

    /// Moves all times as the clock was set back.
    pub fn set_back(&mut self, by: Duration) {
        self.schedule.set_back(by);
        self.lists.set_back(by);
    }
}

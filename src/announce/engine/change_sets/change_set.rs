//! A set with a change channel: its rounds, and the rows of the state file that say what was taken in them (C6, C10, C12,
//! C20).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::Uri;

use crate::announce::catalog::Catalog;
use crate::announce::changes::round::{ListToRead, Taken, TakenList};
use crate::announce::engine::change_sets::known_lists::KnownLists;
use crate::announce::engine::change_sets::learning::{Learned, Learning, learned_at_once};
use crate::announce::engine::change_sets::list_index::ListIndex;
use crate::announce::engine::change_sets::lists_to_read::{ReadLists, known_inventory};
use crate::announce::engine::change_sets::pending_deletions::PendingDeletions;
use crate::announce::engine::change_sets::round_schedule::RoundSchedule;
use crate::announce::engine::channels::Channels;
use crate::announce::engine::step::Step;
use crate::announce::ids::ChannelId;
use crate::announce::plan::ChangeWindowPlan;
use crate::announce::state::{ChangeListRow, ChangeSetRow, ListKind};
use crate::announce::time::later;

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
    deletions: PendingDeletions,
    /// The retiring channel that is still to be told what was fresh when it retired (C12).
    retiring_channel: Option<ChannelId>,
    /// The end of the last interval on a channel that ended.
    told_until: Option<Timestamp>,
    /// The time since which this run sees all its lists: what is absent from them is absent since
    /// then at the earliest (R15).
    watched_since: Option<Timestamp>,
}

impl ChangeSet {
    pub fn new(uri: Uri, source: usize) -> ChangeSet {
        ChangeSet {
            lists: KnownLists::new(uri.clone()),
            schedule: RoundSchedule::new(uri.clone()),
            deletions: PendingDeletions::new(uri.clone()),
            uri,
            source,
            learning: Learning::default(),
            retiring_channel: None,
            told_until: None,
            watched_since: None,
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
            learning: Learning::restore(row.learned, to_learn.collect()),
            lists: KnownLists::restore(uri.clone(), lists, index),
            retiring_channel: row.retiring_channel,
            ..ChangeSet::new(uri, source)
        };
        // The changes that were fresh when the channel retired were not told before the daemon stopped.
        if row.retiring_channel.is_some() {
            set.schedule.hurry(step);
        }
        set
    }

    fn save(&self, step: &mut Step) {
        let row = ChangeSetRow {
            learned: self.learning.kind(),
            retiring_channel: self.retiring_channel,
        };
        step.rows().change_sets.insert(self.uri.clone(), Some(row));
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

    pub fn learning(&self) -> &Learning {
        &self.learning
    }

    pub fn schedule(&self) -> &RoundSchedule {
        &self.schedule
    }

    pub fn schedule_mut(&mut self) -> &mut RoundSchedule {
        &mut self.schedule
    }

    /// Returns what is missing from its Resource Lists, if these are compared (C27).
    pub fn deletions(&self) -> &PendingDeletions {
        &self.deletions
    }

    pub fn deletions_mut(&mut self) -> &mut PendingDeletions {
        &mut self.deletions
    }

    // Its channels.

    /// Returns the channel on which the next changes are told, and whether it is a retiring one (C12).
    pub fn next_channel(&self, channels: &Channels) -> Option<(ChannelId, bool)> {
        let is_own = |id: &ChannelId| channels.get(*id).is_some_and(|it| it.row.set == self.uri);
        match self.retiring_channel.filter(is_own) {
            Some(id) => Some((id, true)),
            None => Some((channels.live(&self.uri, ChannelKind::Change)?, false)),
        }
    }

    /// Lets a retiring channel be told of fresh changes, if there may be any, and makes a round due at once (C12).
    pub fn retire_channel(&mut self, channel: ChannelId, step: &mut Step) {
        let has_signs = self.schedule.has_signs();
        if self.learning.is_complete() && (has_signs || self.schedule.is_under_way()) {
            self.retiring_channel = Some(channel);
            self.save(step);
            if has_signs {
                self.schedule.hurry(step);
            }
        }
    }

    fn end_retirement(&mut self, step: &mut Step) {
        if self.retiring_channel.take().is_some() {
            self.save(step);
            // Another channel may be told from other lists than this one was.
            self.schedule.look_again(step);
        }
    }

    /// Notes that a channel ended, on which the set was told until a time.
    pub fn end_channel(&mut self, channel: ChannelId, until: Option<Timestamp>, step: &mut Step) {
        self.told_until = self.told_until.max(until);
        if self.retiring_channel.take_if(|id| *id == channel).is_some() {
            self.save(step);
        }
    }

    /// Returns the end of the last interval on a channel that ended.
    pub fn told_until(&self) -> Option<Timestamp> {
        self.told_until
    }

    // When a round is due.

    /// Ends the wait for entries that no list told in time: the next round takes them.
    pub fn end_waiting(&mut self, step: &mut Step) {
        if self.lists.end_waiting(step) {
            self.schedule.sign_if_none(step.now());
        }
    }

    /// Returns true if a round may become due without another event.
    pub fn may_be_due(&self) -> bool {
        let has_reason = self.schedule.has_signs() || self.deletions.is_any();
        has_reason && !self.schedule.is_under_way()
    }

    /// Returns true if a round is due. While no hub of its channel `is_free`, it waits.
    pub fn is_ready(&mut self, is_free: bool, window: &ChangeWindowPlan, step: &mut Step) -> bool {
        let is_deletion_due = self.deletions.is_due(step.now());
        if !is_deletion_due && !self.schedule.has_signs() {
            self.deletions.wake(step);
        }
        self.schedule
            .is_ready(is_deletion_due, is_free, window, step)
    }

    // A round.

    /// Returns those of some lists that the next round reads: not the stale ones, and so many that memory is bounded: while
    /// lists are learned, as many as fit; then those of [`KnownLists::earliest`]. Returns nothing if the round is put off,
    /// because all of them are stale.
    pub fn next_lists(&mut self, mut lists: Vec<ListToRead>, step: &mut Step) -> Option<ReadLists> {
        let left_out = self.schedule.leave_stale_out(&mut lists, step)?;
        self.learning.leave_out(left_out);
        let count = lists.len();
        let (lists, beyond) = match self.learning.is_complete() {
            true => self.lists.earliest(lists),
            false => (learned_at_once(lists), None),
        };
        Some(ReadLists {
            is_partial: lists.len() < count,
            lists,
            beyond,
        })
    }

    /// Begins a round with this number, which reads lists of this kind. Returns since when this run watches the lists:
    /// not yet, if a mount `is_away` that may have some of them.
    pub fn begin(
        &mut self,
        round: u64,
        kind: ListKind,
        next: &ReadLists,
        is_away: bool,
        index: &mut ListIndex,
        step: &mut Step,
    ) -> Timestamp {
        let learned = self.learning.kind();
        if (learned, kind) == (Some(ListKind::ChangeLists), ListKind::ResourceLists) {
            self.learn_inventory(&next.lists, index, step);
        }
        self.learning.begin(next.is_partial);
        self.schedule.begin(round);
        match is_away {
            true => step.now(),
            false => self.watch(step.now()),
        }
    }

    /// Begins to learn Resource Lists, whose present contents count as taken, because they are compared from now on
    /// (C27).
    fn learn_inventory(&mut self, lists: &[ListToRead], index: &mut ListIndex, step: &mut Step) {
        for list in lists {
            self.learning.add(list.list.clone());
            self.lists.put_empty(&list.list, index, step);
        }
        self.learning.turn_to(ListKind::ResourceLists);
        self.save(step);
    }

    /// Forgets the resources that were listed, because Resource Lists are not compared any more. Entries that Change
    /// Lists gained meanwhile are told (C11). Returns false if nothing was known of resources.
    pub fn forget_inventory(&mut self, step: &mut Step) -> bool {
        self.deletions.forget();
        match self.learning.kind() {
            Some(ListKind::ChangeLists) => return false,
            // Some may have been learned.
            None => {}
            Some(ListKind::ResourceLists) => {
                self.learning.turn_to(ListKind::ChangeLists);
                self.save(step);
            }
        }
        step.rows().forget_inventory(&self.uri);
        true
    }

    /// Ends a round without reading anything: there is nothing to read.
    pub fn skip(&mut self, step: &mut Step) {
        self.schedule.skip();
        self.end_retirement(step);
    }

    /// Notes what was taken in a round, and saves it. If there is more, another round is due. Returns what was learned, once
    /// that is all.
    pub fn taken(
        &mut self,
        round: u64,
        taken: &Taken,
        grace: Duration,
        catalog: &Catalog,
        index: &mut ListIndex,
        step: &mut Step,
    ) -> Option<Learned> {
        let is_inventory = taken.missing.is_some();
        let learned = self.learn_round(taken, step);
        let has_more = taken.has_more || !self.learning.is_complete();
        if is_inventory {
            self.keep_only(&taken.lists, catalog, index, step);
        }
        for list in &taken.lists {
            self.take_list(list, is_inventory && has_more, index, step);
        }
        let until = later(step.now(), grace);
        self.lists.note_rest(&taken.lists, until, step);
        if learned.is_some() {
            // The rows of the lists still to be learned say so from now on.
            for list in self.learning.to_learn() {
                self.lists.store(list, index, step);
            }
        }
        if self.schedule.taken(round, &taken.lists, has_more, step) {
            self.end_retirement(step);
        }
        learned
    }

    /// Forgets the Resource Lists that an inventory does not have any more.
    fn keep_only(
        &mut self,
        lists: &[TakenList],
        catalog: &Catalog,
        index: &mut ListIndex,
        step: &mut Step,
    ) {
        let is_gone = |list: &&Uri| !lists.iter().any(|taken| taken.list == **list);
        let known = known_inventory(&self.lists, catalog);
        let gone: Vec<Uri> = known.filter(is_gone).cloned().collect();
        for list in gone {
            self.learning.remove(&list);
            self.lists.remove(&list, index, step);
        }
    }

    /// Notes what a round learned. Returns all that was learned if it is the last round of these.
    fn learn_round(&mut self, taken: &Taken, step: &mut Step) -> Option<Learned> {
        if self.learning.is_complete() {
            return None;
        }
        // Large inventories are learned in several rounds.
        let (kind, is_partial) = match taken.missing {
            Some(_) => (ListKind::ResourceLists, taken.has_more),
            None => (ListKind::ChangeLists, false),
        };
        self.learning.taken(kind, &taken.lists, is_partial);
        self.save(step);
        self.learning.is_complete().then(|| self.learning.learned())
    }

    /// Notes what a round took of one list; of one that is still learned only that it is there, if it `is_partial`.
    fn take_list(
        &mut self,
        taken: &TakenList,
        is_partial: bool,
        index: &mut ListIndex,
        step: &mut Step,
    ) {
        if is_partial && self.learning.learns(&taken.list) {
            self.learning.add(taken.list.clone());
            self.lists.put_empty(&taken.list, index, step);
        } else {
            self.learning.remove(&taken.list);
            self.lists.take(taken, index, step);
        }
    }

    // Its lists.

    /// Takes what a list has now as known, because it came with a mount's baseline.
    pub fn learn(&mut self, list: &Uri, index: &mut ListIndex, step: &mut Step) {
        self.learning.add(list.clone());
        self.schedule.compare_anew();
        if self.learning.is_complete() {
            self.lists.put_empty(list, index, step);
        }
    }

    /// Forgets what was taken of a list.
    pub fn forget_list(&mut self, list: &Uri, index: &mut ListIndex, step: &mut Step) {
        self.learning.remove(list);
        self.lists.remove(list, index, step);
        self.schedule.forget_list(list, step);
    }

    /// Forgets all that was taken.
    pub fn forget(mut self, index: &mut ListIndex, step: &mut Step) {
        let lists: Vec<Uri> = self.lists.uris().cloned().collect();
        for list in lists {
            // The set may be there again before this is saved.
            self.lists.remove(&list, index, step);
        }
        let rows = step.rows();
        rows.forget_inventory(&self.uri);
        rows.change_sets.insert(self.uri, None);
    }

    // Since when its lists are seen.

    /// Notes that its lists are seen from now on, if they were not. Returns since when.
    pub fn watch(&mut self, now: Timestamp) -> Timestamp {
        *self.watched_since.get_or_insert(now)
    }

    /// Notes that a list is not seen now, so that nobody knows what is absent.
    pub fn overlook(&mut self) {
        self.watched_since = None;
    }

    /// Continues what another engine watched.
    pub fn inherit(&mut self, before: Option<&ChangeSet>) {
        self.watched_since = before.and_then(|set| set.watched_since);
    }
}

//! The sets with a change channel: which versions of their Change Lists were taken, and when the next round is due (C6,
//! C10, C20).
//!
//! A [`ChangeSet`] joins the parts of one set; [`ChangeSets`] finds sets by list and by source.

pub mod change_set;
pub mod known_lists;
pub mod learning;
pub mod list_index;
pub mod lists_to_read;
pub mod odd_entries;
pub mod pending_deletions;
pub mod round_schedule;
pub mod seen_lists;
mod stale_lists;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::Uri;

use crate::announce::catalog::Catalog;
use crate::announce::changes::round::Taken;
use crate::announce::engine::change_sets::change_set::ChangeSet;
use crate::announce::engine::change_sets::learning::Learned;
use crate::announce::engine::change_sets::list_index::ListIndex;
use crate::announce::engine::change_sets::lists_to_read::ReadLists;
use crate::announce::engine::channels::Channels;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::ids::ChannelId;
use crate::announce::state::{ChangeListRow, ChangeSetRow, ListKind};
use crate::announce::time::later;

/// All sets with a change channel, live or retired.
///
/// `index` is derived from `sets`, and changes only with them.
#[derive(Debug, Default)]
pub struct ChangeSets {
    sets: BTreeMap<Uri, ChangeSet>,
    index: ListIndex,
    /// Sets with a round that was due while their source was not settled.
    parked: BTreeSet<Uri>,
    /// Sets that lost a channel in this step, and may have another one at its end.
    lost_channels: BTreeSet<Uri>,
    last_round: u64,
}

/// A round that begins.
#[derive(Debug, Clone, Copy)]
pub struct BegunRound {
    pub number: u64,
    /// The last round of which something was taken, if its comparison still holds.
    pub after: Option<u64>,
    /// The time since which this run watches the lists.
    pub since: Timestamp,
}

impl ChangeSets {
    pub fn get(&self, set: &Uri) -> Option<&ChangeSet> {
        self.sets.get(set)
    }

    pub fn get_mut(&mut self, set: &Uri) -> Option<&mut ChangeSet> {
        self.sets.get_mut(set)
    }

    /// Returns the sets of a source.
    pub fn of_source_mut(&mut self, source: usize) -> impl Iterator<Item = &mut ChangeSet> {
        let sets = self.sets.values_mut();
        sets.filter(move |known| known.source() == source)
    }

    /// Returns the sets that have taken entries of a list.
    pub fn of_list(&self, list: &Uri) -> Vec<Uri> {
        self.index.sets(list)
    }

    // Sets that come and go.

    /// Adds a stored set.
    pub fn restore(
        &mut self,
        set: Uri,
        source: usize,
        row: ChangeSetRow,
        lists: BTreeMap<Uri, ChangeListRow>,
        step: &mut Step,
    ) {
        let index = &mut self.index;
        let restored = ChangeSet::restore(set.clone(), source, row, lists, index, step);
        self.sets.insert(set, restored);
    }

    /// Returns a set of a source, which is added unless it is known.
    pub fn open(&mut self, set: &Uri, source: usize) -> &mut ChangeSet {
        let known = self.sets.entry(set.clone());
        let known = known.or_insert_with(|| ChangeSet::new(set.clone(), source));
        known.move_to(source);
        known
    }

    /// Notes that a channel of a set ended, on which it was told until a time. Fresh changes are told on another one, if
    /// the set has one at the end of the step.
    pub fn end_channel(
        &mut self,
        set: &Uri,
        channel: ChannelId,
        until: Option<Timestamp>,
        step: &mut Step,
    ) {
        if let Some(known) = self.sets.get_mut(set) {
            known.end_channel(channel, until, step);
            self.lost_channels.insert(set.clone());
        }
    }

    /// Forgets what was taken of sets that have lost their last change channel.
    pub fn forget_without_channel(&mut self, channels: &Channels, step: &mut Step) {
        for set in std::mem::take(&mut self.lost_channels) {
            let mut channels = channels.of_set(&set, ChannelKind::Change);
            if channels.next().is_none()
                && let Some(removed) = self.sets.remove(&set)
            {
                removed.forget(&mut self.index, step);
            }
        }
    }

    // Lists.

    /// Takes what a list has now as known, because it came with a mount's baseline.
    pub fn learn(&mut self, set: &Uri, list: &Uri, step: &mut Step) {
        if let Some(known) = self.sets.get_mut(set) {
            known.learn(list, &mut self.index, step);
        }
    }

    /// Forgets what was taken of a list that ended (C7).
    pub fn forget_list(&mut self, list: &Uri, step: &mut Step) {
        for set in self.of_list(list) {
            if let Some(known) = self.sets.get_mut(&set) {
                known.forget_list(list, &mut self.index, step);
            }
        }
    }

    /// Forgets after a grace what was taken of a document that is no Change List any more (C7).
    pub fn end_list(&mut self, list: &Uri, grace: Duration, step: &mut Step) {
        let until = later(step.now(), grace);
        for set in self.of_list(list) {
            if let Some(known) = self.sets.get_mut(&set) {
                known.lists_mut().end(list, until, step);
            }
        }
    }

    /// Notes that a document is a Change List, perhaps again.
    pub fn revive_list(&mut self, list: &Uri) {
        for set in self.of_list(list) {
            if let Some(known) = self.sets.get_mut(&set) {
                known.lists_mut().revive(list);
            }
        }
    }

    /// Forgets what was taken of the lists of a set that ended a grace ago.
    pub fn forget_ended(&mut self, set: &Uri, step: &mut Step) {
        let known = self.sets.get(set);
        let ended = known.map(|known| known.lists().ended(step.now()));
        for list in ended.unwrap_or_default() {
            self.forget_list(&list, step);
        }
    }

    // Rounds.

    /// Delays the next round of a set until its source is settled.
    pub fn park(&mut self, set: &Uri) {
        self.parked.insert(set.clone());
    }

    /// Resumes the rounds that waited for this source to be settled.
    pub fn unpark(&mut self, source: usize, step: &mut Step) {
        let sets = &self.sets;
        let is_of_source = |set: &Uri| sets.get(set).is_none_or(|known| known.source() == source);
        for set in self.parked.extract_if(.., is_of_source) {
            step.wake_at(step.now(), Timer::Changes(set));
        }
    }

    /// Begins a round that reads lists of this kind. Another mount of the source may be away (`is_away`).
    pub fn begin(
        &mut self,
        set: &Uri,
        kind: ListKind,
        next: &ReadLists,
        is_away: bool,
        step: &mut Step,
    ) -> Option<BegunRound> {
        let known = self.sets.get_mut(set)?;
        self.last_round += 1;
        let since = known.begin(self.last_round, kind, next, is_away, &mut self.index, step);
        Some(BegunRound {
            number: self.last_round,
            after: known.schedule().last_taken(),
            since,
        })
    }

    /// Notes what was taken in a round, and saves it. If there is more, another round is due. Returns what was learned, once
    /// that is all.
    pub fn taken(
        &mut self,
        set: &Uri,
        round: u64,
        taken: &Taken,
        grace: Duration,
        catalog: &Catalog,
        step: &mut Step,
    ) -> Option<Learned> {
        let known = self.sets.get_mut(set)?;
        known.taken(round, taken, grace, catalog, &mut self.index, step)
    }

    // Sets of a source.

    /// Takes what is missing of a source's resources as deleted, as an operator wants it (C29).
    pub fn accept(&mut self, source: usize, step: &mut Step) {
        for known in self.of_source_mut(source) {
            known.deletions_mut().accept(step);
        }
    }

    /// Notes that the lists of a source are seen from now on, if they were not.
    pub fn watch(&mut self, source: usize, step: &Step) {
        for known in self.of_source_mut(source) {
            known.watch(step.now());
        }
    }

    /// Notes that lists of a source may not be seen now: a mount is away.
    pub fn stop_watching(&mut self, source: usize) {
        for known in self.of_source_mut(source) {
            known.overlook();
        }
    }

    // Another engine.

    /// Continues the numbers of rounds of another engine, whose answers do not count any more, and what it watched.
    pub fn inherit(&mut self, before: &ChangeSets) {
        self.last_round = self.last_round.max(before.last_round);
        for (set, known) in &mut self.sets {
            known.inherit(before.sets.get(set));
        }
    }
}

#[cfg(test)]
mod tests;

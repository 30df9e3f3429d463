//! Rounds: the lists of a set are compared with what was taken, and what is fresh goes to the log of its channel (C6 to C8,
//! C11, C20, C27).

use std::collections::BTreeMap;

use resourcesync::uri::{Hub, Uri};

use crate::announce::changes::inventory::DeletionRules;
use crate::announce::changes::round::{
    ROUND, TakeOutcome, TakeRequest, Taken, TakenRound, WatchedTime,
};
use crate::announce::channel::Channel;
use crate::announce::engine::change_findings::{find_in_lists, find_missing, tell_untold};
use crate::announce::engine::change_sets::ChangeSets;
use crate::announce::engine::change_sets::change_set::ChangeSet;
use crate::announce::engine::change_sets::lists_to_read::{
    compared_lists, next_change_lists, next_resource_lists,
};
use crate::announce::engine::change_sets::round_schedule::inventory_window;
use crate::announce::engine::outbox::Outbox;
use crate::announce::engine::outbox::change_log::begin_interval;
use crate::announce::engine::source::Source;
use crate::announce::engine::source_list::Sources;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::plan::Plan;
use crate::announce::state::ListKind;

/// The sets with a change channel, while a round of one begins or ends.
pub struct ChangeRounds<'a> {
    pub change_sets: &'a mut ChangeSets,
    pub sources: &'a mut Sources,
    pub outbox: &'a mut Outbox,
    pub plan: &'a Plan,
    pub step: &'a mut Step,
}

impl ChangeRounds<'_> {
    /// Begins the next round of a set, if it is due (C20).
    pub fn begin(&mut self, set: &Uri) {
        let step = &mut *self.step;
        self.change_sets.forget_ended(set, step);
        let Some(known) = self.change_sets.get_mut(set) else {
            return;
        };
        known.end_waiting(step);
        if !known.may_be_due() {
            return;
        }
        let position = known.source();
        let source = &self.sources[position];
        // The set of a document that was read in this step is not known yet.
        let is_unrelated = source.documents().has_changes() && !known.learning().is_complete();
        if !source.is_settled() || is_unrelated {
            self.change_sets.park(set);
            return;
        }
        let channels = self.outbox.channels();
        let next = known.next_channel(channels);
        let next = next.and_then(|(id, is_last)| Some((channels.get(id)?, is_last)));
        let Some((channel, is_last)) = next else {
            known.skip(step);
            return;
        };
        let kind = compared_lists(known, source, is_last);
        let window = match kind {
            ListKind::ResourceLists => inventory_window(),
            ListKind::ChangeLists => self.plan.window.changes.clone(),
        };
        let is_free = is_last || has_free_hub(channel);
        if !known.is_ready(is_free, &window, step) || waits_for_documents(known, source, step) {
            return;
        }
        if kind == ListKind::ChangeLists && known.forget_inventory(step) {
            let findings = self.sources[position].findings_mut();
            findings.replace_about_entries(set, Vec::new(), step);
        }
        let source = &self.sources[position];
        let catalog = source.catalog();
        let next = match kind {
            ListKind::ResourceLists => next_resource_lists(known, catalog, is_last, step),
            ListKind::ChangeLists => next_change_lists(known, catalog, is_last, step),
        };
        let Some(next) = next else {
            return;
        };
        let inventory = (kind == ListKind::ResourceLists).then(|| DeletionRules {
            mass_deletion: source.plan().mass_deletion,
            is_accepted: known.deletions().is_accepted(),
        });
        // All Resource Lists are there, or the round would have been put off.
        let is_away = kind == ListKind::ChangeLists && !source.tree.mounts().are_whole();
        let Some(round) = self.change_sets.begin(set, kind, &next, is_away, step) else {
            return;
        };
        step.take_changes(TakeRequest {
            set: set.clone(),
            round: round.number,
            after: round.after,
            at: step.wall(),
            lists: next.lists,
            watch: WatchedTime {
                since: round.since,
                now: step.now(),
                grace: source.plan().deletion_grace,
            },
            limit: ROUND,
            beyond: next.beyond,
            told_until: channel.told_until(),
            inventory,
        });
    }

    /// Ends a round with what it found.
    pub fn end(&mut self, answer: TakenRound) {
        let TakenRound {
            set,
            round,
            outcome,
        } = answer;
        let Some(known) = self.change_sets.get_mut(&set) else {
            return;
        };
        if !known.schedule_mut().end(round) {
            return;
        }
        let (window, step) = (&self.plan.window.changes, &mut *self.step);
        let Some((id, _)) = known.next_channel(self.outbox.channels()) else {
            known.skip(step);
            return;
        };
        let reason = match outcome {
            TakeOutcome::Taken(taken) => {
                self.log_round(id, &set, round, *taken);
                return;
            }
            TakeOutcome::Stale(lists) => {
                let reported = known.schedule_mut().note_stale(lists, window, step);
                let Some(list) = reported.first() else {
                    return;
                };
                format!("{list} changes whenever it is read, or is not the version that was seen")
            }
            TakeOutcome::Unreadable(lists, reason) => {
                // Lists that could not be read were not seen either.
                known.overlook();
                known.schedule_mut().note_stale(lists, window, step);
                reason
            }
            TakeOutcome::Failed(reason) => {
                known.overlook();
                known.schedule_mut().repeat(window, step);
                reason
            }
        };
        if let Some(channel) = self.outbox.channels().get(id) {
            let topic = channel.row.topic.clone();
            let reason = Some(reason);
            step.tell(Fact::NotTaken { topic, reason });
        }
    }

    /// Saves what a round took, and cuts what is fresh into notifications on a channel.
    fn log_round(&mut self, id: ChannelId, set: &Uri, round: u64, taken: Taken) {
        let Some(known) = self.change_sets.get(set) else {
            return;
        };
        let (position, step) = (known.source(), &mut *self.step);
        let source = &mut self.sources[position];
        let grace = source.plan().deletion_grace;
        let catalog = source.catalog();
        let learned = self
            .change_sets
            .taken(set, round, &taken, grace, catalog, step);
        let Some(known) = self.change_sets.get_mut(set) else {
            return;
        };
        let Taken {
            changes,
            lists,
            keys,
            inventory,
            missing,
            has_more,
        } = taken;
        let keys = keys.into_iter();
        let keys = keys.map(|((list, number), row)| ((set.clone(), list, number), row));
        step.rows().change_keys.extend(keys);
        let resources = inventory.into_iter();
        let resources = resources.map(|(resource, row)| ((set.clone(), resource), row));
        step.rows().inventory.extend(resources);
        if let Some(channel) = self.outbox.channels().get(id) {
            tell_untold(channel, &lists, step);
        }
        if let Some(missing) = missing {
            known.deletions_mut().note(missing, has_more, step);
            find_missing(known, source, missing, step);
        }
        if let (Some(learned), Some(channel)) = (learned, self.outbox.channels_mut().get_mut(id)) {
            begin_interval(channel, id, learned, step);
        }
        let mut back_dated = BTreeMap::new();
        if !changes.is_empty() {
            known.schedule_mut().cut(step.now());
            back_dated = self
                .outbox
                .cut_changes(id, changes, &lists, self.plan, step);
        }
        find_in_lists(known, source, &lists, &back_dated, step);
    }
}

/// Returns true if a set's channel cannot begin yet: a document that the set lists was found, and cannot be read until its
/// writer is done. Sets a timer for the next check.
fn waits_for_documents(known: &ChangeSet, source: &Source, step: &mut Step) -> bool {
    let longest = source.plan().broken_after;
    let next = known.schedule().next_recheck(longest, step.now());
    let Some(next) = next.filter(|_| !known.learning().is_complete()) else {
        return false;
    };
    let waits = source.tree.has_unreadable_member(known.uri());
    if waits {
        step.wake_at(next, Timer::Changes(known.uri().clone()));
    }
    waits
}

/// Returns true if a hub has heard all that was cut, or there is none.
fn has_free_hub(channel: &Channel) -> bool {
    let has_heard_all =
        |(_, ledger): (&Hub, &Ledger)| channel.log.after(&ledger.row.position).next().is_none();
    let has_hubs = channel.listening().next().is_some();
    !has_hubs || channel.listening().any(has_heard_all)
}

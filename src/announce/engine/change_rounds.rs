//! Rounds: the lists of a set are compared with what was taken, and what is fresh goes to the log of its channel (C6 to C8,
//! C11, C20, C27).

use crate::announce::changes::round::{
    ROUND, TakeOutcome, TakeRequest, Taken, TakenRound, WatchedTime,
};
use crate::announce::channel::Channel;
use crate::announce::engine::Engine;
use crate::announce::engine::change_findings::{find_missing, tell_untold};
use crate::announce::engine::change_log::begin_interval;
use crate::announce::engine::change_sets::lists_to_read::{
    inventory_rules, next_change_lists, next_resource_lists,
};
use crate::announce::engine::change_sets::round_schedule::inventory_window;
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::resourcesync::uri::{Hub, Uri};

impl Engine {
    /// Begins the next round of a set, if it is due (C20).
    pub(super) fn take_if_ready(&mut self, set: &Uri) {
        let step = &mut self.step;
        self.change_sets.forget_ended(set, step);
        let Some(known) = self.change_sets.get_mut(set) else {
            return;
        };
        known.end_waiting(step);
        if !known.may_be_due() {
            return;
        }
        let source = &self.sources[known.source()];
        if !source.is_settled() {
            self.change_sets.park(set);
            return;
        }
        let hearing = known.hearing_channel(&self.channels);
        let hearing = hearing.and_then(|(id, is_last)| Some((self.channels.get(id)?, is_last)));
        let Some((channel, is_last)) = hearing else {
            known.skip(step);
            return;
        };
        let inventory = inventory_rules(known, source);
        let window = match inventory {
            Some(_) => inventory_window(),
            None => self.plan.window.changes.clone(),
        };
        let is_free = is_last || has_free_hub(channel);
        if !known.is_ready(is_free, &window, step) {
            return;
        }
        let next = match inventory {
            Some(_) => next_resource_lists(known, source.catalog(), step),
            None => next_change_lists(known, source.catalog(), is_last, step),
        };
        let Some(next) = next else {
            return;
        };
        let now = step.steady();
        let Some(round) = self.change_sets.begin(set, next.is_partial, now) else {
            return;
        };
        step.take_changes(TakeRequest {
            set: set.clone(),
            round: round.number,
            after: round.after,
            at: step.now(),
            lists: next.lists,
            watch: WatchedTime {
                since: round.since,
                now,
                grace: source.plan().deletion_grace,
            },
            limit: ROUND,
            beyond: next.beyond,
            told_until: channel.told_until(),
            inventory,
        });
    }

    /// Takes what a round found.
    pub(super) fn taken(&mut self, answer: TakenRound) {
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
        let (window, step) = (&self.plan.window.changes, &mut self.step);
        let Some((id, _)) = known.hearing_channel(&self.channels) else {
            known.skip(step);
            return;
        };
        let reason = match outcome {
            TakeOutcome::Taken(taken) => {
                self.take_round(id, &set, round, *taken);
                return;
            }
            TakeOutcome::Stale(lists) => {
                let reported = known.schedule_mut().note_stale(lists, window, step);
                let Some(list) = reported.first() else {
                    return;
                };
                format!("{list} changes whenever it is read, or is not the version that was seen")
            }
            TakeOutcome::Failed(reason) => {
                // What could not be read was not seen either.
                known.overlook();
                known.schedule_mut().repeat(window, step);
                reason
            }
        };
        if let Some(channel) = self.channels.get(id) {
            let topic = channel.row.topic.clone();
            let reason = Some(reason);
            step.tell(Fact::NotTaken { topic, reason });
        }
    }

    fn take_round(&mut self, id: ChannelId, set: &Uri, round: u64, taken: Taken) {
        let Some(known) = self.change_sets.get(set) else {
            return;
        };
        let (position, step) = (known.source(), &mut self.step);
        let source = &mut self.sources[position];
        let grace = source.plan().deletion_grace;
        let learned = self.change_sets.taken(set, round, &taken, grace, step);
        let Taken {
            changes,
            lists,
            keys,
            inventory,
            missing,
            ..
        } = taken;
        let keys = keys.into_iter();
        let keys = keys.map(|((list, number), row)| ((set.clone(), list, number), row));
        step.rows().change_keys.extend(keys);
        let resources = inventory.into_iter();
        let resources = resources.map(|(resource, row)| ((set.clone(), resource), row));
        step.rows().inventory.extend(resources);
        if let Some(channel) = self.channels.get(id) {
            tell_untold(channel, &lists, step);
        }
        if let (Some(missing), Some(known)) = (missing, self.change_sets.get_mut(set)) {
            known.deletions_mut().note(missing, step);
            find_missing(known, source, missing, step);
        }
        if let (Some(learned), Some(channel)) = (learned, self.channels.get_mut(id)) {
            begin_interval(channel, id, learned, step);
        }
        self.log_changes(id, set, changes, &lists);
    }
}

/// Returns true if a hub has heard all that was cut, or there is none.
fn has_free_hub(channel: &Channel) -> bool {
    let has_heard_all =
        |(_, ledger): (&Hub, &Ledger)| channel.log.after(&ledger.row.position).next().is_none();
    let has_hubs = channel.listening().next().is_some();
    !has_hubs || channel.listening().any(has_heard_all)
}

//! Effects of the engine: all changes are saved first, and the rest is performed once they are.

use crate::announce::event::Effect;
use crate::announce::plan::Mode;
use crate::daemon::event_loop::EventLoop;
use crate::daemon::event_loop::state_saver::Unsaved;
use crate::daemon::failpoints::Failpoint;
use crate::daemon::log;

impl EventLoop {
    /// Sorts effects into changes to save and effects that come after. The embedded hub accepts by owing each subscriber
    /// a delivery, in the same transaction.
    pub(super) fn take(&mut self, effects: Vec<Effect>) {
        let unsaved = self.saver.unsaved();
        for effect in effects {
            match effect {
                Effect::Save(save) => unsaved.save.merge(*save),
                // Submissions that are not begun now are begun at the next start.
                Effect::Submit(_) if self.stop_by.is_some() => {}
                Effect::Submit(submission) if submission.mode == Mode::Embedded => {
                    unsaved.owed.extend(self.hub.relay(&submission));
                    unsaved.relayed.push(submission);
                }
                effect => unsaved.effects.push(effect),
            }
        }
    }

    /// Saves the changes of this step, then performs its effects. Returns false while the state cannot be saved. The
    /// store is asked even if nothing changed if it `must_answer`.
    pub(super) fn commit(&mut self, must_answer: bool) -> bool {
        let saved = self
            .saver
            .save(must_answer, &self.failpoints, &mut self.counts);
        let Some(Unsaved {
            effects,
            owed,
            relayed,
            ..
        }) = saved
        else {
            return false;
        };
        for effect in effects {
            self.perform(effect);
        }
        if self.hub.dispatch(owed, relayed) {
            self.failpoints.pass(Failpoint::Dispatched);
        }
        true
    }

    /// Withdraws topics that no channel has claimed under this plan, once every tree is known.
    pub(super) fn withdraw_unclaimed(&mut self) {
        if self.engine.is_settled() {
            for topic in self.topics.take_unclaimed() {
                self.perform(Effect::Withdraw(topic));
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Save(_) => {}
            Effect::Serve(page) => {
                self.topics.serve(page);
                self.failpoints.pass(Failpoint::Served);
            }
            Effect::Withdraw(topic) => {
                self.topics.withdraw(&topic);
                self.hub.end_topic(&topic);
            }
            // It was cut just before the stop: it is sent at the next start.
            Effect::Submit(_) if self.stop_by.is_some() => {}
            Effect::Submit(submission) => self.submissions.submit(submission),
            Effect::Look(paths) => self.trees.look(&paths),
            Effect::Explain(paths) => self.trees.explain(&paths),
            Effect::Tell(fact) => {
                self.counts.tell(&fact);
                log::log_fact(&fact);
            }
        }
    }
}

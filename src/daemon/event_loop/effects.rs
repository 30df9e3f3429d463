//! Effects of the engine: all changes are saved first, and the rest is performed once they are.

use tracing::error;

use crate::announce::changes::log::LogPart;
use crate::announce::changes::round::TakeRequest;
use crate::announce::delivery::Submission;
use crate::announce::event::{Effect, Event};
use crate::announce::plan::Mode;
use crate::daemon::change_reader::ReadJob;
use crate::daemon::event_loop::logged_bodies::{logged_part, merged};
use crate::daemon::event_loop::state_saver::Unsaved;
use crate::daemon::event_loop::{EventLoop, Input};
use crate::daemon::failpoints::Failpoint;
use crate::daemon::log;
use crate::http::answer::Answer;

impl EventLoop {
    /// Sorts effects into changes to save and effects that come after. The embedded hub accepts by owing each subscriber
    /// a delivery, in the same transaction.
    pub(super) fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            // The embedded hub saves what it owes in the transaction that logs it.
            let effect = match effect {
                Effect::SubmitLogged(submission, part) if submission.mode == Mode::Embedded => {
                    match self.with_body(submission, part) {
                        Some(submission) => Effect::Submit(submission),
                        None => continue,
                    }
                }
                effect => effect,
            };
            let unsaved = self.saver.unsaved();
            match effect {
                Effect::Save(save) => unsaved.save.merge(*save),
                // Submissions that are not begun now are begun at the next start.
                Effect::Submit(_) | Effect::SubmitLogged(..) if self.stop_by.is_some() => {}
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
        if self.engine.sources().are_settled() {
            for topic in self.topics.take_unclaimed() {
                self.perform(Effect::Withdraw(topic));
            }
        }
    }

    /// Returns a submission with its body from the log. Without it, the attempt counts as failed.
    fn with_body(&mut self, submission: Submission, part: LogPart) -> Option<Submission> {
        match logged_part(&self.saver, submission.channel, submission.seq, part) {
            Ok(body) => Some(Submission { body, ..submission }),
            Err(error) => {
                let (topic, seq) = (&submission.topic, submission.seq);
                error!(%topic, seq, error, "cannot read notification {seq} of {topic}: {error}");
                let answer = Answer::Failed(error);
                let _ = self.inputs.send(Input::Event(Event::Answered {
                    channel: submission.channel,
                    hub: submission.hub,
                    seq,
                    answer,
                    jitter: fastrand::f64(),
                }));
                None
            }
        }
    }

    /// Lets Change Lists be read.
    fn take_changes(&mut self, request: TakeRequest) {
        let keys = self.saver.store().key_reader();
        let job = ReadJob::new(request, self.engine.plan(), keys);
        self.change_reader.read(job);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Save(_) => {}
            Effect::Serve(page) => {
                self.topics.serve(page);
                self.failpoints.pass(Failpoint::Served);
            }
            Effect::ServeLogged(mut page, id, first, last) => {
                let window = &self.engine.plan().window;
                match merged(&self.saver, id, (first, last), window) {
                    Ok(body) => page.body = body,
                    Err(error) => {
                        let topic = &page.topic;
                        error!(%topic, error, "{topic} serves its last notification only: {error}");
                    }
                }
                self.perform(Effect::Serve(page));
            }
            Effect::Withdraw(topic) => {
                self.topics.withdraw(&topic);
                self.hub.end_topic(&topic);
            }
            // It was cut just before the stop: it is sent at the next start.
            Effect::Submit(_) | Effect::SubmitLogged(..) if self.stop_by.is_some() => {}
            Effect::Submit(submission) => self.submissions.submit(submission),
            Effect::SubmitLogged(submission, part) => {
                if let Some(submission) = self.with_body(submission, part) {
                    self.submissions.submit(submission);
                }
            }
            Effect::Take(request) => {
                self.failpoints.pass(Failpoint::Reading);
                self.take_changes(*request);
            }
            Effect::Look(paths) => self.trees.look(&paths),
            Effect::Explain(paths) => self.trees.explain(&paths),
            Effect::Tell(fact) => {
                self.count_fact(&fact);
                log::log_fact(&fact);
            }
        }
    }
}

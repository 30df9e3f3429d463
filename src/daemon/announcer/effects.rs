//! Effects of the engine: all changes are saved first, and the rest is performed once they are.

use tracing::error;
use websub::answer::Answer;

use crate::announce::changes::log::LogPart;
use crate::announce::changes::round::TakeRequest;
use crate::announce::delivery::Submission;
use crate::announce::event::{Effect, Event};
use crate::announce::plan::Mode;
use crate::daemon::announcer::logged_bodies::{logged_part, merged};
use crate::daemon::announcer::{Announcer, RunParts, SourceInput};
use crate::daemon::change_reader::ReadJob;
use crate::daemon::event_loop::Input;
use crate::daemon::failpoints::Failpoint;
use crate::daemon::log;

/// Returns the event of a submission that the embedded hub has accepted.
pub fn accepted(submission: Submission) -> Event {
    Event::Answered {
        channel: submission.channel,
        hub: submission.hub,
        seq: submission.seq,
        answer: Answer::ACCEPTED,
        jitter: 0.0,
    }
}

impl Announcer {
    /// Sorts effects into changes to save and effects that come after. The embedded hub accepts by owing each subscriber
    /// a delivery, in the same transaction.
    pub(super) fn take(&mut self, effects: Vec<Effect>, parts: &mut RunParts) {
        for effect in effects {
            // The embedded hub saves what it owes in the transaction that logs it.
            let effect = match effect {
                Effect::SubmitLogged(submission, part) if submission.mode == Mode::Embedded => {
                    match with_body(submission, part, parts) {
                        Some(submission) => Effect::Submit(submission),
                        None => continue,
                    }
                }
                effect => effect,
            };
            // Questions change nothing, and more of them come while the state cannot be saved.
            if matches!(effect, Effect::Look(_) | Effect::Explain(_)) {
                self.perform_effect(effect, parts);
                continue;
            }
            let is_stopping = parts.is_stopping();
            let unsaved = parts.saver.unsaved();
            match effect {
                Effect::Save(save) => unsaved.save.merge(*save),
                // Submissions that are not begun now are begun at the next start.
                Effect::Submit(_) | Effect::SubmitLogged(..) if is_stopping => {}
                Effect::Submit(submission) if submission.mode == Mode::Embedded => {
                    let hub = parts.hub.linked();
                    unsaved
                        .owed
                        .extend(hub.and_then(|hub| hub.relay(submission.relayed())));
                    self.relayed.push(submission);
                }
                effect => self.effects.push(effect),
            }
        }
    }

    /// Withdraws topics that no channel has claimed under this plan, once every tree is known.
    pub(super) fn withdraw_unclaimed(&mut self, parts: &mut RunParts) {
        if self.engine.sources().are_settled() {
            for topic in self.topics.take_unclaimed() {
                self.perform_effect(Effect::Withdraw(topic), parts);
            }
        }
    }

    /// Requests a reading of Change Lists.
    fn take_changes(&self, request: TakeRequest, parts: &RunParts) {
        let keys = parts.saver.store().key_reader();
        let recent_keys = self.trees.recent_keys();
        let job = ReadJob::new(request, self.engine.plan(), keys, recent_keys);
        self.change_reader.read(job);
    }

    pub(super) fn perform_effect(&mut self, effect: Effect, parts: &mut RunParts) {
        match effect {
            Effect::Save(_) => {}
            Effect::Serve(page) => {
                self.topics.serve(page);
                parts.failpoints.pass(Failpoint::Served);
            }
            Effect::ServeLogged(mut page, id, first, last) => {
                let window = &self.engine.plan().window;
                match merged(&parts.saver, id, (first, last), window) {
                    Ok(body) => page.body = body,
                    Err(error) => {
                        let topic = &page.topic;
                        error!(%topic, error, "{topic} serves its last notification only: {error}");
                    }
                }
                self.perform_effect(Effect::Serve(page), parts);
            }
            Effect::Withdraw(topic) => {
                self.topics.withdraw(&topic);
                if let Some(hub) = parts.hub.linked() {
                    hub.end_topic(&topic);
                }
            }
            // It was cut just before the stop: it is sent at the next start.
            Effect::Submit(_) | Effect::SubmitLogged(..) if parts.is_stopping() => {}
            Effect::Submit(submission) => self.submissions.submit(submission),
            Effect::SubmitLogged(submission, part) => {
                if let Some(submission) = with_body(submission, part, parts) {
                    self.submissions.submit(submission);
                }
            }
            Effect::Take(request) => {
                parts.failpoints.pass(Failpoint::Reading);
                self.take_changes(*request, parts);
            }
            Effect::Look(paths) => self.trees.look(&paths),
            Effect::Explain(paths) => self.trees.explain(&paths),
            Effect::Tell(fact) => {
                self.count_fact(&fact, parts);
                log::log_fact(&fact);
            }
        }
    }
}

/// Returns a submission with its body from the log. Without it, the attempt counts as failed.
fn with_body(submission: Submission, part: LogPart, parts: &RunParts) -> Option<Submission> {
    match logged_part(&parts.saver, submission.channel, submission.seq, part) {
        Ok(body) => Some(Submission { body, ..submission }),
        Err(error) => {
            let (topic, seq) = (&submission.topic, submission.seq);
            error!(%topic, seq, error, "cannot read notification {seq} of {topic}: {error}");
            let answer = Answer::Failed(error);
            let _ = parts
                .inputs
                .send(Input::Work(SourceInput::Event(Event::Answered {
                    channel: submission.channel,
                    hub: submission.hub,
                    seq,
                    answer,
                    jitter: fastrand::f64(),
                })));
            None
        }
    }
}

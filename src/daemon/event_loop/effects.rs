//! What the engine asks for: all that is to be remembered is written first, and the rest is done once it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, error, info};

use crate::announce::delivery::{Answer, Submission};
use crate::announce::event::{Effect, Event};
use crate::announce::plan::Mode;
use crate::daemon::event_loop::unsaved::Unsaved;
use crate::daemon::event_loop::{EventLoop, Input, LOOK, PROBE};
use crate::daemon::failpoints::Failpoint;
use crate::daemon::log;

/// What the embedded hub answers.
const ACCEPTED: Answer = Answer::Status {
    status: 202,
    content_type: None,
    retry_after: None,
    excerpt: String::new(),
};
/// How long after a failure to save it is tried again.
const SAVE_AGAIN: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Sorts effects into what is written and what comes after. The embedded hub accepts by owing each
    /// subscriber a delivery, in the same transaction.
    pub(super) fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Save(save) => self.unsaved.save.merge(*save),
                // What is not begun now is begun at the next start.
                Effect::Submit(_) if self.stop_by.is_some() => {}
                Effect::Submit(submission) if submission.mode == Mode::Embedded => {
                    if let Some(hub) = &self.hub {
                        self.unsaved.owed.extend(hub.relay(&submission));
                    }
                    self.unsaved.relayed.push(submission);
                }
                effect => self.unsaved.then.push(effect),
            }
        }
    }

    /// Saves what the turn changed, then does what it asked for; tells whether the state can be saved. The
    /// store `must_answer` in this turn, or may be left alone while there is nothing for it.
    pub(super) fn commit(&mut self, must_answer: bool) -> bool {
        let now = Instant::now();
        let asks = must_answer || now >= self.ask_at;
        let looks = now >= self.look_at;
        if looks {
            self.look_at = now + LOOK;
        }
        if self.trouble.is_some() && !asks {
            return false;
        }
        let unsaved = &self.unsaved;
        let answered = if unsaved.must_be_written() {
            self.failpoints.saving(&unsaved.save, &unsaved.records);
            let began = Instant::now();
            let saved = self
                .store
                .save(&unsaved.save, &unsaved.records, &unsaved.owed)
                .inspect(|()| self.counts.saves.observe(began.elapsed()));
            Some(saved)
        } else if asks {
            Some(self.store.probe())
        } else {
            looks.then(|| self.store.check())
        };
        if let Some(Err(error)) = answered {
            self.counts.save_failures += 1;
            let trouble = log::error_chain(&error);
            if self.trouble.as_ref() != Some(&trouble) {
                error!(
                    error = trouble,
                    "cannot save the state; nothing is sent until it can be saved: {trouble}"
                );
            }
            self.trouble = Some(trouble);
            self.ask_at = Instant::now() + SAVE_AGAIN;
            return false;
        }
        if asks || self.unsaved.must_be_written() {
            self.ask_at = Instant::now() + PROBE;
        }
        if self.trouble.take().is_some() {
            info!("the state can be saved again");
        }
        let Unsaved {
            save,
            records,
            owed,
            relayed,
            then,
        } = std::mem::take(&mut self.unsaved);
        self.failpoints.saved(&save, &records);
        for effect in then {
            self.perform(effect);
        }
        if let Some(hub) = &self.hub
            && !owed.is_empty()
        {
            hub.dispatch(owed);
            self.failpoints.pass(Failpoint::Dispatched);
        }
        self.accepted
            .extend(relayed.into_iter().map(|submission| Event::Answered {
                channel: submission.channel,
                hub: submission.hub,
                seq: submission.seq,
                answer: ACCEPTED,
                jitter: 0.0,
            }));
        true
    }

    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Save(_) => {}
            Effect::Serve(page) => {
                self.unclaimed.remove(&page.topic);
                self.topics.serve(page);
                self.failpoints.pass(Failpoint::Served);
            }
            Effect::Withdraw(topic) => {
                self.topics.withdraw(&topic);
                if let Some(hub) = &self.hub {
                    hub.end_topic(&topic);
                }
            }
            // It was asked for just before the stop: sent at the next start.
            Effect::Submit(_) if self.stop_by.is_some() => {}
            Effect::Submit(submission) => self.submit(submission),
            Effect::Look(paths) => {
                for tree in &self.trees {
                    tree.look(paths.clone());
                }
            }
            Effect::Explain(paths) => {
                for tree in &self.trees {
                    tree.explain(paths.clone());
                }
            }
            Effect::Tell(fact) => {
                self.counts.tell(&fact);
                log::fact(&fact);
            }
        }
    }

    fn submit(&mut self, submission: Submission) {
        let Submission {
            channel,
            topic,
            hub,
            seq,
            ..
        } = &submission;
        debug!(%topic, %hub, seq, "submitting notification {seq} to {hub}");
        self.under_way.insert((*channel, hub.clone(), *seq));
        let publisher = Arc::clone(&self.publisher);
        let inputs = self.inputs.clone();
        let failpoints = self.failpoints.clone();
        self.submitting.spawn(async move {
            failpoints.pass(Failpoint::Submitting);
            let answer = publisher.submit(&submission).await;
            failpoints.pass(Failpoint::Answered);
            // A stopped loop hears it at the next start, by submitting again.
            let _ = inputs.send(Input::Event(Event::Answered {
                channel: submission.channel,
                hub: submission.hub,
                seq: submission.seq,
                answer,
                jitter: fastrand::f64(),
            }));
        });
    }
}

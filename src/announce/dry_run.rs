//! The submissions that would be made if nothing else happened: the engine played forward without a clock, a disk or a hub.

use std::collections::VecDeque;

use jiff::Timestamp;

use crate::announce::delivery::Submission;
use crate::announce::engine::Engine;
use crate::announce::event::{Effect, Event};
use crate::announce::observation::{Look, Observation};
use crate::announce::plan::Mode;
use crate::http::answer::Answer;

/// A submission, and when it would be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSubmission {
    pub at: Timestamp,
    pub submission: Submission,
}

const ACCEPTED: Answer = Answer::Status {
    status: 202,
    content_type: None,
    retry_after: None,
    excerpt: String::new(),
};

/// Plays an engine forward from `now` to `until`: every hub accepts at once, every ping is fetched, and what is
/// missing stays away. `begun` are the effects that are still to be performed.
pub fn play_forward(
    engine: &mut Engine,
    begun: Vec<Effect>,
    now: Timestamp,
    until: Timestamp,
) -> Vec<PlannedSubmission> {
    let mut planned = Vec::new();
    let mut now = now;
    let mut effects = VecDeque::from(begun);
    loop {
        while let Some(effect) = effects.pop_front() {
            for event in consequences(&effect, now) {
                effects.extend(engine.step(event, now.into()));
            }
            if let Effect::Submit(submission) | Effect::SubmitLogged(submission, _) = effect {
                planned.push(PlannedSubmission {
                    at: now,
                    submission,
                });
            }
        }
        match engine.wake() {
            Some(at) if at <= until => {
                now = now.max(at);
                effects.extend(engine.step(Event::Tick, now.into()));
            }
            _ => return planned,
        }
    }
}

/// Returns the events that would answer to an effect.
fn consequences(effect: &Effect, at: Timestamp) -> Vec<Event> {
    match effect {
        Effect::Submit(submission) | Effect::SubmitLogged(submission, _) => {
            let answered = Event::Answered {
                channel: submission.channel,
                hub: submission.hub.clone(),
                seq: submission.seq,
                answer: ACCEPTED,
                jitter: 0.0,
            };
            let is_ping = submission.mode == Mode::Ping;
            let fetched = is_ping.then(|| Event::Fetched(submission.topic.clone()));
            std::iter::once(answered).chain(fetched).collect()
        }
        // Only what is missing is looked at again, before its deletion is believed (R15).
        Effect::Look(paths) => {
            let looked = paths.iter().map(|path| Observation {
                path: path.clone(),
                at,
                look: Look::Missing,
            });
            vec![Event::Observed(looked.collect())]
        }
        Effect::Save(_)
        | Effect::Serve(_)
        | Effect::ServeLogged(..)
        | Effect::Take(_)
        | Effect::Withdraw(_)
        | Effect::Explain(_)
        | Effect::Tell(_) => Vec::new(),
    }
}

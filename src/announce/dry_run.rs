//! The submissions that would be made if nothing else happened: the engine played forward without a clock, a disk or a hub.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::uri::{Hub, Uri};
use websub::answer::Answer;

use crate::announce::changes::log::LogPart;
use crate::announce::changes::round::{TakeRequest, TakenRound};
use crate::announce::delivery::Submission;
use crate::announce::engine::Engine;
use crate::announce::event::{Effect, Event};
use crate::announce::ids::ChannelId;
use crate::announce::observation::{Look, Observation};
use crate::announce::plan::Mode;

/// A submission, and when it would be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSubmission {
    pub at: Timestamp,
    pub submission: Submission,
}

/// Access to Change Lists and to the log of their changes, which the engine does not have.
#[expect(missing_debug_implementations, reason = "it has closures only")]
pub struct ChangeFiles<'a> {
    /// Function that takes what is fresh in Change Lists; it returns nothing if there is no state to compare them with.
    pub take: &'a dyn Fn(TakeRequest) -> Option<TakenRound>,
    /// Function that returns the body of a logged notification, or of a part of it.
    pub logged: &'a dyn Fn(ChannelId, u64, LogPart) -> Option<Arc<[u8]>>,
}

/// Plays an engine forward from `now` to `until`: every hub accepts at once, every ping is fetched, and what is
/// missing stays away. `begun` are the effects that are still to be performed.
///
/// Of each set, one round of changes is taken, since nothing is saved that tells the next one what was taken; and of each
/// change channel, the first notification to each hub is returned.
pub fn play_forward(
    engine: &mut Engine,
    begun: Vec<Effect>,
    changes: &ChangeFiles<'_>,
    now: Timestamp,
    until: Timestamp,
) -> Vec<PlannedSubmission> {
    let mut planned = Vec::new();
    let mut now = now;
    let mut effects = VecDeque::from(begun);
    let mut taken: BTreeSet<Uri> = BTreeSet::new();
    let mut told: BTreeSet<(ChannelId, Hub)> = BTreeSet::new();
    let mut bodies: BTreeMap<(ChannelId, u64), Arc<[u8]>> = BTreeMap::new();
    loop {
        while let Some(effect) = effects.pop_front() {
            for event in consequences(&effect, now) {
                effects.extend(engine.step(event, now.into()));
            }
            let submission = match effect {
                Effect::Submit(submission) => submission,
                Effect::SubmitLogged(submission, part) => {
                    let key = (submission.channel, submission.seq);
                    if !told.insert((submission.channel, submission.hub.clone())) {
                        continue;
                    }
                    let body = match bodies.get(&key) {
                        Some(body) => Some(Arc::clone(body)),
                        None => (changes.logged)(key.0, key.1, part),
                    };
                    Submission {
                        body: body.unwrap_or(submission.body),
                        ..submission
                    }
                }
                Effect::Save(save) => {
                    let rows = save.change_log.into_iter();
                    bodies.extend(rows.filter_map(|(key, row)| Some((key, row?.body))));
                    continue;
                }
                Effect::Take(request) => {
                    if taken.insert(request.set.clone())
                        && let Some(round) = (changes.take)(*request)
                    {
                        let event = Event::Taken(Box::new(round));
                        effects.extend(engine.step(event, now.into()));
                    }
                    continue;
                }
                _ => continue,
            };
            planned.push(PlannedSubmission {
                at: now,
                submission,
            });
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
                answer: Answer::ACCEPTED,
                jitter: 0.0,
            };
            let is_ping = submission.mode == Mode::Ping;
            let fetched = is_ping.then(|| Event::Fetched(submission.topic.clone()));
            std::iter::once(answered).chain(fetched).collect()
        }
        // Only missing documents are looked at again, before their deletion counts (R15).
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

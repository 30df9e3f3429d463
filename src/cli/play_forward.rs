//! The submissions that would be made if nothing else happened: the engine played forward without a clock, a disk or a hub.

use std::collections::{BTreeSet, VecDeque};

use jiff::Timestamp;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Uri};
use websub::answer::Answer;

use announce::changes::round::{RoundAnswer, RoundRequest};
use announce::delivery::Submission;
use announce::event::{Effect, Event};
use announce::observation::{Look, Observation};
use announce::plan::PublishMode;
use announce::state::{ChannelId, Result};
use announce::steps::engine::Engine;

/// Plays an engine forward from `now` to `until`: every hub accepts at once, every ping is fetched, and what is
/// missing stays away. `begun` are the effects that are still to be performed; `take` takes what is fresh in Change Lists, and
/// returns nothing if there is no state to compare them with.
///
/// Of each set, one round of changes is taken, since nothing is saved that tells the next one what was taken; and of each
/// change channel, the first notification to each hub is returned.
pub fn play_forward(
    engine: &mut Engine,
    begun: Vec<Effect>,
    take: impl Fn(RoundRequest) -> Option<RoundAnswer>,
    now: Timestamp,
    until: Timestamp,
) -> Result<Vec<(Timestamp, Submission)>> {
    let mut planned = Vec::new();
    let mut now = now;
    let mut effects = VecDeque::from(begun);
    let mut taken: BTreeSet<Uri> = BTreeSet::new();
    let mut told: BTreeSet<(ChannelId, Hub)> = BTreeSet::new();
    loop {
        while let Some(effect) = effects.pop_front() {
            let events = match effect {
                Effect::Submit(submission) => {
                    let events = answers(&submission);
                    let account = (submission.channel, submission.hub.clone());
                    if submission.kind == ChannelKind::Framework || told.insert(account) {
                        planned.push((now, submission));
                    }
                    events
                }
                // Only missing documents are looked at again, before their deletion counts (R15).
                Effect::Look(paths) => {
                    let looked = paths.into_iter().map(|path| Observation {
                        path,
                        at: now,
                        look: Look::Missing,
                    });
                    vec![Event::Observed(looked.collect())]
                }
                Effect::Take(request) => {
                    let is_first = taken.insert(request.set.clone());
                    let round = is_first.then(|| take(*request)).flatten();
                    round
                        .map(|round| Event::Taken(Box::new(round)))
                        .into_iter()
                        .collect()
                }
                Effect::Serve(_) | Effect::Withdraw(_) | Effect::Explain(_) | Effect::Tell(_) => {
                    Vec::new()
                }
            };
            if !events.is_empty() {
                effects.extend(engine.step(events, now.into())?);
            }
        }
        match engine.wake {
            Some(at) if at <= until => {
                now = now.max(at);
                effects.extend(engine.step(vec![Event::Tick], now.into())?);
            }
            _ => return Ok(planned),
        }
    }
}

/// Returns the events that would answer a submission.
fn answers(submission: &Submission) -> Vec<Event> {
    let answered = Event::Answered {
        channel: submission.channel,
        hub: submission.hub.clone(),
        seq: submission.seq,
        answer: Answer::ACCEPTED,
        jitter: 0.0,
    };
    let is_ping = submission.mode == PublishMode::Ping;
    let fetched = is_ping.then(|| Event::Fetched(submission.topic.clone()));
    std::iter::once(answered).chain(fetched).collect()
}

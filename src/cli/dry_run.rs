//! `run --dry-run`: the requests that would be sent if the daemon ran now and nothing else changed. Nothing is sent,
//! and nothing saved.

use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::time::Duration;

use announce::delivery::Submission;
use announce::event::{Effect, Event};
use announce::observation::{Found, Observation};
use announce::plan::PublishMode;
use announce::state::open::{open_to_read, state_file};
use announce::state::{self, ChannelId, Db, hub};
use announce::time::later;
use jiff::Timestamp;
use messaging::client::message_frames;
use messaging::settings::BrokerSettings;
use resourcesync::capability::ChannelKind;
use resourcesync::uri::{Hub, Uri};
use websub::answer::Answer;
use websub::hub::delivery::{headers, signature};
use websub::hub::{Relay, SavedHub, Subscription};
use websub::publisher::http::preview;
use websub::publisher::settings::PublishSettings;
use websub::retry::MAX_RETRY_AFTER;
use websub::secret::MASKED;

use crate::cli::Exit;
use crate::cli::one_shot_scan::{OneShotScan, scan_once};
use crate::cli::output::{counted, eprint_line, print};
use crate::config::Config;
use crate::daemon::change_reader::{RoundJob, take_fresh};
use crate::tree::ListKeyCache;
use announce::changes::selection::KeptFreshSelections;

pub fn dry_run(config: &Config) -> anyhow::Result<Exit> {
    let hubs = config.publish_settings()?;
    let brokers = config.broker_settings()?;
    let (saved, relays) = match open_to_read(&config.state_dir)? {
        Some(state) => (hub::load(Db(&state))?, hub::load_relays(Db(&state))?),
        None => (SavedHub::default(), Vec::new()),
    };
    let mut scan = scan_once(config)?;
    let now = scan.now;
    // By then, everything about the current tree has been announced.
    let graces = config.sources.iter().map(|source| source.deletion_grace.0);
    let window = config.window.max_wait.0 + config.window.hold.0;
    let longest = graces.max().unwrap_or_default() + window + MAX_RETRY_AFTER;
    let until = later(now, longest);
    let planned = play_forward(&mut scan, config, until)?;

    let mut plans = scan.engine.plan.hubs.iter();
    let embedded = plans
        .find(|plan| plan.mode == PublishMode::Embedded)
        .map(|plan| &plan.hub);
    // Requests as text, each below a line that describes it; first the deliveries owed since an earlier run.
    let mut shown = Vec::new();
    for relay in &relays {
        for (subscription, progress) in &saved.subscriptions {
            let at = progress.next_try.map_or(now, |at| at.max(now));
            if progress.heard < relay.id {
                shown.extend(delivery_text(embedded, relay, subscription, (at, now)));
            }
        }
    }
    for (at, submission) in &planned {
        let wait = wait_in_words(*at, now);
        if let Some(broker) = brokers.iter().find(|broker| broker.name == submission.hub) {
            shown.push(format!("# {wait}: {}", message_text(submission, broker)));
            continue;
        }
        if let Some(hub) = hubs.iter().find(|hub| hub.hub == submission.hub) {
            shown.push(format!("# {wait}: {}", request_text(submission, hub)));
            continue;
        }
        let relay = submission.as_relay();
        for (subscription, _) in &saved.subscriptions {
            shown.extend(delivery_text(embedded, &relay, subscription, (*at, now)));
        }
    }
    scan.notices.into_iter().for_each(eprint_line);
    print(|out| shown.iter().try_for_each(|shown| writeln!(out, "{shown}")))?;
    let requests = counted(shown.len(), "request");
    eprint_line(format_args!(
        "{requests} would be sent; none was, and nothing was saved"
    ));
    if !scan.has_state {
        eprint_line("there is no state yet: the first run takes what is there as known");
    }
    Ok(Exit::Fine)
}

fn request_text(submission: &Submission, settings: &PublishSettings) -> String {
    let Submission {
        seq, topic, hub, ..
    } = submission;
    let kind = if submission.mode == PublishMode::Ping {
        "ping for notification"
    } else {
        "notification"
    };
    let request = submission.http_request();
    let url = request.url(&settings.publish_url);
    let request = preview(&url, request.headers, &request.body, Some(settings));
    format!("{kind} {seq} of {topic}, to {hub}\n{request}")
}

/// Returns the messages that a broker would be sent, without the headers that identify the transaction.
fn message_text(submission: &Submission, broker: &BrokerSettings) -> String {
    let Submission { seq, topic, .. } = submission;
    let frames = message_frames(&submission.broker_notification(), broker)
        .into_iter()
        .map(|frame| {
            let headers = frame.headers.iter().map(|(name, value)| {
                let mut secret = broker.headers.iter().filter(|header| !header.is_public);
                let is_secret = secret.any(|header| *name == header.name);
                let value = if is_secret { MASKED } else { value.as_str() };
                format!("{name}: {value}\n")
            });
            let headers: String = headers.collect();
            let body = String::from_utf8_lossy(&frame.body);
            format!("SEND\n{headers}\n{}\n", body.trim_end())
        })
        .collect::<Vec<_>>()
        .join("\n");
    let (name, address) = (&broker.name, &broker.address);
    format!("notification {seq} of {topic}, to broker {name} at {address}\n{frames}")
}

/// Returns the delivery of the embedded hub to a subscriber, if there is one at that time.
fn delivery_text(
    hub: Option<&Hub>,
    relay: &Relay,
    subscription: &Subscription,
    (at, now): (Timestamp, Timestamp),
) -> Option<String> {
    if subscription.topic != relay.topic || at >= subscription.expires {
        return None;
    }
    let secret = subscription.secret.as_ref();
    let signature = secret.map(|secret| signature(secret, &relay.body));
    let Relay { seq, topic, .. } = relay;
    let headers = headers(topic, &relay.headers, hub?, signature);
    let (wait, callback) = (wait_in_words(at, now), &subscription.callback);
    let request = preview(callback.as_str(), headers, &relay.body, None);
    Some(format!(
        "# {wait}: notification {seq} of {topic}, to the subscriber {callback}\n{request}"
    ))
}

/// Returns the time until then in words.
fn wait_in_words(at: Timestamp, now: Timestamp) -> String {
    let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    match wait.as_secs_f64() {
        seconds if seconds < 0.1 => "at once".to_owned(),
        seconds => format!("after {seconds:.1} s"),
    }
}

/// Plays the engine of a scan forward from its end to `until`, without a clock or a hub: every hub accepts at once, every
/// ping is fetched, and what is missing stays away. What is fresh in Change Lists is taken if there is a state to compare
/// them with. Returns the submissions that would be made if nothing else happened.
///
/// Of each set, one round of changes is taken, since nothing is saved that tells the next one what was taken; and of each
/// change channel, the first notification to each hub is returned.
fn play_forward(
    scan: &mut OneShotScan,
    config: &Config,
    until: Timestamp,
) -> state::Result<Vec<(Timestamp, Submission)>> {
    let mut planned = Vec::new();
    let (engine, mut now) = (&mut scan.engine, scan.now);
    let mut effects = VecDeque::from(std::mem::take(&mut scan.begun));
    let mut taken: BTreeSet<Uri> = BTreeSet::new();
    let mut told: BTreeSet<(ChannelId, Hub)> = BTreeSet::new();
    loop {
        while let Some(effect) = effects.pop_front() {
            let events = match effect {
                Effect::Submit(submission) => {
                    let events = answer_events(&submission);
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
                        look: Found::Missing,
                    });
                    vec![Event::Observed(looked.collect())]
                }
                // Once for each set.
                Effect::Take(request) if scan.has_state && taken.insert(request.set.clone()) => {
                    let keys = state_file(&config.state_dir);
                    let cache = ListKeyCache::default();
                    let job = RoundJob::new(*request, &engine.plan, keys, cache);
                    let outcome = take_fresh(&job, &KeptFreshSelections::default());
                    vec![Event::Taken(Box::new(job.request.answer_with(outcome)))]
                }
                Effect::Take(_)
                | Effect::Serve(_)
                | Effect::Withdraw(_)
                | Effect::Explain(_)
                | Effect::Tell(_) => Vec::new(),
            };
            if !events.is_empty() {
                effects.extend(engine.step(events, now.into(), |_, _| Ok(()))?);
            }
        }
        match engine.wake {
            Some(at) if at <= until => {
                now = now.max(at);
                effects.extend(engine.step(vec![Event::Tick], now.into(), |_, _| Ok(()))?);
            }
            _ => return Ok(planned),
        }
    }
}

/// Returns the events that would answer a submission.
fn answer_events(submission: &Submission) -> Vec<Event> {
    let answered = Event::Answered {
        id: (submission.channel, submission.hub.clone(), submission.seq),
        answer: Answer::ACCEPTED,
        jitter: 0.0,
    };
    let is_ping = submission.mode == PublishMode::Ping;
    let fetched = is_ping.then(|| Event::Fetched(submission.topic.clone()));
    std::iter::once(answered).chain(fetched).collect()
}

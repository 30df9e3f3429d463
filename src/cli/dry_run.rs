//! `run --dry-run`: the requests that would be sent if the daemon ran now and nothing else changed. Nothing is sent,
//! and nothing saved.

use std::io::Write;
use std::time::Duration;

use jiff::Timestamp;
use messaging::client::send_frames;
use messaging::settings::BrokerSettings;
use resourcesync::uri::Hub;
use websub::hub::delivery::{headers, signature};
use websub::hub::{Relay, RelayId, SavedHub, Subscription};
use websub::publisher::preview::Preview;
use websub::publisher::settings::PublishSettings;
use websub::retry::MAX_RETRY_AFTER;
use websub::secret::MASKED;

use crate::cli::Exit;
use crate::cli::one_shot_scan::scan_once;
use crate::cli::output::{counted, print, say};
use crate::cli::play_forward::play_forward;
use crate::config::Config;
use crate::daemon::change_reader::{ReadJob, take};
use crate::tree::ListKeyCache;
use announce::changes::round::{RoundAnswer, RoundRequest};
use announce::changes::selection::Rounds;
use announce::delivery::Submission;
use announce::plan::PublishMode;
use announce::state::open::{open_to_read, state_file};
use announce::state::{Db, hub};
use announce::time::later;

pub fn dry_run(config: &Config) -> anyhow::Result<Exit> {
    let hubs = config.publish_settings()?;
    let brokers = config.broker_settings()?;
    let state = open_to_read(&config.state_dir)?;
    let (saved, relays) = match &state {
        Some(state) => (hub::load(Db(state))?, hub::load_relays(Db(state))?),
        None => (SavedHub::default(), Vec::new()),
    };
    let mut scan = scan_once(config)?;
    let now = scan.now;
    let until = later(now, horizon(config));
    let plan = scan.engine.plan.clone();
    let take = |request: RoundRequest| {
        state.as_ref()?;
        let keys = state_file(&config.state_dir);
        let job = ReadJob::new(request, &plan, keys, ListKeyCache::default());
        Some(RoundAnswer {
            outcome: take(&job, &Rounds::default()),
            set: job.request.set,
            round: job.request.round,
        })
    };
    let planned = play_forward(&mut scan.engine, scan.begun, take, now, until)?;

    let embedded = plan
        .hubs
        .iter()
        .find(|hub| hub.mode == PublishMode::Embedded);
    let embedded = embedded.map(|embedded| &embedded.hub);
    // Requests as text, each below a line that describes it; first the deliveries owed since an earlier run.
    let mut shown = Vec::new();
    for relay in &relays {
        for (subscription, progress) in &saved.subscriptions {
            let at = progress.next_try.map_or(now, |at| at.max(now));
            if progress.heard < relay.id {
                shown.extend(delivery(embedded, relay, subscription, (at, now)));
            }
        }
    }
    for (at, submission) in &planned {
        let wait = wait_in_words(*at, now);
        if let Some(broker) = brokers.iter().find(|broker| broker.name == submission.hub) {
            shown.push(format!("# {wait}: {}", sent(submission, broker)));
            continue;
        }
        match hubs.iter().find(|hub| hub.hub == submission.hub) {
            Some(hub) => shown.push(format!("# {wait}: {}", submitted(submission, hub))),
            None => {
                let relay = relay_of(submission);
                let subscriptions = saved.subscriptions.iter();
                shown.extend(subscriptions.filter_map(|(subscription, _)| {
                    delivery(embedded, &relay, subscription, (*at, now))
                }));
            }
        }
    }
    for notice in scan.notices {
        say(notice);
    }
    print(|out| shown.iter().try_for_each(|shown| writeln!(out, "{shown}")))?;
    let count = shown.len();
    say(format_args!(
        "{} would be sent; none was, and nothing was saved",
        counted(count, "request")
    ));
    if !scan.has_state {
        say("there is no state yet: the first run takes what is there as known");
    }
    Ok(Exit::Fine)
}

/// Returns the time after which everything about the current tree has been announced.
fn horizon(config: &Config) -> Duration {
    let graces = config.sources.iter().map(|source| source.deletion_grace.0);
    let window = config.window.max_wait.0 + config.window.hold.0;
    graces.max().unwrap_or_default() + window + MAX_RETRY_AFTER
}

fn submitted(submission: &Submission, settings: &PublishSettings) -> String {
    let Submission {
        seq, topic, hub, ..
    } = submission;
    let kind = match submission.mode {
        PublishMode::Ping => "ping for notification",
        PublishMode::Content
        | PublishMode::ContentQuery
        | PublishMode::Embedded
        | PublishMode::Broker => "notification",
    };
    let request = Preview::of_notification(submission.request(), settings);
    format!("{kind} {seq} of {topic}, to {hub}\n{request}")
}

/// Returns the messages that a broker would be sent, without the headers that identify the transaction.
fn sent(submission: &Submission, broker: &BrokerSettings) -> String {
    let Submission { seq, topic, .. } = submission;
    let frames = send_frames(&submission.notification(), broker);
    let frames = frames.into_iter().map(|frame| {
        let headers = frame.headers.iter().map(|(name, value)| {
            let mut secret = broker.headers.iter().filter(|header| !header.is_public);
            let is_secret = secret.any(|header| *name == header.name);
            let value = if is_secret { MASKED } else { value.as_str() };
            format!("{name}: {value}\n")
        });
        let headers: String = headers.collect();
        let body = String::from_utf8_lossy(&frame.body);
        format!("SEND\n{headers}\n{}\n", body.trim_end())
    });
    let frames = frames.collect::<Vec<_>>().join("\n");
    let (name, address) = (&broker.name, &broker.address);
    format!("notification {seq} of {topic}, to broker {name} at {address}\n{frames}")
}

/// Returns a submission to the embedded hub, as it would relay it.
fn relay_of(submission: &Submission) -> Relay {
    let notification = submission.relayed();
    Relay {
        id: RelayId(u64::MAX),
        topic: notification.topic,
        seq: notification.seq,
        body: notification.body,
        headers: notification.headers,
    }
}

/// Returns the delivery of the embedded hub to a subscriber, if there is one at that time.
fn delivery(
    hub: Option<&Hub>,
    relay: &Relay,
    subscription: &Subscription,
    (at, now): (Timestamp, Timestamp),
) -> Option<String> {
    if subscription.topic != relay.topic || !subscription.is_live(at) {
        return None;
    }
    let secret = subscription.secret.as_ref();
    let signature = secret.map(|secret| signature(secret, &relay.body));
    let Relay { seq, topic, .. } = relay;
    let headers = headers(topic, &relay.headers, hub?, signature);
    let (wait, callback) = (wait_in_words(at, now), &subscription.callback);
    let request = Preview::new(callback.as_str(), headers, &relay.body);
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

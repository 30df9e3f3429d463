//! `run --dry-run`: the requests that would be sent if the daemon ran now and nothing else changed. Nothing is sent,
//! and nothing saved.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::channel::later;
use crate::announce::delivery::Submission;
use crate::announce::engine::Engine;
use crate::announce::plan::Mode;
use crate::announce::rehearsal::rehearse;
use crate::announce::subscription::relay::headers;
use crate::announce::subscription::{Delivery, DeliveryId, Subscription};
use crate::cli::options::Exit;
use crate::cli::output::print;
use crate::cli::survey::survey;
use crate::config::Config;
use crate::daemon::settings;
use crate::resourcesync::uri::{Hub, Topic, Uri};
use crate::store::Store;
use crate::websub::preview::Preview;
use crate::websub::publish::HubSettings;

/// The longest that a retry waits (R23).
const LONGEST_RETRY: Duration = Duration::from_secs(3600);

/// A request, and what it is.
struct Shown {
    title: String,
    request: Preview,
}

pub fn dry_run(config: &Config) -> anyhow::Result<Exit> {
    let hubs = settings::publishers(config)?;
    let (subscriptions, owed) = match Store::open_to_read(&config.state_dir)? {
        Some(store) => store.load_hub()?,
        None => (Vec::new(), Vec::new()),
    };
    let mut survey = survey(config)?;
    let now = Timestamp::now();
    let until = later(now, horizon(config));
    let rehearsed = rehearse(&mut survey.engine, survey.begun, now, until);

    let relay = Relay::new(&survey.engine, &subscriptions);
    let mut shown: Vec<Shown> = owed
        .iter()
        .filter_map(|delivery| relay.owed(delivery, now))
        .collect();
    for submission in &rehearsed {
        let at = submission.at;
        let submission = &submission.submission;
        match hubs.iter().find(|hub| hub.hub == submission.hub) {
            Some(hub) => shown.push(submitted(submission, hub, at, now)),
            None => shown.extend(relay.relayed(submission, at, now)),
        }
    }
    for notice in survey.notices {
        eprintln!("rsnotify: {notice}");
    }
    print(|out| {
        shown
            .iter()
            .try_for_each(|shown| writeln!(out, "# {}\n{}", shown.title, shown.request))
    })?;
    let count = shown.len();
    eprintln!("rsnotify: {count} requests would be sent; none was, and nothing was saved");
    if !survey.has_state {
        eprintln!("rsnotify: there is no state yet: the first run takes what is there as known");
    }
    Ok(Exit::Fine)
}

/// Whatever is still to be said of the tree as it is now has been said after so long.
fn horizon(config: &Config) -> Duration {
    let graces = config
        .sources
        .iter()
        .map(|source| source.plan.deletion_grace);
    let window = config.window.max_wait + config.window.hold;
    graces.max().unwrap_or_default() + window + LONGEST_RETRY
}

fn submitted(submission: &Submission, hub: &HubSettings, at: Timestamp, now: Timestamp) -> Shown {
    let Submission { seq, topic, .. } = submission;
    let kind = match submission.mode {
        Mode::Ping => "ping for notification",
        Mode::Content | Mode::ContentQuery | Mode::Embedded => "notification",
    };
    Shown {
        title: format!(
            "{}: {kind} {seq} of {topic}, to {}",
            wait(at, now),
            submission.hub
        ),
        request: Preview::of_submission(submission, hub),
    }
}

/// What the embedded hub would send to its subscribers.
struct Relay<'a> {
    hub: Option<Hub>,
    capability_lists: HashMap<Topic, Uri>,
    subscriptions: &'a [Subscription],
}

impl<'a> Relay<'a> {
    fn new(engine: &Engine, subscriptions: &'a [Subscription]) -> Relay<'a> {
        let hubs = engine.plan().hubs.iter();
        let channels = engine.channels().into_iter();
        let lists = channels.map(|channel| (channel.topic, channel.set));
        let mut own = hubs.filter(|hub| hub.mode == Mode::Embedded);
        Relay {
            hub: own.next().map(|hub| hub.hub.clone()),
            capability_lists: lists.collect(),
            subscriptions,
        }
    }

    /// What was promised to a subscriber before.
    fn owed(&self, delivery: &Delivery, now: Timestamp) -> Option<Shown> {
        let mut subscriptions = self.live(&delivery.topic, delivery.next_try.max(now));
        let subscription = subscriptions.find(|own| own.callback == delivery.callback)?;
        self.shown(delivery, subscription, now)
    }

    fn relayed(&self, submission: &'a Submission, at: Timestamp, now: Timestamp) -> Vec<Shown> {
        let subscriptions = self.live(&submission.topic, at);
        let shown = subscriptions.filter_map(|subscription| {
            let delivery = Delivery {
                id: DeliveryId(0),
                topic: submission.topic.clone(),
                callback: subscription.callback.clone(),
                seq: submission.seq,
                body: submission.body.clone(),
                attempts: 0,
                next_try: at,
            };
            self.shown(&delivery, subscription, now)
        });
        shown.collect()
    }

    fn live<'b>(
        &'b self,
        topic: &'b Topic,
        at: Timestamp,
    ) -> impl Iterator<Item = &'b Subscription> {
        let own = self.subscriptions.iter();
        own.filter(move |own| own.topic == *topic && own.is_live(at))
    }

    fn shown(
        &self,
        delivery: &Delivery,
        subscription: &Subscription,
        now: Timestamp,
    ) -> Option<Shown> {
        let hub = self.hub.as_ref()?;
        let list = self.capability_lists.get(&delivery.topic);
        let headers = headers(delivery, hub, list, subscription.secret.as_ref());
        let Delivery {
            seq,
            topic,
            callback,
            ..
        } = delivery;
        let wait = wait(delivery.next_try, now);
        Some(Shown {
            title: format!("{wait}: notification {seq} of {topic}, to the subscriber {callback}"),
            request: Preview::new(callback.as_str(), headers, &delivery.body),
        })
    }
}

/// When, for people.
fn wait(at: Timestamp, now: Timestamp) -> String {
    let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    match wait.as_secs_f64() {
        seconds if seconds < 0.1 => "at once".to_owned(),
        seconds => format!("after {seconds:.1} s"),
    }
}

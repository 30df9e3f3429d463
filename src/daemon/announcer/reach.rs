//! Attempts to reach each hub and broker at the start, before there is anything to tell it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use messaging::client::Brokers;
use resourcesync::uri::Hub;
use tokio::task::JoinSet;
use tracing::{info, warn};
use websub::answer::Answer;
use websub::probe::http as probe;
use websub::publisher::settings::PublishSettings;

use crate::report::status::NeverReachedHub;
use announce::event::Event;

/// Time until one that could not be reached is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// The hubs and brokers that could not be reached since the start.
#[derive(Debug, Default)]
pub struct NeverReachedHubs {
    unreached: Arc<Mutex<BTreeMap<Hub, NeverReachedHub>>>,
    attempts: JoinSet<()>,
}

impl NeverReachedHubs {
    /// Tries to reach all of these, each until it was reached once. Must be called within a tokio runtime.
    pub fn begin(&mut self, hubs: Vec<PublishSettings>, brokers: &Arc<Brokers>) {
        let names: Vec<Hub> = brokers.durations().into_keys().collect();
        // What was named before a reload is not named again. Attempts of before write to what was theirs.
        let mut known = lock(&self.unreached).clone();
        known.retain(|hub, _| names.contains(hub) || hubs.iter().any(|it| it.hub == *hub));
        self.unreached = Arc::new(Mutex::new(known));
        self.attempts = JoinSet::new();
        let hubs = hubs.into_iter().map(|hub| (hub.hub.clone(), Some(hub)));
        for (name, settings) in hubs.chain(names.into_iter().map(|broker| (broker, None))) {
            let unreached = Arc::clone(&self.unreached);
            let attempts = probe_until_reached(name, settings, Arc::clone(brokers), unreached);
            self.attempts.spawn(attempts);
        }
    }

    /// Takes note of an answer to a submission: a hub that answers was reached.
    pub fn note(&self, event: &Event) {
        if let Event::Answered { hub, answer, .. } = event
            && !matches!(answer, Answer::Failed(_))
        {
            reached(hub, &self.unreached);
        }
    }

    /// Returns those that could not be reached yet.
    pub fn unreached(&self) -> Vec<NeverReachedHub> {
        lock(&self.unreached).values().cloned().collect()
    }
}

/// Tries to reach a hub, or without settings of one a broker, until it was reached.
async fn probe_until_reached(
    hub: Hub,
    settings: Option<PublishSettings>,
    brokers: Arc<Brokers>,
    unreached: Arc<Mutex<BTreeMap<Hub, NeverReachedHub>>>,
) {
    while let Some((reason, is_refused)) = failure(&hub, settings.as_ref(), &brokers).await {
        let since = lock(&unreached).get(&hub).map(|known| known.since);
        if since.is_none() && is_refused {
            warn!(%hub, reason, "{hub} refuses the login: {reason}");
        } else if since.is_none() {
            warn!(%hub, reason, "{hub} cannot be reached: {reason}");
        }
        let failed = NeverReachedHub {
            hub: hub.clone(),
            since: since.unwrap_or_else(Timestamp::now),
            reason,
            is_refused,
        };
        lock(&unreached).insert(hub.clone(), failed);
        // A wrong login is not repeated: that may lock the user.
        if is_refused {
            return;
        }
        tokio::time::sleep(AGAIN).await;
        if !lock(&unreached).contains_key(&hub) {
            return;
        }
    }
    reached(&hub, &unreached);
}

/// Returns the reason why a hub or broker cannot be reached, and whether that is a refusal which an operator must end.
async fn failure(
    hub: &Hub,
    settings: Option<&PublishSettings>,
    brokers: &Brokers,
) -> Option<(String, bool)> {
    if let Some(settings) = settings {
        let answers = probe::hubs(vec![settings.clone()]).await;
        let failure = answers.into_iter().find_map(Result::err)?;
        return Some((failure.to_string(), false));
    }
    let failure = brokers.connect(hub).await.err()?;
    Some((failure.to_string(), failure.needs_operator()))
}

fn reached(hub: &Hub, unreached: &Mutex<BTreeMap<Hub, NeverReachedHub>>) {
    if lock(unreached).remove(hub).is_some() {
        info!(%hub, "{hub} can be reached");
    }
}

fn lock(
    unreached: &Mutex<BTreeMap<Hub, NeverReachedHub>>,
) -> MutexGuard<'_, BTreeMap<Hub, NeverReachedHub>> {
    unreached.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Hubs and brokers: submissions that are under way, each of which is one task whose answer comes back as an input of the
//! loop; attempts to reach each at the start, before there is anything to tell it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use announce::delivery::{Submission, SubmissionId};
use announce::event::Event;
use announce::plan::PublishMode;
use jiff::Timestamp;
use messaging::client::Brokers;
use resourcesync::uri::Hub;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};
use websub::answer::Answer;
use websub::http::lock;
use websub::probe::http as probe;
use websub::publisher::http::Submitter;
use websub::publisher::settings::PublishSettings;

use crate::daemon::announcer::{AnnouncerInput, RunParts};
use crate::daemon::event_loop::Input;
use crate::daemon::failpoints::Failpoint;
use crate::report::status::NeverReachedHub;

/// Time until one that could not be reached is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// The submitter, the brokers, the submissions whose answers are to come, and who could not be reached since the start.
pub struct Submissions {
    pub submitter: Arc<Submitter>,
    pub brokers: Arc<Brokers>,
    /// Runtime that the submissions run on: they are kept off the threads that serve.
    pub runtime: Handle,
    /// Those that have no answer yet.
    pub under_way: BTreeSet<SubmissionId>,
    pub unreached: Unreached,
    pub probes: JoinSet<()>,
}

/// The hubs and brokers that could not be reached since the start.
type Unreached = Arc<Mutex<BTreeMap<Hub, NeverReachedHub>>>;

impl Submissions {
    /// Starts a submission.
    pub fn submit(&mut self, submission: Submission, parts: &RunParts) {
        let (topic, hub, seq) = (&submission.topic, &submission.hub, submission.seq);
        debug!(%topic, %hub, seq, "submitting notification {seq} to {hub}");
        let id = (submission.channel, hub.clone(), seq);
        self.under_way.insert(id);
        let submitter = Arc::clone(&self.submitter);
        let brokers = Arc::clone(&self.brokers);
        let (inputs, failpoints) = (parts.inputs.clone(), parts.failpoints.clone());
        self.runtime.spawn(async move {
            failpoints.pass(Failpoint::Submitting);
            let answer = match submission.mode {
                PublishMode::Broker => {
                    let notification = submission.broker_notification();
                    brokers.submit(&submission.hub, &notification).await
                }
                _ => submitter.submit(&submission.http_request()).await,
            };
            failpoints.pass(Failpoint::Answered);
            // If the loop has stopped, the next start submits again.
            let _ = inputs.send(Input::Work(AnnouncerInput::Event(Event::Answered {
                id: (submission.channel, submission.hub, submission.seq),
                answer,
                jitter: fastrand::f64(),
            })));
        });
    }

    /// Takes note of an event that may be the answer to a submission: a hub that answers was reached.
    pub fn note_answer(&mut self, event: &Event) {
        if let Event::Answered { id, answer, .. } = event {
            self.under_way.remove(id);
            if !matches!(answer, Answer::Failed(_)) {
                note_reached(&id.1, &self.unreached);
            }
        }
    }

    /// Tries to reach all brokers and these hubs, each until it was reached once. Must be called within a tokio runtime.
    pub fn probe(&mut self, hubs: Vec<PublishSettings>) {
        let brokers: Vec<Hub> = self.brokers.submit_durations().into_keys().collect();
        // What was named before a reload is not named again. Attempts of before write to what was theirs.
        let mut known = lock(&self.unreached).clone();
        known.retain(|hub, _| brokers.contains(hub) || hubs.iter().any(|it| it.hub == *hub));
        self.unreached = Arc::new(Mutex::new(known));
        self.probes = JoinSet::new();
        let hubs = hubs.into_iter().map(|hub| (hub.hub.clone(), Some(hub)));
        for (name, settings) in hubs.chain(brokers.into_iter().map(|broker| (broker, None))) {
            let (brokers, unreached) = (Arc::clone(&self.brokers), Arc::clone(&self.unreached));
            let probes = probe_until_reached(name, settings, brokers, unreached);
            self.probes.spawn(probes);
        }
    }
}

/// Tries to reach a hub, or without settings of one a broker, until it was reached.
async fn probe_until_reached(
    hub: Hub,
    settings: Option<PublishSettings>,
    brokers: Arc<Brokers>,
    unreached: Unreached,
) {
    while let Some((reason, is_refused)) = probe_failure(&hub, settings.as_ref(), &brokers).await {
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
    note_reached(&hub, &unreached);
}

/// Returns the reason why a hub or broker cannot be reached, and whether that is a refusal which an operator must end.
async fn probe_failure(
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

fn note_reached(hub: &Hub, unreached: &Unreached) {
    if lock(unreached).remove(hub).is_some() {
        info!(%hub, "{hub} can be reached");
    }
}

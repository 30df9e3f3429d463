//! Deliveries of notifications: to each subscriber in order, to different subscribers concurrently.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use resourcesync::uri::Topic;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::{debug, error, warn};

use crate::answer::Answer;
use crate::http::{client, lock};
use crate::hub::callback::http::{CallbackError, CallbackLocation};
use crate::hub::delivery::bodies::{LoadedRelay, RelayReader, RelayStore, SendProgress};
use crate::hub::delivery::{DeliveryOutcome, headers, outcome, timeout};
use crate::hub::fair_queue::slots::{FairSlot, FairSlots};
use crate::hub::http::settings::PreparedHub;
use crate::hub::http::state::HubState;
use crate::hub::limits::LogLimit;
use crate::hub::subscriptions::view::LastAttempt;
use crate::hub::subscriptions::{Delivery, DeliveryTask};
use crate::hub::{PendingRelay, SubscriptionKey};
use crate::retry::MAX_ATTEMPTS;
use crate::secret::{Mask, Secret};

/// The error of a request that was cut off in favour of others.
pub const CUT_OFF: &str = "cut off: it took too long while others waited";
/// Delivery tasks started before yielding to other tasks.
const BATCH: usize = 100;
/// Log lines per interval about abandoned deliveries.
const ABANDONED_LINES: u64 = 10;

/// The deliveries of what is pending.
#[derive(Debug)]
pub struct Deliverer {
    pub state: Arc<HubState>,
    relays: RelayReader,
    pub slots: Arc<FairSlots>,
    pub abandoned_lines: LogLimit,
    runtime: Handle,
}

impl Deliverer {
    /// Must be called within a tokio runtime.
    pub fn new(state: Arc<HubState>, relays: RelayStore) -> Deliverer {
        let count = state.settings.get().settings.concurrent_deliveries;
        Deliverer {
            state,
            relays: RelayReader::new(relays),
            slots: FairSlots::new(count),
            abandoned_lines: LogLimit::new(ABANDONED_LINES),
            runtime: Handle::current(),
        }
    }

    /// Begins to deliver what is pending for a topic to the subscribers that have no delivery under way.
    pub fn begin(self: &Arc<Self>, topic: &Topic) {
        let assignments = self.state.subscriptions().assign(topic);
        let deliveries = Arc::clone(self);
        self.runtime.spawn(async move {
            for (count, assignment) in (1..).zip(assignments) {
                tokio::spawn(Arc::clone(&deliveries).deliver_all(assignment));
                if count % BATCH == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }

    /// Begins to deliver what is pending for one subscriber, if it has no delivery under way.
    pub fn begin_one(self: &Arc<Self>, key: &SubscriptionKey) {
        let assignment = self.state.subscriptions().assign_one(key);
        if let Some(assignment) = assignment {
            self.runtime.spawn(Arc::clone(self).deliver_all(assignment));
        }
    }

    /// Logs the numbers of lines that were suppressed.
    pub fn log_suppressed(&self) {
        self.state.settings.get().client.log_suppressed();
        self.state.log_suppressed();
        let abandoned = self.abandoned_lines.next_interval();
        if abandoned > 0 {
            warn!(
                count = abandoned,
                "giving up on more deliveries to failing subscribers: {abandoned}"
            );
        }
    }

    /// Delivers to one subscriber until nothing is pending.
    // Large futures are boxed: of many subscribers, most only wait.
    async fn deliver_all(self: Arc<Self>, assignment: DeliveryTask) {
        let woken = self.state.register(&assignment.key);
        while let Some(next) = self.state.next_delivery(&assignment) {
            let at = next.progress.next_try;
            let wait = at
                .and_then(|at| Duration::try_from(at.duration_since(self.state.clock.now())).ok());
            if let Some(wait) = wait {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    // It may be retried at once.
                    () = woken.notified() => continue,
                }
            }
            let (callback, prepared) = (&assignment.key.callback, self.state.settings.get());
            let resolving = prepared.client.resolve(callback, next.priority);
            let location = Box::pin(resolving).await;
            let host = location.as_ref().map(|location| location.host.clone());
            let slot = match host {
                Ok(host) => tokio::select! {
                    slot = self.slots.acquire(&host, next.priority) => Some(slot),
                    // Its priority may have risen.
                    () = woken.notified() => continue,
                },
                Err(_) if self.slots.is_draining() => return,
                Err(_) => None,
            };
            if !Arc::ptr_eq(&prepared, &self.state.settings.get()) {
                // The policy has changed since the addresses were checked.
                continue;
            }
            Box::pin(self.attempt(&prepared, &assignment, location, slot)).await;
        }
        self.state.unregister(&assignment.key, &woken);
    }

    /// Makes one attempt to deliver.
    async fn attempt(
        &self,
        prepared: &PreparedHub,
        assignment: &DeliveryTask,
        location: Result<CallbackLocation, CallbackError>,
        mut slot: Option<FairSlot>,
    ) {
        // Read at the last moment: the subscription may have ended, or have a new secret.
        let Some(Delivery {
            secret, progress, ..
        }) = self.state.next_delivery(assignment)
        else {
            return;
        };
        let topic = &assignment.key.topic;
        let relay = match self.relays.next(topic, progress.heard).await {
            Ok(relay) => relay,
            Err(error) => {
                if self.abandoned_lines.allow() {
                    error!(
                        %topic, error,
                        "cannot read a pending notification of {topic} from the state file, will retry: {error}"
                    );
                }
                return self.attempted(assignment, None, Err(unreadable(error)));
            }
        };
        let answer = match (&location, &mut slot) {
            (Ok(location), Some(slot)) => {
                let posted = post(prepared, assignment, &relay, secret.as_ref(), location);
                let answer = slot.unless_cut_off(posted).await;
                let answer = answer.unwrap_or_else(|| Err(CUT_OFF.to_owned()));
                if let Ok(Answer::Status { .. }) = answer {
                    slot.was_answered = true;
                }
                answer
            }
            (Ok(_), None) => return,
            (Err(error), _) => Ok(Answer::Failed(error.to_string())),
        };
        self.attempted(assignment, Some(&relay), answer);
    }

    /// Applies the answer to an attempt to deliver a notification, if it could be read, or what kept the hub itself from
    /// delivering it.
    fn attempted(
        &self,
        assignment: &DeliveryTask,
        relay: Option<&LoadedRelay>,
        answer: Result<Answer, String>,
    ) {
        let SubscriptionKey { topic, callback } = &assignment.key;
        let now = self.state.clock.now();
        // Read now: a renewal during the attempt ended the count of those before.
        let attempts = self.state.subscriptions().progress(assignment).attempts + 1;
        let (answer, judged) = match answer {
            Ok(answer) => (answer, attempts),
            // A notification is given up for what its subscriber does only.
            Err(error) => (Answer::Failed(error), attempts.min(MAX_ATTEMPTS - 1)),
        };
        let outcome = outcome(&answer, judged, now, fastrand::f64());
        let last = LastAttempt::new(&answer, now);
        let took = relay.and_then(|relay| self.state.age(relay.stored.id));
        let mut counts = lock(&self.state.counts);
        counts.deliveries.attempted(&answer, outcome, attempts);
        if let (DeliveryOutcome::Delivered, Some(took)) = (outcome, took) {
            counts.latency.observe(took);
        }
        drop(counts);
        let seq = relay.map_or(0, |relay| relay.stored.seq);
        match outcome {
            DeliveryOutcome::Delivered => debug!(
                %topic, %callback, seq, attempts, "delivered notification {seq} to {callback}"
            ),
            // The end of the subscription is logged below.
            DeliveryOutcome::Gone => {}
            DeliveryOutcome::Retry { at } => debug!(
                %topic, %callback, seq, attempts, next_try = %at,
                "cannot deliver notification {seq} to {callback}, will retry: {last}"
            ),
            DeliveryOutcome::Abandoned => {
                if self.abandoned_lines.allow() {
                    warn!(
                        %topic, %callback, seq, attempts,
                        "giving up on delivering notification {seq} to {callback}: {last}"
                    );
                }
            }
        }
        self.state.end("it is gone (410)", |subscriptions| {
            let relay = relay.map(|relay| PendingRelay {
                id: relay.stored.id,
                size: relay.stored.size,
            });
            let relay = relay.unwrap_or_default();
            subscriptions.answered(assignment, relay, last, outcome)
        });
    }
}

/// Posts a notification to a subscriber.
///
/// # Errors
/// The notification cannot be read.
async fn post(
    prepared: &PreparedHub,
    assignment: &DeliveryTask,
    relay: &Arc<LoadedRelay>,
    secret: Option<&Secret>,
    location: &CallbackLocation,
) -> Result<Answer, String> {
    let SubscriptionKey { topic, callback } = &assignment.key;
    let signature = match secret {
        Some(secret) => Some(relay.signature(secret).await.map_err(unreadable)?),
        None => None,
    };
    let hub = &prepared.settings.hub;
    let client = &prepared.client;
    let mut post = client.request(Method::POST, callback.as_str(), location);
    for (name, value) in headers(topic, &relay.stored.headers, hub, signature) {
        post = post.header(name, value.as_bytes());
    }
    let usual = prepared.settings.timeout;
    let (taken, progress) = watch::channel(SendProgress::Parts(0));
    let post = post
        .timeout(timeout(usual, relay.stored.size))
        .body(relay.body(taken));
    let answered = async { client::answer(post.send().await, &Mask::default()).await };
    let answer = tokio::select! {
        answer = answered => answer,
        () = stalled(progress.clone(), usual) => {
            Answer::Failed(format!("it took nothing more of the body for {} s", usual.as_secs()))
        }
    };
    match &*progress.borrow() {
        SendProgress::Unreadable(error) => Err(unreadable(error)),
        _ => Ok(answer),
    }
}

fn unreadable(error: impl Display) -> String {
    format!("cannot read the notification: {error}")
}

/// Returns when nothing more of a body was taken for a time. Waits forever once all of it is.
async fn stalled(mut progress: watch::Receiver<SendProgress>, silence: Duration) {
    loop {
        if *progress.borrow_and_update() == SendProgress::Complete {
            return std::future::pending().await;
        }
        match tokio::time::timeout(silence, progress.changed()).await {
            Ok(Ok(())) => {}
            // The request has ended.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => return,
        }
    }
}

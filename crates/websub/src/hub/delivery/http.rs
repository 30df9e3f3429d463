//! Deliveries of notifications: to each subscriber in order, to different subscribers concurrently. A notification is read
//! from the state file when it is delivered, and in memory only while one of its deliveries needs it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::io;
use std::ops::Bound::{Excluded, Unbounded};
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hmac::Mac;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use resourcesync::uri::Topic;
use sha2::Sha256;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{debug, error, warn};

use crate::answer::Answer;
use crate::http::{BoxedFn, client, lock};
use crate::hub::callback::ResolvedCallback;
use crate::hub::delivery::{DeliveryOutcome, headers, new_mac, outcome, signature_of_mac, timeout};
use crate::hub::fair_queue::slots::FairSlot;
use crate::hub::http::{EmbeddedHub, HubSetup};
use crate::hub::subscriptions::view::LastAttempt;
use crate::hub::subscriptions::{Delivery, DeliveryTaskId};
use crate::hub::{PART_BYTES, Relay, RelayId, RelaySize, StoredRelay, SubscriptionKey};
use crate::retry::MAX_ATTEMPTS;
use crate::secret::{Mask, Secret};

/// The error of a request that was cut off in favour of others.
pub(crate) const CUT_OFF: &str = "cut off: it took too long while others waited";
/// Delivery tasks started before yielding to other tasks.
const BATCH: usize = 100;

impl EmbeddedHub {
    /// Begins to deliver what is pending for a topic to the subscribers that have no delivery under way.
    pub(crate) fn deliver_topic(self: &Arc<Self>, topic: &Topic) {
        let assignments = lock(&self.subscriptions).assign_tasks(topic);
        let hub = Arc::clone(self);
        self.runtime.spawn(async move {
            for (count, assignment) in (1..).zip(assignments) {
                tokio::spawn(Arc::clone(&hub).run_delivery_task(assignment));
                if count % BATCH == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }

    /// Delivers to one subscriber until nothing is pending.
    // Large futures are boxed: of many subscribers, most only wait.
    pub(crate) async fn run_delivery_task(self: Arc<Self>, assignment: DeliveryTaskId) {
        let woken = Arc::new(Notify::new());
        lock(&self.wakers).insert(assignment.key.clone(), Arc::clone(&woken));
        while let Some(next) = self.next_delivery(&assignment) {
            let at = next.progress.next_try;
            let wait =
                at.and_then(|at| Duration::try_from(at.duration_since(self.clock.now())).ok());
            if let Some(wait) = wait {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    // It may be retried at once.
                    () = woken.notified() => continue,
                }
            }
            let (callback, prepared) = (&assignment.key.callback, self.settings.get());
            let resolving = prepared.client.resolve(callback, next.priority);
            let location = Box::pin(resolving).await;
            let located = match location {
                Ok(location) => tokio::select! {
                    slot = self.delivery_slots.acquire(&location.host, next.priority) => {
                        Ok((location, slot))
                    }
                    // Its priority may have risen.
                    () = woken.notified() => continue,
                },
                Err(_) if self.delivery_slots.is_draining() => return,
                Err(reason) => Err(reason),
            };
            if !Arc::ptr_eq(&prepared, &self.settings.get()) {
                // The policy has changed since the addresses were checked.
                continue;
            }
            Box::pin(self.attempt_delivery(&prepared, &assignment, located)).await;
        }
        // Unless the subscription has ended and begun anew meanwhile.
        if let Entry::Occupied(known) = lock(&self.wakers).entry(assignment.key)
            && Arc::ptr_eq(known.get(), &woken)
        {
            known.remove();
        }
    }

    /// Returns the next delivery of an assignment.
    fn next_delivery(&self, assignment: &DeliveryTaskId) -> Option<Delivery> {
        lock(&self.subscriptions).next_delivery(assignment, self.clock.now())
    }

    /// Makes one attempt to deliver.
    async fn attempt_delivery(
        &self,
        prepared: &HubSetup,
        assignment: &DeliveryTaskId,
        mut located: Result<(ResolvedCallback, FairSlot), String>,
    ) {
        // Read at the last moment: the subscription may have ended, or have a new secret.
        let Some(next) = self.next_delivery(assignment) else {
            return;
        };
        let topic = &assignment.key.topic;
        let relay = match self.relays.read_next(topic, next.progress.heard).await {
            Ok(relay) => relay,
            Err(error) => {
                if self.abandoned_lines.allow() {
                    error!(
                        %topic, error,
                        "cannot read a pending notification of {topic} from the state file, will retry: {error}"
                    );
                }
                return self.apply_answer(assignment, None, Err(unreadable_reason(error)));
            }
        };
        let answer = match &mut located {
            Ok((location, slot)) => {
                let posted = post(prepared, assignment, &relay, next.secret.as_ref(), location);
                let answer = slot.unless_cut_off(posted).await;
                let answer = answer.unwrap_or_else(|| Err(CUT_OFF.to_owned()));
                if let Ok(Answer::Status { .. }) = answer {
                    slot.was_answered = true;
                }
                answer
            }
            Err(reason) => Ok(Answer::Failed(reason.clone())),
        };
        self.apply_answer(assignment, Some(&relay), answer);
    }

    /// Applies the answer to an attempt to deliver a notification, if it could be read, or what kept the hub itself from
    /// delivering it.
    fn apply_answer(
        &self,
        assignment: &DeliveryTaskId,
        relay: Option<&LoadedRelay>,
        answer: Result<Answer, String>,
    ) {
        let SubscriptionKey { topic, callback } = &assignment.key;
        let now = self.clock.now();
        // Read now: a renewal during the attempt ended the count of those before.
        let attempts = lock(&self.subscriptions).progress_of(assignment).attempts + 1;
        let (answer, judged) = match answer {
            Ok(answer) => (answer, attempts),
            // A notification is given up for what its subscriber does only.
            Err(error) => (Answer::Failed(error), attempts.min(MAX_ATTEMPTS - 1)),
        };
        let outcome = outcome(&answer, judged, now, fastrand::f64());
        let last = LastAttempt::new(&answer, now);
        let relayed = |relay: &LoadedRelay| lock(&self.relayed).get(&relay.stored.id).copied();
        let took = relay.and_then(relayed).map(|relayed| relayed.elapsed());
        let mut counts = lock(&self.counts);
        counts.deliveries.count_attempt(&answer, outcome, attempts);
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
            DeliveryOutcome::Retry(at) => debug!(
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
        self.change_subscriptions(Some("it is gone (410)"), |subscriptions| {
            let relay = relay
                .map(|relay| RelaySize {
                    id: relay.stored.id,
                    size: relay.stored.size,
                })
                .unwrap_or_default();
            subscriptions.apply_outcome(assignment, relay, last, outcome)
        });
    }
}

/// Posts a notification to a subscriber.
///
/// # Errors
/// The notification cannot be read.
async fn post(
    prepared: &HubSetup,
    assignment: &DeliveryTaskId,
    relay: &Arc<LoadedRelay>,
    secret: Option<&Secret>,
    location: &ResolvedCallback,
) -> Result<Answer, String> {
    let SubscriptionKey { topic, callback } = &assignment.key;
    let signature = match secret {
        Some(secret) => Some(relay.signature(secret).await.map_err(unreadable_reason)?),
        None => None,
    };
    let hub = &prepared.settings.hub;
    let mut post = location.client.post(callback.as_str());
    for (name, value) in headers(topic, &relay.stored.headers, hub, signature) {
        post = post.header(name, value.as_bytes());
    }
    let usual = prepared.settings.timeout;
    let (taken, progress) = watch::channel(BodyProgress::Part);
    let post = post
        .timeout(timeout(usual, relay.stored.size))
        .body(relay.body(taken));
    let answered = async { client::answer(post.send().await, &Mask::default()).await };
    let answer = tokio::select! {
        answer = answered => answer,
        () = wait_until_stalled(progress.clone(), usual) => {
            Answer::Failed(format!("it took nothing more of the body for {} s", usual.as_secs()))
        }
    };
    match &*progress.borrow() {
        BodyProgress::Unreadable(error) => Err(unreadable_reason(error)),
        _ => Ok(answer),
    }
}

fn unreadable_reason(error: impl Display) -> String {
    format!("cannot read the notification: {error}")
}

/// Returns when nothing more of a body was taken for a time. Waits forever once all of it is.
async fn wait_until_stalled(mut progress: watch::Receiver<BodyProgress>, silence: Duration) {
    loop {
        if *progress.borrow_and_update() == BodyProgress::Complete {
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

/// Topics whose notifications are remembered before those without deliveries are forgotten.
const MAX_TOPICS: usize = 256;

type ReadNext = dyn Fn(&Topic, RelayId) -> Result<Option<StoredRelay>, String> + Send + Sync;
type ReadPart = dyn Fn(RelayId, u64) -> Result<Option<Vec<u8>>, String> + Send + Sync;

/// The notifications of the state file. Both functions may block, and may be called at the same time.
#[derive(Debug)]
pub struct RelayStore {
    /// Reads the notification that follows one of the same topic.
    pub next: BoxedFn<ReadNext>,
    /// Reads part of a body, by its number: each has [`PART_BYTES`], the last one may have fewer.
    pub part: BoxedFn<ReadPart>,
}

/// Reads notifications, each once for all its deliveries at the same time.
#[derive(Debug)]
pub(crate) struct RelayReader {
    file: Arc<RelayStore>,
    loaded: Mutex<HashMap<Topic, BTreeMap<RelayId, Weak<LoadedRelay>>>>,
    /// Held while a notification is read.
    reading: tokio::sync::Mutex<()>,
}

/// A notification that is being delivered; parts of a long body are read while they are sent.
#[derive(Debug)]
struct LoadedRelay {
    /// The notification without the rest of its body.
    stored: StoredRelay,
    file: Arc<RelayStore>,
    /// The parts that are being sent, but for the first.
    parts: Mutex<HashMap<u64, Weak<[u8]>>>,
}

impl RelayStore {
    /// Reads notifications from memory, for a hub without a state file. The caller puts them there before it dispatches
    /// them, and removes those that [`HubRecord::Ended`](crate::hub::HubRecord::Ended) names.
    pub fn in_memory(relays: &Arc<Mutex<BTreeMap<RelayId, Relay>>>) -> RelayStore {
        let (relays, bodies) = (Arc::clone(relays), Arc::clone(relays));
        RelayStore {
            next: BoxedFn(Box::new(move |topic, heard| {
                let relays = lock(&relays);
                let mut of_topic = relays.values().filter(|relay| relay.topic == *topic);
                let previous = of_topic.clone().rfind(|relay| relay.id <= heard);
                let next = of_topic.find(|relay| relay.id > heard);
                Ok(next.map(|relay| StoredRelay {
                    id: relay.id,
                    previous: previous.map_or(RelayId(0), |relay| relay.id),
                    seq: relay.seq,
                    headers: relay.headers.clone(),
                    size: relay.body.len() as u64,
                    beginning: part(&relay.body, 0).unwrap_or_default().into(),
                }))
            })),
            part: BoxedFn(Box::new(move |id, number| {
                let relays = lock(&bodies);
                let body = relays.get(&id).map(|relay| &relay.body);
                Ok(body.and_then(|body| part(body, number).map(<[u8]>::to_vec)))
            })),
        }
    }
}

/// Returns part of a body by its number.
fn part(body: &[u8], number: u64) -> Option<&[u8]> {
    body.chunks(PART_BYTES).nth(number.try_into().ok()?)
}

impl RelayReader {
    /// Returns a reader that has read nothing yet.
    pub(crate) fn new(file: RelayStore) -> RelayReader {
        RelayReader {
            file: Arc::new(file),
            loaded: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the notification that follows one of the same topic.
    ///
    /// # Errors
    /// The state file cannot be read, or has no such notification.
    async fn read_next(&self, topic: &Topic, heard: RelayId) -> Result<Arc<LoadedRelay>, String> {
        if let Some(loaded) = self.find_loaded(topic, heard) {
            return Ok(loaded);
        }
        let _reading = self.reading.lock().await;
        if let Some(loaded) = self.find_loaded(topic, heard) {
            return Ok(loaded);
        }
        let (file, of_topic) = (Arc::clone(&self.file), topic.clone());
        let stored = spawn_blocking(move || (file.next.0)(&of_topic, heard))
            .await
            .map_err(|error| error.to_string())??
            .ok_or("the state file does not have it")?;
        let id = stored.id;
        let loaded = Arc::new(LoadedRelay {
            stored,
            file: Arc::clone(&self.file),
            parts: Mutex::default(),
        });
        let mut all = lock(&self.loaded);
        if all.len() >= MAX_TOPICS {
            all.retain(|_, relays| relays.values().any(|relay| relay.strong_count() > 0));
        }
        let of_topic = all.entry(topic.clone()).or_default();
        of_topic.retain(|_, relay| relay.strong_count() > 0);
        of_topic.insert(id, Arc::downgrade(&loaded));
        Ok(loaded)
    }

    fn find_loaded(&self, topic: &Topic, heard: RelayId) -> Option<Arc<LoadedRelay>> {
        let all = lock(&self.loaded);
        let mut after = all.get(topic)?.range((Excluded(heard), Unbounded));
        let loaded = after.find_map(|(_, relay)| relay.upgrade())?;
        (loaded.stored.previous <= heard).then_some(loaded)
    }
}

impl LoadedRelay {
    /// Returns the value of `X-Hub-Signature` for its body.
    ///
    /// # Errors
    ///
    /// If the body cannot be read; the reason in words.
    async fn signature(self: &Arc<Self>, secret: &Secret) -> Result<String, String> {
        let mut mac = new_mac::<Sha256>(secret);
        mac.update(&self.stored.beginning);
        for number in 1..self.parts_count() {
            let relay = Arc::clone(self);
            let part = spawn_blocking(move || relay.read_part(number)).await;
            mac.update(&part.map_err(|error| error.to_string())??);
        }
        Ok(signature_of_mac(mac))
    }

    /// Returns its body as that of a request, which reports how far it was taken.
    fn body(self: &Arc<Self>, progress: watch::Sender<BodyProgress>) -> reqwest::Body {
        if self.parts_count() <= 1 {
            progress.send_replace(BodyProgress::Complete);
            return Bytes::from_owner(Arc::clone(&self.stored.beginning)).into();
        }
        reqwest::Body::wrap(RelayBody {
            relay: Arc::clone(self),
            next: 0,
            reading: None,
            progress,
        })
    }

    fn parts_count(&self) -> u64 {
        self.stored.size.div_ceil(PART_BYTES as u64)
    }

    /// Reads a part, unless another delivery is sending it. Blocks.
    fn read_part(&self, number: u64) -> Result<Arc<[u8]>, String> {
        if let Some(part) = lock(&self.parts).get(&number).and_then(Weak::upgrade) {
            return Ok(part);
        }
        let read = (self.file.part.0)(self.stored.id, number)?;
        let part: Arc<[u8]> = read.ok_or("the state file lacks part of it")?.into();
        lock(&self.parts).insert(number, Arc::downgrade(&part));
        Ok(part)
    }
}

/// The part of a body that the connection has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BodyProgress {
    /// Part of it.
    Part,
    /// All of it.
    Complete,
    /// The rest cannot be read.
    Unreadable(String),
}

/// A body that is read part by part, as the connection takes it.
struct RelayBody {
    relay: Arc<LoadedRelay>,
    /// The number of the part that is read next.
    next: u64,
    reading: Option<JoinHandle<Result<Arc<[u8]>, String>>>,
    progress: watch::Sender<BodyProgress>,
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if this.is_end_stream() {
            return Poll::Ready(None);
        }
        let part = if this.next == 0 {
            Ok(Arc::clone(&this.relay.stored.beginning))
        } else {
            let (relay, number) = (&this.relay, this.next);
            let reading = this.reading.get_or_insert_with(|| {
                let relay = Arc::clone(relay);
                spawn_blocking(move || relay.read_part(number))
            });
            let read = ready!(Pin::new(reading).poll(context));
            this.reading = None;
            read.unwrap_or_else(|error| Err(error.to_string()))
        };
        this.next += 1;
        this.progress.send_replace(match &part {
            Err(error) => BodyProgress::Unreadable(error.clone()),
            Ok(_) if this.is_end_stream() => BodyProgress::Complete,
            Ok(_) => BodyProgress::Part,
        });
        let frame = part.map(|part| Frame::data(Bytes::from_owner(part)));
        Poll::Ready(Some(frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.next >= self.relay.parts_count()
    }

    fn size_hint(&self) -> SizeHint {
        let taken = self.next * PART_BYTES as u64;
        SizeHint::with_exact(self.relay.stored.size.saturating_sub(taken))
    }
}

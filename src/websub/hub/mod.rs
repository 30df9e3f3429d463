//! The embedded hub: takes subscriptions to our topics, verifies them, and relays notifications
//! (Framework Notification 1.0.1 sections 4.2–4.4). It saves nothing itself: what must survive leaves as
//! [`HubRecord`]s, and deliveries are saved by the caller between [`EmbeddedHub::relay`] and
//! [`EmbeddedHub::dispatch`].

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tracing::warn;

use crate::announce::delivery::Submission;
use crate::announce::subscription::admission::Admission;
use crate::announce::subscription::callback::CallbackPolicy;
use crate::announce::subscription::limits::Limits;
use crate::announce::subscription::network::Network;
use crate::announce::subscription::{Callback, Delivery, DeliveryId, HubRecord, Key, Subscription};
use crate::resourcesync::uri::{Hub, Topic};
use crate::websub::hub::calls::Caller;
use crate::websub::hub::lanes::Lanes;
use crate::websub::hub::subscriptions::Held;
use crate::websub::hub::verification::Pending;
use crate::websub::topics::Topics;

mod answer;
mod calls;
mod lanes;
mod relay;
mod subscriptions;
mod verification;

pub use crate::websub::hub::calls::{LookUp, Resolver};

/// How the hub behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// As advertised; its path is where subscriptions are taken.
    pub hub: Hub,
    pub policy: CallbackPolicy,
    pub resolver: Resolver,
    pub limits: Limits,
    /// Whose word about who asks is believed.
    pub trusted_proxies: Vec<Network>,
    /// For each request to a callback, from connecting to the end of the answer.
    pub timeout: Duration,
    /// Deliveries under way at a time.
    pub concurrent_deliveries: usize,
    /// What may wait for one subscriber; the oldest is dropped for the newest.
    pub waiting_deliveries: usize,
    pub waiting_bytes: usize,
    /// Verifications under way at a time; the others wait.
    pub concurrent_verifications: usize,
    /// Tries of a verification whose callback does not answer at all.
    pub verification_attempts: u32,
}

impl Settings {
    pub fn new(hub: Hub) -> Settings {
        Settings {
            hub,
            policy: CallbackPolicy::default(),
            resolver: Resolver::System,
            limits: Limits::default(),
            trusted_proxies: Vec::new(),
            timeout: Duration::from_secs(10),
            concurrent_deliveries: 512,
            waiting_deliveries: 1_000,
            waiting_bytes: 16 * 1024 * 1024,
            concurrent_verifications: 64,
            verification_attempts: 3,
        }
    }
}

/// What earlier runs saved.
#[derive(Debug, Clone, Default)]
pub struct Restored {
    pub subscriptions: Vec<Subscription>,
    pub deliveries: Vec<Delivery>,
}

/// Why the hub cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare the embedded hub's requests")]
pub struct HubError(#[from] reqwest::Error);

/// The hub. Clones are the same hub.
#[derive(Clone)]
pub struct EmbeddedHub {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    path: String,
    topics: Topics,
    records: Box<dyn Fn(HubRecord) + Send + Sync>,
    caller: Caller,
    runtime: Handle,
    subscriptions: RwLock<HashMap<Topic, HashMap<Callback, Held>>>,
    /// Locked last, where `subscriptions` is locked too.
    admission: Mutex<Admission>,
    /// When the admission's times begin.
    started: Instant,
    proxy_was_noticed: AtomicBool,
    verifications: Lanes<Pending>,
    deliveries: Lanes<Delivery>,
    verifying: Semaphore,
    delivering: Semaphore,
    next_delivery: AtomicU64,
}

impl EmbeddedHub {
    /// Takes up what earlier runs left; must be called within a tokio runtime. `records` hears, in order,
    /// what is to be saved; it must neither block nor call the hub.
    pub fn start(
        settings: Settings,
        restored: Restored,
        topics: Topics,
        records: impl Fn(HubRecord) + Send + Sync + 'static,
    ) -> Result<EmbeddedHub, HubError> {
        let highest = restored
            .deliveries
            .iter()
            .map(|delivery| delivery.id.0)
            .max();
        let caller = Caller::new(
            settings.policy.clone(),
            settings.resolver.clone(),
            settings.timeout,
        )?;
        let mut admission = Admission::new(settings.limits.clone());
        let subscriptions = subscriptions::held(restored.subscriptions, &mut admission);
        let shared = Arc::new(Shared {
            path: path(&settings.hub),
            topics,
            records: Box::new(records),
            caller,
            runtime: Handle::current(),
            subscriptions: RwLock::new(subscriptions),
            admission: Mutex::new(admission),
            started: Instant::now(),
            proxy_was_noticed: AtomicBool::new(false),
            verifications: Lanes::default(),
            deliveries: Lanes::default(),
            verifying: Semaphore::new(settings.concurrent_verifications),
            delivering: Semaphore::new(settings.concurrent_deliveries),
            next_delivery: AtomicU64::new(highest.unwrap_or(0) + 1),
            settings,
        });
        tokio::spawn(subscriptions::forget_ended_leases(Arc::downgrade(&shared)));
        let hub = EmbeddedHub { shared };
        let mut deliveries = restored.deliveries;
        deliveries.sort_by_key(|delivery| delivery.id);
        hub.dispatch(deliveries);
        Ok(hub)
    }

    /// The path at which subscriptions are taken.
    pub fn path(&self) -> &str {
        &self.shared.path
    }

    /// What each live subscriber is owed of a notification. To be saved, then handed to
    /// [`EmbeddedHub::dispatch`].
    pub fn relay(&self, submission: &Submission) -> Vec<Delivery> {
        let now = Timestamp::now();
        let subscriptions = self.shared.subscriptions();
        let of_topic = subscriptions.get(&submission.topic);
        of_topic
            .into_iter()
            .flat_map(HashMap::values)
            .map(|held| &held.subscription)
            .filter(|subscription| subscription.is_live(now))
            .map(|subscription| Delivery {
                id: DeliveryId(self.shared.next_delivery.fetch_add(1, Ordering::Relaxed)),
                topic: submission.topic.clone(),
                callback: subscription.callback.clone(),
                seq: submission.seq,
                body: Arc::clone(&submission.body),
                attempts: 0,
                next_try: now,
            })
            .collect()
    }

    /// Sends deliveries, each after those given earlier to the same subscriber. What waits too long for one
    /// that takes nothing is dropped.
    pub fn dispatch(&self, deliveries: Vec<Delivery>) {
        for delivery in deliveries {
            let key = delivery.key();
            if self.shared.deliveries.push(&key, delivery) {
                let shared = Arc::clone(&self.shared);
                self.shared
                    .runtime
                    .spawn(relay::deliver_all(shared, key.clone()));
            }
            self.shared.trim(&key);
        }
    }
}

impl fmt::Debug for EmbeddedHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedHub")
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn trim(&self, key: &Key) {
        let (most, most_bytes) = (
            self.settings.waiting_deliveries,
            self.settings.waiting_bytes,
        );
        let trimmed = self
            .deliveries
            .trim(key, most, most_bytes, |delivery| delivery.body.len());
        for Delivery { id, seq, .. } in trimmed {
            let Key { topic, callback } = key;
            warn!(%topic, %callback, seq, "dropped notification {seq} to {callback}: too many wait for it");
            (self.records)(HubRecord::Dropped { id });
        }
    }

    fn admission(&self) -> MutexGuard<'_, Admission> {
        self.admission
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn path(hub: &Hub) -> String {
    let uri = hub.as_str();
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |slash| &rest[slash..]);
    path.split(['?', '#']).next().unwrap_or(path).to_owned()
}

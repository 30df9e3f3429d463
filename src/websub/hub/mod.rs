//! The embedded hub: takes subscriptions to our topics, verifies them, and relays notifications
//! (Framework Notification 1.0.1 sections 4.2–4.4). It saves nothing itself: what must survive leaves as
//! [`HubRecord`]s, and deliveries are saved by the caller between [`EmbeddedHub::relay`] and
//! [`EmbeddedHub::dispatch`].

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Client;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tracing::warn;

use crate::announce::delivery::Submission;
use crate::announce::subscription::callback::CallbackPolicy;
use crate::announce::subscription::request::Request;
use crate::announce::subscription::{Callback, Delivery, DeliveryId, HubRecord, Key, Subscription};
use crate::resourcesync::uri::{Hub, Topic};
use crate::websub::client;
use crate::websub::hub::lanes::Lanes;
use crate::websub::topics::Topics;

mod answer;
mod lanes;
mod relay;
mod verification;

/// How the hub behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// As advertised; its path is where subscriptions are taken.
    pub hub: Hub,
    pub policy: CallbackPolicy,
    /// For each request to a callback, from connecting to the end of the answer.
    pub timeout: Duration,
    /// Deliveries under way at a time.
    pub concurrent_deliveries: usize,
    /// What may wait for one subscriber; the oldest is dropped for the newest.
    pub waiting_deliveries: usize,
    pub waiting_bytes: usize,
    /// Verifications under way at a time, and waiting altogether.
    pub concurrent_verifications: usize,
    pub pending_verifications: usize,
    /// Tries of a verification whose callback does not answer at all.
    pub verification_attempts: u32,
}

impl Settings {
    pub fn new(hub: Hub, policy: CallbackPolicy) -> Settings {
        Settings {
            hub,
            policy,
            timeout: Duration::from_secs(10),
            concurrent_deliveries: 512,
            waiting_deliveries: 1_000,
            waiting_bytes: 16 * 1024 * 1024,
            concurrent_verifications: 64,
            pending_verifications: 1_000,
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
    client: Client,
    runtime: Handle,
    subscriptions: RwLock<HashMap<Topic, HashMap<Callback, Subscription>>>,
    verifications: Lanes<Request>,
    deliveries: Lanes<Delivery>,
    verifying: Semaphore,
    delivering: Semaphore,
    next_delivery: AtomicU64,
}

/// How often ended leases are forgotten. They are not delivered to in the meantime.
const FORGET_EVERY: Duration = Duration::from_secs(60);

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
        let mut subscriptions: HashMap<_, HashMap<_, _>> = HashMap::new();
        for subscription in restored.subscriptions {
            let of_topic = subscriptions.entry(subscription.topic.clone()).or_default();
            of_topic.insert(subscription.callback.clone(), subscription);
        }
        let timeout = settings.timeout;
        let shared = Arc::new(Shared {
            path: path(&settings.hub),
            topics,
            records: Box::new(records),
            client: client::build_without_certificates(|| callback_client(timeout))?,
            runtime: Handle::current(),
            subscriptions: RwLock::new(subscriptions),
            verifications: Lanes::default(),
            deliveries: Lanes::default(),
            verifying: Semaphore::new(settings.concurrent_verifications),
            delivering: Semaphore::new(settings.concurrent_deliveries),
            next_delivery: AtomicU64::new(highest.unwrap_or(0) + 1),
            settings,
        });
        tokio::spawn(forget_ended_leases(Arc::downgrade(&shared)));
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
    fn subscription(&self, key: &Key) -> Option<Subscription> {
        self.subscriptions()
            .get(&key.topic)?
            .get(&key.callback)
            .filter(|subscription| subscription.is_live(Timestamp::now()))
            .cloned()
    }

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

    // Records of subscriptions are made while the lock is held, so that they leave in the order in which
    // the subscriptions changed.
    fn subscribe(&self, subscription: Subscription) {
        let mut subscriptions = self.subscriptions_mut();
        let of_topic = subscriptions.entry(subscription.topic.clone()).or_default();
        of_topic.insert(subscription.callback.clone(), subscription.clone());
        (self.records)(HubRecord::Subscribed(subscription));
    }

    fn unsubscribe(&self, key: &Key) {
        let mut subscriptions = self.subscriptions_mut();
        if let Some(of_topic) = subscriptions.get_mut(&key.topic)
            && of_topic.remove(&key.callback).is_some()
        {
            (self.records)(unsubscribed(&key.topic, &key.callback));
            if of_topic.is_empty() {
                subscriptions.remove(&key.topic);
            }
        }
    }

    fn forget_ended_leases(&self, now: Timestamp) {
        self.subscriptions_mut().retain(|topic, of_topic| {
            of_topic.retain(|callback, subscription| {
                let is_live = subscription.is_live(now);
                if !is_live {
                    (self.records)(unsubscribed(topic, callback));
                }
                is_live
            });
            !of_topic.is_empty()
        });
    }

    fn subscriptions(
        &self,
    ) -> RwLockReadGuard<'_, HashMap<Topic, HashMap<Callback, Subscription>>> {
        self.subscriptions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn subscriptions_mut(
        &self,
    ) -> RwLockWriteGuard<'_, HashMap<Topic, HashMap<Callback, Subscription>>> {
        self.subscriptions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

async fn forget_ended_leases(hub: Weak<Shared>) {
    loop {
        tokio::time::sleep(FORGET_EVERY).await;
        let Some(hub) = hub.upgrade() else { return };
        hub.forget_ended_leases(Timestamp::now());
    }
}

fn unsubscribed(topic: &Topic, callback: &Callback) -> HubRecord {
    HubRecord::Unsubscribed {
        topic: topic.clone(),
        callback: callback.clone(),
    }
}

/// Callbacks are given by strangers: no proxy between us and the address that was checked, and `localhost`
/// is this machine whatever a resolver says.
fn callback_client(timeout: Duration) -> reqwest::ClientBuilder {
    let localhost = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
    ];
    client::builder()
        .no_proxy()
        .timeout(timeout)
        .resolve_to_addrs("localhost", &localhost)
}

fn path(hub: &Hub) -> String {
    let uri = hub.as_str();
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |slash| &rest[slash..]);
    path.split(['?', '#']).next().unwrap_or(path).to_owned()
}

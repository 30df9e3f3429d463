//! The hub over HTTP, embedded or of `rsnotify hub`: accepts subscriptions, verifies them, and delivers notifications
//! (Framework Notification 1.0.1 sections 4.2–4.4). It does not write the state file itself: it emits [`HubRecord`]s to
//! save, and the caller saves notifications between [`EmbeddedHub::relay`] and [`EmbeddedHub::dispatch`].

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use jiff::Timestamp;
use tokio::runtime::Handle;
use tracing::warn;

use crate::announce::delivery::Submission;
use crate::hub::admission::Admission;
use crate::hub::callback::CallbackPolicy;
use crate::hub::counts::EmbeddedHubCounts;
use crate::hub::limits::HubLimits;
use crate::hub::subscriptions::view::HubStatus;
use crate::hub::subscriptions::{Abandoned, NotificationToRelay, Subscriptions};
use crate::hub::{HubRecord, Relay, RelayHeaders, SavedHub, SubscriptionKey};
use crate::resourcesync::uri::{Hub, Topic};
use crate::websub::hub::callback_client::CallbackClient;
use crate::websub::hub::delivery::Wakers;
use crate::websub::hub::fair_slots::FairSlots;
use crate::websub::hub::hub_topics::HubTopics;
use crate::websub::hub::keyed_queue::KeyedQueue;
pub use crate::websub::hub::lookups::Resolver;
use crate::websub::hub::subscription_table::{LogLimits, SubscriptionTable};
use crate::websub::hub::verification::PendingVerification;

mod answer;
mod callback_client;
mod delivery;
mod fair_slots;
pub mod fetches;
pub mod hub_topics;
pub mod intake;
mod keyed_queue;
mod lookups;
mod subscription_table;
pub mod topic_client;
mod verification;

pub use crate::websub::hub::lookups::LookUp;

/// Settings of the embedded hub.
#[derive(Debug, Clone)]
pub struct EmbeddedHubSettings {
    /// The advertised URL, whose path is the endpoint for subscription requests.
    pub hub: Hub,
    pub policy: CallbackPolicy,
    pub resolver: Resolver,
    pub limits: HubLimits,
    /// Proxies whose forwarding headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Timeout of each request to a callback, from connecting to the end of the answer.
    pub timeout: Duration,
    /// Maximum deliveries under way, and as many slow ones.
    pub concurrent_deliveries: usize,
    /// Maximum pending notifications of a topic, and their total size; beyond it the oldest is abandoned.
    pub waiting_notifications: usize,
    pub waiting_bytes: usize,
    /// Maximum verifications under way, and as many slow ones; the others wait.
    pub concurrent_verifications: usize,
    /// Maximum concurrent lookups, and as many slow ones. Each uses a thread.
    pub concurrent_lookups: usize,
    /// Host names under which requests are accepted, besides IP addresses and localhost. If set, requests from pages of
    /// other origins are refused; if not, any host name is accepted.
    pub own_hosts: Option<Vec<String>>,
    /// Attempts at a verification whose callback does not answer.
    pub verification_attempts: u32,
}

impl EmbeddedHubSettings {
    pub fn new(hub: Hub) -> EmbeddedHubSettings {
        EmbeddedHubSettings {
            hub,
            policy: CallbackPolicy::default(),
            resolver: Resolver::System,
            limits: HubLimits::default(),
            trusted_proxies: Vec::new(),
            timeout: Duration::from_secs(10),
            concurrent_deliveries: 512,
            waiting_notifications: 1_000,
            waiting_bytes: 16 * 1024 * 1024,
            concurrent_verifications: 64,
            concurrent_lookups: 64,
            own_hosts: None,
            verification_attempts: 3,
        }
    }
}

/// Checked settings with the client built from them.
#[derive(Debug)]
pub struct PreparedHub {
    settings: EmbeddedHubSettings,
    path: String,
    client: CallbackClient,
}

impl PreparedHub {
    pub fn new(settings: EmbeddedHubSettings) -> Result<PreparedHub, HubError> {
        let client = CallbackClient::new(
            settings.policy.clone(),
            settings.resolver.clone(),
            settings.concurrent_lookups,
            settings.timeout,
        )?;
        Ok(PreparedHub {
            path: path(&settings.hub),
            client,
            settings,
        })
    }
}

/// An error that prevents the hub from starting.
#[derive(Debug, thiserror::Error)]
#[error("cannot build the HTTP client of the embedded hub")]
pub struct HubError(#[from] reqwest::Error);

/// The hub. Clones are the same hub.
#[derive(Clone)]
pub struct EmbeddedHub {
    inner: Arc<HubInner>,
}

struct HubInner {
    prepared: RwLock<Arc<PreparedHub>>,
    topics: HubTopics,
    records: Box<dyn Fn(Vec<HubRecord>) + Send + Sync>,
    runtime: Handle,
    table: Mutex<SubscriptionTable>,
    /// Locked after `table` where both are.
    admission: Mutex<Admission>,
    /// Locked only to count.
    counts: Mutex<EmbeddedHubCounts>,
    /// The start of the times that admission measures.
    started: Instant,
    proxy_was_reported: AtomicBool,
    verifications: KeyedQueue<PendingVerification>,
    verification_slots: FairSlots,
    delivery_slots: FairSlots,
    wakers: Arc<Wakers>,
    log_limits: Mutex<LogLimits>,
}

impl EmbeddedHub {
    /// Starts the hub with the state of earlier runs, within a tokio runtime. `records` is called, in order, with the
    /// records to save, each time with those to save together; it must neither block nor call the hub.
    pub fn start(
        prepared: PreparedHub,
        saved: SavedHub,
        topics: HubTopics,
        records: impl Fn(Vec<HubRecord>) + Send + Sync + 'static,
    ) -> EmbeddedHub {
        let settings = &prepared.settings;
        let mut admission = Admission::new(settings.limits.clone());
        let (table, obsolete) = SubscriptionTable::restore(saved, &mut admission);
        if !obsolete.is_empty() {
            records(obsolete);
        }
        let with_pending = table.subscriptions.topics_with_pending();
        let inner = Arc::new(HubInner {
            topics,
            records: Box::new(records),
            runtime: Handle::current(),
            table: Mutex::new(table),
            admission: Mutex::new(admission),
            counts: Mutex::default(),
            started: Instant::now(),
            proxy_was_reported: AtomicBool::new(false),
            verifications: KeyedQueue::default(),
            verification_slots: FairSlots::new(settings.concurrent_verifications),
            delivery_slots: FairSlots::new(settings.concurrent_deliveries),
            wakers: Arc::default(),
            log_limits: Mutex::default(),
            prepared: RwLock::new(Arc::new(prepared)),
        });
        tokio::spawn(subscription_table::expire(Arc::downgrade(&inner)));
        tokio::spawn(subscription_table::log_suppressed(Arc::downgrade(&inner)));
        let hub = EmbeddedHub { inner };
        with_pending.iter().for_each(|topic| hub.deliver(topic));
        hub
    }

    /// Applies other settings, except for the numbers of slots. Subscriptions, pending deliveries and requests under way
    /// stay.
    pub fn apply(&self, prepared: PreparedHub) {
        let limits = prepared.settings.limits.clone();
        self.inner.admission().set_limits(limits);
        let current = self.inner.prepared.write();
        *current.unwrap_or_else(PoisonError::into_inner) = Arc::new(prepared);
    }

    /// Begins no more deliveries and verifications, and waits for those under way, whose outcomes are among the records
    /// then. Deliveries not begun stay pending.
    pub async fn drain(&self) {
        let HubInner {
            verification_slots,
            delivery_slots,
            ..
        } = &*self.inner;
        tokio::join!(verification_slots.drain(), delivery_slots.drain());
    }

    /// Returns true if this path is the hub's endpoint.
    pub fn is_at(&self, path: &str) -> bool {
        self.inner.prepared().path == path
    }

    /// Numbers a notification of this process for relaying, if its topic has subscribers and it is no repeat of the one
    /// relayed last. The caller saves it, then passes it to [`EmbeddedHub::dispatch`].
    pub fn relay(&self, submission: &Submission) -> Option<Relay> {
        let notification = NotificationToRelay {
            topic: submission.topic.clone(),
            seq: submission.seq,
            body: Arc::clone(&submission.body),
            headers: RelayHeaders {
                capability_list: Some(submission.capability_list.clone()),
                ..RelayHeaders::default()
            },
        };
        let mut table = self.inner.table();
        table
            .subscriptions
            .relay_once(notification, Timestamp::now())
    }

    /// Relays as [`EmbeddedHub::relay`] does, for a publication that was found to be no repeat.
    pub fn relay_new(&self, notification: NotificationToRelay) -> Option<Relay> {
        let mut table = self.inner.table();
        table.subscriptions.relay(notification, Timestamp::now())
    }

    /// Delivers saved notifications, to each subscriber in order. Beyond the limits of a topic the oldest pending ones are
    /// abandoned.
    pub fn dispatch(&self, relays: Vec<Relay>) {
        for relay in relays {
            let topic = relay.topic.clone();
            self.inner.enqueue(relay);
            self.inner.trim(&topic);
            self.deliver(&topic);
        }
    }

    /// Ends all subscriptions to a topic and notifies the subscribers.
    pub fn end_topic(&self, topic: &Topic) {
        let callbacks = self.inner.table().subscriptions.callbacks(topic);
        for callback in callbacks {
            let topic = topic.clone();
            self.end(SubscriptionKey { topic, callback }, "the topic has ended");
        }
    }

    /// Ends a subscription and notifies the subscriber of the reason.
    pub fn end(&self, key: SubscriptionKey, why: &'static str) {
        self.inner
            .end(why, |subscriptions| subscriptions.unsubscribe(&key));
        let denial = verification::deny(Arc::clone(&self.inner), key, why);
        self.inner.runtime.spawn(denial);
    }

    /// Calls a function with the subscriptions, which are locked meanwhile.
    pub fn inspect<T>(&self, inspect: impl FnOnce(&Subscriptions) -> T) -> T {
        inspect(&self.inner.table().subscriptions)
    }

    /// Returns the status with the counters.
    pub fn status(&self, now: Timestamp) -> HubStatus {
        let mut status = self.inspect(|subscriptions| subscriptions.status(now));
        status.counts = self.inner.counts().clone();
        status
    }

    fn deliver(&self, topic: &Topic) {
        let assignments = self.inner.table().subscriptions.assign(topic);
        let inner = Arc::clone(&self.inner);
        self.inner
            .runtime
            .spawn(delivery::deliver_to_all(inner, assignments));
    }
}

impl fmt::Debug for EmbeddedHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedHub")
            .field("settings", &self.inner.prepared().settings)
            .finish_non_exhaustive()
    }
}

impl HubInner {
    fn trim(&self, topic: &Topic) {
        let prepared = self.prepared();
        let EmbeddedHubSettings {
            waiting_notifications: max_count,
            waiting_bytes: max_bytes,
            ..
        } = prepared.settings;
        self.change(|subscriptions| {
            let abandoned = subscriptions.trim(topic, max_count, max_bytes).into_iter();
            abandoned
                .map(|Abandoned { relay, subscribers }| {
                    let seq = relay.seq;
                    self.counts().deliveries.abandoned += subscribers as u64;
                    warn!(
                        %topic, seq, subscribers,
                        "giving up on delivering notification {seq} of {topic} to {subscribers} subscribers: \
                         too many notifications are pending"
                    );
                    HubRecord::Ended(relay.id)
                })
                .collect()
        });
    }

    fn prepared(&self) -> Arc<PreparedHub> {
        Arc::clone(&self.prepared.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn counts(&self) -> MutexGuard<'_, EmbeddedHubCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_limits(&self) -> MutexGuard<'_, LogLimits> {
        self.log_limits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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

//! The hub over HTTP, embedded or of `rsnotify hub`: accepts subscriptions, verifies them, and delivers notifications
//! (Framework Notification 1.0.1 sections 4.2–4.4). It does not write the state file itself: it emits [`HubRecord`]s to
//! save, and the caller saves notifications between [`EmbeddedHub::relay`] and [`EmbeddedHub::dispatch`].

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use resourcesync::uri::Topic;
use tracing::warn;

use crate::http::clock::Clock;
use crate::http::lock;
use crate::hub::admission::Admission;
use crate::hub::counts::EmbeddedHubCounts;
use crate::hub::delivery::bodies::{RelayFile, RelayReader};
use crate::hub::delivery::http::Deliveries;
use crate::hub::http::settings::{EffectiveSettings, PreparedHub};
use crate::hub::limits::HubLimits;
use crate::hub::published_topics::directory::HubTopics;
use crate::hub::request::SubscriptionRequest;
use crate::hub::request::http::SubscriptionEndpoint;
use crate::hub::subscriptions::table::{self, SubscriptionTable};
use crate::hub::subscriptions::view::HubStatus;
use crate::hub::subscriptions::{NotificationToRelay, Subscriptions};
use crate::hub::verification::{TOPIC_ENDED, Verifications};
use crate::hub::{HubRecord, Relay, SavedHub, SubscriptionKey};
use crate::retention::end_of;

pub mod fetches;
pub mod public;
pub mod settings;
pub mod topic_client;

/// Interval of the limits on log lines, after which suppressed lines are summarized.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The hub. Clones are the same hub.
#[derive(Clone)]
pub struct EmbeddedHub {
    settings: Arc<EffectiveSettings>,
    admission: Arc<SharedAdmission>,
    table: Arc<SubscriptionTable>,
    deliveries: Arc<Deliveries>,
    verifications: Arc<Verifications>,
    /// The endpoint for subscription requests.
    pub(crate) endpoint: Arc<SubscriptionEndpoint>,
}

impl EmbeddedHub {
    /// Starts the hub with the state of earlier runs, within a tokio runtime. `relays` reads what was saved. `records` is called, in order, with the
    /// records to save, each time with those to save together; it must neither block nor call the hub.
    pub fn start(
        prepared: PreparedHub,
        mut saved: SavedHub,
        relays: RelayFile,
        topics: HubTopics,
        clock: Clock,
        records: impl Fn(Vec<HubRecord>) + Send + Sync + 'static,
    ) -> EmbeddedHub {
        for (subscription, _) in &mut saved.subscriptions {
            subscription.expires = end_of(subscription.expires, Duration::MAX, clock.began);
        }
        let admission = SharedAdmission::new(prepared.settings.limits.clone());
        let admission = Arc::new(admission);
        let settings = Arc::new(EffectiveSettings::new(prepared));
        let table = SubscriptionTable::restore(saved, clock, records);
        let table = Arc::new(table);
        let with_pending = table.with(|subscriptions| subscriptions.topics_with_pending());
        let relays = RelayReader::new(relays);
        let deliveries = Deliveries::new(Arc::clone(&settings), Arc::clone(&table), relays);
        let deliveries = Arc::new(deliveries);
        let verifications = Arc::new(Verifications::new(
            Arc::clone(&settings),
            topics.clone(),
            Arc::clone(&admission),
            Arc::clone(&table),
            Arc::clone(&deliveries),
        ));
        let endpoint = SubscriptionEndpoint::new(
            Arc::clone(&settings),
            topics,
            Arc::clone(&admission),
            Arc::clone(&verifications),
        );
        tokio::spawn(table::expire(Arc::downgrade(&table)));
        tokio::spawn(log_suppressed(Arc::downgrade(&deliveries)));
        for topic in &with_pending {
            deliveries.begin(topic);
        }
        EmbeddedHub {
            settings,
            admission,
            table,
            deliveries,
            verifications,
            endpoint: Arc::new(endpoint),
        }
    }

    /// Applies other settings, except for the numbers of slots. Subscriptions, pending deliveries and requests under way
    /// stay.
    pub fn apply(&self, prepared: PreparedHub) {
        let limits = prepared.settings.limits.clone();
        let admission = &self.admission;
        admission.with(|admission, _| admission.set_limits(limits));
        self.settings.replace(prepared);
        self.cut_off();
    }

    /// Begins no more deliveries and verifications, and waits for those under way, whose outcomes are among the records
    /// then. Deliveries not begun stay pending, and so do requests.
    pub async fn drain(&self) {
        let (verifications, deliveries) = (&self.verifications.slots, &self.deliveries.slots);
        tokio::join!(verifications.drain(), deliveries.drain());
    }

    /// Records the requests that were answered with 202 and are not verified, once no more come.
    pub fn record_unverified(&self) {
        let unverified = self.verifications.unverified();
        self.table.record(HubRecord::Unverified(unverified));
    }

    /// Begins to verify the requests that an earlier run did not, within a tokio runtime. Those beyond the limits are
    /// dropped.
    pub fn resume(&self, unverified: Vec<(SubscriptionKey, SubscriptionRequest)>) {
        if unverified.is_empty() {
            return;
        }
        self.table.record(HubRecord::Unverified(Vec::new()));
        for (key, request) in unverified {
            let callback = key.callback.clone();
            if let Err(why) = self.verifications.begin(key, request, None) {
                warn!(%callback, "a request of {callback} is not verified: {why}");
            }
        }
    }

    /// Numbers a notification of this process for relaying, if its topic has subscribers and it is no repeat of the one
    /// relayed last. The caller saves it, then passes it to [`EmbeddedHub::dispatch`].
    pub fn relay(&self, notification: NotificationToRelay) -> Option<Relay> {
        let table = &self.table;
        table.with(|subscriptions| subscriptions.relay_once(notification, table.clock.now()))
    }

    /// Relays as [`EmbeddedHub::relay`] does, for a publication that was found to be no repeat.
    pub fn relay_new(&self, notification: NotificationToRelay) -> Option<Relay> {
        let table = &self.table;
        table.with(|subscriptions| subscriptions.relay(notification, table.clock.now()))
    }

    /// Delivers saved notifications, to each subscriber in order. If more than `max_backlog` is pending, the subscriptions
    /// that are owed most end.
    pub fn dispatch(&self, relays: Vec<Relay>) {
        for Relay { id, topic, .. } in relays {
            self.table.saved(&topic, id);
            self.cut_off();
            self.deliveries.begin(&topic);
        }
    }

    fn cut_off(&self) {
        for key in self.deliveries.cut_off() {
            let why = "too many notifications were pending";
            self.verifications.deny(key, why);
        }
    }

    /// Ends all subscriptions to a topic and notifies the subscribers.
    pub fn end_topic(&self, topic: &Topic) {
        let callbacks = self.inspect(|subscriptions| subscriptions.callbacks(topic));
        for callback in callbacks {
            let topic = topic.clone();
            self.end(SubscriptionKey { topic, callback }, TOPIC_ENDED);
        }
    }

    /// Ends a subscription and notifies the subscriber of the reason.
    pub fn end(&self, key: SubscriptionKey, why: &'static str) {
        self.table
            .end(why, |subscriptions| subscriptions.unsubscribe(&key));
        self.verifications.deny(key, why);
    }

    /// Calls a function with the subscriptions, which are locked meanwhile.
    pub fn inspect<T>(&self, inspect: impl FnOnce(&Subscriptions) -> T) -> T {
        self.table.with(|subscriptions| inspect(subscriptions))
    }

    /// Returns the status with the counters.
    pub fn status(&self, now: Timestamp) -> HubStatus {
        let mut status = self.inspect(|subscriptions| subscriptions.status(now));
        status.counts = EmbeddedHubCounts {
            requests: *lock(&self.endpoint.counts),
            verifications: *lock(&self.verifications.counts),
            deliveries: *lock(&self.deliveries.counts),
            latency: lock(&self.deliveries.latency).clone(),
        };
        status
    }
}

impl fmt::Debug for EmbeddedHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedHub")
            .field("settings", &self.settings.current().settings)
            .finish_non_exhaustive()
    }
}

/// Summarizes suppressed log lines at the end of each interval.
async fn log_suppressed(deliveries: Weak<Deliveries>) {
    loop {
        tokio::time::sleep(LOG_INTERVAL).await;
        let Some(deliveries) = deliveries.upgrade() else {
            return;
        };
        deliveries.log_suppressed();
    }
}

/// Admission, shared by requests and verifications, with the clock that it measures by. Locked after the subscriptions where both are.
#[derive(Debug)]
pub struct SharedAdmission {
    admission: Mutex<Admission>,
    started: Instant,
}

impl SharedAdmission {
    /// Enforces limits of which nothing is used yet, from now on.
    pub fn new(limits: HubLimits) -> SharedAdmission {
        SharedAdmission {
            admission: Mutex::new(Admission::new(limits)),
            started: Instant::now(),
        }
    }

    /// Calls a function with admission, which is locked meanwhile, and the time by its clock.
    pub fn with<T>(&self, act: impl FnOnce(&mut Admission, Duration) -> T) -> T {
        let now = self.started.elapsed();
        act(&mut lock(&self.admission), now)
    }
}

//! What the parts of a hub share: settings, limits, counters, and the subscriptions, changed together with the records
//! to save.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use resourcesync::uri::Topic;
use tokio::sync::Notify;
use tracing::{debug, info};

use crate::counts::EmbeddedHubCounts;
use crate::http::{BoxedFn, Clock, Replaceable, lock};
use crate::hub::admission::Admission;
use crate::hub::http::settings::PreparedHub;
use crate::hub::limits::LogLimit;
use crate::hub::subscriptions::{Delivery, DeliveryTask, Subscriptions};
use crate::hub::{HubRecord, RelayId, SavedHub, Subscription, SubscriptionKey};

/// Interval at which subscriptions with ended leases are removed. Nothing is delivered to them meanwhile.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// Notifications whose time is remembered.
const MAX_RELAYED: usize = 10_000;

/// The state of a hub. Records are emitted while the subscriptions are locked, so that they are in the order of the
/// changes.
#[derive(Debug)]
pub struct HubState {
    pub settings: Replaceable<PreparedHub>,
    pub clock: Clock,
    /// Locked only to count.
    pub counts: Mutex<EmbeddedHubCounts>,
    subscriptions: Mutex<Subscriptions>,
    /// Locked after the subscriptions where both are.
    admission: Mutex<Admission>,
    /// The times at which the last [`MAX_RELAYED`] notifications were relayed, if in this run.
    relayed: Mutex<BTreeMap<RelayId, Instant>>,
    records: BoxedFn<dyn Fn(Vec<HubRecord>) + Send + Sync>,
    /// The signals that end the waits of deliveries for a retry.
    wakers: Mutex<HashMap<SubscriptionKey, Arc<Notify>>>,
    /// Limits on log lines about subscriptions that begin or end, which strangers can cause.
    begun: LogLimit,
    ended: LogLimit,
    pub proxy_was_reported: AtomicBool,
}

impl HubState {
    /// Restores the state of earlier runs, and emits the records that remove what is obsolete.
    pub fn restore(
        prepared: PreparedHub,
        saved: SavedHub,
        clock: Clock,
        records: impl Fn(Vec<HubRecord>) + Send + Sync + 'static,
    ) -> HubState {
        let (subscriptions, obsolete) = Subscriptions::restore(saved);
        if !obsolete.is_empty() {
            records(obsolete);
        }
        HubState {
            admission: Mutex::new(Admission::new(prepared.settings.limits.clone())),
            settings: Replaceable::new(prepared),
            clock,
            counts: Mutex::default(),
            subscriptions: Mutex::new(subscriptions),
            relayed: Mutex::default(),
            records: BoxedFn(Box::new(records)),
            wakers: Mutex::default(),
            begun: LogLimit::new(50),
            ended: LogLimit::new(50),
            proxy_was_reported: AtomicBool::new(false),
        }
    }

    /// Locks admission, whose times are those since the clock's start.
    pub fn admission(&self) -> MutexGuard<'_, Admission> {
        lock(&self.admission)
    }

    /// Emits a record that changes no subscription.
    pub fn record(&self, record: HubRecord) {
        let _subscriptions = lock(&self.subscriptions);
        (self.records)(vec![record]);
    }

    /// Adds or renews a verified subscription. A renewal ends the wait for a retry.
    pub fn subscribe(&self, subscription: Subscription) {
        let key = subscription.key();
        let until = subscription.expires;
        let is_renewal = self.subscriptions().contains(&key);
        self.change(|subscriptions| subscriptions.subscribe(subscription));
        if let Some(waiting) = lock(&self.wakers).get(&key) {
            waiting.notify_one();
        }
        let SubscriptionKey { topic, callback } = &key;
        if is_renewal {
            debug!(%topic, %callback, %until, "{callback} renewed its subscription to {topic}");
        } else if self.begun.allow() {
            info!(%topic, %callback, %until, "{callback} subscribed to {topic}");
        } else {
            debug!(%topic, %callback, %until, "{callback} subscribed to {topic}");
        }
    }

    /// Takes note that a notification is saved: it may be delivered.
    pub fn saved(&self, topic: &Topic, id: RelayId) {
        let mut relayed = lock(&self.relayed);
        relayed.insert(id, Instant::now());
        if relayed.len() > MAX_RELAYED {
            relayed.pop_first();
        }
        drop(relayed);
        self.change(|subscriptions| subscriptions.saved(topic, id).into_iter().collect());
    }

    /// Returns the time since a notification was relayed.
    pub fn age(&self, relay: RelayId) -> Option<Duration> {
        lock(&self.relayed).get(&relay).map(Instant::elapsed)
    }

    /// Makes a change that ends subscriptions, and logs each with the reason.
    pub fn end(&self, why: &str, change: impl FnOnce(&mut Subscriptions) -> Vec<HubRecord>) {
        for SubscriptionKey { topic, callback } in self.change(change) {
            if !self.ended.allow() {
                continue;
            }
            info!(%topic, %callback, why, "the subscription of {callback} to {topic} has ended: {why}");
        }
    }

    /// Makes a change, emits its records, and returns the subscriptions that it ended.
    pub fn change(
        &self,
        change: impl FnOnce(&mut Subscriptions) -> Vec<HubRecord>,
    ) -> Vec<SubscriptionKey> {
        let mut subscriptions = lock(&self.subscriptions);
        let records = change(&mut subscriptions);
        let ended = |record: &HubRecord| match record {
            HubRecord::Unsubscribed(key) => Some(key.clone()),
            _ => None,
        };
        let ended = records.iter().filter_map(ended).collect();
        if !records.is_empty() {
            (self.records)(records);
        }
        ended
    }

    /// Locks the subscriptions, for what makes no change that is saved.
    pub fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        lock(&self.subscriptions)
    }

    /// Returns the next delivery of an assignment.
    pub fn next_delivery(&self, assignment: &DeliveryTask) -> Option<Delivery> {
        let now = self.clock.now();
        self.subscriptions().next_delivery(assignment, now)
    }

    /// Registers the delivery to a subscriber for the signal that it may be retried at once.
    pub fn register(&self, key: &SubscriptionKey) -> Arc<Notify> {
        let woken = Arc::new(Notify::new());
        lock(&self.wakers).insert(key.clone(), Arc::clone(&woken));
        woken
    }

    /// Ends a registration, unless the subscription has ended and begun anew meanwhile.
    pub fn unregister(&self, key: &SubscriptionKey, woken: &Arc<Notify>) {
        let mut wakers = lock(&self.wakers);
        if wakers
            .get(key)
            .is_some_and(|known| Arc::ptr_eq(known, woken))
        {
            wakers.remove(key);
        }
    }

    /// Logs the numbers of lines about subscriptions that were suppressed.
    pub fn log_suppressed(&self) {
        let (begun, ended) = (self.begun.next_interval(), self.ended.next_interval());
        if begun + ended > 0 {
            info!(
                begun,
                ended, "more subscriptions: {begun} began, {ended} ended"
            );
        }
    }
}

/// Removes subscriptions whose leases have ended.
pub async fn expire(state: Weak<HubState>) {
    loop {
        tokio::time::sleep(EXPIRY_INTERVAL).await;
        let Some(state) = state.upgrade() else { return };
        state.end("its lease has ended", |subscriptions| {
            subscriptions.end_leases(state.clock.now())
        });
    }
}

//! The subscriptions, changed together with the records to save and with the usage counters.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use resourcesync::uri::Topic;
use tracing::{debug, info};

use crate::http::clock::Clock;
use crate::hub::http::SharedAdmission;
use crate::hub::log_limit::LogLimit;
use crate::hub::subscriptions::wakers::{Wakers, Woken};
use crate::hub::subscriptions::{Assignment, Delivery, Subscriptions};
use crate::hub::usage::QuotaKey;
use crate::hub::{HubRecord, RelayId, SavedHub, Subscription, SubscriptionKey};

/// Interval at which subscriptions with ended leases are removed. Nothing is delivered to them meanwhile.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// Notifications whose time is remembered.
const MAX_RELAYED: usize = 10_000;

/// The subscriptions. Records are emitted while they are locked, so that they are in the order of the changes.
pub struct SubscriptionTable {
    pub clock: Clock,
    state: Mutex<TableState>,
    records: Box<dyn Fn(Vec<HubRecord>) + Send + Sync>,
    admission: Arc<SharedAdmission>,
    wakers: Arc<Wakers>,
    log_limits: Mutex<LogLimits>,
}

/// The subscriptions with their quota keys. Requesters are not saved.
struct TableState {
    subscriptions: Subscriptions,
    quota_keys: HashMap<SubscriptionKey, QuotaKey>,
    /// The times at which the last [`MAX_RELAYED`] notifications were relayed, if in this run.
    relayed: BTreeMap<RelayId, Instant>,
}

/// Limits on log lines that strangers can cause.
#[derive(Debug)]
struct LogLimits {
    begun: LogLimit,
    ended: LogLimit,
}

impl SubscriptionTable {
    /// Restores the state of earlier runs, and emits the records that remove what is obsolete.
    pub fn restore(
        saved: SavedHub,
        admission: Arc<SharedAdmission>,
        clock: Clock,
        records: impl Fn(Vec<HubRecord>) + Send + Sync + 'static,
    ) -> SubscriptionTable {
        let mut quota_keys = HashMap::new();
        admission.with(|admission, _| {
            for (subscription, _) in &saved.subscriptions {
                let quota_key = QuotaKey::new(&subscription.callback, None);
                admission.subscribed(&quota_key);
                quota_keys.insert(subscription.key(), quota_key);
            }
        });
        let (subscriptions, obsolete) = Subscriptions::restore(saved);
        if !obsolete.is_empty() {
            records(obsolete);
        }
        SubscriptionTable {
            clock,
            state: Mutex::new(TableState {
                subscriptions,
                quota_keys,
                relayed: BTreeMap::new(),
            }),
            records: Box::new(records),
            admission,
            wakers: Arc::default(),
            log_limits: Mutex::new(LogLimits {
                begun: LogLimit::new(50),
                ended: LogLimit::new(50),
            }),
        }
    }

    /// Adds or renews a verified subscription. A renewal ends the wait for a retry.
    pub fn subscribe(&self, subscription: Subscription, quota_key: QuotaKey) {
        let key = subscription.key();
        let until = subscription.expires;
        let is_new = self.insert(subscription, quota_key);
        let SubscriptionKey { topic, callback } = &key;
        match is_new {
            true if self.log_limits().begun.allow() => {
                info!(%topic, %callback, %until, "{callback} subscribed to {topic}");
            }
            true => debug!(%topic, %callback, %until, "{callback} subscribed to {topic}"),
            false => {
                self.wakers.wake(&key);
                debug!(%topic, %callback, %until, "{callback} renewed its subscription to {topic}");
            }
        }
    }

    /// Returns true if it is a new one.
    fn insert(&self, subscription: Subscription, quota_key: QuotaKey) -> bool {
        let mut state = self.state();
        let is_new = self.admission.with(|admission, _| {
            admission.subscribed(&quota_key);
            let replaced = state.quota_keys.insert(subscription.key(), quota_key);
            if let Some(replaced) = &replaced {
                admission.unsubscribed(replaced);
            }
            replaced.is_none()
        });
        (self.records)(state.subscriptions.subscribe(subscription));
        is_new
    }

    /// Takes note that a notification is saved: it may be delivered.
    pub fn saved(&self, topic: &Topic, id: RelayId) {
        let mut state = self.state();
        state.relayed.insert(id, Instant::now());
        if state.relayed.len() > MAX_RELAYED {
            state.relayed.pop_first();
        }
        drop(state);
        self.change(|subscriptions| subscriptions.saved(topic, id).into_iter().collect());
    }

    /// Returns the time since a notification was relayed.
    pub fn age(&self, relay: RelayId) -> Option<Duration> {
        self.state().relayed.get(&relay).map(Instant::elapsed)
    }

    /// Makes a change that ends subscriptions, and logs each with the reason.
    pub fn end(&self, why: &str, change: impl FnOnce(&mut Subscriptions) -> Vec<HubRecord>) {
        for SubscriptionKey { topic, callback } in self.change(change) {
            if !self.log_limits().ended.allow() {
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
        let mut state = self.state();
        let records = change(&mut state.subscriptions);
        let mut ended = Vec::new();
        for record in &records {
            if let HubRecord::Unsubscribed(key) = record {
                if let Some(quota_key) = state.quota_keys.remove(key) {
                    self.admission
                        .with(|admission, _| admission.unsubscribed(&quota_key));
                }
                ended.push(key.clone());
            }
        }
        if !records.is_empty() {
            (self.records)(records);
        }
        ended
    }

    /// Calls a function with the subscriptions, which are locked meanwhile. It makes no change that is saved.
    pub fn with<T>(&self, act: impl FnOnce(&mut Subscriptions) -> T) -> T {
        act(&mut self.state().subscriptions)
    }

    /// Returns true if there is a subscription whose lease has not ended.
    pub fn is_subscribed(&self, key: &SubscriptionKey) -> bool {
        self.with(|subscriptions| subscriptions.is_live(key, self.clock.now()))
    }

    /// Returns the next delivery of an assignment.
    pub fn next_delivery(&self, assignment: &Assignment) -> Option<Delivery> {
        self.with(|subscriptions| subscriptions.next_delivery(assignment, self.clock.now()))
    }

    /// Registers the delivery to a subscriber for the signal that it may be retried at once.
    pub fn register(&self, key: &SubscriptionKey) -> Woken {
        self.wakers.register(key)
    }

    /// Logs the numbers of lines about subscriptions that were suppressed.
    pub fn log_suppressed(&self) {
        let mut limits = self.log_limits();
        let (begun, ended) = (limits.begun.next_interval(), limits.ended.next_interval());
        drop(limits);
        if begun + ended > 0 {
            info!(
                begun,
                ended, "{begun} more subscriptions began, and {ended} more ended"
            );
        }
    }

    fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_limits(&self) -> MutexGuard<'_, LogLimits> {
        self.log_limits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes subscriptions whose leases have ended.
pub async fn expire(table: Weak<SubscriptionTable>) {
    loop {
        tokio::time::sleep(EXPIRY_INTERVAL).await;
        let Some(table) = table.upgrade() else { return };
        table.end("its lease has ended", |subscriptions| {
            subscriptions.end_leases(table.clock.now())
        });
    }
}

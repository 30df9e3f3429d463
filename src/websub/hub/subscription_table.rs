//! The subscriptions, changed together with the records to save and with the usage counters.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tracing::{debug, info, warn};

use crate::hub::admission::Admission;
use crate::hub::log_limit::LogLimit;
use crate::hub::subscriptions::{Assignment, Delivery, Subscriptions};
use crate::hub::usage::QuotaKey;
use crate::hub::{HubRecord, Relay, RelayId, SavedHub, Subscription, SubscriptionKey};
use crate::websub::hub::HubInner;

/// Interval at which subscriptions with ended leases are removed. Nothing is delivered to them meanwhile.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of the limits on log lines, after which suppressed lines are summarized.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Limits on log lines that strangers can cause.
#[derive(Debug)]
pub struct LogLimits {
    pub begun: LogLimit,
    pub ended: LogLimit,
    pub abandoned: LogLimit,
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits {
            begun: LogLimit::new(50),
            ended: LogLimit::new(50),
            abandoned: LogLimit::new(10),
        }
    }
}

/// The subscriptions with their quota keys. Requesters are not saved.
pub struct SubscriptionTable {
    pub subscriptions: Subscriptions,
    quota_keys: HashMap<SubscriptionKey, QuotaKey>,
    /// The time at which a pending notification was relayed, if in this run.
    relayed: HashMap<RelayId, Instant>,
}

impl SubscriptionTable {
    /// Restores the state of earlier runs. Returns the records that remove what is obsolete.
    pub fn restore(
        saved: SavedHub,
        admission: &mut Admission,
    ) -> (SubscriptionTable, Vec<HubRecord>) {
        let mut quota_keys = HashMap::new();
        for (subscription, _) in &saved.subscriptions {
            let quota_key = QuotaKey::new(&subscription.callback, None);
            admission.subscribed(&quota_key);
            quota_keys.insert(subscription.key(), quota_key);
        }
        let (subscriptions, obsolete) = Subscriptions::restore(saved);
        let table = SubscriptionTable {
            subscriptions,
            quota_keys,
            relayed: HashMap::new(),
        };
        (table, obsolete)
    }
}

// Records are emitted while the lock is held, so that they are in the order of the changes.
impl HubInner {
    /// Adds or renews a verified subscription.
    pub fn subscribe(&self, subscription: Subscription, quota_key: QuotaKey) {
        let SubscriptionKey { topic, callback } = subscription.key();
        let until = subscription.expires;
        match self.insert(subscription, quota_key) {
            true if self.log_limits().begun.allow() => {
                info!(%topic, %callback, %until, "{callback} subscribed to {topic}");
            }
            true => debug!(%topic, %callback, %until, "{callback} subscribed to {topic}"),
            false => {
                self.wakers.wake(&SubscriptionKey {
                    topic: topic.clone(),
                    callback: callback.clone(),
                });
                debug!(%topic, %callback, %until, "{callback} renewed its subscription to {topic}");
            }
        }
    }

    /// Returns true if it is a new one.
    fn insert(&self, subscription: Subscription, quota_key: QuotaKey) -> bool {
        let mut table = self.table();
        let mut admission = self.admission();
        admission.subscribed(&quota_key);
        let replaced = table.quota_keys.insert(subscription.key(), quota_key);
        if let Some(replaced) = &replaced {
            admission.unsubscribed(replaced);
        }
        (self.records)(table.subscriptions.subscribe(subscription));
        replaced.is_none()
    }

    /// Makes a saved notification pending for its subscribers.
    pub fn enqueue(&self, relay: Relay) {
        self.table().relayed.insert(relay.id, Instant::now());
        self.change(|subscriptions| subscriptions.enqueue(relay).into_iter().collect());
    }

    /// Returns the time since a notification was relayed.
    pub fn age(&self, relay: RelayId) -> Option<Duration> {
        self.table().relayed.get(&relay).map(Instant::elapsed)
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
        let mut table = self.table();
        let records = change(&mut table.subscriptions);
        let mut ended = Vec::new();
        for record in &records {
            match record {
                HubRecord::Unsubscribed(key) => {
                    if let Some(quota_key) = table.quota_keys.remove(key) {
                        self.admission().unsubscribed(&quota_key);
                    }
                    ended.push(key.clone());
                }
                HubRecord::Ended(relay) => {
                    table.relayed.remove(relay);
                }
                HubRecord::Subscribed(..)
                | HubRecord::Progressed(..)
                | HubRecord::Published(_)
                | HubRecord::Forgotten(_) => {}
            }
        }
        if !records.is_empty() {
            (self.records)(records);
        }
        ended
    }

    /// Returns true if there is a subscription whose lease has not ended.
    pub fn is_subscribed(&self, key: &SubscriptionKey) -> bool {
        self.table().subscriptions.is_live(key, Timestamp::now())
    }

    /// Returns the next delivery of an assignment.
    pub fn next_delivery(&self, assignment: &Assignment) -> Option<Delivery> {
        let subscriptions = &mut self.table().subscriptions;
        subscriptions.next_delivery(assignment, Timestamp::now())
    }

    pub fn table(&self) -> MutexGuard<'_, SubscriptionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Summarizes suppressed log lines at the end of each interval.
pub async fn log_suppressed(hub: Weak<HubInner>) {
    loop {
        tokio::time::sleep(LOG_INTERVAL).await;
        let Some(hub) = hub.upgrade() else { return };
        hub.settings.current().client().log_suppressed();
        let mut limits = hub.log_limits();
        let (begun, ended) = (limits.begun.next_interval(), limits.ended.next_interval());
        let abandoned = limits.abandoned.next_interval();
        drop(limits);
        if begun + ended > 0 {
            info!(
                begun,
                ended, "{begun} more subscriptions began, and {ended} more ended"
            );
        }
        if abandoned > 0 {
            warn!(
                count = abandoned,
                "giving up on {abandoned} more deliveries to failing subscribers"
            );
        }
    }
}

/// Removes subscriptions whose leases have ended.
pub async fn expire(hub: Weak<HubInner>) {
    loop {
        tokio::time::sleep(EXPIRY_INTERVAL).await;
        let Some(hub) = hub.upgrade() else { return };
        hub.end("its lease has ended", |subscriptions| {
            subscriptions.end_leases(Timestamp::now())
        });
    }
}

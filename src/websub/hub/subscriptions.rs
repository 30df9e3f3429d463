//! The subscriptions there are: changed together with what is saved of them, and with what they count for.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tracing::{debug, info, warn};

use crate::hub::admission::Admission;
use crate::hub::audience::{Assignment, Audience, Delivery};
use crate::hub::quota::LineQuota;
use crate::hub::tally::Share;
use crate::hub::{HubRecord, Key, Progress, Relay, RelayId, Subscription};
use crate::websub::hub::Shared;

/// How often ended leases are forgotten. They are not delivered to in the meantime.
const END_LEASES_EVERY: Duration = Duration::from_secs(60);
/// How often it is summed up what was not logged.
const SUM_UP_EVERY: Duration = Duration::from_secs(10);

/// Log lines that strangers can cause.
#[derive(Debug)]
pub struct Lines {
    pub begun: LineQuota,
    pub ended: LineQuota,
    pub given_up: LineQuota,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines {
            begun: LineQuota::new(50),
            ended: LineQuota::new(50),
            given_up: LineQuota::new(10),
        }
    }
}

/// The audience, and on whose account each subscription counts. Who asked for one is not saved.
pub struct Subscriptions {
    pub audience: Audience,
    shares: HashMap<Key, Share>,
    /// When what is owed was relayed, if that was in this run.
    relayed: HashMap<RelayId, Instant>,
}

impl Subscriptions {
    /// What an earlier run left, and what of it has no use any more.
    pub fn restore(
        subscriptions: Vec<(Subscription, Progress)>,
        relays: Vec<Relay>,
        admission: &mut Admission,
    ) -> (Subscriptions, Vec<HubRecord>) {
        let mut shares = HashMap::new();
        for (subscription, _) in &subscriptions {
            let share = Share::new(&subscription.callback, None);
            admission.subscribed(&share);
            shares.insert(subscription.key(), share);
        }
        let (audience, obsolete) = Audience::restore(subscriptions, relays);
        let subscriptions = Subscriptions {
            audience,
            shares,
            relayed: HashMap::new(),
        };
        (subscriptions, obsolete)
    }
}

// Records are made while the lock is held, so that they leave in the order in which things changed.
impl Shared {
    pub fn subscribe(&self, subscription: Subscription, share: Share) {
        let Key { topic, callback } = subscription.key();
        let until = subscription.expires;
        match self.insert(subscription, share) {
            true if self.lines().begun.take() => {
                info!(%topic, %callback, %until, "{callback} subscribed to {topic}");
            }
            true => debug!(%topic, %callback, %until, "{callback} subscribed to {topic}"),
            false => {
                self.wakers.wake(&Key {
                    topic: topic.clone(),
                    callback: callback.clone(),
                });
                debug!(%topic, %callback, %until, "{callback} renewed its subscription to {topic}");
            }
        }
    }

    /// True if it is a new one.
    fn insert(&self, subscription: Subscription, share: Share) -> bool {
        let mut subscriptions = self.subscriptions();
        let mut admission = self.admission();
        admission.subscribed(&share);
        let replaced = subscriptions.shares.insert(subscription.key(), share);
        if let Some(replaced) = &replaced {
            admission.unsubscribed(replaced);
        }
        (self.records)(subscriptions.audience.subscribe(subscription));
        replaced.is_none()
    }

    /// Owes a notification that is saved, from now on.
    pub fn owe(&self, relay: Relay) {
        self.subscriptions()
            .relayed
            .insert(relay.id, Instant::now());
        self.change(|audience| audience.owe(relay).into_iter().collect());
    }

    /// How long ago a notification was relayed.
    pub fn age(&self, relay: RelayId) -> Option<Duration> {
        let subscriptions = self.subscriptions();
        subscriptions.relayed.get(&relay).map(Instant::elapsed)
    }

    /// Changes what ends subscriptions, and says of each why it did.
    pub fn end(&self, why: &str, change: impl FnOnce(&mut Audience) -> Vec<HubRecord>) {
        for Key { topic, callback } in self.change(change) {
            if !self.lines().ended.take() {
                continue;
            }
            info!(%topic, %callback, why, "the subscription of {callback} to {topic} has ended: {why}");
        }
    }

    /// The subscriptions that end by it.
    pub fn change(&self, change: impl FnOnce(&mut Audience) -> Vec<HubRecord>) -> Vec<Key> {
        let mut subscriptions = self.subscriptions();
        let records = change(&mut subscriptions.audience);
        let mut ended = Vec::new();
        for record in &records {
            match record {
                HubRecord::Unsubscribed(key) => {
                    if let Some(share) = subscriptions.shares.remove(key) {
                        self.admission().unsubscribed(&share);
                    }
                    ended.push(key.clone());
                }
                HubRecord::Ended(relay) => {
                    subscriptions.relayed.remove(relay);
                }
                HubRecord::Subscribed(..) | HubRecord::Progressed(..) => {}
            }
        }
        if !records.is_empty() {
            (self.records)(records);
        }
        ended
    }

    /// Whether there is a subscription with a lease that lasts.
    pub fn is_subscribed(&self, key: &Key) -> bool {
        let subscriptions = self.subscriptions();
        subscriptions.audience.is_live(key, Timestamp::now())
    }

    pub fn next(&self, assignment: &Assignment) -> Option<Delivery> {
        let mut subscriptions = self.subscriptions();
        subscriptions.audience.next(assignment, Timestamp::now())
    }

    pub fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        self.subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says what was not logged, from time to time.
pub async fn sum_up(hub: Weak<Shared>) {
    loop {
        tokio::time::sleep(SUM_UP_EVERY).await;
        let Some(hub) = hub.upgrade() else { return };
        hub.conduct().caller.sum_up();
        let mut lines = hub.lines();
        let (begun, ended) = (lines.begun.sum_up(), lines.ended.sum_up());
        let given_up = lines.given_up.sum_up();
        drop(lines);
        if begun + ended > 0 {
            info!(
                begun,
                ended, "{begun} more subscriptions have begun, and {ended} more have ended"
            );
        }
        if given_up > 0 {
            warn!(
                count = given_up,
                "gave up {given_up} more notifications to subscribers that take nothing"
            );
        }
    }
}

pub async fn end_leases(hub: Weak<Shared>) {
    loop {
        tokio::time::sleep(END_LEASES_EVERY).await;
        let Some(hub) = hub.upgrade() else { return };
        hub.end("its lease has ended", |audience| {
            audience.end_leases(Timestamp::now())
        });
    }
}

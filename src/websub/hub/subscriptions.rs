//! The subscriptions there are: changed together with what is saved of them, and with what they count for.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tracing::{debug, info};

use crate::announce::subscription::admission::Admission;
use crate::announce::subscription::audience::{Assignment, Audience, Delivery};
use crate::announce::subscription::tally::Share;
use crate::announce::subscription::{HubRecord, Key, Progress, Relay, RelayId, Subscription};
use crate::websub::hub::Shared;

/// How often ended leases are forgotten. They are not delivered to in the meantime.
const END_LEASES_EVERY: Duration = Duration::from_secs(60);

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
            true => info!(%topic, %callback, %until, "{callback} subscribed to {topic}"),
            false => {
                debug!(%topic, %callback, %until, "{callback} renewed its subscription to {topic}")
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
        (self.records)(vec![subscriptions.audience.subscribe(subscription)]);
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

pub async fn end_leases(hub: Weak<Shared>) {
    loop {
        tokio::time::sleep(END_LEASES_EVERY).await;
        let Some(hub) = hub.upgrade() else { return };
        hub.end("its lease has ended", |audience| {
            audience.end_leases(Timestamp::now())
        });
    }
}

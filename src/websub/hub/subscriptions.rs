//! The subscriptions there are: changed together with what is saved of them, and with what they count for.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::subscription::admission::Admission;
use crate::announce::subscription::audience::{Assignment, Audience, Delivery};
use crate::announce::subscription::tally::Share;
use crate::announce::subscription::{HubRecord, Key, Progress, Relay, Subscription};
use crate::websub::hub::Shared;

/// How often ended leases are forgotten. They are not delivered to in the meantime.
const END_LEASES_EVERY: Duration = Duration::from_secs(60);

/// The audience, and on whose account each subscription counts. Who asked for one is not saved.
pub struct Subscriptions {
    pub audience: Audience,
    shares: HashMap<Key, Share>,
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
        (Subscriptions { audience, shares }, obsolete)
    }
}

// Records are made while the lock is held, so that they leave in the order in which things changed.
impl Shared {
    pub fn subscribe(&self, subscription: Subscription, share: Share) {
        let mut subscriptions = self.subscriptions();
        let mut admission = self.admission();
        admission.subscribed(&share);
        if let Some(replaced) = subscriptions.shares.insert(subscription.key(), share) {
            admission.unsubscribed(&replaced);
        }
        (self.records)(subscriptions.audience.subscribe(subscription));
    }

    pub fn change(&self, change: impl FnOnce(&mut Audience) -> Vec<HubRecord>) {
        let mut subscriptions = self.subscriptions();
        for record in change(&mut subscriptions.audience) {
            if let HubRecord::Unsubscribed(key) = &record
                && let Some(share) = subscriptions.shares.remove(key)
            {
                self.admission().unsubscribed(&share);
            }
            (self.records)(record);
        }
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
        hub.change(|audience| audience.end_leases(Timestamp::now()));
    }
}

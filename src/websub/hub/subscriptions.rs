//! The subscriptions there are: changed together with what is saved of them, and with what they count for.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::subscription::admission::Admission;
use crate::announce::subscription::tally::Share;
use crate::announce::subscription::{Callback, HubRecord, Key, Subscription};
use crate::resourcesync::uri::Topic;
use crate::websub::hub::Shared;

/// How often ended leases are forgotten. They are not delivered to in the meantime.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// A subscription, and on whose account it counts. Who asked for it is not saved.
pub struct Held {
    pub subscription: Subscription,
    share: Share,
}

pub type ByTopic = HashMap<Topic, HashMap<Callback, Held>>;

/// What an earlier run left.
pub fn held(restored: Vec<Subscription>, admission: &mut Admission) -> ByTopic {
    let mut by_topic = ByTopic::new();
    for subscription in restored {
        let share = Share::new(&subscription.callback, None);
        put(
            &mut by_topic,
            admission,
            Held {
                subscription,
                share,
            },
        );
    }
    by_topic
}

fn put(by_topic: &mut ByTopic, admission: &mut Admission, held: Held) {
    let Subscription {
        topic, callback, ..
    } = &held.subscription;
    let of_topic = by_topic.entry(topic.clone()).or_default();
    admission.subscribed(&held.share);
    if let Some(replaced) = of_topic.insert(callback.clone(), held) {
        admission.unsubscribed(&replaced.share);
    }
}

// Records are made while the lock is held, so that they leave in the order in which the subscriptions changed.
impl Shared {
    pub fn subscription(&self, key: &Key) -> Option<Subscription> {
        self.subscriptions()
            .get(&key.topic)?
            .get(&key.callback)
            .map(|held| &held.subscription)
            .filter(|subscription| subscription.is_live(Timestamp::now()))
            .cloned()
    }

    pub fn subscribe(&self, subscription: Subscription, share: Share) {
        let mut subscriptions = self.subscriptions_mut();
        let held = Held {
            subscription: subscription.clone(),
            share,
        };
        put(&mut subscriptions, &mut self.admission(), held);
        (self.records)(HubRecord::Subscribed(subscription));
    }

    pub fn unsubscribe(&self, key: &Key) {
        let mut subscriptions = self.subscriptions_mut();
        if let Some(of_topic) = subscriptions.get_mut(&key.topic)
            && let Some(held) = of_topic.remove(&key.callback)
        {
            self.ended(&held);
            if of_topic.is_empty() {
                subscriptions.remove(&key.topic);
            }
        }
    }

    fn forget_ended_leases(&self, now: Timestamp) {
        self.subscriptions_mut().retain(|_, of_topic| {
            of_topic.retain(|_, held| {
                let is_live = held.subscription.is_live(now);
                if !is_live {
                    self.ended(held);
                }
                is_live
            });
            !of_topic.is_empty()
        });
    }

    fn ended(&self, held: &Held) {
        self.admission().unsubscribed(&held.share);
        (self.records)(HubRecord::Unsubscribed {
            topic: held.subscription.topic.clone(),
            callback: held.subscription.callback.clone(),
        });
    }

    pub fn subscriptions(&self) -> RwLockReadGuard<'_, ByTopic> {
        self.subscriptions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn subscriptions_mut(&self) -> RwLockWriteGuard<'_, ByTopic> {
        self.subscriptions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

pub async fn forget_ended_leases(hub: Weak<Shared>) {
    loop {
        tokio::time::sleep(FORGET_EVERY).await;
        let Some(hub) = hub.upgrade() else { return };
        hub.forget_ended_leases(Timestamp::now());
    }
}

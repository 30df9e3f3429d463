//! Subscriptions, and the notifications pending for each: those relayed on its topic after the last one it received.
//!
//! A notification is kept once for all its subscribers, and each subscriber has the number of the last one it received:
//! relaying to a hundred thousand subscribers costs no more than to one until the deliveries begin.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::uri::Topic;

use crate::hub::delivery::DeliveryOutcome;
use crate::hub::fair_queue::Priority;
use crate::hub::publication::BodyDigest;
use crate::hub::subscriptions::view::LastAttempt;
use crate::hub::{
    Callback, DeliveryProgress, HubRecord, Relay, RelayHeaders, RelayId, SavedHub, Subscription,
    SubscriptionKey,
};
use crate::secret::Secret;

#[cfg(feature = "hub")]
pub(crate) mod table;
#[cfg(feature = "hub")]
mod wakers;

pub mod view;

/// All subscriptions, and the notifications pending for them.
#[derive(Debug, Default)]
pub struct Subscriptions {
    topics: HashMap<Topic, TopicSubscribers>,
    /// The highest number given to a notification.
    last: RelayId,
    assignments: u64,
}

/// The subscribers of one topic.
#[derive(Debug, Default)]
struct TopicSubscribers {
    subscribers: HashMap<Callback, Subscriber>,
    pending: BTreeMap<RelayId, PendingRelay>,
    /// The notification that was relayed last, where repeats are recognised here; after a start, the last one that was
    /// pending.
    last: Option<BodyDigest>,
}

/// A notification that came for a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationToRelay {
    pub topic: Topic,
    /// Its number in its channel.
    pub seq: u64,
    pub body: Arc<[u8]>,
    pub headers: RelayHeaders,
}

#[derive(Debug)]
struct Subscriber {
    secret: Option<Secret>,
    expires: Timestamp,
    progress: DeliveryProgress,
    /// The last attempt in this run.
    last: Option<LastAttempt>,
    /// The assignment under which deliveries to it are made now, one after the other.
    assigned: Option<u64>,
}

/// The task of delivering to one subscriber until nothing is pending or the subscription has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub key: SubscriptionKey,
    number: u64,
}

#[derive(Debug)]
struct PendingRelay {
    relay: Arc<Relay>,
    /// The number of subscribers that have not received it; at least one.
    remaining: usize,
}

/// One notification for one subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub relay: Arc<Relay>,
    pub secret: Option<Secret>,
    pub progress: DeliveryProgress,
    pub priority: Priority,
}

/// A notification that is abandoned because too many are pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abandoned {
    pub relay: Arc<Relay>,
    /// The number of subscribers that have not received it.
    pub subscribers: usize,
}

impl Subscriptions {
    /// Restores the state of earlier runs. Returns the records that remove what is obsolete.
    pub fn restore(saved: SavedHub) -> (Subscriptions, Vec<HubRecord>) {
        let mut restored = Subscriptions::default();
        for (subscription, progress) in saved.subscriptions {
            restored.last = restored.last.max(progress.heard);
            let key = subscription.key();
            let on_topic = restored.topics.entry(key.topic).or_default();
            on_topic
                .subscribers
                .insert(key.callback, Subscriber::new(subscription, progress));
        }
        let mut records = Vec::new();
        for relay in saved.relays {
            restored.last = restored.last.max(relay.id);
            if let Some(on_topic) = restored.topics.get_mut(&relay.topic) {
                on_topic.last = Some(BodyDigest::of(&relay.body));
            }
            records.extend(restored.enqueue(relay));
        }
        (restored, records)
    }

    /// Adds or renews a verified subscription. A renewal keeps what is pending, which may be delivered at once, since the
    /// subscriber has just answered.
    pub fn subscribe(&mut self, subscription: Subscription) -> Vec<HubRecord> {
        let key = subscription.key();
        let SubscriptionKey { topic, callback } = key.clone();
        let on_topic = self.topics.entry(topic).or_default();
        let progress = DeliveryProgress {
            heard: self.last,
            ..DeliveryProgress::default()
        };
        let mut progressed = None;
        let progress = match on_topic.subscribers.get_mut(&callback) {
            Some(subscriber) => {
                subscriber.secret = subscription.secret.clone();
                subscriber.expires = subscription.expires;
                let due = DeliveryProgress {
                    heard: subscriber.progress.heard,
                    ..DeliveryProgress::default()
                };
                if subscriber.progress != due {
                    subscriber.progress = due;
                    progressed = Some(HubRecord::Progressed(key, due));
                }
                due
            }
            None => {
                let subscriber = Subscriber::new(subscription.clone(), progress);
                on_topic.subscribers.insert(callback, subscriber);
                progress
            }
        };
        let subscribed = HubRecord::Subscribed(subscription, progress.heard);
        std::iter::once(subscribed).chain(progressed).collect()
    }

    /// Removes a subscription.
    pub fn unsubscribe(&mut self, key: &SubscriptionKey) -> Vec<HubRecord> {
        let Some(on_topic) = self.topics.get_mut(&key.topic) else {
            return Vec::new();
        };
        let records = on_topic.remove(key);
        if on_topic.subscribers.is_empty() {
            self.topics.remove(&key.topic);
        }
        records
    }

    /// Returns true if there is a subscription whose lease has not ended.
    pub fn is_live(&self, key: &SubscriptionKey, now: Timestamp) -> bool {
        let on_topic = self.topics.get(&key.topic);
        let subscriber = on_topic.and_then(|on_topic| on_topic.subscribers.get(&key.callback));
        subscriber.is_some_and(|subscriber| now < subscriber.expires)
    }

    /// Returns the topics with subscribers.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.topics.keys()
    }

    /// Returns true if anybody subscribes to a topic.
    pub fn has_topic(&self, topic: &Topic) -> bool {
        self.topics.contains_key(topic)
    }

    /// Returns the callbacks that subscribe to a topic.
    pub fn callbacks(&self, topic: &Topic) -> Vec<Callback> {
        let on_topic = self.topics.get(topic).into_iter();
        on_topic
            .flat_map(|on_topic| on_topic.subscribers.keys().cloned())
            .collect()
    }

    /// Removes the subscriptions whose leases have ended.
    pub fn end_leases(&mut self, now: Timestamp) -> Vec<HubRecord> {
        let ended: Vec<SubscriptionKey> = self
            .topics
            .iter()
            .flat_map(|(topic, on_topic)| {
                let ended = on_topic
                    .subscribers
                    .iter()
                    .filter(|(_, subscriber)| subscriber.expires <= now);
                ended.map(|(callback, _)| SubscriptionKey {
                    topic: topic.clone(),
                    callback: callback.clone(),
                })
            })
            .collect();
        ended.iter().flat_map(|key| self.unsubscribe(key)).collect()
    }

    /// Relays as [`relay`](Subscriptions::relay) does, unless it is the notification that was relayed last: it is
    /// submitted again after a crash before its acceptance was saved.
    pub fn relay_once(
        &mut self,
        notification: NotificationToRelay,
        now: Timestamp,
    ) -> Option<Relay> {
        let on_topic = self.topics.get_mut(&notification.topic)?;
        let digest = Some(BodyDigest::of(&notification.body));
        if on_topic.last == digest {
            return None;
        }
        on_topic.last = digest;
        self.relay(notification, now)
    }

    /// Numbers a notification for relaying, unless its topic has no subscribers. The caller saves it, then passes it to
    /// [`enqueue`](Subscriptions::enqueue).
    pub fn relay(&mut self, notification: NotificationToRelay, now: Timestamp) -> Option<Relay> {
        let on_topic = self.topics.get(&notification.topic)?;
        on_topic
            .subscribers
            .values()
            .find(|subscriber| now < subscriber.expires)?;
        let NotificationToRelay {
            topic,
            seq,
            body,
            headers,
        } = notification;
        self.last = RelayId(self.last.0 + 1);
        Some(Relay {
            id: self.last,
            topic,
            seq,
            body,
            headers,
        })
    }

    /// Makes a saved notification pending for the subscribers that subscribed before it was numbered.
    pub fn enqueue(&mut self, relay: Relay) -> Option<HubRecord> {
        let id = relay.id;
        let ended = HubRecord::Ended(id);
        let Some(on_topic) = self.topics.get_mut(&relay.topic) else {
            return Some(ended);
        };
        let subscribers = on_topic.subscribers.values();
        let remaining = subscribers
            .filter(|subscriber| subscriber.progress.heard < id)
            .count();
        if remaining == 0 {
            return Some(ended);
        }
        let relay = Arc::new(relay);
        on_topic
            .pending
            .insert(id, PendingRelay { relay, remaining });
        None
    }

    /// Assigns the subscribers of a topic that have notifications pending and no assignment, in order of priority. The
    /// caller delivers to each.
    pub fn assign(&mut self, topic: &Topic) -> Vec<Assignment> {
        let Some(on_topic) = self.topics.get_mut(topic) else {
            return Vec::new();
        };
        let Some((last, _)) = on_topic.pending.last_key_value() else {
            return Vec::new();
        };
        let is_idle = |subscriber: &Subscriber| {
            subscriber.assigned.is_none() && subscriber.progress.heard < *last
        };
        let idle = on_topic.subscribers.iter_mut();
        let idle = idle.filter(|(_, subscriber)| is_idle(subscriber));
        let assign = |(callback, subscriber): (&Callback, &mut Subscriber)| {
            self.assignments += 1;
            subscriber.assigned = Some(self.assignments);
            let assignment = Assignment {
                key: SubscriptionKey {
                    topic: topic.clone(),
                    callback: callback.clone(),
                },
                number: self.assignments,
            };
            (subscriber.priority(), assignment)
        };
        let mut assigned: Vec<(Priority, Assignment)> = idle.map(assign).collect();
        assigned.sort_by_key(|(priority, _)| *priority);
        assigned
            .into_iter()
            .map(|(_, assignment)| assignment)
            .collect()
    }

    /// Returns the topics with pending notifications.
    pub fn topics_with_pending(&self) -> Vec<Topic> {
        let pending = self
            .topics
            .iter()
            .filter(|(_, on_topic)| !on_topic.pending.is_empty());
        pending.map(|(topic, _)| topic.clone()).collect()
    }

    /// Returns the next delivery of an assignment; if there is none, the assignment has ended.
    pub fn next_delivery(&mut self, assignment: &Assignment, now: Timestamp) -> Option<Delivery> {
        let (on_topic, callback) = self.assigned(assignment)?;
        let subscriber = on_topic.subscribers.get_mut(callback)?;
        let after = (Excluded(subscriber.progress.heard), Unbounded);
        match on_topic.pending.range(after).next() {
            Some((_, pending)) if now < subscriber.expires => Some(Delivery {
                relay: Arc::clone(&pending.relay),
                secret: subscriber.secret.clone(),
                progress: subscriber.progress,
                priority: subscriber.priority(),
            }),
            _ => {
                subscriber.assigned = None;
                None
            }
        }
    }

    /// Applies the outcome of a delivery.
    pub fn answered(
        &mut self,
        assignment: &Assignment,
        id: RelayId,
        outcome: DeliveryOutcome,
    ) -> Vec<HubRecord> {
        let key = &assignment.key;
        let Some((on_topic, callback)) = self.assigned(assignment) else {
            return Vec::new();
        };
        let Some(subscriber) = on_topic.subscribers.get_mut(callback) else {
            return Vec::new();
        };
        let progress = &mut subscriber.progress;
        let mut ended = None;
        match outcome {
            DeliveryOutcome::Gone => return self.unsubscribe(key),
            DeliveryOutcome::Retry { at } => {
                progress.attempts += 1;
                progress.next_try = Some(at);
            }
            DeliveryOutcome::Delivered | DeliveryOutcome::Abandoned => {
                *progress = DeliveryProgress {
                    heard: id,
                    ..DeliveryProgress::default()
                };
            }
        }
        let progressed = HubRecord::Progressed(key.clone(), *progress);
        if progress.heard == id {
            ended = on_topic.received(id);
        }
        std::iter::once(progressed).chain(ended).collect()
    }

    /// Returns the subscribers and the callback of an assignment, unless its subscription has ended, or ended and begun
    /// anew, meanwhile.
    fn assigned<'a>(
        &mut self,
        assignment: &'a Assignment,
    ) -> Option<(&mut TopicSubscribers, &'a Callback)> {
        let callback = &assignment.key.callback;
        let on_topic = self.topics.get_mut(&assignment.key.topic)?;
        let subscriber = on_topic.subscribers.get(callback)?;
        (subscriber.assigned == Some(assignment.number)).then_some((on_topic, callback))
    }

    /// Abandons the oldest pending notifications of a topic beyond the limits; the newest stays.
    pub fn trim(&mut self, topic: &Topic, max_count: usize, max_bytes: usize) -> Vec<Abandoned> {
        let Some(on_topic) = self.topics.get_mut(topic) else {
            return Vec::new();
        };
        let bytes = |pending: &PendingRelay| pending.relay.body.len();
        let mut total_bytes: usize = on_topic.pending.values().map(bytes).sum();
        let mut abandoned = Vec::new();
        while on_topic.pending.len() > 1
            && (on_topic.pending.len() > max_count || total_bytes > max_bytes)
            && let Some((_, oldest)) = on_topic.pending.pop_first()
        {
            total_bytes -= bytes(&oldest);
            abandoned.push(Abandoned {
                relay: oldest.relay,
                subscribers: oldest.remaining,
            });
        }
        abandoned
    }
}

impl TopicSubscribers {
    fn remove(&mut self, key: &SubscriptionKey) -> Vec<HubRecord> {
        let Some(subscriber) = self.subscribers.remove(&key.callback) else {
            return Vec::new();
        };
        let after = (Excluded(subscriber.progress.heard), Unbounded);
        let pending: Vec<RelayId> = self.pending.range(after).map(|(id, _)| *id).collect();
        let mut records = vec![HubRecord::Unsubscribed(key.clone())];
        records.extend(pending.into_iter().filter_map(|id| self.received(id)));
        records
    }

    /// Counts a notification as received or abandoned for one subscriber.
    fn received(&mut self, id: RelayId) -> Option<HubRecord> {
        let pending = self.pending.get_mut(&id)?;
        pending.remaining -= 1;
        if pending.remaining > 0 {
            return None;
        }
        self.pending.remove(&id);
        Some(HubRecord::Ended(id))
    }
}

impl Subscriber {
    fn new(subscription: Subscription, progress: DeliveryProgress) -> Subscriber {
        Subscriber {
            secret: subscription.secret,
            expires: subscription.expires,
            progress,
            last: None,
            assigned: None,
        }
    }

    fn priority(&self) -> Priority {
        let has_accepted = |last: &LastAttempt| last.status.is_some_and(|status| status / 100 == 2);
        match &self.last {
            _ if self.progress.attempts > 0 => Priority::Retry,
            Some(last) if has_accepted(last) => Priority::Known,
            _ => Priority::First,
        }
    }
}

#[cfg(test)]
mod tests;

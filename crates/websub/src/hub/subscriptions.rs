//! Subscriptions, and the notifications pending for each: those relayed on its topic after the last one it received.
//!
//! A notification is kept once for all its subscribers, in the state file, and each subscriber has the number of the last
//! one it received: relaying to a hundred thousand subscribers costs no more than to one until the deliveries begin, and
//! memory does not grow with what subscribers are behind.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::uri::Topic;

use crate::hub::delivery::DeliveryOutcome;
use crate::hub::fair_queue::Priority;
use crate::hub::publication::BodyDigest;
use crate::hub::subscriptions::backlog::{Extent, TopicBacklog};
use crate::hub::subscriptions::view::LastAttempt;
use crate::hub::{
    Callback, DeliveryProgress, HubRecord, PendingRelay, Relay, RelayHeaders, RelayId, SavedHub,
    SavedTopic, Subscription, SubscriptionKey,
};
use crate::secret::Secret;

#[cfg(feature = "hub")]
pub(crate) mod table;
#[cfg(feature = "hub")]
mod wakers;

pub mod backlog;
pub mod view;

/// All subscriptions, and the notifications pending for them.
#[derive(Debug, Default)]
pub struct Subscriptions {
    topics: HashMap<Topic, TopicSubscribers>,
    /// The highest number given to a notification.
    last: RelayId,
    /// Bytes of the notifications that some subscriber has not received.
    backlog_bytes: u64,
    assignments: u64,
}

/// The subscribers of one topic.
#[derive(Debug)]
struct TopicSubscribers {
    subscribers: HashMap<Callback, Subscriber>,
    backlog: TopicBacklog,
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

/// A delivery to one subscriber, of the notification that follows the one it received last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub secret: Option<Secret>,
    pub progress: DeliveryProgress,
    pub priority: Priority,
}

/// The subscriptions to one topic that are furthest behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargestDebt {
    pub topic: Topic,
    pub callbacks: Vec<Callback>,
    /// The notifications that are pending for each of them.
    pub owed: Extent,
}

impl Subscriptions {
    /// Restores the state of earlier runs. Returns the records that remove what is obsolete.
    pub fn restore(saved: SavedHub) -> (Subscriptions, Vec<HubRecord>) {
        let mut restored = Subscriptions::default();
        let mut subscribers: HashMap<Topic, HashMap<Callback, Subscriber>> = HashMap::new();
        for (subscription, progress) in saved.subscriptions {
            restored.last = restored.last.max(progress.heard);
            let SubscriptionKey { topic, callback } = subscription.key();
            let on_topic = subscribers.entry(topic).or_default();
            on_topic.insert(callback, Subscriber::new(subscription, progress));
        }
        let mut records = Vec::new();
        let mut insert = |topic: Topic,
                          subscribers: HashMap<Callback, Subscriber>,
                          relays: &[PendingRelay],
                          last: Option<BodyDigest>| {
            let heard = subscribers.values();
            let heard = heard.map(|subscriber| subscriber.progress.heard).collect();
            let (backlog, obsolete) = TopicBacklog::restore(relays, heard);
            restored.backlog_bytes += backlog.size().bytes;
            records.extend(obsolete.map(|id| HubRecord::Ended(topic.clone(), id)));
            let on_topic = TopicSubscribers {
                subscribers,
                backlog,
                last,
            };
            restored.topics.insert(topic, on_topic);
        };
        let mut unneeded = Vec::new();
        let mut last_relay = RelayId::default();
        for SavedTopic {
            topic,
            relays,
            last,
        } in saved.topics
        {
            let last_id = relays.last().map_or(RelayId::default(), |relay| relay.id);
            last_relay = last_relay.max(last_id);
            match subscribers.remove(&topic) {
                Some(subscribers) => insert(topic, subscribers, &relays, Some(last)),
                None => unneeded.push(HubRecord::Ended(topic, last_id)),
            }
        }
        for (topic, subscribers) in subscribers {
            insert(topic, subscribers, &[], None);
        }
        restored.last = restored.last.max(last_relay);
        records.extend(unneeded);
        (restored, records)
    }

    /// Adds or renews a verified subscription. A renewal keeps what is pending, which may be delivered at once, since the
    /// subscriber has just answered.
    pub fn subscribe(&mut self, subscription: Subscription) -> Vec<HubRecord> {
        let key = subscription.key();
        let SubscriptionKey { topic, callback } = key.clone();
        let last = self.last;
        let on_topic = self.topics.entry(topic);
        let on_topic = on_topic.or_insert_with(|| TopicSubscribers::new(last));
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
                let progress = DeliveryProgress {
                    heard: on_topic.backlog.subscribe(),
                    ..DeliveryProgress::default()
                };
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
        let Some(subscriber) = on_topic.subscribers.remove(&key.callback) else {
            return Vec::new();
        };
        let before = on_topic.backlog.size().bytes;
        let obsolete = on_topic.backlog.unsubscribe(subscriber.progress.heard);
        self.backlog_bytes -= before - on_topic.backlog.size().bytes;
        if on_topic.subscribers.is_empty() {
            self.topics.remove(&key.topic);
        }
        let ended = obsolete.map(|id| HubRecord::Ended(key.topic.clone(), id));
        let removed = HubRecord::Unsubscribed(key.clone());
        std::iter::once(removed).chain(ended).collect()
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

    /// Numbers a notification for relaying, unless its topic has no subscribers. The caller saves it, then calls
    /// [`saved`](Subscriptions::saved).
    pub fn relay(&mut self, notification: NotificationToRelay, now: Timestamp) -> Option<Relay> {
        let on_topic = self.topics.get_mut(&notification.topic)?;
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
        let before = on_topic.backlog.size().bytes;
        on_topic.backlog.relay(PendingRelay {
            id: self.last,
            size: body.len() as u64,
        });
        self.backlog_bytes += on_topic.backlog.size().bytes - before;
        Some(Relay {
            id: self.last,
            topic,
            seq,
            body,
            headers,
        })
    }

    /// Takes note that a notification is saved: it may be delivered.
    pub fn saved(&mut self, topic: &Topic, id: RelayId) -> Option<HubRecord> {
        let on_topic = self.topics.get_mut(topic);
        let is_needed = on_topic.is_some_and(|on_topic| on_topic.backlog.saved(id));
        (!is_needed).then(|| HubRecord::Ended(topic.clone(), id))
    }

    /// Returns the bytes of the notifications that some subscriber has not received.
    pub fn backlog_bytes(&self) -> u64 {
        self.backlog_bytes
    }

    /// Returns the subscriptions for which most bytes are pending, if all topics together have more than `max`. A
    /// subscription for which only the last notification of its topic is pending is none of them.
    pub fn largest_debt(&self, max: u64) -> Option<LargestDebt> {
        if self.backlog_bytes <= max {
            return None;
        }
        let (topic, on_topic) = self
            .topics
            .iter()
            .filter(|(_, on_topic)| on_topic.backlog.size().count > 1)
            .max_by_key(|(topic, on_topic)| (on_topic.backlog.size().bytes, *topic))?;
        let lowest = on_topic.backlog.lowest();
        let behind = on_topic
            .subscribers
            .iter()
            .filter(|(_, subscriber)| Some(subscriber.progress.heard) == lowest);
        Some(LargestDebt {
            topic: topic.clone(),
            callbacks: behind.map(|(callback, _)| callback.clone()).collect(),
            owed: on_topic.backlog.size(),
        })
    }

    /// Assigns the subscribers of a topic that have notifications pending and no assignment, in order of priority. The
    /// caller delivers to each.
    pub fn assign(&mut self, topic: &Topic) -> Vec<Assignment> {
        let Some(on_topic) = self.topics.get_mut(topic) else {
            return Vec::new();
        };
        let backlog = &on_topic.backlog;
        let idle = on_topic.subscribers.iter_mut();
        let idle = idle.filter(|(_, subscriber)| subscriber.is_idle(backlog));
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

    /// Assigns one subscriber, if it has notifications pending and no assignment.
    pub fn assign_one(&mut self, key: &SubscriptionKey) -> Option<Assignment> {
        let on_topic = self.topics.get_mut(&key.topic)?;
        let subscriber = on_topic.subscribers.get_mut(&key.callback)?;
        if !subscriber.is_idle(&on_topic.backlog) {
            return None;
        }
        self.assignments += 1;
        subscriber.assigned = Some(self.assignments);
        Some(Assignment {
            key: key.clone(),
            number: self.assignments,
        })
    }

    /// Returns the topics with pending notifications.
    pub fn topics_with_pending(&self) -> Vec<Topic> {
        let pending = self
            .topics
            .iter()
            .filter(|(_, on_topic)| on_topic.backlog.is_pending());
        pending.map(|(topic, _)| topic.clone()).collect()
    }

    /// Returns the next delivery of an assignment; if there is none, the assignment has ended.
    pub fn next_delivery(&mut self, assignment: &Assignment, now: Timestamp) -> Option<Delivery> {
        let (on_topic, callback) = self.assigned(assignment)?;
        let subscriber = on_topic.subscribers.get_mut(callback)?;
        match on_topic.backlog.has_saved(subscriber.progress.heard) {
            true if now < subscriber.expires => Some(Delivery {
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

    /// Returns the progress of the subscriber of an assignment.
    pub fn progress(&mut self, assignment: &Assignment) -> DeliveryProgress {
        let assigned = self.assigned(assignment);
        let subscriber = assigned.and_then(|(on_topic, key)| on_topic.subscribers.get(key));
        subscriber.map_or_else(DeliveryProgress::default, |subscriber| subscriber.progress)
    }

    /// Applies the outcome of a delivery of a notification.
    pub fn answered(
        &mut self,
        assignment: &Assignment,
        relay: PendingRelay,
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
        let mut obsolete = None;
        let mut freed = 0;
        match outcome {
            DeliveryOutcome::Gone => return self.unsubscribe(key),
            DeliveryOutcome::Retry { at } => {
                progress.attempts += 1;
                progress.next_try = Some(at);
            }
            DeliveryOutcome::Delivered | DeliveryOutcome::Abandoned => {
                let backlog = &mut on_topic.backlog;
                let before = backlog.size().bytes;
                obsolete = backlog.receive(progress.heard, relay);
                freed = before - backlog.size().bytes;
                *progress = DeliveryProgress {
                    heard: relay.id,
                    ..DeliveryProgress::default()
                };
            }
        }
        let progressed = HubRecord::Progressed(key.clone(), *progress);
        self.backlog_bytes -= freed;
        let ended = obsolete.map(|id| HubRecord::Ended(key.topic.clone(), id));
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
}

impl TopicSubscribers {
    fn new(last: RelayId) -> TopicSubscribers {
        TopicSubscribers {
            subscribers: HashMap::new(),
            backlog: TopicBacklog::new(last),
            last: None,
        }
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

    /// Returns true if something is pending for it and not being delivered.
    fn is_idle(&self, backlog: &TopicBacklog) -> bool {
        self.assigned.is_none() && backlog.has_saved(self.progress.heard)
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

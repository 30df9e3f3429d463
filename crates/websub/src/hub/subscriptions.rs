//! Subscriptions, and the notifications pending for each: those relayed on its topic after the last one it received.
//!
//! A notification is kept once for all its subscribers, in the state file, and each subscriber has the number of the last
//! one it received: relaying to a hundred thousand subscribers costs no more than to one until the deliveries begin, and
//! memory does not grow with what subscribers are behind.

use std::collections::HashMap;

use jiff::Timestamp;
use resourcesync::uri::Topic;

use crate::hub::admission::{QuotaKeys, Usage};
use crate::hub::client_address::Requester;
use crate::hub::delivery::DeliveryOutcome;
use crate::hub::fair_queue::Priority;
use crate::hub::published_topics::BodyDigest;
use crate::hub::subscriptions::backlog::{BacklogCounts, BacklogSize};
use crate::hub::subscriptions::view::LastAttempt;
use crate::hub::{
    Callback, DeliveryProgress, HubRecord, Relay, RelayId, RelaySize, SavedHub, SavedTopicRelays,
    Subscription, SubscriptionKey,
};
use crate::secret::Secret;

pub mod backlog;
pub mod view;

/// All subscriptions, and the notifications pending for them.
#[derive(Debug, Default)]
pub struct Subscriptions {
    topics: HashMap<Topic, TopicState>,
    /// What counts against the quotas.
    pub usage: Usage,
    /// The highest number given to a notification.
    last: RelayId,
    /// Bytes of the notifications that some subscriber has not received.
    backlog_bytes: u64,
    assignments: u64,
}

/// What the hub keeps of one topic: its subscribers, and what some have not received.
#[derive(Debug, Default)]
struct TopicState {
    /// Each in a box: there may be a hundred thousand, and a map has many empty places.
    subscribers: HashMap<Callback, Box<TopicSubscriber>>,
    backlog: BacklogCounts,
    /// The notification that was relayed last, where repeats are recognised here; after a start, the last one that was
    /// pending.
    last: Option<BodyDigest>,
}

/// A subscription. What few have is in a box.
#[derive(Debug)]
struct TopicSubscriber {
    secret: Option<Secret>,
    expires: Timestamp,
    requester: Option<Requester>,
    progress: DeliveryProgress,
    /// The last attempt in this run.
    last: Option<Box<LastAttempt>>,
    /// The assignment under which deliveries are made now, one after the other.
    assigned: Option<u64>,
}

/// Identifies the task that delivers to one subscriber until nothing is pending or the subscription has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryTaskId {
    /// The subscription.
    pub key: SubscriptionKey,
    number: u64,
}

/// A delivery to one subscriber, of the notification that follows the one it received last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The secret that it is signed with.
    pub secret: Option<Secret>,
    /// Progress of the subscriber before this delivery.
    pub progress: DeliveryProgress,
    /// Its priority.
    pub priority: Priority,
}

impl Subscriptions {
    /// Restores the state of earlier runs. Returns the records that remove what is obsolete.
    pub fn restore(saved: SavedHub) -> (Subscriptions, Vec<HubRecord>) {
        let mut restored = Subscriptions::default();
        for (subscription, progress) in saved.subscriptions {
            restored.last = restored.last.max(progress.heard);
            restored.usage.add(&subscription.buckets());
            let entry = restored.topics.entry(subscription.topic.clone());
            let on_topic = entry.or_default();
            let subscriber = TopicSubscriber::new(&subscription, progress);
            on_topic
                .subscribers
                .insert(subscription.callback, subscriber);
        }
        let mut pending: HashMap<Topic, SavedTopicRelays> = HashMap::new();
        let mut records = Vec::new();
        for saved in saved.topics {
            let last = saved.relays.last().map_or(RelayId(0), |relay| relay.id);
            restored.last = restored.last.max(last);
            if restored.topics.contains_key(&saved.topic) {
                pending.insert(saved.topic.clone(), saved);
            } else {
                records.push(HubRecord::Ended(saved.topic, last));
            }
        }
        for (topic, on_topic) in &mut restored.topics {
            let saved = pending.remove(topic);
            let relays = saved.as_ref().map_or(&[][..], |saved| &saved.relays);
            let known = on_topic.subscribers.values();
            let heard = known.map(|known| known.progress.heard);
            let (backlog, obsolete) = BacklogCounts::restore(relays, heard.collect());
            restored.backlog_bytes += backlog.stored_size().bytes;
            records.extend(obsolete.map(|id| HubRecord::Ended(topic.clone(), id)));
            on_topic.backlog = backlog;
            on_topic.last = saved.map(|saved| saved.last);
        }
        (restored, records)
    }

    /// Adds or renews a verified subscription. A renewal keeps what is pending, which may be delivered at once, since the
    /// subscriber has just answered.
    pub fn subscribe(&mut self, subscription: Subscription) -> Vec<HubRecord> {
        self.usage.add(&subscription.buckets());
        let entry = self.topics.entry(subscription.topic.clone());
        let on_topic = entry.or_insert_with(|| TopicState {
            backlog: BacklogCounts::new(self.last),
            ..TopicState::default()
        });
        let known = on_topic.subscribers.remove(&subscription.callback);
        let heard = match &known {
            Some(known) => known.progress.heard,
            None => on_topic.backlog.subscribe(),
        };
        let progress = DeliveryProgress {
            heard,
            ..DeliveryProgress::default()
        };
        let callback = subscription.callback.clone();
        let mut subscriber = TopicSubscriber::new(&subscription, progress);
        let mut progressed = None;
        if let Some(known) = known {
            let buckets = QuotaKeys::new(&callback, known.requester);
            self.usage.remove(&buckets);
            let failed = known.progress.attempts > 0;
            progressed = failed.then(|| HubRecord::Progressed(subscription.key(), progress));
            (subscriber.last, subscriber.assigned) = (known.last, known.assigned);
        }
        on_topic.subscribers.insert(callback, subscriber);
        let subscribed = HubRecord::Subscribed(subscription, heard);
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
        let buckets = QuotaKeys::new(&key.callback, subscriber.requester);
        self.usage.remove(&buckets);
        let before = on_topic.backlog.stored_size().bytes;
        let obsolete = on_topic.backlog.unsubscribe(subscriber.progress.heard);
        self.backlog_bytes -= before - on_topic.backlog.stored_size().bytes;
        if on_topic.subscribers.is_empty() {
            self.topics.remove(&key.topic);
        }
        let ended = obsolete.map(|id| HubRecord::Ended(key.topic.clone(), id));
        let removed = HubRecord::Unsubscribed(key.clone());
        std::iter::once(removed).chain(ended).collect()
    }

    /// Returns true if there is a subscription, which is so for a minute after its lease has ended too.
    pub fn contains(&self, key: &SubscriptionKey) -> bool {
        let on_topic = self.topics.get(&key.topic);
        on_topic.is_some_and(|on_topic| on_topic.subscribers.contains_key(&key.callback))
    }

    /// Returns the topics with subscribers.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.topics.keys()
    }

    /// Returns the subscriptions to a topic.
    pub fn of_topic(&self, topic: &Topic) -> Vec<SubscriptionKey> {
        let on_topic = self.topics.get(topic).into_iter();
        let callbacks = on_topic.flat_map(|on_topic| on_topic.subscribers.keys());
        callbacks
            .map(|callback| SubscriptionKey::new(topic, callback))
            .collect()
    }

    /// Removes the subscriptions whose leases have ended.
    pub fn end_leases(&mut self, now: Timestamp) -> Vec<HubRecord> {
        let mut ended = Vec::new();
        for (topic, on_topic) in &self.topics {
            let subscribers = on_topic.subscribers.iter();
            let over = subscribers.filter(|(_, subscriber)| subscriber.expires <= now);
            ended.extend(over.map(|(callback, _)| SubscriptionKey::new(topic, callback)));
        }
        ended.iter().flat_map(|key| self.unsubscribe(key)).collect()
    }

    /// Relays as [`number_new_relay`](Subscriptions::number_new_relay) does, unless it is the notification that was relayed
    /// last: it is submitted again after a crash before its acceptance was saved.
    pub fn number_relay(&mut self, relay: Relay, now: Timestamp) -> Option<Relay> {
        let on_topic = self.topics.get_mut(&relay.topic)?;
        let digest = Some(BodyDigest::of(&relay.body));
        if on_topic.last == digest {
            return None;
        }
        on_topic.last = digest;
        self.number_new_relay(relay, now)
    }

    /// Numbers a notification for relaying, unless its topic has no subscribers. The caller saves it, then calls
    /// [`note_saved`](Subscriptions::note_saved).
    pub fn number_new_relay(&mut self, mut relay: Relay, now: Timestamp) -> Option<Relay> {
        let on_topic = self.topics.get_mut(&relay.topic)?;
        let mut subscribers = on_topic.subscribers.values();
        subscribers.find(|subscriber| now < subscriber.expires)?;
        self.last = RelayId(self.last.0 + 1);
        let before = on_topic.backlog.stored_size().bytes;
        on_topic.backlog.add_relay(RelaySize {
            id: self.last,
            size: relay.body.len() as u64,
        });
        self.backlog_bytes += on_topic.backlog.stored_size().bytes - before;
        relay.id = self.last;
        Some(relay)
    }

    /// Takes note that a notification is saved: it may be delivered.
    pub fn note_saved(&mut self, topic: &Topic, id: RelayId) -> Option<HubRecord> {
        let on_topic = self.topics.get_mut(topic);
        let is_needed = on_topic.is_some_and(|on_topic| on_topic.backlog.note_saved(id));
        (!is_needed).then(|| HubRecord::Ended(topic.clone(), id))
    }

    /// Returns the subscriptions for which most bytes are pending, if all topics together have more than `max`. A
    /// subscription for which only the last notification of its topic is pending is none of them.
    pub fn largest_debt(&self, max: u64) -> Option<(Vec<SubscriptionKey>, BacklogSize)> {
        if self.backlog_bytes <= max {
            return None;
        }
        let (topic, on_topic) = self
            .topics
            .iter()
            .filter(|(_, on_topic)| on_topic.backlog.stored_size().count > 1)
            .max_by_key(|(topic, on_topic)| (on_topic.backlog.stored_size().bytes, *topic))?;
        let lowest = on_topic.backlog.positions.first();
        let behind = on_topic.subscribers.iter().filter(|(_, subscriber)| {
            lowest.is_some_and(|lowest| lowest.heard == subscriber.progress.heard)
        });
        let keys = behind.map(|(callback, _)| SubscriptionKey::new(topic, callback));
        Some((keys.collect(), on_topic.backlog.stored_size()))
    }

    /// Assigns the subscribers of a topic that have notifications pending and no assignment, in order of priority. The
    /// caller delivers to each.
    pub fn assign_tasks(&mut self, topic: &Topic) -> Vec<DeliveryTaskId> {
        let Some(on_topic) = self.topics.get_mut(topic) else {
            return Vec::new();
        };
        let assign = |(callback, subscriber): (&Callback, &mut Box<TopicSubscriber>)| {
            let number = subscriber.assign_task(&on_topic.backlog, &mut self.assignments)?;
            let key = SubscriptionKey::new(topic, callback);
            Some((subscriber.priority(), DeliveryTaskId { key, number }))
        };
        let subscribers = on_topic.subscribers.iter_mut();
        let mut assigned: Vec<(Priority, _)> = subscribers.filter_map(assign).collect();
        assigned.sort_by_key(|(priority, _)| *priority);
        assigned
            .into_iter()
            .map(|(_, assignment)| assignment)
            .collect()
    }

    /// Assigns one subscriber, if it has notifications pending and no assignment.
    pub fn assign_task(&mut self, key: &SubscriptionKey) -> Option<DeliveryTaskId> {
        let on_topic = self.topics.get_mut(&key.topic)?;
        let subscriber = on_topic.subscribers.get_mut(&key.callback)?;
        let number = subscriber.assign_task(&on_topic.backlog, &mut self.assignments)?;
        let key = key.clone();
        Some(DeliveryTaskId { key, number })
    }

    /// Returns the topics with pending notifications.
    pub fn topics_with_pending(&self) -> Vec<Topic> {
        let topics = self.topics.iter();
        let pending = topics.filter(|(_, on_topic)| on_topic.backlog.is_pending());
        pending.map(|(topic, _)| topic.clone()).collect()
    }

    /// Returns the next delivery of a task; if there is none, it has ended.
    pub fn next_delivery(&mut self, task: &DeliveryTaskId, now: Timestamp) -> Option<Delivery> {
        let (subscriber, backlog) = self.subscriber_of_task(task)?;
        if now < subscriber.expires && backlog.has_saved_after(subscriber.progress.heard) {
            return Some(Delivery {
                secret: subscriber.secret.clone(),
                progress: subscriber.progress,
                priority: subscriber.priority(),
            });
        }
        subscriber.assigned = None;
        None
    }

    /// Returns the progress of the subscriber of an assignment.
    pub fn progress_of(&mut self, assignment: &DeliveryTaskId) -> DeliveryProgress {
        let assigned = self.subscriber_of_task(assignment);
        assigned.map_or_else(DeliveryProgress::default, |(known, _)| known.progress)
    }

    /// Applies the outcome of an attempt to deliver a notification, and remembers the attempt for the views.
    pub fn apply_outcome(
        &mut self,
        assignment: &DeliveryTaskId,
        relay: RelaySize,
        last: LastAttempt,
        outcome: DeliveryOutcome,
    ) -> Vec<HubRecord> {
        let key = &assignment.key;
        let Some((subscriber, backlog)) = self.subscriber_of_task(assignment) else {
            return Vec::new();
        };
        subscriber.last = Some(Box::new(last));
        let progress = &mut subscriber.progress;
        let mut obsolete = None;
        let mut freed = 0;
        match outcome {
            DeliveryOutcome::Gone => return self.unsubscribe(key),
            DeliveryOutcome::Retry(at) => {
                progress.attempts += 1;
                progress.next_try = Some(at);
            }
            DeliveryOutcome::Delivered | DeliveryOutcome::Abandoned => {
                let before = backlog.stored_size().bytes;
                obsolete = backlog.move_past(progress.heard, relay);
                freed = before - backlog.stored_size().bytes;
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

    /// Returns the subscriber of an assignment and its topic's backlog, unless its subscription has ended, or ended and
    /// begun anew, meanwhile.
    fn subscriber_of_task(
        &mut self,
        assignment: &DeliveryTaskId,
    ) -> Option<(&mut TopicSubscriber, &mut BacklogCounts)> {
        let on_topic = self.topics.get_mut(&assignment.key.topic)?;
        let subscriber = on_topic.subscribers.get_mut(&assignment.key.callback)?;
        let is_current = subscriber.assigned == Some(assignment.number);
        is_current.then_some((subscriber, &mut on_topic.backlog))
    }
}

impl TopicSubscriber {
    fn new(subscription: &Subscription, progress: DeliveryProgress) -> Box<TopicSubscriber> {
        Box::new(TopicSubscriber {
            secret: subscription.secret.clone(),
            expires: subscription.expires,
            requester: subscription.requester,
            progress,
            last: None,
            assigned: None,
        })
    }

    /// Assigns it under a new number, if something is pending for it and not being delivered.
    fn assign_task(&mut self, backlog: &BacklogCounts, assignments: &mut u64) -> Option<u64> {
        if self.assigned.is_some() || !backlog.has_saved_after(self.progress.heard) {
            return None;
        }
        *assignments += 1;
        self.assigned = Some(*assignments);
        self.assigned
    }

    fn priority(&self) -> Priority {
        match self.last.as_ref().and_then(|last| last.status) {
            _ if self.progress.attempts > 0 => Priority::Retry,
            Some(200..=299) => Priority::Known,
            _ => Priority::First,
        }
    }
}

#[cfg(test)]
mod tests;

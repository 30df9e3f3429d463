//! Who subscribes to what, and what each subscriber is owed: all that was relayed on its topic since it last heard.
//!
//! A notification is kept once, however many wait for it, and a subscriber is a number that grows: so relaying to
//! a hundred thousand costs no more than to one until they are delivered to.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use jiff::Timestamp;

use crate::announce::delivery::secret::Secret;
use crate::hub::audience::view::LastTry;
use crate::hub::fairness::Priority;
use crate::hub::relay::Outcome;
use crate::hub::{Callback, HubRecord, Key, Progress, Relay, RelayId, Subscription};
use crate::resourcesync::uri::Topic;

pub mod view;

/// All subscriptions, and what is owed to them.
#[derive(Debug, Default)]
pub struct Audience {
    topics: HashMap<Topic, Crowd>,
    /// The highest number that was given to a notification.
    last: RelayId,
    assignments: u64,
}

/// The subscribers of one topic.
#[derive(Debug, Default)]
struct Crowd {
    subscribers: HashMap<Callback, Subscriber>,
    owed: BTreeMap<RelayId, Owed>,
}

#[derive(Debug)]
struct Subscriber {
    secret: Option<Secret>,
    expires: Timestamp,
    progress: Progress,
    /// What came of the last try, if there was one in this run.
    last: Option<LastTry>,
    /// The assignment of who delivers to it now: one notification after the other.
    assigned: Option<u64>,
}

/// The task to deliver to a subscriber until it is owed nothing more, or has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub key: Key,
    number: u64,
}

#[derive(Debug)]
struct Owed {
    relay: Arc<Relay>,
    /// How many subscribers have not heard it; at least one.
    left: usize,
}

/// One notification for one subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub relay: Arc<Relay>,
    pub secret: Option<Secret>,
    pub progress: Progress,
    pub priority: Priority,
}

/// A notification that was owed for too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgone {
    pub relay: Arc<Relay>,
    /// How many subscribers will not hear it.
    pub subscribers: usize,
}

impl Audience {
    /// Takes up what earlier runs saved, and says what of it has no use any more.
    pub fn restore(
        subscriptions: Vec<(Subscription, Progress)>,
        relays: Vec<Relay>,
    ) -> (Audience, Vec<HubRecord>) {
        let mut audience = Audience::default();
        for (subscription, progress) in subscriptions {
            audience.last = audience.last.max(progress.heard);
            let key = subscription.key();
            let crowd = audience.topics.entry(key.topic).or_default();
            crowd
                .subscribers
                .insert(key.callback, Subscriber::new(subscription, progress));
        }
        let mut records = Vec::new();
        for relay in relays {
            audience.last = audience.last.max(relay.id);
            records.extend(audience.owe(relay));
        }
        (audience, records)
    }

    /// A subscription that was verified. What an earlier one of the same topic and callback is owed stays owed, and is
    /// due at once: the subscriber has just answered.
    pub fn subscribe(&mut self, subscription: Subscription) -> Vec<HubRecord> {
        let key = subscription.key();
        let Key { topic, callback } = key.clone();
        let crowd = self.topics.entry(topic).or_default();
        let progress = Progress {
            heard: self.last,
            ..Progress::default()
        };
        let mut progressed = None;
        let progress = match crowd.subscribers.get_mut(&callback) {
            Some(subscriber) => {
                subscriber.secret = subscription.secret.clone();
                subscriber.expires = subscription.expires;
                let due = Progress {
                    heard: subscriber.progress.heard,
                    ..Progress::default()
                };
                if subscriber.progress != due {
                    subscriber.progress = due;
                    progressed = Some(HubRecord::Progressed(key, due));
                }
                due
            }
            None => {
                let subscriber = Subscriber::new(subscription.clone(), progress);
                crowd.subscribers.insert(callback, subscriber);
                progress
            }
        };
        let subscribed = HubRecord::Subscribed(subscription, progress.heard);
        std::iter::once(subscribed).chain(progressed).collect()
    }

    pub fn unsubscribe(&mut self, key: &Key) -> Vec<HubRecord> {
        let Some(crowd) = self.topics.get_mut(&key.topic) else {
            return Vec::new();
        };
        let records = crowd.remove(key);
        if crowd.subscribers.is_empty() {
            self.topics.remove(&key.topic);
        }
        records
    }

    /// Whether there is a subscription whose lease lasts.
    pub fn is_live(&self, key: &Key, now: Timestamp) -> bool {
        let crowd = self.topics.get(&key.topic);
        let subscriber = crowd.and_then(|crowd| crowd.subscribers.get(&key.callback));
        subscriber.is_some_and(|own| now < own.expires)
    }

    /// The callbacks that subscribe to a topic.
    pub fn callbacks(&self, topic: &Topic) -> Vec<Callback> {
        let crowd = self.topics.get(topic).into_iter();
        crowd
            .flat_map(|crowd| crowd.subscribers.keys().cloned())
            .collect()
    }

    /// Ends the subscriptions whose leases have.
    pub fn end_leases(&mut self, now: Timestamp) -> Vec<HubRecord> {
        let ended: Vec<Key> = self
            .topics
            .iter()
            .flat_map(|(topic, crowd)| {
                let ended = crowd
                    .subscribers
                    .iter()
                    .filter(|(_, own)| own.expires <= now);
                ended.map(|(callback, _)| Key {
                    topic: topic.clone(),
                    callback: callback.clone(),
                })
            })
            .collect();
        ended.iter().flat_map(|key| self.unsubscribe(key)).collect()
    }

    /// Gives a notification its number, if anybody subscribes to its topic. It is to be saved, and owed then.
    pub fn relay(
        &mut self,
        topic: &Topic,
        seq: u64,
        body: &Arc<[u8]>,
        now: Timestamp,
    ) -> Option<Relay> {
        let crowd = self.topics.get(topic)?;
        crowd.subscribers.values().find(|own| now < own.expires)?;
        self.last = RelayId(self.last.0 + 1);
        Some(Relay {
            id: self.last,
            topic: topic.clone(),
            seq,
            body: Arc::clone(body),
        })
    }

    /// A notification that is saved is owed to whoever subscribed before it got its number.
    pub fn owe(&mut self, relay: Relay) -> Option<HubRecord> {
        let id = relay.id;
        let ended = HubRecord::Ended(id);
        let Some(crowd) = self.topics.get_mut(&relay.topic) else {
            return Some(ended);
        };
        let waiting = crowd.subscribers.values();
        let left = waiting.filter(|own| own.progress.heard < id).count();
        if left == 0 {
            return Some(ended);
        }
        let relay = Arc::new(relay);
        crowd.owed.insert(id, Owed { relay, left });
        None
    }

    /// The subscribers of a topic that are owed something and to whom nobody delivers; somebody must, now. Those that go
    /// first come first.
    pub fn assign(&mut self, topic: &Topic) -> Vec<Assignment> {
        let Some(crowd) = self.topics.get_mut(topic) else {
            return Vec::new();
        };
        let Some((last, _)) = crowd.owed.last_key_value() else {
            return Vec::new();
        };
        let is_idle = |own: &Subscriber| own.assigned.is_none() && own.progress.heard < *last;
        let idle = crowd.subscribers.iter_mut().filter(|(_, own)| is_idle(own));
        let assign = |(callback, own): (&Callback, &mut Subscriber)| {
            self.assignments += 1;
            own.assigned = Some(self.assignments);
            let assignment = Assignment {
                key: Key {
                    topic: topic.clone(),
                    callback: callback.clone(),
                },
                number: self.assignments,
            };
            (own.priority(), assignment)
        };
        let mut assigned: Vec<(Priority, Assignment)> = idle.map(assign).collect();
        assigned.sort_by_key(|(priority, _)| *priority);
        assigned
            .into_iter()
            .map(|(_, assignment)| assignment)
            .collect()
    }

    /// The topics on which something is owed.
    pub fn topics_owed(&self) -> Vec<Topic> {
        let owed = self
            .topics
            .iter()
            .filter(|(_, crowd)| !crowd.owed.is_empty());
        owed.map(|(topic, _)| topic.clone()).collect()
    }

    /// What a subscriber is to be sent next. If there is nothing, the assignment has ended.
    pub fn next(&mut self, assignment: &Assignment, now: Timestamp) -> Option<Delivery> {
        let (crowd, callback) = self.assigned(assignment)?;
        let subscriber = crowd.subscribers.get_mut(callback)?;
        let after = (Excluded(subscriber.progress.heard), Unbounded);
        match crowd.owed.range(after).next() {
            Some((_, owed)) if now < subscriber.expires => Some(Delivery {
                relay: Arc::clone(&owed.relay),
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

    /// What became of a delivery.
    pub fn answered(
        &mut self,
        assignment: &Assignment,
        id: RelayId,
        outcome: Outcome,
    ) -> Vec<HubRecord> {
        let key = &assignment.key;
        let Some((crowd, callback)) = self.assigned(assignment) else {
            return Vec::new();
        };
        let Some(subscriber) = crowd.subscribers.get_mut(callback) else {
            return Vec::new();
        };
        let progress = &mut subscriber.progress;
        let mut ended = None;
        match outcome {
            Outcome::Gone => return self.unsubscribe(key),
            Outcome::Retry { at } => {
                progress.attempts += 1;
                progress.next_try = Some(at);
            }
            Outcome::Delivered | Outcome::GivenUp => {
                *progress = Progress {
                    heard: id,
                    ..Progress::default()
                };
            }
        }
        let progressed = HubRecord::Progressed(key.clone(), *progress);
        if progress.heard == id {
            ended = crowd.heard(id);
        }
        std::iter::once(progressed).chain(ended).collect()
    }

    /// Where an assignment leads, unless its subscription has ended meanwhile, or ended and begun anew.
    fn assigned<'a>(&mut self, assignment: &'a Assignment) -> Option<(&mut Crowd, &'a Callback)> {
        let callback = &assignment.key.callback;
        let crowd = self.topics.get_mut(&assignment.key.topic)?;
        let subscriber = crowd.subscribers.get(callback)?;
        (subscriber.assigned == Some(assignment.number)).then_some((crowd, callback))
    }

    /// Gives up the oldest notifications of a topic while more wait than may; the newest stays.
    pub fn trim(&mut self, topic: &Topic, most: usize, most_bytes: usize) -> Vec<Forgone> {
        let Some(crowd) = self.topics.get_mut(topic) else {
            return Vec::new();
        };
        let bytes = |owed: &Owed| owed.relay.body.len();
        let mut held: usize = crowd.owed.values().map(bytes).sum();
        let mut forgone = Vec::new();
        while crowd.owed.len() > 1
            && (crowd.owed.len() > most || held > most_bytes)
            && let Some((_, owed)) = crowd.owed.pop_first()
        {
            held -= bytes(&owed);
            forgone.push(Forgone {
                relay: owed.relay,
                subscribers: owed.left,
            });
        }
        forgone
    }
}

impl Crowd {
    fn remove(&mut self, key: &Key) -> Vec<HubRecord> {
        let Some(subscriber) = self.subscribers.remove(&key.callback) else {
            return Vec::new();
        };
        let after = (Excluded(subscriber.progress.heard), Unbounded);
        let owed: Vec<RelayId> = self.owed.range(after).map(|(id, _)| *id).collect();
        let mut records = vec![HubRecord::Unsubscribed(key.clone())];
        records.extend(owed.into_iter().filter_map(|id| self.heard(id)));
        records
    }

    /// One subscriber less waits for a notification.
    fn heard(&mut self, id: RelayId) -> Option<HubRecord> {
        let owed = self.owed.get_mut(&id)?;
        owed.left -= 1;
        if owed.left > 0 {
            return None;
        }
        self.owed.remove(&id);
        Some(HubRecord::Ended(id))
    }
}

impl Subscriber {
    fn new(subscription: Subscription, progress: Progress) -> Subscriber {
        Subscriber {
            secret: subscription.secret,
            expires: subscription.expires,
            progress,
            last: None,
            assigned: None,
        }
    }

    fn priority(&self) -> Priority {
        let has_taken = |last: &LastTry| last.status.is_some_and(|status| status / 100 == 2);
        match &self.last {
            _ if self.progress.attempts > 0 => Priority::Retry,
            Some(last) if has_taken(last) => Priority::Known,
            _ => Priority::First,
        }
    }
}

#[cfg(test)]
mod tests;

//! Random sequences of events: each subscriber receives its notifications in order, and the state file has exactly the
//! pending ones.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::hub::RelayHeaders;

#[derive(Debug, Clone, Copy)]
enum Act {
    /// Number of the subscriber, and the lease in seconds.
    Subscribe(usize, i64),
    Unsubscribe(usize),
    Relay(usize),
    Assign(usize),
    /// Makes a delivery of one of the assignments, with this answer.
    Deliver(usize, Receipt),
    WaitSeconds(i64),
    /// Ends the subscriptions that are owed most while more than this is pending.
    CutOff(u64),
    Restart,
}

#[derive(Debug, Clone, Copy)]
enum Receipt {
    Yes,
    Later,
    Never,
    Gone,
}

fn act() -> impl Strategy<Value = Act> {
    let taken = prop_oneof![
        6 => Just(Receipt::Yes),
        2 => Just(Receipt::Later),
        1 => Just(Receipt::Never),
        1 => Just(Receipt::Gone),
    ];
    prop_oneof![
        4 => (0..6_usize, 1..60_i64).prop_map(|(who, lease)| Act::Subscribe(who, lease)),
        1 => (0..6_usize).prop_map(Act::Unsubscribe),
        4 => (0..2_usize).prop_map(Act::Relay),
        4 => (0..2_usize).prop_map(Act::Assign),
        12 => (0..8_usize, taken).prop_map(|(which, taken)| Act::Deliver(which, taken)),
        1 => (1..30_i64).prop_map(Act::WaitSeconds),
        1 => (0..2_000_u64).prop_map(Act::CutOff),
        1 => Just(Act::Restart),
    ]
}

fn topic(number: usize) -> Topic {
    Topic::new(format!("https://e.org/{number}"))
}

/// Even ones subscribe to topic 0, odd ones to topic 1.
fn key(who: usize) -> SubscriptionKey {
    SubscriptionKey {
        topic: topic(who % 2),
        callback: Callback::new(format!("http://127.0.0.1/{who}")),
    }
}

fn subscription(who: usize, begun: Timestamp, lease: i64) -> Subscription {
    let SubscriptionKey { topic, callback } = key(who);
    Subscription {
        topic,
        callback,
        secret: None,
        expires: begun + SignedDuration::from_secs(lease),
        requester: None,
    }
}

fn notification(number: usize, seq: u64, body: &str) -> Relay {
    Relay {
        id: RelayId::default(),
        topic: topic(number),
        seq,
        body: body.as_bytes().into(),
        headers: RelayHeaders::default(),
    }
}

/// The saved state.
#[derive(Debug, Default)]
struct SavedRows {
    subscriptions: BTreeMap<SubscriptionKey, (Subscription, DeliveryProgress)>,
    relays: BTreeMap<RelayId, Relay>,
}

impl SavedRows {
    fn topics(&self) -> Vec<SavedTopicRelays> {
        let topics = [0, 1].map(|number| {
            let relays = self.relays.values();
            let relays = relays.filter(|relay| relay.topic == topic(number));
            let relays = Vec::from_iter(relays);
            let last = relays.last()?;
            Some(SavedTopicRelays {
                topic: topic(number),
                relays: relays.iter().map(|relay| pending(relay)).collect(),
                last: BodyDigest::of(&last.body),
            })
        });
        topics.into_iter().flatten().collect()
    }

    fn save(&mut self, records: impl IntoIterator<Item = HubRecord>) {
        for record in records {
            match record {
                HubRecord::Subscribed(subscription, heard) => {
                    let progress = DeliveryProgress {
                        heard,
                        ..DeliveryProgress::default()
                    };
                    let row = self.subscriptions.entry(subscription.key());
                    let (saved, _) = row.or_insert((subscription.clone(), progress));
                    *saved = subscription;
                }
                HubRecord::Unsubscribed(key) => {
                    assert!(self.subscriptions.remove(&key).is_some());
                }
                HubRecord::Progressed(key, progress) => {
                    self.subscriptions.get_mut(&key).expect("a row").1 = progress;
                }
                HubRecord::Ended(topic, last) => self
                    .relays
                    .retain(|id, relay| *id > last || relay.topic != topic),
                record @ (HubRecord::Published(_)
                | HubRecord::Forgotten(_)
                | HubRecord::Unverified(_)) => {
                    panic!("{record:?} is about no subscription")
                }
            }
        }
    }
}

fn pending(relay: &Relay) -> RelaySize {
    RelaySize {
        id: relay.id,
        size: relay.body.len() as u64,
    }
}

/// The expected pending notifications of each subscriber, and the subscriptions under test.
struct World {
    now: Timestamp,
    subscriptions: Subscriptions,
    saved: SavedRows,
    owed: BTreeMap<SubscriptionKey, BTreeSet<RelayId>>,
    assignments: Vec<DeliveryTaskId>,
    /// The number of the last notification.
    seq: u64,
}

impl World {
    fn act(&mut self, act: Act) {
        match act {
            Act::Subscribe(who, lease) => {
                let subscription = subscription(who, self.now, lease);
                self.saved.save(self.subscriptions.subscribe(subscription));
                self.owed.entry(key(who)).or_default();
            }
            Act::Unsubscribe(who) => {
                self.saved.save(self.subscriptions.unsubscribe(&key(who)));
                self.owed.remove(&key(who));
            }
            Act::Relay(number) => {
                self.seq += 1;
                let notification = notification(number, self.seq, &self.seq.to_string());
                let again = notification.clone();
                let relay = self.subscriptions.number_relay(notification, self.now);
                if let Some(relay) = relay {
                    self.saved.relays.insert(relay.id, relay.clone());
                    let of_topic = self
                        .owed
                        .iter_mut()
                        .filter(|(key, _)| key.topic == relay.topic);
                    of_topic.for_each(|(_, owed)| _ = owed.insert(relay.id));
                    self.saved
                        .save(self.subscriptions.note_saved(&relay.topic, relay.id));
                    let again = self.subscriptions.number_relay(again, self.now);
                    assert_eq!(again, None, "it was relayed already");
                }
            }
            Act::Assign(number) => {
                let given = self.subscriptions.assign_tasks(&topic(number));
                for assignment in &given {
                    let is_working = |other: &DeliveryTaskId| {
                        other.key == assignment.key && self.subscriptions.is_current(other)
                    };
                    assert!(!self.assignments.iter().any(is_working), "{assignment:?}");
                }
                self.assignments.extend(given);
            }
            Act::Deliver(which, taken) => self.deliver(which, taken),
            Act::WaitSeconds(seconds) => {
                self.now += SignedDuration::from_secs(seconds);
                self.saved.save(self.subscriptions.end_leases(self.now));
                let saved = &self.saved.subscriptions;
                self.owed.retain(|key, _| saved.contains_key(key));
                let is_live =
                    |(saved, _): &(Subscription, DeliveryProgress)| self.now < saved.expires;
                assert!(saved.values().all(is_live));
            }
            Act::CutOff(max) => self.cut_off(max),
            Act::Restart => {
                let (subscriptions, obsolete) = Subscriptions::restore(SavedHub {
                    subscriptions: self.saved.subscriptions.values().cloned().collect(),
                    topics: self.saved.topics(),
                });
                assert_eq!(obsolete, []);
                self.subscriptions = subscriptions;
                self.assignments.clear();
            }
        }
        let waiting: BTreeSet<RelayId> = self.owed.values().flatten().copied().collect();
        assert_eq!(waiting, self.saved.relays.keys().copied().collect());
        let relays = self.saved.relays.values();
        let bytes: u64 = relays.map(|relay| relay.body.len() as u64 + 256).sum();
        assert_eq!(self.subscriptions.backlog_bytes, bytes);
    }

    fn cut_off(&mut self, max: u64) {
        while let Some((keys, debt)) = self.subscriptions.largest_debt(max) {
            let most = self.owed.values().map(BTreeSet::len).max();
            for key in keys {
                let owed = self.owed.remove(&key).expect("it subscribes");
                assert_eq!((Some(owed.len()), debt.count), (most, owed.len() as u64));
                self.saved.save(self.subscriptions.unsubscribe(&key));
            }
        }
        let is_small = self.subscriptions.backlog_bytes <= max;
        assert!(is_small || self.owed.values().all(|owed| owed.len() <= 1));
    }

    fn deliver(&mut self, which: usize, taken: Receipt) {
        if self.assignments.is_empty() {
            return;
        }
        let position = which % self.assignments.len();
        let assignment = self.assignments[position].clone();
        let is_current = self.subscriptions.is_current(&assignment);
        let Some(delivery) = self.subscriptions.next_delivery(&assignment, self.now) else {
            self.assignments.remove(position);
            if is_current && self.now < self.saved.subscriptions[&assignment.key].0.expires {
                assert_eq!(self.owed[&assignment.key], BTreeSet::new());
            }
            return;
        };
        let owed = self.owed.get_mut(&assignment.key).expect("it subscribes");
        let heard = delivery.progress.heard;
        let relays = self.saved.relays.values();
        let mut of_topic = relays.filter(|relay| relay.topic == assignment.key.topic);
        let next = of_topic.find(|relay| relay.id > heard);
        let relay = pending(next.expect("it is saved"));
        let id = relay.id;
        assert_eq!(owed.first(), Some(&id));
        let outcome = match taken {
            Receipt::Yes => DeliveryOutcome::Delivered,
            Receipt::Never => DeliveryOutcome::Abandoned,
            Receipt::Gone => DeliveryOutcome::Gone,
            Receipt::Later => DeliveryOutcome::Retry(self.now),
        };
        match taken {
            Receipt::Yes | Receipt::Never => _ = owed.remove(&id),
            Receipt::Gone => _ = self.owed.remove(&assignment.key),
            Receipt::Later => {}
        }
        let last = LastAttempt {
            at: self.now,
            status: None,
            failure: None,
        };
        self.saved.save(
            self.subscriptions
                .apply_outcome(&assignment, relay, last, outcome),
        );
    }
}

impl Subscriptions {
    /// Returns true if an assignment is current.
    fn is_current(&self, assignment: &DeliveryTaskId) -> bool {
        let on_topic = self.topics.get(&assignment.key.topic);
        let subscriber =
            on_topic.and_then(|on_topic| on_topic.subscribers.get(&assignment.key.callback));
        subscriber.is_some_and(|subscriber| subscriber.assigned == Some(assignment.number))
    }
}

proptest! {
    #[test]
    fn each_subscriber_receives_its_notifications_in_order_and_only_pending_ones_are_saved(
        acts in prop::collection::vec(act(), 1..120),
    ) {
        let mut world = World {
            now: "2026-11-20T12:00:00Z".parse().unwrap(),
            subscriptions: Subscriptions::default(),
            saved: SavedRows::default(),
            owed: BTreeMap::new(),
            assignments: Vec::new(),
            seq: 0,
        };
        for act in acts {
            world.act(act);
        }
    }
}

/// Its row stands until the next look for ended leases, at most a minute later.
#[test]
fn a_renewal_just_after_the_lease_ended_goes_on_with_what_is_pending() {
    let begun: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
    let mut subscriptions = Subscriptions::default();
    subscriptions.subscribe(subscription(0, begun, 10));
    let relay = subscriptions
        .number_relay(notification(0, 1, "1"), begun)
        .unwrap();
    subscriptions.note_saved(&relay.topic, relay.id);
    let late = begun + SignedDuration::from_secs(11);
    let assignment = subscriptions.assign_task(&key(0)).unwrap();
    assert_eq!(subscriptions.next_delivery(&assignment, late), None);
    assert!(subscriptions.contains(&key(0)), "it is renewed, not new");
    subscriptions.subscribe(subscription(0, begun, 20));
    let assignment = subscriptions.assign_task(&key(0)).unwrap();
    let delivery = subscriptions.next_delivery(&assignment, late).unwrap();
    assert_eq!(delivery.progress.heard, RelayId(0));
    subscriptions.end_leases(begun + SignedDuration::from_secs(20));
    assert!(!subscriptions.contains(&key(0)));
}

/// A repeat is recognised where a publication is accepted; what is pending may be older.
#[test]
fn what_is_no_repeat_is_relayed_although_it_is_what_was_relayed_last() {
    let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
    let mut subscriptions = Subscriptions::default();
    subscriptions.subscribe(subscription(0, now, 10));
    let notification = |seq| notification(0, seq, "1");
    assert!(subscriptions.number_relay(notification(1), now).is_some());
    assert_eq!(subscriptions.number_relay(notification(2), now), None);
    assert!(
        subscriptions
            .number_new_relay(notification(3), now)
            .is_some()
    );
}

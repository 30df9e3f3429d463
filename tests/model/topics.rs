//! Topics that move between two sets, against a plain model (R11).
//!
//! Every document is known from the start, so that nothing is ever created. Each write is told on the topic that its set
//! had then, unless another set took that topic and the log says so.

use std::collections::BTreeMap;

use announce::event::{DropCause, Fact};
use jiff::Timestamp;
use proptest::prelude::{Just, Strategy, prop_oneof};
use resourcesync::payload::ChangeKind;

use crate::documents::{SETS, set_of};
use crate::running::flights;
use crate::world::{HUB, Reply, World, list, plan, short};

const TOPICS: [&str; 3] = ["/one/", "/two/", "/three/"];
const NAMES: [&str; 2] = ["resourcelist", "changelist"];

#[derive(Debug, Clone)]
pub enum Op {
    Update { set: usize, name: usize },
    Move { set: usize, topic: usize },
    Wait(u64),
    Crash,
    Reload,
    Script(Reply),
}

pub fn op() -> impl Strategy<Value = Op> {
    let set = || 0..SETS.len();
    prop_oneof![
        4 => (set(), 0..NAMES.len()).prop_map(|(set, name)| Op::Update { set, name }),
        4 => (set(), 0..TOPICS.len()).prop_map(|(set, topic)| Op::Move { set, topic }),
        1 => (1..100_u64).prop_map(Op::Wait),
        1 => Just(Op::Crash),
        1 => Just(Op::Reload),
        2 => prop_oneof![
            2 => Just(Reply::Accept),
            2 => Just(Reply::Status(503)),
            1 => Just(Reply::Slow(3)),
            1 => Just(Reply::AtMost(1)),
        ].prop_map(Op::Script),
    ]
}

/// The last notification on a topic.
#[derive(Debug)]
struct Last {
    seq: u64,
    set: &'static str,
    until: Option<Timestamp>,
    /// The latest `until` of the topic.
    latest: Option<Timestamp>,
}

pub struct Model {
    world: World,
    version: u32,
    /// The topics on which the write of a document at a time is to be told.
    written: Vec<(String, String, Timestamp)>,
    /// The times of the versions of each document that were told on each topic.
    told: BTreeMap<(String, String), Vec<Timestamp>>,
    last: BTreeMap<String, Last>,
    /// The notification in flight on a topic when the daemon crashed: its entries may be told again in another one.
    in_doubt: BTreeMap<String, u64>,
    /// The time when something was last dropped on a topic.
    dropped: BTreeMap<String, Timestamp>,
}

impl Model {
    pub fn new() -> Model {
        let mut world = World::with_two_sets(plan());
        world.failing = Some(fastrand::Rng::with_seed(1));
        Model {
            world,
            version: 0,
            written: Vec::new(),
            told: BTreeMap::new(),
            last: BTreeMap::new(),
            in_doubt: BTreeMap::new(),
            dropped: BTreeMap::new(),
        }
    }

    pub fn perform(&mut self, op: &Op) {
        match *op {
            Op::Update { set, name } => {
                let name = format!("{}/{}.xml", SETS[set], NAMES[name]);
                self.write(SETS[set], &name.clone(), |world| {
                    world.update(&name);
                });
            }
            Op::Move { set, topic } => {
                self.version += 1;
                let (set, version) = (SETS[set], self.version);
                let name = format!("{set}/capabilitylist.xml");
                let names = NAMES.map(|name| format!("{set}/{name}.xml"));
                let list = list("capabilitylist").up("/.well-known/resourcesync");
                let list = list.lists(&[&names[0], &names[1]]).version(version);
                let list = list.channel(TOPICS[topic], &[]);
                self.write(set, &name.clone(), |world| {
                    world.write(&name, list);
                });
            }
            Op::Wait(seconds) => {
                self.world.wait(seconds);
            }
            Op::Crash => {
                let flights = flights(&self.world).into_iter();
                self.in_doubt
                    .extend(flights.map(|flight| (flight.topic, flight.seq)));
                self.world.crash_and_start();
            }
            Op::Reload => {
                self.world.reload();
            }
            Op::Script(reply) => {
                self.world.script(HUB, reply);
            }
        }
        self.listen();
    }

    /// Writes a document, which is to be told on the topic that its set had, and on the one that it has then.
    fn write(&mut self, set: &str, name: &str, write: impl FnOnce(&mut World)) {
        // Of two changes in one window, only the last is told.
        self.world.wait(10);
        let mut topics = self.topics_of(set);
        let at = self.world.now;
        write(&mut self.world);
        for topic in self.topics_of(set) {
            if !topics.contains(&topic) {
                topics.push(topic);
            }
        }
        let topics = topics.into_iter();
        self.written
            .extend(topics.map(|topic| (topic, name.to_owned(), at)));
        self.listen();
        self.world.wait(1);
    }

    /// Returns the topic that a set has, if any.
    fn topics_of(&self, set: &str) -> Vec<String> {
        let list = format!("{set}/capabilitylist.xml");
        let channels = self.world.channels().into_iter();
        let of_set = channels.filter(|it| !it.is_retired && it.set.ends_with(&list));
        of_set.map(|channel| local(&channel.topic)).collect()
    }

    /// Takes in what the hub got, and what was dropped.
    fn listen(&mut self) {
        let now = self.world.now;
        for fact in self.world.facts() {
            if let Fact::Dropped {
                topic,
                cause: DropCause::ChannelRemoved,
                ..
            } = fact
            {
                self.dropped.insert(local(topic.as_str()), now);
            }
        }
        for heard in self.world.heard_by(HUB) {
            let (topic, payload) = (&heard.topic, &heard.payload);
            let sets = payload.entries.iter().map(|entry| {
                assert_eq!(entry.change, ChangeKind::Updated, "{heard:?}");
                set_of(&short(entry.uri.as_str())).unwrap()
            });
            let sets: Vec<&str> = sets.collect();
            let set = sets[0];
            assert!(sets.iter().all(|other| *other == set), "{heard:?}");
            if let Some(last) = self.last.get(topic) {
                if last.seq == heard.seq {
                    continue;
                }
                assert!(heard.seq > last.seq, "{heard:?} after {last:?}");
                let is_later = payload.until.is_none() || payload.until > last.latest;
                assert!(is_later, "{heard:?} after {last:?}");
            }
            if let Some(from) = payload.from {
                let last = self.last.get(topic).unwrap();
                assert_eq!((last.set, last.until), (set, Some(from)), "{heard:?}");
            }
            let before = self.last.get(topic).map(|last| last.seq);
            let may_repeat = before.is_some() && self.in_doubt.get(topic) == before.as_ref();
            let last = Last {
                seq: heard.seq,
                set: set_of(&local(payload.entries[0].uri.as_str())).unwrap(),
                until: payload.until,
                latest: payload
                    .until
                    .max(self.last.get(topic).and_then(|last| last.latest)),
            };
            for entry in &payload.entries {
                let key = (topic.clone(), local(entry.uri.as_str()));
                let told = self.told.entry(key).or_default();
                let datetime = entry.datetime.unwrap();
                let is_later = told.last() < Some(&datetime);
                let is_again = may_repeat && told.last() == Some(&datetime);
                assert!(is_later || is_again, "told twice: {heard:?}");
                told.push(datetime);
            }
            self.last.insert(topic.clone(), last);
        }
    }

    /// The hub accepts everything: each write was told, or dropped, and nothing is due any more.
    pub fn check_the_end(&mut self) {
        self.world.script(HUB, Reply::Accept);
        self.world.wait(10_000);
        self.listen();
        for (topic, name, at) in &self.written {
            let told = self.told.get(&(topic.clone(), name.clone()));
            let is_told = told
                .and_then(|told| told.last())
                .is_some_and(|last| last >= at);
            let is_dropped = self.dropped.get(topic).is_some_and(|dropped| dropped >= at);
            assert!(is_told || is_dropped, "{name} at {at} on {topic}: {told:?}");
        }
        assert!(flights(&self.world).is_empty());
        assert_eq!(self.world.still_due(), 0);
        // Each set that has a channel goes on.
        for set in SETS {
            let name = format!("{set}/changelist.xml");
            for topic in self.topics_of(set) {
                self.world.update(&name);
                self.world.wait(100);
                self.listen();
                let told = &self.told[&(topic, name.clone())];
                assert!(
                    told.last() >= Some(&(self.world.now - jiff::SignedDuration::from_secs(100)))
                );
            }
        }
    }
}

fn local(uri: &str) -> String {
    uri.trim_start_matches("https://example.org").to_owned()
}

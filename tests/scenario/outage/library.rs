//! A set of a thousand documents that is published again six times a day, and one that comes and goes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::payload::Payload;

use crate::world::hub::change_of;
use crate::world::{HUB, Heard, OTHER_HUB, World, list, short};

/// The most documents; some are absent at any time.
const NAMES: usize = 1_200;
const AT_FIRST: usize = 1_000;
/// The number of documents written or removed at a time, and the interval.
const AT_A_TIME: usize = 60;
const EVERY: Duration = Duration::from_secs(4 * 3_600);
const GUESTS: usize = 5;

pub const TOPIC: &str = "/a/framework/";

/// Documents by their names, with what tells their versions apart.
pub type Documents = BTreeMap<String, u32>;

/// The world, what is in its tree, and what its hubs heard of it.
pub struct Library {
    pub world: World,
    pub tree: Documents,
    /// The number of times that a document was made, made another, or removed.
    pub changes: usize,
    /// The number of changes that the available hub received.
    pub heard: usize,
    /// The versions that hub A was told of.
    told: Documents,
    /// The times of submissions to hub B.
    pub attempts: Vec<Timestamp>,
    /// The first submission to it on each topic, and the tree as it was then.
    pub flights: BTreeMap<String, (Heard, Documents)>,
    untils: BTreeMap<String, Timestamp>,
    random: fastrand::Rng,
    next: Timestamp,
}

impl Library {
    /// Everything is known to both hubs.
    pub fn new(world: World) -> Library {
        let mut library = Library {
            tree: Documents::new(),
            told: Documents::new(),
            changes: 0,
            heard: 0,
            attempts: Vec::new(),
            flights: BTreeMap::new(),
            untils: BTreeMap::new(),
            random: fastrand::Rng::with_seed(2),
            next: world.now,
            world,
        };
        library.write(names("/a", NAMES), 0);
        let not_yet = names("/a", NAMES).split_off(AT_FIRST + 1);
        library.remove(not_yet);
        library.world.wait(10);
        library.world.start();
        library.world.wait(100);
        assert_eq!(
            library.world.news(),
            [""; 0],
            "a baseline announces nothing"
        );
        library.told = library.tree.clone();
        library
    }

    /// Changes documents, and checks that the hub that is there hears of it at once, and of nothing else.
    pub fn publish(&mut self) {
        let all = names("/a", NAMES);
        let mut chosen = BTreeSet::new();
        while chosen.len() < AT_A_TIME {
            chosen.insert(all[self.random.usize(1..all.len())].clone());
        }
        for name in &chosen {
            let now = self.tree.get(name).copied();
            match (now, self.random.u32(..10)) {
                (None, _) => self.write([name.clone()], 0),
                (Some(_), 0) => self.remove([name.clone()]),
                // As it was when both hubs knew it.
                (Some(_), 1 | 2) => self.write([name.clone()], 0),
                // The same again.
                (Some(version), 3) => self.write([name.clone()], version),
                (Some(version), _) => self.write([name.clone()], version + 1),
            }
        }
        self.see(&chosen);
    }

    /// Another set of documents, with a channel of its own.
    pub fn add_guests(&mut self, version: u32) {
        self.write(names("/guest", GUESTS), version);
        self.see(&names("/guest", GUESTS));
    }

    /// Its Capability List goes, and the set with it; its documents lie there and belong to none.
    pub fn remove_guests(&mut self) {
        self.remove(names("/guest", 0));
        self.see(&names("/guest", 0));
    }

    /// Waits until it is time for the next changes.
    pub fn rest(&mut self) {
        self.next += EVERY;
        let left = self.next.duration_since(self.world.now);
        self.world.pass(Duration::try_from(left).unwrap());
        self.listen();
    }

    fn write(&mut self, names: impl IntoIterator<Item = String>, version: u32) {
        for name in names {
            let set = set_of(&name);
            let doc = match is_list(&name) {
                true => {
                    let members = self::names(set, NAMES).split_off(1);
                    let members: Vec<&str> = members.iter().map(String::as_str).collect();
                    let topic = format!("{set}/framework/");
                    list("capabilitylist").lists(&members).channel(&topic, &[])
                }
                false => list("changelist").of(set),
            };
            self.world.unseen().write(&name, doc.version(version));
            self.tree.insert(name, version);
        }
    }

    fn remove(&mut self, names: impl IntoIterator<Item = String>) {
        for name in names {
            self.world.unseen().delete(&name);
            self.tree.remove(&name);
        }
    }

    fn see<'a>(&mut self, names: impl IntoIterator<Item = &'a String>) {
        self.world.see_all(names);
        let changes = difference(&self.told, &self.tree);
        self.changes += changes.len();
        let (deleted, others): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|change| change.starts_with("d "));
        self.world.wait(10);
        self.listen();
        assert_eq!(self.news(), others);
        self.world.wait(300);
        assert_eq!(self.news(), deleted, "believed after their grace");
        self.told = self.tree.clone();
    }

    /// Checks what the available hub received, which is in order.
    fn news(&mut self) -> Vec<String> {
        let mut news = Vec::new();
        for heard in self.world.heard_by(HUB) {
            let until = heard.payload.until.unwrap();
            let before = self.untils.insert(heard.topic.clone(), until);
            assert!(before.is_none_or(|before| before < until), "{heard:?}");
            news.extend(heard.changes());
        }
        self.heard += news.len();
        news.sort();
        news
    }

    fn listen(&mut self) {
        for attempt in self.world.attempts_at(OTHER_HUB) {
            let flight = || (attempt.clone(), self.tree.clone());
            self.flights
                .entry(attempt.topic.clone())
                .or_insert_with(flight);
            self.attempts.push(attempt.at);
        }
    }
}

/// The Capability List of a set and so many documents.
fn names(set: &str, documents: usize) -> Vec<String> {
    let documents = (0..documents).map(|number| format!("{set}/d{number:04}.xml"));
    let list = format!("{set}/capabilitylist.xml");
    std::iter::once(list).chain(documents).collect()
}

fn is_list(name: &str) -> bool {
    name.ends_with("/capabilitylist.xml")
}

pub fn set_of(name: &str) -> &str {
    name.rsplit_once('/').unwrap().0
}

/// Returns the changes to announce of `seen` to a hub that was told of `told`.
pub fn difference(told: &Documents, seen: &Documents) -> Vec<String> {
    let all: BTreeSet<&String> = told.keys().chain(seen.keys()).collect();
    let mut changes: Vec<String> = all
        .into_iter()
        .filter_map(|name| {
            let change = match (told.get(name), seen.get(name)) {
                (None, _) => "created",
                (_, None) => "deleted",
                (Some(told), Some(seen)) if told != seen => "updated",
                _ => return None,
            };
            let capability = if is_list(name) {
                "capabilitylist"
            } else {
                "changelist"
            };
            Some(change_of(change, capability, name))
        })
        .collect();
    changes.sort();
    changes
}

/// Returns what a hub knows once it has taken a notification of `tree`.
pub fn taken(mut told: Documents, payload: &Payload, tree: &Documents) -> Documents {
    for entry in &payload.entries {
        let name = short(entry.uri.as_str());
        let version = tree[&name];
        told.insert(name, version);
    }
    told
}

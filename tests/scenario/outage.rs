//! A hub that is down for five weeks, during thousands of changes that the other hub receives (R22, R23).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::payload::Payload;

use crate::world::hub::change_of;
use crate::world::{HUB, Heard, NOTHING, OTHER_HUB, Reply, SET_A, World, list, short, two_hubs};

/// The most entries of a notification (R21).
const MAX_ENTRIES: usize = 250;
/// The behaviour of the other hub, week by week.
const WEEKS: [Reply; 5] = [
    Reply::Fail(0),
    Reply::Status(503),
    Reply::Fail(30),
    Reply::Status(429),
    Reply::Fail(0),
];

/// The first weeks, in which the daemon is started anew each day.
const WEEKS_WITH_RESTARTS: usize = 2;

#[test]
fn five_weeks_without_a_hub_are_one_difference_to_it_and_nothing_to_the_other() {
    // How long a disk takes to sync is not what this is about.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.unwrap();
    let mut plan = two_hubs();
    plan.sources[0].announce_all_deletions = true;
    plan.window.max_entries = MAX_ENTRIES;
    let mut library = Library::new(World::new(plan).kept_in(directory.path()));
    let known = library.tree.clone();
    let mut sizes = Vec::new();
    for (week, reply) in WEEKS.into_iter().enumerate() {
        library.world.script(OTHER_HUB, reply);
        let mut size = Size::default();
        for day in 0..7 {
            for _ in 0..6 {
                library.publish();
                library.rest();
            }
            library.world.wait(day * 100);
            size = Size::of(&library.world, directory.path());
            // Later weeks show what a daemon gathers that runs on.
            if week < WEEKS_WITH_RESTARTS {
                library.world.crash_and_start();
            }
        }
        let hub = library.world.account(TOPIC, OTHER_HUB).unwrap();
        assert_eq!(hub.in_flight, Some(1), "the first, and no other");
        sizes.push(size);
    }
    assert_eq!(library.heard, library.changes);
    assert!(library.changes > 5_000);
    stays_in_bounds(&sizes);
    keeps_its_pace(&library.attempts);

    library.world.crash_and_start();
    library.world.script(OTHER_HUB, Reply::Accept);
    library.world.wait(16 * 60);
    let heard = library.world.heard_by(OTHER_HUB);
    let (first, rest) = heard.split_first().unwrap();
    let (flight, tree) = library.flight.take().unwrap();
    assert_eq!(first.body, flight.body, "unchanged for five weeks");
    let told = taken(known, &first.payload, &tree);
    let wanted = difference(&told, &library.tree);
    let mut changes: Vec<String> = rest.iter().flat_map(Heard::changes).collect();
    changes.sort();
    assert_eq!(changes, wanted);
    assert_eq!(rest.len(), wanted.len().div_ceil(MAX_ENTRIES));
    assert!(heard.is_sorted_by_key(|heard| heard.payload.until));
    assert_eq!(library.world.told_to(HUB), library.world.told_to(OTHER_HUB));
    library.world.wait(86_400);
    assert_eq!(library.world.news_at(HUB).len(), 0);
    assert_eq!(library.world.news_at(OTHER_HUB).len(), 0);
}

/// The cost of an outage.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    /// All that the engine has in memory, written out.
    engine: usize,
    file: u64,
    log: u64,
}

impl Size {
    fn of(world: &World, directory: &Path) -> Size {
        let bytes = |name| std::fs::metadata(directory.join(name)).unwrap().len();
        Size {
            engine: format!("{:?}", world.engine()).len(),
            file: bytes("state.sqlite"),
            log: bytes("state.sqlite-wal"),
        }
    }
}

/// After a week, in which almost every document was changed, nothing grows any more. In memory is only what is configured,
/// and the last fifty notifications.
fn stays_in_bounds(sizes: &[Size]) {
    let first = sizes[0];
    for size in sizes {
        assert!(size.engine < 32 << 10, "{sizes:?}");
        assert!(size.file < first.file * 11 / 10, "{sizes:?}");
        assert!(size.log < 8 << 20, "{sizes:?}");
    }
}

/// R23: whatever the topics, the hub is asked by one notification at a time, at first each 2 s and later each 30 s. An
/// attempt itself takes up to 30 s. A start asks it twice at once.
fn keeps_its_pace(attempts: &[Timestamp]) {
    let waits = attempts.windows(2).map(|two| two[1].duration_since(two[0]));
    let waits: Vec<f64> = waits.map(|wait| wait.as_secs_f64()).collect();
    for wait in &waits {
        assert!((0.0..=60.0).contains(wait), "{wait} s");
    }
    let at_once = waits.iter().filter(|wait| **wait < 2.0).count();
    assert!(at_once <= 2 * 7 * WEEKS_WITH_RESTARTS, "{at_once}");
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    assert!((20.0..40.0).contains(&mean), "{mean} s on average");
}

/// The most documents; some are absent at any time.
const NAMES: usize = 1_200;
const AT_FIRST: usize = 1_000;
/// The number of documents written or removed at a time, and the interval.
const AT_A_TIME: usize = 60;
const EVERY: Duration = Duration::from_secs(4 * 3_600);

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
    /// The first submission to it, and the tree as it was then.
    pub flight: Option<(Heard, Documents)>,
    until: Option<Timestamp>,
    random: fastrand::Rng,
    next: Timestamp,
}

impl Library {
    /// Everything is known to both hubs.
    pub fn new(mut world: World) -> Library {
        let names = names();
        let members: Vec<&str> = names.iter().map(String::as_str).collect();
        let set = list("capabilitylist").lists(&members).channel(TOPIC, &[]);
        world.write(SET_A, set);
        let mut library = Library {
            tree: Documents::new(),
            told: Documents::new(),
            changes: 0,
            heard: 0,
            attempts: Vec::new(),
            flight: None,
            until: None,
            random: fastrand::Rng::with_seed(2),
            next: world.now,
            world,
        };
        for name in &names[..AT_FIRST] {
            library.write(name, 0);
        }
        library.world.wait(10).start().wait(100);
        let news = library.world.news();
        assert_eq!(news, NOTHING, "a baseline announces nothing");
        library.told = library.tree.clone();
        library
    }

    /// Changes documents, and checks that the hub that is there hears of it at once, and of nothing else.
    pub fn publish(&mut self) {
        let all = names();
        let mut chosen = BTreeSet::new();
        while chosen.len() < AT_A_TIME {
            chosen.insert(&all[self.random.usize(..all.len())]);
        }
        for name in &chosen {
            match (self.tree.get(*name).copied(), self.random.u32(..10)) {
                (Some(_), 0) => {
                    self.world.unseen().delete(name);
                    self.tree.remove(*name);
                }
                // As it was when both hubs knew it.
                (None, _) | (Some(_), 1 | 2) => self.write(name, 0),
                // The same again.
                (Some(version), 3) => self.write(name, version),
                (Some(version), _) => self.write(name, version + 1),
            }
        }
        self.world.see_all(chosen);
        let changes = difference(&self.told, &self.tree);
        self.changes += changes.len();
        let is_deletion = |change: &String| change.starts_with("d ");
        let (deleted, others): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_deletion);
        self.world.wait(10);
        self.listen();
        assert_eq!(self.news(), others);
        self.world.wait(300);
        assert_eq!(self.news(), deleted, "believed after their grace");
        self.told = self.tree.clone();
    }

    /// Waits until it is time for the next changes.
    pub fn rest(&mut self) {
        self.next += EVERY;
        let left = self.next.duration_since(self.world.now);
        self.world.pass(Duration::try_from(left).unwrap());
        self.listen();
    }

    fn write(&mut self, name: &str, version: u32) {
        let doc = list("changelist").of("/a").version(version);
        self.world.unseen().write(name, doc);
        self.tree.insert(name.to_owned(), version);
    }

    /// Checks what the available hub received, which is in order.
    fn news(&mut self) -> Vec<String> {
        let heard = self.world.heard_by(HUB);
        for heard in &heard {
            assert!(self.until < heard.payload.until, "{heard:?}");
            self.until = heard.payload.until;
        }
        let mut news: Vec<String> = heard.iter().flat_map(Heard::changes).collect();
        self.heard += news.len();
        news.sort();
        news
    }

    fn listen(&mut self) {
        for attempt in self.world.attempts_at(OTHER_HUB) {
            self.attempts.push(attempt.at);
            if self.flight.is_none() {
                self.flight = Some((attempt, self.tree.clone()));
            }
        }
    }
}

fn names() -> Vec<String> {
    let names = (0..NAMES).map(|number| format!("/a/d{number:04}.xml"));
    names.collect()
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
            Some(change_of(change, "changelist", name))
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

//! Change channels against a plain model: random Change Lists, crashes and answers (C4, C11, C14, C21, C23).
//!
//! Nothing is ever forgotten here, so that each entry is told as often as it stood at most in one version of one list,
//! less what was learned. Which versions the daemon saw, the model knows only of those that stood for long enough.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use resourcesync::change_payload::ChangePayload;

use crate::world::{HUB, OTHER_HUB, Reply, World, capability_list, two_hubs};

const UP: &str = "/a/capabilitylist.xml";
const LISTS: [&str; 3] = ["/a/l0.xml", "/a/l1.xml", "/a/l2.xml"];

/// Entries, each of another resource: dated and not, old, equal, late and ahead.
const ENTRIES: [&str; 14] = [
    "u a 01:00",
    "c b 01:00",
    "d c 01:00",
    "u d 02:00",
    "u e 02:00.25",
    "u f 03:00",
    "d g 04:00",
    "c h 05:00",
    "u i 2026-11-01T00:00:00Z",
    "u j 2026-11-19",
    "c k",
    "u l",
    "d m",
    "u n 2027-01-01T00:00:00Z",
];

/// The longest that a version may stand unseen: the waits for a list that changes.
const SEEN_AFTER: Duration = Duration::from_secs(400);

#[derive(Debug, Clone)]
pub enum Op {
    Write {
        list: usize,
        entries: Vec<usize>,
    },
    Append {
        list: usize,
        entries: Vec<usize>,
    },
    /// One list goes on under another name, and begins anew.
    Rotate {
        list: usize,
        to: usize,
    },
    Delete(usize),
    Wait(Duration),
    Crash,
    Freeze,
    Start,
    Reload,
    Reading(Duration),
    Script {
        other: bool,
        reply: Reply,
    },
    Retry,
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        3 => Just(Reply::Accept),
        1 => Just(Reply::Slow(3)),
        1 => Just(Reply::Status(503)),
        1 => Just(Reply::Status(400)),
        1 => Just(Reply::Hang),
        1 => Just(Reply::Deny),
        2 => (1..4_usize).prop_map(Reply::AtMost),
    ]
}

pub fn op() -> impl Strategy<Value = Op> {
    let entries = || proptest::collection::vec(0..ENTRIES.len(), 0..6);
    let list = || 0..LISTS.len();
    prop_oneof![
        4 => (list(), entries()).prop_map(|(list, entries)| Op::Append { list, entries }),
        2 => (list(), entries()).prop_map(|(list, entries)| Op::Write { list, entries }),
        1 => (list(), list()).prop_map(|(list, to)| Op::Rotate { list, to }),
        1 => list().prop_map(Op::Delete),
        3 => (0..2_000_u64).prop_map(|millis| Op::Wait(Duration::from_millis(millis))),
        2 => (0..800_u64).prop_map(|seconds| Op::Wait(Duration::from_secs(seconds))),
        1 => Just(Op::Crash),
        1 => Just(Op::Freeze),
        2 => Just(Op::Start),
        1 => Just(Op::Reload),
        1 => (0..3_u64).prop_map(|seconds| Op::Reading(Duration::from_secs(seconds))),
        2 => (any::<bool>(), reply()).prop_map(|(other, reply)| Op::Script { other, reply }),
        1 => Just(Op::Retry),
    ]
}

/// Occurrences of each entry.
type Counts = [usize; ENTRIES.len()];

/// A notification, or a part of one, that a hub has.
#[derive(Debug)]
struct Part {
    from: Timestamp,
    until: Timestamp,
    names: Vec<char>,
}

pub struct Model {
    world: World,
    lists: BTreeMap<usize, Vec<usize>>,
    /// The most in any version of one list: in all that stood, and in those that were seen for certain.
    written: Counts,
    seen: Counts,
    learned: Counts,
    is_running: bool,
    has_hung: bool,
    heard: BTreeMap<&'static str, Vec<Part>>,
    /// The hubs that may hear again what they accepted before a crash.
    may_repeat: BTreeMap<&'static str, bool>,
}

fn raise(counts: &mut Counts, list: &[usize]) {
    for (entry, count) in counts.iter_mut().enumerate() {
        let here = list.iter().filter(|other| **other == entry).count();
        *count = here.max(*count);
    }
}

impl Model {
    /// Starts a daemon over lists.
    pub fn new(max_entries: usize, lists: &[Vec<usize>]) -> Model {
        let mut plan = two_hubs();
        plan.window.max_entries = max_entries;
        plan.sources[0].deletion_grace = Duration::from_secs(1 << 40);
        let mut world = World::new(plan);
        world.failing = Some(fastrand::Rng::with_seed(1));
        world.now = "2026-11-20T10:06:00Z".parse().unwrap();
        world.write(
            UP,
            capability_list("/a", &[]).change_channel("/a/change/", &[]),
        );
        let mut model = Model {
            world,
            lists: BTreeMap::new(),
            written: Counts::default(),
            seen: Counts::default(),
            learned: Counts::default(),
            is_running: true,
            has_hung: false,
            heard: BTreeMap::new(),
            may_repeat: BTreeMap::new(),
        };
        for (list, entries) in lists.iter().enumerate() {
            model.write(list, entries.clone());
        }
        model.world.wait(10);
        model.world.start();
        model.world.wait(10);
        model.learned = model.written;
        model
    }

    fn write(&mut self, list: usize, entries: Vec<usize>) {
        raise(&mut self.written, &entries);
        let texts: Vec<&str> = entries.iter().map(|entry| ENTRIES[*entry]).collect();
        self.world.write_changes_of(LISTS[list], UP, &texts);
        self.lists.insert(list, entries);
    }

    pub fn perform(&mut self, op: &Op) {
        match op {
            Op::Write { list, entries } => self.write(*list, entries.clone()),
            Op::Append { list, entries } => {
                let before = self.lists.get(list).cloned().unwrap_or_default();
                self.write(*list, [before, entries.clone()].concat());
            }
            Op::Rotate { list, to } => {
                let entries = self.lists.get(list).cloned().unwrap_or_default();
                self.write(*to, entries);
                self.write(*list, Vec::new());
            }
            Op::Delete(list) => {
                if self.lists.remove(list).is_some() {
                    self.world.delete(LISTS[*list]);
                }
            }
            Op::Wait(duration) => {
                self.world.pass(*duration);
                if self.is_running && *duration >= SEEN_AFTER {
                    for list in self.lists.values() {
                        raise(&mut self.seen, list);
                    }
                }
            }
            Op::Crash => self.crash(),
            Op::Freeze => {
                self.world.freeze();
                self.is_running = false;
            }
            Op::Start => self.start(),
            Op::Reload => {
                if self.is_running {
                    self.world.reload();
                }
            }
            Op::Reading(duration) => self.world.reading = *duration,
            Op::Script { other, reply } => {
                let hub = if *other { OTHER_HUB } else { HUB };
                self.world.script(hub, *reply);
                self.has_hung |= *reply == Reply::Hang;
            }
            Op::Retry => {
                if self.is_running {
                    self.world.retry(None);
                }
            }
        }
        self.listen();
    }

    fn crash(&mut self) {
        self.listen();
        self.world.crash();
        self.is_running = false;
        self.may_repeat = [(HUB, true), (OTHER_HUB, true)].into();
    }

    fn start(&mut self) {
        self.crash();
        self.world.start();
        self.is_running = true;
    }

    /// Takes in what the hubs got: each goes on where it was, and says nothing false.
    fn listen(&mut self) {
        for hub in [HUB, OTHER_HUB] {
            for notification in self.world.changes_heard_by(hub) {
                let ChangePayload {
                    from,
                    until,
                    entries,
                    ..
                } = &notification.payload;
                let heard = self.heard.entry(hub).or_default();
                if self.may_repeat.insert(hub, false) == Some(true) {
                    while heard.last().is_some_and(|last| last.until > *from) {
                        heard.pop();
                    }
                }
                let before = heard.last().map_or(*from, |last| last.until);
                assert_eq!(before, *from, "{hub}: {notification}");
                assert!(until > from, "{hub}: {notification}");
                let times = entries.iter().filter_map(|entry| entry.datetime);
                let times: Vec<_> = times.collect();
                assert!(times.is_sorted(), "{hub}: {notification}");
                for time in times {
                    let is_within = time.end() > *from && time.at() <= *until;
                    assert!(is_within, "{hub}: {notification}");
                }
                heard.push(Part {
                    from: *from,
                    until: *until,
                    names: entries
                        .iter()
                        .filter_map(|entry| entry.loc.chars().last())
                        .collect(),
                });
            }
        }
    }

    /// Every hub accepts, and time passes.
    pub fn rest(&mut self) {
        for hub in [HUB, OTHER_HUB] {
            self.world.script(hub, Reply::Accept);
        }
        if !self.is_running || self.has_hung {
            self.start();
        }
        self.world.wait(10_000);
        self.listen();
        for list in self.lists.values() {
            raise(&mut self.seen, list);
        }
    }

    /// Both hubs heard the same entries in the same order, each as often as it was fresh.
    pub fn check_the_end(&self) {
        let all = |hub| {
            let heard = self.heard.get(hub).into_iter().flatten();
            heard
                .flat_map(|part: &Part| &part.names)
                .collect::<String>()
        };
        let told = all(HUB);
        assert_eq!(told, all(OTHER_HUB));
        for parts in self.heard.values() {
            assert!(parts.windows(2).all(|pair| pair[0].until == pair[1].from));
        }
        for (entry, text) in ENTRIES.iter().enumerate() {
            let name = text.chars().nth(2).unwrap();
            let count = told.matches(name).count() + self.learned[entry];
            let least = self.seen[entry].max(self.learned[entry]);
            let most = self.written[entry];
            assert!(
                (least..=most).contains(&count),
                "{text} counts {count}, not {least} to {most}"
            );
        }
        assert!(self.world.logged().len() <= 1);
        for (list, entries) in &self.lists {
            assert_eq!(self.world.keys_of(LISTS[*list]).0, entries.len());
        }
    }
}

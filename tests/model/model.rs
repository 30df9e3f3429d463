//! The content of the tree, what the hubs received, and the notifications permitted by the two.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::documents::{
    Content, DESCRIPTION, DOCUMENTS, SETS, SHARED, capability_list_of, content, is_capability_list,
    is_component, is_index, is_linked, set_of,
};
use crate::running::last_seq;
use crate::world::{HUB, OTHER_HUB, Reply, World, two_hubs};

#[derive(Debug, Clone)]
pub struct Settings {
    pub all_components: bool,
    pub all_deletions: bool,
    pub quiet: Duration,
    pub max_entries: usize,
    pub announce_existing: bool,
}

#[derive(Debug, Clone)]
pub enum Op {
    Write {
        document: usize,
        version: u32,
        shape: u8,
    },
    Delete(usize),
    Touch(usize),
    Break(usize),
    Wait(Duration),
    Crash,
    Freeze,
    /// A kill between a commit and its effects, in the middle of a write.
    KillAtWrite {
        document: usize,
        version: u32,
    },
    /// A kill after so many effects.
    KillAfter {
        effects: usize,
        wait: Duration,
    },
    DeleteAll,
    SetClock(i64),
    Start,
    Script {
        other: bool,
        reply: Reply,
    },
    Accept,
    Retry,
    Drop {
        other: bool,
        set: usize,
    },
    Unmount,
    Remount,
    /// A restart or a reload with this second hub, or none.
    Configure {
        other: Option<&'static str>,
        is_reload: bool,
    },
    Reload,
}

/// The hubs that may be the second one. The model knows each as `OTHER_HUB`, because one that replaces the other goes on
/// for it (R13).
pub const OTHERS: [&str; 2] = [OTHER_HUB, "https://third.example.net/"];

/// The content at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum File {
    Good(Content),
    Broken,
}

/// The last change of a document that a hub received, and the operation after which it was cut.
pub type Told = (Content, usize);

/// One entry of a notification, as it was when that was cut.
#[derive(Debug, Clone)]
pub struct Said {
    pub change: String,
    pub name: String,
    /// The version that the hub knows once it has received it.
    pub told: Option<Told>,
    /// The other components of its index, for which it may speak (R18).
    pub others: Vec<(&'static str, Told)>,
}

pub struct Model {
    pub world: World,
    pub settings: Settings,
    pub files: BTreeMap<&'static str, File>,
    /// The last good reading of each document by a daemon that could save it.
    pub read: BTreeMap<&'static str, Content>,
    /// The most that the wall clock may have been ahead.
    pub ahead: SignedDuration,
    pub is_running: bool,
    pub is_mounted: bool,
    pub other: Option<&'static str>,
    /// Counts operations.
    pub ops: usize,
    pub last_crash: usize,
    /// The time when a document last came, went, or may have changed its set.
    pub disturbed: BTreeMap<&'static str, usize>,
    /// The time when a document first came, and since when a set's list does not name its Resource List: of those that
    /// were seen to, since the last restart.
    pub came: BTreeMap<&'static str, Timestamp>,
    pub unnamed: BTreeMap<&'static str, Timestamp>,
    /// The sets whose state the other hub may or may not have been told of when it was added.
    pub unsure: BTreeSet<&'static str>,
    /// After how many operations it was last certain that all was seen.
    pub blind_since: Option<usize>,
    /// The documents that were complete when a daemon read them, and not missing when one last looked.
    pub there: BTreeSet<&'static str>,
    /// The documents that ever changed their capability: the end of the one before may not count yet (R14).
    pub turned: BTreeSet<&'static str>,
    /// The time when a document was last deleted.
    pub left: BTreeMap<&'static str, Timestamp>,
    /// True if a hub never answered, as far as this daemon knows.
    pub has_hung: bool,
    /// The Source Description before it changed, and the time when this daemon saw it change.
    pub described: Option<(Option<Content>, Timestamp)>,
    /// Topics that were opened, by their sets.
    pub opened: BTreeSet<&'static str>,
    pub told: BTreeMap<(&'static str, String, String), Told>,
    /// The content of each notification, by topic and number.
    pub cut: BTreeMap<(String, u64), Vec<Said>>,
    /// The hubs that accepted each notification, and when last.
    pub accepted: BTreeMap<(&'static str, String, u64), usize>,
    /// The notification in flight to a hub when the daemon crashed, and whether the hub had accepted it: either way it
    /// may be said again, because the daemon cannot know.
    pub unanswered: BTreeMap<(&'static str, String, String), bool>,
    /// The documents that another component may have spoken for, or not.
    pub uncertain: BTreeSet<(&'static str, String, String)>,
    /// Every `until` that was said on a topic, and in which notification.
    pub untils: BTreeMap<String, BTreeMap<Timestamp, u64>>,
    /// The `until` of the last notification that a hub accepted.
    pub spans: BTreeMap<(&'static str, String), Option<Timestamp>>,
    /// The last number that a topic had when what a hub was due on it was dropped.
    pub dropped: BTreeMap<(&'static str, String), u64>,
}

impl Model {
    /// Starts a daemon over a tree.
    pub fn new(settings: &Settings, tree: &[Option<(u32, u8)>]) -> Model {
        let mut plan = two_hubs();
        plan.sources[0].announce_all_components = settings.all_components;
        plan.sources[0].announce_all_deletions = settings.all_deletions;
        plan.sources[0].announce_existing = settings.announce_existing;
        plan.window.quiet = settings.quiet;
        plan.window.max_entries = settings.max_entries;
        let mut model = Model {
            world: World::new(plan),
            settings: settings.clone(),
            files: BTreeMap::new(),
            read: BTreeMap::new(),
            ahead: SignedDuration::ZERO,
            is_running: false,
            is_mounted: true,
            other: Some(OTHER_HUB),
            came: BTreeMap::new(),
            unnamed: BTreeMap::new(),
            unsure: BTreeSet::new(),
            blind_since: None,
            ops: 0,
            last_crash: 0,
            disturbed: BTreeMap::new(),
            there: BTreeSet::new(),
            turned: BTreeSet::new(),
            left: BTreeMap::new(),
            has_hung: false,
            described: None,
            opened: BTreeSet::new(),
            told: BTreeMap::new(),
            cut: BTreeMap::new(),
            accepted: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            uncertain: BTreeSet::new(),
            untils: BTreeMap::new(),
            spans: BTreeMap::new(),
            dropped: BTreeMap::new(),
        };
        model.world.failing = Some(fastrand::Rng::with_seed(1));
        for (document, shape) in tree.iter().enumerate() {
            if let Some((version, shape)) = *shape {
                model.write(
                    DOCUMENTS[document],
                    content(DOCUMENTS[document], version, shape),
                );
            }
        }
        model.world.wait(10);
        if !settings.announce_existing {
            model.remember_baseline();
        }
        model.start();
        if !settings.announce_existing {
            model.described = None;
        }
        model.listen();
        model
    }

    /// Takes what is there as told to every hub.
    fn remember_baseline(&mut self) {
        for set in SETS {
            for name in DOCUMENTS {
                if let Some(File::Good(content)) = self.files.get(name)
                    && self.is_heard_on(name, set)
                {
                    let content = content.clone();
                    self.tell_all(set, name, &content);
                }
            }
        }
    }

    pub fn tell_all(&mut self, set: &str, name: &str, content: &Content) {
        for hub in [HUB, OTHER_HUB] {
            let key = (hub, topic(set), name.to_owned());
            self.told.insert(key, (content.clone(), self.ops));
        }
    }

    pub fn perform(&mut self, op: &Op) {
        self.ops += 1;
        match *op {
            Op::Write {
                document,
                version,
                shape,
            } => {
                let name = DOCUMENTS[document];
                self.write(name, content(name, version, shape));
            }
            Op::Delete(document) => self.delete(DOCUMENTS[document]),
            Op::Touch(document) => {
                if self.files.contains_key(DOCUMENTS[document]) {
                    self.world.touch(DOCUMENTS[document]);
                }
            }
            Op::Break(document) => {
                self.files.insert(DOCUMENTS[document], File::Broken);
                self.world.break_off(DOCUMENTS[document]);
            }
            Op::Wait(duration) => self.world.pass(duration),
            Op::Crash => self.crash(),
            Op::Freeze => {
                self.lose_sight();
                self.world.freeze();
                self.is_running = false;
            }
            Op::KillAtWrite { document, version } => {
                if self.is_running {
                    let name = DOCUMENTS[document];
                    self.world.freeze_after(0);
                    self.write(name, content(name, version, 0));
                    self.crash();
                    self.start();
                }
            }
            Op::KillAfter { effects, wait } => {
                if self.is_running {
                    self.world.freeze_after(effects);
                    self.world.pass(wait);
                    self.crash();
                    self.start();
                }
            }
            Op::DeleteAll => DOCUMENTS.iter().for_each(|name| self.delete(name)),
            Op::SetClock(seconds) => {
                self.world.set_clock(SignedDuration::from_secs(seconds));
                self.ahead += SignedDuration::from_secs(seconds.max(0));
            }
            Op::Start => {
                self.crash();
                self.start();
            }
            Op::Script { other, reply } => {
                let hub = if other { OTHER_HUB } else { HUB };
                self.world.script(self.url(hub), reply);
                self.has_hung |= reply == Reply::Hang;
            }
            Op::Accept => {
                if self.is_running {
                    self.world.accept_deletions();
                }
            }
            Op::Retry => {
                if self.is_running {
                    self.world.retry(None);
                }
            }
            Op::Drop { other, set } => {
                if self.is_running {
                    let hub = if other { OTHER_HUB } else { HUB };
                    self.drop_due(hub, SETS[set]);
                }
            }
            Op::Unmount => {
                if self.is_mounted {
                    self.lose_sight();
                    self.is_mounted = false;
                    self.world.unmount(0);
                }
            }
            Op::Remount => self.remount(),
            Op::Configure { other, is_reload } if is_reload && self.is_running => {
                self.configure(other);
                self.reload();
            }
            Op::Configure { other, .. } => {
                self.crash();
                self.configure(other);
                self.start();
            }
            Op::Reload => {
                if self.is_running {
                    self.reload();
                }
            }
        }
        self.listen();
    }

    /// R23: what is due counts as told, and what is not due yet may still be told.
    fn drop_due(&mut self, hub: &'static str, set: &'static str) {
        self.listen();
        for name in DOCUMENTS {
            let key = (hub, topic(set), name.to_owned());
            let told = self.told.get(&key).map(|(content, _)| content);
            if !self.there.contains(name) || told != self.read.get(name) {
                self.uncertain.insert(key);
            }
        }
        let last = last_seq(&self.world, &topic(set));
        self.dropped.insert((hub, topic(set)), last);
        self.world.drop_due(set, self.url(hub));
    }

    /// Everything becomes readable, every hub accepts, and time passes.
    pub fn rest(&mut self) {
        self.ops += 1;
        self.remount();
        self.listen();
        for name in DOCUMENTS {
            if self.files.get(name) == Some(&File::Broken) {
                self.write(name, content(name, 9, 0));
                // What is said now is said of what was read until now, and not of what is mended next.
                self.listen();
            }
        }
        for hub in [HUB, OTHER_HUB] {
            self.world.script(self.url(hub), Reply::Accept);
        }
        if !self.is_running || self.has_hung {
            self.crash();
            self.start();
        }
        self.listen();
        self.world.wait(400);
        self.world.accept_deletions();
        self.world.wait(10_000);
        self.listen();
    }

    /// Returns the address of a hub.
    pub fn url(&self, hub: &'static str) -> &'static str {
        match hub {
            HUB => HUB,
            _ => self.other.unwrap_or(OTHER_HUB),
        }
    }

    fn is_heard_on(&self, name: &str, set: &str) -> bool {
        is_heard(name, set, |name| match self.files.get(name) {
            Some(File::Good(content)) => Some(content),
            _ => None,
        })
    }

    /// Every hub was told exactly how the tree is.
    pub fn check_the_end(&self) {
        let configured = if self.other.is_some() { 2 } else { 1 };
        for hub in &[HUB, OTHER_HUB][..configured] {
            for set in SETS {
                if *hub == OTHER_HUB && self.unsure.contains(set) {
                    continue;
                }
                for name in DOCUMENTS {
                    let key = (*hub, topic(set), name.to_owned());
                    if self.uncertain.contains(&key) {
                        continue;
                    }
                    let told = self.told.get(&key).map(|(content, _)| content);
                    match self.files.get(name) {
                        Some(File::Good(content)) if self.is_heard_on(name, set) => {
                            assert_eq!(told, Some(content), "{hub} {set}: {name}");
                        }
                        // It was told of a list, and refused to hear of it again when that was repeated after a
                        // crash: the daemon believes that it never was.
                        None if self.unanswered.get(&key) == Some(&true) => {}
                        None if is_capability_list(name) && set_of(name) == Some(set) => {
                            assert_eq!(told, None, "{hub} {set}: {name}");
                        }
                        None if name == DESCRIPTION && self.is_heard_on(name, set) => {
                            assert_eq!(told, None, "{hub} {set}: {name}");
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

pub fn topic(set: &str) -> String {
    format!("{set}/framework/")
}

/// Returns true if a document's changes are announced on a set's channel, by the documents that are there.
pub fn is_heard<'a>(name: &str, set: &str, good: impl Fn(&str) -> Option<&'a Content>) -> bool {
    let Some(list) = good(&capability_list_of(set)) else {
        return false;
    };
    let index = good(&format!("{set}/index.xml"));
    match name {
        DESCRIPTION => true,
        SHARED => list.names_it,
        name if set_of(name) != Some(set) || is_index(name) => false,
        name if is_linked(name) => index.is_some(),
        name if is_component(name) => index.is_some_and(|index| index.names_it),
        _ => true,
    }
}

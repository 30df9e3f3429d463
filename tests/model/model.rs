//! What the tree holds, what the hubs heard, and what may be said.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use rsnotify::announce::plan::Mode;

use crate::documents::{
    Content, DESCRIPTION, DOCUMENTS, SETS, SHARED, capability_list_of, content, doc,
    is_capability_list, is_component, is_index, is_linked, set_of,
};
use crate::world::{HUB, OTHER_HUB, Reply, World, set_hubs, two_hubs};

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
    Start,
    Script {
        other: bool,
        reply: Reply,
    },
    Accept,
    Unmount,
    Remount,
    /// A restart with the other hub, or without it.
    Configure {
        has_other: bool,
    },
}

/// What lies at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum File {
    Good(Content),
    Broken,
}

/// What a hub heard last of a document, and after how many operations that was cut.
pub type Told = (Content, usize);

/// One entry of a notification, as it was when that was cut.
#[derive(Debug, Clone)]
pub struct Said {
    pub change: String,
    pub name: String,
    /// What the hub knows once it has heard it.
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
    pub is_running: bool,
    pub is_mounted: bool,
    pub has_other: bool,
    /// Counts operations.
    pub ops: usize,
    pub last_crash: usize,
    /// When a document last came, went, or may have changed its set.
    pub disturbed: BTreeMap<&'static str, usize>,
    /// When a document first came, and since when a set's list does not name its Resource List: of those that
    /// were seen to, since the last restart.
    pub came: BTreeMap<&'static str, Timestamp>,
    pub unnamed: BTreeMap<&'static str, Timestamp>,
    /// The sets whose state the other hub may or may not have been told of when it was added.
    pub unsure: BTreeSet<&'static str>,
    /// After how many operations it was last certain that all was seen.
    pub blind_since: Option<usize>,
    /// What was good when a daemon read it, and not missing when one last looked.
    pub there: BTreeSet<&'static str>,
    /// When a document was last deleted.
    pub left: BTreeMap<&'static str, Timestamp>,
    /// Whether a hub never answered, as far as this daemon knows.
    pub has_hung: bool,
    /// What the Source Description was before it changed, and when this daemon saw it change.
    described: Option<(Option<Content>, Timestamp)>,
    /// Topics that were opened, by their sets.
    pub opened: BTreeSet<&'static str>,
    pub told: BTreeMap<(&'static str, String, String), Told>,
    /// What each notification said, by topic and number.
    pub cut: BTreeMap<(String, u64), Vec<Said>>,
    /// Who accepted which notification, and when last.
    pub accepted: BTreeMap<(&'static str, String, u64), usize>,
    /// What was on its way to a hub when the daemon crashed, and whether the hub had accepted it: either way it
    /// may be said again, because the daemon cannot know.
    pub unanswered: BTreeMap<(&'static str, String, String), bool>,
    /// What another component may have spoken for, or not.
    pub uncertain: BTreeSet<(&'static str, String, String)>,
    pub untils: BTreeMap<String, (u64, Timestamp)>,
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
            is_running: false,
            is_mounted: true,
            has_other: true,
            came: BTreeMap::new(),
            unnamed: BTreeMap::new(),
            unsure: BTreeSet::new(),
            blind_since: None,
            ops: 0,
            last_crash: 0,
            disturbed: BTreeMap::new(),
            there: BTreeSet::new(),
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
        };
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

    /// What is there counts as told to everybody.
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

    fn tell_all(&mut self, set: &str, name: &str, content: &Content) {
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
            Op::Start => {
                self.crash();
                self.start();
            }
            Op::Script { other, reply } => {
                let hub = if other { OTHER_HUB } else { HUB };
                self.world.script(hub, reply);
                self.has_hung |= reply == Reply::Hang;
            }
            Op::Accept => {
                if self.is_running {
                    self.world.accept_deletions();
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
            Op::Configure { has_other } => {
                self.crash();
                self.configure(has_other);
                self.start();
            }
        }
        self.listen();
    }

    fn is_seeing(&self) -> bool {
        self.is_running && self.is_mounted
    }

    fn lose_sight(&mut self) {
        self.blind_since.get_or_insert(self.ops);
        self.came.clear();
        self.unnamed.clear();
    }

    fn remount(&mut self) {
        if self.is_mounted {
            return;
        }
        self.is_mounted = true;
        if self.is_running {
            self.see_all();
        }
        self.world.remount(0, 2);
    }

    /// R13: a new hub starts from what was seen last, and an old one is forgotten.
    fn configure(&mut self, has_other: bool) {
        let hubs = [(HUB, Mode::Content), (OTHER_HUB, Mode::Content)];
        let configured = if has_other { 2 } else { 1 };
        set_hubs(&mut self.world.plan, &hubs[..configured]);
        if has_other == self.has_other {
            return;
        }
        self.has_other = has_other;
        self.told.retain(|(hub, _, _), _| *hub != OTHER_HUB);
        self.unanswered.retain(|(hub, _, _), _| *hub != OTHER_HUB);
        self.uncertain.retain(|(hub, _, _)| *hub != OTHER_HUB);
        self.unsure.clear();
        if !has_other {
            return;
        }
        for set in self.opened.clone() {
            let structure = [capability_list_of(set), format!("{set}/index.xml")];
            let is_as_read = |name: &String| match (self.files.get(&**name), self.read.get(&**name))
            {
                (Some(File::Good(file)), Some(read)) => file == read,
                (file, read) => file.is_none() && read.is_none(),
            };
            if !structure.iter().all(is_as_read) || !self.is_mounted {
                // Its channel takes no new hub before its list is read again, if ever; and what joins the
                // set at that moment may count as told.
                self.unsure.insert(set);
            }
            for name in DOCUMENTS {
                if let Some(content) = self.read.get(name)
                    && is_heard(name, set, |name| self.read.get(name))
                {
                    let key = (OTHER_HUB, topic(set), name.to_owned());
                    self.told.insert(key, (content.clone(), self.ops));
                    // R17: what waits is still to be said to everybody.
                    if name.ends_with("/resourcelist.xml") || is_component(name) {
                        self.disturbed.insert(name, self.ops);
                    }
                }
                if !self.there.contains(name) {
                    // Whether it was believed to be gone by then, the model does not know.
                    self.disturbed.insert(name, self.ops);
                }
            }
        }
    }

    fn crash(&mut self) {
        self.listen();
        self.lose_sight();
        self.world.crash();
        for ((channel, hub), ledger) in &self.world.disk.ledgers {
            let Some(flight) = &ledger.flight else {
                continue;
            };
            let hub = if hub.as_str() == HUB { HUB } else { OTHER_HUB };
            let topic = self.world.disk.channels[channel].topic.as_str();
            let topic = topic
                .strip_prefix("https://example.org")
                .unwrap()
                .to_owned();
            let heard = (hub, topic.clone(), flight.seq);
            let is_accepted = self.accepted.contains_key(&heard);
            for said in self
                .cut
                .get(&(topic.clone(), flight.seq))
                .into_iter()
                .flatten()
            {
                let others = said.others.iter().map(|(name, _)| *name);
                for name in others.chain([&*said.name]) {
                    let key = (hub, topic.clone(), name.to_owned());
                    *self.unanswered.entry(key).or_default() |= is_accepted;
                }
            }
        }
        self.is_running = false;
        self.last_crash = self.ops;
    }

    fn start(&mut self) {
        self.is_running = true;
        self.described = None;
        if self.is_mounted {
            self.see_all();
        }
        self.world.start();
    }

    /// The daemon sees the tree as it is, after it saw nothing for a while.
    fn see_all(&mut self) {
        let before = self.read.get(DESCRIPTION).cloned();
        for name in DOCUMENTS {
            if let Some(File::Good(content)) = self.files.get(name) {
                self.read.insert(name, content.clone());
                self.there.insert(name);
            }
        }
        let files = &self.files;
        self.there.retain(|name| files.contains_key(name));
        self.describe(before);
        for set in SETS {
            self.open(set);
        }
        // What came, went or changed sets meanwhile does so now.
        if let Some(since) = self.blind_since.take() {
            for disturbed in self.disturbed.values_mut().filter(|at| **at >= since) {
                *disturbed = self.ops;
            }
        }
    }

    /// Takes note of what the Source Description was, if it is that no more.
    fn describe(&mut self, before: Option<Content>) {
        let now = self.world.now;
        let age = |changed: Timestamp| now.duration_since(changed).unsigned_abs();
        self.described
            .take_if(|(_, at)| age(*at) > self.settings.quiet);
        if self.read.get(DESCRIPTION) == before.as_ref() {
            return;
        }
        let unsaid = self.described.take();
        let before = unsaid.map_or(before, |(before, _)| before);
        self.described = Some((before, now));
    }

    /// A new channel starts from the Source Description as it was before a change that is not said yet.
    fn open(&mut self, set: &'static str) {
        let is_there = self.read.contains_key(&*capability_list_of(set));
        if !is_there || !self.opened.insert(set) {
            return;
        }
        let described = self.described.as_ref().map(|(before, _)| before.clone());
        let known = described.unwrap_or_else(|| self.read.get(DESCRIPTION).cloned());
        if let Some(description) = known {
            self.tell_all(set, DESCRIPTION, &description);
        }
    }

    fn write(&mut self, name: &'static str, content: Content) {
        let is_new = !self.files.contains_key(name);
        if is_new || is_capability_list(name) || is_index(name) {
            self.disturb(name);
        }
        self.files.insert(name, File::Good(content.clone()));
        if self.is_seeing() {
            let now = self.world.now;
            if !self.read.contains_key(name) {
                self.came.insert(name, now);
            }
            self.there.insert(name);
            if let Some(set) = set_of(name).filter(|_| is_capability_list(name)) {
                if content.forgets {
                    self.unnamed.entry(set).or_insert(now);
                } else {
                    self.unnamed.remove(set);
                }
            }
            let before = self.read.get(DESCRIPTION).cloned();
            self.read.insert(name, content.clone());
            self.describe(before);
            if let Some(set) = set_of(name).filter(|_| is_capability_list(name)) {
                self.open(set);
            }
        }
        self.world.write(name, doc(name, &content));
    }

    fn delete(&mut self, name: &'static str) {
        // A deleted Source Description has a scenario of its own.
        if name != DESCRIPTION && self.files.remove(name).is_some() {
            self.disturb(name);
            if let Some(set) = set_of(name).filter(|_| is_capability_list(name)) {
                self.unnamed.remove(set);
            }
            // Nobody can know of a document that came and went while nothing ran.
            if self.there.contains(name) {
                self.left.insert(name, self.world.now);
            }
            if self.is_seeing() {
                self.there.remove(name);
            }
            self.world.delete(name);
        }
    }

    /// A document came or went, or changed what it lists: it and those that depend on it may change sets.
    fn disturb(&mut self, name: &'static str) {
        let is_structural = is_capability_list(name) || is_index(name);
        for other in DOCUMENTS {
            let depends = is_structural && (set_of(other) == set_of(name) || other == SHARED);
            let is_told_itself =
                other != name && (is_capability_list(other) || other == DESCRIPTION);
            if other == name || (depends && !is_told_itself) {
                self.disturbed.insert(other, self.ops);
            }
        }
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
            self.world.script(hub, Reply::Accept);
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

    fn is_heard_on(&self, name: &str, set: &str) -> bool {
        is_heard(name, set, |name| match self.files.get(name) {
            Some(File::Good(content)) => Some(content),
            _ => None,
        })
    }

    /// Every hub was told exactly how the tree is.
    pub fn check_the_end(&self) {
        let configured = if self.has_other { 2 } else { 1 };
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

/// Whether a document's changes are heard on a set's channel, by the documents that are there.
fn is_heard<'a>(name: &str, set: &str, good: impl Fn(&str) -> Option<&'a Content>) -> bool {
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

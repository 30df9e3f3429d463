//! What the tree holds, what the hubs heard, and what may be said.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::documents::{
    Content, DESCRIPTION, DOCUMENTS, SETS, SHARED, capability_list_of, content, doc,
    is_capability_list, is_component, is_index, set_of,
};
use crate::world::{HUB, OTHER_HUB, Reply, World, two_hubs};

#[derive(Debug, Clone)]
pub struct Settings {
    pub all_components: bool,
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
}

/// What lies at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum File {
    Good(Content),
    Broken,
}

/// What a hub heard last of a document, and after how many operations that was cut.
type Told = (Content, usize);
/// The change, the document, and what the hub knows once it has heard it.
type Said = (String, String, Option<Told>);

pub struct Model {
    world: World,
    all_components: bool,
    quiet: Duration,
    files: BTreeMap<&'static str, File>,
    /// The last good reading of each document by a daemon that could save it.
    read: BTreeMap<&'static str, Content>,
    is_running: bool,
    /// Counts operations.
    ops: usize,
    last_crash: usize,
    /// When a document last came, went, or may have changed its set.
    disturbed: BTreeMap<&'static str, usize>,
    /// When a document was last deleted.
    left: BTreeMap<&'static str, Timestamp>,
    /// Whether a hub never answered, as far as this daemon knows.
    has_hung: bool,
    /// What the Source Description was before it changed, and when this daemon saw it change.
    described: Option<(Option<Content>, Timestamp)>,
    /// Topics that were opened, by their sets.
    opened: BTreeSet<&'static str>,
    told: BTreeMap<(&'static str, String, String), Told>,
    /// What each notification said, by topic and number.
    cut: BTreeMap<(String, u64), Vec<Said>>,
    /// Who accepted which notification, and when last.
    accepted: BTreeMap<(&'static str, String, u64), usize>,
    /// What a hub accepted without the daemon's hearing of it before it crashed: it may be said again.
    unanswered: BTreeSet<(&'static str, String, String)>,
    untils: BTreeMap<String, (u64, Timestamp)>,
}

impl Model {
    /// Starts a daemon over a tree.
    pub fn new(settings: &Settings, tree: &[Option<(u32, u8)>]) -> Model {
        let mut plan = two_hubs();
        plan.sources[0].announce_all_components = settings.all_components;
        plan.sources[0].announce_existing = settings.announce_existing;
        plan.window.quiet = settings.quiet;
        plan.window.max_entries = settings.max_entries;
        let mut model = Model {
            world: World::new(plan),
            all_components: settings.all_components,
            quiet: settings.quiet,
            files: BTreeMap::new(),
            read: BTreeMap::new(),
            is_running: false,
            ops: 0,
            last_crash: 0,
            disturbed: BTreeMap::new(),
            left: BTreeMap::new(),
            has_hung: false,
            described: None,
            opened: BTreeSet::new(),
            told: BTreeMap::new(),
            cut: BTreeMap::new(),
            accepted: BTreeMap::new(),
            unanswered: BTreeSet::new(),
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
        }
        self.listen();
    }

    fn crash(&mut self) {
        self.listen();
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
            if self
                .accepted
                .contains_key(&(hub, topic.clone(), flight.seq))
            {
                for (_, name, _) in &self.cut[&(topic.clone(), flight.seq)] {
                    let key = (hub, topic.clone(), name.clone());
                    self.unanswered.insert(key);
                }
            }
        }
        self.is_running = false;
        self.last_crash = self.ops;
    }

    fn start(&mut self) {
        self.is_running = true;
        let before = self.read.get(DESCRIPTION).cloned();
        for name in DOCUMENTS {
            if let Some(File::Good(content)) = self.files.get(name) {
                self.read.insert(name, content.clone());
            }
        }
        self.described = None;
        self.describe(before);
        for set in SETS {
            self.open(set);
        }
        self.world.start();
    }

    /// Takes note of what the Source Description was, if it is that no more.
    fn describe(&mut self, before: Option<Content>) {
        let now = self.world.now;
        let age = |changed: Timestamp| now.duration_since(changed).unsigned_abs();
        self.described.take_if(|(_, at)| age(*at) > self.quiet);
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
        if self.is_running {
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
            // Nobody can know of a document that came and went while nothing ran.
            if self.is_running || !self.left.contains_key(name) {
                self.left.insert(name, self.world.now);
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

    /// Takes in what the hubs got.
    fn listen(&mut self) {
        for hub in [HUB, OTHER_HUB] {
            for heard in self.world.attempts_at(hub) {
                let key = (heard.topic.clone(), heard.seq);
                if self.cut.contains_key(&key) {
                    continue;
                }
                let until = heard.payload.until.unwrap();
                let last = self.untils.insert(heard.topic.clone(), (heard.seq, until));
                let is_in_order = last.is_none_or(|last| last < (heard.seq, until));
                // Two hubs' notifications of one moment are listened to one after the other.
                assert!(is_in_order || last.unwrap().0 > heard.seq, "{heard:?}");
                assert!(
                    heard
                        .payload
                        .entries
                        .is_sorted_by_key(|entry| entry.datetime)
                );
                let changes = heard.changes();
                let said = changes
                    .iter()
                    .map(|change| self.cut(&heard.topic, change, until));
                let said = said.collect();
                self.cut.insert(key, said);
            }
        }
        for hub in [HUB, OTHER_HUB] {
            for heard in self.world.heard_by(hub) {
                let key = (hub, heard.topic.clone(), heard.seq);
                if let Some(last) = self.accepted.insert(key, self.ops) {
                    assert!(last <= self.last_crash, "accepted twice: {heard:?}");
                    continue;
                }
                let said = self.cut[&(heard.topic.clone(), heard.seq)].clone();
                for (change, name, told) in said {
                    self.hear(hub, &heard.topic, &change, &name, told);
                }
            }
        }
    }

    /// No notification contradicts the tree at the time it is cut.
    fn cut(&self, topic: &str, change: &str, until: Timestamp) -> Said {
        let [change, capability, name] = change.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{change}")
        };
        let said = (change.to_owned(), name.to_owned());
        let set = set_of(name);
        assert!(
            set.is_none_or(|set| self::topic(set) == topic),
            "{topic}: {said:?}"
        );
        assert!(!is_index(name), "{said:?}");
        if change == "deleted" {
            assert!(is_capability_list(name), "{said:?}");
            let is_there = matches!(self.files.get(name), Some(File::Good(_)));
            assert!(!is_there, "it is there: {said:?}");
            let away = until.duration_since(self.left[name]);
            assert!(away.as_secs() >= 300, "it went {away} ago: {said:?}");
            return (said.0, said.1, None);
        }
        let seen = self.read.get(name);
        let seen = seen.unwrap_or_else(|| panic!("it was never read: {said:?}"));
        assert_eq!(seen.capability, capability, "{said:?}");
        (said.0, said.1, Some((seen.clone(), self.ops)))
    }

    /// Nothing is said that the hub knows, and in the right words.
    fn hear(
        &mut self,
        hub: &'static str,
        topic: &str,
        change: &str,
        name: &str,
        told: Option<Told>,
    ) {
        let key = (hub, topic.to_owned(), name.to_owned());
        let before = self.told.get(&key);
        let disturbed = self.disturbed.get(name).copied();
        let is_open = self.unanswered.remove(&key)
            || (!self.all_components && is_component(name))
            || before.is_some_and(|(_, at)| disturbed.is_some_and(|disturbed| disturbed >= *at));
        let is_right = match (&before, &told) {
            (None, Some(_)) => change == "created",
            (None, None) => false,
            (Some(_), None) => true,
            (Some((before, _)), Some((seen, _))) if before.capability == seen.capability => {
                let is_dump = seen.capability == "resourcedump";
                before != seen && (change == "created") == is_dump
            }
            (Some(_), Some(_)) => change == "created",
        };
        assert!(
            is_right || is_open,
            "{hub} {topic}: {change} {name} {told:?}, after {before:?}"
        );
        // R18: one component speaks for the others.
        if let Some((_, at)) = told
            && !self.all_components
            && is_component(name)
        {
            for other in DOCUMENTS {
                if is_component(other)
                    && set_of(other) == set_of(name)
                    && let Some(seen) = self.read.get(other)
                {
                    let key = (hub, topic.to_owned(), other.to_owned());
                    self.told.insert(key, (seen.clone(), at));
                }
            }
        }
        match told {
            Some(told) => self.told.insert(key, told),
            None => self.told.remove(&key),
        };
    }

    /// Whether a document's changes are heard on a set's channel, by the files as they are.
    fn is_heard_on(&self, name: &str, set: &str) -> bool {
        let good = |name: &str| match self.files.get(name) {
            Some(File::Good(content)) => Some(content),
            _ => None,
        };
        let Some(list) = good(&capability_list_of(set)) else {
            return false;
        };
        let index = good(&format!("{set}/index.xml"));
        match name {
            DESCRIPTION => true,
            SHARED => list.names_it,
            name if set_of(name) != Some(set) || is_index(name) => false,
            name if name.ends_with("/linked.xml") => index.is_some(),
            name if name.ends_with("/listed.xml") => index.is_some_and(|index| index.names_it),
            _ => true,
        }
    }

    /// Every hub was told exactly how the tree is.
    pub fn check_the_end(&self) {
        for hub in [HUB, OTHER_HUB] {
            for set in SETS {
                for name in DOCUMENTS {
                    let key = (hub, topic(set), name.to_owned());
                    let told = self.told.get(&key).map(|(content, _)| content);
                    match self.files.get(name) {
                        Some(File::Good(content)) if self.is_heard_on(name, set) => {
                            assert_eq!(told, Some(content), "{hub} {set}: {name}");
                        }
                        None if is_capability_list(name) => {
                            assert_eq!(told, None, "{hub} {set}: {name}");
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

fn topic(set: &str) -> String {
    format!("{set}/framework/")
}

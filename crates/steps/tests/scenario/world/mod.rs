//! A simulated world around the engine: a clock, a tree, hubs, and a disk that keeps the saved state.

#[path = "../../../../../tests/scenario/world/doc.rs"]
mod doc;
mod hub;
#[path = "../../../../../tests/scenario/world/plan.rs"]
mod plan;
#[path = "../../../../../tests/scenario/world/tree.rs"]
mod tree;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use resourcesync::payload::Payload;
use resourcesync::uri::{Hub, Topic};
use rsnotify::announce::delivery::Submission;
use rsnotify::announce::event::{Effect, Event, Fact, Now};
use rsnotify::announce::ids::ChannelId;
use rsnotify::announce::observation::{DocumentPath, NestedFileSystem, Observation};
use rsnotify::announce::plan::Plan;
use rsnotify::report::documents::DocumentState;
use steps::step::Engine;
use websub::answer::Answer;
use websub::topics::TopicPage;

pub use doc::{Doc, capability_list, index, list};
pub use hub::{Heard, Reply};
pub use plan::{HUB, OTHER_HUB, mount, ping_hub, plan, set_hubs, two_hubs};

use hub::FakeHub;
use tree::{FakeTree, uri_of};

/// Everything outside the engine, and the engine while it runs.
pub struct World {
    /// By the clock that nobody sets.
    pub now: Timestamp,
    /// The lead of the wall clock, which may be set.
    lead: SignedDuration,
    pub plan: Plan,
    disk: Option<rusqlite::Connection>,
    engine: Option<Engine>,
    tree: FakeTree,
    /// The file systems below the root of the first mount.
    nested: BTreeMap<String, NestedFileSystem>,
    hubs: BTreeMap<Hub, FakeHub>,
    /// Events that are still to come, with their times; in order of insertion.
    coming: VecDeque<(Timestamp, Event)>,
    facts: Vec<Fact>,
    pages: BTreeMap<Topic, TopicPage>,
    /// True if the disk is lost for the engine: it decides, and nothing of it is saved or sent.
    is_frozen: bool,
    /// The number of effects after which the disk is lost.
    fuse: Option<usize>,
    /// The jitter of retries; nothing for the longest wait each time.
    chance: Option<fastrand::Rng>,
    saves: usize,
}

impl World {
    /// A world in which nothing runs yet.
    pub fn new(plan: Plan) -> World {
        World {
            now: "2026-11-20T12:00:00Z".parse().unwrap(),
            lead: SignedDuration::ZERO,
            plan,
            disk: Some(steps::state::open(None).unwrap()),
            engine: None,
            tree: FakeTree::default(),
            nested: BTreeMap::new(),
            hubs: BTreeMap::new(),
            coming: VecDeque::new(),
            facts: Vec::new(),
            pages: BTreeMap::new(),
            is_frozen: false,
            fuse: None,
            chance: None,
            saves: 0,
        }
    }

    /// A world with the sets `/a` and `/b` under a Source Description, already known.
    pub fn with_two_sets(plan: Plan) -> World {
        let mut world = World::new(plan);
        world.write_set("/a", &["resourcelist", "changelist"]);
        world.write_set("/b", &["resourcelist", "changelist"]);
        world.write(
            "/.well-known/resourcesync",
            list("description").lists(&["/a/capabilitylist.xml", "/b/capabilitylist.xml"]),
        );
        world.wait(10);
        world.start();
        world.wait(100);
        assert_eq!(world.news(), [""; 0], "a baseline announces nothing");
        world.facts.clear();
        world
    }

    /// Writes a set of resources: a Capability List that advertises `{set}/framework/`, and a list for each
    /// capability.
    pub fn write_set(&mut self, set: &str, capabilities: &[&str]) {
        for capability in capabilities {
            let up = format!("{set}/capabilitylist.xml");
            self.write(&format!("{set}/{capability}.xml"), list(capability).up(&up));
        }
        self.write(
            &format!("{set}/capabilitylist.xml"),
            capability_list(set, capabilities),
        );
    }

    // The tree.

    /// Writes a file; seen at once while the daemon runs.
    pub fn write(&mut self, name: &str, doc: Doc) {
        let text = doc.render();
        self.write_text(name, text.as_bytes());
    }

    pub fn write_text(&mut self, name: &str, text: &[u8]) {
        self.tree.write(name, Some(text), self.wall());
        self.look_at(name);
    }

    /// Leaves half of a file, as a writer does that is not done.
    pub fn break_off(&mut self, name: &str) {
        let text = list("resourcelist").render();
        self.write_text(name, &text.as_bytes()[..text.len() - 20]);
    }

    /// Makes a file unreadable: its permissions, or a directory's above it.
    pub fn deny(&mut self, name: &str) {
        self.tree.write(name, None, self.wall());
        self.look_at(name);
    }

    pub fn delete(&mut self, name: &str) {
        self.tree.delete(name);
        self.look_at(name);
    }

    /// Changes a document at once in a way that counts.
    pub fn update(&mut self, name: &str) {
        self.tree.update(name, self.wall());
        self.look_at(name);
    }

    /// Changes a document, and gives it another mtime.
    pub fn write_at(&mut self, name: &str, modified: &str) {
        self.tree.update(name, self.wall());
        self.tree.set_modified(name, modified.parse().unwrap());
        self.look_at(name);
    }

    /// Changes the stat data, and nothing else.
    pub fn touch(&mut self, name: &str) {
        self.tree.touch(name, self.wall());
        self.look_at(name);
    }

    /// Changes the tree unseen, until something looks.
    pub fn unseen(&mut self, change: impl FnOnce(&mut World)) {
        let engine = self.engine.take();
        change(self);
        self.engine = engine;
    }

    /// The engine is told of a file as it is now.
    pub fn see(&mut self, name: &str) {
        self.look_at(name);
    }

    /// The engine is told of files at once.
    pub fn see_all<'a>(&mut self, names: impl IntoIterator<Item = &'a String>) {
        let looks = names.into_iter().filter_map(|name| self.observation(name));
        let looks = looks.collect();
        self.step(Event::Observed(looks));
    }

    /// The directory of the plan's mount at this position is not there any more, or not yet.
    pub fn unmount(&mut self, position: usize) {
        let mount = self.mount_at(position);
        self.tree.unmount(&mount.directory);
        self.step(Event::MountLost {
            mount: mount.id,
            reason: "no such directory".to_owned(),
        });
    }

    /// The directory is (back) there, perhaps another one by the same name, and is swept.
    pub fn remount(&mut self, position: usize, inode: u64) {
        let mount = self.mount_at(position);
        self.tree.mount(&mount.directory, inode);
        self.find_mount(position);
        self.sweep(position);
    }

    /// The directory is another one, which nobody is told.
    pub fn set_root(&mut self, position: usize, inode: u64) {
        let mount = self.mount_at(position);
        self.tree.mount(&mount.directory, inode);
    }

    /// Something with this number is mounted at a directory of the first mount, which nobody is told.
    pub fn nest(&mut self, below: &str, device: u64) {
        let is_link = false;
        self.nest_as(below, device, is_link);
    }

    /// A directory of the first mount is a link to something with this number, which nobody is told.
    pub fn link_out(&mut self, below: &str, device: u64) {
        let is_link = true;
        self.nest_as(below, device, is_link);
    }

    fn nest_as(&mut self, below: &str, device: u64, is_link: bool) {
        let nested = NestedFileSystem {
            below: below.as_bytes().into(),
            device,
            is_link,
        };
        self.nested.insert(below.to_owned(), nested);
    }

    /// A directory of the first mount is one like any other, which nobody is told.
    pub fn unnest(&mut self, below: &str) {
        self.nested.remove(below).unwrap();
    }

    /// The engine is told what is mounted below the root of the first mount.
    pub fn tell_nested(&mut self) {
        let mount = self.mount_at(0).id;
        let file_systems = self.nested.values().cloned().collect();
        self.step(Event::Nested {
            mount,
            file_systems,
        });
    }

    /// Takes all files away whose names begin like this, for [`World::bring_back`].
    pub fn take_away(&mut self, prefix: &str) -> tree::Aside {
        self.tree.take_away(&tree::absolute(prefix))
    }

    pub fn bring_back(&mut self, aside: tree::Aside) {
        self.tree.bring_back(aside);
    }

    /// Returns the number of saves.
    pub fn saves(&self) -> usize {
        self.saves
    }

    fn mount_at(&self, position: usize) -> rsnotify::announce::plan::MountPlan {
        let mut mounts = self.plan.sources.iter().flat_map(|source| &source.mounts);
        mounts.nth(position).unwrap().clone()
    }

    fn observation(&self, name: &str) -> Option<Observation> {
        let (path, directory) = tree::path_of(&self.plan, name)?;
        self.tree.is_mounted(&directory).then(|| Observation {
            path,
            at: self.wall(),
            look: self.tree.look(name),
        })
    }

    fn look_at(&mut self, name: &str) {
        if let Some(observation) = self.observation(name) {
            self.step(Event::Observed(vec![observation]));
        }
    }

    // The daemon.

    /// Starts the daemon and lets it sweep what is mounted.
    pub fn start(&mut self) {
        self.launch();
        let mounts: usize = self
            .plan
            .sources
            .iter()
            .map(|source| source.mounts.len())
            .sum();
        for position in 0..mounts {
            let mount = self.mount_at(position);
            if self.tree.is_mounted(&mount.directory) {
                self.find_mount(position);
            } else {
                self.unmount(position);
            }
        }
        for position in 0..mounts {
            if self.tree.is_mounted(&self.mount_at(position).directory) {
                self.sweep(position);
            }
        }
    }

    /// Starts the daemon, which knows of no mount yet.
    pub fn launch(&mut self) {
        self.is_frozen = false;
        self.pages.clear();
        let (connection, live) = match self.engine.take() {
            Some(engine) => (engine.connection, Some(engine.live)),
            None => (self.disk.take().unwrap(), None),
        };
        if live.is_none() {
            // A new process: its clock does not begin before the last time saved.
            let wall = self.wall();
            let saved = steps::state::last_time_saved(&connection).unwrap();
            self.now = saved.map_or(wall, |saved| saved.max(wall));
            self.set_wall(wall);
        }
        let (engine, effects) =
            Engine::start(connection, self.plan.clone(), self.moment(), live).unwrap();
        self.plan = engine.plan.clone();
        self.engine = Some(engine);
        self.perform(effects);
        self.step(Event::Tick);
    }

    /// Ends the daemon; what it had not saved is lost, and answers find nobody.
    pub fn crash(&mut self) {
        if let Some(engine) = self.engine.take() {
            self.disk = Some(engine.connection);
        }
        self.coming.clear();
        self.fuse = None;
    }

    /// From here on nothing is saved or sent: the next [`World::crash`] comes in the middle of a step.
    pub fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// From the effect after so many others on, nothing is saved or sent.
    pub fn freeze_after(&mut self, effects: usize) {
        self.fuse = Some(effects);
    }

    /// Starts the daemon, whose disk is lost after so many effects.
    pub fn start_frozen_after(&mut self, effects: usize) {
        self.freeze_after(effects);
        self.start();
    }

    /// Returns true if nothing is saved or sent any more.
    pub fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    pub fn crash_and_start(&mut self) {
        self.crash();
        self.start();
    }

    /// The plan that there is now takes over, and what is under way goes on.
    pub fn reload(&mut self) {
        self.start();
    }

    pub fn find_mount(&mut self, position: usize) {
        let mount = self.mount_at(position);
        let identity = self.tree.identity(&mount.directory);
        self.step(Event::MountFound {
            mount: mount.id,
            identity,
            started: self.wall(),
        });
    }

    /// Reports everything that differs from what the engine knows by its stat data, as a sweep does.
    pub fn sweep(&mut self, position: usize) {
        let mount = self.mount_at(position);
        let mut names = self.tree.names();
        let Some(engine) = &self.engine else {
            return;
        };
        let mut unchanged = Vec::new();
        let known = engine.db().all(
            "SELECT mount, path, size, modified, changed, inode FROM document WHERE presence BETWEEN 1 AND 3",
            [],
            |row| {
                let (mount, below) = (row.sql()?, row.bytes()?);
                Ok((DocumentPath { mount, below }, steps::documents::stat(row)?))
            },
        );
        for (path, stat) in known.unwrap() {
            let name = uri_of(&self.plan, &path).to_string();
            match self.tree.stat(&name) == Some(stat) {
                true => unchanged.push(name),
                false => {
                    names.insert(name);
                }
            }
        }
        let broken = engine
            .db()
            .all("SELECT uri FROM trouble", [], |row| row.take::<String>());
        names.extend(broken.unwrap());
        if position == 0 {
            self.tell_nested();
        }
        let candidates = self.candidates(position);
        let observed = names
            .iter()
            .filter(|name| !unchanged.contains(name))
            .filter_map(|name| self.observation(name))
            .filter(|observation| observation.path.mount == mount.id)
            .collect();
        self.step(Event::Observed(observed));
        self.step(Event::Swept {
            mount: mount.id,
            complete: true,
            candidates,
        });
    }

    /// Returns the number of files below a mount.
    fn candidates(&self, position: usize) -> u64 {
        let mount = self.mount_at(position);
        let names = self.tree.names();
        let paths = names
            .iter()
            .filter_map(|name| tree::path_of(&self.plan, name));
        paths.filter(|(path, _)| path.mount == mount.id).count() as u64
    }

    /// The directory of the mount at this position is another one, which holds only what `keep` says, and is swept.
    pub fn replace_root(&mut self, position: usize, inode: u64, keep: impl Fn(&str) -> bool) {
        let mount = self.mount_at(position);
        for name in self.tree.names() {
            let path = tree::path_of(&self.plan, &name);
            if path.is_some_and(|(path, _)| path.mount == mount.id) && !keep(&name) {
                self.tree.delete(&name);
            }
        }
        self.remount(position, inode);
    }

    pub fn accept_deletions(&mut self) {
        let source = self.plan.sources[0].name.clone();
        self.step(Event::Accept { source });
    }

    /// The operator wants a hub tried now on the channel of a set, or every hub on every channel.
    pub fn retry(&mut self, only: Option<(&str, &str)>) {
        let only = only.map(|(set, hub)| self.account(set, hub).unwrap());
        self.step(Event::Retry { only });
    }

    /// The operator drops what a hub is due on the channel of a set, if there is one.
    pub fn drop_due(&mut self, set: &str, hub: &str) {
        if let Some((channel, hub)) = self.account(set, hub) {
            self.step(Event::Drop { channel, hub });
        }
    }

    fn account(&self, set: &str, hub: &str) -> Option<(ChannelId, Hub)> {
        let topic = tree::absolute(&format!("{set}/framework/"));
        let sql = "SELECT id FROM channel WHERE topic = ?1";
        let channel = self.engine().db().first(sql, [topic], |row| row.sql());
        Some((channel.unwrap()?, Hub::new(hub)))
    }

    /// Lets time pass, in seconds, with all that comes due meanwhile.
    pub fn wait(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    pub fn pass(&mut self, duration: Duration) {
        let until = self.now + duration;
        for _ in 0..1_000_000 {
            let answer = self.coming.front().map(|(at, _)| *at);
            let wake = self.engine.as_ref().and_then(Engine::wake);
            let next = answer.into_iter().chain(wake).min();
            match next.filter(|next| *next <= until) {
                Some(next) => {
                    self.move_on(next);
                    self.step(Event::Tick);
                }
                None => {
                    self.move_on(until);
                    return;
                }
            }
        }
        panic!("the engine never rests");
    }

    fn move_on(&mut self, to: Timestamp) {
        self.now = self.now.max(to);
    }

    /// Somebody sets the wall clock, forward or back.
    pub fn set_clock(&mut self, by: SignedDuration) {
        self.lead += by;
        self.step(Event::Tick);
    }

    fn moment(&self) -> Now {
        Now {
            now: self.now,
            wall: self.wall(),
        }
    }

    /// Sets the wall clock to a time.
    pub fn set_wall(&mut self, to: Timestamp) {
        self.lead = to.duration_since(self.now);
    }

    /// Returns the time by the wall clock.
    pub fn wall(&self) -> Timestamp {
        self.now + self.lead
    }

    /// Takes an event, and every one that follows from it at once.
    fn step(&mut self, event: Event) {
        self.coming.push_front((Timestamp::MIN, event));
        while self.coming.front().is_some_and(|(at, _)| *at <= self.now) {
            let (_, event) = self.coming.pop_front().unwrap();
            let now = self.moment();
            if self.is_frozen {
                continue;
            }
            let Some(engine) = &mut self.engine else {
                continue;
            };
            self.saves += 1;
            let effects = engine.step(vec![event], now).unwrap();
            self.perform(effects);
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if self.fuse == Some(0) {
                self.is_frozen = true;
                self.fuse = None;
            }
            if self.is_frozen {
                return;
            }
            if let Some(left) = &mut self.fuse {
                *left -= 1;
            }
            match effect {
                Effect::Save(_)
                | Effect::ServeLogged(..)
                | Effect::SubmitLogged(..)
                | Effect::Take(_) => {}
                Effect::Serve(page) => {
                    self.pages.insert(page.topic.clone(), page);
                }
                Effect::Withdraw(topic) => {
                    self.pages.remove(&topic);
                }
                Effect::Submit(submission) => self.submit(submission),
                Effect::Look(paths) => {
                    for path in paths {
                        let name = uri_of(&self.plan, &path).to_string();
                        let observation = self.observation(&name).unwrap_or(Observation {
                            path,
                            at: self.wall(),
                            look: tree::not_mounted(),
                        });
                        self.come(self.now, Event::Observed(vec![observation]));
                    }
                }
                Effect::Explain(paths) => {
                    let explained = paths.into_iter().filter_map(|path| {
                        let explained = self.tree.explain(&self.plan, &path)?;
                        Some((path, explained))
                    });
                    let explained = explained.collect();
                    self.come(self.now, Event::Explained(explained));
                }
                Effect::Tell(fact) => self.facts.push(fact),
            }
        }
    }

    fn come(&mut self, at: Timestamp, event: Event) {
        let place = self.coming.partition_point(|(other, _)| *other <= at);
        self.coming.insert(place, (at, event));
    }

    fn submit(&mut self, submission: Submission) {
        let hub = self.hubs.entry(submission.hub.clone()).or_default();
        let answer = hub.take(&submission, self.now);
        self.answer(submission, answer);
    }

    fn answer(&mut self, submission: Submission, answer: Option<(Duration, Answer)>) {
        let chance = self.chance.as_mut();
        if let Some((after, answer)) = answer {
            let event = Event::Answered {
                channel: submission.channel,
                hub: submission.hub,
                seq: submission.seq,
                answer,
                jitter: chance.map_or(1.0, fastrand::Rng::f64),
            };
            self.come(self.now + after, event);
        }
    }

    // The hubs.

    /// Sets the behaviour of a hub from now on.
    pub fn script(&mut self, hub: &str, reply: Reply) {
        let hub = self.hubs.entry(Hub::new(hub)).or_default();
        hub.reply = reply;
    }

    /// Returns the notifications that a hub accepted since the last call.
    pub fn heard_by(&mut self, hub: &str) -> Vec<Heard> {
        let hub = self.hubs.entry(Hub::new(hub)).or_default();
        std::mem::take(&mut hub.accepted)
    }

    /// Returns all submissions to a hub since the last call, accepted or not.
    pub fn attempts_at(&mut self, hub: &str) -> Vec<Heard> {
        let hub = self.hubs.entry(Hub::new(hub)).or_default();
        std::mem::take(&mut hub.attempts)
    }

    /// Returns the changes that a hub accepted since the last call, such as `updated changelist /a/changelist.xml`.
    pub fn news_at(&mut self, hub: &str) -> Vec<String> {
        let heard = self.heard_by(hub);
        heard.iter().flat_map(Heard::changes).collect()
    }

    /// Returns [`World::news_at`] of the first hub.
    pub fn news(&mut self) -> Vec<String> {
        self.news_at(HUB)
    }

    /// Returns the changes that the first hub accepted since the last call, by topic.
    pub fn news_by_topic(&mut self) -> BTreeMap<String, Vec<String>> {
        let mut news: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for heard in self.heard_by(HUB) {
            news.entry(heard.topic.clone())
                .or_default()
                .extend(heard.changes());
        }
        news
    }

    // What shows.

    /// Returns the facts that were told to the operator since the last call.
    pub fn facts(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.facts)
    }

    /// Fetches a topic.
    pub fn fetch(&mut self, topic: &str) -> Option<TopicPage> {
        let topic = Topic::new(tree::absolute(topic));
        let page = self.pages.get(&topic)?.clone();
        if page.report_fetches {
            self.step(Event::Fetched(topic));
        }
        Some(page)
    }

    /// Returns the topics that are served.
    pub fn topics(&self) -> Vec<&str> {
        self.pages.keys().map(Topic::as_str).collect()
    }

    /// Returns the changes that a topic serves.
    pub fn served(&mut self, topic: &str) -> Vec<String> {
        let page = self.fetch(topic).unwrap();
        let payload = Payload::parse(&page.body).unwrap();
        hub::changes(&payload)
    }

    /// Returns whether a document is held, missing, or neither.
    pub fn state_of(&self, name: &str) -> Option<DocumentState> {
        let sql = "SELECT presence, hold FROM document WHERE uri = ?1 AND presence > 0";
        let state = self
            .engine()
            .db()
            .first(sql, [tree::absolute(name)], |row| {
                Ok((row.take::<u8>()?, row.take::<u8>()?))
            });
        Some(match state.unwrap()? {
            (2 | 3, _) => DocumentState::Missing,
            (_, 1) => DocumentState::Held,
            _ => DocumentState::Announced,
        })
    }

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    /// Returns true if the state holds anything about a document.
    pub fn remembers(&self, name: &str) -> bool {
        let sql = "SELECT 1 FROM document WHERE uri = ?1 AND presence > 0";
        let known = self.engine().db().exists(sql, [tree::absolute(name)]);
        known.unwrap()
    }
}

//! A simulated world around the engine: a clock, a tree, hubs, and a disk that keeps the saved state.

mod changes;
mod doc;
pub mod hub;
mod plan;
mod state;
mod statements;
mod tree;

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use announce::changes::round::RoundRequest;
use announce::changes::selection::KeptFreshSelections;
use announce::delivery::Submission;
use announce::event::{DropCause, Effect, Event, Fact};
use announce::finding::Finding;
use announce::observation::{
    DocumentPath, NestedFileSystem, Observation, Stat, UnreadableDirectory,
};
use announce::plan::Plan;
use announce::state::open::StateFile;
use announce::state::{ChannelId, Db, HubId, StatementError};
use announce::steps::change_log::backlog;
use announce::steps::engine::Engine;
use announce::time::StepClocks;
use jiff::{SignedDuration, Timestamp};
use resourcesync::capability::ChannelKind;
use resourcesync::change_payload::ChangePayload;
use resourcesync::payload::Payload;
use resourcesync::uri::{Hub, Topic};
use rsnotify::report;
use rsnotify::report::documents::DocumentState;
use rsnotify::report::outbox::AccountName;
use rsnotify::report::outbox::AccountView;
use websub::topics::TopicPage;

pub use changes::{HeardChanges, change_list};
pub use doc::{Doc, advertise, capability_list, index, list};
pub use hub::{Heard, Reply, short};
pub use plan::{
    HUB, NOTHING, OTHER_HUB, SET_A, SET_B, all_deletions, altered, excluding, mount, other_source,
    ping_hub, plan, set_hubs, two_hubs, two_sources,
};
pub use statements::plan as plan_of;
pub use tree::{Aside, absolute, uri};

use changes::summary;
use hub::FakeHub;
use statements::Statements;
use tree::{FakeTree, uri_of};

/// True if a fact of a pattern was told to the operator since the facts were last asked for.
macro_rules! told {
    ($world:expr, $pattern:pat) => {
        $world.facts().iter().any(|fact| matches!(fact, $pattern))
    };
}
pub(crate) use told;

/// Expected texts, in their order.
pub trait Texts: IntoIterator<Item: AsRef<str>> {}

impl<T: IntoIterator<Item: AsRef<str>>> Texts for T {}

/// Everything outside the engine, and the engine while it runs.
pub struct World {
    /// By the clock that nobody sets.
    pub now: Timestamp,
    /// The lead of the wall clock, which may be set.
    lead: SignedDuration,
    /// The time that reading Change Lists takes.
    pub reading: Duration,
    pub plan: Plan,
    disk: Option<rusqlite::Connection>,
    /// The file of the database, if it is in one.
    file: Option<PathBuf>,
    rounds: KeptFreshSelections,
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
    statements: Statements,
    /// The chance of each step to fail at a statement, and to be tried again; nothing if none fails.
    pub failing: Option<fastrand::Rng>,
    /// The number of steps that failed.
    pub failures: usize,
}

/// A world whose engine sees nothing.
pub struct Unseen<'w> {
    world: &'w mut World,
    engine: Option<Engine>,
}

impl Deref for Unseen<'_> {
    type Target = World;

    fn deref(&self) -> &World {
        self.world
    }
}

impl DerefMut for Unseen<'_> {
    fn deref_mut(&mut self) -> &mut World {
        self.world
    }
}

impl Drop for Unseen<'_> {
    fn drop(&mut self) {
        self.world.engine = self.engine.take();
    }
}

impl World {
    /// A world in which nothing runs yet.
    pub fn new(plan: Plan) -> World {
        World {
            now: "2026-11-20T12:00:00Z".parse().unwrap(),
            lead: SignedDuration::ZERO,
            reading: Duration::ZERO,
            plan,
            disk: Some(announce::state::open::in_memory().unwrap()),
            file: None,
            rounds: KeptFreshSelections::default(),
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
            statements: Statements::default(),
            failing: None,
            failures: 0,
        }
    }

    /// Keeps the database in a file, which Change Lists are compared with on a connection of its own; and spreads retries.
    pub fn kept_in(mut self, directory: &Path) -> World {
        let file = directory.join("state.sqlite");
        self.disk = Some(StateFile::open(directory).unwrap().1);
        self.file = Some(file);
        self.chance = Some(fastrand::Rng::with_seed(1));
        self
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
        assert_eq!(world.news(), NOTHING, "a baseline announces nothing");
        world.facts.clear();
        world
    }

    /// A world whose hub answers 503 from now on.
    pub fn with_down(mut self, hub: &str) -> World {
        self.script(hub, Reply::Status(503));
        self
    }

    /// Writes a set of resources: a Capability List that advertises `{set}/framework/`, and a list for each
    /// capability.
    pub fn write_set(&mut self, set: &str, capabilities: &[&str]) -> &mut World {
        for capability in capabilities {
            self.write_list(&format!("{set}/{capability}.xml"), capability);
        }
        self.write_capability_list(set, capabilities)
    }

    pub fn write_capability_list(&mut self, set: &str, capabilities: &[&str]) -> &mut World {
        let name = format!("{set}/capabilitylist.xml");
        self.write(&name, capability_list(set, capabilities))
    }

    // The tree.

    /// Writes a file; seen at once while the daemon runs.
    pub fn write(&mut self, name: &str, doc: Doc) -> &mut World {
        self.write_text(name, doc.render().as_bytes())
    }

    /// Writes a file and replaces it; the engine is told of both at once.
    pub fn write_both(&mut self, name: &str, docs: [Doc; 2]) {
        let looks = docs.map(|doc| {
            self.tree
                .write(name, Some(doc.render().as_bytes()), self.wall());
            self.observation(name)
        });
        self.step(Event::Observed(looks.into_iter().flatten().collect()));
        assert_documents_counted(self.db());
    }

    /// Writes a list of the set whose directory it lies in.
    pub fn write_list(&mut self, name: &str, capability: &str) -> &mut World {
        let (set, _) = name.rsplit_once('/').unwrap();
        self.write(name, list(capability).of(set))
    }

    /// Writes the Source Description of these Capability Lists.
    pub fn describe(&mut self, lists: &[&str]) -> &mut World {
        let description = list("description").lists(lists);
        self.write("/.well-known/resourcesync", description)
    }

    pub fn write_text(&mut self, name: &str, text: &[u8]) -> &mut World {
        self.tree.write(name, Some(text), self.wall());
        self.see(name)
    }

    /// Leaves half of a file, as a writer does that is not done.
    pub fn break_off(&mut self, name: &str) -> &mut World {
        let text = list("resourcelist").render();
        self.write_text(name, &text.as_bytes()[..text.len() - 20]);
        self
    }

    /// Makes a file unreadable: its permissions, or a directory's above it.
    pub fn deny(&mut self, name: &str) -> &mut World {
        self.tree.write(name, None, self.wall());
        self.see(name)
    }

    pub fn delete(&mut self, name: &str) -> &mut World {
        self.tree.delete(name);
        self.see(name)
    }

    /// Changes a document at once in a way that counts.
    pub fn update(&mut self, name: &str) -> &mut World {
        self.tree.update(name, self.wall());
        self.see(name)
    }

    /// Changes a document, and gives it another mtime.
    pub fn write_at(&mut self, name: &str, modified: &str) {
        self.tree.update(name, self.wall());
        self.tree.set_modified(name, modified.parse().unwrap());
        self.see(name);
    }

    /// Changes the stat data, and nothing else.
    pub fn touch(&mut self, name: &str) -> &mut World {
        self.tree.touch(name, self.wall());
        self.see(name)
    }

    /// Changes the tree unseen, until something looks.
    pub fn unseen(&mut self) -> Unseen<'_> {
        let engine = self.engine.take();
        let world = self;
        Unseen { world, engine }
    }

    /// The engine is told of a file as it is now.
    pub fn see(&mut self, name: &str) -> &mut World {
        if let Some(observation) = self.observation(name) {
            self.step(Event::Observed(vec![observation]));
        }
        self
    }

    /// The engine is told of files at once.
    pub fn see_all(&mut self, names: impl IntoIterator<Item: AsRef<str>>) -> &mut World {
        let names = names.into_iter();
        let looks = names.filter_map(|name| self.observation(name.as_ref()));
        self.step(Event::Observed(looks.collect()));
        self
    }

    /// The directory of the plan's mount at this position is not there any more, or not yet.
    pub fn unmount(&mut self, position: usize) -> &mut World {
        let mount = self.mount_at(position);
        self.tree.unmount(&mount.directory);
        self.step(Event::MountLost {
            mount: mount.id,
            reason: "no such directory".to_owned(),
        });
        self
    }

    /// The directory is (back) there, perhaps another one by the same name, and is swept.
    pub fn remount(&mut self, position: usize, inode: u64) -> &mut World {
        let mount = self.mount_at(position);
        self.tree.mount(&mount.directory, inode);
        self.find_mount(position);
        self.sweep(position);
        self
    }

    /// The directory is another one, which nobody is told.
    pub fn set_root(&mut self, position: usize, inode: u64) {
        let mount = self.mount_at(position);
        self.tree.mount(&mount.directory, inode);
    }

    /// Something with this number is mounted at a directory of the first mount, which nobody is told.
    pub fn nest(&mut self, below: &str, device: u64) {
        self.nest_as(below, device, false);
    }

    /// A directory of the first mount is a link to something with this number, which nobody is told.
    pub fn link_out(&mut self, below: &str, device: u64) {
        self.nest_as(below, device, true);
    }

    /// A file system of the first mount went before anybody was told of it.
    pub fn nest_gone(&mut self, below: &str, device: u64) {
        self.nest(below, device);
        self.nested.get_mut(below).unwrap().is_gone = true;
    }

    fn nest_as(&mut self, below: &str, device: u64, is_link: bool) {
        let nested = NestedFileSystem {
            below: below.as_bytes().into(),
            device,
            is_link,
            is_gone: false,
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
        let nested = self.nested.values().cloned().collect();
        self.step(Event::Nested { mount, nested });
    }

    /// The engine is told which directories of the first mount may not be read.
    pub fn deny_directories(&mut self, below: &[&str]) -> &mut World {
        let mount = self.mount_at(0);
        let directories = below.iter().map(|below| UnreadableDirectory {
            below: below.as_bytes().to_vec(),
            directory: mount.directory.join(below).display().to_string(),
            reason: "permission denied".to_owned(),
            remedy: None,
            since: self.wall(),
        });
        self.step(Event::Unreadable {
            mount: mount.id,
            directories: directories.collect(),
            more: 0,
        });
        self
    }

    /// Takes all files away whose names begin like this, for [`World::bring_back`].
    pub fn take_away(&mut self, prefix: &str) -> tree::Aside {
        self.tree.take_away(&tree::absolute(prefix))
    }

    pub fn bring_back(&mut self, aside: tree::Aside) -> &mut World {
        self.tree.bring_back(aside);
        self
    }

    /// Returns the number of rows that were ever written.
    pub fn writes(&self) -> u64 {
        self.engine().connection.total_changes()
    }

    fn mount_at(&self, position: usize) -> announce::plan::MountPlan {
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

    /// A directory more is published in the plan's first source, which the daemon learns when it starts or reloads.
    pub fn add_mount(&mut self, directory: &str, prefix: &str) {
        let mounts = &mut self.plan.sources[0].mounts;
        mounts.push(mount(directory, prefix));
    }

    // The daemon.

    /// Starts the daemon and lets it sweep what is mounted.
    pub fn start(&mut self) -> &mut World {
        self.launch();
        let mounts = self.plan.sources.iter().flat_map(|source| &source.mounts);
        let mounted: Vec<bool> = mounts
            .map(|mount| self.tree.is_mounted(&mount.directory))
            .collect();
        for (position, is_mounted) in mounted.iter().enumerate() {
            if *is_mounted {
                self.find_mount(position);
            } else {
                self.unmount(position);
            }
        }
        for (position, is_mounted) in mounted.iter().enumerate() {
            if *is_mounted {
                self.sweep(position);
            }
        }
        self
    }

    /// Starts the daemon, which knows of no mount yet.
    pub fn launch(&mut self) -> &mut World {
        self.is_frozen = false;
        self.pages.clear();
        if self.engine.is_none() {
            // A new process: its clock does not begin before the last time saved.
            let wall = self.wall();
            let disk = self.disk.as_ref().unwrap();
            let saved = announce::state::last_time_saved(disk).unwrap();
            self.now = saved.map_or(wall, |saved| saved.max(wall));
            self.set_wall(wall);
        }
        let (now, plan) = (self.moment(), self.plan.clone());
        let effects = match &mut self.engine {
            Some(engine) => {
                self.statements.collect(&mut engine.connection);
                let prepared = engine.change_plan(plan, now, |_, _| Ok::<_, StatementError>(()));
                prepared.unwrap().1
            }
            None => {
                let mut disk = self.disk.take().unwrap();
                self.statements.collect(&mut disk);
                let (engine, effects) = Engine::start(disk, plan, now).unwrap();
                self.engine = Some(engine);
                effects
            }
        };
        let connection = &mut self.engine.as_mut().unwrap().connection;
        self.statements.check(connection, true);
        self.plan = self.engine().plan.clone();
        self.perform(effects);
        self.step(Event::Tick);
        self
    }

    /// Ends the daemon; what it had not saved is lost, and answers find nobody.
    pub fn crash(&mut self) -> &mut World {
        if let Some(engine) = self.engine.take() {
            self.disk = Some(engine.connection);
        }
        self.coming.clear();
        self.fuse = None;
        self
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

    pub fn crash_and_start(&mut self) -> &mut World {
        self.crash();
        self.start();
        self
    }

    /// The plan that there is now takes over, and what is under way goes on.
    pub fn reload(&mut self) -> &mut World {
        self.start();
        self
    }

    /// The plan that there is now takes over: by a reload, or by a restart.
    pub fn apply_plan(&mut self, is_reload: bool) -> &mut World {
        if is_reload {
            return self.reload();
        }
        self.crash_and_start()
    }

    pub fn find_mount(&mut self, position: usize) -> &mut World {
        let mount = self.mount_at(position);
        let identity = self.tree.identity(&mount.directory);
        self.step(Event::MountFound {
            mount: mount.id,
            identity,
            started: self.wall(),
        });
        self
    }

    /// Reports everything that differs from what the engine knows by its stat data, as a sweep does.
    pub fn sweep(&mut self, position: usize) -> &mut World {
        let mount = self.mount_at(position);
        let mut names = self.tree.names();
        let Some(engine) = &self.engine else {
            return self;
        };
        let mut unchanged = Vec::new();
        let known = engine.db().all::<Vec<(DocumentPath, Stat, bool)>>(
            "SELECT mount, path, size, modified, changed, inode, presence = 1 AND looked > 0 FROM document WHERE presence BETWEEN 1 AND 3", ());
        for (path, stat, is_present) in known.unwrap() {
            let name = uri_of(&self.plan, &path).to_string();
            match is_present && self.tree.stat(&name) == Some(stat) {
                true => unchanged.push(name),
                false => {
                    names.insert(name);
                }
            }
        }
        let broken = engine
            .db()
            .all::<Vec<DocumentPath>>("SELECT mount, path FROM trouble", ());
        let source_of = |path: &DocumentPath| self.plan.source_of(path.mount);
        let broken = broken.unwrap().into_iter();
        let broken = broken.filter_map(|path| source_of(&path)?.1.uri_of(&path));
        names.extend(broken.map(|uri| uri.to_string()));
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
        self
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

    pub fn accept_deletions(&mut self) -> &mut World {
        let source = self.plan.sources[0].name.clone();
        self.step(Event::Accept { source });
        self
    }

    /// The operator wants a hub tried now on the channel of a set, or every hub on every channel.
    pub fn retry(&mut self, only: Option<(&str, &str)>) -> &mut World {
        let only = only.map(|(set, hub)| self.account_of(set, hub).unwrap());
        self.step(Event::Retry { only });
        self
    }

    /// The operator drops what a hub is due on the channel of a set, if there is one.
    pub fn drop_due(&mut self, set: &str, hub: &str) -> &mut World {
        if let Some((channel, hub)) = self.account_of(set, hub) {
            self.step(Event::Drop { channel, hub });
        }
        self
    }

    /// The operator drops what a hub is due on the channel of a topic.
    pub fn drop_due_on(&mut self, topic: &str, hub: &str) -> &mut World {
        let channel = self.channel(topic).unwrap();
        let hub = Hub::new(hub);
        self.step(Event::Drop { channel, hub });
        self
    }

    fn account_of(&self, set: &str, hub: &str) -> Option<(ChannelId, Hub)> {
        let names = names(&tree::absolute(&format!("{set}/framework/")), hub);
        report::outbox::find_account(&self.engine().reader(self.now), &names).ok()
    }

    /// Returns all that a hub is due on the channel of a set.
    pub fn outbox(&self, set: &str, hub: &str) -> AccountView {
        let names = names(&tree::absolute(&format!("{set}/framework/")), hub);
        report::outbox::account_view(&self.engine().reader(self.now), &names, true).unwrap()
    }

    fn channel(&self, topic: &str) -> Option<ChannelId> {
        let sql = "SELECT id FROM channel WHERE topic = ?1";
        let channel = self.engine().db().first(sql, tree::absolute(topic));
        channel.unwrap()
    }

    /// Lets time pass, in seconds, with all that comes due meanwhile.
    pub fn wait(&mut self, seconds: u64) -> &mut World {
        self.pass(Duration::from_secs(seconds));
        self
    }

    pub fn pass(&mut self, duration: Duration) {
        let until = self.now + duration;
        for _ in 0..1_000_000 {
            let answer = self.coming.front().map(|(at, _)| *at);
            let engine = self.engine.as_ref().filter(|_| !self.is_frozen);
            let wake = engine.and_then(|engine| engine.wake);
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
    pub fn set_clock(&mut self, by: SignedDuration) -> &mut World {
        self.lead += by;
        self.step(Event::Tick);
        self
    }

    fn moment(&self) -> StepClocks {
        StepClocks {
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
            self.statements.collect(&mut engine.connection);
            let mut effects = try_step(engine, event.clone(), now, self.failing.as_mut());
            if effects.is_err() && self.failing.is_some() {
                self.failures += 1;
                effects = try_step(engine, event, now, None);
            }
            self.statements.check(&mut engine.connection, false);
            if self.failing.is_some() {
                assert_documents_counted(engine.db());
            }
            let effects = effects.unwrap();
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
                Effect::Take(request) => self.take(&request),
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
        let at = self.now;
        let hub = self.hubs.entry(submission.hub.clone()).or_default();
        let answer = match submission.kind {
            ChannelKind::Framework => hub.take(&submission, at),
            ChannelKind::Change => hub.take_changes(&submission),
        };
        let Some((after, answer)) = answer else {
            return;
        };
        let event = Event::Answered {
            id: (submission.channel, submission.hub, submission.seq),
            answer,
            jitter: self.chance.as_mut().map_or(1.0, fastrand::Rng::f64),
        };
        self.come(at + after, event);
    }

    fn take(&mut self, request: &RoundRequest) {
        let (tree, plan, rounds) = (&self.tree, &self.plan, &mut self.rounds);
        let outcome = match &self.file {
            Some(file) => {
                let reader = announce::state::open::read_only(file).unwrap();
                changes::take(rounds, request, tree, plan, Db(&reader))
            }
            None => {
                let db = self.engine.as_ref().unwrap().db();
                changes::take(rounds, request, tree, plan, db)
            }
        };
        let taken = Box::new(request.answer_with(outcome));
        self.come(self.now + self.reading, Event::Taken(taken));
    }

    // The hubs.

    fn hub(&mut self, hub: &str) -> &mut FakeHub {
        self.hubs.entry(Hub::new(hub)).or_default()
    }

    /// Sets the behaviour of a hub from now on.
    pub fn script(&mut self, hub: &str, reply: Reply) -> &mut World {
        self.hub(hub).reply = reply;
        self
    }

    /// Returns the notifications that a hub accepted since the last call.
    pub fn heard_by(&mut self, hub: &str) -> Vec<Heard> {
        std::mem::take(&mut self.hub(hub).accepted)
    }

    /// Returns all submissions to a hub since the last call, accepted or not.
    pub fn attempts_at(&mut self, hub: &str) -> Vec<Heard> {
        std::mem::take(&mut self.hub(hub).attempts)
    }

    /// Returns the changes that a hub accepted since the last call, such as `u /a/changelist.xml`.
    pub fn news_at(&mut self, hub: &str) -> Vec<String> {
        self.heard_by(hub).iter().flat_map(Heard::changes).collect()
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

    /// Writes a Change List of the set whose directory it lies in, with entries like `u a 05:00`.
    pub fn write_changes(&mut self, name: &str, entries: &[impl AsRef<str>]) -> &mut World {
        let (set, _) = name.rsplit_once('/').unwrap();
        self.write_changes_of(name, &format!("{set}/capabilitylist.xml"), entries)
    }

    /// Writes a Change List anew, with more entries at its end.
    pub fn append(&mut self, name: &str, entries: &[&str]) -> &mut World {
        let before = String::from_utf8(self.tree.text(name).unwrap().to_vec()).unwrap();
        let more = change_list(SET_A, entries);
        let (_, more) = more.split_once("/>\n<url>").unwrap();
        let text = before.replace("</urlset>", &format!("<url>{more}"));
        self.write_text(name, text.as_bytes())
    }

    /// Writes a Change List of the set of a Capability List.
    pub fn write_changes_of(
        &mut self,
        name: &str,
        up: &str,
        entries: &[impl AsRef<str>],
    ) -> &mut World {
        self.write_text(name, change_list(up, entries).as_bytes())
    }

    /// Returns the change notifications that a hub accepted since the last call.
    pub fn changes_heard_by(&mut self, hub: &str) -> Vec<HeardChanges> {
        std::mem::take(&mut self.hub(hub).accepted_changes)
    }

    /// Returns all submissions of change notifications to a hub since the last call, accepted or not.
    pub fn change_attempts_at(&mut self, hub: &str) -> Vec<HeardChanges> {
        std::mem::take(&mut self.hub(hub).attempted_changes)
    }

    /// Returns the change notifications that a hub accepted since the last call, such as
    /// `[00:00, 05:31] u a 05:00; d b 05:31`.
    pub fn read_at(&mut self, hub: &str) -> Vec<String> {
        let heard = self.changes_heard_by(hub);
        heard.iter().map(HeardChanges::to_string).collect()
    }

    /// Returns [`World::read_at`] of the first hub.
    pub fn changes(&mut self) -> Vec<String> {
        self.read_at(HUB)
    }

    /// Returns the notification that a change topic serves, in short.
    pub fn served_changes(&mut self, topic: &str) -> String {
        let page = self.fetch(topic).unwrap();
        summary(&ChangePayload::parse(&page.body).unwrap())
    }

    /// Waits, and compares all that the first hub accepted since it was last asked with changes like
    /// `u /a/changelist.xml`, in their order.
    #[track_caller]
    pub fn expect(&mut self, seconds: u64, want: impl Texts) -> &mut World {
        self.expect_at(HUB, seconds, want)
    }

    #[track_caller]
    pub fn expect_nothing(&mut self, seconds: u64) -> &mut World {
        self.expect(seconds, NOTHING)
    }

    #[track_caller]
    pub fn expect_at(&mut self, hub: &str, seconds: u64, want: impl Texts) -> &mut World {
        self.wait(seconds);
        assert_same(&self.news_at(hub), want);
        self
    }

    /// Compares like [`World::expect_at`], in any order.
    #[track_caller]
    pub fn expect_sorted(&mut self, hub: &str, seconds: u64, want: impl Texts) -> &mut World {
        self.wait(seconds);
        let mut heard = self.news_at(hub);
        let mut want: Vec<String> = want.into_iter().map(|it| it.as_ref().to_owned()).collect();
        heard.sort();
        want.sort();
        assert_eq!(heard, want);
        self
    }

    /// Waits, and compares the change notifications that the first hub accepted since it was last asked with texts like
    /// `[00:00, 05:31] u a 05:00; d b 05:31`.
    #[track_caller]
    pub fn expect_changes(&mut self, seconds: u64, want: impl Texts) -> &mut World {
        self.expect_changes_at(HUB, seconds, want)
    }

    #[track_caller]
    pub fn expect_no_changes(&mut self, seconds: u64) -> &mut World {
        self.expect_changes(seconds, NOTHING)
    }

    #[track_caller]
    pub fn expect_changes_at(&mut self, hub: &str, seconds: u64, want: impl Texts) -> &mut World {
        self.wait(seconds);
        assert_same(&self.read_at(hub), want);
        self
    }

    /// Returns [`World::changes`], each with its topic: `/a/change/ [00:00, 05:31] u a 05:00`.
    pub fn changes_by_topic(&mut self) -> Vec<String> {
        let heard = self.changes_heard_by(HUB).into_iter();
        heard
            .map(|heard| format!("{} {heard}", heard.topic))
            .collect()
    }

    #[track_caller]
    pub fn expect_by_topic(&mut self, seconds: u64, want: impl Texts) -> &mut World {
        self.wait(seconds);
        assert_same(&self.changes_by_topic(), want);
        self
    }

    /// Waits, and compares the entries of the change notifications that the first hub accepted since it was last asked.
    #[track_caller]
    pub fn expect_entries(&mut self, seconds: u64, want: impl Texts) -> &mut World {
        self.wait(seconds);
        let heard = self.changes_heard_by(HUB);
        let entries: Vec<String> = heard.iter().flat_map(HeardChanges::entries).collect();
        assert_same(&entries, want);
        self
    }

    // What the state holds of changes.

    /// Returns the database, whether a daemon works on it or not.
    pub fn db(&self) -> Db<'_> {
        let engine = self.engine.as_ref().map(Engine::db);
        engine.unwrap_or_else(|| Db(self.disk.as_ref().unwrap()))
    }

    /// Returns the numbers of keys that were taken from a list, and of those that vanished from it.
    pub fn keys_of(&self, list: &str) -> (usize, usize) {
        let sql = "SELECT coalesce(sum(CASE WHEN vanished IS NULL THEN length(keys) ELSE 0 END) / 16, 0), \
                   coalesce(sum(CASE WHEN vanished IS NOT NULL THEN length(keys) ELSE 0 END) / 16, 0) \
                   FROM change_key WHERE list = (SELECT id FROM document WHERE uri = ?1)";
        self.db().first(sql, tree::absolute(list)).unwrap().unwrap()
    }

    /// Returns the number of sets of which changes are taken.
    pub fn change_sets(&self) -> usize {
        let sets = self.db().first("SELECT count(*) FROM change_set", ());
        sets.unwrap().unwrap()
    }

    /// Returns the numbers of the notifications of change channels that are kept.
    pub fn logged(&self) -> Vec<u64> {
        let sql = "SELECT seq FROM change_log ORDER BY channel, seq";
        let logged = self.db().all::<Vec<i64>>(sql, ()).unwrap().into_iter();
        logged.map(i64::cast_unsigned).collect()
    }

    /// Returns the number of changes that each hub is due, in order.
    pub fn changes_due(&self) -> Vec<usize> {
        let sql = "SELECT p.channel, p.hub FROM log_position p JOIN hub h ON h.id = p.hub ORDER BY p.channel, h.uri";
        let accounts: Vec<(ChannelId, HubId)> = self.db().all(sql, ()).unwrap();
        let due = accounts
            .into_iter()
            .map(|account| backlog(self.db(), account));
        due.map(Result::unwrap).collect()
    }

    /// Returns true if a hub has an account on the channel of a topic.
    pub fn has_account(&self, topic: &str, hub: &str) -> bool {
        let sql = "SELECT 1 FROM account WHERE channel = ?1 AND hub = (SELECT id FROM hub WHERE uri = ?2)";
        let channel = self.channel(topic).unwrap();
        self.db().exists(sql, (channel, hub)).unwrap()
    }

    /// Returns the findings about entries of lists.
    pub fn entry_findings(&self) -> Vec<Finding> {
        let mut found = self.findings();
        found.retain(|finding| {
            matches!(
                finding,
                Finding::UntellableEntries { .. }
                    | Finding::BackDated { .. }
                    | Finding::Ahead { .. }
                    | Finding::ClosedListRewritten { .. }
                    | Finding::MissingResources { .. }
            )
        });
        found
    }

    // What shows.

    /// Returns the facts that were told to the operator since the last call.
    pub fn facts(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.facts)
    }

    /// Returns what was dropped for a cause since the facts were last asked for, as `hub topic changes`.
    pub fn dropped(&mut self, why: DropCause) -> Vec<String> {
        let dropped = self.facts().into_iter().filter_map(|fact| match fact {
            Fact::Dropped {
                topic,
                hub,
                changes,
                cause,
                ..
            } if cause == why => Some(format!("{hub} {} {changes}", short(topic.as_str()))),
            _ => None,
        });
        dropped.collect()
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

    pub fn state_of(&self, name: &str) -> Option<DocumentState> {
        let name = tree::absolute(name);
        let documents = report::documents::all(&self.engine().reader(self.now)).unwrap();
        let mut documents = documents.iter();
        let document = documents.find(|document| document.uri.as_str() == name)?;
        Some(document.state)
    }

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }
}

#[track_caller]
fn assert_same(heard: &[String], want: impl Texts) {
    let want = want.into_iter().map(|text| text.as_ref().to_owned());
    assert_eq!(heard, want.collect::<Vec<_>>());
}

/// Returns the names by which an operator means an account, without the kind of its channel.
pub fn names(channel: &str, hub: &str) -> AccountName {
    AccountName {
        channel: channel.to_owned(),
        kind: None,
        hub: hub.to_owned(),
    }
}

/// Takes a step, which may fail at any statement: then nothing happened.
fn try_step(
    engine: &mut Engine,
    event: Event,
    now: StepClocks,
    chance: Option<&mut fastrand::Rng>,
) -> Result<Vec<Effect>, StatementError> {
    // The number of instructions of a step ranges from hundreds to hundreds of thousands: a quarter of the steps fail.
    let draw = chance.map(|chance| (chance.u8(..), chance.u32(5..16)));
    let mut left = match draw {
        Some((fails, size)) if fails < 160 => 1_u32 << size,
        _ => 0,
    };
    // SQLite may report that it was interrupted right after a commit.
    let is_committing = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&is_committing);
    let interrupt = move || {
        // Once, or the transaction could not be rolled back either.
        let fails = left == 1 && !is_over.load(Ordering::Relaxed);
        left = left.saturating_sub(1);
        fails
    };
    let instructions = i32::from(left > 0);
    let connection = &mut engine.connection;
    let handled = connection.progress_handler(instructions, Some(interrupt));
    handled.unwrap();
    let effects = engine.step(vec![event], now, |_, _| {
        is_committing.store(true, Ordering::Relaxed);
        Ok(())
    });
    let none: Option<fn() -> bool> = None;
    engine.connection.progress_handler(0, none).unwrap();
    effects
}

/// Checks that the census has each document that is there or missing.
fn assert_documents_counted(db: Db<'_>) {
    let counted = "SELECT mount, capability, form, presence, held, archived, orphan, count FROM census WHERE count <> 0";
    let there = "SELECT mount, capability, form, presence, hold = 1, archived, orphan, count(*) FROM document \
                 WHERE presence BETWEEN 1 AND 3 GROUP BY 1, 2, 3, 4, 5, 6, 7";
    for (one, other) in [(counted, there), (there, counted)] {
        let difference = format!("{one} EXCEPT {other}");
        assert!(!db.exists(&difference, ()).unwrap(), "{difference}");
    }
}

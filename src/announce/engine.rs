//! The engine: events in, effects out, all state within.
//!
//! A step notes what an event changed (`observe`, `deliver`), then settles it (`settle`): relations
//! are resolved, what each hub is due is compared anew, channels open and retire, and what is ready is cut.
//! Nothing is derived from the order of events, only from what is seen and what was told.

mod channels;
mod clock;
mod cut;
mod deletion;
mod deliver;
pub mod findings;
mod inventory;
mod missing;
mod mounts;
mod notifications;
mod observe;
mod operator;
mod outbox;
mod page;
mod ping;
mod replacement;
mod restore;
mod retirement;
mod settle;
mod source;
mod start;
mod trouble;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::channel::{Channel, Configured};
use crate::announce::delivery::Submission;
use crate::announce::delivery::hub_queue::HubQueue;
use crate::announce::engine::observe::Sighting;
use crate::announce::engine::source::Source;
use crate::announce::event::{Effect, Event, Fact, Now};
use crate::announce::finding::Finding;
use crate::announce::history::History;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::observation::{DocumentPath, MountId, Stat};
use crate::announce::plan::Plan;
use crate::announce::small_set::SmallSet;
use crate::announce::state::{Save, State, Trouble};
use crate::announce::time::later;
use crate::resourcesync::uri::{Hub, Topic, Uri, UriMap};

pub use crate::announce::engine::inventory::{DocumentState, DocumentView, MountView, SourceView};
pub use crate::announce::engine::outbox::UnknownAccount;

/// As [`Engine::most_without_file`], unless each is to be told.
const MOST_WITHOUT_FILE: usize = 100;

/// The whole of rsnotify's decisions.
#[derive(Debug)]
pub struct Engine {
    plan: Plan,
    sources: Vec<Source>,
    channels: BTreeMap<ChannelId, Channel>,
    /// Greater than any before: rows of one that was removed may still be on their way to the store.
    next_channel: ChannelId,
    /// The channels of each set, retired ones too.
    by_set: UriMap<BTreeSet<ChannelId>>,
    /// The channel of each topic, live or retired.
    by_topic: BTreeMap<Topic, ChannelId>,
    configured: Configured,
    /// Hubs that were not configured before this start, and those that go on for one that is no more (R13).
    added: BTreeSet<Hub>,
    inherited: BTreeSet<Hub>,
    /// Hubs that were configured once, and are no more.
    former: BTreeSet<Hub>,
    /// On which channels some hub was told of a document, or is due to be.
    heard: UriMap<SmallSet<ChannelId>>,
    timers: BTreeSet<(Timestamp, Timer)>,
    /// When the grace of a missing document ends, by the monotonic clock.
    graces: BTreeSet<(Duration, usize, Uri)>,
    history: History,
    /// So many documents that a list names, and of which there is no file, are findings of their own; the others are
    /// counted.
    most_without_file: usize,
    queues: BTreeMap<Hub, HubQueue>,
    /// When the last step was, by the wall clock and by the monotonic one.
    now: Timestamp,
    monotonic: Duration,
    turn: Turn,
}

/// What a point in time was set for. A timer that no longer matters does nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Window(ChannelId),
    Try(ChannelId, Hub),
    /// The next probe of a hub that fails.
    Probe(Hub),
    /// Refusals that are summed up.
    Refusals(Hub),
    /// A ping hub's pacing, and R26.
    Ping(ChannelId, Hub),
    Retired(ChannelId),
    /// A hub that is advertised no more was told its last for long enough.
    Left(ChannelId, Hub),
    Hold(usize, Uri),
    Broken(usize, Uri),
    Finding(usize, Uri),
    /// The end of the time in which no more was told of a kind of finding.
    FindingKind(usize, &'static str),
}

/// What one step changed, and what is to be done about it.
#[derive(Debug, Default)]
struct Turn {
    documents: BTreeSet<(usize, Uri)>,
    troubles: BTreeSet<(usize, Uri)>,
    channels: BTreeSet<ChannelId>,
    ledgers: BTreeSet<(ChannelId, Hub)>,
    told: BTreeSet<(ChannelId, Hub, Uri)>,
    /// Rows that need no look-up: passed through, or deleted.
    save: Save,
    /// Documents that looks did not find; and the document that a look found in the place of one.
    vanished: BTreeMap<(usize, Uri), Option<Sighting>>,
    ready: BTreeSet<ChannelId>,
    serve: BTreeSet<ChannelId>,
    withdraw: BTreeSet<Topic>,
    /// Topics that a set may take now.
    freed: BTreeSet<Topic>,
    submit: Vec<Submission>,
    look: BTreeSet<DocumentPath>,
    explain: BTreeSet<DocumentPath>,
    /// Findings that lasted, by source, and are to be told.
    found: Vec<(usize, Finding)>,
    /// Documents that cannot be read for so long, by source, are to be told of.
    broken: Vec<(usize, Fact)>,
    facts: Vec<Fact>,
}

impl Engine {
    /// Takes up where `state` ends, under a plan that may differ from the one it was made under. The plan's
    /// mounts must have adopted the state's ([`State::number_mounts`]). Configuration announces nothing (R13).
    pub fn new(plan: Plan, state: State, now: Timestamp) -> (Engine, Vec<Effect>) {
        let mut engine = Engine {
            sources: Vec::new(),
            channels: BTreeMap::new(),
            next_channel: ChannelId(1),
            by_set: UriMap::default(),
            by_topic: BTreeMap::new(),
            configured: Configured::new(&plan),
            added: BTreeSet::new(),
            inherited: BTreeSet::new(),
            former: BTreeSet::new(),
            heard: UriMap::default(),
            timers: BTreeSet::new(),
            graces: BTreeSet::new(),
            history: History::default(),
            most_without_file: MOST_WITHOUT_FILE,
            queues: BTreeMap::new(),
            now,
            monotonic: Duration::ZERO,
            turn: Turn::default(),
            plan,
        };
        engine.restore(state, now);
        engine.recall();
        let effects = engine.finish();
        (engine, effects)
    }

    /// Takes one event, and returns what is to be done, in order.
    pub fn step(&mut self, event: Event, now: Now) -> Vec<Effect> {
        let Now {
            wall: now,
            monotonic,
        } = now;
        if now < self.now {
            self.set_back(now);
        }
        self.now = now;
        self.monotonic = self.monotonic.max(monotonic);
        self.note(event, now);
        self.expire(now);
        self.settle(now);
        self.cut_ready(now);
        self.tell_found(now);
        self.dispatch(now);
        self.finish()
    }

    /// Does what a person asks, and nothing that follows from it: on a state that no daemon works on, that is
    /// for the next daemon to do, and to tell.
    pub fn amend(&mut self, event: Event, now: Now) -> Vec<Effect> {
        self.note(event, now.wall);
        self.finish()
    }

    fn note(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Observed(observations) => {
                for observation in observations {
                    self.observe(observation);
                }
            }
            Event::Explained(explained) => {
                for (path, cause) in explained {
                    self.explained(&path, cause, now);
                }
            }
            Event::MountFound {
                mount,
                identity,
                started,
            } => {
                self.mount_found(mount, identity, started);
            }
            Event::MountLost { mount, reason } => self.mount_lost(mount, reason),
            Event::Swept {
                mount,
                complete,
                candidates,
            } => self.swept(mount, complete, candidates, now),
            Event::Unreadable {
                mount,
                directories,
                more,
            } => self.unreadable(mount, directories, more),
            Event::Answered {
                channel,
                hub,
                seq,
                answer,
                jitter,
            } => {
                self.answered(channel, &hub, seq, &answer, jitter, now);
            }
            Event::Fetched(topic) => self.fetched(&topic, now),
            Event::Accept { source } => self.accept(&source),
            Event::HubChanged(hub) => self.hub_changed(&hub, now),
            Event::Retry { only } => self.retry(only.as_ref(), now),
            Event::Drop { channel, hub } => self.drop_due(channel, &hub, now),
            Event::Tick => {}
        }
    }

    /// When the engine wants a [`Event::Tick`], if nothing else happens before.
    pub fn wake(&self) -> Option<Timestamp> {
        let grace_ends = self.graces.first().map(|(at, ..)| {
            let left = at.saturating_sub(self.monotonic);
            later(self.now, left)
        });
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(grace_ends).min()
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The documents whose stat data decide whether they are read again (R4). Structural ones are always
    /// read at start, and so are those whose fingerprint an earlier version computed.
    pub fn known(&self) -> impl Iterator<Item = (&DocumentPath, Stat, Timestamp)> {
        self.sources
            .iter()
            .flat_map(|source| source.catalog.iter())
            .filter(|(_, record)| !record.is_gone() && !record.is_read_at_start())
            .map(|(_, record)| (&record.path, record.stat, record.looked))
    }

    /// What must be reported as missing if it is not there, although it is not among [`Engine::known`]:
    /// documents, and candidates that could not be read.
    pub fn reread(&self) -> impl Iterator<Item = &DocumentPath> {
        let documents = self
            .sources
            .iter()
            .flat_map(|source| source.catalog.iter())
            .filter(|(_, record)| !record.is_gone() && record.is_read_at_start())
            .map(|(_, record)| &record.path);
        let troubles = self.sources.iter().flat_map(|source| {
            let unknown = |(uri, _): &(&Uri, &Trouble)| !source.catalog.is_there(uri);
            source.troubles.iter().filter(unknown)
        });
        documents.chain(troubles.map(|(_, trouble)| &trouble.path))
    }

    fn source_of(&self, mount: MountId) -> Option<usize> {
        self.plan.source_of(mount).map(|(position, _)| position)
    }

    fn ledger_mut(&mut self, channel: ChannelId, hub: &Hub) -> Option<&mut Ledger> {
        let ledgers = &mut self.channels.get_mut(&channel)?.ledgers;
        ledgers.get_mut(hub).map(Box::as_mut)
    }

    fn wake_at(&mut self, at: Timestamp, timer: Timer) {
        self.timers.insert((at, timer));
    }

    fn tell(&mut self, fact: Fact) {
        self.turn.facts.push(fact);
    }

    /// Handles every timer that is up.
    fn expire(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            let Some((_, timer)) = self.timers.pop_first() else {
                break;
            };
            match timer {
                Timer::Window(channel) => self.window_closes(channel, now),
                Timer::Try(channel, hub) => self.try_again(channel, &hub, now),
                // What may go now is dispatched at the end of each step.
                Timer::Probe(_) => {}
                Timer::Refusals(hub) => self.sum_up_refusals(&hub, now),
                Timer::Ping(channel, hub) => self.ping_due(channel, &hub, now),
                Timer::Retired(channel) => self.retirement_ends(channel, now),
                Timer::Left(channel, hub) => self.leaving_ends(channel, &hub, now),
                Timer::Hold(source, uri) => self.hold_expires(source, &uri, now),
                Timer::Broken(source, uri) => self.report_broken(source, &uri, now),
                Timer::Finding(source, uri) => self.findings_lasted(source, &uri, now),
                Timer::FindingKind(source, kind) => self.tell_untold(source, kind, now),
            }
        }
        while let Some((at, ..)) = self.graces.first()
            && *at <= self.monotonic
        {
            let Some((_, source, uri)) = self.graces.pop_first() else {
                break;
            };
            self.grace_ends(source, &uri);
        }
    }

    /// Turns what the turn changed into effects: what is saved comes before what is sent.
    fn finish(&mut self) -> Vec<Effect> {
        let turn = std::mem::take(&mut self.turn);
        let mut save = turn.save;
        for (source, uri) in turn.documents {
            let record = self.sources[source].catalog.shared(&uri);
            save.documents.insert(uri, record);
        }
        for (source, uri) in turn.troubles {
            let trouble = self.sources[source].troubles.get(&uri).cloned();
            save.troubles.insert(uri, trouble);
        }
        for id in turn.channels.iter().chain(&turn.serve) {
            let row = self.channels.get(id).map(|channel| channel.row.clone());
            save.channels.insert(*id, row);
        }
        for (id, hub) in turn.ledgers {
            let ledger = self.ledger_mut(id, &hub).map(|ledger| ledger.row.clone());
            save.ledgers.insert((id, hub), ledger);
        }
        for (id, hub, uri) in turn.told {
            let told = self
                .ledger_mut(id, &hub)
                .and_then(|ledger| ledger.told.get(&uri).copied());
            save.told.insert((id, hub, uri), told);
        }
        let mut effects = Vec::new();
        if !save.is_empty() {
            effects.push(Effect::Save(Box::new(save)));
        }
        effects.extend(turn.withdraw.into_iter().map(Effect::Withdraw));
        effects.extend(
            turn.serve
                .iter()
                .filter_map(|id| self.page(*id))
                .map(Effect::Serve),
        );
        // That it was cut is told before that it is submitted.
        effects.extend(turn.facts.into_iter().map(Effect::Tell));
        effects.extend(turn.submit.into_iter().map(Effect::Submit));
        if !turn.look.is_empty() {
            effects.push(Effect::Look(turn.look.into_iter().collect()));
        }
        if !turn.explain.is_empty() {
            effects.push(Effect::Explain(turn.explain.into_iter().collect()));
        }
        effects
    }
}

//! The channels with the ledgers of their hubs, and which of them a document concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::announce::catalog::Catalog;
use crate::announce::changes::log::LogPosition;
use crate::announce::channel::{Channel, ChannelWindow};
use crate::announce::due::{Due, due, may_become_due};
use crate::announce::engine::source::sighting::Recomputed;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::plan::{Mode, SourcePlan, WindowPlan};
use crate::announce::small_set::SmallSet;
use crate::announce::state::{ChannelRow, Record, Retirement, Told};
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::uri::{Hub, Topic, Uri, UriMap};

/// All channels, live and retired.
///
/// `by_set`, `changes_by_set`, `by_topic` and `heard` are derived from `channels`, and change only with them.
#[derive(Debug)]
pub struct Channels {
    // A node of the map has room for eleven, and half of each stays free where ids only grow.
    channels: BTreeMap<ChannelId, Box<Channel>>,
    /// Greater than any before: rows of a removed channel may still be on their way to the store.
    next: ChannelId,
    by_set: UriMap<SmallSet<ChannelId>>,
    /// The change channels, retired ones too; `by_set` has the others.
    changes_by_set: UriMap<SmallSet<ChannelId>>,
    by_topic: BTreeMap<Topic, ChannelId>,
    /// The channels on which some hub was told of a document, or is due to be.
    heard: UriMap<SmallSet<ChannelId>>,
    /// Channels on which the next notifications may be cut at the end of this step.
    ready: BTreeSet<ChannelId>,
    /// Channels that were ready while their source was not settled.
    parked: BTreeSet<ChannelId>,
    /// Topics that another set may take now.
    freed: BTreeSet<Topic>,
}

/// The result of comparing what is seen of a document with what one hub was told of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Compared {
    /// True if the change is held (R17).
    pub is_held: bool,
    pub is_due: bool,
    /// True if it was not due before.
    pub is_newly_due: bool,
}

impl Default for Channels {
    fn default() -> Channels {
        Channels {
            channels: BTreeMap::new(),
            next: ChannelId(1),
            by_set: UriMap::default(),
            changes_by_set: UriMap::default(),
            by_topic: BTreeMap::new(),
            heard: UriMap::default(),
            ready: BTreeSet::new(),
            parked: BTreeSet::new(),
            freed: BTreeSet::new(),
        }
    }
}

impl Channels {
    pub fn get(&self, id: ChannelId) -> Option<&Channel> {
        self.channels.get(&id).map(Box::as_ref)
    }

    pub fn get_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.channels.get_mut(&id).map(Box::as_mut)
    }

    pub fn ledger(&self, id: ChannelId, hub: &Hub) -> Option<&Ledger> {
        let ledgers = &self.channels.get(&id)?.ledgers;
        ledgers.get(hub).map(Box::as_ref)
    }

    pub fn ledger_mut(&mut self, id: ChannelId, hub: &Hub) -> Option<&mut Ledger> {
        let ledgers = &mut self.channels.get_mut(&id)?.ledgers;
        ledgers.get_mut(hub).map(Box::as_mut)
    }

    /// Returns every channel, in the order in which they were opened.
    pub fn iter(&self) -> impl Iterator<Item = (ChannelId, &Channel)> {
        let channels = self.channels.iter();
        channels.map(|(id, channel)| (*id, &**channel))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ChannelId, &mut Channel)> {
        let channels = self.channels.iter_mut();
        channels.map(|(id, channel)| (*id, &mut **channel))
    }

    /// Returns the channels of a source.
    pub fn of_source(&self, source: usize) -> impl Iterator<Item = (ChannelId, &Channel)> {
        self.iter()
            .filter(move |(_, channel)| channel.source == source)
    }

    /// Returns the channels of a source that announce changes of documents.
    pub fn of_documents(&self, source: usize) -> impl Iterator<Item = (ChannelId, &Channel)> {
        self.of_source(source)
            .filter(|(_, channel)| !channel.is_of_changes())
    }

    /// Returns the channels of this kind of a set, retired ones too.
    pub fn of_set(
        &self,
        set: &Uri,
        kind: ChannelKind,
    ) -> impl Iterator<Item = (ChannelId, &Channel)> {
        let ids = self.ids_by_set(kind).get(set).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.get(*id)?)))
    }

    /// Returns the channel of a topic, live or retired.
    pub fn of_topic(&self, topic: &Topic) -> Option<ChannelId> {
        self.by_topic.get(topic).copied()
    }

    fn ids_by_set(&self, kind: ChannelKind) -> &UriMap<SmallSet<ChannelId>> {
        match kind {
            ChannelKind::Framework => &self.by_set,
            ChannelKind::Change => &self.changes_by_set,
        }
    }

    fn ids_by_set_mut(&mut self, kind: ChannelKind) -> &mut UriMap<SmallSet<ChannelId>> {
        match kind {
            ChannelKind::Framework => &mut self.by_set,
            ChannelKind::Change => &mut self.changes_by_set,
        }
    }

    /// Returns the live channel of this kind of a set.
    pub fn live(&self, set: &Uri, kind: ChannelKind) -> Option<ChannelId> {
        let of_set = self.of_set(set, kind);
        let mut live = of_set.filter(|(_, channel)| channel.is_live());
        live.next().map(|(id, _)| id)
    }

    /// Returns true if another live channel has this topic: of another set, or of another kind (R8, C9).
    pub fn has_other(&self, topic: &Topic, set: &Uri, kind: ChannelKind) -> bool {
        let holder = self.of_topic(topic).and_then(|id| self.get(id));
        holder.is_some_and(|channel| {
            channel.is_live() && (&channel.row.set, channel.row.kind) != (set, kind)
        })
    }

    pub fn hubs(&self, id: ChannelId) -> Vec<Hub> {
        let channel = self.channels.get(&id);
        let hubs = channel.map(|channel| channel.ledgers.keys().cloned().collect());
        hubs.unwrap_or_default()
    }

    /// Returns true if a notification of any channel is in flight to a hub.
    pub fn is_sending_to(&self, hub: &Hub) -> bool {
        let mut channels = self.channels.values();
        channels.any(|channel| {
            let ledger = channel.ledgers.get(hub);
            ledger.is_some_and(|ledger| ledger.row.flight.is_some())
        })
    }

    /// Returns the channels that must hear of a document, or did (R10).
    pub fn concerned(&self, source: usize, uri: &Uri, record: &Record) -> BTreeSet<ChannelId> {
        let heard = self.heard.get(uri).into_iter().flatten();
        let mut concerned: BTreeSet<ChannelId> = heard.copied().collect();
        for set in &record.relations.sets {
            concerned.extend(self.by_set.get(set).into_iter().flatten());
        }
        if record.is_source_description() {
            concerned.extend(self.of_documents(source).map(|(id, _)| id));
        }
        concerned
    }

    /// Returns the channels on which some hub was told of a document, or is due to be.
    pub fn that_heard(&self, uri: &Uri) -> impl Iterator<Item = &Channel> {
        let ids = self.heard.get(uri).into_iter().flatten();
        ids.filter_map(|id| self.get(*id))
    }

    /// Notes that some hub of a channel was told of a document, or is due to be.
    pub fn hears(&mut self, id: ChannelId, uri: &Uri) {
        self.heard.entry(uri.clone()).or_default().insert(id);
    }

    /// Returns true if some hub was told of a document, or is due to be. If not, forgets which might have been.
    pub fn owes(&self, uri: &Uri) -> bool {
        let mut ledgers = self
            .that_heard(uri)
            .flat_map(|channel| channel.ledgers.values());
        ledgers.any(|ledger| ledger.told.contains_key(uri) || ledger.owes(uri))
    }

    /// Forgets a document that no hub is owed anything of.
    pub fn forget(&mut self, uri: &Uri) {
        self.heard.remove(uri);
    }

    // Channels that come and go.

    /// Keeps ids from being used again that are not greater than this one.
    pub fn reserve(&mut self, id: ChannelId) {
        self.next = self.next.max(ChannelId(id.0 + 1));
    }

    /// Adds a stored channel.
    pub fn restore(&mut self, id: ChannelId, channel: Channel) {
        self.reserve(id);
        for (uri, id) in channel.ledgers.values().flat_map(|ledger| {
            let covers = ledger.row.flight.iter().flat_map(|flight| &flight.covers);
            let covers = covers.map(|(uri, _)| uri);
            let uris = ledger.told.keys().chain(&ledger.due).chain(covers);
            uris.map(move |uri| (uri, id))
        }) {
            self.heard.entry(uri.clone()).or_default().insert(id);
        }
        self.insert(id, channel);
    }

    /// Opens a channel without hubs.
    pub fn open(&mut self, source: usize, row: ChannelRow, step: &mut Step) -> ChannelId {
        let id = self.next;
        self.reserve(id);
        self.insert(id, Channel::new(source, row));
        step.save_channel(id);
        id
    }

    fn insert(&mut self, id: ChannelId, channel: Channel) {
        let (set, topic) = (channel.row.set.clone(), channel.row.topic.clone());
        let ids = self.ids_by_set_mut(channel.row.kind);
        ids.entry(set).or_default().insert(id);
        self.by_topic.insert(topic, id);
        self.channels.insert(id, Box::new(channel));
    }

    /// R11: gives the channel of a topic to another set from now on, with all that was told on it and all that is still
    /// due: a topic has one channel.
    pub fn take_over(
        &mut self,
        id: ChannelId,
        source: usize,
        source_name: &str,
        set: &Uri,
        step: &mut Step,
    ) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut channel.row.set, set.clone());
        let was_of = std::mem::replace(&mut channel.source, source);
        channel.row.source = source_name.to_owned();
        let was_retired = channel.row.retired.take().is_some();
        let topic = channel.row.topic.clone();
        if was_of != source {
            // Its documents are not this source's.
            for (hub, ledger) in &mut channel.ledgers {
                for uri in ledger.forget_documents() {
                    step.save_told(id, hub.clone(), uri);
                }
            }
        }
        let kind = channel.row.kind;
        let by_set = self.ids_by_set_mut(kind);
        if let Some(ids) = by_set.get_mut(&before) {
            ids.remove(&id);
        }
        by_set.entry(set.clone()).or_default().insert(id);
        step.save_channel(id);
        if !was_retired {
            step.tell(Fact::ChannelRetired { topic, set: before });
        }
    }

    /// R11: retires a channel, which outlives its advertisement to announce what is still due.
    pub fn retire(&mut self, id: ChannelId, kept: Duration, step: &mut Step) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let ledgers = channel.ledgers.values();
        let last_words = ledgers.flat_map(|ledger| ledger.owed().cloned()).collect();
        channel.row.retired = Some(Retirement {
            since: step.now(),
            last_words,
        });
        let (topic, set) = (channel.row.topic.clone(), channel.row.set.clone());
        self.freed.insert(topic.clone());
        step.save_channel(id);
        step.tell(Fact::ChannelRetired { topic, set });
        step.wake_after(kept, Timer::Retired(id));
    }

    /// Makes a retired channel live again. Returns true if it was retired.
    pub fn revive(&mut self, id: ChannelId, step: &mut Step) -> bool {
        let Some(channel) = self.channels.get_mut(&id) else {
            return false;
        };
        let was_retired = channel.row.retired.take().is_some();
        if was_retired {
            step.save_channel(id);
            step.tell(Fact::ChannelRevived {
                topic: channel.row.topic.clone(),
                set: channel.row.set.clone(),
            });
        }
        was_retired
    }

    /// Removes a retired channel, and returns it.
    pub fn remove(&mut self, id: ChannelId, step: &mut Step) -> Option<Channel> {
        let channel = *self.channels.remove(&id)?;
        let by_set = self.ids_by_set_mut(channel.row.kind);
        if let Some(ids) = by_set.get_mut(&channel.row.set) {
            ids.remove(&id);
        }
        self.by_topic.remove(&channel.row.topic);
        step.save_channel(id);
        step.withdraw(channel.row.topic.clone());
        Some(channel)
    }

    /// Takes the topics that another set may have now.
    pub fn take_freed(&mut self) -> BTreeSet<Topic> {
        std::mem::take(&mut self.freed)
    }

    // Hubs that come and go.

    /// Lets a hub hear of all that changes on a channel from now on; not one that is not configured, which has no mode. A
    /// new account begins with what was told on the channel.
    pub fn join(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        mode: Option<Mode>,
        told: Option<&BTreeMap<Uri, Told>>,
        step: &mut Step,
    ) {
        if self.ledger(id, hub).is_some() {
            self.resume(id, hub, step);
        } else if let Some(mode) = mode {
            self.add_account(id, hub, mode, told, step);
        }
    }

    /// Adds a hub's account, which begins with what was told on the channel.
    fn add_account(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        mode: Mode,
        told: Option<&BTreeMap<Uri, Told>>,
        step: &mut Step,
    ) {
        let mut ledger = Ledger::new(mode);
        // C26: on a change channel it hears what is cut from now on.
        if let Some(seq) = self.logged(id) {
            ledger.row.position = LogPosition::at(seq);
        }
        ledger.told = told.cloned().unwrap_or_default();
        for uri in ledger.told.keys() {
            self.hears(id, uri);
            step.save_told(id, hub.clone(), uri.clone());
        }
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.ledgers.insert(hub.clone(), Box::new(ledger));
        }
        step.save_ledger(id, hub.clone());
    }

    /// Takes versions of documents as told to a hub that was told nothing of them.
    pub fn fill_account(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        told: impl IntoIterator<Item = (Uri, Told)>,
        step: &mut Step,
    ) {
        for (uri, told) in told {
            let Some(ledger) = self.ledger_mut(id, hub) else {
                return;
            };
            if ledger.told.contains_key(&uri) {
                continue;
            }
            ledger.told.insert(uri.clone(), told);
            self.hears(id, &uri);
            step.save_told(id, hub.clone(), uri);
        }
    }

    /// Returns the number of the last notification in the log of a change channel.
    fn logged(&self, id: ChannelId) -> Option<u64> {
        let channel = self.get(id).filter(|channel| channel.is_of_changes())?;
        Some(channel.row.seq)
    }

    /// Lets a hub that had left hear everything again.
    fn resume(&mut self, id: ChannelId, hub: &Hub, step: &mut Step) {
        if let Some(ledger) = self.ledger_mut(id, hub)
            && ledger.row.left.take().is_some()
        {
            ledger.row.position.last = None;
            step.save_ledger(id, hub.clone());
        }
    }

    /// R11: lets a hub go that is advertised no more. It hears what it was due until now, if it `is_told`; what it was
    /// told is kept for the next one.
    pub fn leave(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        is_told: bool,
        kept: Duration,
        step: &mut Step,
    ) {
        let logged = self.logged(id);
        let Some(ledger) = self.ledger_mut(id, hub) else {
            return;
        };
        if let Some(seq) = logged {
            let position = &mut ledger.row.position;
            position.last = Some(if is_told { seq } else { position.heard });
        }
        let (last_words, doubtful) = match is_told {
            true => (ledger.owed().cloned().collect(), Vec::new()),
            false => (BTreeSet::new(), ledger.withdraw()),
        };
        ledger.leave(Retirement {
            since: step.now(),
            last_words,
        });
        for uri in doubtful {
            step.save_told(id, hub.clone(), uri);
        }
        step.save_ledger(id, hub.clone());
        step.wake_after(kept, Timer::Left(id, hub.clone()));
    }

    /// Ends the accounts of hubs that have left and heard their last, if another one goes on. Returns them.
    pub fn end_accounts(&mut self, id: ChannelId, step: &mut Step) -> Vec<Ledger> {
        let Some(channel) = self.channels.get_mut(&id) else {
            return Vec::new();
        };
        if channel.listening().next().is_none() {
            return Vec::new();
        }
        let ended = channel
            .ledgers
            .extract_if(.., |_, ledger| ledger.has_ended());
        let ended = ended.map(|(hub, ledger)| {
            step.save_ledger(id, hub);
            step.serve(id);
            *ledger
        });
        ended.collect()
    }

    /// Strikes documents from the last words of a retired channel that no hub is due any more (R11).
    pub fn strike_last_words<'a>(
        &mut self,
        id: ChannelId,
        said: impl Iterator<Item = &'a Uri>,
        step: &mut Step,
    ) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let Some(retirement) = &mut channel.row.retired else {
            return;
        };
        for uri in said {
            if !channel.ledgers.values().any(|ledger| ledger.owes(uri)) {
                retirement.last_words.remove(uri);
                step.save_channel(id);
            }
        }
    }

    // Due documents.

    /// Compares what is seen of a document with what one hub was told of it, and brings the hub's account up to date
    /// (R22).
    pub fn compare(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        uri: &Uri,
        catalog: &Catalog,
        plan: &SourcePlan,
        step: &mut Step,
    ) -> Compared {
        let Some(channel) = self.channels.get_mut(&id) else {
            return Compared::default();
        };
        let due = due(plan, catalog, channel, hub, uri);
        let may_follow = may_become_due(plan, catalog, channel, hub, uri, &due);
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return Compared::default();
        };
        match may_follow {
            true => ledger.waiting.insert(uri.clone()),
            false => ledger.waiting.remove(uri),
        };
        let is_held = due == Due::Held;
        let is_due = matches!(due, Due::Announce(_));
        let is_newly_due = match is_due {
            true => ledger.due.insert(uri.clone()),
            false => {
                ledger.due.remove(uri);
                false
            }
        };
        if let Due::Absorbed(told) = due {
            ledger.set_told(uri, told);
            step.save_told(id, hub.clone(), uri.clone());
            self.hears(id, uri);
        }
        if is_due {
            self.hears(id, uri);
        }
        Compared {
            is_held,
            is_due,
            is_newly_due,
        }
    }

    /// R16: opens the window of a channel with a change, or keeps it open.
    pub fn touch(&mut self, id: ChannelId, plan: &WindowPlan, step: &mut Step) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let now = step.now();
        let first = channel.window.map_or(now, |window| window.first);
        let window = ChannelWindow { first, last: now };
        let closes = window.closes(plan);
        if closes <= now {
            channel.window = None;
            self.ready.insert(id);
        } else if channel.window.replace(window).is_none() {
            step.wake_at(closes, Timer::Window(id));
        }
    }

    /// Closes the window of a channel, unless it was kept open meanwhile.
    pub fn close_window(&mut self, id: ChannelId, plan: &WindowPlan, step: &mut Step) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let Some(window) = channel.window else {
            return;
        };
        let closes = window.closes(plan);
        if closes > step.now() {
            step.wake_at(closes, Timer::Window(id));
        } else {
            channel.window = None;
            self.ready.insert(id);
        }
    }

    /// Lets the next notifications of a channel be cut at the end of this step.
    pub fn set_ready(&mut self, id: ChannelId) {
        self.ready.insert(id);
    }

    /// Lets a channel be ready once its source is settled.
    pub fn park(&mut self, id: ChannelId) {
        self.parked.insert(id);
    }

    /// Makes the channels of a source ready that were parked.
    pub fn unpark(&mut self, source: usize) {
        let channels = &self.channels;
        let is_of_source = |id: &ChannelId| {
            let channel = channels.get(id);
            channel.is_none_or(|channel| channel.source == source)
        };
        self.ready.extend(self.parked.extract_if(.., is_of_source));
    }

    pub fn take_ready(&mut self) -> BTreeSet<ChannelId> {
        std::mem::take(&mut self.ready)
    }

    /// R13: takes what a mount held at its baseline as told to everybody, and so all else in a set whose Capability List
    /// came with it. Returns the documents.
    pub fn fill_baseline(
        &mut self,
        source: usize,
        baseline: &UriMap<Told>,
        catalog: &Catalog,
        step: &mut Step,
    ) -> BTreeSet<Uri> {
        if baseline.is_empty() {
            return BTreeSet::new();
        }
        let mut filled = Vec::new();
        for (uri, record) in catalog.iter() {
            let sets = record.relations.sets.iter();
            let came_with_set = sets.clone().any(|set| baseline.contains_key(set));
            let told = match baseline.get(uri) {
                Some(told) => *told,
                None if came_with_set && !record.is_gone() => record.version.into(),
                None => continue,
            };
            let ids: Vec<ChannelId> = match record.is_source_description() {
                true => self.of_documents(source).map(|(id, _)| id).collect(),
                false => sets
                    .filter(|set| baseline.contains_key(uri) || baseline.contains_key(*set))
                    .flat_map(|set| self.of_set(set, ChannelKind::Framework).map(|(id, _)| id))
                    .collect(),
            };
            filled.push((uri.clone(), told, ids));
        }
        // In order, because what follows goes into ordered sets.
        filled.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
        for (uri, told, ids) in &filled {
            for id in ids {
                self.take_as_told(*id, uri, *told, step);
            }
        }
        filled.into_iter().map(|(uri, ..)| uri).collect()
    }

    /// Takes a version as told to every hub of a channel that was told nothing of the document.
    fn take_as_told(&mut self, id: ChannelId, uri: &Uri, told: Told, step: &mut Step) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        for (hub, ledger) in &mut channel.ledgers {
            if !ledger.told.contains_key(uri) {
                ledger.told.insert(uri.clone(), told);
                step.save_told(id, hub.clone(), uri.clone());
            }
        }
        self.hears(id, uri);
    }

    /// Replaces a fingerprint that is computed otherwise now, in silence.
    pub fn recompute(&mut self, recomputed: &Recomputed, step: &mut Step) {
        let Recomputed {
            uri,
            before,
            version,
        } = recomputed;
        let is_outdated = |told: &&mut Told| told.fingerprint == Some(*before);
        for id in self.heard.get(uri).into_iter().flatten() {
            let Some(channel) = self.channels.get_mut(id) else {
                continue;
            };
            for (hub, ledger) in &mut channel.ledgers {
                if let Some(told) = ledger.told.get_mut(uri).filter(is_outdated) {
                    told.fingerprint = Some(version.fingerprint);
                    step.save_told(*id, hub.clone(), uri.clone());
                }
                let flight = ledger.row.flight.iter_mut();
                let covers = flight.flat_map(|flight| &mut flight.covers);
                let flying = covers.filter(|(covered, _)| covered == uri);
                for told in flying
                    .filter_map(|(_, told)| told.as_mut())
                    .filter(is_outdated)
                {
                    told.fingerprint = Some(version.fingerprint);
                    step.save_ledger(*id, hub.clone());
                }
            }
        }
    }

    /// Moves all times as the clock was set back.
    pub fn set_back(&mut self, by: Duration) {
        for channel in self.channels.values_mut() {
            channel.set_back(by);
        }
    }
}

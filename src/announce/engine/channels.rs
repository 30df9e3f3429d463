//! Opens and changes the channels of sets (R9, R11).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::announce::channel::{Channel, Desired, desired};
use crate::announce::delivery::TopicPage;
use crate::announce::engine::Engine;
use crate::announce::event::Fact;
use crate::announce::finding::Finding;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::{Ledger, Prepared};
use crate::announce::plan::Mode;
use crate::announce::state::{ChannelRow, Told, Version};
use crate::resourcesync::payload::Payload;
use crate::resourcesync::uri::{Hub, Topic, Uri};

/// A set whose channel opens or changes.
struct Opening {
    set: Uri,
    topic: Topic,
    hubs: Vec<Hub>,
}

impl Engine {
    /// R9, R11: opens, changes and retires the channels of sets. Returns the documents to look at again.
    pub(super) fn reconcile(
        &mut self,
        source: usize,
        sets: BTreeSet<Uri>,
        previous: &BTreeMap<Uri, Option<Version>>,
        is_first: bool,
        now: Timestamp,
    ) -> BTreeSet<Uri> {
        let mut again = BTreeSet::new();
        let mut opening = Vec::new();
        let mut opened = BTreeSet::new();
        for set in sets {
            let catalog = &self.sources[source].catalog;
            let plan = &self.plan.sources[source];
            let (mut wanted, mut findings) = match catalog.is_set(&set) {
                true => {
                    let had = self.topics_of_set(&set);
                    desired(&self.plan, &self.configured, plan, catalog, &set, &had)
                }
                false => (Desired::Nothing, Vec::new()),
            };
            if let Desired::Channel { topic, .. } = &wanted
                && (self.is_taken(topic, &set) || opened.contains(topic))
            {
                let topic = topic.clone();
                findings.push(Finding::SharedTopic {
                    set: set.clone(),
                    topic,
                });
                wanted = Desired::Nothing;
            }
            self.found(source, &set, findings, Finding::is_about_channel, now);
            let live = self.live_channel(&set);
            match (wanted, live) {
                (Desired::AsItIs, _) | (Desired::Nothing, None) => {}
                (Desired::Nothing, Some(live)) => self.retire(live, now),
                (Desired::Channel { topic, hubs }, live) => {
                    match live.map(|live| (live, &self.channels[&live])) {
                        Some((_, channel)) if channel.is_as(&topic, &hubs) => continue,
                        Some((live, channel)) if channel.row.topic != topic => {
                            self.retire(live, now);
                        }
                        _ => {}
                    }
                    opened.insert(topic.clone());
                    opening.push(Opening { set, topic, hubs });
                }
            }
        }
        if opening.is_empty() {
            return again;
        }
        let members = self.members_of(source, opening.iter().map(|own| &own.set), is_first);
        for opening in opening {
            let documents = members.get(&opening.set);
            let documents = documents.map_or(&[][..], |documents| documents);
            // Not by `append`, which goes through all that is there already.
            again.extend(self.open(source, opening, documents, previous, is_first, now));
        }
        again
    }

    /// The topics that a set has or had.
    fn topics_of_set(&self, set: &Uri) -> BTreeSet<Topic> {
        let ids = self.by_set.get(set).into_iter().flatten();
        let channels = ids.filter_map(|id| self.channels.get(id));
        channels.map(|own| own.row.topic.clone()).collect()
    }

    /// Whether another live channel has this topic already (R8); a configured channel takes it all the same.
    fn is_taken(&self, topic: &Topic, set: &Uri) -> bool {
        let holder = self
            .by_topic
            .get(topic)
            .and_then(|id| self.channels.get(id));
        !self.configured.has(set)
            && holder.is_some_and(|channel| channel.is_live() && channel.row.set != *set)
    }

    fn live_channel(&self, set: &Uri) -> Option<ChannelId> {
        let ids = self.by_set.get(set)?;
        ids.iter()
            .find(|id| self.channels.get(id).is_some_and(Channel::is_live))
            .copied()
    }

    /// The documents of each set, and with them the Source Descriptions, which every channel hears.
    fn members_of<'a>(
        &self,
        source: usize,
        sets: impl Iterator<Item = &'a Uri>,
        is_first: bool,
    ) -> BTreeMap<Uri, Vec<Uri>> {
        let catalog = &self.sources[source].catalog;
        let mut members: BTreeMap<Uri, Vec<Uri>> =
            sets.map(|set| (set.clone(), Vec::new())).collect();
        // What stands from before the start is listed by nothing that was read.
        if is_first || catalog.has_unread() {
            for (uri, record) in catalog.iter() {
                for set in &record.relations.sets {
                    if let Some(members) = members.get_mut(set) {
                        members.push(uri.clone());
                    }
                }
            }
        } else {
            for (set, members) in &mut members {
                members.extend(catalog.members(set));
            }
        }
        for members in members.values_mut() {
            members.extend(catalog.descriptions().iter().cloned());
        }
        members
    }

    /// Opens, revives or takes over the channel of a topic, or changes its hubs. Returns the documents to look at
    /// again.
    fn open(
        &mut self,
        source: usize,
        Opening { set, topic, hubs }: Opening,
        documents: &[Uri],
        previous: &BTreeMap<Uri, Option<Version>>,
        is_first: bool,
        now: Timestamp,
    ) -> BTreeSet<Uri> {
        let is_new_set = self.is_new_set(source, &set);
        let existing = self.by_topic.get(&topic).copied();
        let is_of_set =
            |id: &ChannelId| self.channels.get(id).is_some_and(|own| own.row.set == set);
        let is_taken_over = existing.is_some_and(|id| !is_of_set(&id));
        let mut is_changed = is_taken_over;
        let id = match existing {
            Some(id) if is_taken_over => {
                self.take_over(id, source, &set);
                id
            }
            Some(id) => id,
            None => {
                is_changed = true;
                self.add_channel(source, &set, &topic)
            }
        };
        if existing.is_none() || is_taken_over {
            self.tell(Fact::ChannelOpened {
                topic: topic.clone(),
                set: set.clone(),
                hubs: hubs.len(),
            });
        }
        if let Some(channel) = self.channels.get_mut(&id)
            && channel.row.retired.take().is_some()
            && !is_taken_over
        {
            is_changed = true;
            self.turn.channels.insert(id);
            self.tell(Fact::ChannelRevived {
                topic,
                set: set.clone(),
            });
        }
        let Some(channel) = self.channels.get(&id) else {
            return BTreeSet::new();
        };
        let wanted: BTreeSet<Hub> = hubs.into_iter().collect();
        let listening: BTreeSet<Hub> = channel.listening().map(|(hub, _)| hub.clone()).collect();
        let known: BTreeSet<Hub> = channel.ledgers.keys().cloned().collect();
        for hub in listening.difference(&wanted) {
            // R13: a list that still advertises the hub that this one replaced is to be corrected first.
            let is_inherited = is_first && self.inherited.contains(hub);
            self.leave(id, hub, !is_inherited, now);
            is_changed = true;
        }
        let told = self.channels.get(&id).and_then(what_was_told);
        let mut again = BTreeSet::new();
        for hub in &wanted {
            let is_known = known.contains(hub);
            if is_known && !is_taken_over && listening.contains(hub) {
                continue;
            }
            is_changed = true;
            // R13: a hub that the configuration adds starts at now.
            let is_added = is_first && self.added.contains(hub);
            let told = told.as_ref().filter(|_| !is_added);
            match is_known {
                true => self.resume(id, hub),
                false => self.add_account(id, hub, told),
            }
            if is_taken_over || !(is_known || told.is_some()) {
                self.fill_account(source, id, hub, documents, is_new_set, previous);
            }
            if is_taken_over
                && !is_new_set
                && let Some(ledger) = self.ledger_mut(id, hub)
            {
                // What changed of the set before it had this topic is not said.
                ledger.row.until = None;
            }
            let ledger = self.channels.get(&id).and_then(|own| own.ledgers.get(hub));
            again.extend(ledger.into_iter().flat_map(|own| own.told.keys().cloned()));
        }
        if !wanted.is_empty() {
            self.end_accounts(id);
            self.is_told_of(source, &set);
        }
        if is_changed {
            self.turn.serve.insert(id);
            again.extend(documents.iter().cloned());
        }
        again
    }

    /// R13: whether a set came after the baseline and no hub was told of it yet.
    fn is_new_set(&self, source: usize, set: &Uri) -> bool {
        let record = self.sources[source].catalog.get(set);
        record.is_some_and(|record| record.is_new_set)
    }

    fn is_told_of(&mut self, source: usize, set: &Uri) {
        if let Some(record) = self.sources[source].catalog.get_mut(set)
            && std::mem::take(&mut record.is_new_set)
        {
            self.turn.documents.insert((source, set.clone()));
        }
    }

    fn add_channel(&mut self, source: usize, set: &Uri, topic: &Topic) -> ChannelId {
        let id = self.next_channel;
        self.next_channel = ChannelId(id.0 + 1);
        let row = ChannelRow {
            source: self.plan.sources[source].name.clone(),
            set: set.clone(),
            topic: topic.clone(),
            retired: None,
            seq: 0,
            untils: Vec::new(),
            body: Arc::from([]),
            said: Vec::new(),
        };
        let channel = Channel {
            row,
            source,
            ledgers: BTreeMap::new(),
            window: None,
            page: Vec::new(),
            page_until: None,
        };
        self.channels.insert(id, channel);
        self.by_set.entry(set.clone()).or_default().insert(id);
        self.by_topic.insert(topic.clone(), id);
        self.turn.channels.insert(id);
        id
    }

    /// R11: the channel of a topic is another set's from now on, with all that was told on it and all that is still
    /// due: a topic has one channel.
    fn take_over(&mut self, id: ChannelId, source: usize, set: &Uri) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut channel.row.set, set.clone());
        let was_of = std::mem::replace(&mut channel.source, source);
        channel.row.source = self.plan.sources[source].name.clone();
        let is_retired = channel.row.retired.take().is_some();
        let topic = channel.row.topic.clone();
        if was_of != source {
            // Its documents are not this source's.
            for (hub, ledger) in &mut channel.ledgers {
                let told = std::mem::take(&mut ledger.told).into_keys();
                let told = told.map(|uri| (id, hub.clone(), uri));
                self.turn.told.extend(told);
                ledger.due.clear();
                ledger.waiting.clear();
                ledger.prepared = Prepared::default();
            }
        }
        if let Some(ids) = self.by_set.get_mut(&before) {
            ids.remove(&id);
        }
        self.by_set.entry(set.clone()).or_default().insert(id);
        self.turn.channels.insert(id);
        if !is_retired {
            self.tell(Fact::ChannelRetired { topic, set: before });
        }
    }

    /// Adds a hub's account, which begins with what was told on the channel.
    fn add_account(&mut self, id: ChannelId, hub: &Hub, told: Option<&BTreeMap<Uri, Told>>) {
        let Some(mode) = self.mode_of(hub) else {
            return;
        };
        let mut ledger = Ledger::new(mode);
        ledger.told = told.cloned().unwrap_or_default();
        for uri in ledger.told.keys() {
            self.heard.entry(uri.clone()).or_default().insert(id);
            self.turn.told.insert((id, hub.clone(), uri.clone()));
        }
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.ledgers.insert(hub.clone(), Box::new(ledger));
        }
        self.turn.ledgers.insert((id, hub.clone()));
    }

    /// R13: what an account takes as told of documents of which it was told nothing.
    fn fill_account(
        &mut self,
        source: usize,
        id: ChannelId,
        hub: &Hub,
        documents: &[Uri],
        is_new_set: bool,
        previous: &BTreeMap<Uri, Option<Version>>,
    ) {
        for uri in documents {
            let Some(told) = self.starting_point(source, uri, !is_new_set, previous) else {
                continue;
            };
            let Some(ledger) = self.ledger_mut(id, hub) else {
                return;
            };
            if ledger.told.contains_key(uri) {
                continue;
            }
            ledger.told.insert(uri.clone(), told);
            self.heard.entry(uri.clone()).or_default().insert(id);
            self.turn.told.insert((id, hub.clone(), uri.clone()));
        }
    }

    /// What a topic serves.
    pub(super) fn page(&self, id: ChannelId) -> Option<TopicPage> {
        let channel = self.channels.get(&id)?;
        let mut ledgers = channel.ledgers.values();
        let is_pinged = ledgers.any(|ledger| ledger.mode == Mode::Ping);
        // R25: some hubs never fetch an empty topic again.
        let body = match channel.row.body.is_empty() && is_pinged {
            true => Payload::default().render().into(),
            false => channel.row.body.clone(),
        };
        Some(TopicPage {
            topic: channel.row.topic.clone(),
            capability_list: channel.row.set.clone(),
            hubs: channel.listening().map(|(hub, _)| hub.clone()).collect(),
            body,
            report_fetches: is_pinged,
        })
    }
}

/// R11: what a new account on a channel begins with: what the others were told, or else the last one that left. Where
/// several were not told the same, it is not known what version that was.
fn what_was_told(channel: &Channel) -> Option<BTreeMap<Uri, Told>> {
    let left = |ledger: &Ledger| ledger.row.left.as_ref().map(|left| left.since);
    let mut meant: Vec<&Ledger> = channel.listening().map(|(_, ledger)| ledger).collect();
    if meant.is_empty() {
        let all = || channel.ledgers.values().map(|ledger| &**ledger);
        let last = all().filter_map(left).max();
        meant = all().filter(|ledger| left(ledger) == last).collect();
    }
    let (first, others) = meant.split_first()?;
    let mut told = first.told.clone();
    for other in others {
        told.retain(|uri, _| other.told.contains_key(uri));
        for (uri, told) in &mut told {
            if other.told.get(uri) != Some(told) {
                told.fingerprint = None;
            }
        }
    }
    Some(told)
}

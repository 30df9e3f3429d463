//! Opens, changes and retires the channels of sets (R8, R9, R11, R13, C9, C10, C12).

use std::collections::{BTreeMap, BTreeSet};

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri, UriMap};

use crate::announce::catalog::Catalog;
use crate::announce::channel::Channel;
use crate::announce::desired_channel::{Configured, Desired, SetChannel};
use crate::announce::engine::change_sets::ChangeSets;
use crate::announce::engine::change_sets::change_set::ChangeSet;
use crate::announce::engine::change_sets::lists_to_read::has_fresh_lists;
use crate::announce::engine::channels::baseline_versions::fill_baseline;
use crate::announce::engine::outbox::Outbox;
use crate::announce::engine::outbox::change_log::go_on_from;
use crate::announce::engine::replacement::HubChanges;
use crate::announce::engine::source::Source;
use crate::announce::engine::source::changes::Changes;
use crate::announce::engine::source_list::Sources;
use crate::announce::engine::step::Step;
use crate::announce::finding::Finding;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::plan::Plan;
use crate::announce::state::{ChannelRow, Told};

/// A source with all channels, while those of its sets are brought in line with what is advertised.
pub struct Router<'a> {
    pub plan: &'a Plan,
    pub configured: &'a Configured,
    pub hub_changes: &'a HubChanges,
    /// The position of the source.
    pub position: usize,
    /// True if the source has settled for the first time in this run.
    pub is_first: bool,
    pub sources: &'a mut Sources,
    pub outbox: &'a mut Outbox,
    pub change_sets: &'a mut ChangeSets,
    pub step: &'a mut Step,
}

/// A set whose channel opens or changes.
struct Opening {
    set: Uri,
    topic: Topic,
    hubs: BTreeSet<Hub>,
    /// True if the set came after the baseline and no hub was told of it yet (R13).
    is_new_set: bool,
    /// The documents of the set, and the Source Descriptions.
    documents: Vec<Uri>,
}

impl Router<'_> {
    /// Brings the channels of sets in line with what is advertised. Returns the documents to compare again.
    pub fn route(&mut self, changes: &Changes) -> BTreeSet<Uri> {
        let (openings, of_changes) = self.collect_openings(&changes.sets);
        let mut again = Vec::new();
        for opening in openings {
            again.extend(self.open(&opening, changes));
        }
        let mut again: BTreeSet<Uri> = again.into_iter().collect();
        for (set, desired) in of_changes {
            if let Some((topic, hubs)) = self.retire_outdated(&set, ChannelKind::Change, desired) {
                self.open_changes(&set, topic, &hubs.into_iter().collect());
            }
        }
        let catalog = self.sources[self.position].catalog();
        let channels = self.outbox.channels_mut();
        let baseline = &changes.baseline;
        let mut filled = fill_baseline(channels, self.position, baseline, catalog, self.step);
        again.append(&mut filled);
        if self.is_first {
            self.hub_changes
                .try_inherited(channels, self.position, self.step);
        }
        again
    }

    /// Notes what is wrong with the channels of sets, and retires the document channels of sets that should have none, or
    /// another one. Returns those to open or change, and the change channels that sets should have.
    fn collect_openings(&mut self, sets: &BTreeSet<Uri>) -> (Vec<Opening>, Vec<(Uri, Desired)>) {
        let mut openings: Vec<Opening> = Vec::new();
        let mut change_channels = Vec::new();
        let mut taken = BTreeSet::new();
        for set in sets {
            let (of_documents, mut findings) =
                self.available_channel(set, ChannelKind::Framework, &taken);
            if let Desired::Channel { topic, .. } = &of_documents {
                taken.insert(topic.clone());
            }
            let (of_changes, more) = self.available_channel(set, ChannelKind::Change, &taken);
            if let Desired::Channel { topic, .. } = &of_changes {
                taken.insert(topic.clone());
            }
            change_channels.push((set.clone(), of_changes));
            findings.extend(more);
            let known = self.sources[self.position].findings_mut();
            known.replace_about_channel(set, findings, self.step);
            if let Some((topic, hubs)) =
                self.retire_outdated(set, ChannelKind::Framework, of_documents)
            {
                openings.push(Opening {
                    set: set.clone(),
                    topic,
                    hubs: hubs.into_iter().collect(),
                    is_new_set: self.sources[self.position].documents().is_new_set(set),
                    documents: Vec::new(),
                });
            }
        }
        if !openings.is_empty() {
            let catalog = self.sources[self.position].catalog();
            add_documents(&mut openings, catalog, self.is_first);
        }
        (openings, change_channels)
    }

    /// Returns the channel of this kind that a set should have, if its topic is not taken, with the findings about it (R8).
    /// `taken` are the topics of channels before this one.
    fn available_channel(
        &self,
        set: &Uri,
        kind: ChannelKind,
        taken: &BTreeSet<Topic>,
    ) -> (Desired, Vec<Finding>) {
        let (source, channels) = (&self.sources[self.position], self.outbox.channels());
        let (catalog, plan) = (source.catalog(), source.plan());
        if !catalog.is_set(set) {
            return (Desired::Nothing, Vec::new());
        }
        let had = channels.of_set(set, kind);
        let had = had.map(|(_, channel)| channel.row.topic.clone()).collect();
        let configured = self.configured;
        let set_channel = SetChannel {
            plan: self.plan,
            source: plan,
            set,
            kind,
        };
        let (mut desired, mut findings) = set_channel.desired(configured, catalog, &had);
        // A configured channel takes its topic from any other.
        let is_taken = |topic: &Topic| {
            let has_other = !configured.has(set, kind) && channels.has_other(topic, set, kind);
            has_other || taken.contains(topic)
        };
        if let Desired::Channel { topic, .. } = &desired
            && is_taken(topic)
        {
            findings.push(Finding::SharedTopic {
                set: set.clone(),
                topic: topic.clone(),
            });
            desired = match set_channel.for_brokers(&BTreeSet::new()) {
                Desired::Channel { topic, .. } if is_taken(&topic) => Desired::Nothing,
                desired => desired,
            };
        }
        (desired, findings)
    }

    /// Retires the channel of a set that should have none, or one with another topic. Returns the topic and the hubs of the
    /// one to open or change.
    fn retire_outdated(
        &mut self,
        set: &Uri,
        kind: ChannelKind,
        desired: Desired,
    ) -> Option<(Topic, Vec<Hub>)> {
        let channels = self.outbox.channels();
        let live = channels.live(set, kind);
        let live = live.and_then(|id| Some((id, channels.get(id)?)));
        match (desired, live) {
            (Desired::AsItIs, _) | (Desired::Nothing, None) => None,
            (Desired::Nothing, Some((id, _))) => {
                self.retire(id);
                None
            }
            (Desired::Channel { topic, hubs }, Some((_, channel)))
                if channel.is_as(&topic, &hubs) =>
            {
                None
            }
            (Desired::Channel { topic, hubs }, Some((id, channel)))
                if channel.row.topic != topic =>
            {
                self.retire(id);
                Some((topic, hubs))
            }
            (Desired::Channel { topic, hubs }, _) => Some((topic, hubs)),
        }
    }

    /// Retires a channel; on a change channel, the changes that are fresh now are announced first (C12).
    fn retire(&mut self, id: ChannelId) {
        let channel = self.outbox.channels().get(id);
        // Changes of this step are noted later in it.
        if let Some(channel) = channel.filter(|channel| channel.is_of_changes())
            && let Some(known) = self.change_sets.get_mut(&channel.row.set)
        {
            if has_fresh_lists(known, &self.sources[channel.source], self.step) {
                let window = &self.plan.window.changes;
                known.schedule_mut().sign(window, self.step);
            }
            known.retire_channel(id, self.step);
        }
        let catalog = self.sources[self.position].catalog();
        let channels = self.outbox.channels_mut();
        channels.retire(id, self.plan.retired_topic, catalog, self.step);
    }

    /// Opens or revives the channel of a topic, or changes its hubs. Returns the documents to compare again.
    fn open(&mut self, opening: &Opening, changes: &Changes) -> BTreeSet<Uri> {
        let (set, topic) = (opening.set.clone(), opening.topic.clone());
        let hubs = opening.hubs.len();
        let (id, mut is_changed) = self.open_channel(ChannelKind::Framework, set, topic, hubs);
        let (source, step) = (&self.sources[self.position], &mut *self.step);
        let Some(mut accounts) = self.outbox.channels_mut().accounts(id) else {
            return BTreeSet::new();
        };
        let listening = accounts.channel().listening();
        let listening: BTreeSet<Hub> = listening.map(|(hub, _)| hub.clone()).collect();
        // R13: a list that still advertises the hub that this one replaced is to be corrected first.
        let is_told = |hub: &Hub| !(self.is_first && self.hub_changes.is_inherited(hub));
        let retention = self.plan.retired_topic;
        let catalog = source.catalog();
        is_changed |= accounts.keep_only(&opening.hubs, is_told, retention, catalog, step);
        let told = what_was_told(accounts.channel());
        let mut again = BTreeSet::new();
        for hub in &opening.hubs {
            let is_known = accounts.channel().ledgers.contains_key(hub);
            if listening.contains(hub) {
                continue;
            }
            is_changed = true;
            // R13: a hub that the configuration adds starts at now.
            let is_added = self.is_first && self.hub_changes.is_added(hub);
            let told = told.as_ref().filter(|_| !is_added);
            accounts.join(hub, self.plan.mode_of(hub), told, step);
            if !(is_known || told.is_some()) {
                let starting_points = starting_points(opening, source, changes);
                accounts.fill(hub, starting_points, step);
            }
            let ledger = accounts.channel().ledgers.get(hub);
            again.extend(
                ledger
                    .into_iter()
                    .flat_map(|ledger| ledger.told.keys().cloned()),
            );
        }
        if !opening.hubs.is_empty() {
            self.end_accounts(id);
            let documents = self.sources[self.position].documents_mut();
            documents.is_told_of(&opening.set, self.step);
        }
        if is_changed {
            self.step.serve(id);
            again.extend(opening.documents.iter().cloned());
            // Due changes may be due no longer, now that the channel or the hub is back.
            let channel = self.outbox.channels().get(id).into_iter();
            let ledgers = channel.flat_map(|channel| channel.ledgers.values());
            again.extend(ledgers.flat_map(|ledger| ledger.due.iter().cloned()));
        }
        again
    }

    /// Opens or revives the change channel of a topic, or changes its hubs (C9, C10).
    fn open_changes(&mut self, set: &Uri, topic: Topic, hubs: &BTreeSet<Hub>) {
        let kind = ChannelKind::Change;
        let (id, mut is_changed) = self.open_channel(kind, set.clone(), topic, hubs.len());
        let channels = self.outbox.channels_mut();
        let others = channels.of_set(set, ChannelKind::Change);
        let others = others.filter(|(other, _)| *other != id);
        let untils = others.filter_map(|(_, channel)| channel.told_until());
        let lost = self.change_sets.get(set).and_then(ChangeSet::told_until);
        if let Some(until) = untils.chain(lost).max() {
            go_on_from(channels, id, until, self.step);
        }
        is_changed |= self.change_hubs(id, hubs);
        if is_changed {
            self.step.serve(id);
        }
        // On a channel that revives, the changes that came meanwhile are announced.
        let known = self.change_sets.open(set, self.position);
        let window = &self.plan.window.changes;
        known.schedule_mut().sign(window, self.step);
    }

    /// Updates the hubs of a change channel: those that are advertised no more leave, and others join. Returns true if
    /// any did.
    fn change_hubs(&mut self, id: ChannelId, hubs: &BTreeSet<Hub>) -> bool {
        let Some(mut accounts) = self.outbox.channels_mut().accounts(id) else {
            return false;
        };
        let listening = accounts.channel().listening();
        let listening: BTreeSet<Hub> = listening.map(|(hub, _)| hub.clone()).collect();
        let is_told = |hub: &Hub| !(self.is_first && self.hub_changes.is_inherited(hub));
        let catalog = self.sources[self.position].catalog();
        accounts.keep_only(hubs, is_told, self.plan.retired_topic, catalog, self.step);
        for hub in hubs.difference(&listening) {
            accounts.join(hub, self.plan.mode_of(hub), None, self.step);
        }
        if listening == *hubs {
            return false;
        }
        self.end_accounts(id);
        self.outbox.channels_mut().cuts.set_ready(id);
        true
    }

    /// Opens or revives the channel of a topic, which will have so many hubs, and ends the one of another set that has or had
    /// the topic (R11). Returns its id, and true unless it is as it was before.
    fn open_channel(
        &mut self,
        kind: ChannelKind,
        set: Uri,
        topic: Topic,
        hubs: usize,
    ) -> (ChannelId, bool) {
        let source = &self.plan.sources[self.position].name;
        let mut row = ChannelRow::new(source, kind, set, topic);
        let channels = self.outbox.channels();
        let existing = channels.of_topic(&row.topic);
        let existing = existing.and_then(|id| Some((id, channels.get(id)?)));
        let is_other = |channel: &Channel| {
            (channel.row.kind, &channel.row.set, channel.source) != (kind, &row.set, self.position)
        };
        // A mount may have moved to another source meanwhile.
        if let Some((id, channel)) = existing.filter(|(_, channel)| is_other(channel)) {
            // R20: numbers and intervals of a topic go on.
            row.seq = channel.row.seq;
            if channel.row.kind == kind {
                row.untils = channel.row.untils.clone();
            }
            self.outbox
                .remove(id, self.sources, self.change_sets, self.step);
        }
        let channels = self.outbox.channels_mut();
        channels.open(self.position, row, hubs, self.step)
    }

    /// Ends the accounts of hubs that have left a channel and were told all that was due to them.
    fn end_accounts(&mut self, id: ChannelId) {
        let source = &mut self.sources[self.position];
        self.outbox
            .reconciler(source, self.plan, self.step)
            .end_accounts(id);
    }
}

/// Adds to each set its documents, and with them the Source Descriptions, which are announced on every channel.
fn add_documents(openings: &mut [Opening], catalog: &Catalog, is_first: bool) {
    // After a start, stored relations stand that no list read so far confirms.
    if is_first || catalog.has_unread() {
        let positions = openings.iter().map(|opening| opening.set.clone()).zip(0..);
        let positions: UriMap<usize> = positions.collect();
        for (uri, record) in catalog.iter() {
            for set in &record.relations.sets {
                if let Some(position) = positions.get(set) {
                    openings[*position].documents.push(uri.clone());
                }
            }
        }
    } else {
        for opening in &mut *openings {
            opening.documents.extend(catalog.members(&opening.set));
        }
    }
    for opening in openings {
        opening
            .documents
            .extend(catalog.descriptions().iter().cloned());
    }
}

/// R13: returns what counts as told of the documents of a set to a hub that was told nothing of them.
fn starting_points(
    opening: &Opening,
    source: &Source,
    changes: &Changes,
) -> impl Iterator<Item = (Uri, Told)> {
    opening.documents.iter().filter_map(|uri| {
        let is_known = !opening.is_new_set;
        let (record, descriptions) = (source.catalog().get(uri)?, source.descriptions());
        let told = descriptions.starting_point(uri, record, is_known, &changes.previous)?;
        Some((uri.clone(), told))
    })
}

/// R11: returns what a new account on a channel begins with: what the others were told, or else the last one that left.
/// If several were not told the same, the version told is unknown.
fn what_was_told(channel: &Channel) -> Option<BTreeMap<Uri, Told>> {
    let left = |ledger: &Ledger| ledger.row.left;
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

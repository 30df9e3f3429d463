//! Opens, changes and retires the channels of sets (R9, R11, R13).

use std::collections::{BTreeMap, BTreeSet};

use crate::announce::catalog::Catalog;
use crate::announce::channel::Channel;
use crate::announce::desired_channel::{Configured, Desired, desired, for_brokers};
use crate::announce::engine::Engine;
use crate::announce::engine::channels::{Channels, OpenedChannel};
use crate::announce::engine::source::Source;
use crate::announce::engine::source::changes::Changes;
use crate::announce::finding::Finding;
use crate::announce::ledger::Ledger;
use crate::announce::plan::Plan;
use crate::announce::state::{ChannelRow, Told};
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::uri::{Hub, Topic, Uri, UriMap};

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

impl Engine {
    /// Brings the channels of sets in line with what is advertised. Returns the documents to compare again.
    pub(super) fn route(
        &mut self,
        position: usize,
        changes: &Changes,
        is_first: bool,
    ) -> BTreeSet<Uri> {
        let mut again = Vec::new();
        let (openings, change_channels) = self.openings(position, &changes.sets, is_first);
        for opening in openings {
            again.extend(self.open(position, &opening, changes, is_first));
        }
        let mut again: BTreeSet<Uri> = again.into_iter().collect();
        self.route_changes(position, change_channels, is_first);
        let catalog = self.sources[position].catalog();
        let baseline = &changes.baseline;
        let mut filled =
            self.outbox
                .channels_mut()
                .fill_baseline(position, baseline, catalog, &mut self.step);
        again.append(&mut filled);
        if is_first {
            self.hub_changes
                .try_inherited(self.outbox.channels(), position, &mut self.step);
        }
        again
    }

    /// Retires the channels of sets that want none, or another one, and returns those to open or change, and the change
    /// channels that sets should have.
    fn openings(
        &mut self,
        position: usize,
        sets: &BTreeSet<Uri>,
        is_first: bool,
    ) -> (Vec<Opening>, Vec<(Uri, Desired)>) {
        let mut openings: Vec<Opening> = Vec::new();
        let mut change_channels = Vec::new();
        let mut taken = BTreeSet::new();
        for set in sets {
            let wishes = Wishes {
                plan: &self.plan,
                configured: &self.configured,
                source: &self.sources[position],
                channels: self.outbox.channels(),
            };
            let (wanted, mut findings) = wishes.wanted(set, ChannelKind::Framework, &taken);
            if let Desired::Channel { topic, .. } = &wanted {
                taken.insert(topic.clone());
            }
            let (of_changes, more) = wishes.wanted(set, ChannelKind::Change, &taken);
            if let Desired::Channel { topic, .. } = &of_changes {
                taken.insert(topic.clone());
            }
            change_channels.push((set.clone(), of_changes));
            findings.extend(more);
            let known = self.sources[position].findings_mut();
            known.replace_about_channel(set, findings, &mut self.step);
            let live = self.outbox.channels().live(set, ChannelKind::Framework);
            let (topic, hubs) = match (wanted, live) {
                (Desired::AsItIs, _) | (Desired::Nothing, None) => continue,
                (Desired::Nothing, Some(live)) => {
                    self.outbox.channels_mut().retire(
                        live,
                        self.plan.retired_topic,
                        &mut self.step,
                    );
                    continue;
                }
                (Desired::Channel { topic, hubs }, _) => (topic, hubs),
            };
            if let Some((id, channel)) =
                live.and_then(|id| Some((id, self.outbox.channels().get(id)?)))
            {
                if channel.is_as(&topic, &hubs) {
                    continue;
                }
                if channel.row.topic != topic {
                    self.outbox
                        .channels_mut()
                        .retire(id, self.plan.retired_topic, &mut self.step);
                }
            }
            openings.push(Opening {
                set: set.clone(),
                topic,
                hubs: hubs.into_iter().collect(),
                is_new_set: self.sources[position].documents().is_new_set(set),
                documents: Vec::new(),
            });
        }
        if !openings.is_empty() {
            let catalog = self.sources[position].catalog();
            add_documents(&mut openings, catalog, is_first);
        }
        (openings, change_channels)
    }

    /// Opens, revives or takes over the channel of a topic, or changes its hubs. Returns the documents to compare again.
    fn open(
        &mut self,
        position: usize,
        opening: &Opening,
        changes: &Changes,
        is_first: bool,
    ) -> BTreeSet<Uri> {
        let (set, topic) = (opening.set.clone(), opening.topic.clone());
        let source = &self.plan.sources[position].name;
        let row = ChannelRow::new(source, ChannelKind::Framework, set, topic);
        let mut opened = self.open_channel(position, row, &opening.hubs);
        let is_taken_over = opened.taken_from.is_some();
        let (id, step) = (opened.id, &mut self.step);
        let Some(mut accounts) = self.outbox.channels_mut().accounts(id) else {
            return BTreeSet::new();
        };
        let listening = accounts.channel().listening();
        let listening: BTreeSet<Hub> = listening.map(|(hub, _)| hub.clone()).collect();
        // R13: a list that still advertises the hub that this one replaced is to be corrected first.
        let is_told = |hub: &Hub| !(is_first && self.hub_changes.is_inherited(hub));
        let kept = self.plan.retired_topic;
        opened.is_changed |= accounts.keep_only(&opening.hubs, is_told, kept, step);
        let told = what_was_told(accounts.channel());
        let source = &self.sources[position];
        let mut again = BTreeSet::new();
        for hub in &opening.hubs {
            let is_known = accounts.channel().ledgers.contains_key(hub);
            if is_known && !is_taken_over && listening.contains(hub) {
                continue;
            }
            opened.is_changed = true;
            // R13: a hub that the configuration adds starts at now.
            let is_added = is_first && self.hub_changes.is_added(hub);
            let told = told.as_ref().filter(|_| !is_added);
            let catalog = source.catalog();
            accounts.join(hub, self.plan.mode_of(hub), told, catalog, step);
            if is_taken_over || !(is_known || told.is_some()) {
                let starting_points = starting_points(opening, source, changes);
                accounts.fill(hub, starting_points, step);
            }
            if is_taken_over && !opening.is_new_set {
                // What changed of the set before it had this topic is not announced.
                accounts.begin_anew(hub, step);
            }
            let ledger = accounts.channel().ledgers.get(hub);
            again.extend(
                ledger
                    .into_iter()
                    .flat_map(|ledger| ledger.told.keys().cloned()),
            );
        }
        if !opening.hubs.is_empty() {
            self.reconciler(position).end_accounts(id);
            let documents = self.sources[position].documents_mut();
            documents.is_told_of(&opening.set, &mut self.step);
        }
        if opened.is_changed {
            self.step.serve(id);
            again.extend(opening.documents.iter().cloned());
            // What is due may be so no longer, now that the channel or the hub is back.
            let channel = self.outbox.channels().get(id).into_iter();
            let ledgers = channel.flat_map(|channel| channel.ledgers.values());
            again.extend(ledgers.flat_map(|ledger| ledger.due.iter().cloned()));
        }
        again
    }

    /// Opens, revives or takes over the channel of a topic.
    pub(super) fn open_channel(
        &mut self,
        position: usize,
        row: ChannelRow,
        hubs: &BTreeSet<Hub>,
    ) -> OpenedChannel {
        // C9: two channels never share a topic.
        let existing = self.outbox.channels().of_topic(&row.topic);
        let channel = existing.and_then(|id| self.outbox.channels().get(id));
        if let Some(id) = existing.filter(|_| channel.is_some_and(|it| it.row.kind != row.kind)) {
            let removed = self.outbox.remove(id, &mut self.sources, &mut self.step);
            if let Some(removed) = removed {
                self.channel_removed(id, &removed);
            }
        }
        // What another source's documents were due is dropped with its topic.
        let channel = existing.and_then(|id| self.outbox.channels().get(id));
        if let Some(channel) = channel.filter(|channel| channel.source != position) {
            let documents = self.sources[channel.source].documents_mut();
            for ledger in channel.ledgers.values() {
                documents.account_ended(ledger);
            }
        }
        let catalog = self.sources[position].catalog();
        self.outbox
            .channels_mut()
            .open(position, row, hubs.len(), catalog, &mut self.step)
    }
}

/// The channels that there are, and what advertises them.
struct Wishes<'a> {
    plan: &'a Plan,
    configured: &'a Configured,
    source: &'a Source,
    channels: &'a Channels,
}

impl Wishes<'_> {
    /// Returns the channel of this kind that a set should have, with the findings about it. `taken` are the topics of
    /// channels before this one.
    fn wanted(
        &self,
        set: &Uri,
        kind: ChannelKind,
        taken: &BTreeSet<Topic>,
    ) -> (Desired, Vec<Finding>) {
        let (catalog, plan) = (self.source.catalog(), self.source.plan());
        let (mut wanted, mut findings) = match catalog.is_set(set) {
            true => {
                let had = self.channels.of_set(set, kind);
                let had = had.map(|(_, channel)| channel.row.topic.clone()).collect();
                desired(self.plan, self.configured, plan, catalog, set, kind, &had)
            }
            false => (Desired::Nothing, Vec::new()),
        };
        // A configured channel takes its topic from any other.
        let is_taken = |topic: &Topic| {
            let has_other =
                !self.configured.has(set, kind) && self.channels.has_other(topic, set, kind);
            has_other || taken.contains(topic)
        };
        if let Desired::Channel { topic, .. } = &wanted
            && is_taken(topic)
        {
            findings.push(Finding::SharedTopic {
                set: set.clone(),
                topic: topic.clone(),
            });
            let had = BTreeSet::new();
            wanted = match for_brokers(self.plan, plan, set, kind, &had) {
                Desired::Channel { topic, .. } if is_taken(&topic) => Desired::Nothing,
                wanted => wanted,
            };
        }
        (wanted, findings)
    }
}

/// Adds to each set its documents, and with them the Source Descriptions, which are announced on every channel.
fn add_documents(openings: &mut [Opening], catalog: &Catalog, is_first: bool) {
    // What stands from before the start is listed by nothing that was read.
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

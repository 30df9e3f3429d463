//! Opens and changes the channels of sets (R9, R11).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::announce::channel::{Channel, Desired, desired};
use crate::announce::delivery::{ChannelId, TopicPage};
use crate::announce::engine::Engine;
use crate::announce::event::Fact;
use crate::announce::finding::Finding;
use crate::announce::ledger::Ledger;
use crate::announce::plan::Mode;
use crate::announce::state::{ChannelRow, Version};
use crate::resourcesync::capability::Capability;
use crate::resourcesync::payload::Payload;
use crate::resourcesync::uri::{Hub, Topic, Uri};

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
        for set in sets {
            let catalog = &self.sources[source].catalog;
            let (mut wanted, mut findings) = match catalog.is_set(&set) {
                true => desired(&self.plan, &self.plan.sources[source], catalog, &set),
                false => (Desired::Nothing, Vec::new()),
            };
            if let Desired::Channel { topic, .. } = &wanted
                && (self.is_taken(topic, &set) || opening.iter().any(|(_, own, _)| own == topic))
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
                    opening.push((set, topic, hubs));
                }
            }
        }
        if opening.is_empty() {
            return again;
        }
        let members = self.members_of(source, opening.iter().map(|(set, _, _)| set));
        for (set, topic, hubs) in opening {
            // R13: a new set starts from nothing; a new channel or hub of a known set from what was seen.
            let is_known = match previous.get(&set) {
                Some(before) => {
                    before.is_some_and(|before| before.capability == Capability::CapabilityList)
                }
                None => is_first || self.sources[source].catalog.has_capability_list(&set),
            };
            let documents = members.get(&set).map_or(&[][..], |documents| documents);
            let is_changed = self.open(source, &set, topic, hubs, is_known, documents, previous);
            if is_changed {
                again.extend(documents.iter().cloned());
            }
        }
        again
    }

    /// Whether another live channel has this topic already (R8); a configured channel takes it all the same.
    fn is_taken(&self, topic: &Topic, set: &Uri) -> bool {
        let is_configured = self
            .plan
            .channels
            .iter()
            .any(|own| own.capability_list == *set);
        !is_configured
            && self.channels.values().any(|channel| {
                channel.is_live() && channel.row.topic == *topic && channel.row.set != *set
            })
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
    ) -> BTreeMap<Uri, Vec<Uri>> {
        let mut members: BTreeMap<Uri, Vec<Uri>> =
            sets.map(|set| (set.clone(), Vec::new())).collect();
        let mut descriptions = Vec::new();
        for (uri, record) in self.sources[source].catalog.iter() {
            if record.is_source_description() {
                descriptions.push(uri.clone());
            }
            for set in &record.relations.sets {
                if let Some(members) = members.get_mut(set) {
                    members.push(uri.clone());
                }
            }
        }
        for members in members.values_mut() {
            members.extend(descriptions.iter().cloned());
        }
        members
    }

    /// Opens or revives a channel, or changes its hubs; tells whether anything changed.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call; a struct would only name the arguments twice"
    )]
    fn open(
        &mut self,
        source: usize,
        set: &Uri,
        topic: Topic,
        hubs: Vec<Hub>,
        is_known: bool,
        documents: &[Uri],
        previous: &BTreeMap<Uri, Option<Version>>,
    ) -> bool {
        let existing = self
            .by_set
            .get(set)
            .into_iter()
            .flatten()
            .find(|id| {
                self.channels
                    .get(id)
                    .is_some_and(|own| own.row.topic == topic)
            })
            .copied();
        let mut is_changed = existing.is_none();
        let is_old = existing.is_some();
        let id = existing.unwrap_or_else(|| {
            let id = self.next_channel;
            self.next_channel = ChannelId(id.0 + 1);
            let row = ChannelRow {
                source: self.plan.sources[source].name.clone(),
                set: set.clone(),
                topic: topic.clone(),
                retired: None,
                seq: 0,
                until: None,
                body: Arc::from([]),
                said: Vec::new(),
            };
            let channel = Channel {
                row,
                source,
                ledgers: BTreeMap::new(),
                window: None,
                page: Vec::new(),
            };
            self.channels.insert(id, channel);
            self.by_set.entry(set.clone()).or_default().insert(id);
            self.turn.channels.insert(id);
            id
        });
        if existing.is_none() {
            let fact = Fact::ChannelOpened {
                topic,
                set: set.clone(),
                hubs: hubs.len(),
            };
            self.tell(fact);
        } else if let Some(channel) = self.channels.get_mut(&id)
            && channel.row.retired.take().is_some()
        {
            is_changed = true;
            self.turn.channels.insert(id);
            self.tell(Fact::ChannelRevived {
                topic,
                set: set.clone(),
            });
        }
        let wanted: BTreeSet<Hub> = hubs.into_iter().collect();
        let have: BTreeSet<Hub> = self.channels[&id].ledgers.keys().cloned().collect();
        for hub in have.difference(&wanted) {
            self.drop_ledger(id, hub);
            is_changed = true;
        }
        for hub in wanted.difference(&have) {
            let Some(mode) = self.mode_of(hub) else {
                continue;
            };
            let mut ledger = Ledger::new(mode);
            for uri in documents {
                let told = self.starting_point(source, uri, is_known || is_old, previous);
                if let Some(told) = told {
                    ledger.told.insert(uri.clone(), told);
                    self.heard.entry(uri.clone()).or_default().insert(id);
                    self.turn.told.insert((id, hub.clone(), uri.clone()));
                }
            }
            if let Some(channel) = self.channels.get_mut(&id) {
                channel.ledgers.insert(hub.clone(), ledger);
            }
            self.turn.ledgers.insert((id, hub.clone()));
            is_changed = true;
        }
        if is_changed {
            self.turn.serve.insert(id);
        }
        is_changed
    }

    fn drop_ledger(&mut self, id: ChannelId, hub: &Hub) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        if let Some(ledger) = channel.ledgers.remove(hub) {
            self.turn.ledgers.insert((id, hub.clone()));
            let source = channel.source;
            let topic = channel.row.topic.clone();
            if !ledger.due.is_empty() || ledger.row.flight.is_some() {
                let changes = ledger.due.len();
                self.tell(Fact::Dropped {
                    topic,
                    hub: hub.clone(),
                    changes,
                });
            }
            self.settle_account(source, ledger);
        }
    }

    /// What a topic serves; nothing if a live channel has taken a retired one's topic.
    pub(super) fn page(&self, id: ChannelId) -> Option<TopicPage> {
        let channel = self.channels.get(&id)?;
        let is_superseded = !channel.is_live()
            && self.channels.iter().any(|(other, own)| {
                *other != id && own.is_live() && own.row.topic == channel.row.topic
            });
        let mut ledgers = channel.ledgers.values();
        let is_pinged = ledgers.any(|ledger| ledger.mode == Mode::Ping);
        // R25: some hubs never fetch an empty topic again.
        let body = match channel.row.body.is_empty() && is_pinged {
            true => Payload::default().render().into(),
            false => channel.row.body.clone(),
        };
        (!is_superseded).then(|| TopicPage {
            topic: channel.row.topic.clone(),
            capability_list: channel.row.set.clone(),
            hubs: channel.ledgers.keys().cloned().collect(),
            body,
            report_fetches: is_pinged,
        })
    }
}

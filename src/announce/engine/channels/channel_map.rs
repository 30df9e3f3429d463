//! The channels by id, by set and by topic, and which of them may have changed since they were last counted.

use std::collections::{BTreeMap, BTreeSet};

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri};

use crate::announce::channel::Channel;
use crate::announce::engine::channels::index::ChannelIndex;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;

/// All channels, live and retired. All access that may change one goes through here, so that what is pending need not be
/// counted over all of them.
#[derive(Debug)]
pub struct ChannelMap {
    // A node of the map has room for eleven, and half of each stays free where ids only grow.
    channels: BTreeMap<ChannelId, Box<Channel>>,
    /// Derived from `channels`.
    index: ChannelIndex,
    /// Greater than any before: rows of a removed channel may still be on their way to the store.
    next: ChannelId,
    /// Channels that may have changed, removed ones too.
    changed: BTreeSet<ChannelId>,
}

impl Default for ChannelMap {
    fn default() -> ChannelMap {
        ChannelMap {
            channels: BTreeMap::new(),
            index: ChannelIndex::default(),
            next: ChannelId(1),
            changed: BTreeSet::new(),
        }
    }
}

impl ChannelMap {
    pub fn get(&self, id: ChannelId) -> Option<&Channel> {
        self.channels.get(&id).map(Box::as_ref)
    }

    pub fn get_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        let channel = self.channels.get_mut(&id)?;
        self.changed.insert(id);
        Some(channel)
    }

    pub fn ledger(&self, id: ChannelId, hub: &Hub) -> Option<&Ledger> {
        let ledgers = &self.get(id)?.ledgers;
        ledgers.get(hub).map(Box::as_ref)
    }

    pub fn ledger_mut(&mut self, id: ChannelId, hub: &Hub) -> Option<&mut Ledger> {
        let ledgers = &mut self.get_mut(id)?.ledgers;
        ledgers.get_mut(hub).map(Box::as_mut)
    }

    pub fn hubs(&self, id: ChannelId) -> Vec<Hub> {
        let channel = self.get(id);
        let hubs = channel.map(|channel| channel.ledgers.keys().cloned().collect());
        hubs.unwrap_or_default()
    }

    /// Returns every channel, in the order in which they were opened.
    pub fn iter(&self) -> impl Iterator<Item = (ChannelId, &Channel)> {
        let channels = self.channels.iter();
        channels.map(|(id, channel)| (*id, &**channel))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ChannelId, &mut Channel)> {
        self.changed.extend(self.channels.keys());
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
        let ids = self.ids_of_set(set, kind);
        ids.filter_map(|id| Some((id, self.get(id)?)))
    }

    /// Returns the ids of the channels of this kind of a set.
    pub fn ids_of_set(&self, set: &Uri, kind: ChannelKind) -> impl Iterator<Item = ChannelId> {
        self.index.of_set(set, kind)
    }

    /// Returns the live channel of this kind of a set.
    pub fn live(&self, set: &Uri, kind: ChannelKind) -> Option<ChannelId> {
        let of_set = self.of_set(set, kind);
        let mut live = of_set.filter(|(_, channel)| channel.is_live());
        live.next().map(|(id, _)| id)
    }

    /// Returns the channel of a topic, live or retired.
    pub fn of_topic(&self, topic: &Topic) -> Option<ChannelId> {
        self.index.of_topic(topic)
    }

    /// Returns true if another live channel has this topic: of another set, or of another kind (R8, C9).
    pub fn has_other(&self, topic: &Topic, set: &Uri, kind: ChannelKind) -> bool {
        let holder = self.of_topic(topic).and_then(|id| self.get(id));
        holder.is_some_and(|channel| {
            channel.is_live() && (&channel.row.set, channel.row.kind) != (set, kind)
        })
    }

    /// Returns true if a notification of any channel is in flight to a hub.
    pub fn is_sending_to(&self, hub: &Hub) -> bool {
        let mut ledgers = self
            .iter()
            .filter_map(|(_, channel)| channel.ledgers.get(hub));
        ledgers.any(|ledger| ledger.row.flight.is_some())
    }

    /// Takes the channels that may have changed since the last call, removed ones too.
    pub fn take_changed(&mut self) -> BTreeSet<ChannelId> {
        std::mem::take(&mut self.changed)
    }

    /// Keeps ids from being used again that are not greater than this one.
    pub fn reserve(&mut self, id: ChannelId) {
        self.next = self.next.max(ChannelId(id.0 + 1));
    }

    /// Adds a channel, and returns its id.
    pub(super) fn add(&mut self, channel: Channel) -> ChannelId {
        let id = self.next;
        self.insert(id, channel);
        id
    }

    /// Adds a channel that has this id.
    pub(super) fn insert(&mut self, id: ChannelId, channel: Channel) {
        self.reserve(id);
        self.changed.insert(id);
        self.index.insert(id, &channel.row);
        self.channels.insert(id, Box::new(channel));
    }

    /// Takes a channel out, and returns it.
    pub(super) fn take_out(&mut self, id: ChannelId) -> Option<Channel> {
        let channel = self.channels.remove(&id)?;
        self.changed.insert(id);
        self.index.remove(id, &channel.row);
        Some(*channel)
    }
}

//! Lookup of channels by set and by topic.

use std::collections::BTreeMap;

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Topic, Uri, UriMap};

use crate::announce::ids::ChannelId;
use crate::announce::small_set::SmallSet;
use crate::announce::state::ChannelRow;

/// All channels by set and by topic, retired ones too. A topic has one channel.
#[derive(Debug, Default)]
pub struct ChannelIndex {
    by_set: UriMap<SmallSet<ChannelId>>,
    /// The change channels; `by_set` has the others.
    changes_by_set: UriMap<SmallSet<ChannelId>>,
    by_topic: BTreeMap<Topic, ChannelId>,
}

impl ChannelIndex {
    pub fn insert(&mut self, id: ChannelId, row: &ChannelRow) {
        let ids = self.ids_mut(row.kind);
        ids.entry(row.set.clone()).or_default().insert(id);
        self.by_topic.insert(row.topic.clone(), id);
    }

    pub fn remove(&mut self, id: ChannelId, row: &ChannelRow) {
        if let Some(ids) = self.ids_mut(row.kind).get_mut(&row.set) {
            ids.remove(&id);
        }
        self.by_topic.remove(&row.topic);
    }

    /// Returns the channels of this kind of a set.
    pub fn of_set(&self, set: &Uri, kind: ChannelKind) -> impl Iterator<Item = ChannelId> {
        let ids = match kind {
            ChannelKind::Framework => &self.by_set,
            ChannelKind::Change => &self.changes_by_set,
        };
        ids.get(set).into_iter().flatten().copied()
    }

    /// Returns the channel of a topic.
    pub fn of_topic(&self, topic: &Topic) -> Option<ChannelId> {
        self.by_topic.get(topic).copied()
    }

    fn ids_mut(&mut self, kind: ChannelKind) -> &mut UriMap<SmallSet<ChannelId>> {
        match kind {
            ChannelKind::Framework => &mut self.by_set,
            ChannelKind::Change => &mut self.changes_by_set,
        }
    }
}

//! The channels by id, and which of them may have changed since they were last counted.

use std::collections::{BTreeMap, BTreeSet};

use crate::announce::channel::Channel;
use crate::announce::ids::ChannelId;

/// Channels by id. All access that may change one goes through here, so that what is pending need not be counted over all
/// of them.
#[derive(Debug, Default)]
pub struct ChannelMap {
    // A node of the map has room for eleven, and half of each stays free where ids only grow.
    channels: BTreeMap<ChannelId, Box<Channel>>,
    /// Channels that may have changed, removed ones too.
    changed: BTreeSet<ChannelId>,
}

impl ChannelMap {
    pub fn get(&self, id: &ChannelId) -> Option<&Channel> {
        self.channels.get(id).map(Box::as_ref)
    }

    pub fn get_mut(&mut self, id: &ChannelId) -> Option<&mut Channel> {
        let channel = self.channels.get_mut(id)?;
        self.changed.insert(*id);
        Some(channel)
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

    pub fn insert(&mut self, id: ChannelId, channel: Channel) {
        self.changed.insert(id);
        self.channels.insert(id, Box::new(channel));
    }

    pub fn remove(&mut self, id: &ChannelId) -> Option<Channel> {
        let channel = self.channels.remove(id)?;
        self.changed.insert(*id);
        Some(*channel)
    }

    /// Takes the channels that may have changed since the last call, removed ones too.
    pub fn take_changed(&mut self) -> BTreeSet<ChannelId> {
        std::mem::take(&mut self.changed)
    }
}

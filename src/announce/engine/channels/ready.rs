//! The channels on which notifications may be cut.

use std::collections::BTreeSet;

use crate::announce::ids::ChannelId;

/// The channels on which the next notifications may be cut: now, or once their source is settled.
#[derive(Debug, Default)]
pub struct ReadyChannels {
    /// Those on which they are cut at the end of this step.
    ready: BTreeSet<ChannelId>,
    /// Those that were ready while their source was not settled.
    parked: BTreeSet<ChannelId>,
}

impl ReadyChannels {
    pub fn insert(&mut self, id: ChannelId) {
        self.ready.insert(id);
    }

    /// Lets a channel be ready once its source is settled.
    pub fn park(&mut self, id: ChannelId) {
        self.parked.insert(id);
    }

    /// Makes those ready that were parked and are of a settled source.
    pub fn unpark(&mut self, is_settled: impl Fn(ChannelId) -> bool) {
        let settled = self.parked.extract_if(.., |id| is_settled(*id));
        self.ready.extend(settled);
    }

    /// Takes those that are ready now.
    pub fn take(&mut self) -> BTreeSet<ChannelId> {
        std::mem::take(&mut self.ready)
    }
}

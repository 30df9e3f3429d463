//! The number of changes that are pending on all channels, kept up to date: only channels that changed are counted again.

use std::collections::BTreeMap;

use crate::announce::engine::Engine;
use crate::announce::ids::ChannelId;

/// The changes that are pending, for each channel with some, counted for each hub.
#[derive(Debug, Default)]
pub struct PendingCount {
    by_channel: BTreeMap<ChannelId, usize>,
    total: usize,
}

impl PendingCount {
    /// Counts what changed since the last call, of the same engine, and returns the number over all channels.
    pub fn update(&mut self, engine: &mut Engine) -> usize {
        for id in engine.take_changed_channels() {
            let channel = engine.channels().get(id);
            let ledgers = channel.into_iter().flat_map(|channel| {
                let ledgers = channel.ledgers.values();
                ledgers.map(move |ledger| channel.due_changes(ledger))
            });
            let count = ledgers.sum();
            let before = match count {
                0 => self.by_channel.remove(&id),
                count => self.by_channel.insert(id, count),
            };
            self.total = self.total + count - before.unwrap_or_default();
        }
        self.total
    }
}

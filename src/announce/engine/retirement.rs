//! The ends of channels and of hubs' accounts: what could not be announced until then is dropped (R11).

use crate::announce::engine::Engine;
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::time::later;
use crate::resourcesync::uri::{Hub, Uri};

impl Engine {
    /// Drops what a hub that left could not be told for so long.
    pub(super) fn leaving_ends(&mut self, id: ChannelId, hub: &Hub) {
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let (source, topic) = (channel.source, channel.row.topic.clone());
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let Some(left) = &mut ledger.row.left else {
            return;
        };
        if later(left.since, self.plan.retired_topic) > self.step.now() {
            return;
        }
        left.last_words.clear();
        self.step.save_ledger(id, hub.clone());
        let changes = match channel.is_of_changes() {
            true => self.drop_logged(id, hub),
            false => self.drop_last_words(id, hub),
        };
        if changes > 0 {
            self.hubs.forget(&self.channels, id, hub);
            self.step.tell(Fact::Dropped {
                topic,
                hub: hub.clone(),
                changes,
            });
        }
        self.reconciler(source).end_accounts(id);
    }

    /// Drops what a hub that left is still owed of documents. Returns their number.
    fn drop_last_words(&mut self, id: ChannelId, hub: &Hub) -> usize {
        let Some(channel) = self.channels.get_mut(id) else {
            return 0;
        };
        let source = channel.source;
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return 0;
        };
        let owed: Vec<Uri> = ledger.owed().cloned().collect();
        let changes = owed.len();
        let catalog = self.sources[source].catalog();
        let doubtful = ledger.withdraw(|uri| catalog.is_away(uri));
        ledger.due.clear();
        ledger.prepared = Default::default();
        for uri in doubtful {
            self.step.save_told(id, hub.clone(), uri);
        }
        self.sources[source].documents_mut().reconsider(owed);
        changes
    }

    /// Removes a retired channel that was kept for long enough.
    pub(super) fn retirement_ends(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get(id) else {
            return;
        };
        let Some(retirement) = &channel.row.retired else {
            return;
        };
        if later(retirement.since, self.plan.retired_topic) > self.step.now() {
            return;
        }
        self.remove_channel(id);
    }
}

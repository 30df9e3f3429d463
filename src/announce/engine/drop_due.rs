//! The operator command that drops what a hub does not take (R23).

use std::collections::{BTreeMap, BTreeSet};

use crate::announce::channel::Channel;
use crate::announce::due::{Due, due};
use crate::announce::engine::Engine;
use crate::announce::engine::source::Source;
use crate::announce::event::Fact;
use crate::announce::history::Fate;
use crate::announce::ids::ChannelId;
use crate::announce::state::Told;
use crate::resourcesync::uri::{Hub, Uri};

impl Engine {
    /// Counts as told what is in flight to a hub on a channel and what it is due, whether its window is open
    /// or not. What is held (R17) or missing (R15) is not announced yet, so it stays; the topic and other
    /// hubs keep what they have. What is being submitted at this moment is forgotten: its answer only makes
    /// room for the next one.
    pub(super) fn drop_due(&mut self, id: ChannelId, hub: &Hub) {
        let Some(channel) = self.channels.get(id) else {
            return;
        };
        let Some(ledger) = channel.ledgers.get(hub) else {
            return;
        };
        let position = channel.source;
        let topic = channel.row.topic.clone();
        let owed: BTreeSet<Uri> = ledger.owed().cloned().collect();
        let is_logged = channel.is_of_changes();
        let is_sending = ledger.sending.is_some();
        if is_logged {
            let changes = self.drop_logged(id, hub);
            if changes > 0 || is_sending {
                self.hubs.forget(&self.channels, id, hub);
                self.reconciler(position).end_accounts(id);
                self.step.tell(Fact::CountedAsTold {
                    topic,
                    hub: hub.clone(),
                    changes,
                });
            }
            return;
        }
        if owed.is_empty() {
            return;
        }
        let becomes = told_if_dropped(channel, hub, &owed, &self.sources[position]);
        let Some(ledger) = self.channels.ledger_mut(id, hub) else {
            return;
        };
        let flight = ledger.drop_due(becomes);
        if let Some(flight) = flight {
            self.history.note(id, flight.seq, hub, Fate::Dropped);
        }
        self.hubs.forget(&self.channels, id, hub);
        self.step.save_ledger(id, hub.clone());
        self.reconciler(position).told(id, hub, owed.iter());
        self.step.tell(Fact::CountedAsTold {
            topic,
            hub: hub.clone(),
            changes: owed.len(),
        });
    }
}

/// Returns the versions that count as told once what a hub is owed is dropped; nothing of a document that ended.
fn told_if_dropped(
    channel: &Channel,
    hub: &Hub,
    owed: &BTreeSet<Uri>,
    source: &Source,
) -> Vec<(Uri, Option<Told>)> {
    let ledger = channel.ledgers.get(hub);
    let flight = ledger.and_then(|ledger| ledger.row.flight.as_ref());
    let covers = flight.into_iter().flat_map(|flight| &flight.covers);
    let flying: BTreeMap<&Uri, Option<Told>> = covers.map(|(uri, told)| (uri, *told)).collect();
    let becomes = owed.iter().filter_map(|uri| {
        let told = match due(source.plan(), source.catalog(), channel, hub, uri) {
            Due::Announce(announcement) => announcement.becomes,
            Due::Held | Due::Missing => *flying.get(uri)?,
            // What was in flight was undone: there is nothing to announce.
            Due::Acknowledged | Due::Absorbed(_) => return None,
        };
        Some((uri.clone(), told))
    });
    becomes.collect()
}

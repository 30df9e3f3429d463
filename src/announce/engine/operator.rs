//! What a person may do about a hub that does not take what it is due: have it tried now, or drop it (R23).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::announce::due::{Due, due};
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::history::Fate;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Prepared;
use crate::announce::state::Told;
use crate::resourcesync::uri::{Hub, Uri};

impl Engine {
    /// Tries now what waits for its next try: of one hub on one channel, or of all. What is under way is left
    /// to its answer.
    pub(super) fn retry(&mut self, only: Option<&(ChannelId, Hub)>, now: Timestamp) {
        let mut notifications = 0;
        for (id, channel) in &mut self.channels {
            for (hub, ledger) in &mut channel.ledgers {
                let is_meant = only.is_none_or(|(own, name)| own == id && name == hub);
                if !is_meant || ledger.sending.is_some() {
                    continue;
                }
                let Some(flight) = &mut ledger.row.flight else {
                    continue;
                };
                flight.next_try = now;
                notifications += 1;
                self.turn.ledgers.insert((*id, hub.clone()));
                self.timers.insert((now, Timer::Try(*id, hub.clone())));
                if let Some(queue) = self.queues.get_mut(hub) {
                    match only {
                        Some(_) => queue.push_asked_for(*id),
                        None => queue.hurry(now),
                    }
                }
            }
        }
        if notifications > 0 {
            self.tell(Fact::Retried { notifications });
        }
    }

    /// Tries now what waits for a hub that is reached otherwise than before; the answer to what is under way says
    /// nothing of it, so that is tried again after it.
    pub(super) fn hub_changed(&mut self, hub: &Hub, now: Timestamp) {
        for (id, channel) in &mut self.channels {
            let Some(ledger) = channel.ledgers.get_mut(hub) else {
                continue;
            };
            let Some(flight) = &mut ledger.row.flight else {
                continue;
            };
            ledger.is_answer_old = ledger.sending.is_some();
            flight.next_try = now;
            self.turn.ledgers.insert((*id, hub.clone()));
            self.timers.insert((now, Timer::Try(*id, hub.clone())));
        }
        if let Some(queue) = self.queues.get_mut(hub) {
            queue.hurry(now);
        }
    }

    /// Counts as told what is in flight to a hub on a channel and what it is due, whether its window is open
    /// or not. What is held (R17) or missing (R15) is nothing to say yet, so it stays; the topic and other
    /// hubs keep what they have. What is being submitted at this moment is forgotten: its answer only makes
    /// room for the next one.
    pub(super) fn drop_due(&mut self, id: ChannelId, hub: &Hub, now: Timestamp) {
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        let Some(ledger) = channel.ledgers.get(hub) else {
            return;
        };
        let source = channel.source;
        let topic = channel.row.topic.clone();
        let owed: BTreeSet<Uri> = ledger.owed().cloned().collect();
        if owed.is_empty() {
            return;
        }
        let covers = ledger.row.flight.iter().flat_map(|flight| &flight.covers);
        let flying: BTreeMap<&Uri, Option<Told>> = covers.map(|(uri, told)| (uri, *told)).collect();
        let becomes = owed.iter().filter_map(|uri| {
            let plan = &self.plan.sources[source];
            let catalog = &self.sources[source].catalog;
            let told = match due(plan, catalog, channel, hub, uri) {
                Due::Announce(announcement) => announcement.becomes,
                Due::Held | Due::Missing => *flying.get(uri)?,
                // What was in flight was undone: there is nothing to say.
                Due::Acknowledged | Due::Absorbed(_) => return None,
            };
            Some((uri.clone(), told))
        });
        let becomes: Vec<(Uri, Option<Told>)> = becomes.collect();
        let Some(ledger) = self.ledger_mut(id, hub) else {
            return;
        };
        let flight = ledger.row.flight.take();
        // R20: the next notification does not have what was dropped.
        ledger.row.until = None;
        ledger.row.limit = None;
        ledger.in_doubt = false;
        ledger.due.clear();
        ledger.prepared = Prepared::default();
        for (uri, told) in becomes {
            match told {
                Some(told) => ledger.told.insert(uri, told),
                None => ledger.told.remove(&uri),
            };
        }
        if let Some(flight) = flight {
            self.history.note(id, flight.seq, hub, Fate::Dropped);
        }
        let is_last = !self.is_sending_to(hub);
        if let Some(queue) = self.queues.get_mut(hub) {
            queue.remove(id);
            // Nothing is left that could find out whether the hub still fails: the next notification does.
            if is_last {
                queue.answers();
            }
        }
        self.turn.ledgers.insert((id, hub.clone()));
        for uri in &owed {
            self.turn.told.insert((id, hub.clone(), uri.clone()));
            self.heard.entry(uri.clone()).or_default().insert(id);
            self.look_for_more(source, id, hub, uri, now);
            self.forget_if_done(source, uri);
        }
        self.last_words_said(id, owed.iter());
        self.end_accounts(id);
        self.tell(Fact::CountedAsTold {
            topic,
            hub: hub.clone(),
            changes: owed.len(),
        });
    }
}

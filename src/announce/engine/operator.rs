//! Operator commands for a hub that does not take what it is due: retry, drop (R23).

use std::collections::{BTreeMap, BTreeSet};

use crate::announce::due::{Due, due};
use crate::announce::engine::Engine;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::history::Fate;
use crate::announce::ids::ChannelId;
use crate::announce::state::Told;
use crate::resourcesync::uri::{Hub, Uri};

impl Engine {
    /// Retries now what waits for its next attempt: of one hub on one channel, or of all. What is under way is left
    /// to its answer.
    pub(super) fn retry(&mut self, only: Option<&(ChannelId, Hub)>) {
        let now = self.step.now();
        let mut notifications = 0;
        for (id, channel) in self.channels.iter_mut() {
            for (hub, ledger) in &mut channel.ledgers {
                let is_meant = only.is_none_or(|(meant, name)| *meant == id && name == hub);
                if !is_meant || ledger.sending.is_some() {
                    continue;
                }
                let Some(flight) = &mut ledger.row.flight else {
                    continue;
                };
                flight.next_try = now;
                notifications += 1;
                self.step.save_ledger(id, hub.clone());
                self.step.wake_at(now, Timer::Try(id, hub.clone()));
                if let Some(queue) = self.hubs.get_mut(hub) {
                    match only {
                        Some(_) => queue.push_asked_for(id),
                        None => queue.hurry(now),
                    }
                }
            }
        }
        if notifications > 0 {
            self.step.tell(Fact::Retried { notifications });
        }
    }

    /// Retries now what waits for a hub that is reached otherwise than before; the answer to what is under way says
    /// nothing of it, so that is tried again after it.
    pub(super) fn hub_changed(&mut self, hub: &Hub) {
        let now = self.step.now();
        for (id, channel) in self.channels.iter_mut() {
            let Some(ledger) = channel.ledgers.get_mut(hub) else {
                continue;
            };
            let Some(flight) = &mut ledger.row.flight else {
                continue;
            };
            ledger.is_answer_old = ledger.sending.is_some();
            flight.next_try = now;
            self.step.save_ledger(id, hub.clone());
            self.step.wake_at(now, Timer::Try(id, hub.clone()));
        }
        self.hubs.hurry(hub, now);
    }

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
                self.forget_waiting(id, hub);
                self.end_accounts(id);
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
        let becomes = self.told_if_dropped(id, hub, &owed);
        let Some(ledger) = self.channels.ledger_mut(id, hub) else {
            return;
        };
        let flight = ledger.drop_due(becomes);
        if let Some(flight) = flight {
            self.history.note(id, flight.seq, hub, Fate::Dropped);
        }
        self.forget_waiting(id, hub);
        self.step.save_ledger(id, hub.clone());
        for uri in &owed {
            self.step.save_told(id, hub.clone(), uri.clone());
            self.channels.hears(id, uri);
            self.compare_again(position, id, hub, uri);
            self.forget_if_done(position, uri);
        }
        self.channels
            .strike_last_words(id, owed.iter(), &mut self.step);
        self.end_accounts(id);
        self.step.tell(Fact::CountedAsTold {
            topic,
            hub: hub.clone(),
            changes: owed.len(),
        });
    }

    /// Forgets that a notification waits for a hub, as it was dropped.
    fn forget_waiting(&mut self, id: ChannelId, hub: &Hub) {
        let is_last = !self.channels.is_sending_to(hub);
        if let Some(queue) = self.hubs.get_mut(hub) {
            queue.remove(id);
            // Nothing is left that could find out whether the hub still fails: the next notification does.
            if is_last {
                queue.answers();
            }
        }
    }

    /// Returns the versions that count as told once what a hub is owed is dropped; nothing of a document that ended.
    fn told_if_dropped(
        &self,
        id: ChannelId,
        hub: &Hub,
        owed: &BTreeSet<Uri>,
    ) -> Vec<(Uri, Option<Told>)> {
        let Some(channel) = self.channels.get(id) else {
            return Vec::new();
        };
        let plan = &self.plan.sources[channel.source];
        let catalog = self.sources[channel.source].catalog();
        let ledger = channel.ledgers.get(hub);
        let flight = ledger.and_then(|ledger| ledger.row.flight.as_ref());
        let covers = flight.into_iter().flat_map(|flight| &flight.covers);
        let flying: BTreeMap<&Uri, Option<Told>> = covers.map(|(uri, told)| (uri, *told)).collect();
        let becomes = owed.iter().filter_map(|uri| {
            let told = match due(plan, catalog, channel, hub, uri) {
                Due::Announce(announcement) => announcement.becomes,
                Due::Held | Due::Missing => *flying.get(uri)?,
                // What was in flight was undone: there is nothing to announce.
                Due::Acknowledged | Due::Absorbed(_) => return None,
            };
            Some((uri.clone(), told))
        });
        becomes.collect()
    }
}

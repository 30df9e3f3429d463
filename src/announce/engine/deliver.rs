//! Submits what was cut: at once, in turn, or when a failing hub is to be asked again (R22, R23).

use crate::announce::delivery::Submission;
use crate::announce::delivery::hub_queue::HubQueue;
use crate::announce::due::{Due, due};
use crate::announce::engine::Engine;
use crate::announce::engine::timers::Timer;
use crate::announce::history::Fate;
use crate::announce::ids::{ChannelId, SubmissionId};
use crate::announce::ledger::Prepared;
use crate::announce::plan::Mode;
use crate::announce::state::Flight;
use crate::resourcesync::uri::Hub;

impl Engine {
    /// Awaits the answers to submissions of an engine before this one: until then nothing else is submitted in their
    /// place.
    pub fn await_answers(&mut self, under_way: impl IntoIterator<Item = SubmissionId>) {
        for (id, hub, seq) in under_way {
            // A new channel must not hear the answer to one that is gone.
            self.channels.reserve(id);
            if let Some(ledger) = self.channels.ledger_mut(id, &hub) {
                ledger.sending = Some(seq);
                if let Some(queue) = self.hubs.get_mut(&hub) {
                    queue.remove(id);
                    queue.sent(id, seq);
                }
            }
        }
    }

    /// Lets the notification in flight of a hub on a channel be submitted as soon as the hub may be sent more.
    pub(super) fn enqueue(&mut self, id: ChannelId, hub: &Hub) {
        let Some(ledger) = self.channels.ledger(id, hub) else {
            return;
        };
        let Some(flight) = &ledger.row.flight else {
            return;
        };
        // It takes everything at once, in this process.
        if ledger.mode == Mode::Embedded {
            self.submit(id, hub);
        } else if ledger.sending.is_none() {
            self.hubs.queue(hub).push(id, flight.attempts == 0);
        }
    }

    /// Submits what may go now (R23): of a hub that fails one at a time, of others what waits.
    pub(super) fn dispatch(&mut self) {
        let now = self.step.now();
        for hub in self.hubs.names() {
            while let Some(id) = self.hubs.pop(&hub, now) {
                let ledger = self.channels.ledger(id, &hub);
                let is_waiting = ledger
                    .is_some_and(|ledger| ledger.row.flight.is_some() && ledger.sending.is_none());
                if !is_waiting {
                    continue;
                }
                match self.is_stale(id, &hub) || self.is_too_large(id, &hub) {
                    true => self.cut_again(id, &hub),
                    false => self.submit(id, &hub),
                }
            }
            let probe = self.hubs.get(&hub).and_then(HubQueue::wake);
            if let Some(at) = probe.filter(|at| *at > now) {
                self.step.wake_at(at, Timer::Probe(hub));
            }
        }
    }

    /// Returns true if the notification in flight was never answered, and no longer announces what there is to announce:
    /// its documents changed while it waited for a failing hub, or while the daemon was down.
    fn is_stale(&self, id: ChannelId, hub: &Hub) -> bool {
        let Some(channel) = self.channels.get(id) else {
            return false;
        };
        let ledger = channel.ledgers.get(hub);
        // A hub that is pinged fetches what the topic serves then.
        let ledger = ledger.filter(|ledger| ledger.mode != Mode::Ping);
        let flight = ledger.and_then(|ledger| ledger.row.flight.as_ref());
        let is_old = |flight: &&Flight| flight.attempts == 0 && flight.cut < self.step.now();
        let Some(flight) = flight.filter(is_old) else {
            return false;
        };
        let plan = &self.plan.sources[channel.source];
        let catalog = self.sources[channel.source].catalog();
        flight.covers.iter().any(|(uri, covered)| {
            let due = due(plan, catalog, channel, hub, uri);
            !matches!(due, Due::Announce(announcement) if announcement.becomes == *covered)
        })
    }

    /// Returns true if the notification in flight, which was never sent, has a size that its hub refused since it was cut.
    fn is_too_large(&self, id: ChannelId, hub: &Hub) -> bool {
        let Some(size) = self.hubs.size_limit(hub, self.step.now()) else {
            return false;
        };
        let ledger = self.channels.ledger(id, hub);
        let ledger = ledger.filter(|ledger| !ledger.in_doubt && ledger.cut_for != Some(size));
        let flight = ledger.and_then(|ledger| ledger.row.flight.as_ref());
        flight.is_some_and(|flight| {
            let is_unsent = flight.attempts == 0 && flight.covers.len() > 1;
            is_unsent && (flight.entries > size.entries || flight.body.len() > size.bytes)
        })
    }

    /// Withdraws a notification that was never answered, and cuts what there is to announce now, as large as its hub takes.
    fn cut_again(&mut self, id: ChannelId, hub: &Hub) {
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let position = channel.source;
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let seq = ledger.row.flight.as_ref().map(|flight| flight.seq);
        let doubtful = ledger.withdraw();
        ledger.prepared = Prepared::default();
        self.step.save_ledger(id, hub.clone());
        if let Some(seq) = seq {
            self.history.note(id, seq, hub, Fate::Withdrawn);
        }
        for uri in doubtful {
            self.step.save_told(id, hub.clone(), uri.clone());
            self.compare_again(position, id, hub, &uri);
        }
        self.cut_channel(id);
    }

    fn submit(&mut self, id: ChannelId, hub: &Hub) {
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let Some(flight) = &ledger.row.flight else {
            return;
        };
        ledger.sending = Some(flight.seq);
        if let Some(queue) = self.hubs.get_mut(hub) {
            queue.sent(id, flight.seq);
        }
        let part = flight.part;
        let submission = Submission {
            channel: id,
            hub: hub.clone(),
            mode: ledger.mode,
            seq: flight.seq,
            source: channel.row.source.clone(),
            kind: channel.row.kind,
            topic: channel.row.topic.clone(),
            capability_list: channel.row.set.clone(),
            body: flight.body.clone(),
        };
        self.step.submit(submission, part);
    }

    /// Retries a notification, if it is time.
    pub(super) fn try_again(&mut self, id: ChannelId, hub: &Hub) {
        let ledger = self.channels.ledger(id, hub);
        let flight = ledger.and_then(|ledger| ledger.row.flight.as_ref());
        if flight.is_some_and(|flight| flight.next_try <= self.step.now()) {
            self.enqueue(id, hub);
        }
    }
}

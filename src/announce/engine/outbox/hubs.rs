//! The submissions that may go to each hub, over all channels: at once, in turn, or when a failing hub is to be asked again
//! (R22, R23).

use std::collections::BTreeMap;

use jiff::Timestamp;
use resourcesync::uri::Hub;

use crate::announce::delivery::Submission;
use crate::announce::delivery::hub_queue::{HubQueue, Outage, SizeLimit};
use crate::announce::engine::channels::Channels;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::plan::{Mode, Plan};
use crate::announce::time::elapsed;

/// The queues of all hubs.
#[derive(Debug)]
pub struct Hubs {
    queues: BTreeMap<Hub, HubQueue>,
}

impl Hubs {
    /// Makes the queues of all configured hubs.
    pub fn new(plan: &Plan) -> Hubs {
        let hubs = plan.destinations();
        let queues = hubs.map(|(hub, _)| (hub.clone(), HubQueue::default()));
        Hubs {
            queues: queues.collect(),
        }
    }

    pub fn get(&self, hub: &Hub) -> Option<&HubQueue> {
        self.queues.get(hub)
    }

    pub fn get_mut(&mut self, hub: &Hub) -> Option<&mut HubQueue> {
        self.queues.get_mut(hub)
    }

    /// Returns the queue of a hub, a new one if there is none.
    pub fn queue(&mut self, hub: &Hub) -> &mut HubQueue {
        self.queues.entry(hub.clone()).or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Hub, &HubQueue)> {
        self.queues.iter()
    }

    pub fn names(&self) -> Vec<Hub> {
        self.queues.keys().cloned().collect()
    }

    /// Returns the size that a hub refused lately.
    pub fn size_limit(&self, hub: &Hub, now: Timestamp) -> Option<SizeLimit> {
        self.queues.get(hub)?.size_limit(now)
    }

    /// Continues what the queues of an engine with another plan have learned of their hubs.
    pub fn inherit(&mut self, before: &mut Hubs) {
        for (hub, before) in &mut before.queues {
            if let Some(queue) = self.queues.get_mut(hub) {
                queue.inherit(before);
            }
        }
    }

    // Submissions.

    /// Queues the notification in flight of a hub on a channel, to be submitted as soon as the hub may be sent more.
    pub fn enqueue(&mut self, channels: &mut Channels, id: ChannelId, hub: &Hub, step: &mut Step) {
        let Some(ledger) = channels.ledger(id, hub) else {
            return;
        };
        let Some(flight) = &ledger.row.flight else {
            return;
        };
        // It takes everything at once, in this process.
        if ledger.mode == Mode::Embedded {
            self.submit(channels, id, hub, step);
        } else if ledger.sending.is_none() {
            self.queue(hub).push(id, flight.attempts == 0);
        }
    }

    /// Takes the next channel with a notification that may be submitted to a hub now: of a hub that fails one at a time,
    /// of others what waits.
    pub fn next(&mut self, channels: &Channels, hub: &Hub, now: Timestamp) -> Option<ChannelId> {
        let queue = self.queues.get_mut(hub)?;
        std::iter::from_fn(|| queue.pop(now)).find(|id| {
            let ledger = channels.ledger(*id, hub);
            ledger.is_some_and(|ledger| ledger.row.flight.is_some() && ledger.sending.is_none())
        })
    }

    /// Sets the timer for the next probe of a hub that fails.
    pub fn plan_probe(&self, hub: &Hub, step: &mut Step) {
        let probe = self.queues.get(hub).and_then(HubQueue::wake);
        if let Some(at) = probe.filter(|at| *at > step.now()) {
            step.wake_at(at, Timer::Probe(hub.clone()));
        }
    }

    /// Submits the notification in flight of a hub on a channel.
    pub fn submit(&mut self, channels: &mut Channels, id: ChannelId, hub: &Hub, step: &mut Step) {
        let Some(channel) = channels.get_mut(id) else {
            return;
        };
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let Some(flight) = &ledger.row.flight else {
            return;
        };
        ledger.sending = Some(flight.seq);
        if let Some(queue) = self.queues.get_mut(hub) {
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
        step.submit(submission, part);
    }

    // Answers.

    /// Notes that a submission was answered. Returns true if it was a probe of a failing hub.
    pub fn answered(&mut self, hub: &Hub, id: ChannelId, seq: u64) -> bool {
        let queue = self.queues.get_mut(hub);
        queue.is_some_and(|queue| queue.answered(id, seq))
    }

    /// Releases everything that waited for a failing hub, now that it answers.
    pub fn release(
        &mut self,
        channels: &mut Channels,
        hub: &Hub,
        ended: Option<Outage>,
        step: &mut Step,
    ) {
        let Some(outage) = ended else {
            return;
        };
        let waiting = channels.iter().filter(|(_, channel)| {
            let ledger = channel.ledgers.get(hub);
            ledger.is_some_and(|ledger| ledger.waits_for_hub())
        });
        let waiting: Vec<ChannelId> = waiting.map(|(id, _)| id).collect();
        for id in &waiting {
            self.enqueue(channels, *id, hub, step);
        }
        step.tell(Fact::Recovered {
            hub: hub.clone(),
            attempts: outage.attempts,
            took: elapsed(outage.since, step.now()),
            notifications: waiting.len(),
        });
    }

    /// Reports how many refusals were like those that were reported.
    pub fn sum_up_refusals(&mut self, hub: &Hub, step: &mut Step) {
        let Some(queue) = self.queues.get_mut(hub) else {
            return;
        };
        for (kind, reason, notifications) in queue.sum_up(step.now()) {
            step.tell(Fact::RefusedAlike {
                hub: hub.clone(),
                kind,
                reason,
                notifications,
            });
        }
    }

    /// Forgets that a notification waits for a hub, as it was dropped.
    pub fn forget(&mut self, channels: &Channels, id: ChannelId, hub: &Hub) {
        let is_last = !channels.is_sending_to(hub);
        if let Some(queue) = self.queues.get_mut(hub) {
            queue.remove(id);
            // Nothing is left that could find out whether the hub still fails: the next notification does.
            if is_last {
                queue.end_outage();
            }
        }
    }
}

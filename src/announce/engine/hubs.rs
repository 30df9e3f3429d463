//! The queue of submissions of each hub, over all channels (R23).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::delivery::hub_queue::{HubQueue, SizeLimit};
use crate::announce::ids::ChannelId;
use crate::resourcesync::uri::Hub;

/// The queues of all hubs.
#[derive(Debug, Default)]
pub struct Hubs {
    queues: BTreeMap<Hub, HubQueue>,
}

impl Hubs {
    /// Adds the queue of a configured hub.
    pub fn add(&mut self, hub: Hub, queue: HubQueue) {
        self.queues.insert(hub, queue);
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

    /// Takes the next channel whose notification may be submitted to a hub now.
    pub fn pop(&mut self, hub: &Hub, now: Timestamp) -> Option<ChannelId> {
        self.queues.get_mut(hub)?.pop(now)
    }

    /// Has a failing hub asked now.
    pub fn hurry(&mut self, hub: &Hub, now: Timestamp) {
        if let Some(queue) = self.queues.get_mut(hub) {
            queue.hurry(now);
        }
    }

    /// Continues what the queues of an engine with another plan have learned of their hubs.
    pub fn inherit(&mut self, before: &mut Hubs) {
        for (hub, before) in &mut before.queues {
            if let Some(queue) = self.queues.get_mut(hub) {
                queue.inherit(before);
            }
        }
    }

    /// Moves all times as the clock was set back.
    pub fn set_back(&mut self, by: Duration) {
        for queue in self.queues.values_mut() {
            queue.set_back(by);
        }
    }
}

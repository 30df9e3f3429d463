//! The backlog of a topic: a sum at each number that some subscription received last, and nothing for each
//! notification, so that memory does not grow with what subscribers are behind.

use std::ops::Sub;

use crate::hub::{RelayId, RelaySize};

/// Bytes that each notification counts besides its body.
const ROW_BYTES: u64 = 256;

/// A number of notifications, and their size in the state file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BacklogSize {
    /// Number of notifications.
    pub count: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// The notifications relayed on a topic, and how far its subscriptions are. Sums count from any one start.
#[derive(Debug, Default)]
pub struct BacklogCounts {
    /// The last notification before the sums.
    begun: RelayId,
    /// The last notification that was numbered.
    last: RelayId,
    relayed: BacklogSize,
    /// The number of notifications that are saved.
    saved: u64,
    /// In order, each with at least one subscription.
    pub positions: Vec<SharedPosition>,
}

/// Where subscriptions are that received the same notification last.
#[derive(Debug, Clone, Copy)]
pub struct SharedPosition {
    /// The notification.
    pub heard: RelayId,
    subscriptions: usize,
    /// The sum of what was relayed up to there.
    relayed: BacklogSize,
}

impl BacklogSize {
    fn add(&mut self, relay: RelaySize) {
        self.count += 1;
        self.bytes += relay.size + ROW_BYTES;
    }
}

impl Sub for BacklogSize {
    type Output = BacklogSize;

    fn sub(self, other: BacklogSize) -> BacklogSize {
        BacklogSize {
            count: self.count.saturating_sub(other.count),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl BacklogCounts {
    /// Returns the backlog of a topic without subscriptions, where notifications up to `last` concern nobody.
    pub fn new(last: RelayId) -> BacklogCounts {
        BacklogCounts {
            begun: last,
            last,
            ..BacklogCounts::default()
        }
    }

    /// Restores a backlog from the saved notifications and the number that each subscription received last. Returns
    /// it with the last notification that nobody needs, if there is one.
    pub fn restore(
        relays: &[RelaySize],
        mut heard: Vec<RelayId>,
    ) -> (BacklogCounts, Option<RelayId>) {
        heard.sort_unstable();
        let last = relays.last().map(|relay| relay.id);
        let last = last.max(heard.last().copied());
        let mut backlog = BacklogCounts::new(last.unwrap_or_default());
        let mut relays = relays.iter().peekable();
        for heard in heard {
            while let Some(relay) = relays.next_if(|relay| relay.id <= heard) {
                backlog.relayed.add(*relay);
            }
            let relayed = backlog.relayed;
            backlog.subscribe_at(heard, relayed);
        }
        let lowest = backlog.positions.first();
        let lowest = lowest.filter(|lowest| lowest.relayed.count > 0);
        let obsolete = lowest.map(|lowest| lowest.heard);
        relays.for_each(|relay| backlog.relayed.add(*relay));
        backlog.saved = backlog.relayed.count;
        (backlog, obsolete)
    }

    /// Adds a notification that is not saved yet.
    pub fn add_relay(&mut self, relay: RelaySize) {
        self.last = relay.id;
        self.relayed.add(relay);
    }

    /// Takes note that a notification is saved. Returns false if nobody needs it.
    pub fn note_saved(&mut self, id: RelayId) -> bool {
        if id <= self.begun {
            return false;
        }
        self.saved += 1;
        let lowest = self.positions.first();
        lowest.is_some_and(|lowest| lowest.heard < id)
    }

    /// Adds a subscription, for which nothing is pending. Returns its number.
    pub fn subscribe(&mut self) -> RelayId {
        self.subscribe_at(self.last, self.relayed);
        self.last
    }

    /// Moves a subscription past a notification, which is the next one for it. Returns the last notification that nobody
    /// needs any more, if that changed.
    pub fn move_past(&mut self, heard: RelayId, relay: RelaySize) -> Option<RelayId> {
        let mut relayed = self.relayed_up_to(heard);
        relayed.add(relay);
        self.subscribe_at(relay.id, relayed);
        self.unsubscribe(heard)
    }

    /// Removes a subscription. Returns the last notification that nobody needs any more, if that changed.
    pub fn unsubscribe(&mut self, heard: RelayId) -> Option<RelayId> {
        let index = self.find_position(heard).ok()?;
        let position = &mut self.positions[index];
        position.subscriptions -= 1;
        if position.subscriptions > 0 {
            return None;
        }
        let removed = self.positions.remove(index);
        let lowest = self.positions.first();
        let (heard, relayed) = lowest.map_or((self.last, self.relayed), |lowest| {
            (lowest.heard, lowest.relayed)
        });
        (index == 0 && relayed.count > removed.relayed.count).then_some(heard)
    }

    /// Returns what is pending for the subscriptions that received this notification last, saved or not.
    pub fn owed(&self, heard: RelayId) -> BacklogSize {
        self.relayed - self.relayed_up_to(heard)
    }

    /// Returns true if a saved notification is pending for the subscriptions that received this one last.
    pub fn has_saved_after(&self, heard: RelayId) -> bool {
        self.relayed_up_to(heard).count < self.saved
    }

    /// Returns true if a saved notification is pending for some subscription.
    pub fn is_pending(&self) -> bool {
        let lowest = self.positions.first();
        lowest.is_some_and(|lowest| lowest.relayed.count < self.saved)
    }

    /// Returns what is in the state file: all that is pending for the subscriptions that are furthest behind.
    pub fn stored_size(&self) -> BacklogSize {
        let lowest = self.positions.first();
        lowest.map_or_else(BacklogSize::default, |lowest| self.relayed - lowest.relayed)
    }

    fn subscribe_at(&mut self, heard: RelayId, relayed: BacklogSize) {
        match self.find_position(heard) {
            Ok(index) => self.positions[index].subscriptions += 1,
            Err(index) => {
                let position = SharedPosition {
                    heard,
                    subscriptions: 1,
                    relayed,
                };
                self.positions.insert(index, position);
            }
        }
    }

    fn relayed_up_to(&self, heard: RelayId) -> BacklogSize {
        let index = self.find_position(heard).ok();
        index.map_or(self.relayed, |index| self.positions[index].relayed)
    }

    fn find_position(&self, heard: RelayId) -> Result<usize, usize> {
        self.positions
            .binary_search_by_key(&heard, |position| position.heard)
    }
}

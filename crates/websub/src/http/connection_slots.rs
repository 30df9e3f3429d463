//! Connection slots of a listener. When full, a new connection closes the one that has been idle longest, but none within
//! its grace period.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::oneshot::{Receiver, Sender, channel};

use crate::http::lock;

/// The time that a new client has for its first request. Until it is over, further clients wait in order.
const GRACE: Duration = Duration::from_millis(100);

/// Maximum connections being closed before new ones wait.
const MAX_CLOSING: usize = 64;

/// The slots of a listener.
#[derive(Debug)]
pub struct ConnectionSlots {
    capacity: usize,
    taken: Mutex<OpenConnections>,
    /// Notified whenever a slot is released.
    freed: Notify,
}

#[derive(Debug, Default)]
struct OpenConnections {
    /// Connections by a number that is renewed with each use, so the first has been idle longest.
    by_number: BTreeMap<u64, Connected>,
    /// Connections that must close and still have a slot.
    closing: usize,
    last: u64,
}

#[derive(Debug)]
struct Connected {
    /// The time of connecting, until the first answer.
    connected_at: Option<Instant>,
    /// Dropped to close the connection.
    keep_open: Sender<()>,
}

/// The slot of one connection, released when dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    number: u64,
}

impl ConnectionSlots {
    pub fn new(capacity: usize) -> Arc<ConnectionSlots> {
        Arc::new(ConnectionSlots {
            capacity,
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Waits for a slot. Returns it with a receiver that resolves when the connection must close. When full, closes the
    /// connection whose last request is longest ago: one that waits for its client, or, where answers wait too as those
    /// of callbacks do, the request that has waited longest, whose sender tries again.
    pub async fn take(self: &Arc<ConnectionSlots>) -> (ConnectionSlot, Receiver<()>) {
        loop {
            let freed = self.freed.notified();
            match self.try_take(Instant::now()) {
                Ok(taken) => return taken,
                // By then the grace period has ended, or a slot was released.
                Err(wait) => {
                    let _ = tokio::time::timeout(wait, freed).await;
                }
            }
        }
    }

    /// Returns a slot, or the time to wait before the next attempt unless one is released.
    fn try_take(
        self: &Arc<ConnectionSlots>,
        now: Instant,
    ) -> Result<(ConnectionSlot, Receiver<()>), Duration> {
        let mut taken = lock(&self.taken);
        // A connection being closed keeps its descriptor for a moment.
        if taken.closing > (self.capacity / 16).min(MAX_CLOSING) {
            return Err(GRACE);
        }
        if taken.by_number.len() >= self.capacity
            && let Some(longest) = taken.by_number.first_entry()
        {
            let connected_at = longest.get().connected_at;
            let age = connected_at.map(|connected_at| now.duration_since(connected_at));
            if let Some(age) = age
                && age < GRACE
            {
                return Err(GRACE - age);
            }
            longest.remove();
            taken.closing += 1;
        }
        let (keep_open, must_close) = channel();
        let number = taken.add(Connected {
            connected_at: Some(now),
            keep_open,
        });
        let slot = ConnectionSlot {
            slots: Arc::clone(self),
            number,
        };
        Ok((slot, must_close))
    }
}

impl OpenConnections {
    fn add(&mut self, connected: Connected) -> u64 {
        self.last += 1;
        self.by_number.insert(self.last, connected);
        self.last
    }
}

impl ConnectionSlot {
    /// Marks the connection as used, because the client has read of an answer. Sending does not count, or a byte now
    /// and then would keep a slot.
    pub fn renew(&mut self) {
        let mut taken = lock(&self.slots.taken);
        if let Some(Connected { keep_open, .. }) = taken.by_number.remove(&self.number) {
            self.number = taken.add(Connected {
                connected_at: None,
                keep_open,
            });
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = lock(&self.slots.taken);
        if taken.by_number.remove(&self.number).is_none() {
            taken.closing -= 1;
        }
        drop(taken);
        self.slots.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError::Closed;

    use super::*;

    type Taken = (ConnectionSlot, Receiver<()>);

    /// Takes a slot and closes the connections that must close for it.
    fn take(
        slots: &Arc<ConnectionSlots>,
        others: &mut Vec<Option<Taken>>,
        now: Instant,
    ) -> Vec<usize> {
        let taken = slots.try_take(now).unwrap();
        let must_close =
            |(_, leave): &mut Taken| leave.try_recv().is_err_and(|error| error == Closed);
        let mut left = Vec::new();
        for (position, other) in others.iter_mut().enumerate() {
            if other.as_mut().is_some_and(must_close) {
                *other = None;
                left.push(position);
            }
        }
        others.push(Some(taken));
        left
    }

    fn slot(taken: &mut [Option<Taken>], number: usize) -> &mut ConnectionSlot {
        &mut taken[number].as_mut().unwrap().0
    }

    #[test]
    fn the_longest_idle_connection_closes_when_all_slots_are_taken() {
        let (slots, now) = (ConnectionSlots::new(3), Instant::now());
        let mut taken = Vec::new();
        for _ in 0..3 {
            assert!(take(&slots, &mut taken, now).is_empty());
        }
        slot(&mut taken, 0).renew();
        assert_eq!(take(&slots, &mut taken, now + GRACE), [1]);
        assert_eq!(take(&slots, &mut taken, now + GRACE), [2]);
    }

    #[test]
    fn a_new_connection_has_a_grace_period() {
        let (slots, now) = (ConnectionSlots::new(2), Instant::now());
        let mut taken = Vec::new();
        let late = now + GRACE / 2;
        take(&slots, &mut taken, now);
        take(&slots, &mut taken, late);
        assert_eq!(slots.try_take(late).unwrap_err(), GRACE / 2);
        // It has asked, and had its answer; then the other one is next.
        slot(&mut taken, 0).renew();
        assert_eq!(slots.try_take(now + GRACE).unwrap_err(), GRACE / 2);
        assert_eq!(take(&slots, &mut taken, late + GRACE), [1]);
        // After its first answer it has no grace period.
        slot(&mut taken, 2).renew();
        assert_eq!(take(&slots, &mut taken, late + GRACE), [0]);
    }

    #[test]
    fn a_released_slot_is_free() {
        let (slots, now) = (ConnectionSlots::new(2), Instant::now());
        let mut taken = Vec::new();
        take(&slots, &mut taken, now);
        for _ in 0..3 {
            drop(slots.try_take(now));
        }
        assert!(take(&slots, &mut taken, now).is_empty());
        assert_eq!(lock(&slots.taken).by_number.len(), 2);
    }

    #[test]
    fn a_connection_that_must_close_cannot_stay_by_reading() {
        let (slots, now) = (ConnectionSlots::new(1), Instant::now());
        let (mut first, _) = slots.try_take(now).unwrap();
        let second = slots.try_take(now + GRACE).unwrap();
        first.renew();
        let late = now + GRACE * 2;
        assert!(slots.try_take(late).is_err(), "the first has not left yet");
        drop(first);
        assert_eq!(lock(&slots.taken).by_number.len(), 1);
        drop(second);
        assert_eq!(lock(&slots.taken).by_number.len(), 0);
    }
}

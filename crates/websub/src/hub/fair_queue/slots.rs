//! Slots for requests to callbacks and for lookups of their names, given out by a [`FairQueue`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::http::lock;
use crate::hub::fair_queue::{FairQueue, Priority, RequestNumber, SLOW};

/// Slots of one kind.
#[derive(Debug)]
pub struct FairSlots {
    state: Mutex<SlotsState>,
    started: Instant,
    /// Notified whenever a slot is released.
    released: Notify,
}

#[derive(Debug, Default)]
struct SlotsState {
    queue: FairQueue,
    /// Signals that a slot was granted.
    waiting: HashMap<RequestNumber, oneshot::Sender<()>>,
    /// Signals that a slot must be released.
    holders: HashMap<RequestNumber, oneshot::Sender<()>>,
    is_draining: bool,
    /// True while a task looks for slow requests.
    is_watched: bool,
}

/// A slot, or the wait for one; released when dropped.
pub struct FairSlot {
    slots: Arc<FairSlots>,
    ticket: RequestNumber,
    host: String,
    priority: Priority,
    /// True if the host has answered, which raises its number of slots.
    pub was_answered: bool,
    must_release: oneshot::Receiver<()>,
}

impl FairSlots {
    pub fn new(count: usize) -> Arc<FairSlots> {
        Arc::new(FairSlots {
            state: Mutex::new(SlotsState {
                queue: FairQueue::new(count),
                ..SlotsState::default()
            }),
            started: Instant::now(),
            released: Notify::new(),
        })
    }

    /// Waits for a slot for a request to a host. After [`drain`](FairSlots::drain) none is given out.
    pub async fn acquire(self: &Arc<Self>, host: &str, priority: Priority) -> FairSlot {
        let (sender, granted) = oneshot::channel();
        let (revoke, must_release) = oneshot::channel();
        let slot = {
            let mut state = lock(&self.state);
            let ticket = state.queue.enqueue(host, priority);
            state.waiting.insert(ticket, sender);
            state.holders.insert(ticket, revoke);
            FairSlot {
                slots: Arc::clone(self),
                ticket,
                host: host.to_owned(),
                priority,
                was_answered: false,
                must_release,
            }
        };
        self.grant();
        // The sender lives as long as the request waits.
        let _ = granted.await;
        slot
    }

    /// Stops giving out slots and waits until all are released.
    pub async fn drain(&self) {
        lock(&self.state).is_draining = true;
        loop {
            let released = self.released.notified();
            if lock(&self.state).queue.running.is_empty() {
                return;
            }
            released.await;
        }
    }

    /// Returns true after [`drain`](FairSlots::drain).
    pub fn is_draining(&self) -> bool {
        lock(&self.state).is_draining
    }

    /// Gives free slots to waiting requests.
    fn grant(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if state.is_draining {
            return;
        }
        for ticket in state.queue.admit(self.started.elapsed()) {
            if let Some(sender) = state.waiting.remove(&ticket) {
                // A request that no longer waits releases the slot when dropped.
                let _ = sender.send(());
            }
        }
        if state.queue.waiting > 0 && !state.is_watched {
            // Without a runtime all waiting requests are about to be dropped.
            if let Ok(runtime) = Handle::try_current() {
                state.is_watched = true;
                runtime.spawn(Arc::clone(self).cut_off_slow());
            }
        }
    }

    /// Cuts off slow requests while others wait.
    async fn cut_off_slow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SLOW / 5).await;
            {
                let mut state = lock(&self.state);
                if state.queue.waiting == 0 || state.is_draining {
                    state.is_watched = false;
                    return;
                }
                for ticket in state.queue.to_cut_off(self.started.elapsed()) {
                    if let Some(revoke) = state.holders.remove(&ticket) {
                        let _ = revoke.send(());
                    }
                }
            }
            self.grant();
        }
    }
}

impl FairSlot {
    /// Awaits the outcome of a request. Returns none if the slot has to be released first.
    pub async fn unless_cut_off<T>(&mut self, outcome: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            outcome = outcome => Some(outcome),
            Ok(()) = &mut self.must_release => None,
        }
    }
}

impl Drop for FairSlot {
    fn drop(&mut self) {
        let now = self.slots.started.elapsed();
        let mut state = lock(&self.slots.state);
        state.holders.remove(&self.ticket);
        match state.waiting.remove(&self.ticket) {
            Some(_) => state.queue.cancel(&self.host, self.priority, self.ticket),
            None => state.queue.leave(self.ticket, self.was_answered, now),
        }
        drop(state);
        self.slots.released.notify_waiters();
        self.slots.grant();
    }
}

//! Slots for what strangers keep waiting: requests to callbacks, and lookups of their names. Who gets one is decided in
//! [`announce::subscription::fairness`](crate::hub::fairness).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::hub::fairness::{FairShare, Priority, SLOW, Ticket};

/// Slots of one kind. Clones share them.
#[derive(Clone)]
pub struct Slots {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    started: Instant,
    /// Told whenever a slot was left.
    left: Notify,
}

struct State {
    fair: FairShare,
    /// Who hears when they get a slot.
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
    /// Who hears when they must leave theirs.
    staying: HashMap<Ticket, oneshot::Sender<()>>,
    is_closed: bool,
    /// Whether somebody looks for requests that have become slow.
    is_watched: bool,
}

/// A slot, or the wait for one; left when dropped.
pub struct Slot {
    slots: Slots,
    ticket: Ticket,
    host: String,
    priority: Priority,
    taken_at: Instant,
    was_answered: bool,
    must_leave: oneshot::Receiver<()>,
}

impl Slots {
    pub fn new(count: usize) -> Slots {
        Slots {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    fair: FairShare::new(count),
                    waiting: HashMap::new(),
                    staying: HashMap::new(),
                    is_closed: false,
                    is_watched: false,
                }),
                started: Instant::now(),
                left: Notify::new(),
            }),
        }
    }

    /// Waits for a slot, on the account of a host. Once the slots are [closed](Slots::close) there is none.
    pub async fn take(&self, host: &str, priority: Priority) -> Slot {
        let (sender, granted) = oneshot::channel();
        let (stay, must_leave) = oneshot::channel();
        let mut slot = {
            let mut state = self.lock();
            let ticket = state.fair.queue(host, priority);
            state.waiting.insert(ticket, sender);
            state.staying.insert(ticket, stay);
            Slot {
                slots: self.clone(),
                ticket,
                host: host.to_owned(),
                priority,
                taken_at: Instant::now(),
                was_answered: false,
                must_leave,
            }
        };
        self.grant();
        // The sender is kept as long as the slot is waited for.
        let _ = granted.await;
        slot.taken_at = Instant::now();
        slot
    }

    /// Gives nobody a slot any more, and waits until those who have one have left.
    pub async fn close(&self) {
        self.lock().is_closed = true;
        loop {
            let left = self.shared.left.notified();
            if self.lock().fair.under_way() == 0 {
                return;
            }
            left.await;
        }
    }

    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Gives free slots to who waits.
    fn grant(&self) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        for ticket in state.fair.admit(self.now()) {
            if let Some(sender) = state.waiting.remove(&ticket) {
                // Who waits no more leaves the slot when it is dropped.
                let _ = sender.send(());
            }
        }
        if state.fair.is_waited_for() && !state.is_watched {
            // Without a runtime all that waits is about to be dropped.
            if let Ok(runtime) = Handle::try_current() {
                state.is_watched = true;
                runtime.spawn(self.clone().watch());
            }
        }
    }

    /// While anybody waits, looks for those who have kept a slot for too long.
    async fn watch(self) {
        loop {
            tokio::time::sleep(SLOW / 5).await;
            {
                let mut state = self.lock();
                if !state.fair.is_waited_for() || state.is_closed {
                    state.is_watched = false;
                    return;
                }
                for ticket in state.fair.excess(self.now()) {
                    if let Some(stay) = state.staying.remove(&ticket) {
                        let _ = stay.send(());
                    }
                }
            }
            self.grant();
        }
    }

    fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = &self.shared.state;
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fair = &self.lock().fair;
        f.debug_struct("Slots")
            .field("under_way", &fair.under_way())
            .finish_non_exhaustive()
    }
}

impl Slot {
    /// The host has answered: it may have more slots from now on.
    pub fn answered(&mut self) {
        self.was_answered = true;
    }

    /// The host has answered, if that was within this time.
    pub fn answered_within(&mut self, time: Duration) {
        self.was_answered = self.taken_at.elapsed() < time;
    }

    /// The outcome of what takes the slot; nothing if it has to be left before there is one.
    pub async fn unless_cut_off<T>(&mut self, outcome: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            outcome = outcome => Some(outcome),
            Ok(()) = &mut self.must_leave => None,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let now = self.slots.now();
        let mut state = self.slots.lock();
        state.staying.remove(&self.ticket);
        match state.waiting.remove(&self.ticket) {
            Some(_) => state.fair.cancel(&self.host, self.priority, self.ticket),
            None => state.fair.leave(self.ticket, self.was_answered, now),
        }
        drop(state);
        self.slots.shared.left.notify_waiters();
        self.slots.grant();
    }
}

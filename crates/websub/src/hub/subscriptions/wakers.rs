//! Signals that end the waits of deliveries for a retry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::hub::SubscriptionKey;

/// The signals, by subscription.
#[derive(Debug, Default)]
pub struct Wakers {
    all: Mutex<HashMap<SubscriptionKey, Arc<Notify>>>,
}

/// A registration with [`Wakers`], removed when dropped.
pub struct Woken {
    wakers: Arc<Wakers>,
    key: SubscriptionKey,
    notify: Arc<Notify>,
}

impl Wakers {
    /// Ends the wait of the delivery to a subscriber for its retry.
    pub fn wake(&self, key: &SubscriptionKey) {
        if let Some(notify) = self.lock().get(key) {
            notify.notify_one();
        }
    }

    pub fn register(self: &Arc<Wakers>, key: &SubscriptionKey) -> Woken {
        let notify = Arc::new(Notify::new());
        self.lock().insert(key.clone(), Arc::clone(&notify));
        Woken {
            wakers: Arc::clone(self),
            key: key.clone(),
            notify,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SubscriptionKey, Arc<Notify>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Woken {
    /// Waits for the next signal.
    pub fn notified(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        let mut all = self.wakers.lock();
        // The subscription may have ended and begun anew meanwhile.
        if all
            .get(&self.key)
            .is_some_and(|notify| Arc::ptr_eq(notify, &self.notify))
        {
            all.remove(&self.key);
        }
    }
}

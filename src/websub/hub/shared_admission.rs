//! Admission, shared by requests, verifications and subscriptions, with the clock that it measures by.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::hub::admission::Admission;
use crate::hub::limits::HubLimits;

/// The limits and their usage. Locked after the subscriptions where both are.
#[derive(Debug)]
pub struct SharedAdmission {
    admission: Mutex<Admission>,
    started: Instant,
}

impl SharedAdmission {
    pub fn new(limits: HubLimits) -> SharedAdmission {
        SharedAdmission {
            admission: Mutex::new(Admission::new(limits)),
            started: Instant::now(),
        }
    }

    /// Calls a function with admission, which is locked meanwhile, and the time by its clock.
    pub fn with<T>(&self, act: impl FnOnce(&mut Admission, Duration) -> T) -> T {
        let now = self.started.elapsed();
        let mut admission = self
            .admission
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        act(&mut admission, now)
    }
}

//! The basis of publisher, hub and subscriber over HTTP: client, server, and the words for failures.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod client;
pub mod clock;
mod connection_slots;
pub mod failure;
pub mod server;

/// Locks a mutex, whatever became of a thread that held it: no invariant spans a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

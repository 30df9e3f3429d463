//! The basis of publisher, hub and subscriber over HTTP: client, server, clock, and the words for failures.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use jiff::Timestamp;

use crate::retry::later;

pub mod client;
pub mod failure;
pub mod server;

/// Locks a mutex, whatever became of a thread that held it: no invariant spans a panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading, whatever became of a thread that held it.
pub fn read<T>(shared: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    shared.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing, whatever became of a thread that held it.
pub fn write<T>(shared: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    shared.write().unwrap_or_else(PoisonError::into_inner)
}

/// A function that is handed in, and called from any thread.
pub struct BoxedFn<F: ?Sized>(pub Box<F>);

impl<F: ?Sized> fmt::Debug for BoxedFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxedFn")
    }
}

/// A value that is replaced as a whole, such as settings by a reload.
#[derive(Debug)]
pub struct Replaceable<T>(Mutex<Arc<T>>);

impl<T> Replaceable<T> {
    /// Puts the first value into effect.
    pub fn new(value: T) -> Replaceable<T> {
        Replaceable(Mutex::new(Arc::new(value)))
    }

    /// Returns the value in effect.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&lock(&self.0))
    }

    /// Replaces the value in effect.
    pub fn replace(&self, value: T) {
        *lock(&self.0) = Arc::new(value);
    }
}

/// The clock that nobody sets, of which a process has one: the time of the wall clock when the process began, and what has
/// passed since by a monotonic clock. It never goes back and never jumps, and stands still while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// The time at which the process began.
    pub began: Timestamp,
    /// The same instant, by the monotonic clock.
    pub started: Instant,
}

impl Clock {
    /// Starts the clock, not before the time that it showed when a process saved it last.
    pub fn start(saved: Option<Timestamp>) -> Clock {
        let wall = Timestamp::now();
        Clock {
            began: saved.map_or(wall, |saved| wall.max(saved)),
            started: Instant::now(),
        }
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        later(self.began, self.started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::Clock;

    #[test]
    fn a_clock_goes_on_from_the_time_that_was_saved_whatever_the_wall_clock_shows() {
        let ahead = Timestamp::now() + SignedDuration::from_hours(24 * 365);
        let clock = Clock::start(Some(ahead));
        let first = clock.now();
        assert!(first >= ahead && clock.now() >= first);
        let behind = Timestamp::now() - SignedDuration::from_hours(1);
        assert!(Clock::start(Some(behind)).now() > behind + SignedDuration::from_mins(59));
    }
}

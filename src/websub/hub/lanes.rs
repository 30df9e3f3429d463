//! Work in order for each subscriber, and at the same time for different ones.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hub::Key;

/// What waits for each subscriber. A lane exists while it holds something, and has one worker as long: who
/// makes a lane starts it, and the worker ends when [`Lanes::done`] says so.
pub struct Lanes<T> {
    lanes: Mutex<HashMap<Key, VecDeque<T>>>,
}

impl<T> Default for Lanes<T> {
    fn default() -> Lanes<T> {
        Lanes {
            lanes: Mutex::default(),
        }
    }
}

impl<T: Clone> Lanes<T> {
    /// Puts something last. True if a worker must be started.
    pub fn push(&self, key: &Key, item: T) -> bool {
        let mut lanes = self.lock();
        match lanes.get_mut(key) {
            Some(lane) => {
                lane.push_back(item);
                false
            }
            None => {
                lanes.insert(key.clone(), VecDeque::from([item]));
                true
            }
        }
    }

    pub fn first(&self, key: &Key) -> Option<T> {
        self.lock().get(key)?.front().cloned()
    }

    /// Takes the first away. False if that was all, and the worker must end.
    pub fn done(&self, key: &Key) -> bool {
        let mut lanes = self.lock();
        let Some(lane) = lanes.get_mut(key) else {
            return false;
        };
        lane.pop_front();
        let is_more = !lane.is_empty();
        if !is_more {
            lanes.remove(key);
        }
        is_more
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, VecDeque<T>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

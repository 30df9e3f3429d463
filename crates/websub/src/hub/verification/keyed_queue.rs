//! Queues by subscription: in order within one, concurrent across them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hub::SubscriptionKey;

/// Items waiting for each subscription. A queue exists while it holds something, and has one worker for that time: the
/// caller whose [`push`](KeyedQueue::push) creates it starts the worker, which ends when [`KeyedQueue::done`] returns
/// false.
pub struct KeyedQueue<T> {
    queues: Mutex<HashMap<SubscriptionKey, VecDeque<T>>>,
}

impl<T> Default for KeyedQueue<T> {
    fn default() -> KeyedQueue<T> {
        KeyedQueue {
            queues: Mutex::default(),
        }
    }
}

impl<T: Clone> KeyedQueue<T> {
    /// Appends an item. Returns true if the caller must start a worker.
    pub fn push(&self, key: &SubscriptionKey, item: T) -> bool {
        let mut queues = self.lock();
        match queues.get_mut(key) {
            Some(queue) => {
                queue.push_back(item);
                false
            }
            None => {
                queues.insert(key.clone(), VecDeque::from([item]));
                true
            }
        }
    }

    /// Returns the first item.
    pub fn first(&self, key: &SubscriptionKey) -> Option<T> {
        self.lock().get(key)?.front().cloned()
    }

    /// Removes the first item. Returns false if that was the last, and the worker must end.
    pub fn done(&self, key: &SubscriptionKey) -> bool {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(key) else {
            return false;
        };
        queue.pop_front();
        let is_more = !queue.is_empty();
        if !is_more {
            queues.remove(key);
        }
        is_more
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SubscriptionKey, VecDeque<T>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Timers: when each file is looked at again without a hint. A file has one timer at most.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Instant;

use crate::tree::ids::FileId;

#[derive(Debug, Default)]
pub(super) struct FileTimers {
    /// All that were set, those that were set again or cleared too.
    heap: BinaryHeap<Reverse<(Instant, FileId)>>,
    due: HashMap<FileId, Instant>,
}

impl FileTimers {
    /// Sets the timer of a file, in place of any other.
    pub(super) fn set(&mut self, id: FileId, at: Instant) {
        self.due.insert(id, at);
        self.heap.push(Reverse((at, id)));
    }

    pub(super) fn clear(&mut self, id: FileId) {
        self.due.remove(&id);
    }

    /// Returns when a timer may be due next.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes a file whose timer is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<FileId> {
        while let Some(Reverse((at, id))) = self.heap.peek().copied() {
            if at > now {
                return None;
            }
            self.heap.pop();
            if self.due.get(&id) == Some(&at) {
                self.due.remove(&id);
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::tree::model::Model;
    use crate::tree::timers::FileTimers;

    #[test]
    fn only_the_last_time_set_for_a_file_counts() {
        let mut model = Model::default();
        let root = model.add_root(0);
        let [first, second] = [b"a.xml", b"b.xml"].map(|name| model.add_file(root, name));
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut timers = FileTimers::default();
        timers.set(first, now);
        timers.set(first, later);
        timers.set(second, now);
        timers.clear(second);
        assert_eq!(timers.pop_due(now), None);
        assert_eq!(timers.pop_due(later), Some(first));
        assert_eq!(timers.pop_due(later), None);
    }
}

//! Work that hints and timers ask for: directories to list, files to read now or later, paths to explain. Each directory
//! and each file waits at most once.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::tree::model::{DirectoryId, FileId};
use announce::observation::DocumentPath;

/// Extent of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Itself, and subdirectories that are new.
    Directory,
    /// All directories beneath it too.
    Subtree,
    /// The same, as a part of a sweep: the baseline of the mount may depend on what is reported then (R13).
    Sweep,
}

/// A piece of work that goes before any sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    List(DirectoryId, Depth),
    Read(FileId),
}

#[derive(Debug, Default)]
pub struct WorkQueue {
    directories: VecDeque<DirectoryId>,
    depths: HashMap<DirectoryId, Depth>,
    files: VecDeque<FileId>,
    /// The files in `files` that still exist and still wait.
    waiting_files: HashSet<FileId>,
    /// When files are queued without a hint.
    times: BTreeSet<(Instant, FileId)>,
    /// The same by file.
    due: HashMap<FileId, Instant>,
    /// Paths to explain when there is nothing else to do.
    pub questions: VecDeque<DocumentPath>,
}

impl WorkQueue {
    /// Queues a directory, or makes the listing that it waits for deeper.
    pub fn push_directory(&mut self, id: DirectoryId, depth: Depth) {
        match self.depths.get_mut(&id) {
            Some(queued) => *queued = depth.max(*queued),
            None => {
                self.depths.insert(id, depth);
                self.directories.push_back(id);
            }
        }
    }

    pub fn push_file(&mut self, id: FileId) {
        if self.waiting_files.insert(id) {
            self.files.push_back(id);
        }
    }

    /// Queues a file at some time, in place of any other time set for it.
    pub fn push_file_after(&mut self, id: FileId, after: Duration) {
        self.clear_timer(id);
        let at = Instant::now() + after;
        self.due.insert(id, at);
        self.times.insert((at, id));
    }

    /// Forgets the time at which a file was to be queued.
    pub fn clear_timer(&mut self, id: FileId) {
        if let Some(at) = self.due.remove(&id) {
            self.times.remove(&(at, id));
        }
    }

    /// Returns the time at which a file is queued next.
    pub fn wake(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Queues the files whose time has come.
    pub fn push_due_files(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.times.first()
            && at <= now
        {
            self.clear_timer(id);
            self.push_file(id);
        }
    }

    /// Takes the next task: directories before files, because a listing may make a read needless.
    pub fn pop(&mut self) -> Option<Task> {
        while let Some(id) = self.directories.pop_front() {
            if let Some(depth) = self.depths.remove(&id) {
                return Some(Task::List(id, depth));
            }
        }
        while let Some(id) = self.files.pop_front() {
            if self.waiting_files.remove(&id) {
                return Some(Task::Read(id));
            }
        }
        None
    }

    /// Forgets a directory that is gone: its number may be used again.
    pub fn forget_directory(&mut self, id: DirectoryId) {
        self.depths.remove(&id);
    }

    /// Forgets a file that is gone: its number may be used again.
    pub fn forget_file(&mut self, id: FileId) {
        self.waiting_files.remove(&id);
        self.clear_timer(id);
    }

    pub fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.files.is_empty() && self.questions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::tree::model::{DirectoryId, FileId};
    use crate::tree::work_queue::{Depth, Task, WorkQueue};

    #[test]
    fn a_directory_waits_once_and_as_deep_as_was_asked() {
        let (mut queue, root) = (WorkQueue::default(), DirectoryId(0));
        queue.push_directory(root, Depth::Subtree);
        queue.push_directory(root, Depth::Directory);
        assert_eq!(queue.pop(), Some(Task::List(root, Depth::Subtree)));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn a_file_that_is_gone_is_not_read_for_another_with_its_number() {
        let (mut queue, file) = (WorkQueue::default(), FileId(0));
        queue.push_file(file);
        queue.forget_file(file);
        queue.push_file(file);
        assert_eq!(queue.pop(), Some(Task::Read(file)));
        assert_eq!(queue.pop(), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn only_the_last_time_set_for_a_file_counts() {
        let [first, second] = [FileId(0), FileId(1)];
        let mut queue = WorkQueue::default();
        let later = Duration::from_secs(60);
        queue.push_file_after(first, Duration::ZERO);
        queue.push_file_after(first, later);
        queue.push_file_after(second, Duration::ZERO);
        queue.clear_timer(second);
        queue.push_due_files(Instant::now());
        assert_eq!(queue.pop(), None);
        queue.push_due_files(Instant::now() + later);
        assert_eq!(queue.pop(), Some(Task::Read(first)));
        assert_eq!(queue.pop(), None);
    }
}

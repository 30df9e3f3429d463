//! Work that hints and timers ask for: directories to list, files to read now or later, paths to explain. Each directory
//! and each file waits at most once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::announce::observation::DocumentPath;
use crate::tree::ids::{DirectoryId, FileId};
use crate::tree::timers::FileTimers;

/// Extent of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Depth {
    /// Itself, and subdirectories that are new.
    Directory,
    /// All directories beneath it too.
    Subtree,
}

/// A piece of work that goes before any sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    List(DirectoryId, Depth),
    Read(FileId),
}

/// What a listing or a look at a file is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The work that hints and timers ask for.
    Task,
    /// A sweep: the baseline of the mount may depend on what is reported now (R13).
    Sweep,
}

#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    directories: VecDeque<DirectoryId>,
    depths: HashMap<DirectoryId, Depth>,
    files: VecDeque<FileId>,
    /// The files in `files` that still exist and still wait.
    waiting_files: HashSet<FileId>,
    timers: FileTimers,
    /// Paths to explain when there is nothing else to do.
    questions: VecDeque<DocumentPath>,
}

impl WorkQueue {
    /// Queues a directory, or makes the listing that it waits for deeper.
    pub(super) fn push_directory(&mut self, id: DirectoryId, depth: Depth) {
        match self.depths.get_mut(&id) {
            Some(queued) => *queued = depth.max(*queued),
            None => {
                self.depths.insert(id, depth);
                self.directories.push_back(id);
            }
        }
    }

    pub(super) fn push_file(&mut self, id: FileId) {
        if self.waiting_files.insert(id) {
            self.files.push_back(id);
        }
    }

    /// Queues a file at some time, in place of any other time set for it.
    pub(super) fn push_file_after(&mut self, id: FileId, after: Duration) {
        self.timers.set(id, Instant::now() + after);
    }

    /// Forgets the time at which a file was to be queued.
    pub(super) fn clear_timer(&mut self, id: FileId) {
        self.timers.clear(id);
    }

    /// Returns when a file may have to be queued next.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Queues the files whose time has come.
    pub(super) fn push_due_files(&mut self, now: Instant) {
        while let Some(id) = self.timers.pop_due(now) {
            self.push_file(id);
        }
    }

    pub(super) fn push_questions(&mut self, paths: Vec<DocumentPath>) {
        self.questions.extend(paths);
    }

    /// Takes the next task: directories before files, because a listing may make a read needless.
    pub(super) fn pop(&mut self) -> Option<Task> {
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

    pub(super) fn pop_question(&mut self) -> Option<DocumentPath> {
        self.questions.pop_front()
    }

    /// Forgets a directory that is gone: its number may be used again.
    pub(super) fn forget_directory(&mut self, id: DirectoryId) {
        self.depths.remove(&id);
    }

    /// Forgets a file that is gone: its number may be used again.
    pub(super) fn forget_file(&mut self, id: FileId) {
        self.waiting_files.remove(&id);
        self.timers.clear(id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.files.is_empty() && self.questions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use crate::tree::model::Model;
    use crate::tree::work_queue::{Depth, Task, WorkQueue};

    #[test]
    fn a_directory_waits_once_and_as_deep_as_was_asked() {
        let root = Model::default().add_root(0);
        let mut queue = WorkQueue::default();
        queue.push_directory(root, Depth::Subtree);
        queue.push_directory(root, Depth::Directory);
        assert_eq!(queue.pop(), Some(Task::List(root, Depth::Subtree)));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn a_file_that_is_gone_is_not_read_for_another_with_its_number() {
        let mut model = Model::default();
        let root = model.add_root(0);
        let file = model.add_file(root, b"a.xml");
        let mut queue = WorkQueue::default();
        queue.push_file(file);
        queue.forget_file(file);
        queue.push_file(file);
        assert_eq!(queue.pop(), Some(Task::Read(file)));
        assert_eq!(queue.pop(), None);
        assert!(queue.is_empty());
    }
}

//! Hints that the backends leave for the observer: a set of names to look at, merged as it grows, so that it stays small
//! however long the observer is busy.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::report::figures;
use crate::tree::lock;
use crate::tree::watches::{WatchId, WatchPurpose};
use announce::candidates::{CandidateGlobs, is_hidden};
use announce::observation::DocumentPath;

/// Maximum names in one directory whose hints are kept singly, candidates aside; beyond it, the directory is listed.
const MAX_STRANGERS: usize = 4096;

/// An event about a name, or all events since it was checked last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NameHint {
    /// True if the name may stand for something else now.
    pub renamed: bool,
    /// True if the last event about a writer was that it closed the file, or renamed it into place; false if it wrote.
    pub is_complete: Option<bool>,
    pub touched: bool,
    pub unclear: bool,
}

impl NameHint {
    /// The name may stand for something else: it is new, by `open`, `mkdir` or a link, or was deleted or renamed.
    pub const RENAMED: NameHint = NameHint {
        renamed: true,
        ..NameHint::NONE
    };

    /// Something complete was renamed to it.
    pub const MOVED_IN: NameHint = NameHint {
        is_complete: Some(true),
        ..NameHint::RENAMED
    };

    /// Its content changes.
    pub const WRITTEN: NameHint = NameHint {
        is_complete: Some(false),
        ..NameHint::NONE
    };

    /// A writer is done.
    pub const CLOSED: NameHint = NameHint {
        is_complete: Some(true),
        ..NameHint::NONE
    };

    /// Its permissions, owner, times or number of links changed.
    pub const TOUCHED: NameHint = NameHint {
        touched: true,
        ..NameHint::NONE
    };

    /// Something may have happened, and its writer may be done or not.
    pub const UNCLEAR: NameHint = NameHint {
        unclear: true,
        ..NameHint::NONE
    };

    const NONE: NameHint = NameHint {
        renamed: false,
        is_complete: None,
        touched: false,
        unclear: false,
    };

    /// Adds a later event. The last one about a writer counts, and none from before the name stood for something else.
    pub fn merge(&mut self, event: NameHint) {
        let before = self.is_complete.filter(|_| !event.renamed);
        self.is_complete = event.is_complete.or(before);
        self.renamed |= event.renamed;
        self.touched |= event.touched;
        self.unclear |= event.unclear;
    }
}

/// All events in a directory since it was checked last.
#[derive(Debug, Default)]
pub struct DirectoryHints {
    pub names: HashMap<Box<[u8]>, NameHint>,
    /// True if something happened to names that can be neither candidates nor directories.
    pub other: bool,
    /// True if the directory itself was moved, deleted, unmounted, or its watch ended.
    pub itself: bool,
    /// True if the directory's own permissions, owner or times changed.
    pub touched: bool,
    /// True if too much happened to be told name by name.
    pub everything: bool,
}

/// All hints since they were taken last.
#[derive(Debug, Default)]
pub struct HintBatch {
    pub directories: HashMap<WatchId, DirectoryHints>,
    /// Events were lost.
    pub overflow: bool,
    /// Paths to report on.
    pub requested: Vec<DocumentPath>,
    /// Paths to explain.
    pub questions: Vec<DocumentPath>,
    pub sweep: bool,
    pub stop: bool,
    /// Reason why there will be no more events.
    pub ended: Option<String>,
}

/// The hints, shared by the backend's thread and the observer.
#[derive(Debug, Default)]
pub struct PendingHints {
    /// [`PendingHints::merge`] adds some, which wakes the observer.
    pub pending: Mutex<LockedHints>,
    changed: Condvar,
    /// An eventfd that wakes an observer waiting for the kernel's events.
    pub bell: OnceLock<Arc<OwnedFd>>,
}

/// The hints, while they are locked.
#[derive(Debug, Default)]
pub struct LockedHints {
    pub batch: HintBatch,
    /// True if there is anything worth waking for. A file that is being written is not.
    pub is_news: bool,
    /// True if the observer waits, and must be woken.
    pub is_awaited: bool,
    /// The meaning of each watch, by which events are kept or not. Events of other watches are stale.
    pub watched: HashMap<WatchId, WatchPurpose>,
    /// Globs of the names that may matter wherever they are.
    candidates: CandidateGlobs,
    /// The hints of the kernel since the watching began.
    pub counted: figures::HintCounts,
}

impl PendingHints {
    pub fn new(candidates: CandidateGlobs) -> PendingHints {
        PendingHints {
            pending: Mutex::new(LockedHints {
                candidates,
                ..LockedHints::default()
            }),
            ..PendingHints::default()
        }
    }

    /// Lets a backend add what it read, under one lock.
    pub fn merge(&self, add: impl FnOnce(&mut LockedHints)) {
        let mut pending = lock(&self.pending);
        add(&mut pending);
        if !(pending.is_news && pending.is_awaited) {
            return;
        }
        self.changed.notify_one();
        if let Some(bell) = self.bell.get() {
            // A full eventfd is one that was rung.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// Adds what is worth waking for.
    pub fn add_and_wake(&self, add: impl FnOnce(&mut HintBatch)) {
        self.merge(|pending| {
            add(&mut pending.batch);
            pending.is_news = true;
        });
    }

    /// Takes all hints, waiting for some until `deadline`.
    pub fn take(&self, deadline: Option<Instant>) -> HintBatch {
        let mut pending = lock(&self.pending);
        if let Some(left) = deadline.and_then(|at| at.checked_duration_since(Instant::now())) {
            pending.is_awaited = true;
            let lacks_news = |pending: &mut LockedHints| !pending.is_news;
            let waited = self.changed.wait_timeout_while(pending, left, lacks_news);
            (pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        (pending.is_news, pending.is_awaited) = (false, false);
        let stop = pending.batch.stop;
        let batch = std::mem::take(&mut pending.batch);
        // Once stopped, stopped for ever.
        pending.batch.stop = stop;
        batch
    }
}

impl LockedHints {
    /// Takes note that events were lost.
    pub fn add_overflow(&mut self) {
        self.counted.overflows += 1;
        self.batch.overflow = true;
        self.is_news = true;
    }

    /// Adds an event about a watched directory itself, which was touched, or else moved, or is gone.
    pub fn add_self_event(&mut self, key: WatchId, is_touched: bool) {
        self.counted.taken += 1;
        let directory_hints = self.batch.directories.entry(key).or_default();
        directory_hints.touched |= is_touched;
        directory_hints.itself |= !is_touched;
        self.is_news = true;
    }

    /// Adds an event about a name in a watched directory.
    pub fn add_name(&mut self, key: WatchId, name: &[u8], event: NameHint, is_directory: bool) {
        let changes_names = event.renamed || event.unclear;
        let watched = self.watched.get(&key);
        let is_named = watched.is_some_and(|it| it.named.contains_key(name));
        // Where only some names matter, a link ends there or a mount has that name.
        let is_in_tree = watched.is_none_or(|it| !it.directories.is_empty());
        let is_known = is_named || is_in_tree && self.candidates.is_candidate_name(name);
        if !is_known && !(is_in_tree && (is_directory || changes_names)) {
            return;
        }
        self.counted.taken += 1;
        let directory_hints = self.batch.directories.entry(key).or_default();
        if !is_known && is_hidden(name) {
            directory_hints.other = true;
        } else if let Some(hint) = directory_hints.names.get_mut(name) {
            hint.merge(event);
        } else if !is_known && directory_hints.names.len() >= MAX_STRANGERS {
            directory_hints.everything = true;
        } else {
            directory_hints.names.insert(name.into(), event);
        }
        self.is_news |= event != NameHint::WRITTEN;
    }
}

#[cfg(test)]
mod tests {
    use super::{NameHint, PendingHints};
    use crate::tree::watches::WatchId;
    use announce::candidates::CandidateGlobs;
    use announce::plan::DEFAULT_INCLUDE;

    #[test]
    fn the_last_of_written_and_closed_wins() {
        let (written, closed) = (NameHint::WRITTEN, NameHint::CLOSED);
        let (renamed, moved_in) = (NameHint::RENAMED, NameHint::MOVED_IN);
        for (happened, want) in [
            (&[renamed, written][..], Some(false)),
            (&[renamed, written, closed], Some(true)),
            (&[written, closed, written], Some(false)),
            (&[written, moved_in], Some(true)),
            (&[written, renamed], None),
            (&[written, NameHint::TOUCHED], Some(false)),
        ] {
            let mut hint = NameHint::default();
            for &it in happened {
                hint.merge(it);
            }
            assert_eq!(hint.is_complete, want, "{happened:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_wait_without_the_kernel_ends_though_there_is_a_bell() {
        use std::sync::Arc;
        use std::time::{Duration, Instant};
        let flags = rustix::event::EventfdFlags::NONBLOCK;
        let hints = Arc::new(PendingHints::default());
        let bell = Arc::new(rustix::event::eventfd(0, flags).unwrap());
        hints.bell.set(bell).unwrap();
        let begun = Instant::now();
        let waiting = {
            let hints = Arc::clone(&hints);
            std::thread::spawn(move || hints.take(Some(begun + Duration::from_secs(60))).sweep)
        };
        hints.add_and_wake(|batch| batch.sweep = true);
        assert!(waiting.join().unwrap());
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn names_that_cannot_matter_leave_no_trace() {
        let include = DEFAULT_INCLUDE.map(str::to_owned).into();
        let names = CandidateGlobs::new(include, Vec::new()).unwrap();
        let (hints, key) = (PendingHints::new(names), WatchId(1));
        let add = |name: &[u8], happened| {
            hints.merge(|pending| pending.add_name(key, name, happened, false));
        };
        for happened in [NameHint::WRITTEN, NameHint::CLOSED, NameHint::TOUCHED] {
            add(b"access.log", happened);
            add(b".a.xml.Xy12Zq", happened);
        }
        assert!(hints.take(None).directories.is_empty());
        add(b"..data", NameHint::MOVED_IN);
        let taken = &hints.take(None).directories[&key];
        assert!(taken.other && taken.names.is_empty());
    }
}

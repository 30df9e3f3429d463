//! The file system: mounts, watches, sweeps, complete reads.
//!
//! A kernel event is only a hint that says where to look; only what is then read counts. So every backend follows one
//! discipline: watch a directory, then list it; on any hint look again; when hints may have been lost, sweep. Paths
//! stay bytes below a mount here, and what is announced is decided elsewhere.
//!
//! The `observer` is the thread that joins the parts: it takes hints, works through its queue and the sweeps of the mounts
//! (`sweep`), and sends reports. Its parts own their state: `model` (the tree as far as it is known: directories, links, and
//! each candidate `file`), each `mount` with its sweep, its unreadable directories and its `nested_directories`, and the
//! `watches` of a backend, `inotify` or `notify`, with their `pending_hints`.
//!
//! Its work is in several files: the model is brought up to date, name by name (`directory_listing`), with links (`links`);
//! `file_reading` decides whether a file is read, and reports its content, `watches` what is watched. `read_file` looks at
//! one file, once, and reads the entries of a Change List again.

mod directory_listing;
mod file;
mod file_reading;
mod file_status;
#[cfg(target_os = "linux")]
mod inotify;
mod links;
mod model;
mod mount;
mod nested_directories;
mod notify;
mod observer;
mod pending_hints;
mod read_file;
mod sweep;
mod watches;

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tree::file::LastRead;
use crate::tree::file_status::FileSystemTraits;
use crate::tree::model::join;
use crate::tree::mount::UnmetFile;
use crate::tree::observer::Observer;
use crate::tree::pending_hints::PendingHints;
use crate::tree::watches::Watches;
use announce::candidates::CandidateGlobs;
use announce::event::Event;
use announce::observation::{DocumentPath, MountId, Stat};
use announce::plan::{MountPlan, Plan};

pub use crate::tree::read_file::{ListFile, ListFileError, ListKeyCache, content, explain};
pub use crate::tree::watches::SystemLimit;

/// The tree of one source, and how it is watched.
#[derive(Debug, Clone)]
pub struct TreeSettings {
    pub mounts: Vec<MountPlan>,
    pub candidates: CandidateGlobs,
    pub watch: WatchMode,
    pub rescan_interval: Duration,
    pub poll_interval: Duration,
    /// Age that a file found without an event must have before it is read (R3).
    pub settle: Duration,
    /// Silence of a writer that keeps a file open after which the file is read (R3).
    pub open_writer: Duration,
    /// Keys of the Change Lists that were read last.
    pub recent_keys: ListKeyCache,
}

/// Source of hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WatchMode {
    // The kernel's events where the file system is known to be local, else sweeps alone.
    Auto,
    Inotify,
    // The `notify` crate, for systems without inotify.
    Notify,
    // No hints: a sweep each `poll_interval`.
    Poll,
}

impl WatchMode {
    /// Returns true if the kernel may be asked to report the changes of a mount in this file system.
    fn trusts(self, file_system: FileSystemTraits) -> bool {
        match self {
            WatchMode::Auto => file_system.is_local,
            WatchMode::Inotify | WatchMode::Notify => true,
            WatchMode::Poll => false,
        }
    }
}

/// The files that earlier runs have read, and by what they are known. Unchanged, none is read again. There may be a million.
#[derive(Debug, Default)]
pub struct KnownFiles(HashMap<MountId, HashMap<Arc<[u8]>, UnmetFile>>);

impl KnownFiles {
    pub fn add(&mut self, path: DocumentPath, stat: &Stat, read_at: Timestamp) {
        let last_read = LastRead::new(stat, read_at);
        let in_mount = self.0.entry(path.mount).or_default();
        in_mount.insert(path.below, UnmetFile::Read(last_read));
    }
}

/// A report about a tree.
#[derive(Debug, Clone)]
pub enum TreeReport {
    /// What the engine takes; observations are in the order in which they were made.
    Event(Event),
    /// A sweep goes on: reported several times a second, to show progress, and never by one that is quickly done.
    Sweeping {
        mount: MountId,
        /// Candidates met so far.
        files: u64,
    },
    /// A sweep has ended, and [`Event::Swept`] follows; everything readable that it found was reported before.
    Swept {
        mount: MountId,
        /// False if the mount was lost meanwhile.
        complete: bool,
        /// Candidates met.
        files: u64,
        took: Duration,
        /// True if events should report its changes but some directories are not watched, so that it is swept each
        /// `poll_interval`.
        unwatched: bool,
    },
    Notice(TreeNotice),
}

/// A fact that an operator may want to read in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeNotice {
    #[error("watching {directory} with {backend}")]
    Watching {
        directory: PathBuf,
        backend: &'static str,
    },
    #[error(
        "polling {directory} every {seconds} s: {reason}",
        seconds = interval.as_secs_f64()
    )]
    Polling {
        directory: PathBuf,
        reason: String,
        interval: Duration,
    },
    #[error(
        "{directory} was replaced by another directory: comparing its contents with the previous ones"
    )]
    Replaced { directory: PathBuf },
    #[error(
        "cannot watch more directories: {limit}; until then the tree is polled every {seconds} s",
        seconds = interval.as_secs_f64()
    )]
    WatchesRanOut {
        limit: SystemLimit,
        interval: Duration,
    },
    #[error("the kernel's event queue overflowed; rescanning everything")]
    Overflow,
    #[error("cannot watch {directory}: {reason}")]
    Unwatchable { directory: PathBuf, reason: String },
    #[error("cannot read the directory {directory}: {reason}")]
    Unreadable { directory: PathBuf, reason: String },
    #[error("the directory {directory} can be read again")]
    Readable { directory: PathBuf },
    #[error("not following the link {link}: it leads back to a directory above it")]
    Loop { link: PathBuf },
    #[error("not entering {directory}: it is {above} again, reached through a link")]
    Circle { directory: PathBuf, above: PathBuf },
    #[error("not following the link {link} and others like it: too many links on the way there")]
    LinkTooDeep { link: PathBuf },
    #[error(
        "not following the link {link} and others: links lead to {directories} directories already"
    )]
    TooManyLinked { link: PathBuf, directories: usize },
    #[error(
        "cannot read events any more: {reason}; polling the tree every {seconds} s",
        seconds = interval.as_secs_f64()
    )]
    EventsEnded { reason: String, interval: Duration },
}

impl TreeNotice {
    /// Returns true if an operator should look at it.
    pub fn is_warning(&self) -> bool {
        !matches!(
            self,
            TreeNotice::Watching { .. }
                | TreeNotice::Polling { .. }
                | TreeNotice::Readable { .. }
                | TreeNotice::Replaced { .. }
        )
    }
}

/// Reason why a tree cannot be watched at all.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("cannot start {backend}")]
    Backend {
        backend: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("cannot start the thread that watches the tree")]
    Thread { source: io::Error },
}

/// Longest wait for a thread that was told to stop: on a dead network mount it may hang for ever.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A source's tree that is watched until this is dropped.
#[derive(Debug)]
pub struct TreeHandle {
    /// Hints for the observer, and their number.
    pub hints: Arc<PendingHints>,
    observer: JoinHandle<()>,
}

impl TreeHandle {
    /// Starts to watch, and calls `report` on a thread of its own. `report` may block, hints are kept meanwhile; it
    /// returns `Break` to end the watching. Dropping the tree waits for it to return, but not for long.
    pub fn watch(
        settings: TreeSettings,
        known: KnownFiles,
        report: impl FnMut(TreeReport) -> ControlFlow<()> + Send + 'static,
    ) -> Result<TreeHandle, TreeError> {
        let hints = Arc::new(PendingHints::new(settings.candidates.clone()));
        let watches = Watches::start(&settings, &hints)?;
        let observe = move || Observer::new(settings, known, watches, report).run();
        let thread = std::thread::Builder::new().name("tree".into());
        let observer = thread
            .spawn(observe)
            .map_err(|source| TreeError::Thread { source })?;
        Ok(TreeHandle { hints, observer })
    }

    /// Asks for a fresh look at each path. It is answered by an observation, even when nothing changed; but a
    /// path that is [no candidate](CandidateGlobs::accepts) is not answered.
    pub fn request_looks(&self, paths: Vec<DocumentPath>) {
        self.hints
            .add_and_wake(|batch| batch.requested.extend(paths));
    }

    /// Asks why there is no document at each path: [`Event::Explained`] answers, in time.
    pub fn request_explanations(&self, paths: Vec<DocumentPath>) {
        self.hints
            .add_and_wake(|batch| batch.questions.extend(paths));
    }

    /// Asks for a sweep of all mounts, now.
    pub fn request_sweep(&self) {
        self.hints.add_and_wake(|batch| batch.sweep = true);
    }
}

impl Drop for TreeHandle {
    fn drop(&mut self) {
        self.hints.add_and_wake(|batch| batch.stop = true);
        let end = Instant::now() + STOP_TIMEOUT;
        while !self.observer.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Sweeps once, without watching, and reports on the calling thread. Returns how many directories the kernel
/// would be asked to watch.
pub fn sweep_once(
    settings: TreeSettings,
    report: impl FnMut(TreeReport) -> ControlFlow<()>,
) -> Result<usize, TreeError> {
    let mut observer = Observer::new(settings, KnownFiles::default(), Watches::none(), report);
    observer.sweep_once();
    Ok(observer.count_directories_to_watch())
}

/// Returns where a document lies in the file system.
pub fn file_path(plan: &Plan, path: &DocumentPath) -> Option<PathBuf> {
    let mut sources = plan.sources.iter();
    let mount = sources.find_map(|source| source.mount(path.mount))?;
    Some(join(&mount.directory, &path.below))
}

/// Locks a mutex, whatever became of a thread that held it: no invariant spans a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ops::ControlFlow;
    use std::path::Path;
    use std::time::Duration;

    use resourcesync::uri::Uri;

    use crate::tree::observer::Observer;
    use crate::tree::watches::Watches;
    use crate::tree::{KnownFiles, ListKeyCache, TreeReport, TreeSettings, WatchMode};
    use announce::candidates::CandidateGlobs;
    use announce::observation::MountId;
    use announce::plan::MountPlan;

    /// Settings of a tree of XML files that nothing settles in, and that is looked at once an hour.
    pub fn settings(directory: &Path) -> TreeSettings {
        let hour = Duration::from_secs(3600);
        TreeSettings {
            mounts: vec![MountPlan {
                id: MountId(0),
                directory: directory.to_owned(),
                prefix: Uri::parse("https://example.org/").unwrap(),
                aliases: Vec::new(),
            }],
            candidates: CandidateGlobs::new(vec!["**/*.xml".to_owned()], Vec::new()).unwrap(),
            watch: WatchMode::Poll,
            rescan_interval: hour,
            poll_interval: hour,
            settle: hour,
            open_writer: Duration::ZERO,
            recent_keys: ListKeyCache::default(),
        }
    }

    /// An observer that begins to sweep a tree.
    pub fn observer<'a>(root: &Path, reports: &'a RefCell<Vec<TreeReport>>) -> Observer<'a> {
        let known = KnownFiles::default();
        let mut observer = Observer::new(settings(root), known, Watches::none(), move |report| {
            reports.borrow_mut().push(report);
            ControlFlow::Continue(())
        });
        // As if nothing was written since the mount was found.
        observer.is_one_shot = true;
        observer.check_mounts();
        observer
    }
}

//! Queue of what is looked at next. Hints and timers ask for directories to list, files to read now or later, and paths
//! to explain; each directory and each file waits at most once. A sweep lists every directory of a mount and looks at
//! every candidate that changed: hints only make its results known earlier.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use announce::event::Event;
use announce::observation::{DocumentPath, Found, Incomplete};

use crate::tree::TreeReport;
use crate::tree::file_reading::MAX_AT_ONCE;
use crate::tree::model::{DirectorySlot, FileSlot};
use crate::tree::mount::{TreeMount, UnmetFile};
use crate::tree::observer::Observer;

/// Shortest time between two reports of a sweep's progress: often enough for somebody who watches a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// A sweep that goes on. The first one of a mount reads as soon as it has met files enough to read at once, so that who takes
/// its reports has work early; others list all directories first, so that what changed together is read together.
///
/// The queues keep the numbers of entries that were removed since, which others may have by now: each is looked up when
/// it is taken.
#[derive(Debug)]
pub struct Sweep {
    pub directories: VecDeque<DirectorySlot>,
    /// Files to be read before the sweep is done.
    pub files: VecDeque<FileSlot>,
    /// Files that changed too shortly before to be read yet, and when they may be: the first sweep of a
    /// mount waits for them, so that a tree that was just written has a whole baseline (R13).
    pub unsettled: VecDeque<(FileSlot, Instant)>,
    /// Number of candidates met.
    pub met: u64,
    pub started: Instant,
    /// Time of the last report of progress.
    reported: Instant,
}

impl Sweep {
    pub fn new() -> Sweep {
        let now = Instant::now();
        Sweep {
            directories: VecDeque::new(),
            files: VecDeque::new(),
            unsettled: VecDeque::new(),
            met: 0,
            started: now,
            reported: now,
        }
    }

    /// Begins with a root, be it again: what is still to be read is read.
    pub fn begin(&mut self, root: DirectorySlot) {
        self.directories = VecDeque::from([root]);
        (self.met, self.reported) = (0, Instant::now());
    }

    /// Returns when it can go on; nothing if it can at once, because there is more to do than wait.
    pub fn goes_on_at(&self) -> Option<Instant> {
        let only_waits = self.files.is_empty() && self.directories.is_empty();
        let next = self.unsettled.front().filter(|_| only_waits);
        next.map(|(_, at)| *at)
    }

    pub fn can_go_on(&self) -> bool {
        self.goes_on_at().is_none_or(|at| at <= Instant::now())
    }
}

impl Observer<'_> {
    /// Performs one step of a sweep. Returns false if there is none to perform.
    pub fn continue_sweep(&mut self) -> bool {
        let has_work = |mount: &TreeMount| mount.sweep.as_ref().is_some_and(Sweep::can_go_on);
        let Some(at) = self.mounts.iter().position(has_work) else {
            return false;
        };
        let mount = &mut self.mounts[at];
        let was_swept = mount.was_swept;
        let Some(sweep) = &mut mount.sweep else {
            return false;
        };
        if sweep.reported.elapsed() >= PROGRESS_INTERVAL {
            sweep.reported = Instant::now();
            let (mount, files) = (mount.id, sweep.met);
            self.send(TreeReport::Sweeping { mount, files });
        } else if (was_swept || sweep.files.len() < MAX_AT_ONCE)
            && let Some(id) = sweep.directories.pop_front()
        {
            self.list_directory(id, Depth::Sweep);
        } else if !sweep.files.is_empty() {
            self.read_next_sweep_files(at);
        } else if let Some((id, _)) = sweep.unsettled.pop_front() {
            self.read_if_due(id);
        } else {
            self.end_sweep(at, true);
        }
        true
    }

    /// Ends the sweep of a mount; an incomplete one proves nothing about files that it did not meet.
    pub fn end_sweep(&mut self, at: usize, complete: bool) {
        let Some(sweep) = self.mounts[at].sweep.take() else {
            return;
        };
        if complete {
            if !self.mounts[at].was_swept {
                self.mounts[at].nested.ends_sweep = true;
            }
            let unseen = self.unreachable_paths(at);
            self.report_unmet(at, &unseen);
            // Requests about a root that went are answered once another is swept, or none is there.
            for path in std::mem::take(&mut self.mounts[at].requested) {
                self.answer_look_request(path, true);
            }
        }
        self.report_unreadable();
        let gives_hints = self.mount_gives_hints(at);
        let mount = &mut self.mounts[at];
        mount.end_sweep(complete, gives_hints, &self.settings);
        let (id, candidates) = (mount.id, sweep.met);
        let report = TreeReport::Swept {
            mount: id,
            complete,
            files: candidates,
            took: sweep.started.elapsed(),
            unwatched: self.settings.watch.trusts(mount.file_system) && mount.is_polled,
        };
        self.send(report);
        self.reports.send(TreeReport::Event(Event::Swept {
            mount: id,
            complete,
            candidates,
        }));
    }

    /// Returns the paths in a mount beneath which nothing can be known, and why.
    fn unreachable_paths(&self, at: usize) -> HashMap<Vec<u8>, &'static str> {
        let denials = self.mounts[at].unreadable.denials.values();
        let denied = denials.map(|it| (it.directory.below.clone(), "its directory cannot be read"));
        let links = self.unfollowed_links(at).into_iter();
        let refused = links.map(|below| (below, "it lies behind a link that is not followed"));
        denied.chain(refused).collect()
    }

    /// Reports files of an earlier run that this sweep did not meet: they are missing, unless they are unreachable. That is
    /// reported once of each, and it stays unmet.
    fn report_unmet(&mut self, at: usize, unseen: &HashMap<Vec<u8>, &str>) {
        let mount = &mut self.mounts[at];
        for (below, file) in std::mem::take(&mut mount.unmet) {
            let ends = (0..below.len()).filter(|&end| below[end] == b'/');
            let reason = ends.filter_map(|end| unseen.get(&below[..end])).next();
            let path = mount.document_path(&below);
            let Some(reason) = reason else {
                self.reports.observe_missing(path, file);
                continue;
            };
            if !matches!(file, UnmetFile::Unreachable) {
                let reason = Incomplete::Denied((*reason).to_owned());
                self.reports.observe(path, Found::Incomplete(reason));
            }
            mount.unmet.insert(below, UnmetFile::Unreachable);
        }
    }
}

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

/// Directories and files that go before any sweep, files whose time is still to come, and questions, which come last.
#[derive(Debug, Default)]
pub struct UrgentWorkQueue {
    pub directories: VecDeque<DirectorySlot>,
    depths: HashMap<DirectorySlot, Depth>,
    pub files: VecDeque<FileSlot>,
    /// The files in `files` that still exist and still wait.
    waiting_files: HashSet<FileSlot>,
    /// When files are queued without a hint.
    pub times: BTreeSet<(Instant, FileSlot)>,
    /// The same by file.
    due: HashMap<FileSlot, Instant>,
    /// Paths to explain when there is nothing else to do.
    pub questions: VecDeque<DocumentPath>,
}

impl UrgentWorkQueue {
    /// Queues a directory, or makes the listing that it waits for deeper.
    pub fn push_directory(&mut self, id: DirectorySlot, depth: Depth) {
        if let Some(queued) = self.depths.get_mut(&id) {
            *queued = depth.max(*queued);
        } else {
            self.depths.insert(id, depth);
            self.directories.push_back(id);
        }
    }

    pub fn push_file(&mut self, id: FileSlot) {
        if self.waiting_files.insert(id) {
            self.files.push_back(id);
        }
    }

    /// Queues a file at some time, in place of any other time set for it.
    pub fn push_file_after(&mut self, id: FileSlot, after: Duration) {
        self.clear_timer(id);
        let at = Instant::now() + after;
        self.due.insert(id, at);
        self.times.insert((at, id));
    }

    /// Forgets the time at which a file was to be queued.
    pub fn clear_timer(&mut self, id: FileSlot) {
        if let Some(at) = self.due.remove(&id) {
            self.times.remove(&(at, id));
        }
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

    /// Takes the next directory to list.
    pub fn pop_directory(&mut self) -> Option<(DirectorySlot, Depth)> {
        let depths = &mut self.depths;
        let mut ids = std::iter::from_fn(|| self.directories.pop_front());
        ids.find_map(|id| Some((id, depths.remove(&id)?)))
    }

    /// Takes the next file to read.
    pub fn pop_file(&mut self) -> Option<FileSlot> {
        std::iter::from_fn(|| self.files.pop_front()).find(|id| self.waiting_files.remove(id))
    }

    /// Forgets a directory that is gone: its number may be used again.
    pub fn forget_directory(&mut self, id: DirectorySlot) {
        self.depths.remove(&id);
    }

    /// Forgets a file that is gone: its number may be used again.
    pub fn forget_file(&mut self, id: FileSlot) {
        self.waiting_files.remove(&id);
        self.clear_timer(id);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::fs;
    use std::time::{Duration, Instant};

    use crate::tree::TreeReport;
    use crate::tree::file_reading::MAX_AT_ONCE;
    use crate::tree::model::{DirectorySlot, FileSlot};
    use crate::tree::mount::UnmetFile;
    use crate::tree::observer::Observer;
    use crate::tree::sweep::{Depth, PROGRESS_INTERVAL, Sweep, UrgentWorkQueue};
    use crate::tree::tests::observer;
    use announce::event::Event;
    use announce::observation::{Found, Incomplete};

    /// A tree of `a.xml` and `deep/b.xml`, which were just written.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("deep")).unwrap();
        for name in ["a.xml", "deep/b.xml"] {
            fs::write(root.path().join(name), "<urlset/>").unwrap();
        }
        root
    }

    /// The numbers of directories to list, of files to read, and of files to wait for.
    fn left(observer: &Observer<'_>) -> Option<[usize; 3]> {
        let sweep = observer.mounts[0].sweep.as_ref()?;
        let (directories, files) = (sweep.directories.len(), sweep.files.len());
        Some([directories, files, sweep.unsettled.len()])
    }

    fn sweep<'a>(observer: &'a mut Observer<'_>) -> &'a mut Sweep {
        observer.mounts[0].sweep.as_mut().unwrap()
    }

    #[test]
    fn a_sweep_lists_directories_then_reads_then_waits_for_files_to_settle() {
        let (root, reports) = (tree(), RefCell::default());
        let mut observer = observer(root.path(), &reports);
        for want in [[1, 0, 0], [1, 1, 0], [0, 2, 0], [0, 0, 2]] {
            assert_eq!(left(&observer), Some(want));
            let goes_on = observer.continue_sweep();
            assert_eq!(goes_on, want != [0, 0, 2]);
        }
        let at = sweep(&mut observer).goes_on_at();
        assert!(at.is_some_and(|at| at > Instant::now()) && !sweep(&mut observer).can_go_on());
        let is_progress = |report: &TreeReport| matches!(report, TreeReport::Sweeping { .. });
        assert!(!reports.borrow().iter().any(is_progress));
        let (now, waiting) = (Instant::now(), sweep(&mut observer));
        waiting.unsettled.iter_mut().for_each(|it| it.1 = now);
        waiting.reported = now.checked_sub(PROGRESS_INTERVAL).unwrap();
        assert!(observer.continue_sweep());
        let is_progress = |it: &TreeReport| matches!(it, TreeReport::Sweeping { files: 2, .. });
        assert!(reports.borrow().last().is_some_and(is_progress));
        for want in [Some([0, 0, 2]), Some([0, 0, 1]), Some([0, 0, 0]), None] {
            assert_eq!(left(&observer), want);
            assert_eq!(observer.continue_sweep(), want.is_some());
        }
        let is_end = |report: &TreeReport| matches!(report, TreeReport::Swept { .. });
        assert!(reports.borrow().iter().any(is_end));
    }

    #[test]
    fn a_sweep_reads_before_it_lists_on_once_there_are_files_enough() {
        let (root, reports) = (tree(), RefCell::default());
        let mut observer = observer(root.path(), &reports);
        assert!(observer.continue_sweep());
        let files = &mut sweep(&mut observer).files;
        *files = vec![files[0]; MAX_AT_ONCE].into();
        assert!(observer.continue_sweep());
        assert_eq!(left(&observer), Some([1, 0, MAX_AT_ONCE]));
    }

    #[test]
    fn a_sweep_that_begins_again_keeps_the_files_that_it_has_met() {
        let (root, reports) = (tree(), RefCell::default());
        let mut observer = observer(root.path(), &reports);
        assert!(observer.continue_sweep());
        let started = sweep(&mut observer).started;
        assert_eq!(left(&observer), Some([1, 1, 0]));
        assert_eq!(sweep(&mut observer).met, 1);
        observer.mounts[0].begin_sweep();
        let again = sweep(&mut observer);
        assert!(again.met == 0 && again.started == started);
        let root = observer.mounts[0].root;
        assert_eq!(sweep(&mut observer).directories, [root]);
        assert_eq!(left(&observer), Some([1, 1, 0]));
    }

    #[test]
    fn an_unmet_file_is_missing_unless_nothing_can_be_known_about_it() {
        let (root, reports) = (tree(), RefCell::default());
        let mut observer = observer(root.path(), &reports);
        let unmet = ["a.xml", "shut/b.xml", "shutter/c.xml"]
            .map(|below| (below.as_bytes().into(), UnmetFile::Unread));
        observer.mounts[0].unmet = HashMap::from(unmet);
        let mut observed = |unseen| {
            observer.report_unmet(0, unseen);
            observer.reports.missing.clear();
            observer.flush();
            let reports = reports.take().into_iter();
            let batches = reports.filter_map(|report| match report {
                TreeReport::Event(Event::Observed(batch)) => Some(batch),
                _ => None,
            });
            let looks = batches
                .flatten()
                .map(|it| (it.path.below.to_vec(), it.look));
            let mut looks = Vec::from_iter(looks);
            looks.sort_by(|(one, _), (other, _)| one.cmp(other));
            looks
        };
        let reason = "its directory cannot be read";
        let unseen = HashMap::from([(b"shut".to_vec(), reason)]);
        let denied = Found::Incomplete(Incomplete::Denied(reason.to_owned()));
        let want = [
            (b"a.xml".to_vec(), Found::Missing),
            (b"shut/b.xml".to_vec(), denied),
            (b"shutter/c.xml".to_vec(), Found::Missing),
        ];
        assert_eq!(observed(&unseen), want);
        // It is reported once, and missing as soon as its directory can be read without it.
        assert_eq!(observed(&unseen), []);
        let want = [(b"shut/b.xml".to_vec(), Found::Missing)];
        assert_eq!(observed(&HashMap::new()), want);
    }

    #[test]
    fn a_directory_waits_once_and_as_deep_as_was_asked() {
        let (mut queue, root) = (UrgentWorkQueue::default(), DirectorySlot(0));
        queue.push_directory(root, Depth::Subtree);
        queue.push_directory(root, Depth::Directory);
        assert_eq!(queue.pop_directory(), Some((root, Depth::Subtree)));
        assert_eq!(queue.pop_directory(), None);
    }

    #[test]
    fn what_is_gone_is_not_taken_for_another_with_its_number() {
        let (mut queue, file, directory) =
            (UrgentWorkQueue::default(), FileSlot(0), DirectorySlot(0));
        queue.push_directory(directory, Depth::Subtree);
        queue.forget_directory(directory);
        queue.push_directory(directory, Depth::Directory);
        let listed = Some((directory, Depth::Directory));
        assert_eq!(queue.pop_directory(), listed);
        assert_eq!(queue.pop_directory(), None);
        queue.push_file(file);
        queue.forget_file(file);
        queue.push_file(file);
        assert_eq!(queue.pop_file(), Some(file));
        assert_eq!(queue.pop_file(), None);
    }

    #[test]
    fn only_the_last_time_set_for_a_file_counts() {
        let [first, second] = [FileSlot(0), FileSlot(1)];
        let mut queue = UrgentWorkQueue::default();
        let later = Duration::from_secs(60);
        queue.push_file_after(first, Duration::ZERO);
        queue.push_file_after(first, later);
        queue.push_file_after(second, Duration::ZERO);
        queue.clear_timer(second);
        queue.push_due_files(Instant::now());
        assert_eq!(queue.pop_file(), None);
        queue.push_due_files(Instant::now() + later);
        assert_eq!(queue.pop_file(), Some(first));
        assert_eq!(queue.pop_file(), None);
    }
}

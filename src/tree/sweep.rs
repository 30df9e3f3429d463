//! A sweep lists every directory of a mount and looks at every candidate that changed: hints only make its results
//! known earlier.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::tree::TreeReport;
use crate::tree::model::{DirectoryId, FileId};
use crate::tree::mount::{TreeMount, UnmetFile};
use crate::tree::observer::Observer;
use crate::tree::work_queue::Depth;
use announce::event::Event;
use announce::observation::{Incomplete, Look};

/// Shortest time between two reports of a sweep's progress: often enough for somebody who watches a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// A sweep that goes on. All directories are listed first: changes in a watched directory need not settle.
///
/// The queues keep the numbers of entries that were removed since, which others may have by now: each is looked up when
/// it is taken.
#[derive(Debug)]
pub struct Sweep {
    pub directories: VecDeque<DirectoryId>,
    /// Files to be read before the sweep is done.
    pub files: VecDeque<FileId>,
    /// Files that changed too shortly before to be read yet, and when they may be: the first sweep of a
    /// mount waits for them, so that a tree that was just written has a whole baseline (R13).
    pub unsettled: VecDeque<(FileId, Instant)>,
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
    pub fn begin(&mut self, root: DirectoryId) {
        self.directories = VecDeque::from([root]);
        (self.met, self.reported) = (0, Instant::now());
    }

    /// Returns when it can go on; nothing if it can at once, because there is more to do than wait.
    pub fn goes_on_at(&self) -> Option<Instant> {
        if self.files.is_empty() && self.directories.is_empty() {
            self.unsettled.front().map(|(_, at)| *at)
        } else {
            None
        }
    }

    pub fn has_work(&self) -> bool {
        self.goes_on_at().is_none_or(|at| at <= Instant::now())
    }
}

impl Observer<'_> {
    /// Performs one step of a sweep. Returns false if there is none to perform.
    pub fn continue_sweep(&mut self) -> bool {
        let has_work = |mount: &TreeMount| mount.sweep.as_ref().is_some_and(Sweep::has_work);
        let Some(at) = self.mounts.iter().position(has_work) else {
            return false;
        };
        let mount = &mut self.mounts[at];
        let Some(sweep) = &mut mount.sweep else {
            return false;
        };
        if sweep.reported.elapsed() >= PROGRESS_INTERVAL {
            sweep.reported = Instant::now();
            let (mount, files) = (mount.id, sweep.met);
            self.send(TreeReport::Sweeping { mount, files });
        } else if let Some(id) = sweep.directories.pop_front() {
            self.list(id, Depth::Sweep);
        } else if !sweep.files.is_empty() {
            self.read_next_of_sweep(at);
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
            if !self.mounts[at].was_swept() {
                self.mounts[at].nested.ends_sweep = true;
            }
            let unseen = self.unseen(at);
            self.report_unmet(at, &unseen);
            // Requests about a root that went are answered once another is swept, or none is there.
            for path in std::mem::take(&mut self.mounts[at].requested) {
                self.answer_request(path, true);
            }
        }
        self.report_unreadable();
        let gives_hints = self.gives_hints(at);
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
    fn unseen(&self, at: usize) -> HashMap<Vec<u8>, &'static str> {
        let denied = self.mounts[at].unreadable.by_path(&self.model).into_keys();
        let denied = denied.map(|below| (below, "its directory cannot be read"));
        let refused = self.unfollowed_links(at).into_iter();
        let refused = refused.map(|below| (below, "it lies behind a link that is not followed"));
        denied.chain(refused).collect()
    }

    /// Reports files of an earlier run that this sweep did not meet: they are missing, unless they are unreachable. That is
    /// reported once of each, and it stays unmet.
    fn report_unmet(&mut self, at: usize, unseen: &HashMap<Vec<u8>, &str>) {
        let mount = &mut self.mounts[at];
        for (below, file) in std::mem::take(&mut mount.unmet) {
            let ends = (0..below.len()).filter(|&end| below[end] == b'/');
            let reason = ends.filter_map(|end| unseen.get(&below[..end])).next();
            let path = mount.path(&below);
            let Some(reason) = reason else {
                self.reports.observe_missing(path, file);
                continue;
            };
            if !matches!(file, UnmetFile::Unreachable) {
                let reason = Incomplete::Denied((*reason).to_owned());
                self.reports.observe(path, Look::Incomplete(reason));
            }
            mount.unmet.insert(below, UnmetFile::Unreachable);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::fs;
    use std::time::Instant;

    use crate::tree::TreeReport;
    use crate::tree::mount::UnmetFile;
    use crate::tree::observer::Observer;
    use crate::tree::sweep::{PROGRESS_INTERVAL, Sweep};
    use crate::tree::tests::observer;
    use announce::event::Event;
    use announce::observation::{Incomplete, Look};

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
    fn a_sweep_lists_all_directories_then_reads_then_waits_for_files_to_settle() {
        let (root, reports) = (tree(), RefCell::default());
        let mut observer = observer(root.path(), &reports);
        for want in [[1, 0, 0], [1, 1, 0], [0, 2, 0], [0, 0, 2]] {
            assert_eq!(left(&observer), Some(want));
            let goes_on = observer.continue_sweep();
            assert_eq!(goes_on, want != [0, 0, 2]);
        }
        let at = sweep(&mut observer).goes_on_at();
        assert!(at.is_some_and(|at| at > Instant::now()) && !sweep(&mut observer).has_work());
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
        let unmet = ["a.xml", "shut/b.xml", "shutter/c.xml"];
        let unmet = unmet.map(|below| (below.as_bytes().into(), UnmetFile::Unread));
        observer.mounts[0].unmet = HashMap::from(unmet);
        let mut observed = |unseen| {
            observer.report_unmet(0, unseen);
            observer.reports.missing.clear();
            observer.reports.flush();
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
        let denied = Look::Incomplete(Incomplete::Denied(reason.to_owned()));
        let want = [
            (b"a.xml".to_vec(), Look::Missing),
            (b"shut/b.xml".to_vec(), denied),
            (b"shutter/c.xml".to_vec(), Look::Missing),
        ];
        assert_eq!(observed(&unseen), want);
        // It is reported once, and missing as soon as its directory can be read without it.
        assert_eq!(observed(&unseen), []);
        let want = [(b"shut/b.xml".to_vec(), Look::Missing)];
        assert_eq!(observed(&HashMap::new()), want);
    }
}

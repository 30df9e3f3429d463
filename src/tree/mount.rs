//! A mount of the settings: its root while it is there, what was known of it before, and the sweep that goes on; what is
//! reported and looked at again when it is found, replaced or lost; its directories that could not be read, when each is tried
//! again, and what is reported of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::mem::{self, Discriminant};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use announce::candidates::MountUrlPath;
use announce::event::Event;
use announce::observation::{DocumentPath, FileId, Incomplete, MountId, Stat, UnreadableDirectory};
use announce::plan::MountPlan;
use jiff::{SignedDuration, Timestamp};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::diagnostics::machine::{DeniedOrAbsent, access_remedy};
use crate::tree::file::{LastRead, LastReport};
use crate::tree::file_status::{self, FileSystemTraits, file_system};
use crate::tree::model::{DirectorySlot, DirectoryState};
use crate::tree::nested_directories::NestedDirectories;
use crate::tree::observer::Observer;
use crate::tree::sweep::Sweep;
use crate::tree::watches::{NameWatch, NameWatchReason};
use crate::tree::{TreeNotice, TreeReport, TreeSettings};

/// Maximum time that the kernel's coarse clock stands still.
const TICK: SignedDuration = SignedDuration::from_millis(10);

/// Time that a root may be away while it is replaced, before it is reported as lost.
const SWAPPED_WITHIN: Duration = Duration::from_millis(500);

/// A mount of the settings.
#[derive(Debug, Default)]
pub struct TreeMount {
    pub id: MountId,
    pub directory: PathBuf,
    pub published: MountUrlPath,
    pub root: DirectorySlot,
    /// Identity of the root while it is there.
    pub found: Option<FileId>,
    /// Time when it was found, by the exact clock.
    found_at: Timestamp,
    /// True if it was swept to its end since it was found.
    pub was_swept: bool,
    /// While none is found.
    pub absence: RootAbsence,
    /// File system of the root that was found last.
    pub file_system: FileSystemTraits,
    /// The watch of the root's name in the directory that holds it.
    pub parent_watch: Option<NameWatch>,
    /// True if some directory of it gives no hints, so that it is swept at the shorter interval.
    pub is_polled: bool,
    /// True if a directory of it could not be watched in the sweep that goes on.
    has_unwatched: bool,
    pub sweep: Option<Sweep>,
    /// Time of the next sweep; nothing before the first one has ended.
    pub next_sweep: Option<Instant>,
    /// Files read by an earlier run, or lost with the mount, that have not been met yet, by their path below it.
    pub unmet: HashMap<Arc<[u8]>, UnmetFile>,
    /// Paths to report on that a sweep may still meet.
    pub requested: HashSet<DocumentPath>,
    pub unreadable: UnreadableDirectories,
    pub nested: NestedDirectories,
    /// Number of directories that were reached through links.
    pub linked: usize,
    /// Kinds of refusals of links that were reported.
    pub refusals: HashSet<Discriminant<TreeNotice>>,
}

/// The absence of a mount's root.
#[derive(Debug, Default)]
pub struct RootAbsence {
    pub reason: String,
    is_reported: bool,
    /// Time when the root went that was there.
    since: Option<Instant>,
}

/// A file that was there before and that no sweep has met.
#[derive(Debug, Clone, Copy, Default)]
pub enum UnmetFile {
    /// Unchanged, it is not read again.
    Read(LastRead),
    #[default]
    Unread,
    /// It was reported as unreachable: once it can be reached, it is reported again.
    Unreachable,
}

impl TreeMount {
    pub fn new(
        plan: &MountPlan,
        root: DirectorySlot,
        unmet: HashMap<Arc<[u8]>, UnmetFile>,
    ) -> TreeMount {
        TreeMount {
            id: plan.id,
            directory: plan.directory.clone(),
            published: plan.url_path(),
            root,
            unmet,
            ..TreeMount::default()
        }
    }

    /// Returns the identity of the root that is there now, or why there is none that can be listed.
    pub fn root_identity(&self) -> Result<FileId, String> {
        let unreadable = |error| unreadable_root(&self.directory, &error);
        let status =
            file_status::of_path(&self.directory).map_err(|error| unreadable(error.into()))?;
        if status.kind != FileType::Directory {
            return Err("it is not a directory".into());
        }
        // While it cannot be listed, it is not there.
        if self.found != Some(status.identity) {
            std::fs::read_dir(&self.directory).map_err(unreadable)?;
        }
        Ok(status.identity)
    }

    /// Takes note that its root is there.
    pub fn mark_found(&mut self, identity: FileId, at: Timestamp, file_system: FileSystemTraits) {
        (self.found, self.found_at, self.was_swept) = (Some(identity), at, false);
        self.absence = RootAbsence::default();
        self.file_system = file_system;
    }

    /// Takes note of why it is absent; `was_present` if it was there until now. Returns true if that is to be reported:
    /// once for each reason, and not while another root may be about to take its place.
    pub fn mark_lost(&mut self, reason: &str, was_present: bool, now: Instant) -> bool {
        if was_present {
            self.absence.since = Some(now);
        }
        let is_known = self.absence.is_reported && self.absence.reason == reason;
        let is_to_be_reported = !is_known && !self.awaits_new_root(now);
        self.absence.reason = reason.to_owned();
        self.absence.is_reported |= is_to_be_reported;
        is_to_be_reported
    }

    /// Returns true if its root went so shortly before that another may be about to take its place.
    pub fn awaits_new_root(&self, now: Instant) -> bool {
        let since = self.absence.since;
        since.is_some_and(|since| now.saturating_duration_since(since) < SWAPPED_WITHIN)
    }

    /// Takes note of the end of its sweep, and sets the time of the next one: `poll_interval` from now if some directory
    /// gives no hints, else `rescan_interval`.
    pub fn end_sweep(&mut self, complete: bool, gives_hints: bool, settings: &TreeSettings) {
        self.was_swept |= complete;
        self.is_polled = !gives_hints || self.has_unwatched;
        let interval = if self.is_polled {
            settings.poll_interval
        } else {
            settings.rescan_interval
        };
        self.next_sweep = Some(Instant::now() + interval);
    }

    /// Returns true if a file changed after this mount was found, as far as its clock is ours and tells.
    pub fn is_changed_since_mount_found(&self, stat: &Stat) -> bool {
        let is_comparable = self.found.is_some() && self.file_system.is_local;
        is_comparable && stat.changed.duration_since(self.found_at) > TICK
    }

    /// Takes note that a directory could not be watched. Returns true if it is the first one in this sweep.
    pub fn lack_watch(&mut self) -> bool {
        !mem::replace(&mut self.has_unwatched, true)
    }

    /// Takes note that a directory must be polled, and so all of it. Returns true if it was not polled before.
    pub fn mark_polled(&mut self) -> bool {
        self.has_unwatched = true;
        !mem::replace(&mut self.is_polled, true)
    }

    /// Sweeps it, or does so from the beginning if it is being swept.
    pub fn begin_sweep(&mut self) {
        if self.found.is_some() {
            self.has_unwatched = false;
            self.sweep.get_or_insert_with(Sweep::new).begin(self.root);
        }
    }

    pub fn document_path(&self, below: &[u8]) -> DocumentPath {
        DocumentPath {
            mount: self.id,
            below: below.into(),
        }
    }

    /// Makes the next sweep begin no later than this.
    pub fn sweep_by(&mut self, at: Instant) {
        self.next_sweep = self.next_sweep.min(Some(at));
    }
}

impl Observer<'_> {
    pub fn check_mounts(&mut self) {
        for at in 0..self.mounts.len() {
            self.check_mount(at);
        }
    }

    /// Finds out whether a mount is there, and whether it is the same as before.
    pub fn check_mount(&mut self, at: usize) {
        // Watched to notice at once when another takes its place.
        let (mount, named) = (&mut self.mounts[at], NameWatchReason::Mount(at));
        let watch = self.watches.add_name(&mount.directory, named);
        let before = mem::replace(&mut mount.parent_watch, watch);
        if let Some(before) = before.filter(|before| Some(before) != mount.parent_watch.as_ref()) {
            self.watches.remove_name(&before, named);
        }
        match mount.root_identity() {
            Ok(identity) if mount.found == Some(identity) => {}
            Ok(identity) => self.mark_mount_found(at, identity),
            Err(reason) => self.mark_mount_lost(at, &reason),
        }
    }

    /// Takes note that the root of a mount is not there, and reports why: once for each reason, and not while another root may
    /// be about to take its place.
    pub fn mark_mount_lost(&mut self, at: usize, reason: &str) {
        let was_present = self.forget_mount_root(at);
        let now = Instant::now();
        if was_present {
            // A link may be removed before its replacement is there.
            self.heartbeat = self.heartbeat.min(now + SWAPPED_WITHIN);
        }
        let mount = &mut self.mounts[at];
        let reason = format!("{}: {reason}", mount.directory.display());
        let is_to_be_reported = mount.mark_lost(&reason, was_present, now);
        self.report_unreadable();
        if !is_to_be_reported {
            return;
        }
        let requested = mem::take(&mut self.mounts[at].requested);
        let mount = self.mounts[at].id;
        self.send(TreeReport::Event(Event::MountLost { mount, reason }));
        for path in requested {
            self.answer_look_request(path, true);
        }
    }

    /// Takes note that a root is gone, or another one is there. Returns true if there was one.
    fn forget_mount_root(&mut self, at: usize) -> bool {
        if self.mounts[at].found.take().is_none() {
            return false;
        }
        let was_swept = mem::take(&mut self.mounts[at].was_swept);
        // R15: what seemed to be missing there is withdrawn, before another root is found in its place.
        self.flush();
        self.end_sweep(at, false);
        for id in self.model.subtree(self.mounts[at].root) {
            self.unwatch(id);
            self.mounts[at].unreadable.remove(id);
            // R13: what a first sweep found that did not end is forgotten, and so reported again.
            for file in self.model.files_in(id) {
                if let Some(file) = self.model.file_mut(file).filter(|_| !was_swept) {
                    file.is_requested |= file.reported != LastReport::Nothing;
                    (file.reported, file.last_read) = (LastReport::Nothing, None);
                }
            }
        }
        let unmet = self.mounts[at].unmet.values_mut().filter(|_| !was_swept);
        unmet.for_each(|file| *file = UnmetFile::Unread);
        true
    }

    fn mark_mount_found(&mut self, at: usize, identity: FileId) {
        if self.forget_mount_root(at) {
            let directory = self.mounts[at].directory.clone();
            self.reports.notice(TreeNotice::Replaced { directory });
        }
        // The exact clock: that of `ctime` may stand still for long on a busy virtual machine, and a file that was
        // written before would seem to be written since.
        let started = Timestamp::now();
        let mount = &mut self.mounts[at];
        mount.mark_found(identity, started, file_system(&mount.directory));
        let mount = mount.id;
        self.send(TreeReport::Event(Event::MountFound {
            mount,
            identity,
            started,
        }));
        self.choose_watch_or_poll(at);
        self.mounts[at].begin_sweep();
    }
}

/// Returns why a root that cannot be read is not there for us, though it may be for others.
fn unreadable_root(root: &Path, error: &io::Error) -> String {
    let failure = match error.kind() {
        ErrorKind::PermissionDenied => Some(DeniedOrAbsent::Denied),
        ErrorKind::NotFound if root.parent().is_some_and(Path::exists) => {
            Some(DeniedOrAbsent::Absent)
        }
        ErrorKind::NotFound => Some(DeniedOrAbsent::ParentAbsent),
        _ => None,
    };
    match failure.and_then(|failure| access_remedy(root, failure)) {
        Some(remedy) => format!("{error}: {remedy}"),
        None => error.to_string(),
    }
}

/// Delay of the first retry, doubled each time, and the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Maximum directories of a mount that are reported by name. Those of a first sweep belong to the baseline later (R13).
const MAX_NAMED: usize = 1_000;

/// The directories of a mount that could not be read.
#[derive(Debug, Default)]
pub struct UnreadableDirectories {
    pub denials: BTreeMap<DirectorySlot, UnreadableRetry>,
    /// True if the last report is outdated.
    is_outdated: bool,
}

/// A directory that could not be read.
#[derive(Debug)]
pub struct UnreadableRetry {
    retry_at: Instant,
    tries: u8,
    pub directory: UnreadableDirectory,
}

impl UnreadableDirectories {
    /// Takes note that a directory could not be read. Returns true unless that is so once more.
    fn add(&mut self, id: DirectorySlot, mut directory: UnreadableDirectory) -> bool {
        let mut tries = 0;
        let before = self.denials.remove(&id);
        if let Some(before) = &before {
            (tries, directory.since) = (before.tries, before.directory.since);
        }
        self.is_outdated |=
            before.as_ref().map(|it| &it.directory.reason) != Some(&directory.reason);
        let after = FIRST_RETRY.saturating_mul(1 << tries.min(5));
        let denial = UnreadableRetry {
            retry_at: Instant::now() + after.min(LAST_RETRY),
            tries: tries.saturating_add(1),
            directory,
        };
        self.denials.insert(id, denial);
        before.is_none()
    }

    /// Takes note that a directory can be read, or is none any more. Returns true if it could not be read before.
    pub fn remove(&mut self, id: DirectorySlot) -> bool {
        let was_denied = self.denials.remove(&id).is_some();
        self.is_outdated |= was_denied;
        was_denied
    }

    /// Returns the directories to try again.
    pub fn due(&self, now: Instant) -> impl Iterator<Item = DirectorySlot> {
        let is_due = move |(_, it): &(&DirectorySlot, &UnreadableRetry)| it.retry_at <= now;
        self.denials.iter().filter(is_due).map(|(id, _)| *id)
    }
}

impl Observer<'_> {
    /// Takes note that a directory cannot be read: nothing beneath it is known, and nothing is missing (R15).
    pub fn mark_unreadable(&mut self, id: DirectorySlot, path: &Path, error: Errno) {
        let Some(directory) = self.model.directory_mut(id) else {
            return;
        };
        let at = directory.mount;
        if directory.parent.is_none() {
            let reason = unreadable_root(&self.mounts[at].directory, &error.into());
            return self.mark_mount_lost(at, &reason);
        }
        let before = std::mem::replace(&mut directory.state, DirectoryState::Denied);
        let reason = file_status::reason(error);
        let is_forbidden = matches!(error, Errno::ACCESS | Errno::PERM);
        let remedy = is_forbidden
            .then(|| access_remedy(path, DeniedOrAbsent::Denied))
            .flatten();
        if before != DirectoryState::Denied {
            self.reports.notice(TreeNotice::Unreadable {
                directory: path.to_owned(),
                reason: remedy.map_or(reason.clone(), |remedy| format!("{reason}: {remedy}")),
            });
        }
        let reported = UnreadableDirectory {
            below: self.model.path_in_mount(id),
            directory: path.display().to_string(),
            reason: reason.clone(),
            remedy: remedy.map(str::to_owned),
            since: Timestamp::now(),
        };
        if !self.mounts[at].unreadable.add(id, reported) {
            return;
        }
        for id in self.model.subtree(id) {
            for file in self.model.files_in(id) {
                self.report_incomplete(file, Incomplete::Denied(reason.clone()));
            }
        }
    }

    /// Takes note that a directory can be read, or is none any more. If it could not be read before, the mount is swept: what
    /// is written in its place from then on is new (R13).
    pub fn note_readable(&mut self, id: DirectorySlot, at: usize) {
        if self.mounts[at].unreadable.remove(id) {
            self.sweep_soon(at);
        }
    }

    /// Reports which directories may not be read, where the last report is outdated.
    pub fn report_unreadable(&mut self) {
        for at in 0..self.mounts.len() {
            let mount = &mut self.mounts[at];
            if !std::mem::take(&mut mount.unreadable.is_outdated) {
                continue;
            }
            let denials = mount.unreadable.denials.values();
            let mut reports: Vec<_> = denials.map(|it| &it.directory).collect();
            reports.sort_by(|one, other| one.below.cmp(&other.below));
            let named = reports.iter().take(MAX_NAMED).copied();
            let event = Event::Unreadable {
                mount: mount.id,
                directories: named.cloned().collect(),
                more: reports.len().saturating_sub(MAX_NAMED),
            };
            self.send(TreeReport::Event(event));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::fs;
    use std::time::{Duration, Instant};

    use jiff::{SignedDuration, Timestamp};

    use crate::tree::file_status::{FileSystemTraits, of_path};
    use crate::tree::model::{FileSlot, Model};
    use crate::tree::mount::{SWAPPED_WITHIN, TICK, TreeMount};
    use crate::tree::tests::{observer, settings};
    use crate::tree::{TreeReport, TreeSettings};
    use announce::event::Event;
    use announce::observation::{FileId, Stat};

    fn mount() -> TreeMount {
        let plan = &settings("/srv".as_ref()).mounts[0];
        let root = Model::default().add_root(0);
        TreeMount::new(plan, root, HashMap::new())
    }

    fn find(mount: &mut TreeMount, found: Timestamp, is_local: bool) {
        let file_system = FileSystemTraits {
            is_local,
            ..FileSystemTraits::default()
        };
        mount.mark_found(
            FileId {
                device: 1,
                inode: 1,
            },
            found,
            file_system,
        );
    }

    #[test]
    fn a_loss_is_reported_once_for_each_reason() {
        let (mut mount, now) = (mount(), Instant::now());
        for (reason, is_news) in [("gone", true), ("gone", false), ("denied", true)] {
            assert_eq!(mount.mark_lost(reason, false, now), is_news);
        }
        find(&mut mount, Timestamp::now(), true);
        assert_eq!(mount.absence.reason, "");
    }

    #[test]
    fn what_a_first_sweep_found_that_did_not_end_is_reported_again() {
        let (place, reports) = (tempfile::tempdir().unwrap(), RefCell::default());
        let path = place.path().join("a.xml");
        fs::write(&path, "<urlset/>").unwrap();
        let mut observer = observer(place.path(), &reports);
        observer.settings.settle = Duration::ZERO;
        let observed =
            |report: &&TreeReport| matches!(report, TreeReport::Event(Event::Observed(_)));
        for want in 1..=2 {
            assert!(observer.continue_sweep() && observer.continue_sweep());
            observer.flush();
            assert_eq!(reports.borrow().iter().filter(observed).count(), want);
            // Read so long after it was written that it need not be read again.
            let later = Timestamp::now() + SignedDuration::from_hours(1);
            let file = observer.model.file_mut(FileSlot(0)).unwrap();
            file.note_whole_read(of_path(&path).unwrap().stat, later);
            observer.mark_mount_lost(0, "gone");
            observer.check_mounts();
        }
        fs::remove_file(path).unwrap();
        assert!(observer.continue_sweep());
        observer.flush();
        assert_eq!(reports.borrow().iter().filter(observed).count(), 3);
    }

    #[test]
    fn a_root_that_was_just_there_may_be_replaced_before_its_loss_is_reported() {
        let mut mount = mount();
        find(&mut mount, Timestamp::now(), true);
        mount.found = None;
        let now = Instant::now();
        assert!(!mount.mark_lost("gone", true, now));
        assert!(mount.awaits_new_root(now) && mount.absence.reason == "gone");
        let later = now + SWAPPED_WITHIN;
        assert!(!mount.awaits_new_root(later) && mount.mark_lost("gone", false, later));
    }

    #[test]
    fn only_a_change_after_the_mount_was_found_by_its_own_clock_is_new() {
        let found = Timestamp::now();
        let stat = |later: SignedDuration| Stat {
            size: 1,
            modified: found,
            changed: found + later,
            inode: 1,
        };
        let mut mount = mount();
        assert!(!mount.is_changed_since_mount_found(&stat(TICK * 2)));
        find(&mut mount, found, true);
        assert!(mount.is_changed_since_mount_found(&stat(TICK * 2)));
        assert!(!mount.is_changed_since_mount_found(&stat(TICK)));
        find(&mut mount, found, false);
        assert!(!mount.is_changed_since_mount_found(&stat(TICK * 2)));
    }

    #[test]
    fn a_mount_is_swept_at_the_shorter_interval_while_a_directory_gives_no_hints() {
        let minute = Duration::from_secs(60);
        let settings = TreeSettings {
            poll_interval: minute,
            ..settings("/srv".as_ref())
        };
        let mut mount = mount();
        find(&mut mount, Timestamp::now(), true);
        mount.is_polled = false;
        let ends = |mount: &mut TreeMount, gives_hints| {
            mount.sweep = None;
            mount.end_sweep(true, gives_hints, &settings);
            mount.next_sweep <= Some(Instant::now() + 2 * minute)
        };
        mount.begin_sweep();
        assert!(mount.lack_watch() && !mount.lack_watch());
        assert!(ends(&mut mount, true) && mount.is_polled);
        mount.begin_sweep();
        assert!(!ends(&mut mount, true) && !mount.is_polled);
        mount.begin_sweep();
        assert!(mount.mark_polled() && !mount.mark_polled());
        assert!(ends(&mut mount, true));
        mount.begin_sweep();
        assert!(ends(&mut mount, false) && mount.is_polled);
        // A directory found between two sweeps brings the next one forward.
        mount.begin_sweep();
        assert!(!ends(&mut mount, true));
        mount.sweep_by(Instant::now());
        assert!(mount.sweep.is_none() && mount.next_sweep <= Some(Instant::now()));
    }
}

//! Is the tree there, and is it the same tree as before?

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::announce::candidates::PublishedPath;
use crate::announce::observation::{DocumentPath, Identity, MountId, Stat};
use crate::announce::plan::MountPlan;
use crate::diagnostics::access::{AccessFailure, remedy};
use crate::tree::file_status::{self, FileKind};
use crate::tree::file_system::{ALL_WRITE_HERE, FileSystem, file_system};
use crate::tree::model::{DirectoryId, FileId, Queued};
use crate::tree::observer::Observer;
use crate::tree::watches::{WatchKey, WatchedName};
use crate::tree::{TreeNotice, TreeReport, WatchMode};

/// The longest that the kernel's coarse clock stands still.
const TICK: SignedDuration = SignedDuration::from_millis(10);

/// How long a root may be away while it is replaced, before that is said.
const SWAPPED_WITHIN: Duration = Duration::from_millis(500);

/// A mount of the settings, and what is going on there.
#[derive(Debug)]
pub(super) struct Mount {
    pub(super) id: MountId,
    pub(super) directory: PathBuf,
    pub(super) published: PublishedPath,
    pub(super) root: DirectoryId,
    /// The root while it is present.
    pub(super) identity: Option<Identity>,
    /// Why it is not there, and whether that was said.
    pub(super) lost: Option<String>,
    pub(super) is_told_lost: bool,
    /// When it went that was there.
    pub(super) missed: Option<Instant>,
    pub(super) file_system: FileSystem,
    /// When it was found, by the exact clock.
    found: Timestamp,
    /// The watch of the directory that holds the root, with the root's name there.
    pub(super) parent_watch: Option<(WatchKey, Box<[u8]>)>,
    /// Some directory of it gives no hints, so that it is swept at the shorter interval.
    pub(super) is_polled: bool,
    /// A directory of it could not be watched in the sweep that goes on.
    pub(super) has_unwatched: bool,
    pub(super) sweep: Option<Sweep>,
    /// Whether it was swept to its end since it was found.
    pub(super) was_swept: bool,
    pub(super) next_sweep: Instant,
    /// Files read by an earlier run, or lost with the mount, that have not been met yet.
    pub(super) known: HashMap<Box<[u8]>, UnmetFile>,
    /// Paths asked for that a sweep may still meet.
    pub(super) asked: HashSet<DocumentPath>,
    /// Whether what was said of its directories that may not be read is no longer so.
    pub(super) has_denied_anew: bool,
    /// Whether it was said that links are not followed, because of their depth and of their number.
    pub(super) has_said_too_deep: bool,
    pub(super) has_said_too_many: bool,
}

/// A file that was there once.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnmetFile {
    /// Its stat data and when it was read, if it could be read.
    pub(super) read: Option<(Stat, Timestamp)>,
    pub(super) is_told_denied: bool,
}

impl UnmetFile {
    pub(super) const UNREAD: UnmetFile = UnmetFile {
        read: None,
        is_told_denied: false,
    };
}

/// A sweep that goes on.
#[derive(Debug)]
pub(super) struct Sweep {
    /// Directories to be listed.
    pub(super) directories: VecDeque<DirectoryId>,
    /// Files to be read before the sweep is done.
    pub(super) files: VecDeque<FileId>,
    /// Files that changed too shortly before to be read yet, and when they may be: the first sweep of a
    /// mount waits for them, so that a tree that was just written has a whole baseline (R13).
    pub(super) unsettled: VecDeque<(FileId, Instant)>,
    pub(super) met: u64,
    pub(super) started: Instant,
    pub(super) told: Instant,
}

impl Mount {
    pub(super) fn new(
        plan: &MountPlan,
        root: DirectoryId,
        known: HashMap<Box<[u8]>, UnmetFile>,
    ) -> Mount {
        Mount {
            id: plan.id,
            directory: plan.directory.clone(),
            published: plan.published(),
            root,
            identity: None,
            lost: None,
            is_told_lost: false,
            missed: None,
            file_system: FileSystem::default(),
            found: Timestamp::MIN,
            parent_watch: None,
            is_polled: true,
            has_unwatched: false,
            sweep: None,
            was_swept: false,
            next_sweep: Instant::now(),
            known,
            asked: HashSet::new(),
            has_denied_anew: false,
            has_said_too_deep: false,
            has_said_too_many: false,
        }
    }

    /// Whether a file changed after this mount was found, as far as its clock is ours and tells.
    pub(super) fn is_changed_since_found(&self, stat: &Stat) -> bool {
        self.file_system.is_local && stat.changed.duration_since(self.found) > TICK
    }

    /// Whether it went so shortly before that another may be about to take its place.
    pub(super) fn is_brief(&self) -> bool {
        self.missed
            .is_some_and(|missed| missed.elapsed() < SWAPPED_WITHIN)
    }

    pub(super) fn path(&self, below: &[u8]) -> DocumentPath {
        DocumentPath {
            mount: self.id,
            below: below.into(),
        }
    }
}

impl Observer<'_> {
    pub(super) fn check_mounts(&mut self) {
        for at in 0..self.mounts.len() {
            self.check_mount(at);
        }
    }

    /// Looks whether a mount is there, and is what it was.
    pub(super) fn check_mount(&mut self, at: usize) {
        self.watch_parent(at);
        match file_status::follow(&self.mounts[at].directory) {
            Ok(status) if status.kind != FileKind::Directory => {
                self.lose_mount(at, "it is not a directory".into());
            }
            Ok(status) if self.mounts[at].identity == Some(status.identity) => {}
            Ok(status) => {
                // While it cannot be listed, it is not there.
                match std::fs::read_dir(&self.mounts[at].directory) {
                    Ok(_) => {
                        if self.leave_root(at) {
                            let directory = self.mounts[at].directory.clone();
                            self.notice(TreeNotice::Replaced { directory });
                        }
                        self.find_mount(at, status.identity);
                    }
                    Err(error) => self.miss_mount(at, &error),
                }
            }
            Err(error) => self.miss_mount(at, &error.into()),
        }
    }

    /// As [`Observer::check_mount`], after an event that may have ended the watch of its root.
    pub(super) fn check_mount_again(&mut self, at: usize) {
        self.check_mount(at);
        self.queue_directory(self.mounts[at].root, Queued::WithAllBeneath);
    }

    /// A mount cannot be looked at: it is not there for us, though it may be for others.
    pub(super) fn miss_mount(&mut self, at: usize, error: &io::Error) {
        let refusal = match error.kind() {
            ErrorKind::PermissionDenied => Some(AccessFailure::Denied),
            ErrorKind::NotFound => Some(AccessFailure::Absent),
            _ => None,
        };
        let directory = &self.mounts[at].directory;
        let reason = match refusal.and_then(|refusal| remedy(directory, refusal)) {
            Some(remedy) => format!("{error}: {remedy}"),
            None => error.to_string(),
        };
        self.lose_mount(at, reason);
    }

    fn lose_mount(&mut self, at: usize, reason: String) {
        let was_there = self.leave_root(at);
        let mount = &mut self.mounts[at];
        let reason = format!("{}: {reason}", mount.directory.display());
        let before = mount.lost.replace(reason.clone());
        let is_told = mount.is_told_lost && before.as_ref() == Some(&reason);
        if was_there {
            // Whoever swaps a link may remove it first.
            mount.missed = Some(Instant::now());
            self.heartbeat = self.heartbeat.min(Instant::now() + SWAPPED_WITHIN);
        }
        self.tell_unreadable();
        let mount = &mut self.mounts[at];
        if is_told || mount.is_brief() {
            return;
        }
        mount.is_told_lost = true;
        let asked = std::mem::take(&mut mount.asked);
        let mount = mount.id;
        self.send(TreeReport::MountLost { mount, reason });
        for path in asked {
            self.ask(path, true);
        }
    }

    /// Takes in that a root is not there any more, or another one is; tells whether there was one.
    fn leave_root(&mut self, at: usize) -> bool {
        if self.mounts[at].identity.take().is_none() {
            return false;
        }
        self.end_sweep(at, false);
        for id in self.model.beneath(self.mounts[at].root) {
            self.unwatch(id);
            self.allow(id);
        }
        true
    }

    fn find_mount(&mut self, at: usize, identity: Identity) {
        // The exact clock: that of `ctime` may stand still for long on a busy virtual machine, and a file that was
        // written before would seem to be written since.
        let started = Timestamp::now();
        let mount = &mut self.mounts[at];
        mount.identity = Some(identity);
        mount.lost = None;
        mount.is_told_lost = false;
        mount.missed = None;
        mount.was_swept = false;
        mount.file_system = file_system(&mount.directory);
        mount.found = started;
        let (id, directory) = (mount.id, mount.directory.clone());
        self.send(TreeReport::MountFound {
            mount: id,
            identity,
            started,
        });
        let hints = self.gives_hints(at);
        self.mounts[at].is_polled = !hints;
        match self.watches.backend().filter(|_| hints) {
            Some(backend) => self.notice(TreeNotice::Watching { directory, backend }),
            None => {
                let reason = match self.settings.watch {
                    WatchMode::Poll => "the configuration says so".into(),
                    _ if self.watches.backend().is_none() => "nothing can be watched".into(),
                    _ => format!("its file system is not known to be local{ALL_WRITE_HERE}"),
                };
                self.notice(TreeNotice::Polling {
                    directory,
                    reason,
                    interval: self.settings.poll_interval,
                });
            }
        }
        self.start_sweep(at);
    }

    /// Watches the directory that holds a mount's root, to notice at once when another takes its place.
    fn watch_parent(&mut self, at: usize) {
        let mount = &self.mounts[at];
        let (Some(parent), Some(name)) = (mount.directory.parent(), mount.directory.file_name())
        else {
            return;
        };
        if self.settings.watch == WatchMode::Poll || self.watches.backend().is_none() {
            return;
        }
        // Where this fails, the look each second remains.
        let name: Box<[u8]> = name.as_bytes().into();
        let found = self
            .watches
            .add_name(parent, &name, WatchedName::Mount(at))
            .ok();
        let before = self.mounts[at].parent_watch.take();
        if let Some((key, name)) = before.filter(|(key, _)| Some(*key) != found) {
            self.watches.remove_name(key, &name, WatchedName::Mount(at));
        }
        self.mounts[at].parent_watch = found.map(|key| (key, name));
    }
}

impl Sweep {
    /// When it can go on; at once, unless all that is left is to wait.
    pub(super) fn goes_on_at(&self) -> Option<Instant> {
        if self.files.is_empty() && self.directories.is_empty() {
            self.unsettled.front().map(|(_, at)| *at)
        } else {
            None
        }
    }

    pub(super) fn has_work(&self) -> bool {
        self.goes_on_at().is_none_or(|at| at <= Instant::now())
    }
}

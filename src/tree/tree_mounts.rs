//! All mounts of the settings: the presence of their roots, the times of their checks and sweeps, and the paths below
//! them.

use std::io::{self, ErrorKind};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::announce::observation::{DocumentPath, Identity, MountId};
use crate::diagnostics::access::{AccessFailure, remedy};
use crate::tree::directories::join;
use crate::tree::file_status::{self, FileKind};
use crate::tree::model::Model;
use crate::tree::model::{DirectoryId, FileId};
use crate::tree::mount::{SWAPPED_WITHIN, Sweep, SweepStep, TreeMount};
use crate::tree::{KnownFiles, TreeSettings};

/// Time between two checks of mounts and links without a hint.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The mounts, by their position in the settings.
#[derive(Debug)]
pub(super) struct TreeMounts {
    mounts: Vec<TreeMount>,
    /// Time of the next check of mounts and links.
    heartbeat: Instant,
}

/// Difference between the root of a mount and what was known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RootChange {
    /// A directory is there, where none was, or another one.
    Found(Identity),
    /// It is not there, or cannot be listed, for this reason.
    Lost(String),
}

impl TreeMounts {
    /// Returns the mounts of the settings with the files that an earlier run has read. All are absent until they are
    /// checked.
    pub(super) fn new(
        settings: &TreeSettings,
        mut known: KnownFiles,
        model: &mut Model,
    ) -> TreeMounts {
        let mounts = settings.mounts.iter().enumerate().map(|(at, plan)| {
            let mut unmet = known.0.remove(&plan.id).unwrap_or_default();
            // A file that was excluded since is there nevertheless: it is forgotten, not missing.
            let published = plan.published();
            unmet.retain(|below, _| settings.candidates.accepts(&published, below));
            TreeMount::new(plan, model.directories.add_root(at), unmet)
        });
        TreeMounts {
            mounts: mounts.collect(),
            heartbeat: Instant::now(),
        }
    }

    pub(super) fn position(&self, id: MountId) -> Option<usize> {
        self.mounts.iter().position(|mount| mount.id == id)
    }

    /// Returns true if mounts and links are to be checked now, once each second.
    pub(super) fn is_check_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.heartbeat;
        if is_due {
            self.heartbeat = now + HEARTBEAT;
        }
        is_due
    }

    /// Makes the next check come no later than this.
    pub(super) fn check_by(&mut self, at: Instant) {
        self.heartbeat = self.heartbeat.min(at);
    }

    /// Returns how the root of a mount differs from what is known of it; nothing if it does not.
    pub(super) fn root_change(&self, at: usize) -> Option<RootChange> {
        let mount = &self.mounts[at];
        let status = match file_status::follow(&mount.directory) {
            Ok(status) => status,
            Err(error) => return Some(RootChange::unreadable(&mount.directory, &error.into())),
        };
        if status.kind != FileKind::Directory {
            return Some(RootChange::Lost("it is not a directory".into()));
        }
        if mount.identity() == Some(status.identity) {
            return None;
        }
        // While it cannot be listed, it is not there.
        Some(match std::fs::read_dir(&mount.directory) {
            Ok(_) => RootChange::Found(status.identity),
            Err(error) => RootChange::unreadable(&mount.directory, &error),
        })
    }

    /// Takes note that the root of a mount is lost; `was_present` if it was there until now. Returns the reason, if
    /// that is to be reported.
    pub(super) fn lose(&mut self, at: usize, reason: &str, was_present: bool) -> Option<String> {
        let now = Instant::now();
        if was_present {
            // A link may be removed before its replacement is there.
            self.check_by(now + SWAPPED_WITHIN);
        }
        let mount = &mut self.mounts[at];
        let reason = format!("{}: {reason}", mount.directory.display());
        mount.lose(&reason, was_present, now).then_some(reason)
    }

    /// Returns when a check, a sweep or a part of a sweep is due next.
    pub(super) fn next_wake(&self) -> Instant {
        let present = self.mounts.iter().filter(|mount| mount.is_present());
        let wakes = present.filter_map(TreeMount::wake);
        wakes.fold(self.heartbeat, Instant::min)
    }

    /// Returns the positions of the mounts whose next sweep is due.
    pub(super) fn due_sweeps(&self, now: Instant) -> Vec<usize> {
        let mounts = self.mounts.iter().enumerate();
        let due = mounts.filter(|(_, mount)| mount.is_sweep_due(now));
        due.map(|(at, _)| at).collect()
    }

    /// Returns the sweeps that go on.
    pub(super) fn sweeps(&self) -> impl Iterator<Item = &Sweep> {
        self.mounts.iter().filter_map(|mount| mount.sweep.as_ref())
    }

    /// Takes the next step of a sweep that does not wait, with the position of its mount.
    pub(super) fn next_sweep_step(&mut self) -> Option<(usize, SweepStep)> {
        let mut mounts = self.mounts.iter_mut().enumerate();
        mounts.find_map(|(at, mount)| {
            let sweep = mount.sweep.as_mut().filter(|sweep| sweep.has_work())?;
            Some((at, sweep.next_step(Instant::now())))
        })
    }

    /// Returns the path of a name in a directory.
    pub(super) fn path_of_name(
        &self,
        model: &Model,
        id: DirectoryId,
        name: &[u8],
    ) -> Option<PathBuf> {
        let at = model.directories.mount_of(id)?;
        let below = model.directories.below_name(id, name);
        Some(join(&self.mounts[at].directory, &below))
    }

    /// Returns the path of a file as it is reported.
    pub(super) fn document_path(&self, model: &Model, id: FileId) -> Option<DocumentPath> {
        let file = model.file(id)?;
        let at = model.directories.mount_of(file.directory)?;
        let below = model.directories.below_name(file.directory, &file.name);
        Some(self.mounts[at].path(&below))
    }
}

impl Deref for TreeMounts {
    type Target = [TreeMount];

    fn deref(&self) -> &[TreeMount] {
        &self.mounts
    }
}

impl DerefMut for TreeMounts {
    fn deref_mut(&mut self) -> &mut [TreeMount] {
        &mut self.mounts
    }
}

impl RootChange {
    /// Returns the loss of a root that cannot be read: it is not there for us, though it may be for others.
    pub(super) fn unreadable(root: &Path, error: &io::Error) -> RootChange {
        let failure = match error.kind() {
            ErrorKind::PermissionDenied => Some(AccessFailure::Denied),
            ErrorKind::NotFound => Some(AccessFailure::Absent {
                is_parent_there: root.parent().is_some_and(Path::exists),
            }),
            _ => None,
        };
        RootChange::Lost(match failure.and_then(|failure| remedy(root, failure)) {
            Some(remedy) => format!("{error}: {remedy}"),
            None => error.to_string(),
        })
    }
}

//! Watching directories: those that give hints, and the handling of those that cannot be watched or read.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use crate::announce::observation::Incomplete;
use crate::diagnostics::access::{AccessFailure, remedy};
use crate::tree::file_status;
use crate::tree::file_system::ALL_WRITE_HERE;
use crate::tree::model::{Directory, DirectoryId, DirectoryState};
use crate::tree::observer::Observer;
use crate::tree::pending_hints::Hint;
use crate::tree::watches::WatchError;
use crate::tree::{SystemLimit, TreeNotice, WatchMode};

impl Observer<'_> {
    /// Returns true if the kernel may be asked to report this mount's changes.
    pub(super) fn trusts_hints(&self, at: usize) -> bool {
        self.settings.watch.trusts(self.mounts[at].file_system)
    }

    /// Returns true if the kernel can be asked, and may be.
    pub(super) fn gives_hints(&self, at: usize) -> bool {
        self.trusts_hints(at) && self.watches.backend().is_some()
    }

    /// Returns the number of directories that the kernel is asked to watch, where its events are relied on.
    pub(super) fn directories_to_watch(&self) -> usize {
        let mounts = self
            .mounts
            .iter()
            .filter(|mount| mount.is_present() && self.settings.watch.trusts(mount.file_system));
        mounts
            .map(|mount| self.model.beneath(mount.root).len())
            .sum()
    }

    /// Watches a directory. Repeated, it restores a watch that was lost.
    pub(super) fn watch(&mut self, id: DirectoryId, path: &Path) {
        let Some(directory) = self.model.directory(id) else {
            return;
        };
        let (at, is_link, before) = (directory.mount, directory.is_link, directory.watch);
        if !self.gives_hints(at) {
            return;
        }
        if self.settings.watch == WatchMode::Auto && self.is_on_remote_device(directory) {
            let reason = format!(
                "{} lies on a file system that is not known to be local{ALL_WRITE_HERE}",
                path.display()
            );
            return self.poll(at, reason);
        }
        match self.watches.add(path, is_link, id) {
            Ok(key) if before == Some(key) => {}
            Ok(key) => {
                self.unwatch(id);
                // Events that closed files may have come before.
                for file in self.model.files_in(id) {
                    if let Some(file) = self.model.file_mut(file) {
                        file.forget_writer();
                    }
                }
                if let Some(directory) = self.model.directory_mut(id) {
                    directory.watch = Some(key);
                }
            }
            Err(WatchError::RanOut(sysctl)) => {
                self.mounts[at].has_unwatched = true;
                if self.watches.is_first_exhaustion() {
                    let limit = SystemLimit::now(sysctl);
                    let interval = self.settings.poll_interval;
                    self.notice(TreeNotice::WatchesRanOut { limit, interval });
                }
                self.sweep_soon(at);
            }
            // Removed since it was opened: an event of its parent reports that.
            Err(WatchError::Failed(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(WatchError::Failed(_)) if self.mounts[at].has_unwatched => {}
            Err(WatchError::Failed(error)) => {
                self.mounts[at].has_unwatched = true;
                self.notice(TreeNotice::Unwatchable {
                    directory: path.to_owned(),
                    reason: error.to_string(),
                });
                self.sweep_soon(at);
            }
        }
    }

    pub(super) fn unwatch(&mut self, id: DirectoryId) {
        if let Some(directory) = self.model.directory_mut(id)
            && let Some(key) = directory.watch.take()
        {
            self.watches.remove(key, id);
        }
    }

    /// Returns true if a directory lies on another device than its parent, and that one is not known to be local.
    fn is_on_remote_device(&self, directory: &Directory) -> bool {
        let device_of = |it: &Directory| it.identity.map(|it| it.device);
        let parent = directory.parent.and_then(|id| self.model.directory(id));
        let is_on_another = parent.is_some_and(|it| device_of(it) != device_of(directory));
        is_on_another && !directory.file_system.is_local
    }

    fn poll(&mut self, at: usize, reason: String) {
        let mount = &mut self.mounts[at];
        mount.has_unwatched = true;
        if !std::mem::replace(&mut mount.is_polled, true) {
            let directory = mount.directory.clone();
            let interval = self.settings.poll_interval;
            self.notice(TreeNotice::Polling {
                directory,
                reason,
                interval,
            });
        }
        self.sweep_soon(at);
    }

    /// Brings the next sweep forward, because a directory found between two sweeps gives no hints.
    fn sweep_soon(&mut self, at: usize) {
        let soon = Instant::now() + self.settings.poll_interval;
        self.mounts[at].sweep_by(soon);
    }

    /// Takes note that a directory cannot be read: nothing beneath it is known, and nothing is missing (R15).
    pub(super) fn deny(&mut self, id: DirectoryId, path: &Path, error: Errno) {
        let Some(directory) = self.model.directory_mut(id) else {
            return;
        };
        let at = directory.mount;
        if directory.parent.is_none() {
            return self.miss_mount(at, &error.into());
        }
        let was_denied = directory.state == DirectoryState::Denied;
        directory.state = DirectoryState::Denied;
        let reason = file_status::reason(error);
        let is_forbidden = matches!(error, Errno::ACCESS | Errno::PERM);
        let remedy = is_forbidden
            .then(|| remedy(path, AccessFailure::Denied))
            .flatten();
        self.unreadable.deny(id, at, &reason, remedy);
        if was_denied {
            return;
        }
        self.notice(TreeNotice::Unreadable {
            directory: path.to_owned(),
            reason: match remedy {
                Some(remedy) => format!("{reason}: {remedy}"),
                None => reason.clone(),
            },
        });
        for directory in self.model.beneath(id) {
            for file in self.model.files_in(directory) {
                self.report_incomplete(file, Incomplete::Denied(reason.clone()));
            }
        }
    }

    /// Takes note that a directory can be read, or is none any more.
    pub(super) fn allow(&mut self, id: DirectoryId) {
        if let Some(at) = self.model.mount_of(id) {
            self.unreadable.allow(id, at);
        }
    }

    /// Rechecks a directory to which something happened itself, or which cannot be opened any more.
    pub(super) fn recheck_directory(&mut self, id: DirectoryId) {
        self.unwatch(id);
        let Some(directory) = self.model.directory(id) else {
            return;
        };
        match directory.parent {
            None => self.relist_mount(directory.mount),
            Some(parent) => {
                let name = Arc::clone(&directory.name);
                self.check_name(parent, &name, Hint::RENAMED);
            }
        }
    }
}

//! Which directories give hints, which cannot, and what is done about those.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::io::Errno;

use crate::announce::observation::{Incomplete, Unreadable};
use crate::diagnostics::access::{AccessFailure, remedy};
use crate::tree::file_status;
use crate::tree::file_system::ALL_WRITE_HERE;
use crate::tree::model::{Directory, DirectoryId, join, push_name};
use crate::tree::observer::Observer;
use crate::tree::pending_hints::Hint;
use crate::tree::watches::WatchError;
use crate::tree::{SystemLimit, TreeNotice, TreeReport, WatchMode};

/// How soon a directory that cannot be read is tried again, at first and at last.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// How many directories that may not be read are named.
const MAX_NAMED: usize = 20;

/// A directory that could not be read.
#[derive(Debug)]
pub(super) struct Denial {
    /// When to try again.
    pub(super) again: Instant,
    tries: u8,
    reason: String,
    remedy: Option<&'static str>,
    since: Timestamp,
}

impl Observer<'_> {
    /// A directory cannot be read: nothing beneath it is known, and nothing is missing (R15).
    pub(super) fn deny(&mut self, id: DirectoryId, path: &Path, error: Errno) {
        let Some(directory) = self.model.directory_mut(id) else {
            return;
        };
        if directory.parent.is_none() {
            let mount = directory.mount;
            return self.miss_mount(mount, &error.into());
        }
        let reason = file_status::reason(error);
        let was_denied = std::mem::replace(&mut directory.is_denied, true);
        let is_forbidden = matches!(error, Errno::ACCESS | Errno::PERM);
        let remedy = is_forbidden
            .then(|| remedy(path, AccessFailure::Denied))
            .flatten();
        let before = self.denied.get(&id);
        let tries = before.map_or(0, |before| before.tries);
        let after = FIRST_RETRY
            .saturating_mul(1 << tries.min(5))
            .min(LAST_RETRY);
        let denied = Denial {
            again: Instant::now() + after,
            tries: tries.saturating_add(1),
            reason: reason.clone(),
            remedy,
            since: before.map_or_else(Timestamp::now, |before| before.since),
        };
        let at = directory.mount;
        self.mounts[at].has_denied_anew |= before.is_none_or(|before| before.reason != reason);
        self.denied.insert(id, denied);
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
            let above = self.model.below(directory);
            for file in self.model.files_in(directory) {
                let mut below = above.clone();
                if let Some(file) = self.model.file(file) {
                    push_name(&mut below, &file.name);
                }
                self.tell_incomplete(file, &below, Incomplete::Denied(reason.clone()));
            }
        }
    }

    /// Takes in that a directory can be read, or is none any more.
    pub(super) fn allow(&mut self, id: DirectoryId) {
        if self.denied.remove(&id).is_some()
            && let Some(directory) = self.model.directory(id)
        {
            self.mounts[directory.mount].has_denied_anew = true;
        }
    }

    /// Reports which directories may not be read, where that is no longer what was said.
    pub(super) fn tell_unreadable(&mut self) {
        for at in 0..self.mounts.len() {
            if !std::mem::replace(&mut self.mounts[at].has_denied_anew, false) {
                continue;
            }
            let mut denied: Vec<(Vec<u8>, &Denial)> = self
                .denied
                .iter()
                .filter(|(id, _)| self.model.directory(**id).is_some_and(|it| it.mount == at))
                .map(|(id, denied)| (self.model.below(*id), denied))
                .collect();
            denied.sort_by(|(one, _), (other, _)| one.cmp(other));
            let mount = &self.mounts[at];
            let named = denied.iter().take(MAX_NAMED);
            let directories = named.map(|(below, denied)| Unreadable {
                directory: join(&mount.directory, below).display().to_string(),
                reason: denied.reason.clone(),
                remedy: denied.remedy.map(str::to_owned),
                since: denied.since,
            });
            let report = TreeReport::Unreadable {
                mount: mount.id,
                directories: directories.collect(),
                more: denied.len().saturating_sub(MAX_NAMED),
            };
            self.send(report);
        }
    }

    /// Whether this mount's changes can be told by the kernel.
    pub(super) fn gives_hints(&self, at: usize) -> bool {
        self.trusts_hints(at) && self.watches.backend().is_some()
    }

    /// How many directories the kernel is asked to watch, as far as it is trusted with them.
    pub(super) fn directories_to_watch(&self) -> usize {
        let present = self.mounts.iter().enumerate();
        let present =
            present.filter(|(at, mount)| mount.identity.is_some() && self.trusts_hints(*at));
        present
            .map(|(_, mount)| self.model.beneath(mount.root).len())
            .sum()
    }

    /// Whether the kernel may be asked to tell this mount's changes.
    pub(super) fn trusts_hints(&self, at: usize) -> bool {
        match self.settings.watch {
            WatchMode::Auto => self.mounts[at].file_system.is_local,
            WatchMode::Inotify | WatchMode::Notify => true,
            WatchMode::Poll => false,
        }
    }

    pub(super) fn watch(&mut self, id: DirectoryId, path: &Path) {
        let Some(directory) = self.model.directory(id) else {
            return;
        };
        let (at, is_link) = (directory.mount, directory.is_link);
        if !self.gives_hints(at) {
            return;
        }
        let above = directory
            .parent
            .and_then(|parent| self.model.directory(parent));
        let device_of = |it: &Directory| it.identity.map(|it| it.device);
        if self.settings.watch == WatchMode::Auto
            && above.is_some_and(|above| device_of(above) != device_of(directory))
            && !directory.file_system.is_local
        {
            self.poll(
                at,
                format!(
                    "{} lies on a file system that is not known to be local{ALL_WRITE_HERE}",
                    path.display()
                ),
            );
            return;
        }
        let (before, interval) = (directory.watch, self.settings.poll_interval);
        match self.watches.add(path, is_link, id) {
            Ok(key) if before == Some(key) => {}
            Ok(key) => {
                self.unwatch(id);
                // Whether a writer is done may have been said before.
                for file in self.model.files_in(id) {
                    if let Some(file) = self.model.file_mut(file) {
                        file.writing = None;
                    }
                }
                if let Some(directory) = self.model.directory_mut(id) {
                    directory.watch = Some(key);
                }
            }
            Err(WatchError::RanOut(sysctl)) => {
                self.mounts[at].has_unwatched = true;
                if !std::mem::replace(&mut self.has_said_ran_out, true) {
                    let limit = SystemLimit::now(sysctl);
                    self.notice(TreeNotice::WatchesRanOut { limit, interval });
                }
                self.sweep_soon(at);
            }
            Err(WatchError::Failed(error)) => {
                let absent = error.kind() == std::io::ErrorKind::NotFound;
                // Gone since it was opened: its parent says so.
                if !absent && !self.mounts[at].has_unwatched {
                    self.mounts[at].has_unwatched = true;
                    self.notice(TreeNotice::Unwatchable {
                        directory: path.to_owned(),
                        reason: error.to_string(),
                    });
                    self.sweep_soon(at);
                }
            }
        }
    }

    fn poll(&mut self, at: usize, reason: String) {
        let mount = &mut self.mounts[at];
        mount.has_unwatched = true;
        if !mount.is_polled {
            mount.is_polled = true;
            let notice = TreeNotice::Polling {
                directory: mount.directory.clone(),
                reason,
                interval: self.settings.poll_interval,
            };
            self.notice(notice);
        }
        self.sweep_soon(at);
    }

    /// A directory found between two sweeps gives no hints: the next sweep must not wait for long.
    fn sweep_soon(&mut self, at: usize) {
        let soon = Instant::now() + self.settings.poll_interval;
        let mount = &mut self.mounts[at];
        mount.next_sweep = mount.next_sweep.min(soon);
    }

    pub(super) fn unwatch(&mut self, id: DirectoryId) {
        if let Some(directory) = self.model.directory_mut(id)
            && let Some(key) = directory.watch.take()
        {
            self.watches.remove(key, id);
        }
    }

    /// Something happened to a directory itself, or it cannot be opened any more.
    pub(super) fn recheck_directory(&mut self, id: DirectoryId) {
        self.unwatch(id);
        let Some(directory) = self.model.directory(id) else {
            return;
        };
        match directory.parent {
            None => self.check_mount_again(directory.mount),
            Some(parent) => {
                let name = Arc::clone(&directory.name);
                let renamed = Hint {
                    renamed: true,
                    ..Hint::default()
                };
                self.examine(parent, &name, renamed);
            }
        }
    }
}

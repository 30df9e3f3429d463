//! Watching: which directories and names give hints, and what is done about those that cannot be watched.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::tree::directories::Directory;
use crate::tree::file::LinkTarget;
use crate::tree::file_system::ALL_WRITE_HERE;
use crate::tree::ids::{DirectoryId, FileId};
use crate::tree::model::Model;
use crate::tree::mount::TreeMount;
use crate::tree::reports::Reports;
use crate::tree::watches::{WatchError, WatchKey, WatchedName, Watches};
use crate::tree::{SystemLimit, TreeNotice, TreeSettings, WatchMode};

#[derive(Debug)]
pub(super) struct DirectoryWatching {
    mode: WatchMode,
    /// Interval of the sweeps in place of watches.
    poll_interval: Duration,
    pub(super) watches: Watches,
}

impl DirectoryWatching {
    pub(super) fn new(settings: &TreeSettings, watches: Watches) -> DirectoryWatching {
        DirectoryWatching {
            mode: settings.watch,
            poll_interval: settings.poll_interval,
            watches,
        }
    }

    /// Gives the backend up, which has no more events for this reason.
    pub(super) fn end(&mut self, reason: String, reports: &mut Reports<'_>) {
        self.watches.end();
        let interval = self.poll_interval;
        reports.notice(TreeNotice::EventsEnded { reason, interval });
    }

    /// Returns true if the kernel may be asked to report this mount's changes.
    pub(super) fn trusts_hints(&self, mount: &TreeMount) -> bool {
        self.mode.trusts(mount.file_system())
    }

    /// Returns true if the kernel can be asked, and may be.
    pub(super) fn gives_hints(&self, mount: &TreeMount) -> bool {
        self.trusts_hints(mount) && self.watches.backend().is_some()
    }

    /// Decides whether a mount that was found is watched or polled, and reports that.
    pub(super) fn begin(&self, mount: &mut TreeMount, reports: &mut Reports<'_>) {
        let directory = mount.directory.clone();
        let gives_hints = self.gives_hints(mount);
        mount.expect_hints(gives_hints);
        reports.notice(match self.watches.backend().filter(|_| gives_hints) {
            Some(backend) => TreeNotice::Watching { directory, backend },
            None => TreeNotice::Polling {
                directory,
                reason: match self.mode {
                    WatchMode::Poll => "the configuration says so".into(),
                    _ if self.watches.backend().is_none() => "nothing can be watched".into(),
                    _ => format!("its file system is not known to be local{ALL_WRITE_HERE}"),
                },
                interval: self.poll_interval,
            },
        });
    }

    /// Watches a directory. Repeated, it restores a watch that was lost.
    pub(super) fn watch(
        &mut self,
        id: DirectoryId,
        path: &Path,
        model: &mut Model,
        mount: &mut TreeMount,
        reports: &mut Reports<'_>,
    ) {
        let Some(directory) = model.directories.get(id) else {
            return;
        };
        let (is_link, before) = (directory.is_link, directory.watch);
        if !self.gives_hints(mount) {
            return;
        }
        if self.mode == WatchMode::Auto && model.directories.is_on_remote_device(id) {
            let reason = format!(
                "{} lies on a file system that is not known to be local{ALL_WRITE_HERE}",
                path.display()
            );
            return self.poll(mount, reason, reports);
        }
        match self.watches.add(path, is_link, id) {
            Ok(key) if before == Some(key) => {}
            Ok(key) => {
                self.unwatch(id, model);
                // Events that closed files may have come before.
                model.forget_writers_in(id);
                if let Some(directory) = model.directories.get_mut(id) {
                    directory.watch = Some(key);
                }
            }
            Err(WatchError::RanOut) => {
                mount.lack_watch();
                if self.watches.is_first_exhaustion() {
                    let limit = SystemLimit::watches();
                    let interval = self.poll_interval;
                    reports.notice(TreeNotice::WatchesRanOut { limit, interval });
                }
                self.sweep_soon(mount);
            }
            // Removed since it was opened: an event of its parent reports that.
            Err(WatchError::Failed(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(WatchError::Failed(error)) => {
                if mount.lack_watch() {
                    reports.notice(TreeNotice::Unwatchable {
                        directory: path.to_owned(),
                        reason: error.to_string(),
                    });
                    self.sweep_soon(mount);
                }
            }
        }
    }

    pub(super) fn unwatch(&mut self, id: DirectoryId, model: &mut Model) {
        if let Some(directory) = model.directories.get_mut(id)
            && let Some(key) = directory.watch.take()
        {
            self.watches.remove(key, id);
        }
    }

    /// Gives up the watch of a directory that is gone.
    pub(super) fn forget(&mut self, id: DirectoryId, directory: &Directory) {
        if let Some(key) = directory.watch {
            self.watches.remove(key, id);
        }
    }

    /// Watches the target of a link to a file, so that a rewrite there is noticed at once. Returns the watch, and the
    /// name in the watched directory.
    pub(super) fn watch_target(
        &mut self,
        id: FileId,
        link: &Path,
        mount: &TreeMount,
    ) -> Option<(WatchKey, Box<[u8]>)> {
        if !self.gives_hints(mount) {
            return None;
        }
        let target = std::fs::canonicalize(link).ok()?;
        let (directory, name) = (target.parent()?, target.file_name()?.as_bytes());
        // Where this fails, the recheck each second remains.
        let key = self
            .watches
            .add_name(directory, name, WatchedName::Link(id));
        Some((key.ok()?, name.into()))
    }

    pub(super) fn unwatch_target(&mut self, id: FileId, target: &LinkTarget) {
        if let Some((key, name)) = &target.watch {
            self.watches.remove_name(*key, name, WatchedName::Link(id));
        }
    }

    /// Watches the directory that holds the root of the mount at this position, to notice at once when another takes its
    /// place.
    pub(super) fn watch_parent(&mut self, at: usize, mount: &mut TreeMount) {
        let (Some(parent), Some(name)) = (mount.directory.parent(), mount.directory.file_name())
        else {
            return;
        };
        if self.mode == WatchMode::Poll || self.watches.backend().is_none() {
            return;
        }
        // Where this fails, the check each second remains.
        let name: Box<[u8]> = name.as_bytes().into();
        let found = self.watches.add_name(parent, &name, WatchedName::Mount(at));
        let found = found.ok();
        let before = mount.parent_watch.take();
        if let Some((key, name)) = before.filter(|(key, _)| Some(*key) != found) {
            self.watches.remove_name(key, &name, WatchedName::Mount(at));
        }
        mount.parent_watch = found.map(|key| (key, name));
    }

    /// Returns true if an event came while a file was read: then the read does not count, whatever the file's times are.
    pub(super) fn is_written_again(&self, id: FileId, model: &Model) -> bool {
        let Some(file) = model.file(id) else {
            return true;
        };
        let watch = match &file.link {
            Some(target) => target.watch.as_ref().map(|(key, name)| (*key, &**name)),
            None => {
                let directory = model.directories.get(file.directory);
                directory.and_then(|directory| Some((directory.watch?, &*file.name)))
            }
        };
        watch.is_some_and(|(key, name)| self.watches.is_being_written(key, name))
    }

    fn poll(&self, mount: &mut TreeMount, reason: String, reports: &mut Reports<'_>) {
        if mount.poll() {
            reports.notice(TreeNotice::Polling {
                directory: mount.directory.clone(),
                reason,
                interval: self.poll_interval,
            });
        }
        self.sweep_soon(mount);
    }

    /// Brings the next sweep forward, because a directory found between two sweeps gives no hints.
    fn sweep_soon(&self, mount: &mut TreeMount) {
        mount.sweep_by(Instant::now() + self.poll_interval);
    }
}

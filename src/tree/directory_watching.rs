//! Watching: which directories and names give hints, and what is done about those that cannot be watched.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use crate::tree::file::LinkTarget;
use crate::tree::file_system::ALL_WRITE_HERE;
use crate::tree::model::{DirectoryId, FileId};
use crate::tree::observer::Observer;
use crate::tree::watches::{NameWatch, WatchedName};
use crate::tree::{SystemLimit, TreeNotice, WatchMode};

impl Observer<'_> {
    /// Returns true if the kernel can be asked to report the changes of the mount at this position, and may be.
    pub fn gives_hints(&self, at: usize) -> bool {
        self.settings.watch.trusts(self.mounts[at].file_system) && self.watches.backend().is_some()
    }

    /// Decides whether a mount that was found is watched or polled, and reports that.
    pub fn begin_watching(&mut self, at: usize) {
        let gives_hints = self.gives_hints(at);
        let mount = &mut self.mounts[at];
        mount.is_polled = !gives_hints;
        let directory = mount.directory.clone();
        let backend = self.watches.backend();
        self.reports.notice(match backend.filter(|_| gives_hints) {
            Some(backend) => TreeNotice::Watching { directory, backend },
            None => TreeNotice::Polling {
                directory,
                reason: match self.settings.watch {
                    WatchMode::Poll => "the configuration says so".into(),
                    _ if backend.is_none() => "nothing can be watched".into(),
                    _ => format!("its file system is not known to be local{ALL_WRITE_HERE}"),
                },
                interval: self.settings.poll_interval,
            },
        });
    }

    /// Watches a directory. Repeated, it restores a watch that was lost.
    pub fn watch(&mut self, id: DirectoryId, path: &Path, at: usize) {
        let Some(directory) = self.model.directory(id) else {
            return;
        };
        let (is_link, before) = (directory.is_link, directory.watch);
        if !self.gives_hints(at) {
            return;
        }
        let interval = self.settings.poll_interval;
        let is_auto = self.settings.watch == WatchMode::Auto;
        if is_auto && self.model.is_on_remote_device(id) {
            let mount = &mut self.mounts[at];
            if mount.poll() {
                self.reports.notice(TreeNotice::Polling {
                    directory: mount.directory.clone(),
                    reason: format!(
                        "{} lies on a file system that is not known to be local{ALL_WRITE_HERE}",
                        path.display()
                    ),
                    interval,
                });
            }
            return self.sweep_soon(at);
        }
        match self.watches.add(path, is_link, id) {
            Ok(key) if before == Some(key) => {}
            Ok(key) => {
                self.unwatch(id);
                // Events that closed files may have come before.
                self.model.forget_writers_in(id);
                if let Some(directory) = self.model.directory_mut(id) {
                    directory.watch = Some(key);
                }
            }
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                self.mounts[at].lack_watch();
                if !std::mem::replace(&mut self.watches.is_exhaustion_reported, true) {
                    let limit = SystemLimit::watches();
                    self.reports
                        .notice(TreeNotice::WatchesRanOut { limit, interval });
                }
                self.sweep_soon(at);
            }
            // Removed since it was opened: an event of its parent reports that.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                if self.mounts[at].lack_watch() {
                    self.reports.notice(TreeNotice::Unwatchable {
                        directory: path.to_owned(),
                        reason: error.to_string(),
                    });
                    self.sweep_soon(at);
                }
            }
        }
    }

    pub fn unwatch(&mut self, id: DirectoryId) {
        if let Some(directory) = self.model.directory_mut(id)
            && let Some(key) = directory.watch.take()
        {
            self.watches.remove(key, id);
        }
    }

    /// Watches the target of a link to a file, so that a rewrite there is noticed at once. Returns the watch.
    pub fn watch_target(&mut self, id: FileId, link: &Path, at: usize) -> Option<NameWatch> {
        if !self.gives_hints(at) {
            return None;
        }
        let target = std::fs::canonicalize(link).ok()?;
        self.watches.add_name(&target, WatchedName::Link(id))
    }

    pub fn unwatch_target(&mut self, id: FileId, target: &LinkTarget) {
        if let Some(watch) = &target.watch {
            self.watches.remove_name(watch, WatchedName::Link(id));
        }
    }

    /// Returns true if an event that was read says that a file is being written: then a read of it before that does not count,
    /// whatever the file's times are.
    pub fn is_written_again(&self, id: FileId) -> bool {
        let Some(file) = self.model.file(id) else {
            return true;
        };
        let watch = match &file.link {
            Some(target) => target.watch.as_ref().map(|(key, name)| (*key, &**name)),
            None => {
                let directory = self.model.directory(file.directory);
                directory.and_then(|directory| Some((directory.watch?, &*file.name)))
            }
        };
        watch.is_some_and(|(key, name)| self.watches.hints.is_being_written(key, name))
    }

    /// Brings the next sweep forward, because a directory found between two sweeps gives no hints, or another one is denied no
    /// more.
    pub fn sweep_soon(&mut self, at: usize) {
        self.mounts[at].sweep_by(Instant::now() + self.settings.poll_interval);
    }
}

//! Presence of mounts: finds out whether a root is there, and whether it is the same as before.

use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use jiff::Timestamp;

use crate::announce::observation::Identity;
use crate::diagnostics::access::{AccessFailure, remedy};
use crate::tree::file_status::{self, FileKind};
use crate::tree::file_system::{ALL_WRITE_HERE, file_system};
use crate::tree::mount::SWAPPED_WITHIN;
use crate::tree::observer::Observer;
use crate::tree::watches::WatchedName;
use crate::tree::work_queue::Depth;
use crate::tree::{TreeNotice, TreeReport, WatchMode};

impl Observer<'_> {
    pub(super) fn check_mounts(&mut self) {
        for at in 0..self.mounts.len() {
            self.check_mount(at);
        }
    }

    /// Finds out whether a mount is there, and whether it is the same as before.
    pub(super) fn check_mount(&mut self, at: usize) {
        self.watch_parent(at);
        match file_status::follow(&self.mounts[at].directory) {
            Ok(status) if status.kind != FileKind::Directory => {
                self.lose_mount(at, "it is not a directory");
            }
            Ok(status) if self.mounts[at].identity() == Some(status.identity) => {}
            Ok(status) => {
                // While it cannot be listed, it is not there.
                match std::fs::read_dir(&self.mounts[at].directory) {
                    Ok(_) => {
                        if self.leave_mount(at) {
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

    /// Checks a mount after an event that may have ended the watch of its root, and lists all of it.
    pub(super) fn relist_mount(&mut self, at: usize) {
        self.check_mount(at);
        self.queue
            .push_directory(self.mounts[at].root, Depth::Subtree);
    }

    /// Takes note that a mount cannot be read: it is not there for us, though it may be for others.
    pub(super) fn miss_mount(&mut self, at: usize, error: &io::Error) {
        let failure = match error.kind() {
            ErrorKind::PermissionDenied => Some(AccessFailure::Denied),
            ErrorKind::NotFound => Some(AccessFailure::Absent),
            _ => None,
        };
        let directory = &self.mounts[at].directory;
        let reason = match failure.and_then(|failure| remedy(directory, failure)) {
            Some(remedy) => format!("{error}: {remedy}"),
            None => error.to_string(),
        };
        self.lose_mount(at, &reason);
    }

    fn lose_mount(&mut self, at: usize, reason: &str) {
        let was_present = self.leave_mount(at);
        if was_present {
            // A link may be removed before its replacement is there.
            self.heartbeat = self.heartbeat.min(Instant::now() + SWAPPED_WITHIN);
        }
        let mount = &mut self.mounts[at];
        let reason = format!("{}: {reason}", mount.directory.display());
        let is_to_be_reported = mount.lose(&reason, was_present);
        self.report_unreadable();
        if !is_to_be_reported {
            return;
        }
        let mount = &mut self.mounts[at];
        let requested = std::mem::take(&mut mount.requested);
        let mount = mount.id;
        self.send(TreeReport::MountLost { mount, reason });
        for path in requested {
            self.answer_request(path, true);
        }
    }

    /// Takes note that a root is gone, or another one is there. Returns true if there was one.
    fn leave_mount(&mut self, at: usize) -> bool {
        if !self.mounts[at].leave() {
            return false;
        }
        self.end_sweep(at, false);
        for id in self.model.beneath(self.mounts[at].root) {
            self.unwatch(id);
            self.unreadable.allow(id, at);
        }
        true
    }

    fn find_mount(&mut self, at: usize, identity: Identity) {
        // The exact clock: that of `ctime` may stand still for long on a busy virtual machine, and a file that was
        // written before would seem to be written since.
        let started = Timestamp::now();
        let mount = &mut self.mounts[at];
        mount.find(identity, started, file_system(&mount.directory));
        let (id, directory) = (mount.id, mount.directory.clone());
        self.send(TreeReport::MountFound {
            mount: id,
            identity,
            started,
        });
        let gives_hints = self.gives_hints(at);
        self.mounts[at].is_polled = !gives_hints;
        match self.watches.backend().filter(|_| gives_hints) {
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
        // Where this fails, the check each second remains.
        let name: Box<[u8]> = name.as_bytes().into();
        let found = self.watches.add_name(parent, &name, WatchedName::Mount(at));
        let found = found.ok();
        let before = self.mounts[at].parent_watch.take();
        if let Some((key, name)) = before.filter(|(key, _)| Some(*key) != found) {
            self.watches.remove_name(key, &name, WatchedName::Mount(at));
        }
        self.mounts[at].parent_watch = found.map(|key| (key, name));
    }
}

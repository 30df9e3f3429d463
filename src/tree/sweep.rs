//! Listing: what a directory holds is compared with what we believe. A sweep lists all of them; it is the
//! truth that hints only anticipate.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::announce::observation::{Incomplete, Look};
use crate::tree::hints::Hint;
use crate::tree::looker::Looker;
use crate::tree::model::{DirectoryId, Entry, Queued, join, push_name};
use crate::tree::mount::{Sweep, file_system};
use crate::tree::stat::{self, Kind};
use crate::tree::watches::Unwatched;
use crate::tree::{Notice, Report, WatchMode};

/// How often a sweep says that it goes on.
const PROGRESS: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

impl Looker<'_> {
    /// Sweeps a mount, or does so from the beginning if it is being swept.
    pub(super) fn start_sweep(&mut self, mount: usize) {
        let mount = &mut self.mounts[mount];
        if mount.identity.is_none() {
            return;
        }
        mount.has_unwatched = false;
        let started = mount.sweep.as_ref().map(|sweep| sweep.started);
        let begun = mount
            .sweep
            .take()
            .map(|sweep| (sweep.files, sweep.unsettled));
        let (files, unsettled) = begun.unwrap_or_default();
        mount.sweep = Some(Sweep {
            directories: VecDeque::from([mount.root]),
            files,
            unsettled,
            met: 0,
            started: started.unwrap_or_else(Instant::now),
            told: Instant::now(),
        });
    }

    /// Does one step of a sweep; false if there is none.
    pub(super) fn go_on_sweeping(&mut self) -> bool {
        let has_work = |sweep: &Sweep| sweep.has_work();
        let Some(at) = self
            .mounts
            .iter()
            .position(|it| it.sweep.as_ref().is_some_and(has_work))
        else {
            return false;
        };
        let mount = &mut self.mounts[at];
        let Some(sweep) = &mut mount.sweep else {
            return false;
        };
        if sweep.told.elapsed() >= PROGRESS {
            sweep.told = Instant::now();
            let report = Report::Sweeping {
                mount: mount.id,
                files: sweep.met,
            };
            self.send(report);
        } else if let Some(id) = sweep.files.pop_front() {
            self.look_at(id, true);
        } else if let Some(id) = sweep.directories.pop_front() {
            self.list(id, true, true);
        } else if let Some((id, _)) = sweep.unsettled.pop_front() {
            self.look_at(id, false);
        } else {
            self.end_sweep(at, true);
        }
        true
    }

    /// Ends the sweep of a mount; an incomplete one proves nothing about what it did not meet.
    pub(super) fn end_sweep(&mut self, at: usize, complete: bool) {
        let Some(sweep) = self.mounts[at].sweep.take() else {
            return;
        };
        let asked = std::mem::take(&mut self.mounts[at].asked);
        if complete {
            self.report_unmet(at);
            for path in asked {
                self.ask(path);
            }
        }
        let hints = self.gives_hints(at);
        let mount = &mut self.mounts[at];
        mount.was_swept |= complete;
        mount.is_polled = !hints || mount.has_unwatched;
        let interval = if mount.is_polled {
            self.settings.poll_interval
        } else {
            self.settings.rescan_interval
        };
        mount.next_sweep = Instant::now() + interval;
        let report = Report::Swept {
            mount: mount.id,
            complete,
            files: sweep.met,
            took: sweep.started.elapsed(),
        };
        self.send(report);
    }

    /// Files of an earlier run that this sweep did not meet are missing, unless they lie where we cannot see.
    fn report_unmet(&mut self, at: usize) {
        let denied: Vec<Vec<u8>> = self
            .denied
            .keys()
            .filter(|id| self.model.directory(**id).is_some_and(|it| it.mount == at))
            .map(|id| self.model.below(*id))
            .collect();
        let unmet = std::mem::take(&mut self.mounts[at].known);
        for (below, mut ghost) in unmet {
            let is_denied = denied.iter().any(|above| {
                below
                    .strip_prefix(&**above)
                    .is_some_and(|rest| rest.starts_with(b"/"))
            });
            let path = self.mounts[at].path(&below);
            if !is_denied {
                self.observe_missing(path, ghost);
                continue;
            }
            if !std::mem::replace(&mut ghost.is_told_denied, true) {
                let reason = Incomplete::Denied("its directory cannot be read".into());
                self.observe(path, Look::Incomplete(reason));
            }
            self.mounts[at].known.insert(below, ghost);
        }
    }

    pub(super) fn list_queued(&mut self, id: DirectoryId) {
        if let Some(directory) = self.model.directory_mut(id) {
            match std::mem::replace(&mut directory.queued, Queued::No) {
                Queued::No => {}
                Queued::Alone => self.list(id, false, false),
                Queued::WithAllBeneath => self.list(id, true, false),
            }
        }
    }

    /// Lists a directory and brings the model up to it; its subdirectories are listed later if they are new
    /// or `deep` says so.
    fn list(&mut self, id: DirectoryId, deep: bool, in_sweep: bool) {
        let Some(directory) = self.model.directory(id) else {
            return;
        };
        let (at, parent, is_link) = (directory.mount, directory.parent, directory.is_link);
        let before = directory.identity;
        let was_denied = directory.is_denied;
        if self.mounts[at].identity.is_none() {
            return;
        }
        let below = self.model.below(id);
        let path = join(&self.mounts[at].directory, &below);
        let opened = open(&path, is_link).and_then(|fd| Ok((stat::of(&fd)?, fd)));
        let (status, fd) = match opened {
            Ok(opened) => opened,
            Err(error) if stat::is_absence(error) => return self.recheck_directory(id),
            Err(error) => return self.deny(id, &path, error),
        };
        if parent.is_none() && Some(status.identity) != self.mounts[at].identity {
            return self.check_mount(at);
        }
        let is_another = before != Some(status.identity);
        if is_another {
            self.unwatch(id);
            if let Some(directory) = self.model.directory_mut(id) {
                directory.identity = Some(status.identity);
            }
        }
        // Watched first, then listed: what is created in between is seen twice, not never.
        self.watch(id, &path);
        let found = match self.entries(&fd, &path, &below) {
            Ok(found) => found,
            Err(error) => return self.deny(id, &path, error),
        };
        if was_denied {
            self.denied.remove(&id);
            if let Some(directory) = self.model.directory_mut(id) {
                directory.is_denied = false;
            }
        }
        self.listing = self.listing.wrapping_add(1);
        let listing = Listing {
            directory: id,
            deep: deep || is_another || was_denied,
            in_sweep,
        };
        for Listed { name, kind } in found {
            self.meet_listed(&listing, &fd, &name, kind);
        }
        self.remove_unmet(&listing, &fd);
    }

    /// The names in an open directory that matter.
    fn entries(&mut self, fd: &OwnedFd, path: &Path, below: &[u8]) -> Result<Vec<Listed>, Errno> {
        let mut found = Vec::new();
        let names = Arc::clone(&self.names);
        let mut whole = below.to_vec();
        let mut take = |name: &[u8], kind: Option<Kind>| {
            let is_file = !matches!(kind, Some(Kind::Directory));
            let may_lead_on = !matches!(kind, Some(Kind::File | Kind::Special));
            if !(is_file && names.may_be(name) || may_lead_on) {
                return;
            }
            push_name(&mut whole, name);
            if is_file && names.may_be(name) && names.is_candidate(&whole)
                || may_lead_on && names.may_enter(name, || whole.clone())
            {
                found.push(Listed {
                    name: name.into(),
                    kind,
                });
            }
            whole.truncate(below.len());
        };
        read_names(fd, path, &mut self.buffer, &mut take)?;
        Ok(found)
    }

    fn meet_listed(&mut self, listing: &Listing, fd: &OwnedFd, name: &[u8], kind: Option<Kind>) {
        let id = listing.directory;
        let Some(at) = self.model.directory(id).map(|it| it.mount) else {
            return;
        };
        let mut status = None;
        let kind = match kind {
            Some(kind) => kind,
            None => match stat::within(fd, name) {
                Ok(found) => {
                    status = Some(found);
                    found.kind
                }
                // Gone since, which an event or the next listing says; or not ours to see.
                Err(_) => return,
            },
        };
        let queued = if listing.deep {
            Queued::WithAllBeneath
        } else {
            Queued::No
        };
        let queue = if listing.in_sweep { Some(at) } else { None };
        match self.meet(id, name, kind, queued, queue) {
            Some(Entry::File(file)) => {
                if listing.in_sweep
                    && let Some(sweep) = &mut self.mounts[at].sweep
                {
                    sweep.met += 1;
                }
                let is_link = kind == Kind::Link;
                let status = match status {
                    Some(status) if !is_link => Ok(status),
                    _ if is_link => stat::follow_within(fd, name),
                    _ => stat::within(fd, name),
                };
                if status.map_or(true, |status| self.needs_look(at, file, &status.stat)) {
                    match &mut self.mounts[at].sweep {
                        Some(sweep) if listing.in_sweep => sweep.files.push_back(file),
                        _ => self.queue_file(file),
                    }
                }
            }
            Some(Entry::Directory(_) | Entry::Dangling) | None => {}
        }
    }

    /// What was believed to be in a directory and is not listed has gone. A name that is replaced while the
    /// directory is read can escape the listing, so that each is asked for.
    fn remove_unmet(&mut self, listing: &Listing, fd: &OwnedFd) {
        let Some(directory) = self.model.directory(listing.directory) else {
            return;
        };
        let unmet: Vec<Arc<[u8]>> = directory
            .entries
            .iter()
            .filter(|(_, entry)| match entry {
                Entry::Directory(id) => self
                    .model
                    .directory(*id)
                    .is_none_or(|it| it.met != self.listing),
                Entry::File(id) => self.model.file(*id).is_none_or(|it| it.met != self.listing),
                Entry::Dangling => true,
            })
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in unmet {
            match stat::within(fd, &name) {
                Ok(status) if status.kind == Kind::Link => {}
                Ok(status) => self.meet_listed(listing, fd, &name, Some(status.kind)),
                Err(error) if stat::is_absence(error) => {
                    self.remove_entry(listing.directory, &name);
                }
                Err(_) => {}
            }
        }
    }

    /// A directory cannot be read: nothing beneath it is known, and nothing is missing (R15).
    pub(super) fn deny(&mut self, id: DirectoryId, path: &Path, error: Errno) {
        let reason = stat::reason(error);
        let Some(directory) = self.model.directory_mut(id) else {
            return;
        };
        if directory.parent.is_none() {
            let mount = directory.mount;
            return self.lose_mount(mount, reason);
        }
        let was_denied = std::mem::replace(&mut directory.is_denied, true);
        let tries = self.denied.get(&id).map_or(0, |(_, tries)| *tries);
        let after = FIRST_RETRY
            .saturating_mul(1 << tries.min(5))
            .min(LAST_RETRY);
        self.denied
            .insert(id, (Instant::now() + after, tries.saturating_add(1)));
        if was_denied {
            return;
        }
        self.notice(Notice::Unreadable {
            directory: path.to_owned(),
            reason: reason.clone(),
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

    /// Whether this mount's changes can be told by the kernel.
    pub(super) fn gives_hints(&self, at: usize) -> bool {
        let is_trusted = match self.settings.watch {
            WatchMode::Auto => self.mounts[at].file_system.is_local,
            WatchMode::Inotify | WatchMode::Notify => true,
            WatchMode::Poll => false,
        };
        is_trusted && self.watches.backend().is_some()
    }

    fn watch(&mut self, id: DirectoryId, path: &Path) {
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
        let device_of = |it: &crate::tree::model::Directory| it.identity.map(|it| it.device);
        if self.settings.watch == WatchMode::Auto
            && above.is_some_and(|above| device_of(above) != device_of(directory))
            && !file_system(path).is_local
        {
            self.poll(at, format!("{} may change unseen", path.display()));
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
                        file.writing_since = None;
                    }
                }
                if let Some(directory) = self.model.directory_mut(id) {
                    directory.watch = Some(key);
                }
            }
            Err(Unwatched::RanOut(sysctl)) => {
                self.mounts[at].has_unwatched = true;
                if !std::mem::replace(&mut self.has_said_ran_out, true) {
                    self.notice(Notice::WatchesRanOut { sysctl, interval });
                }
                self.sweep_soon(at);
            }
            Err(Unwatched::Failed(error)) => {
                let absent = error.kind() == std::io::ErrorKind::NotFound;
                // Gone since it was opened: its parent says so.
                if !absent && !self.mounts[at].has_unwatched {
                    self.mounts[at].has_unwatched = true;
                    self.notice(Notice::Unwatchable {
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
            let notice = Notice::Polling {
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

/// How a directory is being listed.
struct Listing {
    directory: DirectoryId,
    deep: bool,
    in_sweep: bool,
}

/// A name in a directory, and what it stands for if the directory itself says so.
struct Listed {
    name: Box<[u8]>,
    kind: Option<Kind>,
}

fn open(path: &Path, follow: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    rustix::fs::open(path, flags, Mode::empty())
}

#[cfg(target_os = "linux")]
fn read_names(
    fd: impl AsFd,
    _: &Path,
    buffer: &mut Vec<u8>,
    take: &mut impl FnMut(&[u8], Option<Kind>),
) -> Result<(), Errno> {
    use rustix::fs::{FileType, RawDir};
    let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let kind = match entry.file_type() {
            FileType::Unknown => None,
            known => Some(Kind::from(known)),
        };
        if name != b"." && name != b".." {
            take(name, kind);
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn read_names(
    _: impl AsFd,
    path: &Path,
    _: &mut Vec<u8>,
    take: &mut impl FnMut(&[u8], Option<Kind>),
) -> Result<(), Errno> {
    use std::os::unix::ffi::OsStrExt;
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    for entry in std::fs::read_dir(path).map_err(errno)? {
        let entry = entry.map_err(errno)?;
        let kind = entry.file_type().map_err(errno)?;
        let kind = if kind.is_dir() {
            Kind::Directory
        } else if kind.is_symlink() {
            Kind::Link
        } else if kind.is_file() {
            Kind::File
        } else {
            Kind::Special
        };
        take(entry.file_name().as_bytes(), Some(kind));
    }
    Ok(())
}

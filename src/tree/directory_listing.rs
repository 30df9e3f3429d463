//! What a directory holds is compared with what we believe of it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::announce::observation::Identity;
use crate::tree::TreeNotice;
use crate::tree::file_status::{self, FileKind};
use crate::tree::file_system::{FileSystem, file_system};
use crate::tree::model::{Directory, DirectoryId, Entry, Queued, join, push_name};
use crate::tree::observer::Observer;

impl Observer<'_> {
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
    pub(super) fn list(&mut self, id: DirectoryId, deep: bool, in_sweep: bool) {
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
        let opened = open(&path, is_link).and_then(|fd| Ok((file_status::of(&fd)?, fd)));
        let (status, fd) = match opened {
            Ok(opened) => opened,
            Err(error) if file_status::is_absence(error) => return self.recheck_directory(id),
            Err(error) => return self.deny(id, &path, error),
        };
        if parent.is_none() && Some(status.identity) != self.mounts[at].identity {
            return self.check_mount(at);
        }
        if let Some(above) = self.above_itself(id, status.identity) {
            return self.cut_circle(id, path, above, status.identity);
        }
        let is_another = before != Some(status.identity);
        if is_another {
            self.unwatch(id);
            let file_system = self.file_system_of(parent, &path, status.identity);
            if let Some(directory) = self.model.directory_mut(id) {
                directory.file_system = file_system;
                directory.identity = Some(status.identity);
            }
        }
        // Watched first, then listed: what is created in between is seen twice, not never.
        self.watch(id, &path);
        let found = match self.entries(at, &fd, &path, &below) {
            Ok(found) => found,
            Err(error) => return self.deny(id, &path, error),
        };
        if was_denied {
            self.allow(id);
            let directory = path.clone();
            self.notice(TreeNotice::Readable { directory });
        }
        if let Some(directory) = self.model.directory_mut(id) {
            (directory.is_denied, directory.is_circle) = (false, false);
        }
        self.listing = self.listing.wrapping_add(1);
        let listing = ListingMode {
            directory: id,
            deep: deep || is_another || was_denied,
            in_sweep,
        };
        for ListedName { name, kind } in found {
            self.meet_listed(&listing, &fd, &name, kind);
        }
        self.remove_unmet(&listing, &fd);
    }

    /// What the file system of a directory promises, asked where it is another than that of its parent.
    fn file_system_of(
        &self,
        parent: Option<DirectoryId>,
        path: &Path,
        identity: Identity,
    ) -> FileSystem {
        let parent = parent.and_then(|parent| self.model.directory(parent));
        let is_same = |it: &&Directory| it.identity.is_some_and(|it| it.device == identity.device);
        match parent.filter(is_same) {
            Some(parent) => parent.file_system,
            None => file_system(path),
        }
    }

    /// The names in an open directory that matter.
    fn entries(
        &mut self,
        at: usize,
        fd: &OwnedFd,
        path: &Path,
        below: &[u8],
    ) -> Result<Vec<ListedName>, Errno> {
        let mut found = Vec::new();
        let (names, published) = (&self.names, &self.mounts[at].published);
        let mut whole = below.to_vec();
        let mut take = |name: &[u8], kind: Option<FileKind>| {
            let is_file = !matches!(kind, Some(FileKind::Directory));
            let may_lead_on = !matches!(kind, Some(FileKind::File | FileKind::Special));
            if !(is_file && names.may_be(name) || may_lead_on) {
                return;
            }
            push_name(&mut whole, name);
            if is_file && names.may_be(name) && names.is_candidate(published, &whole)
                || may_lead_on && names.may_enter(published, name, || whole.clone())
            {
                found.push(ListedName {
                    name: name.into(),
                    kind,
                });
            }
            whole.truncate(below.len());
        };
        read_names(fd, path, &mut self.buffer, &mut take)?;
        Ok(found)
    }

    fn meet_listed(
        &mut self,
        listing: &ListingMode,
        fd: &OwnedFd,
        name: &[u8],
        kind: Option<FileKind>,
    ) {
        let id = listing.directory;
        let Some(at) = self.model.directory(id).map(|it| it.mount) else {
            return;
        };
        let mut status = None;
        let kind = match kind {
            Some(kind) => kind,
            None => match file_status::within(fd, name) {
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
                let is_link = kind == FileKind::Link;
                let status = match status {
                    Some(status) if !is_link => Ok(status),
                    _ if is_link => file_status::follow_within(fd, name),
                    _ => file_status::within(fd, name),
                };
                if status.map_or(true, |status| self.needs_look(file, &status.stat)) {
                    match &mut self.mounts[at].sweep {
                        Some(sweep) if listing.in_sweep => sweep.files.push_back(file),
                        _ => self.queue_file(file),
                    }
                }
            }
            Some(Entry::Directory(_) | Entry::Dangling | Entry::Refused) | None => {}
        }
    }

    /// What was believed to be in a directory and is not listed has gone. A name that is replaced while the
    /// directory is read can escape the listing, so that each is asked for.
    fn remove_unmet(&mut self, listing: &ListingMode, fd: &OwnedFd) {
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
                Entry::Dangling | Entry::Refused => true,
            })
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in unmet {
            match file_status::within(fd, &name) {
                Ok(status) if status.kind == FileKind::Link => {}
                Ok(status) => self.meet_listed(listing, fd, &name, Some(status.kind)),
                Err(error) if file_status::is_absence(error) => {
                    self.remove_entry(listing.directory, &name);
                }
                Err(_) => {}
            }
        }
    }
}

/// How a directory is being listed.
struct ListingMode {
    directory: DirectoryId,
    deep: bool,
    in_sweep: bool,
}

/// A name in a directory, and what it stands for if the directory itself says so.
struct ListedName {
    name: Box<[u8]>,
    kind: Option<FileKind>,
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
    take: &mut impl FnMut(&[u8], Option<FileKind>),
) -> Result<(), Errno> {
    use rustix::fs::{FileType, RawDir};
    let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let kind = match entry.file_type() {
            FileType::Unknown => None,
            known => Some(FileKind::from(known)),
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
    take: &mut impl FnMut(&[u8], Option<FileKind>),
) -> Result<(), Errno> {
    use std::os::unix::ffi::OsStrExt;
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    for entry in std::fs::read_dir(path).map_err(errno)? {
        let entry = entry.map_err(errno)?;
        let kind = entry.file_type().map_err(errno)?;
        let kind = if kind.is_dir() {
            FileKind::Directory
        } else if kind.is_symlink() {
            FileKind::Link
        } else if kind.is_file() {
            FileKind::File
        } else {
            FileKind::Special
        };
        take(entry.file_name().as_bytes(), Some(kind));
    }
    Ok(())
}

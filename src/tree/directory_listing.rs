//! Listing a directory: its entries are compared with what is known of it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::diagnostics::access::{AccessFailure, remedy};
use crate::tree::TreeNotice;
use crate::tree::directories::{ListingOutcome, TreeEntry, join, push_name};
use crate::tree::file_status::{self, FileKind};
use crate::tree::file_system::file_system;
use crate::tree::model::DirectoryId;
use crate::tree::mount::unreadable_root;
use crate::tree::observer::Observer;
use crate::tree::work_queue::Depth;
use announce::candidates::{CandidateGlobs, PublishedPath};
use announce::observation::{Identity, Incomplete, Stat};

/// A directory that is open to be listed.
struct OpenDirectory {
    id: DirectoryId,
    /// Position of its mount.
    mount: usize,
    path: PathBuf,
    fd: OwnedFd,
    /// Depth of the listing of directories in it, apart from those that are new.
    depth: Depth,
}

impl Observer<'_> {
    /// Lists a directory and updates the model, or finds out what has become of it. Its subdirectories are listed later if
    /// they are new or `depth` says so.
    pub fn list(&mut self, id: DirectoryId, depth: Depth) {
        let Some(directory) = self.model.directory(id) else {
            return;
        };
        let (mount, is_root) = (directory.mount, directory.parent.is_none());
        let (is_link, before) = (directory.is_link, directory.identity);
        if self.mounts[mount].found.is_none() {
            return;
        }
        let below = self.model.below(id);
        let path = join(&self.mounts[mount].directory, &below);
        let (fd, identity) = match open(&path, is_link) {
            Ok(opened) => opened,
            Err(error) if file_status::is_absence(error) => return self.recheck_directory(id),
            Err(error) => return self.deny(id, &path, error),
        };
        if is_root && Some(identity) != self.mounts[mount].identity() {
            return self.check_mount(mount);
        }
        let mut listing = OpenDirectory {
            id,
            mount,
            path,
            fd,
            depth,
        };
        let circle = self.same_directory_above(id, identity);
        if before != Some(identity) {
            self.meet_another_directory(&listing, identity);
            listing.depth = depth.max(Depth::Subtree);
        }
        if let Some(above) = circle {
            return self.cut_circle(id, listing.path, above);
        }
        self.nested.note(id, &self.model);
        // Watched first, then listed: an entry that is created in between is seen twice, not never.
        self.watch(id, &listing.path, mount);
        let found = match self.names_to_look_at(&listing, below) {
            Ok(found) => found,
            Err(error) => return self.deny(id, &listing.path, error),
        };
        if self.allow(&listing) {
            // R13: what a sweep under way could not read belongs to it.
            let is_swept = self.mounts[mount].sweep.is_some();
            let depth = if is_swept {
                Depth::Sweep
            } else {
                Depth::Subtree
            };
            listing.depth = listing.depth.max(depth);
        }
        for (name, kind) in &found {
            self.update_listed(&listing, name, *kind);
        }
        self.remove_unmet(&listing, &found);
    }

    /// Takes note that a path stands for another directory than before, or for the first one.
    fn meet_another_directory(&mut self, listing: &OpenDirectory, identity: Identity) {
        self.unwatch(listing.id);
        // Queried only if it differs from the parent's.
        let above = self.model.file_system_above(listing.id, identity.device);
        let file_system = above.unwrap_or_else(|| file_system(&listing.path));
        let is_mount_point = file_status::is_mount_point(&listing.fd, b"");
        if let Some(directory) = self.model.directory_mut(listing.id) {
            directory.file_system = file_system;
            directory.is_mount_point = is_mount_point;
            directory.identity = Some(identity);
        }
    }

    /// Reads the names in a directory that may matter. `below` is its path below its mount.
    fn names_to_look_at(
        &self,
        listing: &OpenDirectory,
        below: Vec<u8>,
    ) -> Result<Vec<ListedName>, Errno> {
        let mut names = NamesToLookAt {
            candidates: &self.settings.candidates,
            published: &self.mounts[listing.mount].published,
            below,
            found: Vec::new(),
        };
        for entry in Dir::new(fcntl_dupfd_cloexec(&listing.fd, 0)?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let kind = match entry.file_type() {
                FileType::Unknown => None,
                known => Some(FileKind::from(known)),
            };
            if name != b"." && name != b".." {
                names.take(name, kind);
            }
        }
        // Neighbours have neighbouring rows in the state.
        names.found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(names.found)
    }

    /// Takes note that a directory can be read. Returns true if it could not be before.
    fn allow(&mut self, listing: &OpenDirectory) -> bool {
        let Some(directory) = self.model.directory_mut(listing.id) else {
            return false;
        };
        let before = std::mem::replace(&mut directory.state, ListingOutcome::Readable);
        let was_denied = before == ListingOutcome::Denied;
        if was_denied {
            self.end_denial(listing.id, listing.mount);
            let directory = listing.path.clone();
            self.reports.notice(TreeNotice::Readable { directory });
        }
        was_denied
    }

    /// Takes note that a directory can be read, or is none any more. If it could not be read before, the mount is swept: what
    /// is written in its place from then on is new (R13).
    pub fn end_denial(&mut self, id: DirectoryId, at: usize) {
        if self.unreadable.allow(id, at) {
            self.sweep_soon(at);
        }
    }

    /// Takes note that a directory cannot be read: nothing beneath it is known, and nothing is missing (R15).
    fn deny(&mut self, id: DirectoryId, path: &Path, error: Errno) {
        let Some(directory) = self.model.directory_mut(id) else {
            return;
        };
        let at = directory.mount;
        if directory.parent.is_none() {
            let reason = unreadable_root(&self.mounts[at].directory, &error.into());
            return self.lose_mount(at, &reason);
        }
        let before = std::mem::replace(&mut directory.state, ListingOutcome::Denied);
        let reason = file_status::reason(error);
        let is_forbidden = matches!(error, Errno::ACCESS | Errno::PERM);
        let remedy = is_forbidden
            .then(|| remedy(path, AccessFailure::Denied))
            .flatten();
        if before != ListingOutcome::Denied {
            self.reports.notice(TreeNotice::Unreadable {
                directory: path.to_owned(),
                reason: remedy.map_or(reason.clone(), |remedy| format!("{reason}: {remedy}")),
            });
        }
        if !self.unreadable.deny(id, at, &reason, remedy) {
            return;
        }
        for file in self.model.files_beneath(id) {
            self.report_incomplete(file, Incomplete::Denied(reason.clone()));
        }
    }

    /// Updates the model for one name of a listing, and queues its file if that may have changed.
    fn update_listed(&mut self, listing: &OpenDirectory, name: &[u8], kind: Option<FileKind>) {
        let (id, fd) = (listing.id, &listing.fd);
        let found = || file_status::within(fd, name).map(|found| found.kind);
        let kind = match kind.map_or_else(found, Ok) {
            Ok(kind) => kind,
            Err(error) if file_status::is_absence(error) => return self.remove(id, name),
            // It may not be looked at by this user.
            Err(_) => return,
        };
        let depth = Some(listing.depth).filter(|depth| *depth >= Depth::Subtree);
        let Some(TreeEntry::File(file)) = self.update(id, name, kind, depth) else {
            return;
        };
        let status = match kind {
            FileKind::Link => file_status::follow_within(fd, name),
            _ => file_status::within(fd, name),
        };
        let has_sharp_times = self.model.has_sharp_times(file);
        let needs_look = |stat: &Stat| {
            let file = self.model.file(file);
            file.is_some_and(|file| file.needs_look(stat, has_sharp_times))
        };
        let must_read = match status {
            Ok(status) if !needs_look(&status.stat) => {
                // The look at any other file finds that out.
                let is_mounted = || file_status::is_mount_point(fd, name);
                self.note_silent(file, status.has_other_names || is_mounted());
                false
            }
            _ => true,
        };
        let sweep = self.mounts[listing.mount].sweep.as_mut();
        match sweep.filter(|_| listing.depth == Depth::Sweep) {
            Some(sweep) => {
                sweep.met += 1;
                if must_read {
                    sweep.files.push_back(file);
                }
            }
            None if must_read => self.queue.push_file(file),
            None => {}
        }
    }

    /// Removes entries that a listing did not meet. A name that is replaced while the directory is read can escape the
    /// listing, so that each is checked.
    fn remove_unmet(&mut self, listing: &OpenDirectory, found: &[ListedName]) {
        let directory = self.model.directory(listing.id);
        for name in directory.map_or_else(Vec::new, |it| it.unmet(found)) {
            match file_status::within(&listing.fd, &name) {
                Ok(status) if status.kind == FileKind::Link => {}
                Ok(status) => self.update_listed(listing, &name, Some(status.kind)),
                Err(error) if file_status::is_absence(error) => self.remove(listing.id, &name),
                Err(_) => {}
            }
        }
    }
}

/// The names in a directory that may be candidates or lead to some.
struct NamesToLookAt<'a> {
    candidates: &'a CandidateGlobs,
    published: &'a PublishedPath,
    /// Path of the directory below its mount.
    below: Vec<u8>,
    found: Vec<ListedName>,
}

impl NamesToLookAt<'_> {
    /// Takes a name, if it may matter. Links may lead to files and to directories.
    fn take(&mut self, name: &[u8], kind: Option<FileKind>) {
        let is_file = !matches!(kind, Some(FileKind::Directory));
        let may_lead_on = !matches!(kind, Some(FileKind::File | FileKind::Special));
        let may_be = is_file && self.candidates.may_be(name);
        if !(may_be || may_lead_on) {
            return;
        }
        let length = self.below.len();
        push_name(&mut self.below, name);
        let below = || self.below.clone();
        if may_be && self.candidates.is_candidate(self.published, &self.below)
            || may_lead_on && self.candidates.may_enter(self.published, name, below)
        {
            self.found.push((name.into(), kind));
        }
        self.below.truncate(length);
    }
}

/// A name in a directory, and its kind if the directory itself states it.
type ListedName = (Box<[u8]>, Option<FileKind>);

/// Opens a directory, and identifies it.
fn open(path: &Path, follow: bool) -> Result<(OwnedFd, Identity), Errno> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let status = file_status::of(&fd)?;
    Ok((fd, status.identity))
}

#[cfg(test)]
mod tests {
    use crate::tree::directory_listing::NamesToLookAt;
    use crate::tree::file_status::FileKind;
    use announce::candidates::{CandidateGlobs, PublishedPath};

    #[test]
    fn only_candidates_and_what_may_lead_to_some_are_looked_at() {
        let globs = (vec!["**/*.xml".into()], vec!["old/**".into()]);
        let candidates = CandidateGlobs::new(globs.0, globs.1).unwrap();
        let published = PublishedPath::default();
        let is_taken = |below: &str, name: &str, kind| {
            let mut names = NamesToLookAt {
                candidates: &candidates,
                published: &published,
                below: below.into(),
                found: Vec::new(),
            };
            names.take(name.as_bytes(), kind);
            assert_eq!(names.below, below.as_bytes());
            !names.found.is_empty()
        };
        use FileKind::{Directory, File, Link, Special};
        for (below, name, kind, want) in [
            ("", "a.xml", Some(File), true),
            ("", "a.xml", Some(Special), true),
            ("", "a.html", Some(File), false),
            ("", "a.html", Some(Link), true),
            ("", "a.html", None, true),
            ("", "deep", Some(Directory), true),
            ("", ".git", Some(Directory), false),
            ("", "old", Some(Directory), false),
            ("old", "a.xml", Some(File), false),
            ("a.xml", "b.html", Some(File), false),
        ] {
            assert_eq!(is_taken(below, name, kind), want, "{below} {name} {kind:?}");
        }
    }
}

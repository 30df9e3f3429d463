//! Listing a directory: its entries are compared with what is known of it. Name by name, the model is updated to the present
//! state of the file system, whatever the event was.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::tree::TreeNotice;
use crate::tree::file::LastReport;
use crate::tree::file_status::{self, file_system};
use crate::tree::model::{DirectorySlot, DirectoryState, FileSlot, TreeEntry, join, push_name};
use crate::tree::mount::UnmetFile;
use crate::tree::observer::Observer;
use crate::tree::pending_hints::NameHint;
use crate::tree::sweep::Depth;
use announce::candidates::{CandidateGlobs, MountUrlPath};
use announce::observation::FileId;

/// A directory that is open to be listed.
struct OpenDirectory {
    id: DirectorySlot,
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
    pub fn list_directory(&mut self, id: DirectorySlot, depth: Depth) {
        let Some(directory) = self.model.directory(id) else {
            return;
        };
        let (mount, is_root) = (directory.mount, directory.parent.is_none());
        let (is_link, before) = (directory.is_link, directory.identity);
        if self.mounts[mount].found.is_none() {
            return;
        }
        let below = self.model.path_in_mount(id);
        let path = join(&self.mounts[mount].directory, &below);
        let (fd, identity) = match open(&path, is_link) {
            Ok(opened) => opened,
            Err(error) if file_status::is_absence(error) => return self.recheck_directory(id),
            Err(error) => return self.mark_unreadable(id, &path, error),
        };
        if is_root && Some(identity) != self.mounts[mount].found {
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
            self.set_directory_identity(&listing, identity);
            listing.depth = depth.max(Depth::Subtree);
        }
        if let Some(above) = circle {
            return self.cut_circle(id, listing.path, above);
        }
        let nested = self.model.nested_at(id);
        self.mounts[mount].nested.set_nested(id, nested);
        // Watched first, then listed: an entry that is created in between is seen twice, not never.
        self.watch(id, &listing.path, mount);
        let found = match self.read_relevant_names(&listing, below) {
            Ok(found) => found,
            Err(error) => return self.mark_unreadable(id, &listing.path, error),
        };
        if self.mark_readable(&listing) {
            // R13: what a sweep under way could not read belongs to it.
            let sweep = self.mounts[mount].sweep.as_ref();
            let depth = sweep.map_or(Depth::Subtree, |_| Depth::Sweep);
            listing.depth = listing.depth.max(depth);
        }
        for (name, kind) in &found {
            self.update_listed_name(&listing, name, *kind);
        }
        self.remove_unmet(&listing, &found);
    }

    /// Takes note that a path stands for another directory than before, or for the first one.
    fn set_directory_identity(&mut self, listing: &OpenDirectory, identity: FileId) {
        self.unwatch(listing.id);
        // Queried only if it differs from the parent's.
        let above = self.model.file_system_above(listing.id, identity.device);
        let file_system = above.unwrap_or_else(|| file_system(&listing.path));
        let is_mount_point = file_status::is_mount_point(&listing.fd, "");
        if let Some(directory) = self.model.directory_mut(listing.id) {
            directory.file_system = file_system;
            directory.is_mount_point = is_mount_point;
            directory.identity = Some(identity);
        }
    }

    /// Reads the names in a directory that may matter. `below` is its path below its mount.
    fn read_relevant_names(
        &self,
        listing: &OpenDirectory,
        mut below: Vec<u8>,
    ) -> Result<Vec<ListedName>, Errno> {
        let published = &self.mounts[listing.mount].published;
        let mut found: Vec<ListedName> = Vec::new();
        for entry in Dir::new(fcntl_dupfd_cloexec(&listing.fd, 0)?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let kind = entry.file_type();
            let candidates = &self.settings.candidates;
            if !matches!(name, b"." | b"..")
                && may_matter(candidates, published, &mut below, (name, kind))
            {
                found.push((name.into(), kind));
            }
        }
        // Neighbours have neighbouring rows in the state.
        found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(found)
    }

    /// Takes note that a directory can be read. Returns true if it could not be before.
    fn mark_readable(&mut self, listing: &OpenDirectory) -> bool {
        let Some(directory) = self.model.directory_mut(listing.id) else {
            return false;
        };
        let before = std::mem::replace(&mut directory.state, DirectoryState::Readable);
        let was_denied = before == DirectoryState::Denied;
        if was_denied {
            self.note_readable(listing.id, listing.mount);
            let directory = listing.path.clone();
            self.reports.notice(TreeNotice::Readable { directory });
        }
        was_denied
    }

    /// Updates the model for one name of a listing, and queues its file if that may have changed.
    fn update_listed_name(&mut self, listing: &OpenDirectory, name: &[u8], kind: FileType) {
        let (id, fd) = (listing.id, &listing.fd);
        let known = Some(kind).filter(|kind| *kind != FileType::Unknown);
        let found = || file_status::of_name_in(fd, name, false).map(|found| found.kind);
        let kind = match known.map_or_else(found, Ok) {
            Ok(kind) => kind,
            Err(error) if file_status::is_absence(error) => return self.remove_name(id, name),
            // It may not be looked at by this user.
            Err(_) => return,
        };
        let depth = Some(listing.depth).filter(|depth| *depth >= Depth::Subtree);
        let Some(TreeEntry::File(file)) = self.update_name(id, name, kind, depth) else {
            return;
        };
        // What was not reported as a whole is looked at in any case.
        let known = self.model.file(file);
        let reported = known.filter(|file| file.reported == LastReport::Whole);
        let unchanged = reported.and_then(|reported| {
            let status = file_status::of_name_in(fd, name, kind == FileType::Symlink).ok()?;
            let has_sharp_times = self.model.has_sharp_times(file);
            let is_unchanged = reported.is_unchanged(&status.stat, has_sharp_times);
            is_unchanged.then_some(status)
        });
        if let Some(status) = &unchanged {
            // Whether events tell of a file is else found out by the look at it.
            let is_mounted = || file_status::is_mount_point(fd, name);
            self.note_silent(file, status.has_other_names || is_mounted());
        }
        let must_read = unchanged.is_none();
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
            match file_status::of_name_in(&listing.fd, &*name, false) {
                Ok(status) if status.kind == FileType::Symlink => {}
                Ok(status) => self.update_listed_name(listing, &name, status.kind),
                Err(error) if file_status::is_absence(error) => self.remove_name(listing.id, &name),
                Err(_) => {}
            }
        }
    }

    // One name.

    /// Checks what a name stands for, because an event said that it changed.
    pub fn check_name(&mut self, id: DirectorySlot, name: &[u8], hint: NameHint) {
        let existing = self.model.entry(id, name);
        let depth = match existing {
            _ if hint.renamed || hint.unclear => Depth::Subtree,
            Some(TreeEntry::File(file)) => return self.apply_file_hint(file, hint),
            _ => Depth::Directory,
        };
        let Some(path) = self.path_of_name(id, name) else {
            return;
        };
        match file_status::of_name_in(CWD, &path, false) {
            Ok(status) => {
                let entry = self.update_name(id, name, status.kind, Some(depth));
                if let Some(TreeEntry::File(file)) = entry {
                    self.apply_file_hint(file, hint);
                }
            }
            Err(error) if file_status::is_absence(error) => self.remove_name(id, name),
            // The listing or the read will report the reason.
            Err(_) => match existing {
                Some(TreeEntry::File(file)) => self.queue.push_file(file),
                Some(TreeEntry::Directory(directory)) => {
                    self.queue.push_directory(directory, depth)
                }
                Some(TreeEntry::Dangling | TreeEntry::Refused) | None => {}
            },
        }
    }

    /// Returns the path of a directory.
    pub fn directory_path(&self, id: DirectorySlot) -> Option<PathBuf> {
        let mount = &self.mounts[self.model.directory(id)?.mount];
        Some(join(&mount.directory, &self.model.path_in_mount(id)))
    }

    /// Returns the path of a name in a directory.
    pub fn path_of_name(&self, id: DirectorySlot, name: &[u8]) -> Option<PathBuf> {
        Some(join(&self.directory_path(id)?, name))
    }

    /// Returns true if a directory that was listed is not there any more, or another one is.
    pub fn is_replaced(&self, id: DirectorySlot) -> bool {
        let directory = self.model.directory(id);
        let identity = directory.and_then(|directory| directory.identity);
        let listed = identity.zip(self.directory_path(id));
        listed.is_some_and(|(identity, path)| !file_status::has_identity(&path, identity))
    }

    /// Takes note that a name stands for something of this kind. A directory is listed again as `depth` says, or
    /// entirely if it is new.
    pub fn update_name(
        &mut self,
        id: DirectorySlot,
        name: &[u8],
        kind: FileType,
        depth: Option<Depth>,
    ) -> Option<TreeEntry> {
        match kind {
            FileType::Directory => self.update_directory(id, name, depth),
            FileType::Symlink => self.update_link(id, name, depth),
            _ => {
                let file = self.adopt_file(id, name)?;
                self.forget_target(file);
                Some(TreeEntry::File(file))
            }
        }
    }

    pub fn update_directory(
        &mut self,
        id: DirectorySlot,
        name: &[u8],
        depth: Option<Depth>,
    ) -> Option<TreeEntry> {
        let at = self.model.directory(id)?.mount;
        let below = || self.model.entry_path_in_mount(id, name);
        let published = &self.mounts[at].published;
        if !self.settings.candidates.may_enter(published, name, below) {
            self.remove_name(id, name);
            return None;
        }
        let (child, depth) = if let Some(TreeEntry::Directory(child)) = self.model.entry(id, name) {
            (child, depth)
        } else {
            self.remove_name(id, name);
            let child = self.model.add_below(id, name)?;
            let is_behind_link = self.model.directory(child)?.is_behind_link;
            self.mounts[at].linked += usize::from(is_behind_link);
            (child, depth.max(Some(Depth::Subtree)))
        };
        if let Some(directory) = self.model.directory_mut(child) {
            directory.is_link = false;
            let link = (id, Arc::clone(&directory.name));
            self.model.links.remove(&link);
        }
        match (depth, &mut self.mounts[at].sweep) {
            (Some(Depth::Sweep), Some(sweep)) => sweep.directories.push_back(child),
            (Some(depth), _) => self.queue.push_directory(child, depth.min(Depth::Subtree)),
            (None, _) => {}
        }
        Some(TreeEntry::Directory(child))
    }

    /// Returns the file of this name, if it is a candidate; new ones are adopted.
    pub fn adopt_file(&mut self, id: DirectorySlot, name: &[u8]) -> Option<FileSlot> {
        match self.model.entry(id, name) {
            Some(TreeEntry::File(file)) => return Some(file),
            Some(_) => self.remove_name(id, name),
            None => {}
        }
        let candidates = &self.settings.candidates;
        let mount = &mut self.mounts[self.model.directory(id)?.mount];
        let below = self.model.entry_path_in_mount(id, name);
        if !(candidates.is_candidate_name(name)
            && candidates.is_candidate(&mount.published, &below))
        {
            return None;
        }
        let file = self.model.add_file(id, name);
        // A file that was reported as unreachable is reported again.
        if let Some(UnmetFile::Read(last_read)) = mount.unmet.remove(&*below) {
            self.model.file_mut(file)?.adopt_read(last_read);
        }
        Some(file)
    }

    /// Takes note that a name is gone, with all beneath it.
    pub fn remove_name(&mut self, id: DirectorySlot, name: &[u8]) {
        match self.model.entry(id, name) {
            None => {}
            Some(TreeEntry::File(file)) => self.remove_file(file),
            Some(TreeEntry::Directory(top)) => {
                for id in self.model.subtree(top).into_iter().rev() {
                    let files = self.model.files_in(id);
                    files.into_iter().for_each(|file| self.remove_file(file));
                    self.remove_directory(id);
                }
            }
            Some(TreeEntry::Dangling | TreeEntry::Refused) => self.model.remove_entry(id, name),
        }
        self.model.links.remove(&(id, name.into()));
    }

    /// Removes a file. Its number may be used again: no part refers to it from here on, but for the queues of sweeps, which
    /// are looked up again.
    fn remove_file(&mut self, id: FileSlot) {
        let Some((at, below)) = self.model.mount_and_path(id) else {
            return;
        };
        self.forget_target(id);
        self.silent.remove(&id);
        self.queue.forget_file(id);
        let removed = self.model.remove_file(id);
        if let Some(file) = removed
            && (file.is_requested || file.reported != LastReport::Nothing)
        {
            let path = self.mounts[at].document_path(&below);
            let unmet = file.last_read.map_or(UnmetFile::Unread, UnmetFile::Read);
            self.reports.observe_missing(path, unmet);
        }
    }

    /// Removes a directory, after all beneath it. Its number may be used again too.
    fn remove_directory(&mut self, id: DirectorySlot) {
        self.unwatch(id);
        self.queue.forget_directory(id);
        if let Some(directory) = self.model.remove_directory(id) {
            let mount = &mut self.mounts[directory.mount];
            mount.linked -= usize::from(directory.is_behind_link);
            mount.nested.set_nested(id, None);
            self.note_readable(id, directory.mount);
        }
    }
}

/// Returns true if a name in the directory at `below` may be a candidate or lead to some. Links may lead to files and to
/// directories.
fn may_matter(
    candidates: &CandidateGlobs,
    published: &MountUrlPath,
    below: &mut Vec<u8>,
    (name, kind): (&[u8], FileType),
) -> bool {
    use FileType::{Directory, Symlink, Unknown};
    let may_lead_on = matches!(kind, Directory | Symlink | Unknown);
    let may_be = kind != Directory && candidates.is_candidate_name(name);
    if !(may_be || may_lead_on) {
        return false;
    }
    let length = below.len();
    push_name(below, name);
    let may_matter = may_be && candidates.is_candidate(published, below)
        || may_lead_on && candidates.may_enter(published, name, || below.clone());
    below.truncate(length);
    may_matter
}

/// A name in a directory, and its kind, which not every file system states there.
type ListedName = (Box<[u8]>, FileType);

/// Opens a directory, and identifies it.
fn open(path: &Path, follow: bool) -> Result<(OwnedFd, FileId), Errno> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let status = file_status::of_open_file(&fd)?;
    Ok((fd, status.identity))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::os::unix::fs::symlink;

    use crate::tree::directory_listing::may_matter;
    use crate::tree::model::TreeEntry;
    use crate::tree::tests::observer;
    use announce::candidates::{CandidateGlobs, MountUrlPath};
    use rustix::fs::FileType;

    #[test]
    fn all_beneath_a_name_goes_with_it() {
        let (place, reports) = (tempfile::tempdir().unwrap(), RefCell::default());
        fs::create_dir_all(place.path().join("a/b")).unwrap();
        for name in ["a/b/x.xml", "a/z.xml", "y.xml"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        symlink("nowhere", place.path().join("a/b/link")).unwrap();
        let mut observer = observer(place.path(), &reports);
        while observer.continue_sweep() {}
        let root = observer.mounts[0].root;
        let entry = |name: &[u8]| observer.model.entry(root, name);
        let kept = entry(b"y.xml").and_then(TreeEntry::file).unwrap();
        let gone = observer
            .model
            .subtree(entry(b"a").unwrap().directory().unwrap());
        let files = gone.iter().flat_map(|id| observer.model.files_in(*id));
        let files = Vec::from_iter(files);
        for file in &files {
            observer.model.file_mut(*file).unwrap().request_report();
        }
        assert_eq!(
            (gone.len(), files.len(), observer.model.links.len()),
            (2, 2, 1)
        );
        observer.remove_name(root, b"a");
        let missing = observer.reports.missing.keys().map(|path| &*path.below);
        let mut missing = Vec::from_iter(missing);
        missing.sort_unstable();
        assert_eq!(missing, [b"a/b/x.xml".as_slice(), b"a/z.xml"]);
        assert!(
            files
                .iter()
                .all(|file| observer.model.file(*file).is_none())
        );
        assert!(
            gone.iter()
                .all(|id| observer.model.directory(*id).is_none())
        );
        assert!(observer.model.links.is_empty());
        let left = &observer.model.directory(root).unwrap().entries;
        assert!(left.values().eq([&TreeEntry::File(kept)]));
    }

    #[test]
    fn only_candidates_and_what_may_lead_to_some_are_looked_at() {
        let globs = (vec!["**/*.xml".into()], vec!["old/**".into()]);
        let candidates = CandidateGlobs::new(globs.0, globs.1).unwrap();
        let published = MountUrlPath::default();
        let is_taken = |directory: &str, name: &str, kind| {
            let mut below = directory.into();
            let entry = (name.as_bytes(), kind);
            let is_taken = may_matter(&candidates, &published, &mut below, entry);
            assert_eq!(below, directory.as_bytes());
            is_taken
        };
        use FileType::{Directory, Fifo, RegularFile, Symlink, Unknown};
        for (below, name, kind, want) in [
            ("", "a.xml", RegularFile, true),
            ("", "a.xml", Fifo, true),
            ("", "a.html", RegularFile, false),
            ("", "a.html", Fifo, false),
            ("", "a.html", Symlink, true),
            ("", "a.html", Unknown, true),
            ("", "deep", Directory, true),
            ("", ".git", Directory, false),
            ("", "old", Directory, false),
            ("old", "a.xml", RegularFile, false),
            ("a.xml", "b.html", RegularFile, false),
        ] {
            assert_eq!(is_taken(below, name, kind), want, "{below} {name} {kind:?}");
        }
    }
}

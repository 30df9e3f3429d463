//! Symbolic links: followed, cut where they lead in a circle or where there are too many, and rechecked, because a swap far
//! away changes all beneath them without any event near them (R1).

use std::path::{Path, PathBuf};

use crate::tree::file::LinkedFile;
use crate::tree::model::{DirectorySlot, DirectoryState, FileSlot, Name, TreeEntry};
use crate::tree::observer::Observer;
use crate::tree::sweep::Depth;
use crate::tree::watches::NameWatchReason;
use crate::tree::{TreeNotice, file_status};
use announce::observation::FileId;
use rustix::fs::FileType;

/// Maximum links that are rechecked each second.
const MAX_RECHECKED: usize = 4096;
/// Maximum files without events that are rechecked each second.
const MAX_SILENT: usize = 1024;
/// Maximum directory links that one path may lead through: links into each other multiply paths.
const MAX_LINKS: usize = 4;
/// Maximum directories of one mount that may be reached through links before no more links are followed. The contents
/// of one link, such as a release, are never cut.
const MAX_LINKED: usize = 10_000;

impl Observer<'_> {
    /// Takes note that a name is a link, whatever it leads to.
    pub fn update_link(
        &mut self,
        id: DirectorySlot,
        name: &[u8],
        depth: Option<Depth>,
    ) -> Option<TreeEntry> {
        let path = self.path_of_name(id, name)?;
        let existing = self.model.entry(id, name);
        let child = existing.and_then(TreeEntry::directory);
        let before = child.and_then(|child| self.model.directory(child)?.identity);
        let entry = match file_status::of_path(&path) {
            Ok(status) if status.kind == FileType::Directory => {
                if self.model.same_on_path(id, status.identity).is_some() {
                    if existing != Some(TreeEntry::Dangling) {
                        self.reports.notice(TreeNotice::Loop { link: path });
                    }
                    return Some(self.update_dead_link(id, name, TreeEntry::Dangling));
                }
                if child.is_none() && self.exceeds_link_limit(id, &path) {
                    return Some(self.update_dead_link(id, name, TreeEntry::Refused));
                }
                let is_other = before != Some(status.identity);
                let least = is_other.then_some(Depth::Subtree);
                let entry = self.update_directory(id, name, depth.max(least));
                if let Some(TreeEntry::Directory(child)) = entry
                    && let Some(directory) = self.model.directory_mut(child)
                {
                    directory.is_link = true;
                    if !std::mem::replace(&mut directory.is_behind_link, true) {
                        self.mounts[directory.mount].linked += 1;
                    }
                }
                entry
            }
            Ok(status) => self.adopt_file(id, name).map(|file| {
                self.set_target(file, &path, status.identity);
                TreeEntry::File(file)
            }),
            Err(error) if file_status::is_absence(error) => {
                return Some(self.update_dead_link(id, name, TreeEntry::Dangling));
            }
            Err(_) => existing,
        };
        if entry.is_some() {
            self.model.links.insert((id, name.into()));
        }
        entry
    }

    /// Takes note that a link leads to nothing that is looked at, for the reason that `entry` is.
    fn update_dead_link(&mut self, id: DirectorySlot, name: &[u8], entry: TreeEntry) -> TreeEntry {
        if self.model.entry(id, name) != Some(entry) {
            self.remove_name(id, name);
        }
        let link: Name = (id, name.into());
        self.model.set_entry(link.clone(), entry);
        self.model.links.insert(link);
        entry
    }

    /// Returns true if a new link in this directory is not followed. That is reported once for each mount and reason.
    fn exceeds_link_limit(&mut self, id: DirectorySlot, link: &Path) -> bool {
        let Some(directory) = self.model.directory(id) else {
            return true;
        };
        let (mount, link) = (&mut self.mounts[directory.mount], link.to_owned());
        let refusal = if self.model.count_links_on_path(id) >= MAX_LINKS {
            TreeNotice::LinkTooDeep { link }
        } else if mount.linked >= MAX_LINKED {
            let directories = MAX_LINKED;
            TreeNotice::TooManyLinked { link, directories }
        } else {
            return false;
        };
        if mount.refusals.insert(std::mem::discriminant(&refusal)) {
            self.reports.notice(refusal);
        }
        true
    }

    /// Returns the paths in a mount of links that are not followed.
    pub fn unfollowed_links(&self, at: usize) -> Vec<Vec<u8>> {
        let is_refused = |(id, name): &&Name| {
            let directory = self.model.directory(*id).filter(|it| it.mount == at);
            directory.is_some_and(|it| it.entries.get(name) == Some(&TreeEntry::Refused))
        };
        let refused = self.model.links.iter().filter(is_refused);
        let below = refused.map(|(id, name)| self.model.entry_path_in_mount(*id, name));
        below.collect()
    }

    /// Returns the path of the directory above this one that is the same directory: a circle, wherever the link is that
    /// led here.
    pub fn same_directory_above(&self, id: DirectorySlot, identity: FileId) -> Option<PathBuf> {
        let above = self.model.directory(id)?.parent?;
        let same = self.model.same_on_path(above, identity)?;
        // Another directory may have come in its place, and its inode may be in use again.
        let path = self.directory_path(same)?;
        file_status::has_identity(&path, identity).then_some(path)
    }

    /// Takes note that a directory stands above itself.
    pub fn cut_circle(&mut self, id: DirectorySlot, directory: PathBuf, above: PathBuf) {
        self.unwatch(id);
        let Some(known) = self.model.directory_mut(id) else {
            return;
        };
        let at = known.mount;
        let before = std::mem::replace(&mut known.state, DirectoryState::Circle);
        let names: Vec<_> = known.entries.keys().cloned().collect();
        self.mounts[at].nested.set_nested(id, None);
        self.note_readable(id, at);
        for name in names {
            self.remove_name(id, &name);
        }
        if before != DirectoryState::Circle {
            self.reports.notice(TreeNotice::Circle { directory, above });
        }
    }

    /// Takes note of where a link to a file ends, and has that watched, so that a rewrite there is noticed at once.
    fn set_target(&mut self, id: FileSlot, link: &Path, identity: FileId) {
        let Some(file) = self.model.file(id) else {
            return;
        };
        if file.link.as_ref().is_some_and(|it| it.identity == identity) {
            return;
        }
        let directory = self.model.directory(file.directory);
        let gives_hints = directory.is_some_and(|it| self.mount_gives_hints(it.mount));
        self.forget_target(id);
        let target = gives_hints.then(|| std::fs::canonicalize(link).ok());
        let named = NameWatchReason::Link(id);
        let watch = target.and_then(|target| self.watches.add_name(&target?, named));
        if let Some(file) = self.model.file_mut(id) {
            file.link = Some(Box::new(LinkedFile { identity, watch }));
        }
    }

    /// Takes note that a file is no link, or none to where it led.
    pub fn forget_target(&mut self, id: FileSlot) {
        let target = self.model.file_mut(id).and_then(|file| file.link.take());
        if let Some(target) = target
            && let Some(link) = self.model.name_of(id)
        {
            if let Some(watch) = &target.watch {
                self.watches.remove_name(watch, NameWatchReason::Link(id));
            }
            self.model.links.remove(&link);
        }
    }

    /// Rechecks links that no event tells about, a bounded number each time.
    pub fn recheck_some_links(&mut self) {
        let last = self.rechecked_link.take();
        let links = self.model.links_after(last.as_ref(), MAX_RECHECKED);
        self.rechecked_link = links.last().cloned();
        for link in links {
            self.recheck_link(link, false);
        }
    }

    /// Updates a link, perhaps because an event says that it may lead elsewhere, and queues its file if that has changed.
    pub fn recheck_link(&mut self, link: Name, by_event: bool) {
        let directory = self.model.directory(link.0);
        let is_there = directory.is_some_and(|it| self.mounts[it.mount].found.is_some());
        if is_there
            // The recheck of another may have removed it.
            && self.model.links.contains(&link)
            && let Some(TreeEntry::File(id)) = self.update_link(link.0, &link.1, None)
            && self.has_file_changed(id)
        {
            if let Some(file) = self.model.file_mut(id)
                && by_event
            {
                file.writer_closed();
            }
            self.queue.push_file(id);
        }
    }

    /// Takes note whether a file may be written without an event here: by another name, or where it is mounted from.
    pub fn note_silent(&mut self, id: FileSlot, is_silent: bool) {
        if !is_silent {
            self.silent.remove(&id);
        } else if self.silent.len() < MAX_SILENT {
            self.silent.insert(id);
        }
    }

    /// Returns true if a file is there now with other stat data than it was read with.
    fn has_file_changed(&self, id: FileSlot) -> bool {
        let status = self.model.file(id).and_then(|file| {
            let path = self.path_of_name(file.directory, &file.name)?;
            Some((file, file_status::of_path(&path).ok()?))
        });
        status.is_some_and(|(file, status)| !file.was_read_with(&status.stat))
    }

    /// Queues the files without events that have changed.
    pub fn recheck_silent_files(&mut self) {
        for id in &self.silent {
            if self.has_file_changed(*id) {
                self.queue.push_file(*id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::os::unix::fs::symlink;

    use crate::tree::TreeReport;
    use crate::tree::links::MAX_LINKED;
    use crate::tree::model::TreeEntry;
    use crate::tree::tests::observer;

    #[test]
    fn what_links_lead_to_counts_once_until_it_is_gone() {
        let (place, reports) = (tempfile::tempdir().unwrap(), RefCell::default());
        let (root, linked) = (place.path().join("root"), place.path().join("linked"));
        for path in [&root.join("plain"), &linked.join("deep")] {
            fs::create_dir_all(path).unwrap();
        }
        symlink(&linked, root.join("link")).unwrap();
        let mut observer = observer(&root, &reports);
        let root = observer.mounts[0].root;
        for _ in 0..2 {
            while observer.continue_sweep() {}
            // What lies below a directory counts as reached through a link if that does.
            assert_eq!(observer.mounts[0].linked, 2);
            observer.mounts[0].begin_sweep();
        }
        observer.remove_name(root, b"link");
        assert_eq!(observer.mounts[0].linked, 0);
        assert!(observer.model.links.is_empty());
    }

    #[test]
    fn a_link_is_refused_while_too_many_directories_are_linked() {
        let (place, reports) = (tempfile::tempdir().unwrap(), RefCell::default());
        for name in ["one", "two"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        let root = place.path().join("one");
        symlink("../two", root.join("link")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        let mut observer = observer(&root, &reports);
        let root = observer.mounts[0].root;
        observer.update_link(root, b"dangling", None);
        observer.mounts[0].linked = MAX_LINKED;
        for _ in 0..2 {
            let entry = observer.update_link(root, b"link", None);
            assert_eq!(entry, Some(TreeEntry::Refused));
        }
        let is_notice = |report: &&TreeReport| matches!(report, TreeReport::Notice(_));
        // That it is polled, and that the link is not followed.
        assert_eq!(reports.borrow().iter().filter(is_notice).count(), 2);
        // Only a link that is not followed hides what was there before.
        assert_eq!(observer.unfollowed_links(0), [b"link"]);
        assert!(observer.unfollowed_links(1).is_empty());
        observer.mounts[0].linked -= 1;
        let entry = observer.update_link(root, b"link", None);
        assert!(matches!(entry, Some(TreeEntry::Directory(_))));
    }
}

//! One name in one directory: the model is updated to the present state of the file system, whatever the event was.

use std::path::PathBuf;

use crate::tree::directories::{TreeEntry, join};
use crate::tree::file_status::{self, FileKind};
use crate::tree::model::{DirectoryId, FileId};
use crate::tree::mount::UnmetFile;
use crate::tree::observer::Observer;
use crate::tree::pending_hints::Hint;
use crate::tree::work_queue::Depth;

impl Observer<'_> {
    /// Checks what a name stands for, because an event said that it changed.
    pub fn check_name(&mut self, id: DirectoryId, name: &[u8], hint: Hint) {
        let existing = self.model.entry(id, name);
        let depth = match existing {
            _ if hint.renamed || hint.unclear => Depth::Subtree,
            Some(TreeEntry::File(file)) => return self.hint(file, hint),
            _ => Depth::Directory,
        };
        let Some(path) = self.path_of_name(id, name) else {
            return;
        };
        match file_status::not_follow(&path) {
            Ok(status) => {
                let entry = self.update(id, name, status.kind, Some(depth));
                if let Some(TreeEntry::File(file)) = entry {
                    self.hint(file, hint);
                }
            }
            Err(error) if file_status::is_absence(error) => self.remove(id, name),
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

    /// Returns the path of a name in a directory.
    pub fn path_of_name(&self, id: DirectoryId, name: &[u8]) -> Option<PathBuf> {
        let at = self.model.mount_of(id)?;
        let below = self.model.below_name(id, name);
        Some(join(&self.mounts[at].directory, &below))
    }

    /// Takes note that a name stands for something of this kind. A directory is listed again as `depth` says, or
    /// entirely if it is new.
    pub fn update(
        &mut self,
        id: DirectoryId,
        name: &[u8],
        kind: FileKind,
        depth: Option<Depth>,
    ) -> Option<TreeEntry> {
        match kind {
            FileKind::Directory => self.update_directory(id, name, depth),
            FileKind::File | FileKind::Special => {
                let file = self.update_file(id, name)?;
                self.forget_target(file);
                Some(TreeEntry::File(file))
            }
            FileKind::Link => self.update_link(id, name, depth),
        }
    }

    pub fn update_directory(
        &mut self,
        id: DirectoryId,
        name: &[u8],
        depth: Option<Depth>,
    ) -> Option<TreeEntry> {
        let at = self.model.mount_of(id)?;
        let below = || self.model.below_name(id, name);
        let published = &self.mounts[at].published;
        if !self.settings.candidates.may_enter(published, name, below) {
            self.remove(id, name);
            return None;
        }
        let (child, depth) = match self.model.entry(id, name) {
            Some(TreeEntry::Directory(child)) => (child, depth),
            existing => {
                if existing.is_some() {
                    self.remove(id, name);
                }
                let child = self.model.add_below(id, name)?;
                self.links.inherit_reached(id, child, at);
                (child, depth.max(Some(Depth::Subtree)))
            }
        };
        if let Some(directory) = self.model.directory_mut(child) {
            directory.is_link = false;
        }
        self.links.remove(id, name);
        match (depth, &mut self.mounts[at].sweep) {
            (Some(Depth::Sweep), Some(sweep)) => sweep.directories.push_back(child),
            (Some(depth), _) => self.queue.push_directory(child, depth.min(Depth::Subtree)),
            (None, _) => {}
        }
        Some(TreeEntry::Directory(child))
    }

    /// Returns the file of this name, if it is a candidate; new ones are adopted.
    pub fn update_file(&mut self, id: DirectoryId, name: &[u8]) -> Option<FileId> {
        let existing = self.model.entry(id, name);
        if let Some(TreeEntry::File(file)) = existing {
            return Some(file);
        }
        if existing.is_some() {
            self.remove(id, name);
        }
        let candidates = &self.settings.candidates;
        let mount = &mut self.mounts[self.model.mount_of(id)?];
        let below = self.model.below_name(id, name);
        if !(candidates.may_be(name) && candidates.is_candidate(&mount.published, &below)) {
            return None;
        }
        let file = self.model.add_file(id, name);
        // A file that was reported as unreachable is reported again.
        let unmet = mount.unmet.remove(&*below);
        if let Some(unmet) = unmet.filter(|unmet| !unmet.is_reported_denied)
            && let Some(last_read) = unmet.last_read
        {
            self.model.file_mut(file)?.adopt(last_read);
        }
        Some(file)
    }

    /// Takes note that a name is gone, with all beneath it.
    pub fn remove(&mut self, id: DirectoryId, name: &[u8]) {
        let (directories, files) = self.model.remove(id, name);
        self.links.remove(id, name);
        // Their numbers may be used again: no part refers to them from here on, but for the queues of sweeps, which are
        // looked up again.
        for removed in files {
            if let Some(target) = &removed.file.link {
                self.unwatch_target(removed.id, target);
            }
            self.silent.remove(&removed.id);
            self.queue.forget_file(removed.id);
            if removed.file.is_reported_or_requested() {
                let path = self.mounts[removed.mount].path(&removed.below);
                let unmet = UnmetFile::new(removed.file.last_read);
                self.reports.observe_missing(path, unmet);
            }
        }
        for (id, directory) in directories {
            if let Some(key) = directory.watch {
                self.watches.remove(key, id);
            }
            self.links.forget(id, directory.mount);
            self.end_denial(id, directory.mount);
            self.nested.remove(id);
            self.queue.forget_directory(id);
        }
    }
}

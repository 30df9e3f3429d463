//! One name in one directory: the model is updated to the present state of the file system, whatever the event was.

use std::path::PathBuf;

use crate::tree::file_status::{self, FileKind};
use crate::tree::model::{DirectoryId, FileId, TreeEntry, join};
use crate::tree::mount::UnmetFile;
use crate::tree::observer::Observer;
use crate::tree::pending_hints::Hint;
use crate::tree::work_queue::Depth;

impl Observer<'_> {
    /// Checks what a name stands for, because an event said that it changed.
    pub(super) fn check_name(&mut self, id: DirectoryId, name: &[u8], hint: Hint) {
        let existing = self.model.entry(id, name);
        if let Some(TreeEntry::File(file)) = existing
            && !hint.renamed
            && !hint.unclear
        {
            return self.hint_file(file, hint);
        }
        let Some(path) = self.path_of(id, name) else {
            return;
        };
        let depth = match hint.renamed || hint.unclear {
            true => Depth::Subtree,
            false => Depth::Directory,
        };
        match file_status::not_follow(&path) {
            Ok(status) => {
                let entry = self.update_entry(id, name, status.kind, Some(depth), None);
                if let Some(TreeEntry::File(file)) = entry {
                    self.hint_file(file, hint);
                }
            }
            Err(error) if file_status::is_absence(error) => self.remove_entry(id, name),
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

    /// Takes note that a name stands for something of this kind. A directory is listed again as `depth` says, or
    /// entirely if it is new: in the sweep of the mount `sweep`, or at once.
    pub(super) fn update_entry(
        &mut self,
        id: DirectoryId,
        name: &[u8],
        kind: FileKind,
        depth: Option<Depth>,
        sweep: Option<usize>,
    ) -> Option<TreeEntry> {
        match kind {
            FileKind::Directory => self.update_directory(id, name, depth, sweep),
            FileKind::File | FileKind::Special => {
                let file = self.update_file(id, name)?;
                self.forget_link(file);
                Some(TreeEntry::File(file))
            }
            FileKind::Link => self.update_link(id, name, depth, sweep),
        }
    }

    pub(super) fn update_directory(
        &mut self,
        id: DirectoryId,
        name: &[u8],
        depth: Option<Depth>,
        sweep: Option<usize>,
    ) -> Option<TreeEntry> {
        let at = self.model.mount_of(id)?;
        let below = || self.model.below_name(id, name);
        let published = &self.mounts[at].published;
        if !self.candidates.may_enter(published, name, below) {
            self.remove_entry(id, name);
            return None;
        }
        let (child, depth) = match self.model.entry(id, name) {
            Some(TreeEntry::Directory(child)) => (child, depth),
            existing => {
                if existing.is_some() {
                    self.remove_entry(id, name);
                }
                let child = self.model.add_directory(at, Some(id), name, false);
                (child, Some(Depth::Subtree))
            }
        };
        self.model.meet_directory(child);
        if let Some(directory) = self.model.directory_mut(child) {
            directory.is_link = false;
        }
        if let Some(parent) = self.model.directory_mut(id) {
            parent.links.remove(name);
        }
        if let Some(depth) = depth {
            let sweep = sweep.and_then(|at| self.mounts[at].sweep.as_mut());
            match sweep {
                Some(sweep) => sweep.push_directory(child),
                None => self.queue.push_directory(child, depth),
            }
        }
        Some(TreeEntry::Directory(child))
    }

    /// Returns the file of this name, if it is a candidate; new ones are adopted.
    pub(super) fn update_file(&mut self, id: DirectoryId, name: &[u8]) -> Option<FileId> {
        let existing = self.model.entry(id, name);
        if let Some(TreeEntry::File(file)) = existing {
            self.model.meet_file(file);
            return Some(file);
        }
        if existing.is_some() {
            self.remove_entry(id, name);
        }
        if !self.candidates.may_be(name) {
            return None;
        }
        let mount = &mut self.mounts[self.model.mount_of(id)?];
        let below = self.model.below_name(id, name);
        if !self.candidates.is_candidate(&mount.published, &below) {
            return None;
        }
        let file = self.model.add_file(id, name);
        self.model.meet_file(file);
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
    pub(super) fn remove_entry(&mut self, id: DirectoryId, name: &[u8]) {
        match self.model.entry(id, name) {
            None => {}
            Some(TreeEntry::File(file)) => self.remove_file(file),
            Some(TreeEntry::Directory(top)) => {
                for id in self.model.beneath(top).into_iter().rev() {
                    for file in self.model.files_in(id) {
                        self.remove_file(file);
                    }
                    self.unwatch(id);
                    self.allow(id);
                    self.links.remove(id);
                    self.nested.remove(id);
                    self.queue.forget_directory(id);
                    self.model.remove_directory(id);
                }
            }
            Some(TreeEntry::Dangling | TreeEntry::Refused) => {
                if let Some(directory) = self.model.directory_mut(id) {
                    directory.entries.remove(name);
                    directory.links.remove(name);
                }
            }
        }
    }

    fn remove_file(&mut self, id: FileId) {
        self.forget_link(id);
        self.queue.forget_file(id);
        self.timers.clear(id);
        let path = self.document_path(id);
        if let Some(file) = self.model.remove_file(id)
            && let Some(path) = path
            && file.is_reported_or_requested()
        {
            let unmet = UnmetFile::new(file.last_read());
            self.reports.observe_missing(path, unmet);
        }
    }

    pub(super) fn path_of(&self, id: DirectoryId, name: &[u8]) -> Option<PathBuf> {
        let at = self.model.mount_of(id)?;
        let below = self.model.below_name(id, name);
        Some(join(&self.mounts[at].directory, &below))
    }
}

//! One name in one directory: the model is brought up to what the file system says about it now, whatever
//! the event was that led here.

use std::path::PathBuf;
use std::sync::Arc;

use crate::tree::file_status::{self, FileKind};
use crate::tree::model::{DirectoryId, Entry, FileId, Queued, Reported, join, push_name};
use crate::tree::mount::UnmetFile;
use crate::tree::observer::Observer;
use crate::tree::pending_hints::Hint;

impl Observer<'_> {
    /// Looks at what a name stands for, because an event said that it changed.
    pub(super) fn examine(&mut self, id: DirectoryId, name: &[u8], hint: Hint) {
        let existing = self.model.entry(id, name);
        if let Some(Entry::File(file)) = existing
            && !hint.renamed
            && !hint.unclear
        {
            return self.hint_file(file, hint);
        }
        let Some(path) = self.path_of(id, name) else {
            return;
        };
        let queued = if hint.renamed || hint.unclear {
            Queued::WithAllBeneath
        } else {
            Queued::Alone
        };
        match file_status::not_follow(&path) {
            Ok(status) => {
                if let Some(Entry::File(file)) = self.meet(id, name, status.kind, queued, None) {
                    self.hint_file(file, hint);
                }
            }
            Err(error) if file_status::is_absence(error) => self.remove_entry(id, name),
            // The look will say why.
            Err(_) => match existing {
                Some(Entry::File(file)) => self.queue_file(file),
                Some(Entry::Directory(directory)) => self.queue_directory(directory, queued),
                Some(Entry::Dangling | Entry::Refused) | None => {}
            },
        }
    }

    /// Takes in that a name stands for something of this kind. A directory is listed again as `queued` says,
    /// or entirely if it is new: in the sweep of the mount `sweep`, or at once.
    pub(super) fn meet(
        &mut self,
        id: DirectoryId,
        name: &[u8],
        kind: FileKind,
        queued: Queued,
        sweep: Option<usize>,
    ) -> Option<Entry> {
        match kind {
            FileKind::Directory => self.meet_directory(id, name, queued, sweep),
            FileKind::File | FileKind::Special => {
                let file = self.meet_file(id, name)?;
                self.make_plain(file);
                Some(Entry::File(file))
            }
            FileKind::Link => self.meet_link(id, name, queued, sweep),
        }
    }

    fn meet_directory(
        &mut self,
        id: DirectoryId,
        name: &[u8],
        queued: Queued,
        sweep: Option<usize>,
    ) -> Option<Entry> {
        let below = || {
            let mut below = self.model.below(id);
            push_name(&mut below, name);
            below
        };
        let published = &self.mounts[self.model.directory(id)?.mount].published;
        if !self.names.may_enter(published, name, below) {
            self.remove_entry(id, name);
            return None;
        }
        let (child, queued) = match self.model.entry(id, name) {
            Some(Entry::Directory(child)) => (child, queued),
            existing => {
                if existing.is_some() {
                    self.remove_entry(id, name);
                }
                let at = self.model.directory(id)?.mount;
                let child = self.model.add_directory(at, Some(id), name, false);
                (child, Queued::WithAllBeneath)
            }
        };
        if let Some(directory) = self.model.directory_mut(child) {
            directory.is_link = false;
            directory.met = self.listing;
        }
        if let Some(parent) = self.model.directory_mut(id) {
            parent.links.remove(name);
        }
        self.enqueue(child, queued, sweep);
        Some(Entry::Directory(child))
    }

    /// The file of this name, if it is a candidate; new ones are adopted.
    pub(super) fn meet_file(&mut self, id: DirectoryId, name: &[u8]) -> Option<FileId> {
        let existing = self.model.entry(id, name);
        if let Some(Entry::File(file)) = existing {
            self.model.file_mut(file)?.met = self.listing;
            return Some(file);
        }
        if existing.is_some() {
            self.remove_entry(id, name);
        }
        if !self.names.may_be(name) {
            return None;
        }
        let at = self.model.directory(id)?.mount;
        let mut below = self.model.below(id);
        push_name(&mut below, name);
        if !self.names.is_candidate(&self.mounts[at].published, &below) {
            return None;
        }
        let file = self.model.add_file(id, name);
        let unmet = self.mounts[at].known.remove(&*below);
        let listing = self.listing;
        let adopted = self.model.file_mut(file)?;
        adopted.met = listing;
        // What was told to be out of sight is told again.
        if let Some(unmet) = unmet.filter(|unmet| !unmet.is_told_denied)
            && let Some((stat, read_at)) = unmet.read
        {
            adopted.stat = Some(stat);
            adopted.read_at = read_at;
            adopted.told = Reported::Whole;
        }
        Some(file)
    }

    pub(super) fn enqueue(&mut self, id: DirectoryId, queued: Queued, sweep: Option<usize>) {
        match sweep.and_then(|at| self.mounts[at].sweep.as_mut()) {
            _ if queued == Queued::No => {}
            Some(sweep) => sweep.directories.push_back(id),
            None => self.queue_directory(id, queued),
        }
    }

    /// Takes in that a name is gone, with all beneath it.
    pub(super) fn remove_entry(&mut self, id: DirectoryId, name: &[u8]) {
        match self.model.entry(id, name) {
            None => {}
            Some(Entry::File(file)) => self.remove_file(file),
            Some(Entry::Directory(top)) => {
                for id in self.model.beneath(top).into_iter().rev() {
                    for file in self.model.files_in(id) {
                        self.remove_file(file);
                    }
                    self.unwatch(id);
                    self.allow(id);
                    self.linked.remove(&id);
                    self.model.remove_directory(id);
                }
            }
            Some(Entry::Dangling | Entry::Refused) => {
                if let Some(directory) = self.model.directory_mut(id) {
                    directory.entries.remove(name);
                    directory.links.remove(name);
                }
            }
        }
    }

    fn remove_file(&mut self, id: FileId) {
        self.make_plain(id);
        let Some(file) = self.model.file(id) else {
            return;
        };
        let mut below = self.model.below(file.directory);
        push_name(&mut below, &file.name);
        let at = self.model.directory(file.directory).map(|it| it.mount);
        let Some(file) = self.model.remove_file(id) else {
            return;
        };
        if let Some(at) = at
            && (file.told != Reported::Nothing || file.is_asked)
        {
            let unmet = UnmetFile {
                read: file.stat.map(|stat| (stat, file.read_at)),
                is_told_denied: false,
            };
            let path = self.mounts[at].path(&below);
            self.observe_missing(path, unmet);
        }
    }

    pub(super) fn path_of(&self, id: DirectoryId, name: &[u8]) -> Option<PathBuf> {
        let at = self.model.directory(id)?.mount;
        let mut below = self.model.below(id);
        push_name(&mut below, name);
        Some(join(&self.mounts[at].directory, &below))
    }

    pub(super) fn name_of(&self, id: FileId) -> Option<(DirectoryId, Arc<[u8]>)> {
        let file = self.model.file(id)?;
        Some((file.directory, Arc::clone(&file.name)))
    }
}

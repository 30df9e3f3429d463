//! Symbolic links: followed, cut where they lead in a circle, and rechecked, because a swap far away changes
//! all beneath them without any event near them (R1).

use std::path::{Path, PathBuf};

use crate::announce::observation::Identity;
use crate::tree::TreeNotice;
use crate::tree::directories::{DirectoryState, TreeEntry, join};
use crate::tree::file::LinkTarget;
use crate::tree::file_status::{self, FileKind};
use crate::tree::linked_directories::{LinkRefusal, MAX_LINKED};
use crate::tree::model::{DirectoryId, FileId};
use crate::tree::observer::Observer;
use crate::tree::work_queue::Depth;

/// Maximum links that are rechecked each second.
const MAX_RECHECKED: usize = 4096;
/// Maximum files without events that are rechecked each second.
const MAX_SILENT: usize = 1024;

impl Observer<'_> {
    /// Takes note that a name is a link, whatever it leads to.
    pub fn update_link(
        &mut self,
        id: DirectoryId,
        name: &[u8],
        depth: Option<Depth>,
    ) -> Option<TreeEntry> {
        let path = self.path_of_name(id, name)?;
        let existing = self.model.entry(id, name);
        let child = existing.and_then(TreeEntry::directory);
        let before = child.and_then(|child| self.model.directory(child)?.identity);
        let entry = match file_status::follow(&path) {
            Ok(status) if status.kind == FileKind::Directory => {
                if self.model.leads_back(id, status.identity) {
                    if existing != Some(TreeEntry::Dangling) {
                        self.reports.notice(TreeNotice::Loop { link: path });
                    }
                    return Some(self.update_dead_link(id, name, TreeEntry::Dangling));
                }
                if child.is_none() && self.is_refused(id, &path) {
                    return Some(self.update_dead_link(id, name, TreeEntry::Refused));
                }
                let depth = if before == Some(status.identity) {
                    depth
                } else {
                    depth.max(Some(Depth::Subtree))
                };
                let entry = self.update_directory(id, name, depth);
                if let Some(TreeEntry::Directory(child)) = entry
                    && let Some(directory) = self.model.directory_mut(child)
                {
                    directory.is_link = true;
                    self.links.reach(child, directory.mount);
                }
                entry
            }
            Ok(status) => {
                let file = self.update_file(id, name);
                if let Some(file) = file {
                    self.set_target(file, &path, status.identity);
                }
                file.map(TreeEntry::File)
            }
            Err(error) if file_status::is_absence(error) => {
                return Some(self.update_dead_link(id, name, TreeEntry::Dangling));
            }
            Err(_) => existing,
        };
        if entry.is_some() {
            self.links.insert(id, name);
        }
        entry
    }

    /// Takes note that a link leads to nothing that is looked at, for the reason that `entry` is.
    fn update_dead_link(&mut self, id: DirectoryId, name: &[u8], entry: TreeEntry) -> TreeEntry {
        if self.model.entry(id, name) != Some(entry) {
            self.remove(id, name);
        }
        self.model.set_entry(id, name.into(), entry);
        self.links.insert(id, name);
        entry
    }

    /// Returns true if a new link in this directory is not followed. That is reported once for each mount and reason.
    fn is_refused(&mut self, id: DirectoryId, link: &Path) -> bool {
        let Some(mount) = self.model.mount_of(id) else {
            return true;
        };
        let Some(refusal) = self.links.refusal(mount, self.model.links_on_path(id)) else {
            return false;
        };
        if self.links.reported.insert((mount, refusal)) {
            let link = link.to_owned();
            self.reports.notice(match refusal {
                LinkRefusal::TooDeep => TreeNotice::LinkTooDeep { link },
                LinkRefusal::TooMany => TreeNotice::TooManyLinked {
                    link,
                    directories: MAX_LINKED,
                },
            });
        }
        true
    }

    /// Returns the path of the directory above this one that is the same directory: a circle, wherever the link is that
    /// led here.
    pub fn same_directory_above(&self, id: DirectoryId, identity: Identity) -> Option<PathBuf> {
        let above = self.model.same_above(id, identity)?;
        // Another directory may have come in its place, and its inode may be in use again.
        let mount = &self.mounts[self.model.mount_of(above)?];
        let path = join(&mount.directory, &self.model.below(above));
        file_status::is_at(&path, identity).then_some(path)
    }

    /// Takes note that a directory stands above itself.
    pub fn cut_circle(&mut self, id: DirectoryId, directory: PathBuf, above: PathBuf) {
        self.unwatch(id);
        self.nested.remove(id);
        let Some(known) = self.model.directory_mut(id) else {
            return;
        };
        let at = known.mount;
        let before = std::mem::replace(&mut known.state, DirectoryState::Circle);
        let names: Vec<_> = known.entries.keys().cloned().collect();
        self.end_denial(id, at);
        for name in names {
            self.remove(id, &name);
        }
        if before != DirectoryState::Circle {
            self.reports.notice(TreeNotice::Circle { directory, above });
        }
    }

    /// Takes note of where a link to a file ends, and has that watched.
    fn set_target(&mut self, id: FileId, path: &Path, identity: Identity) {
        let Some(file) = self.model.file(id) else {
            return;
        };
        if file.link.as_ref().is_some_and(|it| it.identity == identity) {
            return;
        }
        let at = self.model.mount_of(file.directory);
        self.forget_target(id);
        let watch = at.and_then(|at| self.watch_target(id, path, at));
        if let Some(file) = self.model.file_mut(id) {
            file.link = Some(Box::new(LinkTarget { identity, watch }));
        }
    }

    /// Takes note that a file is no link, or none to where it led.
    pub fn forget_target(&mut self, id: FileId) {
        let Some(file) = self.model.file_mut(id) else {
            return;
        };
        let Some(target) = file.link.take() else {
            return;
        };
        self.unwatch_target(id, &target);
        if let Some((directory, name)) = self.model.name_of(id) {
            self.links.remove(directory, &name);
        }
    }

    /// Rechecks all links in a directory; `by_event` if an event says that one of them may lead elsewhere. Returns the
    /// number of links.
    pub fn recheck_links(&mut self, directory: DirectoryId, by_event: bool) -> usize {
        let Some(at) = self.model.mount_of(directory) else {
            return 0;
        };
        let links = self.links.names(directory);
        for name in &links {
            if self.mounts[at].found.is_none() {
                break;
            }
            if let Some(TreeEntry::File(id)) = self.update_link(directory, name, None)
                && self.has_changed(id)
            {
                if let Some(file) = self.model.file_mut(id)
                    && by_event
                {
                    file.close();
                }
                self.queue.push_file(id);
            }
        }
        links.len()
    }

    /// Takes note whether a file may be written without an event here: by another name, or where it is mounted from.
    pub fn note_silent(&mut self, id: FileId, is_silent: bool) {
        if !is_silent {
            self.silent.remove(&id);
        } else if self.silent.len() < MAX_SILENT {
            self.silent.insert(id);
        }
    }

    /// Returns true if a file is there now with other stat data than it was read with.
    fn has_changed(&self, id: FileId) -> bool {
        let status = self.model.file(id).and_then(|file| {
            let path = self.path_of_name(file.directory, &file.name)?;
            Some((file, file_status::follow(&path).ok()?))
        });
        status.is_some_and(|(file, status)| !file.was_read_with(&status.stat))
    }

    /// Queues the files without events that have changed.
    pub fn recheck_silent_files(&mut self) {
        for id in &self.silent {
            if self.has_changed(*id) {
                self.queue.push_file(*id);
            }
        }
    }

    /// Rechecks links that no event tells about, a bounded number each time.
    pub fn recheck_some_links(&mut self) {
        let mut left = MAX_RECHECKED;
        for _ in 0..self.links.holders.len() {
            let Some(id) = self.links.next() else {
                break;
            };
            left = left.saturating_sub(self.recheck_links(id, false));
            if left == 0 {
                break;
            }
        }
    }
}

//! Symbolic links: followed, cut where they lead in a circle, and rechecked, because a swap far away changes
//! all beneath them without any event near them (R1).

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::announce::observation::Identity;
use crate::tree::TreeNotice;
use crate::tree::file::LinkTarget;
use crate::tree::file_status::{self, FileKind};
use crate::tree::linked_directories::{LinkRefusal, LinkedDirectories, MAX_LINKED};
use crate::tree::model::{Directory, DirectoryId, DirectoryState, FileId, TreeEntry, join};
use crate::tree::observer::Observer;
use crate::tree::pending_hints::Hint;
use crate::tree::watches::WatchedName;
use crate::tree::work_queue::Depth;

/// Maximum links that are rechecked each second.
const MAX_RECHECKED: usize = 4096;

impl Observer<'_> {
    /// Takes note that a name is a link, whatever it leads to.
    pub(super) fn update_link(
        &mut self,
        id: DirectoryId,
        name: &[u8],
        depth: Option<Depth>,
        sweep: Option<usize>,
    ) -> Option<TreeEntry> {
        let path = self.path_of(id, name)?;
        let existing = self.model.entry(id, name);
        let entry = match file_status::follow(&path) {
            Ok(status) if status.kind == FileKind::Directory => {
                if self.leads_back(id, status.identity) {
                    if existing != Some(TreeEntry::Dangling) {
                        self.notice(TreeNotice::Loop { link: path });
                    }
                    return self.update_dead_link(id, name, TreeEntry::Dangling);
                }
                if !matches!(existing, Some(TreeEntry::Directory(_))) && self.is_refused(id, &path)
                {
                    return self.update_dead_link(id, name, TreeEntry::Refused);
                }
                let before = match existing {
                    Some(TreeEntry::Directory(child)) => self.model.directory(child)?.identity,
                    _ => None,
                };
                let depth = match before == Some(status.identity) {
                    true => depth,
                    false => Some(Depth::Subtree),
                };
                let entry = self.update_directory(id, name, depth, sweep);
                if let Some(TreeEntry::Directory(child)) = entry {
                    self.model.make_link(child);
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
                return self.update_dead_link(id, name, TreeEntry::Dangling);
            }
            Err(_) => existing,
        };
        if entry.is_some() {
            self.remember_link(id, name);
        }
        entry
    }

    /// Takes note that a link leads to nothing that is looked at, for the reason that `entry` is.
    fn update_dead_link(
        &mut self,
        id: DirectoryId,
        name: &[u8],
        entry: TreeEntry,
    ) -> Option<TreeEntry> {
        if self.model.entry(id, name) != Some(entry) {
            self.remove_entry(id, name);
            let directory = self.model.directory_mut(id)?;
            directory.entries.insert(name.into(), entry);
        }
        self.remember_link(id, name);
        Some(entry)
    }

    fn remember_link(&mut self, id: DirectoryId, name: &[u8]) {
        if let Some(directory) = self.model.directory_mut(id) {
            directory.links.insert(name.into());
            self.links.insert(id);
        }
    }

    /// Returns true if a link in this directory leads to it or to one above it.
    fn leads_back(&self, id: DirectoryId, target: Identity) -> bool {
        let mut path = self.model.path_to(id);
        path.any(|directory| directory.identity == Some(target))
    }

    /// Returns the path of the directory above this one that is the same directory: a circle, wherever the link is that
    /// led here.
    pub(super) fn same_directory_above(
        &self,
        id: DirectoryId,
        identity: Identity,
    ) -> Option<PathBuf> {
        let mut above = self.model.directory(id)?.parent;
        while let Some(id) = above {
            let directory = self.model.directory(id)?;
            if directory.identity == Some(identity) {
                // Another directory may have come in its place, and its inode may be in use again.
                let mount = &self.mounts[directory.mount];
                let path = join(&mount.directory, &self.model.below(id));
                let now = file_status::follow(&path).map(|status| status.identity);
                return (now == Ok(identity)).then_some(path);
            }
            above = directory.parent;
        }
        None
    }

    /// Takes note that a directory stands above itself.
    pub(super) fn cut_circle(
        &mut self,
        id: DirectoryId,
        path: PathBuf,
        above: PathBuf,
        identity: Identity,
    ) {
        self.unwatch(id);
        self.allow(id);
        self.nested.remove(id);
        let Some(directory) = self.model.directory_mut(id) else {
            return;
        };
        let names: Vec<Arc<[u8]>> = directory.entries.keys().cloned().collect();
        directory.identity = Some(identity);
        let before = std::mem::replace(&mut directory.state, DirectoryState::Circle);
        for name in names {
            self.remove_entry(id, &name);
        }
        if before != DirectoryState::Circle {
            let directory = path;
            self.notice(TreeNotice::Circle { directory, above });
        }
    }

    /// Returns true if a new link in this directory is not followed. That is reported once for each mount and reason.
    fn is_refused(&mut self, id: DirectoryId, link: &Path) -> bool {
        let Some(at) = self.model.mount_of(id) else {
            return true;
        };
        let is_link = |directory: &&Directory| directory.is_link && directory.parent.is_some();
        let depth = self.model.path_to(id).filter(is_link).count();
        let Some(refusal) = LinkedDirectories::refusal(depth, self.model.linked(at)) else {
            return false;
        };
        if self.links.is_first(at, refusal) {
            let link = link.to_owned();
            self.notice(match refusal {
                LinkRefusal::TooDeep => TreeNotice::LinkTooDeep { link },
                LinkRefusal::TooMany => TreeNotice::TooManyLinked {
                    link,
                    directories: MAX_LINKED,
                },
            });
        }
        true
    }

    /// Watches the target of a link to a file, so that a rewrite there is noticed at once.
    fn set_target(&mut self, id: FileId, path: &Path, identity: Identity) {
        let Some(file) = self.model.file(id) else {
            return;
        };
        if file.link.as_ref().is_some_and(|it| it.identity == identity) {
            return;
        }
        let at = self.model.mount_of(file.directory);
        self.forget_link(id);
        let mut watch = None;
        if at.is_some_and(|at| self.gives_hints(at))
            && let Ok(target) = std::fs::canonicalize(path)
            && let (Some(directory), Some(name)) = (target.parent(), target.file_name())
        {
            let name = name.as_bytes();
            // Where this fails, the recheck each second remains.
            let key = self
                .watches
                .add_name(directory, name, WatchedName::Link(id));
            watch = key.ok().map(|key| (key, name.into()));
        }
        if let Some(file) = self.model.file_mut(id) {
            file.link = Some(Box::new(LinkTarget { identity, watch }));
        }
    }

    /// Takes note that a file is no link, or none to where it led.
    pub(super) fn forget_link(&mut self, id: FileId) {
        let Some(file) = self.model.file_mut(id) else {
            return;
        };
        let Some(target) = file.link.take() else {
            return;
        };
        let (directory, name) = (file.directory, Arc::clone(&file.name));
        if let Some((key, name)) = target.watch {
            self.watches.remove_name(key, &name, WatchedName::Link(id));
        }
        if let Some(directory) = self.model.directory_mut(directory) {
            directory.links.remove(&name);
        }
    }

    /// Rechecks all links in a directory; `by_event` if an event says that one of them may lead elsewhere. Returns the
    /// number of links.
    pub(super) fn recheck_links(&mut self, directory: DirectoryId, by_event: bool) -> usize {
        let known = self.model.directory(directory);
        let Some(known) = known.filter(|known| !known.links.is_empty()) else {
            self.links.remove(directory);
            return 0;
        };
        let at = known.mount;
        let links: Vec<Arc<[u8]>> = known.links.iter().cloned().collect();
        for name in &links {
            if !self.mounts[at].is_present() {
                break;
            }
            if let Some(TreeEntry::File(id)) = self.update_link(directory, name, None, None)
                && let Some(path) = self.path_of(directory, name)
                && let Ok(status) = file_status::follow(&path)
                && let Some(file) = self.model.file_mut(id)
                && file.stat() != Some(&status.stat)
            {
                if by_event {
                    file.close();
                }
                self.queue.push_file(id);
            }
        }
        links.len()
    }

    /// Rechecks a link to a file, because the name where it ended stands for something else.
    pub(super) fn recheck_link_to_file(&mut self, id: FileId, hint: Hint) {
        if let Some((directory, name)) = self.model.name_of(id)
            && let Some(TreeEntry::File(file)) = self.update_link(directory, &name, None, None)
        {
            self.hint_file(file, hint);
        }
    }

    /// Rechecks links that no event tells about, a bounded number each time.
    pub(super) fn recheck_some_links(&mut self) {
        let mut left = MAX_RECHECKED;
        for _ in 0..self.links.len() {
            let Some(id) = self.links.next() else { break };
            left = left.saturating_sub(self.recheck_links(id, false));
            if left == 0 {
                break;
            }
        }
    }
}

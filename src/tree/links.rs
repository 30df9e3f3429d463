//! Symbolic links: followed, cut where they lead in a circle, and rechecked, because a swap far away changes
//! all beneath them without any event near them (R1).

use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::announce::observation::Identity;
use crate::tree::TreeNotice;
use crate::tree::file_status::{self, FileKind};
use crate::tree::model::{Directory, DirectoryId, Entry, FileId, LinkTarget, Queued, join};
use crate::tree::observer::Observer;
use crate::tree::pending_hints::Hint;
use crate::tree::watches::WatchedName;

/// How many directory links one path may lead through: links into each other multiply paths.
const MAX_LINKS: usize = 4;
/// How many directories of one mount may be reached through links before no more links are followed. What
/// lies behind one link, as a release, is never cut.
const MAX_LINKED: usize = 10_000;
/// How many links are looked at each second.
const MAX_RECHECKED: usize = 4096;

impl Observer<'_> {
    /// Takes in that a name is a link, whatever it leads to.
    pub(super) fn meet_link(
        &mut self,
        id: DirectoryId,
        name: &[u8],
        queued: Queued,
        sweep: Option<usize>,
    ) -> Option<Entry> {
        let path = self.path_of(id, name)?;
        let existing = self.model.entry(id, name);
        let entry = match file_status::follow(&path) {
            Ok(status) if status.kind == FileKind::Directory => {
                if self.leads_back(id, status.identity) {
                    if existing != Some(Entry::Dangling) {
                        self.notice(TreeNotice::Loop { link: path });
                    }
                    return self.meet_nothing(id, name, Entry::Dangling);
                }
                if !matches!(existing, Some(Entry::Directory(_))) && self.is_refused(id, &path) {
                    return self.meet_nothing(id, name, Entry::Refused);
                }
                let before = match existing {
                    Some(Entry::Directory(child)) => self.model.directory(child)?.identity,
                    _ => None,
                };
                let queued = if before == Some(status.identity) {
                    queued
                } else {
                    Queued::WithAllBeneath
                };
                self.meet_directory_link(id, name, queued, sweep)
            }
            Ok(status) => {
                let file = self.meet_file(id, name);
                if let Some(file) = file {
                    self.set_target(file, &path, status.identity);
                }
                file.map(Entry::File)
            }
            Err(error) if file_status::is_absence(error) => {
                return self.meet_nothing(id, name, Entry::Dangling);
            }
            Err(_) => existing,
        };
        if entry.is_some() {
            self.remember_link(id, name);
        }
        entry
    }

    fn meet_directory_link(
        &mut self,
        id: DirectoryId,
        name: &[u8],
        queued: Queued,
        sweep: Option<usize>,
    ) -> Option<Entry> {
        let entry = self.meet(id, name, FileKind::Directory, queued, sweep);
        if let Some(Entry::Directory(child)) = entry {
            self.model.make_link(child);
        }
        entry
    }

    /// Takes in that a link leads to nothing that is looked at, for the reason that `entry` is.
    fn meet_nothing(&mut self, id: DirectoryId, name: &[u8], entry: Entry) -> Option<Entry> {
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
            self.linked.insert(id);
        }
    }

    fn leads_back(&self, id: DirectoryId, target: Identity) -> bool {
        self.path_to(id)
            .any(|directory| directory.identity == Some(target))
    }

    /// The path of the directory above this one that is the same directory: a circle, wherever the link is that
    /// led here.
    pub(super) fn above_itself(&self, id: DirectoryId, identity: Identity) -> Option<PathBuf> {
        let mut above = self.model.directory(id)?.parent;
        while let Some(id) = above {
            let directory = self.model.directory(id)?;
            if directory.identity == Some(identity) {
                // Another one may have come in its place, and its inode may be in use again.
                let path = join(
                    &self.mounts[directory.mount].directory,
                    &self.model.below(id),
                );
                let now = file_status::follow(&path).map(|status| status.identity);
                return (now == Ok(identity)).then_some(path);
            }
            above = directory.parent;
        }
        None
    }

    /// Takes in that a directory stands above itself.
    pub(super) fn cut_circle(
        &mut self,
        id: DirectoryId,
        path: PathBuf,
        above: PathBuf,
        identity: Identity,
    ) {
        self.unwatch(id);
        self.allow(id);
        let Some(directory) = self.model.directory_mut(id) else {
            return;
        };
        let names: Vec<Arc<[u8]>> = directory.entries.keys().cloned().collect();
        (directory.identity, directory.is_denied) = (Some(identity), false);
        let was_circle = std::mem::replace(&mut directory.is_circle, true);
        for name in names {
            self.remove_entry(id, &name);
        }
        if !was_circle {
            let directory = path;
            self.notice(TreeNotice::Circle { directory, above });
        }
    }

    /// Whether a new link in this directory is one too many; said once for each mount and reason.
    fn is_refused(&mut self, id: DirectoryId, link: &Path) -> bool {
        let Some(at) = self.model.directory(id).map(|it| it.mount) else {
            return true;
        };
        let is_link = |directory: &&Directory| directory.is_link && directory.parent.is_some();
        let depth = self.path_to(id).filter(is_link).count();
        let mount = &mut self.mounts[at];
        let link = link.to_owned();
        let (was_told, notice) = if depth >= MAX_LINKS {
            (
                &mut mount.has_said_too_deep,
                TreeNotice::LinkTooDeep { link },
            )
        } else if self.model.linked(at) >= MAX_LINKED {
            let directories = MAX_LINKED;
            let notice = TreeNotice::TooManyLinked { link, directories };
            (&mut mount.has_said_too_many, notice)
        } else {
            return false;
        };
        if !std::mem::replace(was_told, true) {
            self.notice(notice);
        }
        true
    }

    /// A directory and all above it.
    fn path_to(&self, id: DirectoryId) -> impl Iterator<Item = &Directory> {
        self.model
            .directory(id)
            .into_iter()
            .chain(self.model.above(id))
    }

    /// Watches where a link to a file ends, so that a rewrite there is noticed at once.
    fn set_target(&mut self, id: FileId, path: &Path, identity: Identity) {
        let Some(file) = self.model.file(id) else {
            return;
        };
        if file.link.as_ref().is_some_and(|it| it.identity == identity) {
            return;
        }
        let at = self.model.directory(file.directory).map(|it| it.mount);
        self.make_plain(id);
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

    /// Takes in that a file is no link, or none to where it led.
    pub(super) fn make_plain(&mut self, id: FileId) {
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

    /// Rechecks all links in a directory; `by_event` if an event says that one of them may lead elsewhere.
    pub(super) fn recheck_links(&mut self, id: DirectoryId, by_event: bool) -> usize {
        let Some(directory) = self.model.directory(id) else {
            self.linked.remove(&id);
            return 0;
        };
        if directory.links.is_empty() {
            self.linked.remove(&id);
            return 0;
        }
        let at = directory.mount;
        let links: Vec<Arc<[u8]>> = directory.links.iter().cloned().collect();
        for name in &links {
            if self.mounts[at].identity.is_none() {
                break;
            }
            if let Some(Entry::File(file)) = self.meet_link(id, name, Queued::No, None)
                && let Some(path) = self.path_of(id, name)
                && let Ok(status) = file_status::follow(&path)
                && self
                    .model
                    .file(file)
                    .is_some_and(|it| it.stat != Some(status.stat))
            {
                if by_event && let Some(file) = self.model.file_mut(file) {
                    file.is_trusted = true;
                }
                self.queue_file(file);
            }
        }
        links.len()
    }

    /// Something else has the name where a link to a file ended.
    pub(super) fn recheck_link_to_file(&mut self, id: FileId, hint: Hint) {
        if let Some((directory, name)) = self.name_of(id)
            && let Some(Entry::File(file)) = self.meet_link(directory, &name, Queued::No, None)
        {
            self.hint_file(file, hint);
        }
    }

    /// Rechecks links that no event tells about, a bounded number each time.
    pub(super) fn recheck_some_links(&mut self) {
        let mut left = MAX_RECHECKED;
        let mut at = self.last_linked;
        for _ in 0..self.linked.len() {
            let after = at.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.linked.range((after, Bound::Unbounded)).next();
            let Some(id) = next.or_else(|| self.linked.first()).copied() else {
                break;
            };
            at = Some(id);
            left = left.saturating_sub(self.recheck_links(id, false));
            if left == 0 {
                break;
            }
        }
        self.last_linked = at;
    }
}

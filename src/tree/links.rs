//! Symbolic links: followed, cut where they lead in a circle or where there are too many, and rechecked, because a swap far
//! away changes all beneath them without any event near them (R1).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::Discriminant;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::tree::TreeNotice;
use crate::tree::directories::{ListingOutcome, TreeEntry, join};
use crate::tree::file::LinkTarget;
use crate::tree::file_status::{self, FileKind};
use crate::tree::model::{DirectoryId, FileId, Model};
use crate::tree::observer::Observer;
use crate::tree::work_queue::Depth;
use announce::observation::Identity;

/// Maximum links that are rechecked each second.
const MAX_RECHECKED: usize = 4096;
/// Maximum files without events that are rechecked each second.
const MAX_SILENT: usize = 1024;
/// Maximum directory links that one path may lead through: links into each other multiply paths.
const MAX_LINKS: usize = 4;
/// Maximum directories of one mount that may be reached through links before no more links are followed. The contents
/// of one link, such as a release, are never cut.
const MAX_LINKED: usize = 10_000;

/// Directories that hold symbolic links, and those that were reached through one.
#[derive(Debug, Default)]
pub struct LinkedDirectories {
    /// Directories that hold links, with the names of these. None is without.
    pub holders: BTreeMap<DirectoryId, BTreeSet<Arc<[u8]>>>,
    /// The directory whose links were rechecked last.
    last: Option<DirectoryId>,
    /// Directories that were reached through links, by the position of their mount.
    reached: BTreeMap<usize, HashSet<DirectoryId>>,
    /// Kinds of refusals that were reported, by the position of their mount.
    reported: HashSet<(usize, Discriminant<TreeNotice>)>,
}

impl LinkedDirectories {
    /// Takes note that a name in a directory is a symbolic link.
    pub fn insert(&mut self, id: DirectoryId, name: &[u8]) {
        let names = self.holders.entry(id).or_default();
        if !names.contains(name) {
            names.insert(name.into());
        }
    }

    /// Takes note that a name in a directory is no symbolic link.
    pub fn remove(&mut self, id: DirectoryId, name: &[u8]) {
        if let Some(names) = self.holders.get_mut(&id)
            && names.remove(name)
            && names.is_empty()
        {
            self.holders.remove(&id);
        }
    }

    /// Takes note that a directory of a mount is gone.
    pub fn forget(&mut self, id: DirectoryId, mount: usize) {
        self.holders.remove(&id);
        if let Some(reached) = self.reached.get_mut(&mount) {
            reached.remove(&id);
        }
    }

    /// Returns the names of symbolic links in a directory.
    pub fn names(&self, id: DirectoryId) -> Vec<Arc<[u8]>> {
        let names = self.holders.get(&id).into_iter().flatten();
        names.cloned().collect()
    }

    /// Returns the directory whose links are to be rechecked next, round after round.
    pub fn next(&mut self) -> Option<DirectoryId> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.holders.range((after, Bound::Unbounded)).next();
        let next = next.or_else(|| self.holders.first_key_value());
        self.last = next.map(|(id, _)| *id);
        self.last
    }

    /// Counts a directory of a mount as reached through a link.
    pub fn reach(&mut self, id: DirectoryId, mount: usize) {
        self.reached.entry(mount).or_default().insert(id);
    }

    /// Counts a new directory as reached through a link, if the one above it is.
    pub fn inherit_reached(&mut self, parent: DirectoryId, id: DirectoryId, mount: usize) {
        if let Some(reached) = self.reached.get_mut(&mount)
            && reached.contains(&parent)
        {
            reached.insert(id);
        }
    }

    /// Returns why one more link to a directory of a mount is not followed, where it lies behind `depth` others.
    fn refusal(&self, mount: usize, depth: usize, link: &Path) -> Option<TreeNotice> {
        let reached = self.reached.get(&mount).map_or(0, HashSet::len);
        let link = link.to_owned();
        if depth >= MAX_LINKS {
            Some(TreeNotice::LinkTooDeep { link })
        } else if reached >= MAX_LINKED {
            let directories = MAX_LINKED;
            Some(TreeNotice::TooManyLinked { link, directories })
        } else {
            None
        }
    }

    /// Returns the paths in a mount of links that are not followed.
    pub fn refused(&self, mount: usize, model: &Model) -> Vec<Vec<u8>> {
        let in_mount = |id: DirectoryId| model.mount_of(id) == Some(mount);
        let holders = self.holders.iter().filter(|(id, _)| in_mount(**id));
        let links = holders.flat_map(|(id, names)| names.iter().map(move |name| (*id, name)));
        let is_refused = |(id, name): &(DirectoryId, &Arc<[u8]>)| {
            model.entry(*id, name) == Some(TreeEntry::Refused)
        };
        let refused = links.filter(is_refused);
        refused
            .map(|(id, name)| model.below_name(id, name))
            .collect()
    }
}

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
        let depth = self.model.links_on_path(id);
        let Some(refusal) = self.links.refusal(mount, depth, link) else {
            return false;
        };
        let kind = (mount, std::mem::discriminant(&refusal));
        if self.links.reported.insert(kind) {
            self.reports.notice(refusal);
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
        let before = std::mem::replace(&mut known.state, ListingOutcome::Circle);
        let names: Vec<_> = known.entries.keys().cloned().collect();
        self.end_denial(id, at);
        for name in names {
            self.remove(id, &name);
        }
        if before != ListingOutcome::Circle {
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
        let target = self.model.file_mut(id).and_then(|file| file.link.take());
        if let Some(target) = target
            && let Some((directory, name)) = self.model.name_of(id)
        {
            self.unwatch_target(id, &target);
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
                    file.writer_closed();
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
        let mut rechecked = 0;
        for _ in 0..self.links.holders.len() {
            if rechecked < MAX_RECHECKED
                && let Some(id) = self.links.next()
            {
                rechecked += self.recheck_links(id, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tree::TreeNotice;
    use crate::tree::directories::TreeEntry;
    use crate::tree::links::{LinkedDirectories, MAX_LINKED, MAX_LINKS};
    use crate::tree::model::{DirectoryId, Model};

    const IDS: [DirectoryId; 3] = [DirectoryId(0), DirectoryId(1), DirectoryId(2)];

    #[test]
    fn links_are_refused_beyond_a_depth_and_a_number_in_one_mount() {
        let mut links = LinkedDirectories::default();
        let [linked, plain, other] = IDS;
        let is_full = |links: &LinkedDirectories| {
            let refusal = links.refusal(0, 0, "l".as_ref());
            matches!(refusal, Some(TreeNotice::TooManyLinked { .. }))
        };
        assert_eq!(links.refusal(0, MAX_LINKS - 1, "l".as_ref()), None);
        let link = "l".into();
        let too_deep = Some(TreeNotice::LinkTooDeep { link });
        assert_eq!(links.refusal(0, MAX_LINKS, "l".as_ref()), too_deep);
        // What lies below a directory counts as reached if that does.
        links.reach(linked, 0);
        let below = (3..).map(DirectoryId).take(MAX_LINKED - 1);
        below
            .clone()
            .for_each(|id| links.inherit_reached(plain, id, 0));
        assert!(!is_full(&links));
        below.for_each(|id| links.inherit_reached(linked, id, 0));
        assert!(is_full(&links));
        assert_eq!(links.refusal(1, 0, "l".as_ref()), None);
        links.forget(linked, 0);
        assert!(!is_full(&links));
        links.reach(DirectoryId(3), 0);
        assert!(!is_full(&links), "counted twice");
        links.reach(other, 0);
        assert!(is_full(&links));
    }

    #[test]
    fn the_links_of_all_directories_are_rechecked_in_turn() {
        let mut links = LinkedDirectories::default();
        assert_eq!(links.next(), None);
        IDS.into_iter().for_each(|id| links.insert(id, b"link"));
        let [root, one, two] = IDS.map(Some);
        assert_eq!([links.next(), links.next()], [root, one]);
        links.forget(IDS[1], 0);
        assert_eq!([links.next(), links.next()], [two, root]);
    }

    #[test]
    fn a_directory_holds_links_until_the_last_is_gone() {
        let mut links = LinkedDirectories::default();
        links.insert(IDS[0], b"one");
        links.insert(IDS[0], b"two");
        links.remove(IDS[0], b"two");
        assert_eq!(links.names(IDS[0]), [b"one".as_slice().into()]);
        assert_eq!((links.holders.len(), links.next()), (1, Some(IDS[0])));
        links.remove(IDS[0], b"one");
        assert_eq!((links.holders.len(), links.next()), (0, None));
    }

    #[test]
    fn only_links_that_are_not_followed_are_refused() {
        let mut model = Model::default();
        let root = model.add_root(0);
        let a = model.add_below(root, b"a").unwrap();
        let mut links = LinkedDirectories::default();
        for (name, entry) in [(b"one", TreeEntry::Dangling), (b"two", TreeEntry::Refused)] {
            model.set_entry(a, name.as_slice().into(), entry);
            links.insert(a, name);
        }
        assert_eq!(links.refused(0, &model), [b"a/two"]);
        assert!(links.refused(1, &model).is_empty());
    }
}

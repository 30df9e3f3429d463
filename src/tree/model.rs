//! The tree as far as it is known: directories, the candidate files in them, and nothing else. Pure data.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::announce::observation::Identity;
use crate::tree::file::{File, LinkTarget};
use crate::tree::file_system::FileSystem;
use crate::tree::linked_directories::{LinkRefusal, LinkedDirectories};
use crate::tree::watches::WatchKey;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct DirectoryId(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FileId(u32);

/// One path that is a directory, possibly by a link.
#[derive(Debug)]
pub(super) struct Directory {
    /// Position of the mount in the settings.
    pub(super) mount: usize,
    pub(super) parent: Option<DirectoryId>,
    pub(super) name: Arc<[u8]>,
    /// Identity of the directory that was listed last; of a link, of its target.
    pub(super) identity: Option<Identity>,
    /// File system that it lies in, which need not be that of the mount's root.
    pub(super) file_system: FileSystem,
    pub(super) is_link: bool,
    /// True if something is mounted there, be it a part of the same file system.
    pub(super) is_mount_point: bool,
    /// True if it is reached through a link, and counted as such.
    is_linked: bool,
    pub(super) watch: Option<WatchKey>,
    entries: HashMap<Arc<[u8]>, TreeEntry>,
    /// Names of entries that are symbolic links. While there are any, [`Model::links`] has the directory.
    links: BTreeSet<Arc<[u8]>>,
    pub(super) state: DirectoryState,
    /// Number of the listing that met it last.
    met: u32,
}

/// Outcome of the last attempt to list a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryState {
    Readable,
    Denied,
    /// It stands above itself, so that nothing in it is looked at.
    Circle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeEntry {
    Directory(DirectoryId),
    File(FileId),
    /// A link that leads nowhere, or in a circle.
    Dangling,
    /// A link to a directory that is not followed: what lies there is not missing.
    Refused,
}

/// All directories and files, by number: queues and timers refer to them, and may outlive them.
#[derive(Debug, Default)]
pub(super) struct Model {
    directories: Slab<Directory>,
    files: Slab<File>,
    links: LinkedDirectories,
    /// Number of the current listing.
    listing: u32,
}

/// Directories and files that are gone, in the order in which they went: each directory after all beneath it.
#[derive(Debug, Default)]
pub(super) struct Removed {
    pub(super) directories: Vec<(DirectoryId, Directory)>,
    pub(super) files: Vec<RemovedFile>,
}

#[derive(Debug)]
pub(super) struct RemovedFile {
    pub(super) id: FileId,
    /// Position of its mount.
    pub(super) mount: usize,
    /// Path below the mount.
    pub(super) below: Vec<u8>,
    pub(super) file: File,
}

impl Model {
    pub(super) fn directory(&self, id: DirectoryId) -> Option<&Directory> {
        self.directories.get(id.0)
    }

    pub(super) fn directory_mut(&mut self, id: DirectoryId) -> Option<&mut Directory> {
        self.directories.get_mut(id.0)
    }

    pub(super) fn file(&self, id: FileId) -> Option<&File> {
        self.files.get(id.0)
    }

    pub(super) fn file_mut(&mut self, id: FileId) -> Option<&mut File> {
        self.files.get_mut(id.0)
    }

    pub(super) fn entry(&self, id: DirectoryId, name: &[u8]) -> Option<TreeEntry> {
        self.directory(id)?.entries.get(name).copied()
    }

    /// Returns the directory at a path below another one, if it is known.
    pub(super) fn directory_at(&self, root: DirectoryId, below: &[u8]) -> Option<DirectoryId> {
        let mut names = below.split(|&byte| byte == b'/');
        names.try_fold(root, |id, name| match self.entry(id, name)? {
            TreeEntry::Directory(id) => Some(id),
            TreeEntry::File(_) | TreeEntry::Dangling | TreeEntry::Refused => None,
        })
    }

    pub(super) fn add_directory(
        &mut self,
        mount: usize,
        parent: Option<DirectoryId>,
        name: &[u8],
        is_link: bool,
    ) -> DirectoryId {
        let name: Arc<[u8]> = name.into();
        let id = DirectoryId(self.directories.insert(Directory {
            mount,
            parent,
            name: Arc::clone(&name),
            identity: None,
            file_system: FileSystem::default(),
            is_link,
            is_mount_point: false,
            is_linked: false,
            watch: None,
            entries: HashMap::new(),
            links: BTreeSet::new(),
            state: DirectoryState::Readable,
            met: 0,
        }));
        let mut is_linked = false;
        if let Some(parent) = parent.and_then(|parent| self.directory_mut(parent)) {
            is_linked = parent.is_linked;
            parent.entries.insert(name, TreeEntry::Directory(id));
        }
        if is_linked {
            self.count_as_linked(id);
        }
        id
    }

    /// Takes note that a directory is reached by a link.
    pub(super) fn make_link(&mut self, id: DirectoryId) {
        if let Some(directory) = self.directory_mut(id) {
            directory.is_link = true;
            self.count_as_linked(id);
        }
    }

    /// Returns why one more link to a directory is not followed in this one. Nothing is followed in a directory that is
    /// gone.
    pub(super) fn link_refusal(&self, id: DirectoryId) -> Option<LinkRefusal> {
        let Some(mount) = self.mount_of(id) else {
            return Some(LinkRefusal::TooDeep);
        };
        let is_link = |directory: &&Directory| directory.is_link && directory.parent.is_some();
        let depth = self.path_to(id).filter(is_link).count();
        self.links.refusal(mount, depth)
    }

    /// Returns true if this refusal has not been reported of the directory's mount, and takes note that it is.
    pub(super) fn is_first_refusal(&mut self, id: DirectoryId, refusal: LinkRefusal) -> bool {
        let mount = self.mount_of(id);
        mount.is_some_and(|mount| self.links.is_first(mount, refusal))
    }

    /// Returns true if a link in this directory to another one leads back to it, or to one above it.
    pub(super) fn leads_back(&self, id: DirectoryId, target: Identity) -> bool {
        let mut path = self.path_to(id);
        path.any(|directory| directory.identity == Some(target))
    }

    /// Returns the nearest directory above this one that has this identity.
    pub(super) fn same_above(&self, id: DirectoryId, identity: Identity) -> Option<DirectoryId> {
        let mut above = self.directory(id)?.parent;
        while let Some(id) = above {
            let directory = self.directory(id)?;
            if directory.identity == Some(identity) {
                return Some(id);
            }
            above = directory.parent;
        }
        None
    }

    /// Takes note that a name in a directory is a symbolic link.
    pub(super) fn add_link(&mut self, id: DirectoryId, name: &[u8]) {
        if let Some(directory) = self.directory_mut(id) {
            directory.links.insert(name.into());
            self.links.insert(id);
        }
    }

    /// Takes note that a name in a directory is no symbolic link.
    pub(super) fn remove_link(&mut self, id: DirectoryId, name: &[u8]) {
        if let Some(directory) = self.directory_mut(id)
            && directory.links.remove(name)
            && directory.links.is_empty()
        {
            self.links.remove(id);
        }
    }

    /// Takes note that a name, which stands for nothing else, is a link that leads to nothing that is looked at.
    pub(super) fn add_dead_link(&mut self, id: DirectoryId, name: &[u8], entry: TreeEntry) {
        if let Some(directory) = self.directory_mut(id) {
            directory.entries.insert(name.into(), entry);
        }
        self.add_link(id, name);
    }

    /// Returns the names of symbolic links in a directory.
    pub(super) fn links_in(&self, id: DirectoryId) -> Vec<Arc<[u8]>> {
        let links = self.directory(id).into_iter().flat_map(|it| &it.links);
        links.cloned().collect()
    }

    /// Returns the number of directories that hold links.
    pub(super) fn directories_with_links(&self) -> usize {
        self.links.len()
    }

    /// Returns the directory whose links are to be rechecked next, round after round.
    pub(super) fn next_with_links(&mut self) -> Option<DirectoryId> {
        self.links.next()
    }

    /// Returns the paths in a mount of links that are not followed.
    pub(super) fn refused_links(&self, mount: usize) -> Vec<Vec<u8>> {
        let in_mount = |id: &DirectoryId| self.mount_of(*id) == Some(mount);
        let holders = self.links.iter().filter(in_mount);
        let links = holders.flat_map(|id| self.links_in(id).into_iter().map(move |it| (id, it)));
        let refused = links.filter(|(id, it)| self.entry(*id, it) == Some(TreeEntry::Refused));
        refused.map(|(id, it)| self.below_name(id, &it)).collect()
    }

    /// Returns true if a directory lies on another device than its parent, and that one is not known to be local.
    pub(super) fn is_on_remote_device(&self, id: DirectoryId) -> bool {
        let Some(directory) = self.directory(id) else {
            return false;
        };
        let device_of = |it: &Directory| it.identity.map(|it| it.device);
        let parent = directory.parent.and_then(|id| self.directory(id));
        let is_on_another = parent.is_some_and(|it| device_of(it) != device_of(directory));
        is_on_another && !directory.file_system.is_local
    }

    /// Returns the file system of the directory above, if this one lies on the same device.
    pub(super) fn file_system_above(&self, id: DirectoryId, device: u64) -> Option<FileSystem> {
        let parent = self.directory(self.directory(id)?.parent?)?;
        let is_same = parent.identity.is_some_and(|it| it.device == device);
        is_same.then_some(parent.file_system)
    }

    fn count_as_linked(&mut self, id: DirectoryId) {
        if let Some(directory) = self.directories.get_mut(id.0)
            && !std::mem::replace(&mut directory.is_linked, true)
        {
            self.links.reach(directory.mount);
        }
    }

    pub(super) fn add_file(&mut self, directory: DirectoryId, name: &[u8]) -> FileId {
        let name: Arc<[u8]> = name.into();
        let id = FileId(self.files.insert(File::new(directory, Arc::clone(&name))));
        if let Some(directory) = self.directory_mut(directory) {
            directory.entries.insert(name, TreeEntry::File(id));
        }
        id
    }

    /// Removes a name, with all beneath it.
    pub(super) fn remove(&mut self, id: DirectoryId, name: &[u8]) -> Removed {
        let mut removed = Removed::default();
        match self.entry(id, name) {
            None => {}
            Some(TreeEntry::File(file)) => removed.files.extend(self.remove_file(file)),
            Some(TreeEntry::Directory(top)) => {
                for id in self.beneath(top).into_iter().rev() {
                    for file in self.files_in(id) {
                        removed.files.extend(self.remove_file(file));
                    }
                    let directory = self.remove_directory(id);
                    removed.directories.extend(directory.map(|it| (id, it)));
                }
            }
            Some(TreeEntry::Dangling | TreeEntry::Refused) => {
                self.forget_name(id, name);
            }
        }
        removed
    }

    fn remove_directory(&mut self, id: DirectoryId) -> Option<Directory> {
        let removed = self.directories.remove(id.0)?;
        if removed.is_linked {
            self.links.lose(removed.mount);
        }
        self.links.remove(id);
        if let Some(parent) = removed.parent {
            self.forget_name(parent, &removed.name);
        }
        Some(removed)
    }

    fn remove_file(&mut self, id: FileId) -> Option<RemovedFile> {
        let (directory, name) = self.name_of(id)?;
        let mount = self.mount_of(directory)?;
        let below = self.below_name(directory, &name);
        let file = self.files.remove(id.0)?;
        self.forget_name(directory, &name);
        Some(RemovedFile {
            id,
            mount,
            below,
            file,
        })
    }

    fn forget_name(&mut self, id: DirectoryId, name: &[u8]) {
        if let Some(directory) = self.directory_mut(id) {
            directory.entries.remove(name);
        }
        self.remove_link(id, name);
    }

    /// Returns true if the next change of a file shows in its stat data, however soon it comes. A link's target may lie
    /// elsewhere than its directory.
    pub(super) fn has_sharp_times(&self, id: FileId) -> bool {
        let Some(file) = self.file(id) else {
            return false;
        };
        let Some(directory) = self.directory(file.directory) else {
            return false;
        };
        let device = directory.identity.map(|it| it.device);
        let is_here = |target: &LinkTarget| Some(target.identity.device) == device;
        directory.file_system.has_sharp_times && file.link.as_deref().is_none_or(is_here)
    }

    /// Forgets all writers: their closing events may have been lost.
    pub(super) fn forget_writers(&mut self) {
        for file in self.files.items.iter_mut().flatten() {
            file.forget_writer();
        }
    }

    /// Begins a listing: entries that it does not meet are gone.
    pub(super) fn begin_listing(&mut self) {
        self.listing = self.listing.wrapping_add(1);
    }

    pub(super) fn meet_directory(&mut self, id: DirectoryId) {
        let listing = self.listing;
        if let Some(directory) = self.directory_mut(id) {
            directory.met = listing;
        }
    }

    pub(super) fn meet_file(&mut self, id: FileId) {
        let listing = self.listing;
        if let Some(file) = self.file_mut(id) {
            file.met = listing;
        }
    }

    /// Returns the names in a directory that the current listing has not met.
    pub(super) fn unmet(&self, id: DirectoryId) -> Vec<Arc<[u8]>> {
        let is_met = |entry: &TreeEntry| match entry {
            TreeEntry::Directory(id) => {
                self.directory(*id).is_some_and(|it| it.met == self.listing)
            }
            TreeEntry::File(id) => self.file(*id).is_some_and(|it| it.met == self.listing),
            TreeEntry::Dangling | TreeEntry::Refused => false,
        };
        let entries = self.directory(id).into_iter().flat_map(|it| &it.entries);
        let unmet = entries.filter(|(_, entry)| !is_met(entry));
        unmet.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Returns the position of the mount that a directory lies in.
    pub(super) fn mount_of(&self, id: DirectoryId) -> Option<usize> {
        self.directory(id).map(|it| it.mount)
    }

    /// Returns the path of a name in a directory, below the mount.
    pub(super) fn below_name(&self, id: DirectoryId, name: &[u8]) -> Vec<u8> {
        let mut below = self.below(id);
        push_name(&mut below, name);
        below
    }

    /// Returns the directory and the name of a file.
    pub(super) fn name_of(&self, id: FileId) -> Option<(DirectoryId, Arc<[u8]>)> {
        let file = self.file(id)?;
        Some((file.directory, Arc::clone(&file.name)))
    }

    /// Returns the path of a directory below its mount, in bytes; empty for the mount itself.
    pub(super) fn below(&self, id: DirectoryId) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = self.directory(id);
        while let Some(directory) = at {
            if let Some(parent) = directory.parent {
                names.push(&directory.name);
                at = self.directory(parent);
            } else {
                at = None;
            }
        }
        let mut below = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names.iter().rev() {
            push_name(&mut below, name);
        }
        below
    }

    /// Returns a directory and those above it, nearest first.
    pub(super) fn path_to(&self, id: DirectoryId) -> impl Iterator<Item = &Directory> {
        let parent = |directory: &&Directory| self.directory(directory.parent?);
        std::iter::successors(self.directory(id), parent)
    }

    /// Returns all directories beneath one, itself first.
    pub(super) fn beneath(&self, id: DirectoryId) -> Vec<DirectoryId> {
        let mut found = vec![id];
        let mut next = 0;
        while let Some(&id) = found.get(next) {
            next += 1;
            if let Some(directory) = self.directory(id) {
                found.extend(directory.entries.values().filter_map(|entry| match entry {
                    TreeEntry::Directory(id) => Some(*id),
                    _ => None,
                }));
            }
        }
        found
    }

    /// Returns the names in a directory.
    pub(super) fn names_in(&self, id: DirectoryId) -> Vec<Arc<[u8]>> {
        let names = self
            .directory(id)
            .into_iter()
            .flat_map(|it| it.entries.keys());
        names.cloned().collect()
    }

    pub(super) fn files_in(&self, id: DirectoryId) -> Vec<FileId> {
        let entries = self
            .directory(id)
            .into_iter()
            .flat_map(|it| it.entries.values());
        entries
            .filter_map(|entry| match entry {
                TreeEntry::File(id) => Some(*id),
                _ => None,
            })
            .collect()
    }
}

/// Appends a component to a path.
pub(super) fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Returns a path below a directory.
pub(super) fn join(directory: &std::path::Path, below: &[u8]) -> PathBuf {
    if below.is_empty() {
        directory.to_owned()
    } else {
        directory.join(OsStr::from_bytes(below))
    }
}

#[derive(Debug)]
struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    fn get(&self, id: u32) -> Option<&T> {
        self.items.get(id as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.items.get_mut(id as usize)?.as_mut()
    }

    fn insert(&mut self, item: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self.items[id as usize] = Some(item);
            return id;
        }
        self.items.push(Some(item));
        u32::try_from(self.items.len() - 1).expect("no tree has four billion candidates")
    }

    fn remove(&mut self, id: u32) -> Option<T> {
        let item = self.items.get_mut(id as usize)?.take()?;
        self.free.push(id);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use crate::announce::observation::Identity;
    use crate::tree::file_system::FileSystem;
    use crate::tree::model::{DirectoryId, Model, TreeEntry};

    fn identity(device: u64, inode: u64) -> Option<Identity> {
        Some(Identity { device, inode })
    }

    /// A root and `a/b` in it, the inodes of which are 1, 2 and 3.
    fn tree() -> (Model, [DirectoryId; 3]) {
        let mut model = Model::default();
        let root = model.add_directory(0, None, b"", true);
        let a = model.add_directory(0, Some(root), b"a", false);
        let b = model.add_directory(0, Some(a), b"b", false);
        for (id, inode) in [(root, 1), (a, 2), (b, 3)] {
            model.directory_mut(id).unwrap().identity = identity(1, inode);
        }
        (model, [root, a, b])
    }

    #[test]
    fn all_beneath_a_name_goes_with_it() {
        let (mut model, [root, a, b]) = tree();
        model.add_file(b, b"x.xml");
        model.add_file(root, b"y.xml");
        model.add_dead_link(b, b"link", TreeEntry::Dangling);
        let removed = model.remove(root, b"a");
        let directories: Vec<DirectoryId> = removed.directories.iter().map(|it| it.0).collect();
        assert_eq!(directories, [b, a]);
        let files: Vec<&[u8]> = removed.files.iter().map(|it| &*it.below).collect();
        assert_eq!(files, [b"a/b/x.xml"]);
        assert_eq!(model.names_in(root), [b"y.xml".as_slice().into()]);
        assert_eq!(model.directories_with_links(), 0);
    }

    #[test]
    fn a_directory_holds_links_until_the_last_is_gone() {
        let (mut model, [root, ..]) = tree();
        model.add_dead_link(root, b"one", TreeEntry::Dangling);
        model.add_dead_link(root, b"two", TreeEntry::Refused);
        assert_eq!(model.refused_links(0), [b"two"]);
        model.remove(root, b"two");
        assert_eq!(model.next_with_links(), Some(root));
        model.remove(root, b"one");
        assert_eq!(model.next_with_links(), None);
    }

    #[test]
    fn a_link_to_a_directory_on_the_way_to_it_leads_back() {
        let (model, [root, a, b]) = tree();
        let leads_back = |id, inode| model.leads_back(id, identity(1, inode).unwrap());
        assert!(leads_back(b, 1) && leads_back(b, 3) && !leads_back(a, 3));
        let above = |id, inode| model.same_above(id, identity(1, inode).unwrap());
        assert_eq!(
            [above(b, 1), above(b, 2), above(b, 3)],
            [Some(root), Some(a), None]
        );
    }

    #[test]
    fn a_directory_on_another_device_is_remote_unless_it_is_known_to_be_local() {
        let (mut model, [_, a, b]) = tree();
        assert!(!model.is_on_remote_device(b));
        assert_eq!(model.file_system_above(b, 1), Some(FileSystem::default()));
        model.directory_mut(a).unwrap().identity = identity(2, 2);
        assert!(model.is_on_remote_device(a) && model.is_on_remote_device(b));
        assert_eq!(model.file_system_above(b, 1), None);
        model.directory_mut(b).unwrap().file_system.is_local = true;
        assert!(!model.is_on_remote_device(b));
    }
}

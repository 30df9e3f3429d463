//! The tree as far as it is known: directories, the candidate files in them, and nothing else. Pure data.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::announce::observation::Identity;
use crate::tree::file::{File, LinkTarget};
use crate::tree::file_system::FileSystem;
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
    /// True if it is reached through a link; counted in [`Model::linked`].
    is_linked: bool,
    pub(super) watch: Option<WatchKey>,
    pub(super) entries: HashMap<Arc<[u8]>, TreeEntry>,
    /// Names of entries that are symbolic links.
    pub(super) links: BTreeSet<Arc<[u8]>>,
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
    /// Number of directories of each mount that are reached through links.
    linked: BTreeMap<usize, usize>,
    /// Number of the current listing.
    listing: u32,
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

    /// Returns the number of directories of a mount that are reached through links.
    pub(super) fn linked(&self, mount: usize) -> usize {
        self.linked.get(&mount).copied().unwrap_or(0)
    }

    fn count_as_linked(&mut self, id: DirectoryId) {
        if let Some(directory) = self.directories.get_mut(id.0)
            && !std::mem::replace(&mut directory.is_linked, true)
        {
            *self.linked.entry(directory.mount).or_default() += 1;
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

    pub(super) fn remove_directory(&mut self, id: DirectoryId) -> Option<Directory> {
        let removed = self.directories.remove(id.0)?;
        if removed.is_linked
            && let Some(linked) = self.linked.get_mut(&removed.mount)
        {
            *linked -= 1;
        }
        if let Some(parent) = removed.parent.and_then(|parent| self.directory_mut(parent)) {
            parent.entries.remove(&removed.name);
            parent.links.remove(&removed.name);
        }
        Some(removed)
    }

    pub(super) fn remove_file(&mut self, id: FileId) -> Option<File> {
        let removed = self.files.remove(id.0)?;
        if let Some(directory) = self.directory_mut(removed.directory) {
            directory.entries.remove(&removed.name);
            directory.links.remove(&removed.name);
        }
        Some(removed)
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

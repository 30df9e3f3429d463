//! What we believe of the tree: directories, the candidates in them, and nothing else. Pure data.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use crate::announce::observation::{Identity, Incomplete, Stat};
use crate::tree::file_system::FileSystem;
use crate::tree::watches::WatchKey;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct DirectoryId(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FileId(u32);

/// One path that is a directory, possibly by a link.
#[derive(Debug)]
pub(super) struct Directory {
    /// Position in the settings' mounts.
    pub(super) mount: usize,
    pub(super) parent: Option<DirectoryId>,
    pub(super) name: Arc<[u8]>,
    /// The directory that was listed last; a link's target.
    pub(super) identity: Option<Identity>,
    /// What it lies in, which need not be what the mount's root lies in.
    pub(super) file_system: FileSystem,
    pub(super) is_link: bool,
    /// Reached through a link; counted in [`Model::linked`].
    is_linked: bool,
    pub(super) watch: Option<WatchKey>,
    pub(super) entries: HashMap<Arc<[u8]>, Entry>,
    /// Names of entries that are symbolic links.
    pub(super) links: BTreeSet<Arc<[u8]>>,
    pub(super) is_denied: bool,
    /// It stands above itself, so that nothing in it is looked at.
    pub(super) is_circle: bool,
    pub(super) queued: Queued,
    /// The listing that met it last.
    pub(super) met: u32,
}

/// Whether a directory waits to be listed, and whether all beneath it is to be listed as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Queued {
    No,
    Alone,
    WithAllBeneath,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Directory(DirectoryId),
    File(FileId),
    /// A link that leads nowhere, or in a circle.
    Dangling,
    /// A link to a directory beyond what is followed: what lies there is not missing.
    Refused,
}

/// One path that is a candidate file, possibly by a link.
#[derive(Debug)]
pub(super) struct File {
    pub(super) directory: DirectoryId,
    pub(super) name: Arc<[u8]>,
    pub(super) link: Option<Box<LinkTarget>>,
    /// The stat data of the last read.
    pub(super) stat: Option<Stat>,
    pub(super) read_at: Timestamp,
    pub(super) told: Reported,
    /// An event said that it is being written, and none that its writer is done.
    pub(super) writing: Option<Writing>,
    /// An event said that its writer is done: no need to let it settle.
    pub(super) is_trusted: bool,
    /// Read it even if its stat data did not change.
    pub(super) must_read: bool,
    /// Somebody waits for an answer.
    pub(super) is_asked: bool,
    pub(super) is_queued: bool,
    pub(super) met: u32,
    /// When it is to be looked at again.
    pub(super) due: Option<Instant>,
    /// How often it was found incomplete in a row.
    pub(super) tries: u8,
    /// Stat data that has not settled, and since when it is the same.
    pub(super) unsettled: Option<Box<(Stat, Instant)>>,
}

/// A writer that has a file open, as far as events tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writing {
    pub(super) since: Instant,
    /// When the last event said so.
    pub(super) last: Instant,
}

/// Where a link to a file ends.
#[derive(Debug)]
pub(super) struct LinkTarget {
    pub(super) identity: Identity,
    pub(super) watch: Option<(WatchKey, Box<[u8]>)>,
}

/// What was reported about a file last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reported {
    Nothing,
    Whole,
    Incomplete(Box<Incomplete>),
}

/// All directories and files, by number: queues and timers refer to them, and outlive some.
#[derive(Debug, Default)]
pub(super) struct Model {
    directories: Slab<Directory>,
    files: Slab<File>,
    /// How many directories of each mount are reached through links.
    linked: BTreeMap<usize, usize>,
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

    pub(super) fn entry(&self, id: DirectoryId, name: &[u8]) -> Option<Entry> {
        self.directory(id)?.entries.get(name).copied()
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
            is_linked: false,
            watch: None,
            entries: HashMap::new(),
            links: BTreeSet::new(),
            is_denied: false,
            is_circle: false,
            queued: Queued::No,
            met: 0,
        }));
        let mut is_linked = false;
        if let Some(parent) = parent.and_then(|parent| self.directory_mut(parent)) {
            is_linked = parent.is_linked;
            parent.entries.insert(name, Entry::Directory(id));
        }
        if is_linked {
            self.count_as_linked(id);
        }
        id
    }

    /// Takes in that a directory is reached by a link.
    pub(super) fn make_link(&mut self, id: DirectoryId) {
        if let Some(directory) = self.directory_mut(id) {
            directory.is_link = true;
            self.count_as_linked(id);
        }
    }

    /// How many directories of a mount are reached through links.
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
        let id = FileId(self.files.insert(File {
            directory,
            name: Arc::clone(&name),
            link: None,
            stat: None,
            read_at: Timestamp::MIN,
            told: Reported::Nothing,
            writing: None,
            is_trusted: false,
            must_read: false,
            is_asked: false,
            is_queued: false,
            met: 0,
            due: None,
            tries: 0,
            unsettled: None,
        }));
        if let Some(directory) = self.directory_mut(directory) {
            directory.entries.insert(name, Entry::File(id));
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

    /// Whether the next change of a file shows in its stat data, however soon it comes. A link's target may
    /// lie elsewhere than its directory.
    pub(super) fn has_sharp_times(&self, file: &File) -> bool {
        let Some(directory) = self.directory(file.directory) else {
            return false;
        };
        let device = directory.identity.map(|it| it.device);
        let is_here = |target: &LinkTarget| Some(target.identity.device) == device;
        directory.file_system.has_sharp_times && file.link.as_deref().is_none_or(is_here)
    }

    /// Forgets which files are being written.
    pub(super) fn forget_writers(&mut self) {
        for file in self.files.items.iter_mut().flatten() {
            file.writing = None;
        }
    }

    /// The path of a directory below its mount, in bytes; empty for the mount itself.
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

    /// The directories above one, nearest first.
    pub(super) fn above(&self, id: DirectoryId) -> impl Iterator<Item = &Directory> {
        let parent_of = |directory: &Directory| directory.parent;
        std::iter::successors(
            self.directory(id)
                .and_then(parent_of)
                .and_then(|parent| self.directory(parent)),
            move |directory| parent_of(directory).and_then(|parent| self.directory(parent)),
        )
    }

    /// All directories beneath one, itself first.
    pub(super) fn beneath(&self, id: DirectoryId) -> Vec<DirectoryId> {
        let mut found = vec![id];
        let mut next = 0;
        while let Some(&id) = found.get(next) {
            next += 1;
            if let Some(directory) = self.directory(id) {
                found.extend(directory.entries.values().filter_map(|entry| match entry {
                    Entry::Directory(id) => Some(*id),
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
                Entry::File(id) => Some(*id),
                _ => None,
            })
            .collect()
    }
}

/// Appends a path component.
pub(super) fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// A path below a directory.
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

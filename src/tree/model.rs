//! The tree as far as it is known: directories, the names in each, the candidate files, the paths to them, and what lies on
//! these. Pure data.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slab::Slab;

use crate::tree::file::{LinkedFile, TrackedFile};
use crate::tree::file_status::FileSystemTraits;
use crate::tree::watches::WatchId;
use announce::observation::{FileId, NestedFileSystem};

/// Slot of a directory in the model: queues and timers refer to it, and may outlive what it stands for. It is given to another then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirectorySlot(pub u32);

/// Slot of a file, like that of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileSlot(pub u32);

/// A name in a directory.
pub type Name = (DirectorySlot, Arc<[u8]>);

/// All directories and files, by number.
///
/// A file, and a directory that has a parent, is an entry of its directory under its name, and of no other.
#[derive(Debug, Default)]
pub struct Model {
    directories: Slab<Directory>,
    files: Slab<TrackedFile>,
    /// The names that are symbolic links.
    pub links: BTreeSet<Name>,
}

/// One path that is a directory, possibly by a link.
#[derive(Debug, Default)]
pub struct Directory {
    /// Position of its mount in the settings. Neither this nor its parent and name ever change.
    pub mount: usize,
    /// The directory above it; nothing for the root of a mount.
    pub parent: Option<DirectorySlot>,
    pub name: Arc<[u8]>,
    pub entries: HashMap<Arc<[u8]>, TreeEntry>,
    /// Identity of the directory that was listed last; of a link, of its target.
    pub identity: Option<FileId>,
    /// File system that it lies in, which need not be that of the mount's root.
    pub file_system: FileSystemTraits,
    pub is_link: bool,
    /// True if it was reached through a link, be it one above it.
    pub is_behind_link: bool,
    /// True if something is mounted there, be it a part of the same file system.
    pub is_mount_point: bool,
    pub watch: Option<WatchId>,
    pub state: DirectoryState,
}

/// Outcome of the last attempt to list a directory, which stands while its mount is away.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryState {
    #[default]
    Readable,
    Denied,
    /// It stands above itself, so that nothing in it is looked at.
    Circle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeEntry {
    Directory(DirectorySlot),
    File(FileSlot),
    /// A link that leads nowhere, or in a circle.
    Dangling,
    /// A link to a directory that is not followed: what lies there is not missing.
    Refused,
}

impl TreeEntry {
    pub fn directory(self) -> Option<DirectorySlot> {
        match self {
            TreeEntry::Directory(id) => Some(id),
            TreeEntry::File(_) | TreeEntry::Dangling | TreeEntry::Refused => None,
        }
    }

    pub fn file(self) -> Option<FileSlot> {
        match self {
            TreeEntry::File(id) => Some(id),
            TreeEntry::Directory(_) | TreeEntry::Dangling | TreeEntry::Refused => None,
        }
    }
}

impl Directory {
    /// Returns the names that a listing did not find, which has its names in order.
    pub fn unmet<K>(&self, found: &[(Box<[u8]>, K)]) -> Vec<Arc<[u8]>> {
        let is_met = |name: &[u8]| found.binary_search_by(|(it, _)| (**it).cmp(name)).is_ok();
        let unmet = self.entries.keys().filter(|name| !is_met(name));
        unmet.cloned().collect()
    }

    fn device(&self) -> Option<u64> {
        self.identity.map(|identity| identity.device)
    }
}

impl Model {
    pub fn directory(&self, id: DirectorySlot) -> Option<&Directory> {
        self.directories.get(id.0 as usize)
    }

    pub fn directory_mut(&mut self, id: DirectorySlot) -> Option<&mut Directory> {
        self.directories.get_mut(id.0 as usize)
    }

    pub fn file(&self, id: FileSlot) -> Option<&TrackedFile> {
        self.files.get(id.0 as usize)
    }

    pub fn file_mut(&mut self, id: FileSlot) -> Option<&mut TrackedFile> {
        self.files.get_mut(id.0 as usize)
    }

    // What comes and goes.

    /// Adds the root of a mount, which may be a link.
    pub fn add_root(&mut self, mount: usize) -> DirectorySlot {
        DirectorySlot(number(self.directories.insert(Directory {
            mount,
            is_link: true,
            ..Directory::default()
        })))
    }

    /// Adds a directory to another one, unless that is gone.
    pub fn add_below(&mut self, parent: DirectorySlot, name: &[u8]) -> Option<DirectorySlot> {
        let name: Arc<[u8]> = name.into();
        let above = self.directory(parent)?;
        let directory = Directory {
            mount: above.mount,
            parent: Some(parent),
            name: Arc::clone(&name),
            is_behind_link: above.is_behind_link,
            ..Directory::default()
        };
        let id = DirectorySlot(number(self.directories.insert(directory)));
        self.set_entry((parent, name), TreeEntry::Directory(id));
        Some(id)
    }

    pub fn add_file(&mut self, directory: DirectorySlot, name: &[u8]) -> FileSlot {
        let name: Arc<[u8]> = name.into();
        let file = TrackedFile::new(directory, Arc::clone(&name));
        let id = FileSlot(number(self.files.insert(file)));
        self.set_entry((directory, name), TreeEntry::File(id));
        id
    }

    /// Removes a directory, but nothing beneath it.
    pub fn remove_directory(&mut self, id: DirectorySlot) -> Option<Directory> {
        let removed = self.directories.try_remove(id.0 as usize)?;
        if let Some(parent) = removed.parent {
            self.remove_entry(parent, &removed.name);
        }
        for link in self.links_in(id) {
            self.links.remove(&link);
        }
        Some(removed)
    }

    pub fn remove_file(&mut self, id: FileSlot) -> Option<TrackedFile> {
        let removed = self.files.try_remove(id.0 as usize)?;
        self.remove_entry(removed.directory, &removed.name);
        Some(removed)
    }

    // Names.

    pub fn entry(&self, id: DirectorySlot, name: &[u8]) -> Option<TreeEntry> {
        self.directory(id)?.entries.get(name).copied()
    }

    /// Sets the entry of a name in a directory.
    pub fn set_entry(&mut self, (id, name): Name, entry: TreeEntry) {
        if let Some(directory) = self.directory_mut(id) {
            directory.entries.insert(name, entry);
        }
    }

    pub fn remove_entry(&mut self, id: DirectorySlot, name: &[u8]) {
        if let Some(directory) = self.directory_mut(id) {
            directory.entries.remove(name);
        }
    }

    /// Returns the directory at a path below another one, if it is known.
    pub fn at(&self, root: DirectorySlot, below: &[u8]) -> Option<DirectorySlot> {
        let mut names = below.split(|&byte| byte == b'/');
        names.try_fold(root, |id, name| self.entry(id, name)?.directory())
    }

    fn entries(&self, id: DirectorySlot) -> impl Iterator<Item = TreeEntry> {
        let directory = self.directory(id).into_iter();
        directory.flat_map(|it| it.entries.values().copied())
    }

    /// Returns the candidate files in a directory.
    pub fn files_in(&self, id: DirectorySlot) -> Vec<FileSlot> {
        self.entries(id).filter_map(TreeEntry::file).collect()
    }

    /// Returns all directories beneath one, itself first.
    pub fn subtree(&self, id: DirectorySlot) -> Vec<DirectorySlot> {
        let mut found = vec![id];
        let mut next = 0;
        while let Some(&id) = found.get(next) {
            next += 1;
            found.extend(self.entries(id).filter_map(TreeEntry::directory));
        }
        found
    }

    /// Returns the symbolic links in a directory.
    pub fn links_in(&self, id: DirectorySlot) -> Vec<Name> {
        let from_here = self.links.range((id, Arc::default())..);
        let links = from_here.take_while(|(directory, _)| *directory == id);
        links.cloned().collect()
    }

    /// Returns the symbolic links after one, round after round, each once and no more than `most`.
    pub fn links_after(&self, last: Option<&Name>, most: usize) -> Vec<Name> {
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.links.range((after, Bound::Unbounded));
        let links = rest.chain(&self.links);
        links.take(most.min(self.links.len())).cloned().collect()
    }

    /// Forgets the writers of the files in a directory: their closing events may have been lost.
    pub fn forget_writers_in(&mut self, id: DirectorySlot) {
        for file in self.files_in(id) {
            if let Some(file) = self.file_mut(file) {
                file.forget_writer();
            }
        }
    }

    /// Forgets all writers.
    pub fn forget_writers(&mut self) {
        for (_, file) in &mut self.files {
            file.forget_writer();
        }
    }

    // Paths.

    /// Returns the path of a directory below its mount, in bytes; empty for the mount itself.
    pub fn path_in_mount(&self, id: DirectorySlot) -> Vec<u8> {
        let path = self.self_and_ancestors(id).map(|(_, directory)| directory);
        let beneath_root = path.filter(|directory| directory.parent.is_some());
        let mut names: Vec<&[u8]> = beneath_root.map(|it| &*it.name).collect();
        names.reverse();
        names.join(&b'/')
    }

    /// Returns the path of a name in a directory, below the mount.
    pub fn entry_path_in_mount(&self, id: DirectorySlot, name: &[u8]) -> Vec<u8> {
        let mut below = self.path_in_mount(id);
        push_name(&mut below, name);
        below
    }

    /// Returns the directory and the name of a file.
    pub fn name_of(&self, id: FileSlot) -> Option<Name> {
        let file = self.file(id)?;
        Some((file.directory, Arc::clone(&file.name)))
    }

    /// Returns the position of a file's mount, and its path below that.
    pub fn mount_and_path(&self, id: FileSlot) -> Option<(usize, Vec<u8>)> {
        let file = self.file(id)?;
        let below = self.entry_path_in_mount(file.directory, &file.name);
        Some((self.directory(file.directory)?.mount, below))
    }

    /// Returns a directory and those above it, nearest first.
    fn self_and_ancestors(
        &self,
        id: DirectorySlot,
    ) -> impl Iterator<Item = (DirectorySlot, &Directory)> {
        let known = |id: DirectorySlot| Some((id, self.directory(id)?));
        std::iter::successors(known(id), move |(_, below)| known(below.parent?))
    }

    /// Returns the number of links that the path to a directory leads through. The root may be one, which does not count.
    pub fn count_links_on_path(&self, id: DirectorySlot) -> usize {
        let is_link = |(_, it): &(DirectorySlot, &Directory)| it.is_link && it.parent.is_some();
        self.self_and_ancestors(id).filter(is_link).count()
    }

    /// Returns the nearest directory that has this identity, of this one and those above it. A link in this directory to one
    /// of that identity leads back.
    pub fn same_on_path(&self, id: DirectorySlot, identity: FileId) -> Option<DirectorySlot> {
        let mut path = self.self_and_ancestors(id);
        let same = path.find(|(_, directory)| directory.identity == Some(identity));
        same.map(|(id, _)| id)
    }

    /// Returns true if a directory lies on another device than the one above it, and that one is not known to be local.
    pub fn is_on_remote_device(&self, id: DirectorySlot) -> bool {
        self.directory(id).is_some_and(|directory| {
            let parent = directory.parent.and_then(|parent| self.directory(parent));
            let is_on_another = parent.is_some_and(|it| it.device() != directory.device());
            is_on_another && !directory.file_system.is_local
        })
    }

    /// Returns the file system of the directory above, if this one lies on the same device.
    pub fn file_system_above(&self, id: DirectorySlot, device: u64) -> Option<FileSystemTraits> {
        let parent = self.directory(self.directory(id)?.parent?)?;
        (parent.device() == Some(device)).then_some(parent.file_system)
    }

    /// Returns the file system that begins at a directory below a root, if one does.
    pub fn nested_at(&self, id: DirectorySlot) -> Option<NestedFileSystem> {
        let directory = self.directory(id)?;
        let above = self.directory(directory.parent?)?.device();
        let device = directory.device()?;
        let is_nested = directory.is_mount_point || above.is_some_and(|above| above != device);
        is_nested.then(|| NestedFileSystem {
            below: self.path_in_mount(id).into(),
            device,
            is_gone: false,
            is_link: directory.is_link,
        })
    }

    /// Returns true if the next change of a file shows in its stat data, however soon it comes. A link's target may lie
    /// elsewhere than its directory.
    pub fn has_sharp_times(&self, id: FileSlot) -> bool {
        let file = self.file(id);
        let known = file.and_then(|file| Some((file, self.directory(file.directory)?)));
        known.is_some_and(|(file, directory)| {
            let is_here = |target: &LinkedFile| Some(target.identity.device) == directory.device();
            directory.file_system.has_sharp_times && file.link.as_deref().is_none_or(is_here)
        })
    }
}

/// Returns the number of an item, which takes four bytes rather than eight.
fn number(key: usize) -> u32 {
    u32::try_from(key).expect("no tree has four billion candidates")
}

/// Appends a component to a path.
pub fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Returns a path below a directory.
pub fn join(directory: &Path, below: &[u8]) -> PathBuf {
    if below.is_empty() {
        directory.to_owned()
    } else {
        directory.join(OsStr::from_bytes(below))
    }
}

#[cfg(test)]
mod tests {
    use crate::tree::file_status::FileSystemTraits;
    use crate::tree::model::{DirectorySlot, Model, TreeEntry};
    use announce::observation::FileId;

    fn identity(device: u64, inode: u64) -> Option<FileId> {
        Some(FileId { device, inode })
    }

    /// A root and `a/b` in it, the inodes of which are 1, 2 and 3.
    fn tree() -> (Model, [DirectorySlot; 3]) {
        let mut model = Model::default();
        let root = model.add_root(0);
        let a = model.add_below(root, b"a").unwrap();
        let b = model.add_below(a, b"b").unwrap();
        for (id, inode) in [(root, 1), (a, 2), (b, 3)] {
            model.directory_mut(id).unwrap().identity = identity(1, inode);
        }
        (model, [root, a, b])
    }

    #[test]
    fn a_directory_is_found_by_its_path_until_it_is_removed() {
        let (mut model, [root, a, b]) = tree();
        assert_eq!(model.path_in_mount(root), b"");
        assert_eq!(model.path_in_mount(b), b"a/b");
        assert_eq!(model.entry_path_in_mount(root, b"x.xml"), b"x.xml");
        assert_eq!(model.at(root, b"a/b"), Some(b));
        assert_eq!(model.subtree(root), [root, a, b]);
        model.remove_directory(b);
        assert_eq!(model.at(root, b"a/b"), None);
        assert_eq!(model.subtree(root), [root, a]);
        assert_eq!(model.add_below(b, b"c"), None);
    }

    #[test]
    fn names_that_a_listing_does_not_find_are_told_apart() {
        let (mut model, [root, ..]) = tree();
        model.set_entry((root, b"link".as_slice().into()), TreeEntry::Refused);
        let root = model.directory(root).unwrap();
        assert_eq!(root.unmet::<()>(&[]).len(), 2);
        let found = ["a", "b"].map(|name| (name.as_bytes().into(), ()));
        assert_eq!(root.unmet(&found), [b"link".as_slice().into()]);
    }

    #[test]
    fn a_path_leads_through_no_name_that_is_no_directory() {
        let (mut model, [root, ..]) = tree();
        for entry in [TreeEntry::Dangling, TreeEntry::Refused] {
            model.set_entry((root, b"x".as_slice().into()), entry);
            assert_eq!(model.at(root, b"x"), None, "{entry:?}");
        }
    }

    #[test]
    fn links_on_a_path_count_beneath_the_root() {
        let (mut model, [root, a, b]) = tree();
        assert!(model.directory(root).unwrap().is_link);
        assert_eq!(model.count_links_on_path(b), 0);
        model.directory_mut(a).unwrap().is_link = true;
        assert_eq!(
            [root, a, b].map(|id| model.count_links_on_path(id)),
            [0, 1, 1]
        );
    }

    #[test]
    fn what_lies_below_a_directory_is_behind_a_link_if_that_is() {
        let (mut model, [_, a, b]) = tree();
        model.directory_mut(b).unwrap().is_behind_link = true;
        let is_behind_link = |model: &mut Model, above| {
            let below = model.add_below(above, b"c").unwrap();
            model.directory(below).unwrap().is_behind_link
        };
        assert_eq!(
            [a, b].map(|id| is_behind_link(&mut model, id)),
            [false, true]
        );
    }

    #[test]
    fn a_link_to_a_directory_on_the_way_to_it_leads_back() {
        let (model, [root, a, b]) = tree();
        let same = |id, inode| model.same_on_path(id, identity(1, inode).unwrap());
        assert_eq!([same(b, 1), same(b, 2)], [Some(root), Some(a)]);
        assert_eq!([same(b, 3), same(a, 3)], [Some(b), None]);
    }

    #[test]
    fn links_are_named_in_turn_until_they_or_their_directory_are_gone() {
        let (mut model, [root, a, b]) = tree();
        assert_eq!(model.links_after(None, 2), []);
        let links = [(root, "x"), (a, "x"), (a, "y"), (b, "x")]
            .map(|(id, name)| (id, name.as_bytes().into()));
        model.links.extend(links.clone());
        assert_eq!(model.links_in(a), links[1..3]);
        assert_eq!(model.links_after(None, 2), links[..2]);
        assert_eq!(model.links_after(Some(&links[1]), 2), links[2..]);
        let again = [&links[3..], &links[..3]].concat();
        assert_eq!(model.links_after(Some(&links[2]), 5), again);
        model.links.remove(&links[1]);
        assert_eq!(model.links_after(Some(&links[1]), 1), links[2..3]);
        model.remove_directory(b);
        assert_eq!(
            model.links_after(Some(&links[2]), 5),
            [links[0].clone(), links[2].clone()]
        );
    }

    #[test]
    fn a_directory_on_another_device_is_remote_unless_it_is_known_to_be_local() {
        let (mut model, [_, a, b]) = tree();
        let same = Some(FileSystemTraits::default());
        assert!(!model.is_on_remote_device(b));
        assert_eq!(model.file_system_above(b, 1), same);
        model.directory_mut(a).unwrap().identity = identity(2, 2);
        assert!(model.is_on_remote_device(a) && model.is_on_remote_device(b));
        assert_eq!(model.file_system_above(b, 1), None);
        model.directory_mut(b).unwrap().file_system.is_local = true;
        assert!(!model.is_on_remote_device(b));
    }
}

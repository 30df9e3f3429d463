//! The directories of all mounts as far as they are known: the names in each, the paths to them, and what lies on these.
//! Pure data.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::tree::file_system::FileSystemTraits;
use crate::tree::model::{DirectoryId, FileId, Model, number};
use crate::tree::watches::WatchKey;
use announce::observation::Identity;

/// One path that is a directory, possibly by a link.
#[derive(Debug, Default)]
pub struct Directory {
    /// Position of its mount in the settings. Neither this nor its parent and name ever change.
    pub mount: usize,
    /// The directory above it; nothing for the root of a mount.
    pub parent: Option<DirectoryId>,
    pub name: Arc<[u8]>,
    pub entries: HashMap<Arc<[u8]>, TreeEntry>,
    /// Identity of the directory that was listed last; of a link, of its target.
    pub identity: Option<Identity>,
    /// File system that it lies in, which need not be that of the mount's root.
    pub file_system: FileSystemTraits,
    pub is_link: bool,
    /// True if something is mounted there, be it a part of the same file system.
    pub is_mount_point: bool,
    pub watch: Option<WatchKey>,
    pub state: ListingOutcome,
}

/// Outcome of the last attempt to list a directory, which stands while its mount is away.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum ListingOutcome {
    #[default]
    Readable,
    Denied,
    /// It stands above itself, so that nothing in it is looked at.
    Circle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeEntry {
    Directory(DirectoryId),
    File(FileId),
    /// A link that leads nowhere, or in a circle.
    Dangling,
    /// A link to a directory that is not followed: what lies there is not missing.
    Refused,
}

impl TreeEntry {
    pub fn directory(self) -> Option<DirectoryId> {
        match self {
            TreeEntry::Directory(id) => Some(id),
            TreeEntry::File(_) | TreeEntry::Dangling | TreeEntry::Refused => None,
        }
    }

    pub fn file(self) -> Option<FileId> {
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

    /// Returns the candidate files in it.
    pub fn files(&self) -> impl Iterator<Item = FileId> {
        self.entries.values().filter_map(|entry| entry.file())
    }

    fn subdirectories(&self) -> impl Iterator<Item = DirectoryId> {
        self.entries.values().filter_map(|entry| entry.directory())
    }

    fn device(&self) -> Option<u64> {
        self.identity.map(|identity| identity.device)
    }
}

impl Model {
    pub fn directory(&self, id: DirectoryId) -> Option<&Directory> {
        self.directories.get(id.0 as usize)
    }

    pub fn directory_mut(&mut self, id: DirectoryId) -> Option<&mut Directory> {
        self.directories.get_mut(id.0 as usize)
    }

    /// Adds the root of a mount, which may be a link.
    pub fn add_root(&mut self, mount: usize) -> DirectoryId {
        let is_link = true;
        self.add_directory(Directory {
            mount,
            is_link,
            ..Directory::default()
        })
    }

    /// Adds a directory to another one, unless that is gone.
    pub fn add_below(&mut self, parent: DirectoryId, name: &[u8]) -> Option<DirectoryId> {
        let name: Arc<[u8]> = name.into();
        let id = self.add_directory(Directory {
            mount: self.mount_of(parent)?,
            parent: Some(parent),
            name: Arc::clone(&name),
            ..Directory::default()
        });
        self.set_entry(parent, name, TreeEntry::Directory(id));
        Some(id)
    }

    fn add_directory(&mut self, directory: Directory) -> DirectoryId {
        DirectoryId(number(self.directories.insert(directory)))
    }

    /// Removes a directory, but nothing beneath it.
    pub fn remove_directory(&mut self, id: DirectoryId) -> Option<Directory> {
        let removed = self.directories.try_remove(id.0 as usize)?;
        if let Some(parent) = removed.parent {
            self.remove_entry(parent, &removed.name);
        }
        Some(removed)
    }

    // Names.

    pub fn entry(&self, id: DirectoryId, name: &[u8]) -> Option<TreeEntry> {
        self.directory(id)?.entries.get(name).copied()
    }

    /// Sets the entry of a name in a directory.
    pub fn set_entry(&mut self, id: DirectoryId, name: Arc<[u8]>, entry: TreeEntry) {
        if let Some(directory) = self.directory_mut(id) {
            directory.entries.insert(name, entry);
        }
    }

    pub fn remove_entry(&mut self, id: DirectoryId, name: &[u8]) {
        if let Some(directory) = self.directory_mut(id) {
            directory.entries.remove(name);
        }
    }

    /// Returns the directory at a path below another one, if it is known.
    pub fn at(&self, root: DirectoryId, below: &[u8]) -> Option<DirectoryId> {
        let mut names = below.split(|&byte| byte == b'/');
        names.try_fold(root, |id, name| self.entry(id, name)?.directory())
    }

    /// Returns all directories beneath one, itself first.
    pub fn beneath(&self, id: DirectoryId) -> Vec<DirectoryId> {
        let mut found = vec![id];
        let mut next = 0;
        while let Some(&id) = found.get(next) {
            next += 1;
            let directory = self.directory(id).into_iter();
            found.extend(directory.flat_map(Directory::subdirectories));
        }
        found
    }

    /// Returns the candidate files in a directory and in all beneath it.
    pub fn files_beneath(&self, id: DirectoryId) -> Vec<FileId> {
        let directories = self.beneath(id).into_iter();
        let directories = directories.filter_map(|id| self.directory(id));
        directories.flat_map(Directory::files).collect()
    }

    // Paths.

    /// Returns the position of the mount that a directory lies in.
    pub fn mount_of(&self, id: DirectoryId) -> Option<usize> {
        self.directory(id).map(|directory| directory.mount)
    }

    /// Returns the path of a directory below its mount, in bytes; empty for the mount itself.
    pub fn below(&self, id: DirectoryId) -> Vec<u8> {
        let path = self.self_and_ancestors(id).map(|(_, directory)| directory);
        let beneath_root = path.filter(|directory| directory.parent.is_some());
        let names: Vec<&[u8]> = beneath_root.map(|it| &*it.name).collect();
        let mut below = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names.into_iter().rev() {
            push_name(&mut below, name);
        }
        below
    }

    /// Returns the path of a name in a directory, below the mount.
    pub fn below_name(&self, id: DirectoryId, name: &[u8]) -> Vec<u8> {
        let mut below = self.below(id);
        push_name(&mut below, name);
        below
    }

    /// Returns a directory and those above it, nearest first.
    fn self_and_ancestors(
        &self,
        id: DirectoryId,
    ) -> impl Iterator<Item = (DirectoryId, &Directory)> {
        let known = |id: DirectoryId| Some((id, self.directory(id)?));
        std::iter::successors(known(id), move |(_, below)| known(below.parent?))
    }

    /// Returns the number of links that the path to a directory leads through. The root may be one, which does not count.
    pub fn links_on_path(&self, id: DirectoryId) -> usize {
        let is_link = |(_, it): &(DirectoryId, &Directory)| it.is_link && it.parent.is_some();
        self.self_and_ancestors(id).filter(is_link).count()
    }

    /// Returns true if a link in this directory to another one leads back to it, or to one above it.
    pub fn leads_back(&self, id: DirectoryId, target: Identity) -> bool {
        let mut path = self.self_and_ancestors(id);
        path.any(|(_, directory)| directory.identity == Some(target))
    }

    /// Returns the nearest directory above this one that has this identity.
    pub fn same_above(&self, id: DirectoryId, identity: Identity) -> Option<DirectoryId> {
        let mut above = self.self_and_ancestors(id).skip(1);
        let same = above.find(|(_, directory)| directory.identity == Some(identity));
        same.map(|(id, _)| id)
    }

    /// Returns true if a directory lies on another device than the one above it, and that one is not known to be local.
    pub fn is_on_remote_device(&self, id: DirectoryId) -> bool {
        let Some(directory) = self.directory(id) else {
            return false;
        };
        let parent = directory.parent.and_then(|id| self.directory(id));
        let is_on_another = parent.is_some_and(|it| it.device() != directory.device());
        is_on_another && !directory.file_system.is_local
    }

    /// Returns the file system of the directory above, if this one lies on the same device.
    pub fn file_system_above(&self, id: DirectoryId, device: u64) -> Option<FileSystemTraits> {
        let parent = self.directory(self.directory(id)?.parent?)?;
        (parent.device() == Some(device)).then_some(parent.file_system)
    }
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
    use crate::tree::directories::TreeEntry;
    use crate::tree::file_system::FileSystemTraits;
    use crate::tree::model::{DirectoryId, Model};
    use announce::observation::Identity;

    fn identity(device: u64, inode: u64) -> Option<Identity> {
        Some(Identity { device, inode })
    }

    /// A root and `a/b` in it, the inodes of which are 1, 2 and 3.
    fn tree() -> (Model, [DirectoryId; 3]) {
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
        assert_eq!(model.below(root), b"");
        assert_eq!(model.below(b), b"a/b");
        assert_eq!(model.below_name(root, b"x.xml"), b"x.xml");
        assert_eq!(model.at(root, b"a/b"), Some(b));
        assert_eq!(model.beneath(root), [root, a, b]);
        model.remove_directory(b);
        assert_eq!(model.at(root, b"a/b"), None);
        assert_eq!(model.beneath(root), [root, a]);
        assert_eq!(model.add_below(b, b"c"), None);
    }

    #[test]
    fn all_beneath_a_name_goes_with_it() {
        let (mut model, [root, a, b]) = tree();
        let file = model.add_file(b, b"x.xml");
        let other = model.add_file(root, b"y.xml");
        model.set_entry(b, b"link".as_slice().into(), TreeEntry::Dangling);
        let (directories, files) = model.remove(root, b"a");
        assert!(directories.iter().map(|it| it.0).eq([b, a]));
        assert!(files.iter().map(|it| &*it.below).eq([b"a/b/x.xml"]));
        assert!(model.file(file).is_none());
        let left = &model.directory(root).unwrap().entries;
        assert!(
            left.iter()
                .eq([(&b"y.xml"[..].into(), &TreeEntry::File(other))])
        );
    }

    #[test]
    fn names_that_a_listing_does_not_find_are_told_apart() {
        let (mut model, [root, ..]) = tree();
        model.set_entry(root, b"link".as_slice().into(), TreeEntry::Refused);
        let root = model.directory(root).unwrap();
        assert_eq!(root.unmet::<()>(&[]).len(), 2);
        let found = ["a", "b"].map(|name| (name.as_bytes().into(), ()));
        assert_eq!(root.unmet(&found), [b"link".as_slice().into()]);
    }

    #[test]
    fn a_path_leads_through_no_name_that_is_no_directory() {
        let (mut model, [root, ..]) = tree();
        for entry in [TreeEntry::Dangling, TreeEntry::Refused] {
            model.set_entry(root, b"x".as_slice().into(), entry);
            assert_eq!(model.at(root, b"x"), None, "{entry:?}");
        }
    }

    #[test]
    fn links_on_a_path_count_beneath_the_root() {
        let (mut model, [root, a, b]) = tree();
        assert!(model.directory(root).unwrap().is_link);
        assert_eq!(model.links_on_path(b), 0);
        model.directory_mut(a).unwrap().is_link = true;
        assert_eq!([root, a, b].map(|id| model.links_on_path(id)), [0, 1, 1]);
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

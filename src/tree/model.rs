//! The tree as far as it is known: directories, the candidate files in them, and nothing else. Pure data.

use std::sync::Arc;

use slab::Slab;

use crate::tree::directories::{Directory, TreeEntry};
use crate::tree::file::{CandidateFile, LinkTarget};

/// Number of a directory: queues and timers refer to it, and may outlive what it stands for. It is given to another then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirectoryId(pub u32);

/// Number of a file, like that of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// All directories and files, by number.
///
/// A file, and a directory that has a parent, is an entry of its directory under its name, and of no other.
#[derive(Debug, Default)]
pub struct Model {
    pub directories: Slab<Directory>,
    files: Slab<CandidateFile>,
}

/// A file that is gone.
#[derive(Debug)]
pub struct RemovedFile {
    pub id: FileId,
    /// Position of its mount.
    pub mount: usize,
    /// Path below the mount.
    pub below: Vec<u8>,
    pub file: CandidateFile,
}

impl Model {
    pub fn file(&self, id: FileId) -> Option<&CandidateFile> {
        self.files.get(id.0 as usize)
    }

    pub fn file_mut(&mut self, id: FileId) -> Option<&mut CandidateFile> {
        self.files.get_mut(id.0 as usize)
    }

    /// Returns the directory and the name of a file.
    pub fn name_of(&self, id: FileId) -> Option<(DirectoryId, Arc<[u8]>)> {
        let file = self.file(id)?;
        Some((file.directory, Arc::clone(&file.name)))
    }

    /// Returns the position of a file's mount, and its path below that.
    pub fn place_of(&self, id: FileId) -> Option<(usize, Vec<u8>)> {
        let file = self.file(id)?;
        let below = self.below_name(file.directory, &file.name);
        Some((self.mount_of(file.directory)?, below))
    }

    /// Returns true if the next change of a file shows in its stat data, however soon it comes. A link's target may lie
    /// elsewhere than its directory.
    pub fn has_sharp_times(&self, id: FileId) -> bool {
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

    /// Forgets the writers of the files in a directory: their closing events may have been lost.
    pub fn forget_writers_in(&mut self, id: DirectoryId) {
        let directory = self.directories.get(id.0 as usize).into_iter();
        for file in directory.flat_map(Directory::files) {
            if let Some(file) = self.files.get_mut(file.0 as usize) {
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

    // Names that come and go.

    pub fn add_file(&mut self, directory: DirectoryId, name: &[u8]) -> FileId {
        let name: Arc<[u8]> = name.into();
        let file = CandidateFile::new(directory, Arc::clone(&name));
        let id = FileId(number(self.files.insert(file)));
        self.set_entry(directory, name, TreeEntry::File(id));
        id
    }

    /// Removes a name, with all beneath it. Returns the directories and files that are gone, in the order in which they went:
    /// each directory after all beneath it.
    pub fn remove(
        &mut self,
        id: DirectoryId,
        name: &[u8],
    ) -> (Vec<(DirectoryId, Directory)>, Vec<RemovedFile>) {
        let (mut gone, mut gone_files) = (Vec::new(), Vec::new());
        match self.entry(id, name) {
            None => {}
            Some(TreeEntry::File(file)) => gone_files.extend(self.remove_file(file)),
            Some(TreeEntry::Directory(top)) => {
                for id in self.beneath(top).into_iter().rev() {
                    let directory = self.directory(id).into_iter();
                    let files: Vec<FileId> = directory.flat_map(Directory::files).collect();
                    for file in files {
                        gone_files.extend(self.remove_file(file));
                    }
                    let directory = self.remove_directory(id);
                    gone.extend(directory.map(|it| (id, it)));
                }
            }
            Some(TreeEntry::Dangling | TreeEntry::Refused) => {
                self.remove_entry(id, name);
            }
        }
        (gone, gone_files)
    }

    fn remove_file(&mut self, id: FileId) -> Option<RemovedFile> {
        let (mount, below) = self.place_of(id)?;
        let file = self.files.try_remove(id.0 as usize)?;
        self.remove_entry(file.directory, &file.name);
        Some(RemovedFile {
            id,
            mount,
            below,
            file,
        })
    }
}

/// Returns the number of an item, which takes four bytes rather than eight.
pub fn number(key: usize) -> u32 {
    u32::try_from(key).expect("no tree has four billion candidates")
}

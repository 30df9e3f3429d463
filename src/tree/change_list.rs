//! A second reading of one version of a Change List: its keys, and then some of its entries (C6, C8), or all of them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use rustix::io::Errno;

use resourcesync::capability::Capability;
use resourcesync::change::Change;
use resourcesync::change_list::{
    ChangeListError, EntryPlace, ListedChanges, at_places, each_entry, read_changes,
    read_changes_at, read_keys,
};
use resourcesync::document::DeclaredSpan;
use resourcesync::gzip::unpacked;
use resourcesync::resource_list::{ListedResources, read_resource_entries, read_resources};

use crate::tree::file_status::{self, FileKind, FileStatus};
use crate::tree::read_file::ListKeyCache;
use crate::tree::read_file::{is_packed, open};
use announce::observation::Stat;

/// An open Change List, in the version that was asked for.
#[derive(Debug)]
pub struct ChangeListFile {
    file: File,
    opened: FileStatus,
    is_packed: bool,
}

/// The reason why a version of a Change List cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ChangeListFileError {
    /// It is not there any more, or changes while it is read.
    #[error("it is another version now")]
    Stale,
    #[error("cannot read on")]
    Io(#[from] io::Error),
}

impl ChangeListFile {
    /// Opens the version of the file at `path` that is there now, and returns it with its stat data.
    pub fn open_latest(path: &Path) -> Result<(ChangeListFile, Stat), ChangeListFileError> {
        let status = file_status::follow(path).map_err(io::Error::from)?;
        Ok((ChangeListFile::open(path, status.stat)?, status.stat))
    }

    /// Opens the file at `path`, if it still has this stat data.
    pub fn open(path: &Path, stat: Stat) -> Result<ChangeListFile, ChangeListFileError> {
        let is_version = |status: &FileStatus| status.kind == FileKind::File && status.stat == stat;
        let failed = |error: Errno| match error {
            Errno::NOENT => ChangeListFileError::Stale,
            error => ChangeListFileError::Io(error.into()),
        };
        // Anything but a regular file is not even opened, which may disturb others.
        if !is_version(&file_status::follow(path).map_err(failed)?) {
            return Err(ChangeListFileError::Stale);
        }
        let file = open(path).map_err(failed)?;
        let opened = file_status::of(&file).map_err(io::Error::from)?;
        if !is_version(&opened) {
            return Err(ChangeListFileError::Stale);
        }
        Ok(ChangeListFile {
            file,
            opened,
            is_packed: is_packed(path),
        })
    }

    /// Returns the keys of its entries, and takes those that were kept when it was read as a document.
    pub fn take_keys(
        &mut self,
        recent: &ListKeyCache,
    ) -> Result<ListedChanges, ChangeListFileError> {
        let kept = recent.take(&self.opened);
        kept.map_or_else(|| self.keys(), Ok)
    }

    /// Returns the keys of its entries.
    pub fn keys(&mut self) -> Result<ListedChanges, ChangeListFileError> {
        self.read(|reader| read_keys(reader))
    }

    /// Returns the entries at these places, which ascend. `span` is that of all its entries.
    pub fn changes(
        &mut self,
        span: &Range<u64>,
        places: &[EntryPlace],
    ) -> Result<Vec<Change>, ChangeListFileError> {
        if !self.is_packed
            && let Some(changes) = read_changes_at(&self.file, span, places)
            && file_status::of(&self.file).map_err(io::Error::from)? == self.opened
        {
            return Ok(changes);
        }
        let positions: Vec<u32> = places.iter().map(|place| place.position).collect();
        let changes = self.read(|reader| read_changes(reader, &positions))?;
        at_places(changes, places).ok_or(ChangeListFileError::Stale)
    }

    /// Returns the resources of a Resource List.
    pub fn resources(&mut self) -> Result<ListedResources, ChangeListFileError> {
        self.read(|reader| read_resources(reader))
    }

    /// Returns the entries of a Resource List at these positions, which ascend.
    pub fn resource_entries(
        &mut self,
        positions: &[u32],
    ) -> Result<Vec<Change>, ChangeListFileError> {
        let changes = self.read(|reader| read_resource_entries(reader, positions))?;
        if changes.len() == positions.len() {
            Ok(changes)
        } else {
            Err(ChangeListFileError::Stale)
        }
    }

    /// Hands over the entries of a Change List or a Resource List with their positions, one after the other. Returns the
    /// times that it declares.
    pub fn each_entry(
        &mut self,
        capability: Capability,
        take: impl FnMut(u32, Change),
    ) -> Result<DeclaredSpan, ChangeListFileError> {
        // A file that was replaced by renaming is still the version that it was.
        let content = |status: &FileStatus| (status.stat.size, status.stat.modified);
        self.read_if(
            |before, after| content(before) == content(after),
            |reader| each_entry(reader, capability, take),
        )
    }

    fn read<T>(
        &mut self,
        read: impl FnOnce(&mut dyn Read) -> Result<T, ChangeListError>,
    ) -> Result<T, ChangeListFileError> {
        self.read_if(FileStatus::eq, read)
    }

    fn read_if<T>(
        &mut self,
        is_same: impl FnOnce(&FileStatus, &FileStatus) -> bool,
        read: impl FnOnce(&mut dyn Read) -> Result<T, ChangeListError>,
    ) -> Result<T, ChangeListFileError> {
        self.file.seek(SeekFrom::Start(0))?;
        let result = if self.is_packed {
            read(&mut unpacked(&self.file))
        } else {
            read(&mut &self.file)
        };
        let after = file_status::of(&self.file).map_err(io::Error::from)?;
        match result {
            Ok(result) if is_same(&self.opened, &after) => Ok(result),
            // A file that was complete a moment ago and is not any more is being written.
            _ => Err(ChangeListFileError::Stale),
        }
    }
}

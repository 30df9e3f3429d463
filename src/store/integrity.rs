//! Detection of a state file that was deleted, moved, replaced or truncated while open: writes would be lost then.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// The state file and its write-ahead log as they were opened.
#[derive(Debug)]
pub struct OpenedFile {
    path: PathBuf,
    identity: FileIdentity,
    /// The open file, to read its header. Must outlive the connection: SQLite's locks end when any descriptor of the file
    /// is closed.
    file: File,
    /// The last known size. It may shrink, by a vacuum.
    size: u64,
    log: PathBuf,
    /// Known after the first write.
    log_identity: Option<FileIdentity>,
}

type FileIdentity = (u64, u64);

fn identity(metadata: &Metadata) -> FileIdentity {
    (metadata.dev(), metadata.ino())
}

impl OpenedFile {
    /// Records the file that is at `path` now.
    pub fn at(path: &Path) -> Result<OpenedFile, StoreError> {
        let metadata = metadata_of(path)?;
        Ok(OpenedFile {
            path: path.to_owned(),
            identity: identity(&metadata),
            file: File::open(path).map_err(|source| StoreError::Denied {
                path: path.to_owned(),
                source,
            })?,
            size: metadata.len(),
            log: beside(path, "-wal"),
            log_identity: None,
        })
    }

    /// Checks that the opened files still exist and are complete.
    pub fn check(&mut self) -> Result<(), StoreError> {
        let metadata = metadata_of(&self.path)?;
        if identity(&metadata) != self.identity {
            return Err(StoreError::Replaced {
                path: self.path.clone(),
            });
        }
        let is_smaller = metadata.len() < self.size;
        if is_smaller && !stated_size(&self.file).is_ok_and(|stated| stated <= metadata.len()) {
            return Err(StoreError::Cut {
                path: self.path.clone(),
                size: metadata.len(),
            });
        }
        self.size = metadata.len();
        match (self.log_identity, std::fs::metadata(&self.log)) {
            (None, Ok(log)) => self.log_identity = Some(identity(&log)),
            (Some(known), Ok(log)) if known == identity(&log) => {}
            (Some(_), Ok(_)) => {
                let path = self.log.clone();
                return Err(StoreError::Replaced { path });
            }
            (Some(_), Err(error)) if error.kind() == ErrorKind::NotFound => {
                let path = self.log.clone();
                return Err(StoreError::Gone { path });
            }
            // There is none yet; or it cannot be read, and then writing fails as well.
            (_, Err(_)) => {}
        }
        Ok(())
    }
}

/// Returns the size of a database by its header (SQLite's file format, section 1.3), which a vacuum reduces before the file
/// is truncated.
fn stated_size(file: &File) -> std::io::Result<u64> {
    let (mut page_size, mut pages) = ([0; 2], [0; 4]);
    file.read_exact_at(&mut page_size, 16)?;
    file.read_exact_at(&mut pages, 28)?;
    let page_size = match u16::from_be_bytes(page_size) {
        1 => 65_536,
        size => u64::from(size),
    };
    Ok(page_size * u64::from(u32::from_be_bytes(pages)))
}

/// Returns the metadata of the file at `path`, which must exist.
fn metadata_of(path: &Path) -> Result<Metadata, StoreError> {
    let path = path.to_owned();
    match std::fs::metadata(&path) {
        Ok(metadata) => Ok(metadata),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(StoreError::Gone { path }),
        Err(source) => Err(StoreError::Denied { path, source }),
    }
}

/// Returns the path of a file that SQLite keeps beside its database.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

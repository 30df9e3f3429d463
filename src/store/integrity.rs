//! Detection of a state file that was deleted, moved, replaced or truncated while open: writes would be lost then.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// The state file and its write-ahead log as they were opened.
#[derive(Debug)]
pub struct OpenedFile {
    path: PathBuf,
    identity: FileIdentity,
    /// The last known size. SQLite never shrinks the file.
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
        if metadata.len() < self.size {
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

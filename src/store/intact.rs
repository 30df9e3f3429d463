//! Notices that the state file was deleted, moved, replaced or cut while it is open: what is written then is lost.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// The state file and its write-ahead log as they were opened.
#[derive(Debug)]
pub struct Opened {
    path: PathBuf,
    identity: Identity,
    /// It never shrinks by itself.
    size: u64,
    log: PathBuf,
    /// Known once something was written.
    log_identity: Option<Identity>,
}

type Identity = (u64, u64);

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

impl Opened {
    /// What lies at `path` now.
    pub fn at(path: &Path) -> Result<Opened, StoreError> {
        let metadata = look(path)?;
        Ok(Opened {
            path: path.to_owned(),
            identity: identity(&metadata),
            size: metadata.len(),
            log: beside(path, "-wal"),
            log_identity: None,
        })
    }

    /// Whether what was opened is still there, and whole.
    pub fn check(&mut self) -> Result<(), StoreError> {
        let metadata = look(&self.path)?;
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
            // There is none yet, or whatever keeps it from being seen keeps it from being written.
            (_, Err(_)) => {}
        }
        Ok(())
    }
}

/// The file at `path`, which must be there.
fn look(path: &Path) -> Result<Metadata, StoreError> {
    let path = path.to_owned();
    match std::fs::metadata(&path) {
        Ok(metadata) => Ok(metadata),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(StoreError::Gone { path }),
        Err(source) => Err(StoreError::Denied { path, source }),
    }
}

/// A file that SQLite has beside another.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

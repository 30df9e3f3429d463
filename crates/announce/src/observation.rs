//! Observations: what one look at the tree found.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::document::{Document, Malformed, NotADocument};
use resourcesync::escape;
use serde::{Deserialize, Serialize};

use crate::candidates::Exclusion;
use crate::state::{from_row, parameters};

/// The time within which two changes of a file may have the same metadata (R4).
pub const RACY: Duration = Duration::from_secs(2);

/// A mount of the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountId(pub u32);

/// The location of a candidate file: its mount, and the path from there, in the file system's bytes, without a leading
/// `/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocumentPath {
    pub mount: MountId,
    pub below: Arc<[u8]>,
}

from_row! { DocumentPath { mount, below } }
parameters! { DocumentPath { mount, below } }

impl DocumentPath {
    /// Returns the path as text, for programs.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.below)
    }
}

/// Escaped for display.
impl fmt::Display for DocumentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape::escaped(&self.text()))
    }
}

/// The metadata by which a file is read again or not (R4). Compared for equality only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stat {
    pub size: u64,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub inode: u64,
}

from_row! { Stat { size, modified, changed, inode } }
parameters! { Stat { size, modified, changed, inode } }

/// The device and inode of a directory or file, which differ from those of another that replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

/// A directory below the root of a mount where another file system begins: it is mounted there, or a link leads to it
/// (R15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestedFileSystem {
    /// The path from the root, without a leading `/`.
    pub below: Arc<[u8]>,
    pub device: u64,
    pub is_link: bool,
    /// True if it went since all were told last.
    pub is_gone: bool,
}

/// One look at one candidate file.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    pub path: DocumentPath,
    /// The end of the look.
    pub at: Timestamp,
    pub look: Found,
}

/// The result of a look.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// A complete capability document.
    Document { parsed: Arc<Document>, stat: Stat },
    /// A complete file that is not a capability document (R2).
    Other { reason: NotADocument, stat: Stat },
    /// Nothing that counts (R3); it will be looked at again.
    Incomplete(Incomplete),
    /// The name is gone from a directory that was listed without error, or could not be opened because it
    /// does not exist.
    Missing,
}

/// A directory that may not be read: nothing beneath it is known, and nothing beneath it is missing (R15).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableDirectory {
    /// Its path below the mount.
    #[serde(skip)]
    pub below: Vec<u8>,
    /// In the file system.
    pub directory: String,
    /// Error message of the system.
    pub reason: String,
    /// The remedy, as far as it can be guessed.
    pub remedy: Option<String>,
    pub since: Timestamp,
}

/// The reason why a file that exists cannot be read as a document (R3).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Its stat data changed during the read, the path names another file by now, or it is being written.
    #[error("it is being written")]
    BeingWritten,
    /// It changed so recently that its writer may not be done.
    #[error("it changed less than the settle time ago")]
    Unsettled,
    #[error("it is not a regular file")]
    NotAFile,
    /// It, or a directory above it, cannot be read: what the system said.
    #[error("it cannot be read: {0}")]
    Denied(String),
}

/// The reason why there is no document at a path that a Capability List names.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error,
)]
pub enum WhyAbsent {
    /// Nothing, or nothing that can be told from it.
    #[error("no file is there")]
    Nothing,
    #[error("only {0} is there, whose name differs in case")]
    OtherCase(String),
    /// A file that cannot be read, or is broken (R3).
    #[error("the file there is broken: {0}")]
    Broken(String),
    /// A file that cannot be read.
    #[error("the file there is not read: {0}")]
    Denied(String),
    /// A complete file (R2).
    #[error("the file there is no document: {0}")]
    Other(NotADocument),
    /// A file that is never read (R1).
    #[error(transparent)]
    Excluded(Exclusion),
    #[error("what is there is no regular file")]
    NotAFile,
}

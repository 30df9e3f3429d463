//! The payload of a framework notification (Framework Notification 1.0.1 section 3).

use std::fmt;

use jiff::Timestamp;

use crate::resourcesync::capability::Capability;
use crate::resourcesync::uri::Uri;

/// What happened to a document: the values of the `change` attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChangeKind {
    Created,
    Updated,
    Deleted,
}

impl ChangeKind {
    /// The attribute's value.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeKind::Created => "created",
            ChangeKind::Updated => "updated",
            ChangeKind::Deleted => "deleted",
        }
    }
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One notification, as its receivers read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Root-level `rs:ln rel="up"` (R20).
    pub up: Option<Uri>,
    /// When it was cut; written with milliseconds.
    pub until: Option<Timestamp>,
    pub entries: Vec<Entry>,
}

/// One `url` element: one change of one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub uri: Uri,
    pub change: ChangeKind,
    pub capability: Capability,
    /// When it happened; written with milliseconds (R19).
    pub datetime: Option<Timestamp>,
    /// The index under which the document resides.
    pub index: Option<Uri>,
}
impl Payload {
    pub fn overhead() -> usize {
        0
    }
    pub fn render(&self) -> Vec<u8> {
        vec![]
    }
}
impl Entry {
    pub fn len(&self) -> usize {
        1
    }
}

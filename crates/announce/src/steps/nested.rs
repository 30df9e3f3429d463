//! File systems below the root of a mount: what is missing with one that is not mounted was not deleted (R15).

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;

use crate::observation::NestedFileSystem;
use crate::state::from_row;

/// A directory below the root of a mount where another file system begins, or began when its documents were last seen
/// (R15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NestedRow {
    /// The file system that the documents were last seen on; nothing for that of the directory above, which another one
    /// hides now.
    pub device: Option<u64>,
    /// True if a link leads there.
    pub is_link: bool,
    /// True while another file system is there, or none, and documents are missing with it.
    pub is_away: bool,
}

from_row! { NestedRow { device, is_link, is_away } }

/// The stored rows of one mount.
pub type NestedRows = BTreeMap<Arc<[u8]>, NestedRow>;
/// The file systems below the root of one mount, by their paths from there.
pub type FoundFileSystems = BTreeMap<Arc<[u8]>, NestedFileSystem>;

/// The file systems below the root of one mount: those that held documents, and those that this run found.
#[derive(Debug, Clone, Default)]
pub struct NestedFileSystems {
    /// File systems that held documents.
    pub rows: NestedRows,
    /// True if a sweep noted them: those that are not among them came later.
    pub are_noted: bool,
    /// Nothing until the tree has told of them.
    pub found: Option<FoundFileSystems>,
    /// Paths of file systems that differ from their rows since the last sweep. Until the next one has ended, they count
    /// as away.
    pub undecided: BTreeSet<Arc<[u8]>>,
}

/// State of the documents below one directory.
#[derive(Debug, Clone, Copy, Default)]
pub struct DocumentsBelow {
    pub is_any_known: bool,
    /// True if one of them is there, and can be read.
    pub is_any_seen: bool,
    /// True if some are missing, and not accepted as deleted.
    pub are_missing: bool,
}

impl NestedFileSystems {
    /// Takes the file systems that there are now. Returns the paths of those that went or came. Until a sweep noted them,
    /// none came.
    pub fn find(&mut self, found: Vec<NestedFileSystem>) -> BTreeSet<Arc<[u8]>> {
        let found = found.into_iter().map(|it| (Arc::clone(&it.below), it));
        let found: FoundFileSystems = found.collect();
        let mut undecided: BTreeSet<Arc<[u8]>> = differing(&self.rows, &found).collect();
        if self.are_noted {
            // A link may lead elsewhere at any time: it hides nothing.
            let is_new =
                |found: &&NestedFileSystem| !found.is_link && !self.rows.contains_key(&found.below);
            let new = found.values().filter(is_new);
            undecided.extend(new.map(|found| Arc::clone(&found.below)));
        }
        let mut changed = &undecided ^ &self.undecided;
        for (top, row) in &mut self.rows {
            // One that was known to be away, and still is, did not change.
            if row.is_away && undecided.contains(top) {
                changed.remove(top);
            } else if std::mem::take(&mut row.is_away) {
                changed.insert(Arc::clone(top));
            }
        }
        self.found = Some(found);
        self.undecided = undecided;
        changed
    }

    /// Decides which are away, once everything below the root was looked at: `below` says what lies below a directory.
    /// Before the first time, the rows are not complete: nobody noted where file systems begin.
    pub fn decide<E>(
        &mut self,
        below: impl Fn(&[u8]) -> Result<DocumentsBelow, E>,
    ) -> Result<(), E> {
        let is_first = !std::mem::replace(&mut self.are_noted, true);
        let Some(found) = &self.found else {
            return Ok(());
        };
        for (top, there) in found {
            // Documents that are missing below a new one lay on the file system that it hides.
            if let btree_map::Entry::Vacant(new) = self.rows.entry(Arc::clone(top)) {
                let hides = !there.is_link && !is_first && below(top)?.are_missing;
                new.insert(NestedRow {
                    device: (!hides).then_some(there.device),
                    is_link: there.is_link,
                    is_away: false,
                });
            }
        }
        for (top, row) in std::mem::take(&mut self.rows) {
            let there = found.get(&top);
            let below = if row.device == there.map(|there| there.device) {
                DocumentsBelow::default()
            } else {
                below(&top)?
            };
            let decided = decided(row, there, below);
            self.rows.extend(decided.map(|decided| (top, decided)));
        }
        self.undecided.clear();
        Ok(())
    }

    /// Returns true if a path lies where another file system was, or may have been, when documents were last seen there.
    pub fn is_away(&self, below: &[u8]) -> bool {
        let is_undecided = || tops_of(below).any(|top| self.undecided.contains(top));
        self.known_away(below).is_some() || !self.undecided.is_empty() && is_undecided()
    }

    /// Returns the path of a file system above a path that is known to be away.
    pub fn known_away<'a>(&self, below: &'a [u8]) -> Option<&'a [u8]> {
        if self.rows.is_empty() {
            return None;
        }
        tops_of(below).find(|top| self.rows.get(*top).is_some_and(|row| row.is_away))
    }
}

/// Returns the directories where another file system is than the one of their row, or none.
fn differing(rows: &NestedRows, found: &FoundFileSystems) -> impl Iterator<Item = Arc<[u8]>> {
    let device = |top: &[u8]| found.get(top).map(|found| found.device);
    let differs = move |top: &&Arc<[u8]>| rows[*top].device != device(top);
    rows.keys().filter(differs).cloned()
}

/// Returns the row of a directory after a sweep; nothing if there is nothing to keep of it.
fn decided(
    row: NestedRow,
    found: Option<&NestedFileSystem>,
    below: DocumentsBelow,
) -> Option<NestedRow> {
    let away = NestedRow {
        is_away: true,
        ..row
    };
    let there = found.map(|found| NestedRow {
        device: Some(found.device),
        is_link: found.is_link,
        is_away: false,
    });
    match (row.device, there) {
        (None, None) => None,
        (before, Some(there)) if before == there.device => Some(there),
        (None, Some(_)) if below.are_missing => Some(away),
        (None, Some(there)) => Some(there),
        // The numbers of devices may differ each time that a file system is mounted: one that holds some of the documents
        // is the same, or took its place.
        (Some(_), Some(there)) if below.is_any_seen => Some(there),
        (Some(_), Some(_)) if below.are_missing => Some(away),
        // A link that leads to some of the documents was made to lead there.
        (Some(_), None) if row.is_link && below.is_any_seen => None,
        (Some(_), None) if below.are_missing => Some(away),
        (Some(_), None) if below.is_any_seen || !below.is_any_known => None,
        // Nobody can see its documents, nor that they are missing.
        (Some(_), _) => Some(NestedRow {
            is_away: false,
            ..row
        }),
    }
}

/// Returns the directories above a path, from the root down.
pub fn tops_of(below: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = (0..below.len()).filter(|&end| below[end] == b'/');
    ends.map(|end| &below[..end])
}

//! File systems below the root of a mount: what is missing with one that is not mounted was not deleted (R15).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::announce::catalog::Catalog;
use crate::announce::engine::source::troubles::Troubles;
use crate::announce::observation::{MountId, NestedFileSystem};
use crate::announce::state::{NestedRow, Presence, Record};
use crate::resourcesync::uri::Uri;

/// The stored rows of one mount.
type Rows = BTreeMap<Arc<[u8]>, NestedRow>;

/// The file systems that this run found below the root of one mount, compared with the stored rows.
#[derive(Debug, Default)]
pub struct NestedFileSystems {
    /// Nothing until the tree has told of them.
    found: Option<BTreeMap<Arc<[u8]>, NestedFileSystem>>,
    /// Those that differ from their rows since the last sweep. Until the next one has ended, they count as away.
    unsettled: BTreeSet<Arc<[u8]>>,
}

/// The documents of one mount, to be asked for those below a directory.
#[derive(Debug, Clone, Copy)]
pub struct DocumentsBelow<'a> {
    pub mount: MountId,
    pub catalog: &'a Catalog,
    pub troubles: &'a Troubles,
}

impl DocumentsBelow<'_> {
    /// Returns true if documents below a directory are missing, and not accepted as deleted.
    fn are_missing(&self, top: &[u8]) -> bool {
        let missing = self.catalog.census().missing().iter();
        let mut records = missing.filter_map(|uri| self.catalog.get(uri));
        records.any(|record| self.is_below(record, top) && !record.is_accepted())
    }

    /// Returns true if a document below a directory is there, and can be read.
    fn is_any_seen(&self, top: &[u8]) -> bool {
        let is_seen = |uri: &Uri, record: &Record| {
            record.presence == Presence::Present && self.troubles.get(uri).is_none()
        };
        let mut documents = self.catalog.iter();
        documents.any(|(uri, record)| self.is_below(record, top) && is_seen(uri, record))
    }

    fn is_any_known(&self, top: &[u8]) -> bool {
        let mut documents = self.catalog.iter();
        documents.any(|(_, record)| self.is_below(record, top) && !record.is_gone())
    }

    fn is_below(&self, record: &Record, top: &[u8]) -> bool {
        record.path.mount == self.mount && is_below(&record.path.below, top)
    }
}

impl NestedFileSystems {
    /// Takes the file systems that there are now. Returns the paths of those that went or came. Below a mount that
    /// nobody `looked_at` before, none came.
    pub fn find(
        &mut self,
        rows: &mut Rows,
        found: Vec<NestedFileSystem>,
        was_looked_at: bool,
    ) -> BTreeSet<Arc<[u8]>> {
        let found = found.into_iter().map(|it| (Arc::clone(&it.below), it));
        let found: BTreeMap<_, _> = found.collect();
        let differs = |(top, row): &(&Arc<[u8]>, &NestedRow)| {
            row.device != found.get(*top).map(|found| found.device)
        };
        let mut unsettled: BTreeSet<Arc<[u8]>> = rows
            .iter()
            .filter(differs)
            .map(|(top, _)| Arc::clone(top))
            .collect();
        if was_looked_at {
            // A link may lead elsewhere at any time: it hides nothing.
            let is_new =
                |found: &&NestedFileSystem| !found.is_link && !rows.contains_key(&found.below);
            let new = found.values().filter(is_new);
            unsettled.extend(new.map(|found| Arc::clone(&found.below)));
        }
        let mut changed: BTreeSet<Arc<[u8]>> = unsettled
            .symmetric_difference(&self.unsettled)
            .cloned()
            .collect();
        for (top, row) in rows.iter_mut() {
            // One that was known to be away, and still is, did not change.
            if row.is_away && unsettled.contains(top) {
                changed.remove(top);
            } else if std::mem::take(&mut row.is_away) {
                changed.insert(Arc::clone(top));
            }
        }
        self.found = Some(found);
        self.unsettled = unsettled;
        changed
    }

    /// Compares the rows with what there is, once everything below the root was looked at.
    pub fn settle(&mut self, rows: &mut Rows, documents: &DocumentsBelow<'_>) {
        let Some(found) = &self.found else { return };
        for (top, there) in found {
            // What is missing below one that is new lay on the file system that it hides.
            rows.entry(Arc::clone(top)).or_insert_with(|| {
                let hides = !there.is_link && documents.are_missing(top);
                NestedRow {
                    device: (!hides).then_some(there.device),
                    is_link: there.is_link,
                    is_away: false,
                }
            });
        }
        rows.retain(
            |top, row| match settled(*row, top, found.get(top), documents) {
                Some(settled) => {
                    *row = settled;
                    true
                }
                None => false,
            },
        );
        self.unsettled.clear();
    }

    /// Returns true if a path lies where another file system was, or may have been, when documents were last seen there.
    pub fn is_away(&self, rows: &Rows, below: &[u8]) -> bool {
        let is_unsettled = || tops_of(below).any(|top| self.unsettled.contains(top));
        self.known_away(rows, below).is_some() || !self.unsettled.is_empty() && is_unsettled()
    }

    /// Returns the path of a file system above a path that is known to be away.
    pub fn known_away<'a>(&self, rows: &Rows, below: &'a [u8]) -> Option<&'a [u8]> {
        if rows.is_empty() {
            return None;
        }
        tops_of(below).find(|top| rows.get(*top).is_some_and(|row| row.is_away))
    }
}

/// Returns the row of a directory after a sweep; nothing if there is nothing to keep of it.
fn settled(
    row: NestedRow,
    top: &[u8],
    found: Option<&NestedFileSystem>,
    documents: &DocumentsBelow<'_>,
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
        (None, Some(_)) if documents.are_missing(top) => Some(away),
        (None, Some(there)) => Some(there),
        // The numbers of devices may differ each time that a file system is mounted: one that holds some of the documents
        // is the same, or took its place.
        (Some(_), Some(there)) if documents.is_any_seen(top) => Some(there),
        (Some(_), Some(_)) if documents.are_missing(top) => Some(away),
        // A link that leads to some of the documents was made to lead there.
        (Some(_), None) if row.is_link && documents.is_any_seen(top) => None,
        (Some(_), None) if documents.are_missing(top) => Some(away),
        (Some(_), None) if documents.is_any_seen(top) || !documents.is_any_known(top) => None,
        // Nobody can see its documents, nor that they are missing.
        (Some(_), _) => Some(NestedRow {
            is_away: false,
            ..row
        }),
    }
}

/// Returns true if a path lies below a directory, both below the same root.
pub fn is_below(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top)
        .is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Returns the directories above a path, from the root down.
fn tops_of(below: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = (0..below.len()).filter(|&end| below[end] == b'/');
    ends.map(|end| &below[..end])
}

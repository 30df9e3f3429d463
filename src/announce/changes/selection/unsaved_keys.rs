//! The keys that a selection has taken, as the rows that its next round writes.

use std::collections::BTreeMap;

use resourcesync::change::ChangeKey;
use resourcesync::uri::Uri;

use crate::announce::changes::round::RoundFiles;
use crate::announce::changes::taken_keys::KeyRow;
use crate::announce::changes::taken_keys::{RowChanges, appended};

/// Rows of keys to write, by list and number; nothing for a row to delete.
pub type KeyChanges = BTreeMap<(Uri, u32), Option<KeyRow>>;

/// Keys that were taken since the last round.
#[derive(Debug)]
pub struct UnsavedKeys {
    rows: KeyChanges,
    /// Keys that no row has yet, by the number of their list.
    added: Vec<Vec<ChangeKey>>,
}

impl UnsavedKeys {
    /// Returns no keys, of so many lists.
    pub fn new(lists: usize) -> UnsavedKeys {
        UnsavedKeys {
            rows: BTreeMap::new(),
            added: vec![Vec::new(); lists],
        }
    }

    /// Changes the rows of a list.
    pub fn change(&mut self, list: &Uri, rows: RowChanges) {
        let rows = rows.into_iter();
        let rows = rows.map(|(number, row)| ((list.clone(), number), row));
        self.rows.extend(rows);
    }

    /// Deletes a row, unless the row is changed.
    pub fn forget(&mut self, list: Uri, number: u32) {
        self.rows.entry((list, number)).or_insert(None);
    }

    /// Adds the key of an entry that was taken from a list, given by its number.
    pub fn add(&mut self, list: usize, key: ChangeKey) {
        self.added[list].push(key);
    }

    /// Returns the rows that have them. `lists` are the lists in order of their numbers.
    pub fn take<'a, F: RoundFiles>(
        &mut self,
        lists: impl Iterator<Item = &'a Uri>,
        files: &mut F,
    ) -> Result<KeyChanges, F::Error> {
        let mut rows = std::mem::take(&mut self.rows);
        for (list, added) in lists.zip(&mut self.added) {
            if added.is_empty() {
                continue;
            }
            let last = last_row(list, &rows, files)?;
            for (number, row) in appended(last, added.drain(..)) {
                rows.insert((list.clone(), number), Some(row));
            }
        }
        Ok(rows)
    }
}

/// Returns the last row of keys of a list that are present, with those that are to be written.
fn last_row<F: RoundFiles>(
    list: &Uri,
    rows: &KeyChanges,
    files: &mut F,
) -> Result<Option<(u32, KeyRow)>, F::Error> {
    let all = (list.clone(), 0)..=(list.clone(), u32::MAX);
    let is_present = |row: &KeyRow| row.vanished.is_none();
    let mut unsaved = rows.range(all).rev().filter_map(|((_, number), row)| {
        let row = row.as_ref().filter(|row| is_present(row))?;
        Some((*number, row.clone()))
    });
    let unsaved = unsaved.next();
    let saved = files.last_taken(list)?.map(|(number, row)| {
        let is_deleted = rows.contains_key(&(list.clone(), number));
        if is_deleted {
            (number, KeyRow::new(&[], None))
        } else {
            (number, row)
        }
    });
    Ok(match (unsaved, saved) {
        (Some(unsaved), Some(saved)) if saved.0 > unsaved.0 => Some(saved),
        (unsaved, saved) => unsaved.or(saved),
    })
}

//! What was taken from the lists of sets, for the reader of Change Lists: it reads the database on a connection of its own,
//! while a step writes.

use std::collections::BTreeMap;

use crate::changes::inventory::InventoryRow;
use crate::changes::taken_keys::KeyRow;
use resourcesync::resource_list::{ResourceKey, ResourceState};
use resourcesync::uri::Uri;

use crate::state::{Db, FromColumn, Result, StateError, columns, from_row, read};

/// Rows of keys of a list of a set.
const KEYS: &str = "SELECT k.first, k.keys, k.vanished FROM document s CROSS JOIN document l ON l.uri = ?2 \
     CROSS JOIN change_key k ON k.set_id = s.id AND k.list = l.id WHERE s.uri = ?1";

impl Db<'_> {
    /// Returns the rows of keys of a list.
    pub fn keys_of_list(self, set: &Uri, list: &Uri) -> Result<BTreeMap<u32, KeyRow>> {
        self.all(KEYS, (set, list))
    }

    /// Returns the last row of keys of a list that have not vanished.
    pub fn last_keys_of_list(self, set: &Uri, list: &Uri) -> Result<Option<(u32, KeyRow)>> {
        let sql = format!("{KEYS} AND k.vanished IS NULL ORDER BY k.first DESC LIMIT 1");
        self.first(&sql, (set, list))
    }

    /// Hands the rows of keys of all lists of a set to `pass`, list after list.
    pub fn each_key_row(self, set: &Uri, pass: &mut dyn FnMut(Uri, u32, KeyRow)) -> Result<()> {
        let mut statement = self.statement(
            "SELECT l.uri, k.first, k.keys, k.vanished FROM document s CROSS JOIN change_key k ON k.set_id = s.id \
             CROSS JOIN document l ON l.id = k.list WHERE s.uri = ?1 ORDER BY k.list, k.first",
            set,
        )?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            let (list, first, row) = read(row)?;
            pass(list, first, row);
        }
        Ok(())
    }

    /// Hands the resources of a set to `compare`, in order of their keys.
    pub fn read_inventory<T, E: From<StateError>>(
        self,
        set: &Uri,
        compare: impl FnOnce(
            &mut dyn Iterator<Item = Result<(ResourceKey, InventoryRow), E>>,
        ) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut statement = self.statement(
            "SELECT i.resource, i.state, i.uri, i.missing FROM document s CROSS JOIN inventory i ON i.set_id = s.id \
             WHERE s.uri = ?1 ORDER BY i.resource",
            set,
        )?;
        let rows = statement.raw_query().mapped(read);
        compare(&mut rows.map(|row| row.map_err(|error| StateError::from(error).into())))
    }
}

from_row! { KeyRow { bytes, vanished } }
from_row! { InventoryRow { state, uri, missing } }

columns! {
    ResourceKey: |value| FromColumn::from_column(value).map(ResourceKey);
    ResourceState: |value| FromColumn::from_column(value).map(ResourceState);
}

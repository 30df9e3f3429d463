//! What was taken from the lists of sets, for the reader of Change Lists: it reads the database on a connection of its own,
//! while a step writes.

use std::collections::BTreeMap;

use crate::announce::changes::inventory::InventoryRow;
use crate::announce::changes::taken_keys::KeyRow;
use resourcesync::change_list::{ResourceKey, ResourceState};
use resourcesync::uri::Uri;
use rusqlite::Row;

use crate::state::{Columns, Db, Result, StateError};

/// Rows of what was taken from the lists of sets.
#[derive(Debug)]
pub struct TakenRows<'a>(pub Db<'a>);

impl TakenRows<'_> {
    /// Returns the rows of keys of a list.
    pub fn of_list(&self, set: &Uri, list: &Uri) -> Result<BTreeMap<u32, KeyRow>> {
        let rows = self.0.all(
            "SELECT k.first, k.keys, k.vanished FROM document s CROSS JOIN document l ON l.uri = ?2 \
             CROSS JOIN change_key k ON k.set_id = s.id AND k.list = l.id WHERE s.uri = ?1",
            [set.as_str(), list.as_str()],
            key_row,
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Returns the last row of keys of a list that have not vanished.
    pub fn last_of_list(&self, set: &Uri, list: &Uri) -> Result<Option<(u32, KeyRow)>> {
        self.0.first(
            "SELECT k.first, k.keys, k.vanished FROM document s CROSS JOIN document l ON l.uri = ?2 \
             CROSS JOIN change_key k ON k.set_id = s.id AND k.list = l.id WHERE s.uri = ?1 AND k.vanished IS NULL \
             ORDER BY k.first DESC LIMIT 1",
            [set.as_str(), list.as_str()],
            key_row,
        )
    }

    /// Hands the rows of keys of all lists of a set to `pass`, list after list.
    pub fn each(&self, set: &Uri, pass: &mut dyn FnMut(Uri, u32, KeyRow)) -> Result<()> {
        let mut statement = self.0.statement(
            "SELECT l.uri, k.first, k.keys, k.vanished FROM document s CROSS JOIN change_key k ON k.set_id = s.id \
             CROSS JOIN document l ON l.id = k.list WHERE s.uri = ?1 ORDER BY k.list, k.first",
        )?;
        let mut rows = statement.query([set.as_str()])?;
        while let Some(row) = rows.next()? {
            let mut columns = Columns::of(row);
            let list = columns.sql()?;
            let (first, row) = key_row(&mut columns)?;
            pass(list, first, row);
        }
        Ok(())
    }

    /// Hands the resources of a set to `read`, in order of their keys.
    pub fn read_inventory<T, E: From<StateError>>(
        &self,
        set: &Uri,
        read: impl FnOnce(
            &mut dyn Iterator<Item = Result<(ResourceKey, InventoryRow), E>>,
        ) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut statement = self.0.statement(
            "SELECT i.resource, i.state, i.uri, i.missing FROM document s CROSS JOIN inventory i ON i.set_id = s.id \
             WHERE s.uri = ?1 ORDER BY i.resource",
        )?;
        let rows = statement.query_map([set.as_str()], inventory_row);
        let rows = rows.map_err(StateError::from)?;
        read(&mut rows.map(|row| row.map_err(|error| StateError::from(error).into())))
    }
}

fn key_row(row: &mut Columns<'_>) -> rusqlite::Result<(u32, KeyRow)> {
    let first = row.take()?;
    let bytes = row.bytes()?;
    let vanished = row.option()?;
    Ok((first, KeyRow { bytes, vanished }))
}

fn inventory_row(row: &Row<'_>) -> rusqlite::Result<(ResourceKey, InventoryRow)> {
    let mut columns = Columns::of(row);
    let resource = ResourceKey(columns.take()?);
    let row = InventoryRow {
        state: ResourceState(columns.take()?),
        uri: columns.take::<String>()?.into(),
        missing: columns.option()?,
    };
    Ok((resource, row))
}

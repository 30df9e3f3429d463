//! The rows of change channels: keys of entries that were taken from Change Lists, and logged notifications.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::change_list::{ResourceKey, ResourceState};
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::Uri;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Row, Transaction, params, params_from_iter,
};

use crate::announce::changes::inventory::InventoryRow;
use crate::announce::changes::log::{LogPart, LogRange, Logged};
use crate::announce::ids::ChannelId;
use crate::announce::state::{
    ChangeListRow, ChangeSetRow, ClosedList, KeyRow, ListKind, LogRow, Save,
};
use crate::store::load::{RowReader, count};
use crate::store::row::{Column, shared};
use crate::store::{Store, StoreError, save};

/// A reader of the keys in a state file that a daemon writes meanwhile.
#[derive(Debug, Clone)]
pub struct KeyReader {
    path: PathBuf,
}

impl KeyReader {
    /// Opens the file.
    pub fn open(&self) -> Result<TakenRows, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags);
        Ok(TakenRows {
            connection: connection.map_err(|source| self.failed(source))?,
            reader: self.clone(),
        })
    }

    fn failed(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Load {
            path: self.path.clone(),
            source,
        }
    }
}

/// Stored rows of what was taken from the lists of sets.
#[derive(Debug)]
pub struct TakenRows {
    reader: KeyReader,
    connection: Connection,
}

impl TakenRows {
    /// Returns the rows of keys of a list.
    pub fn of_list(&self, set: &Uri, list: &Uri) -> Result<BTreeMap<u32, KeyRow>, StoreError> {
        let rows = self.rows(
            "SELECT list, first, keys, vanished FROM change_keys \
             WHERE capability_list = ?1 AND list = ?2",
            &[set.as_str(), list.as_str()],
            key_row,
            |rows| rows.collect::<Result<Vec<_>, StoreError>>(),
        )?;
        let rows = rows.into_iter();
        Ok(rows.map(|(_, first, row)| (first, row)).collect())
    }

    /// Returns the last row of keys of a list that have not vanished.
    pub fn last_of_list(&self, set: &Uri, list: &Uri) -> Result<Option<(u32, KeyRow)>, StoreError> {
        let last = self.rows(
            "SELECT list, first, keys, vanished FROM change_keys \
             WHERE capability_list = ?1 AND list = ?2 AND vanished IS NULL ORDER BY first DESC LIMIT 1",
            &[set.as_str(), list.as_str()],
            key_row,
            |rows| rows.next().transpose(),
        )?;
        Ok(last.map(|(_, first, row)| (first, row)))
    }

    /// Hands the rows of keys of all lists of a set to `pass`, in order of the lists.
    pub fn each(
        &self,
        set: &Uri,
        pass: &mut dyn FnMut(Uri, u32, KeyRow),
    ) -> Result<(), StoreError> {
        self.rows(
            "SELECT list, first, keys, vanished FROM change_keys WHERE capability_list = ?1 \
             ORDER BY list, first",
            &[set.as_str()],
            key_row,
            |rows| {
                for row in rows {
                    let (list, first, row) = row?;
                    pass(list, first, row);
                }
                Ok(())
            },
        )
    }

    /// Hands the resources of a set to `read`, in order of their keys.
    pub fn read_inventory<T, E: From<StoreError>>(
        &self,
        set: &Uri,
        read: impl FnOnce(
            &mut dyn Iterator<Item = Result<(ResourceKey, InventoryRow), E>>,
        ) -> Result<T, E>,
    ) -> Result<T, E> {
        self.rows(
            "SELECT resource, state, uri, missing FROM change_inventory WHERE capability_list = ?1 \
             ORDER BY resource",
            &[set.as_str()],
            inventory_row,
            read,
        )
    }

    fn rows<R, T, E: From<StoreError>>(
        &self,
        query: &str,
        parameters: &[&str],
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<R>,
        read: impl FnOnce(&mut dyn Iterator<Item = Result<R, E>>) -> Result<T, E>,
    ) -> Result<T, E> {
        let failed = |source| self.reader.failed(source);
        let mut statement = self.connection.prepare_cached(query).map_err(failed)?;
        let parameters = params_from_iter(parameters);
        let rows = statement.query_map(parameters, row).map_err(failed)?;
        read(&mut rows.map(|row| row.map_err(|source| failed(source).into())))
    }
}

impl Store {
    /// Returns a reader of keys.
    pub fn key_reader(&self) -> KeyReader {
        KeyReader {
            path: self.path.clone(),
        }
    }

    /// Returns the body of a logged notification, if it is there.
    pub fn logged_body(&self, id: ChannelId, seq: u64) -> Result<Option<Arc<[u8]>>, StoreError> {
        let read = || {
            let mut statement = self
                .connection
                .prepare_cached("SELECT body FROM change_log WHERE channel = ?1 AND seq = ?2")?;
            let key = params![id.0.cast_signed(), seq.cast_signed()];
            statement
                .query_row(key, |row| Ok(shared(row.get(0)?)))
                .optional()
        };
        read().map_err(|source| StoreError::Load {
            path: self.path.clone(),
            source,
        })
    }

    pub(super) fn change_sets(&self) -> rusqlite::Result<BTreeMap<Uri, ChangeSetRow>> {
        let sets = self.rows("SELECT * FROM change_sets", |row| {
            let mut fields = RowReader::of(row);
            let set = fields.value()?;
            let row = ChangeSetRow {
                learned: list_kind(fields.take()?),
                retiring_channel: fields
                    .take::<Option<i64>>()?
                    .map(|id| ChannelId(id.cast_unsigned())),
            };
            Ok((set, row))
        })?;
        Ok(sets.into_iter().collect())
    }

    pub(super) fn change_lists(
        &self,
    ) -> rusqlite::Result<BTreeMap<Uri, BTreeMap<Uri, ChangeListRow>>> {
        let mut lists: BTreeMap<Uri, BTreeMap<Uri, ChangeListRow>> = BTreeMap::new();
        self.each("SELECT * FROM change_lists", |row| {
            let mut fields = RowReader::of(row);
            let (set, list) = (fields.value()?, fields.value()?);
            let row = ChangeListRow {
                fingerprint: fields.optional()?,
                listed: count(fields.take()?),
                taken: count(fields.take()?),
                closed: closed(fields.optional()?, fields.optional()?),
            };
            lists.entry(set).or_default().insert(list, row);
            Ok(())
        })?;
        Ok(lists)
    }

    pub(super) fn change_log(
        &self,
    ) -> rusqlite::Result<BTreeMap<ChannelId, BTreeMap<u64, Logged>>> {
        let mut logs: BTreeMap<ChannelId, BTreeMap<u64, Logged>> = BTreeMap::new();
        // Bodies stay where they are until they are sent.
        let query = "SELECT channel, seq, since, until, entries, bytes, cut FROM change_log";
        self.each(query, |row| {
            let mut fields = RowReader::of(row);
            let (channel, seq) = (ChannelId(fields.number()?), fields.number()?);
            let logged = Logged {
                from: fields.value()?,
                until: fields.value()?,
                entries: count(fields.take()?),
                bytes: count(fields.take()?),
                cut: fields.value()?,
            };
            logs.entry(channel).or_default().insert(seq, logged);
            Ok(())
        })?;
        Ok(logs)
    }
}

/// Reads which lists of a set were learned.
fn list_kind(learned: i64) -> Option<ListKind> {
    match learned {
        0 => None,
        1 => Some(ListKind::ChangeLists),
        _ => Some(ListKind::ResourceLists),
    }
}

fn list_kind_number(learned: Option<ListKind>) -> i64 {
    match learned {
        None => 0,
        Some(ListKind::ChangeLists) => 1,
        Some(ListKind::ResourceLists) => 2,
    }
}

/// Reads the kind of a channel.
pub(super) fn kind(text: &str) -> Option<ChannelKind> {
    let mut kinds = ChannelKind::ALL.into_iter();
    kinds.find(|kind| kind.as_str() == text)
}

/// Reads which entries of a logged notification are in flight.
pub(super) fn part(
    fields: &mut RowReader<'_>,
    entries: usize,
) -> rusqlite::Result<Option<LogPart>> {
    let first = fields.take::<Option<i64>>()?.map(count);
    let is_whole: Option<bool> = fields.take()?;
    let bytes = fields.take::<Option<i64>>()?.map(count);
    Ok(first.map(|start| LogPart {
        range: match is_whole {
            Some(true) => LogRange::Whole { entries },
            Some(false) | None => LogRange::Part {
                start,
                end: start.saturating_add(entries),
            },
        },
        bytes: bytes.unwrap_or_default(),
    }))
}

fn key_row(row: &Row<'_>) -> rusqlite::Result<(Uri, u32, KeyRow)> {
    let mut fields = RowReader::of(row);
    let list = fields.value()?;
    let first: u32 = fields.take()?;
    let keys = KeyRow {
        bytes: shared(fields.take()?),
        vanished: fields.optional()?,
    };
    Ok((list, first, keys))
}

fn inventory_row(row: &Row<'_>) -> rusqlite::Result<(ResourceKey, InventoryRow)> {
    let mut fields = RowReader::of(row);
    let resource = ResourceKey(fields.take()?);
    let row = InventoryRow {
        state: ResourceState(fields.take()?),
        uri: fields.take::<String>()?.into(),
        missing: fields.optional()?,
    };
    Ok((resource, row))
}

/// Writes the rows of change channels. Sets come before their lists, and lists before their keys.
pub(super) fn write_changes(on: &Transaction<'_>, save: &Save) -> rusqlite::Result<()> {
    let is_set_deleted = |set: &Uri| save.change_sets.get(set) == Some(&None);
    for (set, row) in &save.change_sets {
        match row {
            Some(row) => on.execute(
                "INSERT INTO change_sets VALUES (?1, ?2, ?3) \
                 ON CONFLICT (capability_list) DO UPDATE SET \
                 learned = excluded.learned, retiring_channel = excluded.retiring_channel",
                params![
                    set.as_str(),
                    list_kind_number(row.learned),
                    row.retiring_channel.map(|id| id.0.cast_signed())
                ],
            )?,
            None => on.execute(
                "DELETE FROM change_sets WHERE capability_list = ?1",
                [set.as_str()],
            )?,
        };
    }
    for ((set, list), row) in &save.change_lists {
        if !is_set_deleted(set) {
            write_list(on, set, list, row.as_ref())?;
        }
    }
    for ((set, list, first), row) in &save.change_keys {
        let is_deleted = is_set_deleted(set)
            || matches!(
                save.change_lists.get(&(set.clone(), list.clone())),
                Some(None)
            );
        if !is_deleted {
            write_keys(on, (set, list, *first), row.as_ref())?;
        }
    }
    for set in &save.forgotten_inventories {
        on.execute(
            "DELETE FROM change_inventory WHERE capability_list = ?1",
            [set.as_str()],
        )?;
    }
    for ((set, resource), row) in &save.inventory {
        if !is_set_deleted(set) {
            write_resource(on, set, *resource, row.as_ref())?;
        }
    }
    for ((id, seq), row) in &save.change_log {
        if !matches!(save.channels.get(id), Some(None)) {
            write_logged(on, *id, *seq, row.as_ref())?;
        }
    }
    Ok(())
}

fn closed(since: Option<Timestamp>, last: Option<Timestamp>) -> Option<ClosedList> {
    let (since, last) = since.zip(last)?;
    Some(ClosedList { since, last })
}

fn write_list(
    on: &Transaction<'_>,
    set: &Uri,
    list: &Uri,
    row: Option<&ChangeListRow>,
) -> rusqlite::Result<()> {
    let Some(row) = row else {
        on.prepare_cached("DELETE FROM change_lists WHERE capability_list = ?1 AND list = ?2")?
            .execute(params![set.as_str(), list.as_str()])?;
        return Ok(());
    };
    on.prepare_cached(
        "INSERT INTO change_lists VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
         ON CONFLICT (capability_list, list) DO UPDATE SET fingerprint = excluded.fingerprint, \
         listed = excluded.listed, taken = excluded.taken, closed = excluded.closed, last = excluded.last",
    )?
    .execute(params![
        set.as_str(),
        list.as_str(),
        row.fingerprint.map(Column),
        save::count(row.listed),
        save::count(row.taken),
        row.closed.map(|closed| Column(closed.since)),
        row.closed.map(|closed| Column(closed.last)),
    ])?;
    Ok(())
}

fn write_keys(
    on: &Transaction<'_>,
    (set, list, first): (&Uri, &Uri, u32),
    row: Option<&KeyRow>,
) -> rusqlite::Result<()> {
    let Some(row) = row else {
        on.prepare_cached(
            "DELETE FROM change_keys WHERE capability_list = ?1 AND list = ?2 AND first = ?3",
        )?
        .execute(params![set.as_str(), list.as_str(), first])?;
        return Ok(());
    };
    on.prepare_cached("INSERT OR REPLACE INTO change_keys VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![
            set.as_str(),
            list.as_str(),
            first,
            &row.bytes[..],
            row.vanished.map(Column),
        ])?;
    Ok(())
}

fn write_resource(
    on: &Transaction<'_>,
    set: &Uri,
    resource: ResourceKey,
    row: Option<&InventoryRow>,
) -> rusqlite::Result<()> {
    let Some(row) = row else {
        on.prepare_cached(
            "DELETE FROM change_inventory WHERE capability_list = ?1 AND resource = ?2",
        )?
        .execute(params![set.as_str(), resource.0])?;
        return Ok(());
    };
    on.prepare_cached("INSERT OR REPLACE INTO change_inventory VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![
            set.as_str(),
            resource.0,
            row.state.0,
            row.uri,
            row.missing.map(Column),
        ])?;
    Ok(())
}

fn write_logged(
    on: &Transaction<'_>,
    id: ChannelId,
    seq: u64,
    row: Option<&LogRow>,
) -> rusqlite::Result<()> {
    let (id, seq) = (id.0.cast_signed(), seq.cast_signed());
    let Some(LogRow { logged, body }) = row else {
        on.prepare_cached("DELETE FROM change_log WHERE channel = ?1 AND seq = ?2")?
            .execute(params![id, seq])?;
        return Ok(());
    };
    on.prepare_cached("INSERT OR REPLACE INTO change_log VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?
        .execute(params![
            id,
            seq,
            Column(logged.from),
            Column(logged.until),
            save::count(logged.entries),
            save::count(logged.bytes),
            Column(logged.cut),
            &body[..],
        ])?;
    Ok(())
}

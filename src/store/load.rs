//! The state as it is loaded at the start.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::uri::{Hub, Topic, Uri, UriSet};
use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError};

use crate::announce::candidates::Candidates;
use crate::announce::changes::log::LogPosition;
use crate::announce::delivery::attempt::{Attempt, Refusal};
use crate::announce::ids::ChannelId;
use crate::announce::observation::{DocumentPath, Identity, MountId, Stat};
use crate::announce::small_set::SmallSet;
use crate::announce::state::{
    ChannelRow, Flight, Hold, KnownHub, LedgerRow, MountRow, NestedRow, Ping, Presence, Record,
    Relations, State, Told, Trouble, Version,
};
use crate::store::changes::{kind, part};
use crate::store::row::{
    Column, covers_from_json, said_from_json, shared, times_from_text, uris_from_json,
};
use crate::store::{Store, StoreError};

impl Store {
    /// Loads the whole state except the embedded hub's part.
    pub fn load(&self) -> Result<State, StoreError> {
        self.read().map_err(|source| StoreError::Load {
            path: self.path.clone(),
            source,
        })
    }

    /// Loads the last time saved.
    pub fn load_clock(&self) -> Result<Option<Timestamp>, StoreError> {
        self.clock().map_err(|source| StoreError::Load {
            path: self.path.clone(),
            source,
        })
    }

    fn clock(&self) -> rusqlite::Result<Option<Timestamp>> {
        let saved = self.rows("SELECT now FROM clock", |row| {
            row.get::<_, Column<Timestamp>>(0)
        })?;
        Ok(saved.first().map(|now| now.0))
    }

    fn read(&self) -> rusqlite::Result<State> {
        // A daemon may be writing meanwhile: one transaction reads one consistent state.
        let _one_state = self.connection.unchecked_transaction()?;
        let mut known = KnownUris::default();
        let mut documents = BTreeMap::new();
        self.each("SELECT * FROM documents", |row| {
            let (uri, record) = document(row, &mut known)?;
            documents.insert(uri, Arc::new(record));
            Ok(())
        })?;
        let mut told: BTreeMap<(ChannelId, Hub), BTreeMap<Uri, Told>> = BTreeMap::new();
        self.each("SELECT * FROM told", |row| {
            let (channel, hub, uri, row) = told_row(row, &mut known)?;
            told.entry((channel, hub)).or_default().insert(uri, row);
            Ok(())
        })?;
        drop(known);
        let mounts = self.rows("SELECT * FROM mounts", mount)?;
        let mut mounts: BTreeMap<MountId, MountRow> = mounts.into_iter().collect();
        self.each("SELECT * FROM nested_file_systems", |row| {
            let (id, below, nested) = nested_file_system(row)?;
            if let Some(mount) = mounts.get_mut(&id) {
                mount.nested.insert(below, nested);
            }
            Ok(())
        })?;
        Ok(State {
            mounts,
            documents,
            other_files: self
                .rows("SELECT * FROM others", other)?
                .into_iter()
                .collect(),
            troubles: self
                .rows("SELECT * FROM troubles", trouble)?
                .into_iter()
                .collect(),
            channels: self
                .rows("SELECT * FROM channels", channel)?
                .into_iter()
                .collect(),
            ledgers: self
                .rows(
                    "SELECT * FROM ledgers LEFT JOIN in_flight USING (channel, hub)",
                    ledger,
                )?
                .into_iter()
                .collect(),
            told,
            change_sets: self.change_sets()?,
            change_lists: self.change_lists()?,
            change_log: self.change_log()?,
            clock: self.clock()?,
            hubs: self
                .rows("SELECT * FROM hubs", known_hub)?
                .into_iter()
                .collect(),
        })
    }

    pub(super) fn each(
        &self,
        query: &str,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare(query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            read(row)?;
        }
        Ok(())
    }

    pub(super) fn rows<T>(
        &self,
        query: &str,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        self.connection
            .prepare(query)?
            .query_map([], read)?
            .collect()
    }
}

/// Interned URIs: one that is in many rows takes memory once and is checked once.
#[derive(Default)]
struct KnownUris(UriSet);

impl KnownUris {
    fn uri(&mut self, text: &str) -> rusqlite::Result<Uri> {
        if let Some(known) = self.0.get(text) {
            return Ok(known.clone());
        }
        let uri = foreign(Uri::parse(text).ok())?;
        self.0.insert(uri.clone());
        Ok(uri)
    }
}

/// A reader of the columns of a row in the order of the table's definition: access by name would dominate the time of a
/// start.
pub(super) struct RowReader<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> RowReader<'a> {
    pub(super) fn of(row: &'a Row<'a>) -> RowReader<'a> {
        RowReader { row, next: 0 }
    }

    pub(super) fn take<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    fn text(&mut self) -> rusqlite::Result<&'a str> {
        self.next += 1;
        Ok(self.row.get_ref(self.next - 1)?.as_str()?)
    }

    /// Reads a value with a [`Column`] conversion.
    pub(super) fn value<T>(&mut self) -> rusqlite::Result<T>
    where
        Column<T>: FromSql,
    {
        Ok(self.take::<Column<T>>()?.0)
    }

    pub(super) fn optional<T>(&mut self) -> rusqlite::Result<Option<T>>
    where
        Column<T>: FromSql,
    {
        Ok(self.take::<Option<Column<T>>>()?.map(|column| column.0))
    }

    pub(super) fn number(&mut self) -> rusqlite::Result<u64> {
        Ok(self.take::<i64>()?.cast_unsigned())
    }

    fn uri(&mut self, known: &mut KnownUris) -> rusqlite::Result<Uri> {
        known.uri(self.text()?)
    }

    fn optional_uri(&mut self, known: &mut KnownUris) -> rusqlite::Result<Option<Uri>> {
        self.next += 1;
        let text = self.row.get_ref(self.next - 1)?.as_str_or_null()?;
        text.map(|text| known.uri(text)).transpose()
    }

    fn path(&mut self) -> rusqlite::Result<DocumentPath> {
        let mount = MountId(self.take()?);
        let below: Vec<u8> = self.take()?;
        Ok(DocumentPath {
            mount,
            below: Arc::from(below),
        })
    }

    fn stat(&mut self) -> rusqlite::Result<Stat> {
        Ok(Stat {
            size: self.number()?,
            modified: self.value()?,
            changed: self.value()?,
            inode: self.number()?,
        })
    }
}

/// Returns an error for a value that this program did not write.
fn foreign<T>(value: Option<T>) -> rusqlite::Result<T> {
    value.ok_or_else(|| FromSqlError::InvalidType.into())
}

pub(super) fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

fn mount(row: &Row<'_>) -> rusqlite::Result<(MountId, MountRow)> {
    let mut fields = RowReader::of(row);
    let id = MountId(fields.take()?);
    let source = fields.take()?;
    let directory: Vec<u8> = fields.take()?;
    let prefix = fields.value()?;
    let device: Option<i64> = fields.take()?;
    let inode: Option<i64> = fields.take()?;
    let mount = MountRow {
        source,
        directory: PathBuf::from(OsStr::from_bytes(&directory)),
        prefix,
        identity: device.zip(inode).map(|(device, inode)| Identity {
            device: device.cast_unsigned(),
            inode: inode.cast_unsigned(),
        }),
        baselined: fields.take()?,
        held_document: fields.take()?,
        swept: fields.optional()?,
        candidates: candidates(fields.take()?, fields.take()?),
        nested: BTreeMap::new(),
    };
    Ok((id, mount))
}

fn nested_file_system(row: &Row<'_>) -> rusqlite::Result<(MountId, Arc<[u8]>, NestedRow)> {
    let mut fields = RowReader::of(row);
    let id = MountId(fields.take()?);
    let below: Vec<u8> = fields.take()?;
    let device: Option<i64> = fields.take()?;
    let nested = NestedRow {
        device: device.map(i64::cast_unsigned),
        is_link: fields.take()?,
        is_away: fields.take()?,
    };
    Ok((id, below.into(), nested))
}

/// Returns none before the first sweep, or for a row that was edited.
fn candidates(include: Option<String>, exclude: Option<String>) -> Option<Candidates> {
    let globs = |column: Option<String>| serde_json::from_str(&column?).ok();
    Candidates::new(globs(include)?, globs(exclude)?).ok()
}

fn document(row: &Row<'_>, known: &mut KnownUris) -> rusqlite::Result<(Uri, Record)> {
    let mut fields = RowReader::of(row);
    let uri = fields.uri(known)?;
    let record = Record {
        path: fields.path()?,
        stat: fields.stat()?,
        version: Version {
            capability: fields.value()?,
            form: fields.value()?,
            fingerprint: fields.value()?,
        },
        up: fields.optional_uri(known)?,
        named_index: fields.optional_uri(known)?,
        named_index_form: fields.optional()?,
        newly_indexed: fields.take()?,
        changed: fields.value()?,
        looked: fields.value()?,
        presence: match (fields.text()?, fields.optional()?) {
            ("missing", Some(since)) => Presence::Missing {
                since,
                approved: false,
            },
            ("approved", Some(since)) => Presence::Missing {
                since,
                approved: true,
            },
            ("gone", Some(since)) => Presence::Gone { since },
            _ => Presence::Present,
        },
        hold: match (fields.text()?, fields.optional()?) {
            ("waiting", Some(since)) => Hold::Waiting { since },
            ("expired", _) => Hold::Expired,
            _ => Hold::Free,
        },
        relations: Relations {
            index: fields.optional_uri(known)?,
            sets: sets(fields.text()?, known)?,
            archived: fields.take()?,
        },
        is_new_set: fields.take()?,
    };
    Ok((uri, record))
}

fn sets(json: &str, known: &mut KnownUris) -> rusqlite::Result<SmallSet<Uri>> {
    let sets: Vec<String> = foreign(serde_json::from_str(json).ok())?;
    sets.iter().map(|set| known.uri(set)).collect()
}

fn other(row: &Row<'_>) -> rusqlite::Result<(DocumentPath, (Stat, Timestamp))> {
    let mut fields = RowReader::of(row);
    Ok((fields.path()?, (fields.stat()?, fields.value()?)))
}

fn trouble(row: &Row<'_>) -> rusqlite::Result<(Uri, Trouble)> {
    let mut fields = RowReader::of(row);
    let uri = fields.value()?;
    let trouble = Trouble {
        path: fields.path()?,
        since: fields.value()?,
        reason: fields.take()?,
        predates: fields.take()?,
        reported: false,
    };
    Ok((uri, trouble))
}

fn channel(row: &Row<'_>) -> rusqlite::Result<(ChannelId, ChannelRow)> {
    let mut fields = RowReader::of(row);
    let id = ChannelId(fields.number()?);
    let source = fields.take()?;
    let set = fields.value()?;
    let topic = Topic::new(fields.text()?);
    let retired = fields.optional()?;
    let channel = ChannelRow {
        source,
        set,
        topic,
        retired,
        seq: fields.number()?,
        body: shared(fields.take()?),
        said: foreign(said_from_json(fields.text()?))?,
        untils: foreign(times_from_text(fields.text()?))?,
        kind: foreign(kind(fields.text()?))?,
    };
    Ok((id, channel))
}

fn ledger(row: &Row<'_>) -> rusqlite::Result<((ChannelId, Hub), LedgerRow)> {
    let mut fields = RowReader::of(row);
    let key = key(&mut fields)?;
    let limit = fields.take::<Option<i64>>()?.map(count);
    let accepted = fields.optional()?;
    let pinged = fields.optional()?;
    let fetched: Option<bool> = fields.take()?;
    let reported: Option<bool> = fields.take()?;
    let ping = pinged.map(|at| Ping {
        at,
        fetched: fetched.unwrap_or_default(),
        reported: reported.unwrap_or_default(),
    });
    let last = attempt(&mut fields)?;
    let until = fields.optional()?;
    let left = fields.optional()?;
    let still_due = fields.take::<Option<String>>()?;
    let still_due = still_due.map(|json| foreign(uris_from_json(&json)));
    let position = LogPosition {
        heard: fields.number()?,
        entries: count(fields.take()?),
        skipped_to: fields.take::<Option<i64>>()?.map(i64::cast_unsigned),
        last: fields.take::<Option<i64>>()?.map(i64::cast_unsigned),
    };
    let flight = match fields.take::<Option<i64>>()? {
        None => None,
        Some(seq) => {
            let mut flight = Flight {
                seq: seq.cast_unsigned(),
                body: shared(fields.take()?),
                part: None,
                entries: count(fields.take()?),
                covers: foreign(covers_from_json(fields.text()?))?,
                cut: fields.value()?,
                attempts: fields.take()?,
                next_try: fields.value()?,
                until: fields.optional()?,
            };
            flight.part = part(&mut fields, flight.entries)?;
            Some(flight)
        }
    };
    let ledger = LedgerRow {
        flight,
        until,
        left,
        still_due: still_due.transpose()?,
        limit,
        accepted,
        ping,
        last,
        position,
    };
    Ok((key, ledger))
}

fn attempt(fields: &mut RowReader<'_>) -> rusqlite::Result<Option<Attempt>> {
    let at = fields.optional()?;
    let seq: Option<i64> = fields.take()?;
    let status = fields.take()?;
    let excerpt: Option<String> = fields.take()?;
    let kind = fields.optional()?;
    let reason: Option<String> = fields.take()?;
    let needs_operator: Option<bool> = fields.take()?;
    let refusal = kind.map(|kind| Refusal {
        kind,
        reason: reason.unwrap_or_default(),
        needs_operator: needs_operator.unwrap_or_default(),
    });
    Ok(at.zip(seq).map(|(at, seq)| Attempt {
        at,
        seq: seq.cast_unsigned(),
        status,
        excerpt: excerpt.unwrap_or_default(),
        refusal,
    }))
}

fn key(fields: &mut RowReader<'_>) -> rusqlite::Result<(ChannelId, Hub)> {
    Ok((ChannelId(fields.number()?), Hub::new(fields.text()?)))
}

fn known_hub(row: &Row<'_>) -> rusqlite::Result<(Hub, KnownHub)> {
    let mut fields = RowReader::of(row);
    let hub = Hub::new(fields.text()?);
    let known = KnownHub {
        mode: fields.value()?,
        is_configured: fields.take()?,
    };
    Ok((hub, known))
}

fn told_row(row: &Row<'_>, known: &mut KnownUris) -> rusqlite::Result<(ChannelId, Hub, Uri, Told)> {
    let mut fields = RowReader::of(row);
    let (channel, hub) = key(&mut fields)?;
    let uri = fields.uri(known)?;
    let told = Told {
        capability: fields.value()?,
        form: fields.value()?,
        fingerprint: fields.optional()?,
    };
    Ok((channel, hub, uri, told))
}

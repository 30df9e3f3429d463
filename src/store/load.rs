//! Reads the whole state at start.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::FromSqlError;

use crate::announce::delivery::ChannelId;
use crate::announce::observation::{DocumentPath, Identity, MountId, Stat};
use crate::announce::state::{
    ChannelRow, Flight, Hold, LedgerRow, MountRow, Ping, Presence, Record, Relations, Retirement,
    State, Told, Trouble, Version,
};
use crate::resourcesync::fingerprint;
use crate::resourcesync::uri::{Hub, Topic, Uri};
use crate::store::row::{Column, covers_from_json, said_from_json, shared, uris_from_json};
use crate::store::{Store, StoreError};

impl Store {
    /// Everything that was saved, but for the embedded hub's part.
    pub fn load(&self) -> Result<State, StoreError> {
        self.read().map_err(|source| StoreError::Load {
            path: self.path.clone(),
            source,
        })
    }

    fn read(&self) -> rusqlite::Result<State> {
        // A daemon may be writing meanwhile: one transaction sees one state.
        let _one_state = self.connection.unchecked_transaction()?;
        let mut told: BTreeMap<(ChannelId, Hub), BTreeMap<Uri, Told>> = BTreeMap::new();
        for (channel, hub, uri, row) in self.rows("SELECT * FROM told", told_row)? {
            told.entry((channel, hub)).or_default().insert(uri, row);
        }
        Ok(State {
            mounts: self
                .rows("SELECT * FROM mounts", mount)?
                .into_iter()
                .collect(),
            documents: self
                .rows("SELECT * FROM documents", document)?
                .into_iter()
                .collect(),
            others: self
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
        })
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

/// A value that this program did not write.
fn foreign<T>(value: Option<T>) -> rusqlite::Result<T> {
    value.ok_or_else(|| FromSqlError::InvalidType.into())
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

fn time(row: &Row<'_>, name: &str) -> rusqlite::Result<Timestamp> {
    Ok(row.get::<_, Column<Timestamp>>(name)?.0)
}

fn optional_time(row: &Row<'_>, name: &str) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row
        .get::<_, Option<Column<Timestamp>>>(name)?
        .map(|column| column.0))
}

fn uri(row: &Row<'_>, name: &str) -> rusqlite::Result<Uri> {
    Ok(row.get::<_, Column<Uri>>(name)?.0)
}

fn optional_uri(row: &Row<'_>, name: &str) -> rusqlite::Result<Option<Uri>> {
    Ok(row
        .get::<_, Option<Column<Uri>>>(name)?
        .map(|column| column.0))
}

fn path(row: &Row<'_>) -> rusqlite::Result<DocumentPath> {
    let below: Vec<u8> = row.get("path")?;
    Ok(DocumentPath {
        mount: MountId(row.get("mount")?),
        below: Arc::from(below),
    })
}

fn stat(row: &Row<'_>) -> rusqlite::Result<Stat> {
    Ok(Stat {
        size: row.get::<_, i64>("size")?.cast_unsigned(),
        modified: time(row, "modified")?,
        changed: time(row, "changed")?,
        inode: row.get::<_, i64>("inode")?.cast_unsigned(),
    })
}

fn mount(row: &Row<'_>) -> rusqlite::Result<(MountId, MountRow)> {
    let directory: Vec<u8> = row.get("directory")?;
    let device: Option<i64> = row.get("device")?;
    let inode: Option<i64> = row.get("inode")?;
    let mount = MountRow {
        source: row.get("source")?,
        directory: PathBuf::from(OsStr::from_bytes(&directory)),
        prefix: uri(row, "prefix")?,
        identity: device.zip(inode).map(|(device, inode)| Identity {
            device: device.cast_unsigned(),
            inode: inode.cast_unsigned(),
        }),
        baselined: row.get("baselined")?,
        held_document: row.get("held_document")?,
        swept: optional_time(row, "swept")?,
    };
    Ok((MountId(row.get("id")?), mount))
}

fn document(row: &Row<'_>) -> rusqlite::Result<(Uri, Record)> {
    let absent_since = optional_time(row, "absent_since")?;
    let presence = match (row.get_ref("presence")?.as_str()?, absent_since) {
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
    };
    let hold = match (
        row.get_ref("hold")?.as_str()?,
        optional_time(row, "held_since")?,
    ) {
        ("waiting", Some(since)) => Hold::Waiting { since },
        ("expired", _) => Hold::Expired,
        _ => Hold::Free,
    };
    let record = Record {
        path: path(row)?,
        stat: stat(row)?,
        version: Version {
            capability: row.get::<_, Column<_>>("capability")?.0,
            form: row.get::<_, Column<_>>("form")?.0,
            fingerprint: row.get::<_, Column<_>>("fingerprint")?.0,
        },
        outdated: row.get::<_, u32>("fingerprint_version")? != fingerprint::VERSION,
        up: optional_uri(row, "up")?,
        named_index: optional_uri(row, "named_index")?,
        named_index_form: row
            .get::<_, Option<Column<_>>>("named_index_form")?
            .map(|column| column.0),
        newly_indexed: row.get("newly_indexed")?,
        changed: time(row, "since")?,
        looked: time(row, "looked")?,
        presence,
        hold,
        relations: Relations {
            index: optional_uri(row, "in_index")?,
            sets: foreign(uris_from_json(row.get_ref("in_sets")?.as_str()?))?,
            archived: row.get("archived")?,
        },
    };
    Ok((uri(row, "uri")?, record))
}

fn other(row: &Row<'_>) -> rusqlite::Result<(DocumentPath, (Stat, Timestamp))> {
    Ok((path(row)?, (stat(row)?, time(row, "looked")?)))
}

fn trouble(row: &Row<'_>) -> rusqlite::Result<(Uri, Trouble)> {
    let trouble = Trouble {
        path: path(row)?,
        since: time(row, "since")?,
        reason: row.get("reason")?,
        predates: row.get("predates")?,
        reported: false,
    };
    Ok((uri(row, "uri")?, trouble))
}

fn channel(row: &Row<'_>) -> rusqlite::Result<(ChannelId, ChannelRow)> {
    let last_words: Option<String> = row.get("last_words")?;
    let retired = match (optional_time(row, "retired")?, last_words) {
        (Some(since), Some(last_words)) => Some(Retirement {
            since,
            last_words: foreign(uris_from_json(&last_words))?,
        }),
        _ => None,
    };
    let channel = ChannelRow {
        source: row.get("source")?,
        set: uri(row, "capability_list")?,
        topic: Topic::new(row.get::<_, String>("topic")?),
        retired,
        seq: row.get::<_, i64>("seq")?.cast_unsigned(),
        until: optional_time(row, "until")?,
        body: shared(row.get("body")?),
        said: foreign(said_from_json(row.get_ref("said")?.as_str()?))?,
    };
    Ok((ChannelId(row.get::<_, i64>("id")?.cast_unsigned()), channel))
}

fn key(row: &Row<'_>) -> rusqlite::Result<(ChannelId, Hub)> {
    let channel = ChannelId(row.get::<_, i64>("channel")?.cast_unsigned());
    Ok((channel, Hub::new(row.get::<_, String>("hub")?)))
}

fn ledger(row: &Row<'_>) -> rusqlite::Result<((ChannelId, Hub), LedgerRow)> {
    let flight = match row.get::<_, Option<i64>>("seq")? {
        None => None,
        Some(seq) => Some(Flight {
            seq: seq.cast_unsigned(),
            body: shared(row.get("body")?),
            entries: count(row.get("entries")?),
            covers: foreign(covers_from_json(row.get_ref("covers")?.as_str()?))?,
            cut: time(row, "cut")?,
            attempts: row.get("attempts")?,
            next_try: time(row, "next_try")?,
            last_failure: row.get("last_failure")?,
        }),
    };
    let ping = match optional_time(row, "pinged")? {
        None => None,
        Some(at) => Some(Ping {
            at,
            fetched: row.get("fetched")?,
            reported: row.get("silence_reported")?,
        }),
    };
    let ledger = LedgerRow {
        flight,
        limit: row.get::<_, Option<i64>>("max_entries")?.map(count),
        accepted: optional_time(row, "accepted")?,
        ping,
    };
    Ok((key(row)?, ledger))
}

fn told_row(row: &Row<'_>) -> rusqlite::Result<(ChannelId, Hub, Uri, Told)> {
    let (channel, hub) = key(row)?;
    let told = Told {
        capability: row.get::<_, Column<_>>("capability")?.0,
        form: row.get::<_, Column<_>>("form")?.0,
        fingerprint: row
            .get::<_, Option<Column<_>>>("fingerprint")?
            .map(|column| column.0),
    };
    Ok((channel, hub, uri(row, "uri")?, told))
}

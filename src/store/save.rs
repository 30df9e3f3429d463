//! The changes of one step, saved in one transaction.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::uri::{Hub, Uri};
use rusqlite::{Statement, Transaction, params};
use websub::hub::{HubRecord, Relay};

use crate::announce::candidates::Candidates;
use crate::announce::ids::ChannelId;
use crate::announce::observation::{DocumentPath, Stat};
use crate::announce::state::{
    ChannelRow, Flight, Hold, KnownHub, LedgerRow, MountRow, Presence, Record, Save, Trouble,
};
use crate::store::changes::write_changes;
use crate::store::hub::{write_record, write_relay};
use crate::store::row::{Column, covers_to_json, said_to_json, times_to_text, uris_to_json};
use crate::store::{SCHEMA_VERSION, Store, StoreError};

/// Free pages that the file keeps, for what is saved next: 4 MiB.
const KEPT_PAGES: i64 = 1_024;
/// Free pages that are given back at once: 1 MiB.
const PAGES_AT_ONCE: i64 = 256;

impl Store {
    /// Commits the engine's changes, the embedded hub's records and the notifications to relay; durable when it returns.
    /// After an error nothing of it is written.
    pub fn save(
        &mut self,
        save: &Save,
        records: &[HubRecord],
        relays: &[Relay],
    ) -> Result<(), StoreError> {
        self.check()?;
        self.sync_commits(true)
            .and_then(|()| self.write(save, records, relays))
            .map_err(|source| self.save_error(source))
    }

    /// Commits the engine's changes as [`Store::save`] does, without waiting for the disk: until the next
    /// [`Store::save`] they survive the end of this process, and not a power failure, which leaves the state as it was
    /// before them.
    pub fn save_unsynced(&mut self, save: &Save) -> Result<(), StoreError> {
        self.check()?;
        self.sync_commits(false)
            .and_then(|()| self.write(save, &[], &[]))
            .map_err(|source| self.save_error(source))
    }

    /// Sets whether commits wait for the disk. A write-ahead log is consistent either way.
    fn sync_commits(&mut self, are_synced: bool) -> rusqlite::Result<()> {
        if self.are_commits_synced != are_synced {
            let synchronous = if are_synced { "FULL" } else { "NORMAL" };
            self.connection
                .pragma_update(None, "synchronous", synchronous)?;
            self.are_commits_synced = are_synced;
        }
        Ok(())
    }

    fn save_error(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Save {
            path: self.path.clone(),
            source,
        }
    }

    /// Checks that the state file can be written, by writing a value that it has already, with a sync. An empty transaction
    /// would only test the lock.
    pub fn probe(&mut self) -> Result<(), StoreError> {
        self.check()?;
        self.sync_commits(true)
            .and_then(|()| {
                self.connection
                    .pragma_update(None, "user_version", SCHEMA_VERSION)
            })
            .map_err(|source| self.save_error(source))
    }

    /// Gives pages that became free back to the file system, a few at a time. Returns true if there are more. An error
    /// is left to the next save, which has it too.
    pub fn shrink(&mut self) -> bool {
        self.give_back().unwrap_or(false)
    }

    fn give_back(&mut self) -> rusqlite::Result<bool> {
        let free: i64 = self
            .connection
            .pragma_query_value(None, "freelist_count", |row| row.get(0))?;
        if free <= KEPT_PAGES {
            return Ok(false);
        }
        self.sync_commits(false)?;
        // It gives back one page for each row.
        let pages = format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})");
        let mut statement = self.connection.prepare_cached(&pages)?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        let is_more = free - PAGES_AT_ONCE > KEPT_PAGES;
        if !is_more {
            // Only a checkpoint makes the file smaller.
            self.connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        }
        Ok(is_more)
    }

    fn write(
        &mut self,
        save: &Save,
        records: &[HubRecord],
        relays: &[Relay],
    ) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        if let Some(now) = save.clock {
            transaction
                .prepare_cached("INSERT OR REPLACE INTO clock VALUES (1, ?1)")?
                .execute([Column(now)])?;
        }
        for (id, hub) in &save.ended_accounts {
            write_ledger(&transaction, *id, hub, None)?;
        }
        for (id, row) in &save.mounts {
            write_mount(&transaction, id.0, row.as_ref())?;
        }
        write_documents(&transaction, &save.documents)?;
        write_other_files(&transaction, &save.other_files)?;
        for (uri, trouble) in &save.troubles {
            write_trouble(&transaction, uri, trouble.as_ref())?;
        }
        for (id, row) in &save.channels {
            write_channel(&transaction, *id, row.as_ref())?;
        }
        for ((id, hub), row) in &save.ledgers {
            if !matches!(save.channels.get(id), Some(None)) {
                write_ledger(&transaction, *id, hub, row.as_ref())?;
            }
        }
        write_told(&transaction, save)?;
        for (hub, known) in &save.hubs {
            write_known_hub(&transaction, hub, *known)?;
        }
        write_changes(&transaction, save)?;
        for relay in relays {
            write_relay(&transaction, relay)?;
        }
        for record in records {
            write_record(&transaction, record)?;
        }
        transaction.commit()
    }
}

fn write_mount(on: &Transaction<'_>, id: u32, row: Option<&MountRow>) -> rusqlite::Result<()> {
    on.prepare_cached("DELETE FROM nested_file_systems WHERE mount = ?1")?
        .execute([id])?;
    let Some(row) = row else {
        on.execute("DELETE FROM others WHERE mount = ?1", [id])?;
        on.execute("DELETE FROM mounts WHERE id = ?1", [id])?;
        return Ok(());
    };
    let globs = |of: fn(&Candidates) -> &[String]| {
        let candidates = row.candidates.as_ref();
        candidates.map(|candidates| serde_json::json!(of(candidates)).to_string())
    };
    on.prepare_cached(
        "INSERT OR REPLACE INTO mounts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        id,
        row.source,
        row.directory.as_os_str().as_bytes(),
        row.prefix.as_str(),
        row.identity.map(|identity| identity.device.cast_signed()),
        row.identity.map(|identity| identity.inode.cast_signed()),
        row.baselined,
        row.held_document,
        row.swept.map(Column),
        globs(Candidates::include),
        globs(Candidates::exclude),
    ])?;
    for (below, nested) in &row.nested {
        on.prepare_cached("INSERT INTO nested_file_systems VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![
                id,
                &below[..],
                nested.device.map(u64::cast_signed),
                nested.is_link,
                nested.is_away,
            ])?;
    }
    Ok(())
}

fn write_documents(
    on: &Transaction<'_>,
    documents: &BTreeMap<Uri, Option<Arc<Record>>>,
) -> rusqlite::Result<()> {
    if documents.is_empty() {
        return Ok(());
    }
    let mut delete = on.prepare_cached("DELETE FROM documents WHERE uri = ?1")?;
    let mut replace = on.prepare_cached(
        "INSERT OR REPLACE INTO documents VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, \
         ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)",
    )?;
    for (uri, record) in documents {
        match record {
            Some(record) => write_document(&mut replace, uri, record)?,
            None => {
                delete.execute([uri.as_str()])?;
            }
        }
    }
    Ok(())
}

fn write_document(replace: &mut Statement<'_>, uri: &Uri, record: &Record) -> rusqlite::Result<()> {
    let (presence, absent_since) = match record.presence {
        Presence::Present => ("present", None),
        Presence::Missing {
            since,
            approved: false,
        } => ("missing", Some(since)),
        Presence::Missing {
            since,
            approved: true,
        } => ("approved", Some(since)),
        Presence::Gone { since } => ("gone", Some(since)),
    };
    let (hold, held_since) = match record.hold {
        Hold::Free => ("free", None),
        Hold::Waiting { since } => ("waiting", Some(since)),
        Hold::Expired => ("expired", None),
    };
    replace.execute(params![
        uri.as_str(),
        record.path.mount.0,
        &record.path.below[..],
        record.stat.size.cast_signed(),
        Column(record.stat.modified),
        Column(record.stat.changed),
        record.stat.inode.cast_signed(),
        Column(record.version.capability),
        Column(record.version.form),
        Column(record.version.fingerprint),
        record.up.as_ref().map(Uri::as_str),
        record.named_index.as_ref().map(Uri::as_str),
        record.named_index_form.map(Column),
        record.newly_indexed,
        Column(record.changed),
        Column(record.looked),
        presence,
        absent_since.map(Column),
        hold,
        held_since.map(Column),
        record.relations.index.as_ref().map(Uri::as_str),
        uris_to_json(&record.relations.sets),
        record.relations.archived,
        record.is_new_set,
    ])?;
    Ok(())
}

fn write_other_files(
    on: &Transaction<'_>,
    other_files: &BTreeMap<DocumentPath, Option<(Stat, Timestamp)>>,
) -> rusqlite::Result<()> {
    if other_files.is_empty() {
        return Ok(());
    }
    let mut delete = on.prepare_cached("DELETE FROM others WHERE mount = ?1 AND path = ?2")?;
    let mut replace =
        on.prepare_cached("INSERT OR REPLACE INTO others VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    for (path, other) in other_files {
        let (mount, below) = (path.mount.0, &path.below[..]);
        match other {
            Some((stat, looked)) => replace.execute(params![
                mount,
                below,
                stat.size.cast_signed(),
                Column(stat.modified),
                Column(stat.changed),
                stat.inode.cast_signed(),
                Column(*looked),
            ])?,
            None => delete.execute(params![mount, below])?,
        };
    }
    Ok(())
}

fn write_trouble(
    on: &Transaction<'_>,
    uri: &Uri,
    trouble: Option<&Trouble>,
) -> rusqlite::Result<()> {
    let Some(trouble) = trouble else {
        on.prepare_cached("DELETE FROM troubles WHERE uri = ?1")?
            .execute([uri.as_str()])?;
        return Ok(());
    };
    on.prepare_cached("INSERT OR REPLACE INTO troubles VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![
            uri.as_str(),
            trouble.path.mount.0,
            &trouble.path.below[..],
            Column(trouble.since),
            trouble.reason,
            trouble.predates,
        ])?;
    Ok(())
}

fn write_channel(
    on: &Transaction<'_>,
    id: ChannelId,
    row: Option<&ChannelRow>,
) -> rusqlite::Result<()> {
    let Some(row) = row else {
        on.execute("DELETE FROM channels WHERE id = ?1", [id.0.cast_signed()])?;
        return Ok(());
    };
    on.prepare_cached(
        "INSERT INTO channels VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
         ON CONFLICT (id) DO UPDATE SET source = excluded.source, \
         capability_list = excluded.capability_list, retired = excluded.retired, \
         seq = excluded.seq, body = excluded.body, \
         said = excluded.said, untils = excluded.untils",
    )?
    .execute(params![
        id.0.cast_signed(),
        row.source,
        row.set.as_str(),
        row.topic.as_str(),
        row.retired.map(Column),
        row.seq.cast_signed(),
        &row.body[..],
        said_to_json(&row.said),
        times_to_text(&row.untils),
        row.kind.as_str(),
    ])?;
    Ok(())
}

fn write_ledger(
    on: &Transaction<'_>,
    id: ChannelId,
    hub: &Hub,
    row: Option<&LedgerRow>,
) -> rusqlite::Result<()> {
    let id = id.0.cast_signed();
    let Some(row) = row else {
        on.execute(
            "DELETE FROM ledgers WHERE channel = ?1 AND hub = ?2",
            params![id, hub.as_str()],
        )?;
        return Ok(());
    };
    let last = row.last.as_ref();
    let refusal = last.and_then(|last| last.refusal.as_ref());
    on.prepare_cached(
        "INSERT INTO ledgers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, \
         ?15, ?16, ?17, ?18, ?19, ?20, ?21) \
         ON CONFLICT (channel, hub) DO UPDATE \
         SET max_entries = excluded.max_entries, accepted = excluded.accepted, \
         pinged = excluded.pinged, fetched = excluded.fetched, \
         silence_reported = excluded.silence_reported, tried = excluded.tried, \
         tried_seq = excluded.tried_seq, answer_status = excluded.answer_status, \
         answer = excluded.answer, refusal = excluded.refusal, reason = excluded.reason, \
         needs_operator = excluded.needs_operator, until = excluded.until, \
         left_since = excluded.left_since, still_due = excluded.still_due, heard = excluded.heard, \
         heard_entries = excluded.heard_entries, skipped_to = excluded.skipped_to, \
         last_heard = excluded.last_heard",
    )?
    .execute(params![
        id,
        hub.as_str(),
        row.limit.map(count),
        row.accepted.map(Column),
        row.ping.map(|ping| Column(ping.at)),
        row.ping.map(|ping| ping.fetched),
        row.ping.map(|ping| ping.reported),
        last.map(|last| Column(last.at)),
        last.map(|last| last.seq.cast_signed()),
        last.and_then(|last| last.status),
        last.map(|last| &last.excerpt),
        refusal.map(|refusal| refusal.kind.as_str()),
        refusal.map(|refusal| &refusal.reason),
        refusal.map(|refusal| refusal.needs_operator),
        row.until.map(Column),
        row.left.map(Column),
        row.still_due.as_ref().map(uris_to_json),
        row.position.heard.cast_signed(),
        count(row.position.entries),
        row.position.skipped_to.map(u64::cast_signed),
        row.position.last.map(u64::cast_signed),
    ])?;
    match &row.flight {
        Some(flight) => write_flight(on, id, hub, flight),
        None => {
            on.prepare_cached("DELETE FROM in_flight WHERE channel = ?1 AND hub = ?2")?
                .execute(params![id, hub.as_str()])?;
            Ok(())
        }
    }
}

fn write_flight(on: &Transaction<'_>, id: i64, hub: &Hub, flight: &Flight) -> rusqlite::Result<()> {
    // A notification is immutable: a retry changes no more than this.
    let changed = on
        .prepare_cached(
            "UPDATE in_flight SET attempts = ?4, next_try = ?5, cut = ?6, until = ?9 \
             WHERE channel = ?1 AND hub = ?2 AND seq = ?3 AND part_first IS ?7 AND entries = ?8",
        )?
        .execute(params![
            id,
            hub.as_str(),
            flight.seq.cast_signed(),
            flight.attempts,
            Column(flight.next_try),
            Column(flight.cut),
            flight.part.map(|part| count(part.range.start())),
            count(flight.entries),
            flight.until.map(Column),
        ])?;
    if changed > 0 {
        return Ok(());
    }
    on.prepare_cached(
        "INSERT INTO in_flight VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
         ON CONFLICT (channel, hub) DO UPDATE SET seq = excluded.seq, body = excluded.body, \
         entries = excluded.entries, covers = excluded.covers, cut = excluded.cut, \
         attempts = excluded.attempts, next_try = excluded.next_try, until = excluded.until, \
         part_first = excluded.part_first, part_whole = excluded.part_whole, part_bytes = excluded.part_bytes",
    )?
    .execute(params![
        id,
        hub.as_str(),
        flight.seq.cast_signed(),
        &flight.body[..],
        count(flight.entries),
        covers_to_json(&flight.covers),
        Column(flight.cut),
        flight.attempts,
        Column(flight.next_try),
        flight.until.map(Column),
        flight.part.map(|part| count(part.range.start())),
        flight.part.map(|part| part.range.is_whole()),
        flight.part.map(|part| count(part.bytes)),
    ])?;
    Ok(())
}

fn write_known_hub(on: &Transaction<'_>, hub: &Hub, known: KnownHub) -> rusqlite::Result<()> {
    on.execute(
        "INSERT OR REPLACE INTO hubs VALUES (?1, ?2, ?3)",
        params![hub.as_str(), Column(known.mode), known.is_configured],
    )?;
    Ok(())
}

/// Writes what hubs were told, except on channels and ledgers that are deleted.
fn write_told(on: &Transaction<'_>, save: &Save) -> rusqlite::Result<()> {
    if save.told.is_empty() {
        return Ok(());
    }
    let mut delete =
        on.prepare_cached("DELETE FROM told WHERE channel = ?1 AND hub = ?2 AND uri = ?3")?;
    // Not by REPLACE: with a foreign key, SQLite would copy each page that it changes, for each row.
    let mut replace = on.prepare_cached(
        "INSERT INTO told VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
         ON CONFLICT (channel, hub, uri) DO UPDATE SET capability = excluded.capability, \
         form = excluded.form, fingerprint = excluded.fingerprint",
    )?;
    for ((id, hub, uri), told) in &save.told {
        let is_deleted = matches!(save.channels.get(id), Some(None))
            || matches!(save.ledgers.get(&(*id, hub.clone())), Some(None));
        if is_deleted {
            continue;
        }
        let key = (id.0.cast_signed(), hub.as_str(), uri.as_str());
        match told {
            Some(told) => replace.execute(params![
                key.0,
                key.1,
                key.2,
                Column(told.capability),
                Column(told.form),
                told.fingerprint.map(Column),
            ])?,
            None => delete.execute(key)?,
        };
    }
    Ok(())
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

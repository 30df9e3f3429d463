//! The hubs' part of the state file: subscriptions, the notifications pending for them, and the topics of `rsnotify hub`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use resourcesync::uri::{Topic, Uri};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, Transaction, params};
use websub::hub::publication::{BodyDigest, PublishedTopic};
use websub::hub::{
    Callback, DeliveryProgress, HubRecord, PART_BYTES, PendingRelay, Relay, RelayHeaders, RelayId,
    SavedHub, SavedTopic, StoredRelay, Subscription,
};
use websub::secret::Secret;

use crate::store::row::{Column, shared};
use crate::store::{Store, StoreError};

impl Store {
    /// Loads the verified subscriptions with their progress, and which notifications are pending. No body is read.
    pub fn load_hub(&self) -> Result<SavedHub, StoreError> {
        let read = || {
            Ok(SavedHub {
                subscriptions: self.rows("SELECT * FROM subscriptions", subscription)?,
                topics: self.saved_topics()?,
            })
        };
        read().map_err(|source| self.load_error(source))
    }

    fn saved_topics(&self) -> rusqlite::Result<Vec<SavedTopic>> {
        let mut topics: Vec<SavedTopic> = Vec::new();
        // Read from the index.
        let mut relays = self
            .connection
            .prepare("SELECT topic, id, size FROM relays ORDER BY topic, id")?;
        let mut rows = relays.query([])?;
        while let Some(row) = rows.next()? {
            let topic = row.get_ref("topic")?.as_str()?;
            let relay = PendingRelay {
                id: relay_id(row, "id")?,
                size: row.get::<_, i64>("size")?.cast_unsigned(),
            };
            match topics.last_mut() {
                Some(last) if last.topic.as_str() == topic => last.relays.push(relay),
                _ => topics.push(SavedTopic {
                    topic: Topic::new(topic),
                    relays: vec![relay],
                    last: BodyDigest([0; 32]),
                }),
            }
        }
        let mut digest = self
            .connection
            .prepare("SELECT digest FROM relays WHERE id = ?1")?;
        for topic in &mut topics {
            let last = topic.relays.last().map_or(0, |relay| relay.id.0);
            let found = digest.query_row([last.cast_signed()], |row| row.get(0));
            topic.last = BodyDigest(found?);
        }
        Ok(topics)
    }

    /// Loads the pending notifications with their bodies.
    pub fn load_relays(&self) -> Result<Vec<Relay>, StoreError> {
        let relay = |row: &Row<'_>| {
            let stored = stored_relay(row)?;
            let mut body = stored.beginning.to_vec();
            let mut number = 1;
            while let Some(part) = relay_part(&self.connection, stored.id, number)? {
                body.extend(part);
                number += 1;
            }
            Ok(Relay {
                id: stored.id,
                topic: Topic::new(row.get::<_, String>("topic")?),
                seq: stored.seq,
                body: shared(body),
                headers: stored.headers,
            })
        };
        self.rows("SELECT *, 0 AS previous FROM relays ORDER BY id", relay)
            .map_err(|source| self.load_error(source))
    }

    /// Returns the number in its channel of the pending notification that follows one of the same topic.
    pub fn seq_after(&self, topic: &Topic, heard: RelayId) -> Result<Option<u64>, StoreError> {
        next_relay(&self.connection, topic, heard)
            .map(|relay| relay.map(|relay| relay.seq))
            .map_err(|source| self.load_error(source))
    }

    /// Returns a reader of pending notifications, with a connection of its own.
    pub fn relay_reader(&self) -> RelayConnection {
        RelayConnection {
            path: self.path.clone(),
            connection: Mutex::default(),
        }
    }

    fn load_error(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Load {
            path: self.path.clone(),
            source,
        }
    }
}

/// Reads pending notifications while a daemon writes the state file.
#[derive(Debug)]
pub struct RelayConnection {
    path: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl RelayConnection {
    /// Reads the notification that follows one of the same topic, with the beginning of its body.
    pub fn next(&self, topic: &Topic, heard: RelayId) -> Result<Option<StoredRelay>, StoreError> {
        self.read(|connection| next_relay(connection, topic, heard))
    }

    /// Reads part of a body. The first one comes with the notification.
    pub fn part(&self, id: RelayId, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|connection| relay_part(connection, id, number))
    }

    /// Reads with the open connection; if that fails or finds nothing, with a new one: the file may have been restored
    /// under its name.
    fn read<T>(
        &self,
        read: impl Fn(&Connection) -> rusqlite::Result<Option<T>>,
    ) -> Result<Option<T>, StoreError> {
        let failed = |source| StoreError::Load {
            path: self.path.clone(),
            source,
        };
        let mut open = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = &*open
            && let Ok(Some(found)) = read(connection)
        {
            return Ok(Some(found));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags).map_err(failed)?;
        read(open.insert(connection)).map_err(failed)
    }
}

fn next_relay(
    connection: &Connection,
    topic: &Topic,
    heard: RelayId,
) -> rusqlite::Result<Option<StoredRelay>> {
    connection
        .prepare_cached(
            "SELECT *, (SELECT max(id) FROM relays AS earlier WHERE earlier.topic = ?1 AND earlier.id <= ?2) AS previous \
             FROM relays WHERE topic = ?1 AND id > ?2 ORDER BY id LIMIT 1",
        )?
        .query_row(params![topic.as_str(), heard.0.cast_signed()], stored_relay)
        .optional()
}

fn relay_part(
    connection: &Connection,
    id: RelayId,
    number: u64,
) -> rusqlite::Result<Option<Vec<u8>>> {
    connection
        .prepare_cached("SELECT body FROM relay_parts WHERE relay = ?1 AND part = ?2")?
        .query_row([id.0.cast_signed(), number.cast_signed()], |row| row.get(0))
        .optional()
}

fn relay_id(row: &Row<'_>, column: &str) -> rusqlite::Result<RelayId> {
    Ok(RelayId(row.get::<_, i64>(column)?.cast_unsigned()))
}

/// The word for `rsnotify hub` in the table of the daemon whose state this is; `rsnotify run` leaves it empty.
const KIND: &str = "hub";

impl Store {
    /// Loads the topics that were published in a hub for many Sources.
    pub fn load_published_topics(&self) -> Result<Vec<PublishedTopic>, StoreError> {
        self.rows("SELECT * FROM published_topics", published_topic)
            .map_err(|source| StoreError::Load {
                path: self.path.clone(),
                source,
            })
    }

    /// Marks the state as that of `rsnotify hub`.
    ///
    /// # Errors
    /// It is that of `rsnotify run`, or cannot be written.
    pub fn claim_for_hub(&mut self) -> Result<(), StoreError> {
        if self.has("SELECT 1 FROM daemon")? {
            return Ok(());
        }
        if self.has("SELECT 1 FROM mounts UNION ALL SELECT 1 FROM hubs UNION ALL SELECT 1 FROM subscriptions")? {
            return Err(StoreError::OfRun {
                path: self.path.clone(),
            });
        }
        let claimed = self
            .connection
            .execute("INSERT INTO daemon VALUES (?1)", [KIND]);
        claimed.map(|_| ()).map_err(|source| StoreError::Save {
            path: self.path.clone(),
            source,
        })
    }

    /// Refuses the state of `rsnotify hub`.
    pub fn refuse_of_hub(&self) -> Result<(), StoreError> {
        match self.has("SELECT 1 FROM daemon")? {
            true => Err(StoreError::OfHub {
                path: self.path.clone(),
            }),
            false => Ok(()),
        }
    }

    fn has(&self, query: &str) -> Result<bool, StoreError> {
        let found = self
            .connection
            .prepare(query)
            .and_then(|mut statement| statement.exists([]));
        found.map_err(|source| StoreError::Load {
            path: self.path.clone(),
            source,
        })
    }
}

fn published_topic(row: &Row<'_>) -> rusqlite::Result<PublishedTopic> {
    let digest: Option<[u8; 32]> = row.get("digest")?;
    Ok(PublishedTopic {
        topic: Topic::new(row.get::<_, String>("topic")?),
        publisher: row.get("publisher")?,
        seq: row.get::<_, i64>("seq")?.cast_unsigned(),
        digest: digest.map(BodyDigest),
        published: row.get::<_, Column<Timestamp>>("published")?.0,
        etag: row.get("etag")?,
        pinged: row
            .get::<_, Option<Column<Timestamp>>>("pinged")?
            .map(|column| column.0),
    })
}

fn subscription(row: &Row<'_>) -> rusqlite::Result<(Subscription, DeliveryProgress)> {
    let subscription = Subscription {
        topic: Topic::new(row.get::<_, String>("topic")?),
        callback: Callback::new(row.get::<_, String>("callback")?),
        secret: row.get::<_, Option<String>>("secret")?.map(Secret::new),
        expires: row.get::<_, Column<Timestamp>>("expires")?.0,
    };
    let progress = DeliveryProgress {
        heard: RelayId(row.get::<_, i64>("heard")?.cast_unsigned()),
        attempts: row.get("attempts")?,
        next_try: row
            .get::<_, Option<Column<Timestamp>>>("next_try")?
            .map(|column| column.0),
    };
    Ok((subscription, progress))
}

fn stored_relay(row: &Row<'_>) -> rusqlite::Result<StoredRelay> {
    let list = row.get::<_, Option<String>>("capability_list")?;
    let previous = row.get::<_, Option<i64>>("previous")?;
    Ok(StoredRelay {
        id: relay_id(row, "id")?,
        previous: RelayId(previous.unwrap_or(0).cast_unsigned()),
        seq: row.get::<_, i64>("seq")?.cast_unsigned(),
        headers: RelayHeaders {
            content_type: row.get("content_type")?,
            capability_list: list.and_then(|list| Uri::parse(&list).ok()),
        },
        size: row.get::<_, i64>("size")?.cast_unsigned(),
        beginning: shared(row.get("beginning")?),
    })
}

pub(super) fn write_record(on: &Transaction<'_>, record: &HubRecord) -> rusqlite::Result<()> {
    match record {
        HubRecord::Subscribed(subscription, heard) => {
            on.prepare_cached(
                "INSERT INTO subscriptions (topic, callback, secret, expires, heard) VALUES (?1, ?2, ?3, ?4, ?5) \
                 ON CONFLICT (topic, callback) DO UPDATE SET secret = excluded.secret, expires = excluded.expires",
            )?
            .execute(params![
                subscription.topic.as_str(),
                subscription.callback.as_str(),
                subscription.secret.as_ref().map(Secret::reveal),
                Column(subscription.expires),
                heard.0.cast_signed(),
            ])?;
        }
        HubRecord::Unsubscribed(key) => {
            on.prepare_cached("DELETE FROM subscriptions WHERE topic = ?1 AND callback = ?2")?
                .execute([key.topic.as_str(), key.callback.as_str()])?;
        }
        HubRecord::Progressed(key, progress) => {
            on.prepare_cached(
                "UPDATE subscriptions SET heard = ?3, attempts = ?4, next_try = ?5 WHERE topic = ?1 AND callback = ?2",
            )?
            .execute(params![
                key.topic.as_str(),
                key.callback.as_str(),
                progress.heard.0.cast_signed(),
                progress.attempts,
                progress.next_try.map(Column),
            ])?;
        }
        HubRecord::Published(published) => write_published(on, published)?,
        HubRecord::Forgotten(topic) => {
            on.prepare_cached("DELETE FROM published_topics WHERE topic = ?1")?
                .execute([topic.as_str()])?;
        }
        HubRecord::Ended(topic, last) => {
            on.prepare_cached("DELETE FROM relays WHERE topic = ?1 AND id <= ?2")?
                .execute(params![topic.as_str(), last.0.cast_signed()])?;
        }
    }
    Ok(())
}

fn write_published(on: &Transaction<'_>, published: &PublishedTopic) -> rusqlite::Result<()> {
    // A field that is added cannot be forgotten here.
    let PublishedTopic {
        topic,
        publisher,
        seq,
        digest,
        published,
        etag,
        pinged,
    } = published;
    on.prepare_cached(
        "INSERT OR REPLACE INTO published_topics VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        topic.as_str(),
        publisher,
        seq.cast_signed(),
        digest.map(|BodyDigest(digest)| digest),
        Column(*published),
        etag,
        pinged.map(Column),
    ])?;
    Ok(())
}

pub(super) fn write_relay(on: &Transaction<'_>, relay: &Relay) -> rusqlite::Result<()> {
    let RelayHeaders {
        content_type,
        capability_list,
    } = &relay.headers;
    let mut parts = relay.body.chunks(PART_BYTES);
    on.prepare_cached("INSERT INTO relays VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?
        .execute(params![
            relay.id.0.cast_signed(),
            relay.topic.as_str(),
            relay.seq.cast_signed(),
            content_type,
            capability_list.as_ref().map(Uri::as_str),
            (relay.body.len() as u64).cast_signed(),
            BodyDigest::of(&relay.body).0,
            parts.next().unwrap_or_default(),
        ])?;
    for (number, part) in (1_i64..).zip(parts) {
        on.prepare_cached("INSERT INTO relay_parts VALUES (?1, ?2, ?3)")?
            .execute(params![relay.id.0.cast_signed(), number, part])?;
    }
    Ok(())
}

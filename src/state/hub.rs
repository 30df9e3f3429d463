//! The hubs' rows: subscriptions, the notifications pending for them, and the topics of `rsnotify hub`.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use resourcesync::uri::{Topic, Uri};
use rusqlite::{Connection, params};
use websub::hub::publication::{BodyDigest, PublishedTopic};
use websub::hub::{
    Callback, DeliveryProgress, HubRecord, PART_BYTES, PendingRelay, Relay, RelayHeaders, RelayId,
    SavedHub, SavedTopic, StoredRelay, Subscription,
};
use websub::secret::Secret;

use crate::state::open::read_only;
use crate::state::{Columns, Db, Result, Sql};

/// Loads what a hub starts with, as [`load`] does, by a connection of its own: the pages that it read are not kept.
pub fn load_from(path: &Path) -> Result<SavedHub> {
    load(Db(&read_only(path)?))
}

/// Loads the verified subscriptions with their progress, and which notifications are pending. No body is read.
pub fn load(db: Db<'_>) -> Result<SavedHub> {
    // Subscriptions to a topic share its name in memory.
    let mut topic = Topic::new("");
    let subscriptions = db.all(
        "SELECT topic, callback, secret, expires, heard, attempts, next_try FROM subscription \
         ORDER BY topic, callback",
        [],
        |row| {
            let of_row: Topic = row.sql()?;
            if of_row != topic {
                topic = of_row;
            }
            let subscription = Subscription {
                topic: topic.clone(),
                callback: Callback::new(row.take::<String>()?),
                secret: row.take::<Option<String>>()?.map(Secret::new),
                expires: row.sql()?,
                requester: None,
            };
            let progress = DeliveryProgress {
                heard: relay_id(row)?,
                attempts: row.take()?,
                next_try: row.option()?,
            };
            Ok((subscription, progress))
        },
    )?;
    let mut topics: Vec<SavedTopic> = Vec::new();
    let relays = db.all(
        "SELECT topic, id, size FROM relay ORDER BY topic, id",
        [],
        |row| {
            let (topic, id): (Topic, RelayId) = (row.sql()?, relay_id(row)?);
            let size = row.take::<i64>()?.cast_unsigned();
            Ok((topic, PendingRelay { id, size }))
        },
    )?;
    for (topic, relay) in relays {
        match topics.last_mut() {
            Some(last) if last.topic == topic => last.relays.push(relay),
            _ => topics.push(SavedTopic {
                topic,
                relays: vec![relay],
                last: BodyDigest([0; 32]),
            }),
        }
    }
    for topic in &mut topics {
        let last = topic.relays.last().map_or(0, |relay| relay.id.0);
        let digest = db.first(
            "SELECT digest FROM relay WHERE id = ?1",
            [last.cast_signed()],
            |row| row.take(),
        )?;
        topic.last = BodyDigest(digest.unwrap_or_default());
    }
    Ok(SavedHub {
        subscriptions,
        topics,
    })
}

/// Loads the pending notifications with their bodies.
pub fn load_relays(db: Db<'_>) -> Result<Vec<Relay>> {
    let stored = db.all(
        "SELECT id, 0, seq, content_type, capability_list, size, beginning, topic FROM relay ORDER BY id",
        [],
        |row| Ok((stored_relay(row)?, row.sql::<Topic>()?)),
    )?;
    let mut relays = Vec::new();
    for (stored, topic) in stored {
        let mut body = stored.beginning.to_vec();
        let mut number = 1;
        while let Some(part) = relay_part(db, stored.id, number)? {
            body.extend(part);
            number += 1;
        }
        relays.push(Relay {
            id: stored.id,
            topic,
            seq: stored.seq,
            body: body.into(),
            headers: stored.headers,
        });
    }
    Ok(relays)
}

/// Loads the topics that were published in a hub for many Sources.
pub fn load_published_topics(db: Db<'_>) -> Result<Vec<PublishedTopic>> {
    db.all(
        "SELECT topic, publisher, seq, digest, published, etag, pinged FROM published_topic",
        [],
        |row| {
            Ok(PublishedTopic {
                topic: row.sql()?,
                publisher: row.take()?,
                seq: row.take::<i64>()?.cast_unsigned(),
                digest: row.take::<Option<[u8; 32]>>()?.map(BodyDigest),
                published: row.sql()?,
                etag: row.take()?,
                pinged: row.option()?,
            })
        },
    )
}

/// Returns the number in its channel of the pending notification that follows one of the same topic.
pub fn seq_after(db: Db<'_>, topic: &Topic, heard: RelayId) -> Result<Option<u64>> {
    Ok(next_relay(db, topic, heard)?.map(|relay| relay.seq))
}

/// Reads pending notifications while a daemon writes the state file.
#[derive(Debug)]
pub struct SavedRelays {
    path: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl SavedRelays {
    pub fn new(path: PathBuf) -> SavedRelays {
        SavedRelays {
            path,
            connection: Mutex::default(),
        }
    }

    /// Reads the notification that follows one of the same topic, with the beginning of its body.
    pub fn next(&self, topic: &Topic, heard: RelayId) -> Result<Option<StoredRelay>> {
        self.read(|db| next_relay(db, topic, heard))
    }

    /// Reads part of a body. The first one comes with the notification.
    pub fn part(&self, id: RelayId, number: u64) -> Result<Option<Vec<u8>>> {
        self.read(|db| relay_part(db, id, number))
    }

    /// Reads with the open connection; if that fails or finds nothing, with a new one: the file may have been restored
    /// under its name.
    fn read<T>(&self, read: impl Fn(Db<'_>) -> Result<Option<T>>) -> Result<Option<T>> {
        let mut open = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = &*open
            && let Ok(Some(found)) = read(Db(connection))
        {
            return Ok(Some(found));
        }
        read(Db(open.insert(read_only(&self.path)?)))
    }
}

fn next_relay(db: Db<'_>, topic: &Topic, heard: RelayId) -> Result<Option<StoredRelay>> {
    db.first(
        "SELECT id, (SELECT max(id) FROM relay earlier WHERE earlier.topic = ?1 AND earlier.id <= ?2), seq, content_type, \
         capability_list, size, beginning FROM relay WHERE topic = ?1 AND id > ?2 ORDER BY id LIMIT 1",
        params![Sql(topic), heard.0.cast_signed()],
        stored_relay,
    )
}

fn relay_part(db: Db<'_>, id: RelayId, number: u64) -> Result<Option<Vec<u8>>> {
    db.first(
        "SELECT body FROM relay_part WHERE relay = ?1 AND part = ?2",
        [id.0.cast_signed(), number.cast_signed()],
        |row| row.take(),
    )
}

fn relay_id(row: &mut Columns<'_>) -> rusqlite::Result<RelayId> {
    let id: Option<i64> = row.take()?;
    Ok(RelayId(id.unwrap_or_default().cast_unsigned()))
}

fn stored_relay(row: &mut Columns<'_>) -> rusqlite::Result<StoredRelay> {
    Ok(StoredRelay {
        id: relay_id(row)?,
        previous: relay_id(row)?,
        seq: row.take::<i64>()?.cast_unsigned(),
        headers: RelayHeaders {
            content_type: row.take()?,
            capability_list: row.option::<Uri>()?,
        },
        size: row.take::<i64>()?.cast_unsigned(),
        beginning: row.bytes()?,
    })
}

/// Writes changes of the hub, in their order, and then the notifications that it is to relay.
pub fn write(db: Db<'_>, records: &[HubRecord], relays: &[Relay]) -> Result<()> {
    for record in records {
        write_record(db, record)?;
    }
    relays.iter().try_for_each(|relay| write_relay(db, relay))
}

fn write_record(db: Db<'_>, record: &HubRecord) -> Result<()> {
    match record {
        HubRecord::Subscribed(subscription, heard) => db.run(
            "INSERT INTO subscription (topic, callback, secret, expires, heard) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT (topic, callback) DO UPDATE SET secret = excluded.secret, expires = excluded.expires",
            params![
                Sql(&subscription.topic),
                subscription.callback.as_str(),
                subscription.secret.as_ref().map(Secret::reveal),
                Sql(subscription.expires),
                heard.0.cast_signed(),
            ],
        ),
        HubRecord::Unsubscribed(key) => db.run(
            "DELETE FROM subscription WHERE topic = ?1 AND callback = ?2",
            [key.topic.as_str(), key.callback.as_str()],
        ),
        HubRecord::Progressed(key, progress) => db.run(
            "UPDATE subscription SET heard = ?3, attempts = ?4, next_try = ?5 WHERE topic = ?1 AND callback = ?2",
            params![
                key.topic.as_str(),
                key.callback.as_str(),
                progress.heard.0.cast_signed(),
                progress.attempts,
                progress.next_try.map(Sql),
            ],
        ),
        HubRecord::Published(published) => write_published(db, published),
        HubRecord::Forgotten(topic) => {
            db.run("DELETE FROM published_topic WHERE topic = ?1", [Sql(topic)])
        }
        HubRecord::Ended(topic, last) => db.run(
            "DELETE FROM relay WHERE topic = ?1 AND id <= ?2",
            params![Sql(topic), last.0.cast_signed()],
        ),
    }?;
    Ok(())
}

fn write_published(db: Db<'_>, published: &PublishedTopic) -> Result<usize> {
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
    db.run(
        "INSERT INTO published_topic VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (topic) DO UPDATE SET \
         publisher = excluded.publisher, seq = excluded.seq, digest = excluded.digest, published = excluded.published, \
         etag = excluded.etag, pinged = excluded.pinged",
        params![
            Sql(topic),
            publisher,
            seq.cast_signed(),
            digest.map(|BodyDigest(digest)| digest),
            Sql(*published),
            etag,
            pinged.map(Sql),
        ],
    )
}

fn write_relay(db: Db<'_>, relay: &Relay) -> Result<()> {
    let mut parts = relay.body.chunks(PART_BYTES);
    db.run(
        "INSERT INTO relay VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            relay.id.0.cast_signed(),
            Sql(&relay.topic),
            relay.seq.cast_signed(),
            relay.headers.content_type,
            relay.headers.capability_list.as_ref().map(Sql),
            (relay.body.len() as u64).cast_signed(),
            BodyDigest::of(&relay.body).0,
            parts.next().unwrap_or_default(),
        ],
    )?;
    for (number, part) in (1_i64..).zip(parts) {
        let values = params![relay.id.0.cast_signed(), number, part];
        db.run("INSERT INTO relay_part VALUES (?1, ?2, ?3)", values)?;
    }
    Ok(())
}

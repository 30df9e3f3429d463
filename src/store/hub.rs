//! The hubs' part of the state file: subscriptions, the notifications pending for them, and the topics of `rsnotify hub`.

use jiff::Timestamp;
use resourcesync::uri::{Topic, Uri};
use rusqlite::{Row, Transaction, params};
use websub::hub::publication::BodyDigest;
use websub::hub::publication::PublishedTopic;
use websub::hub::{
    Callback, DeliveryProgress, HubRecord, Relay, RelayHeaders, RelayId, SavedHub, Subscription,
};
use websub::secret::Secret;

use crate::store::row::{Column, shared};
use crate::store::{Store, StoreError};

impl Store {
    /// Loads the verified subscriptions with their progress, and the pending notifications.
    pub fn load_hub(&self) -> Result<SavedHub, StoreError> {
        let read = || {
            Ok(SavedHub {
                subscriptions: self.rows("SELECT * FROM subscriptions", subscription)?,
                relays: self.rows("SELECT * FROM relays ORDER BY id", relay)?,
            })
        };
        read().map_err(|source| StoreError::Load {
            path: self.path.clone(),
            source,
        })
    }
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

fn relay(row: &Row<'_>) -> rusqlite::Result<Relay> {
    let list = row.get::<_, Option<String>>("capability_list")?;
    Ok(Relay {
        id: RelayId(row.get::<_, i64>("id")?.cast_unsigned()),
        topic: Topic::new(row.get::<_, String>("topic")?),
        seq: row.get::<_, i64>("seq")?.cast_unsigned(),
        body: shared(row.get("body")?),
        headers: RelayHeaders {
            content_type: row.get("content_type")?,
            capability_list: list.and_then(|list| Uri::parse(&list).ok()),
        },
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
        HubRecord::Ended(id) => {
            on.prepare_cached("DELETE FROM relays WHERE id = ?1")?
                .execute([id.0.cast_signed()])?;
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
    on.prepare_cached("INSERT INTO relays VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![
            relay.id.0.cast_signed(),
            relay.topic.as_str(),
            relay.seq.cast_signed(),
            &relay.body[..],
            content_type,
            capability_list.as_ref().map(Uri::as_str),
        ])?;
    Ok(())
}

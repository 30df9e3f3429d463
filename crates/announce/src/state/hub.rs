//! The hubs' rows: subscriptions, the notifications pending for them, and the topics of `rsnotify hub`.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use resourcesync::uri::Topic;
use rusqlite::Connection;
use websub::hub::published_topics::{BodyDigest, PublishedTopic};
use websub::hub::request::{RequestedAction, SubscriptionRequest};
use websub::hub::{
    Callback, DeliveryProgress, HubRecord, PART_BYTES, Relay, RelayHeaders, RelayId, RelaySize,
    SavedHub, SavedTopicRelays, StoredRelay, Subscription, SubscriptionKey,
};
use websub::secret::Secret;

use crate::state::open::read_only;
use crate::state::{
    Columns, Db, FromColumn, FromRow, Result, columns, from_row, parameters, read, to_column,
};

/// Loads what a hub starts with, as [`load`] does, by a connection of its own: the pages that it read are not kept.
pub fn load_from(path: &Path) -> Result<SavedHub> {
    load(Db(&read_only(path)?))
}

/// Loads the verified subscriptions with their progress, and which notifications are pending. No body is read.
pub fn load(db: Db<'_>) -> Result<SavedHub> {
    let mut subscriptions: Vec<(Subscription, DeliveryProgress)> = Vec::new();
    let mut statement = db.statement(
        "SELECT topic, callback, secret, expires, heard, attempts, next_try FROM subscription ORDER BY topic, callback",
        (),
    )?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let (mut topic, callback, secret, expires, progress) = read(row)?;
        // Subscriptions to a topic share its name in memory.
        if let Some((last, _)) = subscriptions.last()
            && last.topic == topic
        {
            topic = last.topic.clone();
        }
        let subscription = Subscription {
            topic,
            callback,
            secret,
            expires,
            requester: None,
        };
        subscriptions.push((subscription, progress));
    }
    let mut topics: Vec<SavedTopicRelays> = Vec::new();
    let mut statement = db.statement("SELECT topic, id, size FROM relay ORDER BY topic, id", ())?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let (topic, relay) = read(row)?;
        match topics.last_mut() {
            Some(last) if last.topic == topic => last.relays.push(relay),
            _ => topics.push(SavedTopicRelays {
                topic,
                relays: vec![relay],
                last: BodyDigest([0; 32]),
            }),
        }
    }
    for topic in &mut topics {
        let last = topic.relays.last().map_or(0, |relay| relay.id.0);
        topic.last = BodyDigest(db.value("SELECT digest FROM relay WHERE id = ?1", last)?);
    }
    Ok(SavedHub {
        subscriptions,
        topics,
    })
}

/// Loads the pending notifications with their bodies.
pub fn load_relays(db: Db<'_>) -> Result<Vec<Relay>> {
    let stored = db.all::<Vec<(StoredRelay, _)>>(
        "SELECT id, 0, seq, content_type, capability_list, size, beginning, topic FROM relay ORDER BY id",
        (),
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
    let sql = "SELECT topic, publisher, seq, digest, published, etag, pinged FROM published_topic";
    db.all(sql, ())
}

/// Reads pending notifications while a daemon writes the state file.
#[derive(Debug)]
pub struct SavedRelayReader {
    path: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl SavedRelayReader {
    pub fn new(path: PathBuf) -> SavedRelayReader {
        SavedRelayReader {
            path,
            connection: Mutex::default(),
        }
    }

    /// Loads the requests that an earlier run accepted and did not verify.
    pub fn unverified_requests(&self) -> Result<Vec<(SubscriptionKey, SubscriptionRequest)>> {
        let connection = read_only(&self.path)?;
        let sql =
            "SELECT topic, callback, requested, lease, secret FROM unverified ORDER BY position";
        Db(&connection).all(sql, ())
    }

    /// Reads with the open connection; if that fails or finds nothing, with a new one: the file may have been restored
    /// under its name.
    pub fn read_or_reopen<T>(
        &self,
        read: impl Fn(Db<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let locked = self.connection.lock();
        let mut open = locked.unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = &*open
            && let Ok(Some(found)) = read(Db(connection))
        {
            return Ok(Some(found));
        }
        read(Db(open.insert(read_only(&self.path)?)))
    }
}

/// Returns the pending notification that follows one of the same topic, with the beginning of its body.
pub fn next_relay(db: Db<'_>, topic: &Topic, heard: RelayId) -> Result<Option<StoredRelay>> {
    db.first(
        "SELECT id, (SELECT max(id) FROM relay earlier WHERE earlier.topic = ?1 AND earlier.id <= ?2), seq, content_type, \
         capability_list, size, beginning FROM relay WHERE topic = ?1 AND id > ?2 ORDER BY id LIMIT 1",
        (topic, heard.0),
    )
}

/// Returns part of a body. The first one comes with the notification.
pub fn relay_part(db: Db<'_>, id: RelayId, number: u64) -> Result<Option<Vec<u8>>> {
    let sql = "SELECT body FROM relay_part WHERE relay = ?1 AND part = ?2";
    db.first(sql, (id.0, number))
}

columns! {
    Callback: |value| value.as_str().map(Callback::new);
    Secret: |value| value.as_str().map(|text| Secret::of_bytes(percent_decode_str(text).collect::<Vec<_>>()));
    RelayId: |value| Ok(RelayId(Option::from_column(value)?.unwrap_or_default()));
    BodyDigest: |value| FromColumn::from_column(value).map(BodyDigest);
}

to_column! {
    BodyDigest: Blob, |digest| &digest.0;
}

from_row! { DeliveryProgress { heard, attempts, next_try } }
from_row! { RelaySize { id, size } }
from_row! { PublishedTopic { topic, publisher, seq, digest, published, etag, pinged } }
parameters! { PublishedTopic { topic, publisher, seq, digest, published, etag, pinged } }
from_row! { RelayHeaders { content_type, capability_list } }
from_row! { StoredRelay { id, previous, seq, headers, size, beginning } }

impl FromRow for (SubscriptionKey, SubscriptionRequest) {
    fn from_row(row: &mut Columns<'_>) -> rusqlite::Result<(SubscriptionKey, SubscriptionRequest)> {
        let (topic, callback): (Topic, Callback) = (row.read()?, row.read()?);
        let (requested, lease): (String, Option<u64>) = (row.read()?, row.read()?);
        let secret = row.read()?;
        let action = match lease.map(Duration::from_secs) {
            Some(lease) => RequestedAction::Subscribe { lease, secret },
            None => RequestedAction::Unsubscribe,
        };
        let request = SubscriptionRequest {
            action,
            topic: requested,
            callback: callback.clone(),
        };
        Ok((SubscriptionKey { topic, callback }, request))
    }
}

/// Bytes of a secret that are escaped; so are those that are no ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// Returns a secret as text, which it need not be.
fn escape_secret(secret: &Secret) -> String {
    percent_encode(secret.bytes(), ESCAPED).to_string()
}

/// Writes changes of the hub, in their order, and then the notifications that it is to relay.
pub fn save_hub(db: Db<'_>, records: &[HubRecord], relays: &[Relay]) -> Result<()> {
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
            (
                &subscription.topic,
                subscription.callback.as_str(),
                subscription.secret.as_ref().map(escape_secret),
                subscription.expires,
                heard.0,
            ),
        ),
        HubRecord::Unsubscribed(key) => db.run(
            "DELETE FROM subscription WHERE topic = ?1 AND callback = ?2",
            (key.topic.as_str(), key.callback.as_str()),
        ),
        HubRecord::Progressed(key, progress) => db.run(
            "UPDATE subscription SET heard = ?3, attempts = ?4, next_try = ?5 WHERE topic = ?1 AND callback = ?2",
            (key.topic.as_str(), key.callback.as_str(), progress.heard.0, progress.attempts, progress.next_try),
        ),
        HubRecord::Unverified(requests) => write_unverified(db, requests),
        HubRecord::Published(published) => db.run(
            "INSERT INTO published_topic VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (topic) DO UPDATE SET \
             publisher = excluded.publisher, seq = excluded.seq, digest = excluded.digest, published = excluded.published, \
             etag = excluded.etag, pinged = excluded.pinged",
            &**published,
        ),
        HubRecord::Forgotten(topic) => {
            db.run("DELETE FROM published_topic WHERE topic = ?1", topic)
        }
        HubRecord::Ended(topic, last) => db.run(
            "DELETE FROM relay WHERE topic = ?1 AND id <= ?2",
            (topic, last.0),
        ),
    }
}

fn write_unverified(db: Db<'_>, requests: &[(SubscriptionKey, SubscriptionRequest)]) -> Result<()> {
    db.run("DELETE FROM unverified", ())?;
    for (position, (key, request)) in (0_i64..).zip(requests) {
        let (lease, secret) = match &request.action {
            RequestedAction::Subscribe { lease, secret } => {
                (Some(lease.as_secs()), secret.as_ref())
            }
            RequestedAction::Unsubscribe => (None, None),
        };
        let of = (position, &key.topic, key.callback.as_str());
        let values = (request.topic.as_str(), lease, secret.map(escape_secret));
        let sql = "INSERT INTO unverified VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        db.run(sql, (of, values))?;
    }
    Ok(())
}

fn write_relay(db: Db<'_>, relay: &Relay) -> Result<()> {
    let (headers, body) = (&relay.headers, &relay.body);
    let mut parts = body.chunks(PART_BYTES);
    let of = (relay.id.0, &relay.topic, relay.seq);
    let headers = (&headers.content_type, &headers.capability_list);
    let beginning = parts.next().unwrap_or_default();
    let body = (body.len(), BodyDigest::of(body).0, beginning);
    let sql = "INSERT INTO relay VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    db.run(sql, (of, headers, body))?;
    for (number, part) in (1_i64..).zip(parts) {
        let values = (relay.id.0, number, part);
        db.run("INSERT INTO relay_part VALUES (?1, ?2, ?3)", values)?;
    }
    Ok(())
}

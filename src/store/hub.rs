//! The embedded hub's part of the state file: subscriptions, and the notifications pending for them.

use jiff::Timestamp;
use rusqlite::{Row, Transaction, params};

use crate::http::secret::Secret;
use crate::hub::{Callback, DeliveryProgress, HubRecord, Relay, RelayId, SavedHub, Subscription};
use crate::resourcesync::uri::Topic;
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
    Ok(Relay {
        id: RelayId(row.get::<_, i64>("id")?.cast_unsigned()),
        topic: Topic::new(row.get::<_, String>("topic")?),
        seq: row.get::<_, i64>("seq")?.cast_unsigned(),
        body: shared(row.get("body")?),
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
        HubRecord::Ended(id) => {
            on.prepare_cached("DELETE FROM relays WHERE id = ?1")?
                .execute([id.0.cast_signed()])?;
        }
    }
    Ok(())
}

pub(super) fn write_relay(on: &Transaction<'_>, relay: &Relay) -> rusqlite::Result<()> {
    on.prepare_cached("INSERT INTO relays VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![
            relay.id.0.cast_signed(),
            relay.topic.as_str(),
            relay.seq.cast_signed(),
            &relay.body[..],
        ])?;
    Ok(())
}

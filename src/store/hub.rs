//! The embedded hub's part of the state: subscriptions, and deliveries that are owed.

use jiff::Timestamp;
use rusqlite::{Row, Transaction, params};

use crate::announce::delivery::secret::Secret;
use crate::announce::subscription::{Callback, Delivery, DeliveryId, HubRecord, Subscription};
use crate::resourcesync::uri::Topic;
use crate::store::row::{Column, shared};
use crate::store::{Store, StoreError};

impl Store {
    /// The verified subscriptions, and what is owed to them in the order it came up.
    pub fn load_hub(&self) -> Result<(Vec<Subscription>, Vec<Delivery>), StoreError> {
        let read = || {
            let subscriptions = self.rows("SELECT * FROM subscriptions", subscription)?;
            let deliveries = self.rows(
                "SELECT * FROM deliveries JOIN relays USING (digest) ORDER BY id",
                delivery,
            )?;
            Ok((subscriptions, deliveries))
        };
        read().map_err(|source| StoreError::Load {
            path: self.path.clone(),
            source,
        })
    }
}

fn subscription(row: &Row<'_>) -> rusqlite::Result<Subscription> {
    Ok(Subscription {
        topic: Topic::new(row.get::<_, String>("topic")?),
        callback: Callback::new(row.get::<_, String>("callback")?),
        secret: row.get::<_, Option<String>>("secret")?.map(Secret::new),
        expires: row.get::<_, Column<Timestamp>>("expires")?.0,
    })
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    Ok(Delivery {
        id: DeliveryId(row.get::<_, i64>("id")?.cast_unsigned()),
        topic: Topic::new(row.get::<_, String>("topic")?),
        callback: Callback::new(row.get::<_, String>("callback")?),
        seq: row.get::<_, i64>("seq")?.cast_unsigned(),
        body: shared(row.get("body")?),
        attempts: row.get("attempts")?,
        next_try: row.get::<_, Column<Timestamp>>("next_try")?.0,
    })
}

pub(super) fn write_record(on: &Transaction<'_>, record: &HubRecord) -> rusqlite::Result<()> {
    match record {
        HubRecord::Subscribed(subscription) => {
            on.prepare_cached("INSERT OR REPLACE INTO subscriptions VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![
                    subscription.topic.as_str(),
                    subscription.callback.as_str(),
                    subscription.secret.as_ref().map(Secret::reveal),
                    Column(subscription.expires),
                ])?;
        }
        HubRecord::Unsubscribed { topic, callback } => {
            on.prepare_cached("DELETE FROM subscriptions WHERE topic = ?1 AND callback = ?2")?
                .execute([topic.as_str(), callback.as_str()])?;
        }
        HubRecord::Attempted {
            id,
            attempts,
            next_try,
        } => {
            on.prepare_cached("UPDATE deliveries SET attempts = ?2, next_try = ?3 WHERE id = ?1")?
                .execute(params![id.0.cast_signed(), attempts, Column(*next_try)])?;
        }
        HubRecord::Delivered { id } | HubRecord::Dropped { id } => {
            let id = id.0.cast_signed();
            let digest: Option<Vec<u8>> = on
                .prepare_cached("DELETE FROM deliveries WHERE id = ?1 RETURNING digest")?
                .query_map([id], |row| row.get(0))?
                .next()
                .transpose()?;
            on.prepare_cached(
                "DELETE FROM relays WHERE digest = ?1 \
                 AND NOT EXISTS (SELECT 1 FROM deliveries WHERE digest = ?1)",
            )?
            .execute([digest])?;
        }
    }
    Ok(())
}

/// A body is stored once, however many subscribers it is owed to.
pub(super) fn write_delivery(on: &Transaction<'_>, delivery: &Delivery) -> rusqlite::Result<()> {
    let digest = blake3::hash(&delivery.body);
    on.prepare_cached("INSERT OR IGNORE INTO relays VALUES (?1, ?2)")?
        .execute(params![digest.as_bytes(), &delivery.body[..]])?;
    on.prepare_cached("INSERT OR REPLACE INTO deliveries VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
        .execute(params![
            delivery.id.0.cast_signed(),
            delivery.topic.as_str(),
            delivery.callback.as_str(),
            delivery.seq.cast_signed(),
            digest.as_bytes(),
            delivery.attempts,
            Column(delivery.next_try),
        ])?;
    Ok(())
}

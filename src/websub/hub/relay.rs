//! Brings notifications to one subscriber, in order.

use std::sync::Arc;

use hyper::Method;
use jiff::Timestamp;

use crate::announce::delivery::Answer;
use crate::announce::delivery::secret::Secret;
use crate::announce::subscription::relay::{Outcome, headers, outcome};
use crate::announce::subscription::{Delivery, HubRecord, Key};
use crate::websub::client;
use crate::websub::hub::Shared;

/// Delivers what waits for one subscriber, until nothing does.
pub async fn deliver_all(shared: Arc<Shared>, key: Key) {
    while let Some(delivery) = shared.deliveries.first(&key) {
        let wait = delivery.next_try.duration_since(Timestamp::now());
        if let Ok(wait) = std::time::Duration::try_from(wait) {
            tokio::time::sleep(wait).await;
        }
        // Looked up after the wait: it may have ended, or have a new secret.
        let is_over = match shared.subscription(&key) {
            Some(subscription) => {
                deliver(&shared, &key, delivery, subscription.secret.as_ref()).await
            }
            None => {
                (shared.records)(HubRecord::Dropped { id: delivery.id });
                true
            }
        };
        if is_over && !shared.deliveries.done(&key) {
            return;
        }
    }
}

/// Tries once. True if that was the last time.
async fn deliver(shared: &Shared, key: &Key, delivery: Delivery, secret: Option<&Secret>) -> bool {
    let id = delivery.id;
    let attempts = delivery.attempts + 1;
    let answer = {
        let Ok(_permit) = shared.delivering.acquire().await else {
            return false;
        };
        // Unknown once the topic is no longer served.
        let list = shared.topics.capability_list(&key.topic);
        let (caller, callback) = (&shared.caller, &key.callback);
        match caller.request(Method::POST, callback, callback.as_str()) {
            Ok(mut post) => {
                for (name, value) in headers(&delivery, &shared.settings.hub, list.as_ref(), secret)
                {
                    post = post.header(name, value.as_bytes());
                }
                client::answer(post.body(client::body(&delivery.body)).send().await).await
            }
            Err(error) => Answer::Failed(error.to_string()),
        }
    };
    match outcome(&answer, attempts, Timestamp::now(), fastrand::f64()) {
        Outcome::Delivered => (shared.records)(HubRecord::Delivered { id }),
        Outcome::GivenUp => (shared.records)(HubRecord::Dropped { id }),
        Outcome::Gone => {
            shared.unsubscribe(key);
            (shared.records)(HubRecord::Dropped { id });
        }
        Outcome::Retry { at: next_try } => {
            (shared.records)(HubRecord::Attempted {
                id,
                attempts,
                next_try,
            });
            let delivery = Delivery {
                attempts,
                next_try,
                ..delivery
            };
            shared.deliveries.amend(key, delivery);
            return false;
        }
    }
    true
}

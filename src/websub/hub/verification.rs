//! Asks subscribers whether they mean it. What they had stays until they say so.

use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

use crate::announce::delivery::retry::{after, backoff};
use crate::announce::subscription::callback::{confirms, denial_url, verification_url};
use crate::announce::subscription::request::{Action, Request};
use crate::announce::subscription::{Key, Subscription};
use crate::websub::client;
use crate::websub::hub::Shared;

/// Verifies what waits for one topic and callback, in order: the last confirmed one holds.
pub async fn verify_all(shared: Arc<Shared>, key: Key) {
    while let Some(request) = shared.verifications.first(&key) {
        if let Some(asked_at) = confirmed(&shared, &request).await {
            match request.action {
                Action::Subscribe { lease, secret } => {
                    let subscription = Subscription {
                        topic: key.topic.clone(),
                        callback: key.callback.clone(),
                        secret,
                        expires: after(asked_at, lease),
                    };
                    shared.change(|audience| vec![audience.subscribe(subscription)]);
                }
                Action::Unsubscribe => shared.change(|audience| audience.unsubscribe(&key)),
            }
        }
        if !shared.verifications.done(&key) {
            return;
        }
    }
}

/// Tells a subscriber that it is one no longer (WebSub section 5.2). What it answers means nothing.
pub async fn deny(shared: Arc<Shared>, key: Key, reason: &'static str) {
    let url = denial_url(&key.callback, key.topic.as_str(), reason);
    for attempt in 1..=shared.settings.verification_attempts {
        let Ok(permit) = shared.verifying.acquire().await else {
            return;
        };
        if shared.client.get(&url).send().await.is_ok() {
            return;
        }
        drop(permit);
        tokio::time::sleep(backoff(attempt, fastrand::f64())).await;
    }
}

/// When the question was asked that the subscriber has confirmed: its lease runs from then.
async fn confirmed(shared: &Shared, request: &Request) -> Option<Timestamp> {
    for attempt in 1..=shared.settings.verification_attempts {
        // Single use: each question has its own challenge.
        let challenge = Uuid::new_v4().to_string();
        let url = verification_url(
            &request.callback,
            &request.action,
            &request.topic,
            &challenge,
        );
        let permit = shared.verifying.acquire().await.ok()?;
        let asked_at = Timestamp::now();
        if let Ok(mut response) = shared.client.get(url).send().await {
            let status = response.status().as_u16();
            // One byte more than the challenge, to notice what comes after it.
            let (body, broke_off) = client::beginning(&mut response, challenge.len() + 1).await;
            let is_meant = broke_off.is_none() && confirms(status, &body, &challenge);
            return is_meant.then_some(asked_at);
        }
        drop(permit);
        if attempt < shared.settings.verification_attempts {
            tokio::time::sleep(backoff(attempt, fastrand::f64())).await;
        }
    }
    None
}

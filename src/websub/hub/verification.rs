//! Asks subscribers whether they mean it. What they had stays until they say so.

use std::sync::Arc;

use hyper::Method;
use jiff::Timestamp;
use reqwest::Response;
use tokio::sync::SemaphorePermit;
use tracing::debug;
use uuid::Uuid;

use crate::announce::delivery::retry::{after, backoff};
use crate::announce::subscription::request::{Action, Request};
use crate::announce::subscription::tally::Share;
use crate::announce::subscription::verification::{confirms, denial_url, verification_url};
use crate::announce::subscription::{Callback, Key, Subscription};
use crate::websub::client;
use crate::websub::failure::describe;
use crate::websub::hub::Shared;

/// A request whose subscriber is to be asked.
#[derive(Clone)]
pub struct Pending {
    pub request: Request,
    pub share: Share,
}

/// Verifies what waits for one topic and callback, in order: the last confirmed one holds.
pub async fn verify_all(shared: Arc<Shared>, key: Key) {
    while let Some(Pending { request, share }) = shared.verifications.first(&key) {
        if let Some((asked_at, _place)) = confirmed(&shared, &request).await {
            match request.action {
                Action::Subscribe { lease, secret } => {
                    let subscription = Subscription {
                        topic: key.topic.clone(),
                        callback: key.callback.clone(),
                        secret,
                        expires: after(asked_at, lease),
                    };
                    shared.subscribe(subscription, share.clone());
                }
                Action::Unsubscribe => {
                    shared.end("it unsubscribed", |audience| audience.unsubscribe(&key));
                }
            }
        }
        shared.admission().end(&share);
        if !shared.verifications.done(&key) {
            return;
        }
    }
}

/// Tells a subscriber that it is one no longer (WebSub section 5.2). What it answers means nothing.
pub async fn deny(shared: Arc<Shared>, key: Key, reason: &'static str) {
    let url = denial_url(&key.callback, key.topic.as_str(), reason);
    for attempt in 1..=shared.conduct().settings.verification_attempts {
        let Ok(permit) = shared.verifying.acquire().await else {
            return;
        };
        if ask(&shared, &key.callback, &url).await.is_ok() {
            return;
        }
        drop(permit);
        tokio::time::sleep(backoff(attempt, fastrand::f64())).await;
    }
}

/// When the question was asked that the subscriber has confirmed: its lease runs from then. What it confirmed is to be
/// done before the place is left.
async fn confirmed<'a>(
    shared: &'a Shared,
    request: &Request,
) -> Option<(Timestamp, SemaphorePermit<'a>)> {
    let callback = &request.callback;
    let allowed = shared.conduct().settings.verification_attempts;
    for attempts in 1..=allowed {
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
        let reason = match ask(shared, &request.callback, &url).await {
            Ok(mut response) => {
                let status = response.status().as_u16();
                // One byte more than the challenge, to notice what comes after it.
                let (body, broke_off) = client::beginning(&mut response, challenge.len() + 1).await;
                let is_meant = broke_off.is_none() && confirms(status, &body, &challenge);
                if is_meant {
                    shared.counts().verifications.confirmed += 1;
                    return Some((asked_at, permit));
                }
                shared.counts().verifications.refused += 1;
                debug!(%callback, status, "{callback} did not confirm that it means it");
                return None;
            }
            Err(reason) => reason,
        };
        drop(permit);
        // The log alone hears of this. An address that may not be called is tried as often as one that refuses, so that
        // what is left of the limits does not tell them apart either.
        debug!(%callback, attempts, "cannot ask {callback} whether it means it: {reason}");
        if attempts < allowed {
            tokio::time::sleep(backoff(attempts, fastrand::f64())).await;
        }
    }
    shared.counts().verifications.failed += 1;
    None
}

async fn ask(shared: &Shared, callback: &Callback, url: &str) -> Result<Response, String> {
    let conduct = shared.conduct();
    let request = conduct.caller.request(Method::GET, callback, url);
    let request = request.map_err(|error| error.to_string())?;
    request.send().await.map_err(describe)
}

//! Asks subscribers whether they mean it. What they had stays until they say so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use jiff::Timestamp;
use reqwest::Response;
use tracing::debug;
use uuid::Uuid;

use crate::announce::delivery::retry::{after, backoff};
use crate::hub::fairness::Priority;
use crate::hub::limits::Excess;
use crate::hub::request::{Action, Request};
use crate::hub::tally::Share;
use crate::hub::verification::{confirms, denial_url, verification_url};
use crate::hub::{Key, Subscription};
use crate::websub::client;
use crate::websub::failure::describe;
use crate::websub::hub::calls::Location;
use crate::websub::hub::relay::CUT_OFF;
use crate::websub::hub::slots::Slot;
use crate::websub::hub::{Conduct, Shared};

/// No try of a verification begins later than this after it was asked for.
const LONGEST: Duration = Duration::from_secs(120);

/// A request whose subscriber is to be asked.
#[derive(Clone)]
pub struct Pending {
    pub request: Request,
    pub share: Share,
    /// Whether there was such a subscription when it was asked for.
    pub is_known: bool,
}

/// Verifies what waits for one topic and callback, in order: the last confirmed one holds.
pub async fn verify_all(shared: Arc<Shared>, key: Key) {
    while let Some(pending) = shared.verifications.first(&key) {
        let confirmed = Box::pin(confirmed(&shared, &pending)).await;
        let Pending {
            request,
            share,
            is_known,
        } = pending;
        if let Some((asked_at, _slot)) = confirmed {
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
        shared.admission().end(&share, is_known);
        if !shared.verifications.done(&key) {
            return;
        }
    }
}

/// Tells a subscriber that it is one no longer (WebSub section 5.2). What it answers means nothing.
pub async fn deny(shared: Arc<Shared>, key: Key, reason: &'static str) {
    let url = denial_url(&key.callback, key.topic.as_str(), reason);
    for attempt in 1..=shared.conduct().settings.verification_attempts {
        let priority = match attempt {
            1 => Priority::First,
            _ => Priority::Retry,
        };
        let conduct = shared.conduct();
        if let Ok(location) = conduct.caller.locate(&key.callback, priority).await {
            let taken = shared.verifying.take(&location.account, priority);
            let mut slot = taken.await;
            let asked = ask(&conduct, &url, &location, &mut slot).await;
            if asked.is_ok() {
                return;
            }
        }
        tokio::time::sleep(backoff(attempt, fastrand::f64())).await;
    }
}

/// When the question was asked that the subscriber has confirmed: its lease runs from then. What it confirmed is to be
/// done before the slot is left.
async fn confirmed(shared: &Shared, pending: &Pending) -> Option<(Timestamp, Slot)> {
    let callback = &pending.request.callback;
    let begun = Instant::now();
    let mut attempts = 1;
    while begun.elapsed() < LONGEST {
        match attempt(shared, pending, attempts).await {
            Attempt::Confirmed(asked_at, slot) => {
                shared.counts().verifications.confirmed += 1;
                return Some((asked_at, slot));
            }
            Attempt::Refused(status) => {
                shared.counts().verifications.refused += 1;
                debug!(%callback, status, "{callback} did not confirm that it means it");
                return None;
            }
            Attempt::TooMany(excess) => {
                debug!(%callback, "{callback} is asked later whether it means it: {excess}");
                tokio::time::sleep(excess.retry_after.max(Duration::from_secs(1))).await;
                continue;
            }
            Attempt::Failed(reason) => {
                // The log alone hears of this. An address that may not be called is tried as often as one that
                // refuses, so that what is left of the limits does not tell them apart either.
                debug!(
                    %callback, attempts,
                    "cannot ask {callback} whether it means it: {reason}"
                );
            }
        }
        let allowed = shared.conduct().settings.verification_attempts;
        if attempts >= allowed || !pending.is_known && shared.admission().is_full() {
            break;
        }
        tokio::time::sleep(backoff(attempts, fastrand::f64())).await;
        attempts += 1;
    }
    shared.counts().verifications.failed += 1;
    None
}

/// What came of asking once.
enum Attempt {
    Confirmed(Timestamp, Slot),
    /// Answered, with this status, but not so as to confirm.
    Refused(u16),
    /// Not asked: too many have been at that address.
    TooMany(Excess),
    Failed(String),
}

async fn attempt(shared: &Shared, pending: &Pending, attempts: u32) -> Attempt {
    let Pending {
        request, is_known, ..
    } = pending;
    let priority = match (is_known, attempts) {
        (true, _) => Priority::Known,
        (false, 1) => Priority::First,
        (false, _) => Priority::Retry,
    };
    let (conduct, location, mut slot) = loop {
        let conduct = shared.conduct();
        let location = match conduct.caller.locate(&request.callback, priority).await {
            Ok(location) => location,
            Err(error) => return Attempt::Failed(error.to_string()),
        };
        // What was asked for with an address was counted then.
        if let (Some(address), false) = (location.by_name, is_known) {
            let now = shared.started.elapsed();
            if let Err(excess) = shared.admission().connect(address, now) {
                return Attempt::TooMany(excess);
            }
        }
        let taken = shared.verifying.take(&location.account, priority);
        let slot = taken.await;
        // Otherwise it was judged by what holds no more.
        if Arc::ptr_eq(&conduct, &shared.conduct()) {
            break (conduct, location, slot);
        }
    };
    // Single use: each question has its own challenge.
    let challenge = Uuid::new_v4().to_string();
    let url = verification_url(
        &request.callback,
        &request.action,
        &request.topic,
        &challenge,
    );
    let asked_at = Timestamp::now();
    // One byte more than the challenge, to notice what comes after it.
    let most = challenge.len() + 1;
    match ask(&conduct, &url, &location, &mut slot).await {
        Ok(mut response) => {
            let status = response.status().as_u16();
            let beginning = slot.unless_cut_off(client::beginning(&mut response, most));
            match beginning.await {
                Some((body, None)) if confirms(status, &body, &challenge) => {
                    Attempt::Confirmed(asked_at, slot)
                }
                _ => Attempt::Refused(status),
            }
        }
        Err(reason) => Attempt::Failed(reason),
    }
}

async fn ask(
    conduct: &Conduct,
    url: &str,
    location: &Location,
    slot: &mut Slot,
) -> Result<Response, String> {
    let request = conduct.caller.request(Method::GET, url, location);
    match slot.unless_cut_off(request.send()).await {
        Some(Ok(response)) => {
            slot.answered();
            Ok(response)
        }
        Some(Err(error)) => Err(describe(error)),
        None => Err(CUT_OFF.to_owned()),
    }
}

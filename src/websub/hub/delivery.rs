//! Deliveries of notifications: to each subscriber in order, to different subscribers concurrently.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use jiff::Timestamp;
use tracing::{debug, warn};

use crate::http::answer::Answer;
use crate::http::secret::Mask;
use crate::hub::relay::{DeliveryOutcome, headers, outcome};
use crate::hub::subscriptions::view::LastAttempt;
use crate::hub::subscriptions::{Assignment, Delivery};
use crate::websub::client;
use crate::websub::hub::callback_client::{CallbackError, CallbackLocation};
use crate::websub::hub::fair_slots::FairSlot;
use crate::websub::hub::{HubInner, PreparedHub};

/// The error of a request that was cut off in favour of others.
pub const CUT_OFF: &str = "cut off: it took too long while others waited";
/// Delivery tasks started before yielding to other tasks.
const BATCH: usize = 100;

/// Starts a delivery task for each assignment.
pub async fn deliver_to_all(hub: Arc<HubInner>, assignments: Vec<Assignment>) {
    for (count, assignment) in (1..).zip(assignments) {
        tokio::spawn(deliver_all(Arc::clone(&hub), assignment));
        if count % BATCH == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Delivers to one subscriber until nothing is pending.
// Large futures are boxed: of many subscribers, most only wait.
async fn deliver_all(hub: Arc<HubInner>, assignment: Assignment) {
    let woken = hub.table.register(&assignment.key);
    while let Some(next) = hub.table.next_delivery(&assignment) {
        let at = next.progress.next_try;
        let wait = at.and_then(|at| Duration::try_from(at.duration_since(Timestamp::now())).ok());
        if let Some(wait) = wait {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // It may be retried at once.
                () = woken.notified() => continue,
            }
        }
        let (callback, prepared) = (&assignment.key.callback, hub.settings.current());
        let resolving = prepared.client().resolve(callback, next.priority);
        let location = Box::pin(resolving).await;
        let host = location.as_ref().map(|location| location.host.clone());
        let slot = match host {
            Ok(host) => tokio::select! {
                slot = hub.delivery_slots.acquire(&host, next.priority) => Some(slot),
                // Its priority may have risen.
                () = woken.notified() => continue,
            },
            Err(_) if hub.delivery_slots.is_draining() => return,
            Err(_) => None,
        };
        if !hub.settings.is_current(&prepared) {
            // The policy has changed since the addresses were checked.
            continue;
        }
        Box::pin(deliver(&hub, &prepared, &assignment, location, slot)).await;
    }
}

/// Makes one attempt to deliver.
async fn deliver(
    hub: &HubInner,
    prepared: &PreparedHub,
    assignment: &Assignment,
    location: Result<CallbackLocation, CallbackError>,
    mut slot: Option<FairSlot>,
) {
    // Read at the last moment: the subscription may have ended, or have a new secret.
    let Some(Delivery {
        relay,
        secret,
        progress,
        ..
    }) = hub.table.next_delivery(assignment)
    else {
        return;
    };
    let key = &assignment.key;
    let (url, secret) = (&prepared.settings().hub, secret.as_ref());
    let (topic, callback, seq) = (&key.topic, &key.callback, relay.seq);
    let answer = match (&location, &mut slot) {
        (Ok(location), Some(slot)) => {
            let mut post = prepared
                .client()
                .request(Method::POST, callback.as_str(), location);
            for (name, value) in headers(&relay, url, secret) {
                post = post.header(name, value.as_bytes());
            }
            let post = post.body(client::body(&relay.body));
            let answered = async { client::answer(post.send().await, &Mask::default()).await };
            let answer = slot.unless_cut_off(answered).await;
            let answer = answer.unwrap_or_else(|| Answer::Failed(CUT_OFF.to_owned()));
            if let Answer::Status { .. } = answer {
                slot.answered();
            }
            answer
        }
        (Ok(_), None) => return,
        (Err(error), _) => Answer::Failed(error.to_string()),
    };
    let attempts = progress.attempts + 1;
    let now = Timestamp::now();
    let outcome = outcome(&answer, attempts, now, fastrand::f64());
    let last = LastAttempt::new(&answer, now);
    let took = hub.table.age(relay.id);
    hub.counts().attempted(&answer, outcome, took);
    match outcome {
        DeliveryOutcome::Delivered => debug!(
            %topic, %callback, seq, attempts, "delivered notification {seq} to {callback}"
        ),
        // The end of the subscription is logged below.
        DeliveryOutcome::Gone => {}
        DeliveryOutcome::Retry { at } => debug!(
            %topic, %callback, seq, attempts, next_try = %at,
            "cannot deliver notification {seq} to {callback}, will retry: {last}"
        ),
        DeliveryOutcome::Abandoned => {
            if hub.abandoned_lines().allow() {
                warn!(
                    %topic, %callback, seq, attempts,
                    "giving up on delivering notification {seq} to {callback}: {last}"
                );
            }
        }
    }
    hub.table.end("it is gone (410)", |subscriptions| {
        subscriptions.attempted(assignment, last);
        subscriptions.answered(assignment, relay.id, outcome)
    });
}

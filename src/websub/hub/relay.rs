//! Brings notifications to subscribers: to each in order, to all at once as far as there is room.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use jiff::Timestamp;
use tokio::sync::OwnedSemaphorePermit;
use tracing::{debug, warn};

use crate::announce::delivery::Answer;
use crate::announce::delivery::secret::Mask;
use crate::announce::subscription::audience::view::LastTry;
use crate::announce::subscription::audience::{Assignment, Delivery};
use crate::announce::subscription::relay::{Outcome, headers, outcome};
use crate::websub::client;
use crate::websub::hub::Shared;

/// Begins to deliver to those who wait, as fast as others have been delivered to: whoever is told of another topic
/// meanwhile waits for its next free place, not for all of these.
pub async fn deliver_to_all(shared: Arc<Shared>, assignments: Vec<Assignment>) {
    for assignment in assignments {
        let Ok(place) = Arc::clone(&shared.delivering).acquire_owned().await else {
            return;
        };
        tokio::spawn(deliver_all(Arc::clone(&shared), assignment, place));
    }
}

/// Delivers what waits for one subscriber, until nothing does. `place` is for the first time.
async fn deliver_all(shared: Arc<Shared>, assignment: Assignment, place: OwnedSemaphorePermit) {
    let mut place = Some(place);
    loop {
        let at = shared
            .next(&assignment)
            .and_then(|next| next.progress.next_try);
        let wait = at.and_then(|at| Duration::try_from(at.duration_since(Timestamp::now())).ok());
        if let Some(wait) = wait {
            // Others may go first.
            place = None;
            tokio::time::sleep(wait).await;
        }
        let place = match place.take() {
            Some(place) => place,
            None => match Arc::clone(&shared.delivering).acquire_owned().await {
                Ok(place) => place,
                Err(_) => return,
            },
        };
        let is_more = deliver(&shared, &assignment).await;
        drop(place);
        if !is_more {
            return;
        }
    }
}

/// Tries what is next for a subscriber once. False if there is nothing.
async fn deliver(shared: &Shared, assignment: &Assignment) -> bool {
    // Looked up at the last moment: the subscription may have ended, or have a new secret.
    let Some(Delivery {
        relay,
        secret,
        progress,
    }) = shared.next(assignment)
    else {
        return false;
    };
    let key = &assignment.key;
    // Unknown once the topic is no longer served.
    let list = shared.topics.capability_list(&key.topic);
    let conduct = shared.conduct();
    let (hub, secret) = (&conduct.settings.hub, secret.as_ref());
    let (topic, callback, seq) = (&key.topic, &key.callback, relay.seq);
    let request = conduct
        .caller
        .request(Method::POST, callback, callback.as_str());
    let answer = match request {
        Ok(mut post) => {
            for (name, value) in headers(&relay, hub, list.as_ref(), secret) {
                post = post.header(name, value.as_bytes());
            }
            let sent = post.body(client::body(&relay.body)).send().await;
            client::answer(sent, &Mask::default()).await
        }
        Err(error) => Answer::Failed(error.to_string()),
    };
    let attempts = progress.attempts + 1;
    let now = Timestamp::now();
    let outcome = outcome(&answer, attempts, now, fastrand::f64());
    let last = LastTry::new(&answer, now);
    let took = shared.age(relay.id);
    shared.counts().tried(&answer, outcome, took);
    match outcome {
        Outcome::Delivered => debug!(
            %topic, %callback, seq, attempts, "{callback} took notification {seq}"
        ),
        // That its subscription ends is told below.
        Outcome::Gone => {}
        Outcome::Retry { at } => debug!(
            %topic, %callback, seq, attempts, next_try = %at,
            "{callback} did not take notification {seq}: {last}"
        ),
        Outcome::GivenUp => warn!(
            %topic, %callback, seq, attempts,
            "gave up notification {seq} to {callback}, which takes nothing: {last}"
        ),
    }
    shared.end("it is gone (410)", |audience| {
        audience.tried(assignment, last);
        audience.answered(assignment, relay.id, outcome)
    });
    true
}

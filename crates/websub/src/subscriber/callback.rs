//! The callback endpoint of a Destination: answers verification requests, and receives notifications and denials.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{HeaderName, LINK};
use hyper::{Method, Request, StatusCode};
use resourcesync::uri::Topic;
use tokio::sync::oneshot;

use crate::headers::{Links, form_value};
use crate::http::client::header_values;
use crate::http::lock;
use crate::http::server::{FullResponse, small_body, text};
use crate::hub::delivery::is_signed;
use crate::subscriber::{Callbacks, DistributionRequest, HubDecision, ReceivedNotification};

/// Maximum size of a notification.
const BODY_BYTES: usize = 16 * 1024 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

pub async fn answer(callbacks: Arc<Callbacks>, request: Request<Incoming>) -> FullResponse {
    // The last segment of the path decides: a proxy may have changed the others.
    let id = request.uri().path().rsplit('/').next().unwrap_or_default();
    let id = id.to_owned();
    match *request.method() {
        Method::GET => verification(&callbacks, &id, request.uri().query().unwrap_or_default()),
        Method::POST => notification(&callbacks, &id, request).await,
        _ => text(StatusCode::METHOD_NOT_ALLOWED, "GET or POST\n"),
    }
}

/// Confirms a verification request for a subscription that we want (WebSub section 5.3.1), and no other. Passes on a
/// denial, which may come at any time (section 5.2).
fn verification(callbacks: &Callbacks, id: &str, query: &str) -> FullResponse {
    let value = |name| form_value(query.as_bytes(), name);
    let not_ours = || text(StatusCode::NOT_FOUND, "not asked for\n");
    let callbacks = lock(callbacks);
    let Some(callback) = callbacks.get(id) else {
        return not_ours();
    };
    if value("hub.topic").as_deref() != Some(callback.topic.as_str()) {
        return not_ours();
    }
    let mode = value("hub.mode");
    let (decision, reply) = match (mode.as_deref(), value("hub.challenge")) {
        (Some(mode), Some(challenge)) if mode == callback.mode => {
            let lease = value("hub.lease_seconds").and_then(|seconds| seconds.parse().ok());
            let lease = lease.map(Duration::from_secs);
            (
                HubDecision::Verified(lease),
                text(StatusCode::OK, challenge),
            )
        }
        (Some("denied"), _) => {
            let reason = value("hub.reason").unwrap_or_else(|| "no reason given".to_owned());
            (HubDecision::Denied(reason), text(StatusCode::OK, ""))
        }
        _ => return not_ours(),
    };
    // Fails if the subscription is being given up.
    let _ = callback.decisions.send(decision);
    reply
}

/// Hands a notification over, and answers as its receiver decides: 200 only if it was acknowledged.
async fn notification(callbacks: &Callbacks, id: &str, request: Request<Incoming>) -> FullResponse {
    let known = lock(callbacks)
        .get(id)
        .map(|callback| (callback.secret.clone(), callback.received.clone()));
    let Some((secret, received)) = known else {
        return text(StatusCode::GONE, "not subscribed\n");
    };
    let (head, body) = request.into_parts();
    let body = match small_body(body, BODY_BYTES, BODY_TIMEOUT).await {
        Ok(body) => body,
        Err((status, words)) => return text(status, words),
    };
    let signature = HeaderName::from_static("x-hub-signature");
    let signature = header_values(&head.headers, signature).into_iter().next();
    if !is_signed(signature.as_deref().unwrap_or_default(), &secret, &body) {
        // Only a report. If so many are waiting, it can be left out.
        let _ = received.try_send(DistributionRequest::BadSignature { signature });
        return text(StatusCode::ACCEPTED, "");
    }
    let links = Links::parse(header_values(&head.headers, LINK));
    let (answer, answered) = oneshot::channel();
    let delivery = ReceivedNotification {
        body,
        self_uri: links.self_links.into_iter().next().map(Topic::new),
        answer,
    };
    let is_taken = received
        .send(DistributionRequest::Notification(delivery))
        .await
        .is_ok();
    if is_taken && answered.await.is_ok() {
        text(StatusCode::OK, "")
    } else {
        text(
            StatusCode::SERVICE_UNAVAILABLE,
            "not handed over; try again\n",
        )
    }
}

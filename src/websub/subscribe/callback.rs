//! The callback endpoint of a Destination: answers verification requests and receives notifications.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, LINK};
use hyper::{Method, Request, StatusCode};
use url::form_urlencoded;

use crate::http::link::{parse_links, targets};
use crate::hub::relay::is_signed;
use crate::resourcesync::uri::Topic;
use crate::websub::server::{FullResponse, small_body, text};
use crate::websub::subscribe::{Decision, Expected, Intent, Received};

/// Maximum size of a notification.
const BODY_BYTES: usize = 16 * 1024 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

pub async fn answer(expected: Arc<Expected>, request: Request<Incoming>) -> FullResponse {
    // The last segment of the path decides: a proxy may have changed the others.
    let id = request.uri().path().rsplit('/').next().unwrap_or_default();
    let id = id.to_owned();
    match *request.method() {
        Method::GET => verification(&expected, &id, request.uri().query().unwrap_or_default()),
        Method::POST => notification(&expected, &id, request).await,
        _ => text(StatusCode::METHOD_NOT_ALLOWED, "GET or POST\n"),
    }
}

/// Confirms a verification request for a subscription that we want (WebSub section 5.3.1), and no other.
fn verification(expected: &Expected, id: &str, query: &str) -> FullResponse {
    let value = |wanted: &str| {
        form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value.into_owned())
    };
    let not_ours = || text(StatusCode::NOT_FOUND, "not asked for\n");
    let mut subscriptions = expected.lock();
    let Some(wanted) = subscriptions.get_mut(id) else {
        return not_ours();
    };
    if value("hub.topic").as_deref() != Some(wanted.topic.as_str()) {
        return not_ours();
    }
    let mode = value("hub.mode");
    let (decision, reply) = match (mode.as_deref(), wanted.intent, value("hub.challenge")) {
        (Some("subscribe"), Intent::Subscribe, Some(challenge))
        | (Some("unsubscribe"), Intent::Unsubscribe, Some(challenge)) => {
            let lease = value("hub.lease_seconds").and_then(|seconds| seconds.parse().ok());
            let lease = lease.map(Duration::from_secs);
            (Decision::Verified(lease), text(StatusCode::OK, challenge))
        }
        (Some("denied"), ..) => {
            let reason = value("hub.reason").unwrap_or_else(|| "no reason given".to_owned());
            (Decision::Denied(reason), text(StatusCode::OK, ""))
        }
        _ => return not_ours(),
    };
    if let Some(decided) = wanted.decided.take() {
        // Fails if the request has timed out.
        let _ = decided.send(decision);
    }
    reply
}

async fn notification(expected: &Expected, id: &str, request: Request<Incoming>) -> FullResponse {
    let known = expected
        .lock()
        .get(id)
        .map(|wanted| (wanted.topic.clone(), wanted.secret.clone()));
    let Some((topic, secret)) = known else {
        return text(StatusCode::GONE, "not subscribed\n");
    };
    let (head, body) = request.into_parts();
    let body = match small_body(body, BODY_BYTES, BODY_TIMEOUT).await {
        Ok(body) => body,
        Err((status, words)) => return text(status, words),
    };
    if let Some(secret) = secret {
        let signature = header(&head.headers, "x-hub-signature").unwrap_or_default();
        if !is_signed(&signature, &secret, &body) {
            return text(StatusCode::FORBIDDEN, "the signature is not right\n");
        }
    }
    let values: Vec<_> = head
        .headers
        .get_all(LINK)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .collect();
    let links = parse_links(values.iter().map(String::as_str));
    let received = Received {
        topic,
        self_uri: targets(&links, "self").next().map(Topic::new),
        content_type: header(&head.headers, CONTENT_TYPE.as_str()),
        body,
    };
    match expected.received.send(received).await {
        Ok(()) => text(StatusCode::OK, ""),
        Err(_) => text(StatusCode::GONE, "no longer listening\n"),
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

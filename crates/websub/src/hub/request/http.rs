//! The hub's HTTP endpoint: answers subscription requests, with 202 before verification; and the public listener: topics,
//! and the embedded hub if enabled; or a hub for many Sources, which serves no topics.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER};
use hyper::{HeaderMap, Method, Request, StatusCode};
use tokio::sync::watch;
use tracing::warn;

use crate::headers::{FORM_TYPE, is_addressed_to, is_form};
use crate::http::client::header_text;
use crate::http::lock;
use crate::http::server::{
    self, FullResponse, Listener, PeerAddress, ServerLimits, not_allowed, small_body, text,
};
use crate::hub::SubscriptionKey;
use crate::hub::address::is_public;
use crate::hub::admission::{LimitExceeded, requester_buckets};
use crate::hub::client_address::{Requester, forwarded_for};
use crate::hub::http::EmbeddedHub;
use crate::hub::publication::http::PublicHub;
use crate::hub::request::{HUB_GREETING, Rejection, parse};
use crate::topics::http::Topics;

/// The answer to a request under another host name, or from a page of another origin.
const NOT_OWN: &str =
    "this host name is not served here, and pages of other origins may not subscribe\n";
/// Maximum size of a subscription form.
pub const FORM_BYTES: usize = 16 * 1024;
/// Timeout for receiving it.
pub const FORM_TIMEOUT: Duration = Duration::from_secs(10);

impl EmbeddedHub {
    /// Returns true if this is the path of the endpoint.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        self.settings.get().path == path
    }

    /// Answers a request for the hub's path.
    pub(crate) async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> FullResponse {
        if *request.method() != Method::POST {
            return not_allowed("POST", HUB_GREETING);
        }
        let answered = self.answer_post(request).await;
        self.count_answer(answered)
    }

    async fn answer_post(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<FullResponse, Rejection> {
        if !self.is_addressed_to_us(request.headers()) {
            return Ok(text(StatusCode::MISDIRECTED_REQUEST, NOT_OWN));
        }
        let requester = self.requester(&request);
        self.admit(requester, 1)?;
        if !header_text(request.headers(), CONTENT_TYPE).is_some_and(is_form) {
            let words = format!("a subscription is a form: Content-Type {FORM_TYPE}\n");
            return Ok(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, words));
        }
        match small_body(request.into_body(), FORM_BYTES, FORM_TIMEOUT).await {
            Ok(form) => self.answer_form(&form, requester),
            Err((status, words)) => Ok(text(status, words)),
        }
    }

    /// Counts as many requests of any kind for the address that they come from, or none of them beyond a limit.
    pub(crate) fn admit(
        &self,
        requester: Option<Requester>,
        count: u32,
    ) -> Result<(), LimitExceeded> {
        let (buckets, now) = (requester_buckets(requester), self.clock.started.elapsed());
        lock(&self.admission).acquire(&buckets, count, now)
    }

    /// Returns the answer to a subscription request, which is counted.
    pub(crate) fn count_answer(&self, answered: Result<FullResponse, Rejection>) -> FullResponse {
        let reply = answered.unwrap_or_else(|rejection| {
            plain_text(rejection.status(), &rejection, rejection.retry_after())
        });
        self.count_request(reply.status().as_u16());
        reply
    }

    /// Counts a subscription request by the status of its answer.
    pub(crate) fn count_request(&self, status: u16) {
        lock(&self.counts).requests.count(status);
    }

    /// Returns the answer to a form that was admitted, with what the subscriber should know. The answer depends only on the
    /// request, the configuration and the remaining quotas. The addresses behind a callback are found out later and never
    /// revealed (WebSub section 5.1.2).
    pub(crate) fn answer_form(
        self: &Arc<Self>,
        form: &[u8],
        requester: Option<Requester>,
    ) -> Result<FullResponse, Rejection> {
        let request = parse(form, &self.settings.get().settings.policy)?;
        let topic = self.topics.find(&request.topic).ok_or(Rejection::Topic)?;
        let caution = self.topics.spelling_warning(&topic);
        let key = SubscriptionKey::new(&topic, &request.callback);
        self.verify(key, request, requester)?;
        Ok(text(StatusCode::ACCEPTED, caution.unwrap_or_default()))
    }

    /// Returns true if a request is addressed to this hub, where that is checked: a page in a browser on this machine must
    /// not subscribe, neither from another origin nor under a name that resolves to us (DNS rebinding).
    fn is_addressed_to_us(&self, headers: &HeaderMap) -> bool {
        let prepared = self.settings.get();
        let Some(own_hosts) = &prepared.settings.own_hosts else {
            return true;
        };
        let value = |name| header_text(headers, name);
        // A header that is not text is not accepted.
        let is_text = |name| headers.get(name).is_none_or(|value| value.to_str().is_ok());
        let (host, origin) = (value(HOST).unwrap_or_default(), value(ORIGIN));
        is_text(HOST) && is_text(ORIGIN) && is_addressed_to(own_hosts, host, origin)
    }

    /// Returns the address that a request comes from.
    pub(crate) fn requester<B>(&self, request: &Request<B>) -> Option<Requester> {
        let values = |name: &str| -> Vec<&str> {
            let values = request.headers().get_all(name).iter();
            // A value that is not text is no address either, and hides those before it.
            values
                .map(|value| value.to_str().unwrap_or_default())
                .collect()
        };
        let peer = request
            .extensions()
            .get::<PeerAddress>()
            .and_then(|PeerAddress(peer)| *peer);
        let (forwarded, x_forwarded_for) = (values("forwarded"), values("x-forwarded-for"));
        let prepared = self.settings.get();
        let trusted = &prepared.settings.trusted_proxies;
        let client = forwarded_for(peer, trusted, &forwarded, &x_forwarded_for);
        if let (Some(peer), None) = (peer, client)
            && !(is_public(peer) || forwarded.is_empty() && x_forwarded_for.is_empty())
            && !self.proxy_was_reported.swap(true, Ordering::Relaxed)
        {
            warn!(
                %peer,
                "requests come through the proxy {peer} and count as its own: it is not in \
                 trusted_proxies, or its Forwarded and X-Forwarded-For headers disagree"
            );
        }
        client.or(peer).map(Requester::at)
    }
}

/// Returns an answer with the reason in plain text, and a `Retry-After` where the same may succeed later.
pub fn plain_text(status: u16, reason: &impl Display, wait: Option<Duration>) -> FullResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let mut reply = text(status, format!("{reason}\n"));
    if let Some(wait) = wait {
        let seconds = wait.as_secs_f64().ceil() as u64;
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    reply
}

/// Serves until `shutdown`, then finishes requests under way; the caller limits that wait. A reload may replace or remove
/// the hub meanwhile.
pub async fn serve_public(
    listener: Listener,
    topics: Arc<Topics>,
    hub: watch::Receiver<Option<Arc<EmbeddedHub>>>,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()>,
) {
    let handler = move |request: Request<Incoming>| {
        let topics = topics.clone();
        let hub = hub.borrow().clone();
        let hub = hub.filter(|hub| hub.is_at(request.uri().path()));
        async move {
            match hub {
                Some(hub) => hub.answer(request).await,
                None => topics.answer(&request),
            }
        }
    };
    server::serve(listener, limits, shutdown, handler).await;
}

/// The answer of a hub for many Sources at any other path.
const NOT_HERE: &str =
    "nothing is here: the hub is at another path, and topics are served by their publishers\n";

/// Serves a hub for many Sources until `shutdown`, then finishes requests under way; the caller limits that wait.
pub async fn serve_public_hub(
    listener: Listener,
    hub: Arc<PublicHub>,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()>,
) {
    let handler = move |request: Request<Incoming>| {
        let hub = hub.clone();
        async move {
            if hub.embedded.is_at(request.uri().path()) {
                hub.answer(request).await
            } else {
                text(StatusCode::NOT_FOUND, NOT_HERE)
            }
        }
    };
    server::serve(listener, limits, shutdown, handler).await;
}

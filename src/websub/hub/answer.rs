//! Takes subscription requests: 202 at once, whatever verification will say.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue, ORIGIN, RETRY_AFTER};
use hyper::{HeaderMap, Method, Request, StatusCode};
use tracing::warn;

use crate::announce::delivery::FORM_TYPE;
use crate::diagnostics::HUB_GREETING;
use crate::hub::Key;
use crate::hub::address::is_public;
use crate::hub::limits::Excess;
use crate::hub::request::{Refusal, read};
use crate::hub::requester::{Requester, is_meant, requester};
use crate::hub::tally::Share;
use crate::websub::hub::verification::{Pending, verify_all};
use crate::websub::hub::{EmbeddedHub, Shared};
use crate::websub::server::{Peer, Reply, small_body, text};

/// To a request under another name, or from a page of another origin.
const NOT_OWN: &str =
    "this host name is not served here, and pages of other origins may not subscribe\n";
/// Far more than a subscription form needs.
const FORM_BYTES: usize = 16 * 1024;

impl EmbeddedHub {
    /// Answers a request for the hub's path.
    pub async fn answer(&self, request: Request<Incoming>, body_timeout: Duration) -> Reply {
        if *request.method() != Method::POST {
            let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, HUB_GREETING);
            reply
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
            return reply;
        }
        let reply = match self.shared.is_own(request.headers()) {
            true => self.answer_request(request, body_timeout).await,
            false => text(StatusCode::MISDIRECTED_REQUEST, NOT_OWN),
        };
        let status = reply.status().as_u16();
        self.shared.counts().requests.answered(status);
        reply
    }

    async fn answer_request(&self, request: Request<Incoming>, body_timeout: Duration) -> Reply {
        let requester = self.shared.requester(&request);
        let now = self.shared.started.elapsed();
        let admitted = self.shared.admission().request(requester, now);
        if let Err(excess) = admitted {
            return busy(&excess);
        }
        if !is_form(request.headers()) {
            let words = format!("a subscription is a form: Content-Type {FORM_TYPE}\n");
            return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, words);
        }
        let form = match small_body(request.into_body(), FORM_BYTES, body_timeout).await {
            Ok(form) => form,
            Err((status, words)) => return text(status, words),
        };
        match self.take(&form, requester) {
            Ok(()) => text(StatusCode::ACCEPTED, ""),
            Err(NotTaken::Refused(refusal)) => told(refusal.status(), &refusal),
            Err(NotTaken::Excess(excess)) => busy(&excess),
        }
    }

    // The answer depends on nothing but the request, the configuration and what the limits leave: what is behind a
    // callback is found out later, and never told (WebSub section 5.1.2, and no word about our network).
    fn take(&self, form: &[u8], requester: Option<Requester>) -> Result<(), NotTaken> {
        let shared = &self.shared;
        let request = read(form, &shared.conduct().settings.policy)?;
        let topic = shared.topics.find(&request.topic).ok_or(Refusal::Topic)?;
        let key = Key {
            topic,
            callback: request.callback.clone(),
        };
        let share = Share::new(&request.callback, requester);
        let is_known = shared.is_subscribed(&key);
        let now = shared.started.elapsed();
        let mut admission = shared.admission();
        admission.begin(&share, &request.action, is_known, now)?;
        drop(admission);
        let pending = Pending {
            request,
            share,
            is_known,
        };
        if shared.verifications.push(&key, pending) {
            let verification = verify_all(Arc::clone(shared), key);
            shared.runtime.spawn(verification);
        }
        Ok(())
    }
}

impl Shared {
    /// Whether a request is meant for us, where only such are answered: a page in a browser of this machine must not
    /// subscribe, neither under another origin nor under a name of its own that leads here (DNS rebinding).
    fn is_own(&self, headers: &HeaderMap) -> bool {
        let conduct = self.conduct();
        let Some(own_hosts) = &conduct.settings.own_hosts else {
            return true;
        };
        let value = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // Of what is no text nothing is known.
        let is_text = |name| headers.get(name).is_none_or(|value| value.to_str().is_ok());
        let (host, origin) = (value(HOST).unwrap_or_default(), value(ORIGIN));
        is_text(HOST) && is_text(ORIGIN) && is_meant(own_hosts, host, origin)
    }

    fn requester<B>(&self, request: &Request<B>) -> Option<Requester> {
        let values = |name: &str| -> Vec<&str> {
            let values = request.headers().get_all(name).iter();
            // What is no text is no address either, and hides who is behind it.
            values
                .map(|value| value.to_str().unwrap_or_default())
                .collect()
        };
        let peer = request
            .extensions()
            .get::<Peer>()
            .and_then(|Peer(peer)| *peer);
        let (forwarded, x_forwarded_for) = (values("forwarded"), values("x-forwarded-for"));
        let conduct = self.conduct();
        let trusted = &conduct.settings.trusted_proxies;
        let found = requester(peer, trusted, &forwarded, &x_forwarded_for);
        if let Some(peer) = peer
            && found == Some(Requester::new(peer))
            && !(is_public(peer) || forwarded.is_empty() && x_forwarded_for.is_empty())
            && !self.proxy_was_noticed.swap(true, Ordering::Relaxed)
        {
            warn!(
                %peer,
                "requests come through {peer} and count as its own: embedded_hub.trusted_proxies does not have it, or \
                 its Forwarded and X-Forwarded-For disagree"
            );
        }
        found
    }
}

#[derive(Debug, thiserror::Error)]
enum NotTaken {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Excess(#[from] Excess),
}

/// An answer with the reason in plain text.
fn told(status: u16, reason: &impl Display) -> Reply {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    text(status, format!("{reason}\n"))
}

fn busy(excess: &Excess) -> Reply {
    let mut reply = told(excess.status(), excess);
    let seconds = excess.retry_after.as_secs_f64().ceil() as u64;
    reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    reply
}

fn is_form(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case(FORM_TYPE))
}

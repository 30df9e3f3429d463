//! Takes subscription requests: 202 at once, whatever verification will say.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, Method, Request, StatusCode};

use crate::announce::delivery::FORM_TYPE;
use crate::announce::inspection::HUB_GREETING;
use crate::announce::subscription::Key;
use crate::announce::subscription::request::{Refusal, read};
use crate::websub::hub::EmbeddedHub;
use crate::websub::hub::verification::verify_all;
use crate::websub::server::{Reply, small_body, text};

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
        if !is_form(request.headers()) {
            let words = format!("a subscription is a form: Content-Type {FORM_TYPE}\n");
            return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, words);
        }
        let form = match small_body(request.into_body(), FORM_BYTES, body_timeout).await {
            Ok(form) => form,
            Err((status, words)) => return text(status, words),
        };
        match self.take(&form) {
            Ok(()) => text(StatusCode::ACCEPTED, ""),
            Err(NotTaken::Refused(refusal)) => {
                let status = StatusCode::from_u16(refusal.status());
                text(
                    status.unwrap_or(StatusCode::BAD_REQUEST),
                    format!("{refusal}\n"),
                )
            }
            Err(NotTaken::Busy) => {
                let words = "too many verifications are under way\n";
                let mut reply = text(StatusCode::SERVICE_UNAVAILABLE, words);
                reply
                    .headers_mut()
                    .insert(RETRY_AFTER, HeaderValue::from_static("30"));
                reply
            }
        }
    }

    fn take(&self, form: &[u8]) -> Result<(), NotTaken> {
        let shared = &self.shared;
        let request = read(form, &shared.settings.policy)?;
        let topic = shared.topics.find(&request.topic).ok_or(Refusal::Topic)?;
        let key = Key {
            topic,
            callback: request.callback.clone(),
        };
        if shared.verifications.waiting() >= shared.settings.pending_verifications {
            return Err(NotTaken::Busy);
        }
        if shared.verifications.push(&key, request) {
            let verification = verify_all(Arc::clone(shared), key);
            shared.runtime.spawn(verification);
        }
        Ok(())
    }
}

enum NotTaken {
    Refused(Refusal),
    Busy,
}

impl From<Refusal> for NotTaken {
    fn from(refusal: Refusal) -> NotTaken {
        NotTaken::Refused(refusal)
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case(FORM_TYPE))
}

//! What all our requests have in common: who we are, no redirection behind our back, and answers of bounded
//! size.

use std::sync::Arc;

use hyper::body::Bytes;
use hyper::header::{self, CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response};

use crate::announce::delivery::secret::Mask;
use crate::announce::delivery::verdict::LOCATION;
use crate::announce::delivery::{Answer, FORM_TYPE};
use crate::resourcesync::escape::excerpt;
use crate::websub::failure::describe;

/// Who we are.
pub const USER_AGENT: &str = concat!("rsnotify/", env!("CARGO_PKG_VERSION"));
/// How much of an answer is read.
const BODY_BYTES: usize = 8 * 1024;
/// How much of it is reported.
const EXCERPT_CHARS: usize = 500;
/// How much of a form is: what it says of the notification may come last.
const FORM_CHARS: usize = 4_000;

/// A client of ours, before what one use adds to it.
pub fn builder() -> ClientBuilder {
    Client::builder()
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .http1_title_case_headers()
}

/// Builds a client that can do without the system's certificates: a machine that has none may still use
/// plain HTTP.
pub fn build_without_certificates(make: impl Fn() -> ClientBuilder) -> reqwest::Result<Client> {
    make()
        .build()
        .or_else(|_| make().tls_certs_only([]).build())
}

/// The bytes as a request body with `Content-Length`, not copied.
pub fn body(bytes: &Arc<[u8]>) -> reqwest::Body {
    Bytes::from_owner(Arc::clone(bytes)).into()
}

/// What was answered, or why nothing was; without what the mask hides.
pub async fn answer(answered: reqwest::Result<Response>, mask: &Mask) -> Answer {
    let failed = |error| Answer::Failed(excerpt(&mask.hide(&describe(error)), EXCERPT_CHARS));
    let mut response = match answered {
        Ok(response) => response,
        Err(error) => return failed(error),
    };
    let status = response.status();
    let header = |name| {
        let value = response.headers().get(name)?;
        let value = mask.hide(&String::from_utf8_lossy(value.as_bytes()));
        Some(excerpt(&value, EXCERPT_CHARS))
    };
    let (content_type, retry_after) = (header(CONTENT_TYPE), header(RETRY_AFTER));
    let location = header(header::LOCATION);
    let (body, broke_off) = beginning(&mut response, BODY_BYTES).await;
    // A form may deny what the status accepts, so half of one is no answer. Any other status stands,
    // whatever becomes of the body.
    let is_form = |content_type: &str| content_type.to_ascii_lowercase().starts_with(FORM_TYPE);
    let may_deny = status.is_success() && content_type.as_deref().is_some_and(is_form);
    if let (Some(error), true) = (broke_off, may_deny) {
        return failed(error);
    }
    let said = match location {
        Some(location) if status.is_redirection() => format!("{LOCATION}{location}"),
        _ if may_deny => mask.hide_in_form(&String::from_utf8_lossy(&body)),
        _ => mask.hide(&String::from_utf8_lossy(&body)),
    };
    let most = if may_deny { FORM_CHARS } else { EXCERPT_CHARS };
    Answer::Status {
        status: status.as_u16(),
        content_type,
        retry_after,
        excerpt: excerpt(&said, most),
    }
}

/// The first bytes of a body, and what ended it early, if anything did.
pub async fn beginning(response: &mut Response, most: usize) -> (Vec<u8>, Option<reqwest::Error>) {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = most - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if body.len() == most {
                    return (body, None);
                }
            }
            Ok(None) => return (body, None),
            Err(error) => return (body, Some(error)),
        }
    }
}

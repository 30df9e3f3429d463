//! The basis of all our HTTP clients: user agent, no automatic redirections, answers of bounded size.

use std::time::Duration;

use hyper::header::{self, CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response};
use resourcesync::escape::excerpt;

use crate::answer::Answer;
use crate::headers::FORM_TYPE;
use crate::http::failure::describe;
use crate::publisher::verdict::LOCATION;
use crate::secret::Mask;

/// The `User-Agent` header.
pub const USER_AGENT: &str = concat!("rsnotify/", env!("CARGO_PKG_VERSION"));
/// Maximum bytes read of an answer's body.
const BODY_BYTES: usize = 8 * 1024;
/// Maximum characters of it that are reported.
const EXCERPT_CHARS: usize = 500;
/// Maximum characters reported of a form, which may mention the notification last.
const FORM_CHARS: usize = 4_000;

/// Returns the builder of a client with the common settings, whose requests take at most `timeout`.
pub fn builder(timeout: Duration) -> ClientBuilder {
    Client::builder()
        .timeout(timeout)
        // The client divides it among the addresses of a host, and tries them in turn.
        .connect_timeout(timeout)
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .http1_title_case_headers()
}

/// Builds a client, without the system's certificates if there are none: such a machine may still use plain HTTP.
///
/// # Errors
///
/// If the client cannot be built with what `make` sets.
pub fn build_or_plain_http(make: impl Fn() -> ClientBuilder) -> reqwest::Result<Client> {
    make()
        .build()
        .or_else(|_| make().tls_certs_only([]).build())
}

/// Reads an answer, or describes the error; secrets are masked.
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
    // A form may deny despite a success status, so a truncated one is no answer. Otherwise the status alone decides, even if
    // the body breaks off.
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
    let max_chars = if may_deny { FORM_CHARS } else { EXCERPT_CHARS };
    Answer::Status {
        status: status.as_u16(),
        content_type,
        retry_after,
        excerpt: excerpt(&said, max_chars),
        credentials: None,
    }
}

/// Returns the first value of a header, if it is text.
pub fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the values of a header, in order. A link may have raw bytes.
pub fn header_values(headers: &HeaderMap, name: HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .collect()
}

/// Reads the first bytes of a body. Returns them with the error that broke it off, if any.
pub async fn beginning(
    response: &mut Response,
    max_bytes: usize,
) -> (Vec<u8>, Option<reqwest::Error>) {
    let mut body = Vec::new();
    while body.len() < max_bytes {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = max_bytes - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            }
            Ok(None) => break,
            Err(error) => return (body, Some(error)),
        }
    }
    (body, None)
}

//! The admin listener: health, readiness, metrics, status. Read-only.
//!
//! `/healthz` and `/readyz` answer from two flags; the others request the daemon's status from the event loop.

mod metrics;
mod page;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use resourcesync::escape::escaped_lines;
use tokio::sync::oneshot;
use websub::headers::is_addressed_to;

use crate::admin::metrics::ExpositionFormat;
use crate::report::status::{Detail, Status};
use crate::report::{JSON_VERSION, Versioned};

/// Readiness of the daemon, as `/readyz` reports it.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    is_saved: Arc<AtomicBool>,
    is_settled: Arc<AtomicBool>,
}

impl Readiness {
    /// Notes an iteration of the event loop: if the state is saved, and if what is there counts as known.
    pub fn update(&self, is_saved: bool, is_settled: bool) {
        self.is_saved.store(is_saved, Ordering::Relaxed);
        self.is_settled.store(is_settled, Ordering::Relaxed);
    }

    /// Returns the reason why the daemon is not ready.
    fn why_not_ready(&self) -> Option<&'static str> {
        if !self.is_settled.load(Ordering::Relaxed) {
            Some("not every mount was swept yet, or its Change Lists were not read")
        } else if !self.is_saved.load(Ordering::Relaxed) {
            Some("the state cannot be saved")
        } else {
            None
        }
    }
}

/// Requests the status from the event loop, which answers through the sender.
type StatusRequester = dyn Fn(Detail, oneshot::Sender<Status>) + Send + Sync;

/// The admin pages.
#[derive(Clone)]
pub(crate) struct AdminPages {
    readiness: Readiness,
    hosts: Arc<[String]>,
    request_status: Arc<StatusRequester>,
}

impl AdminPages {
    /// Returns the admin pages. `hosts` are the accepted `Host` names beside IP addresses.
    pub fn new(
        readiness: Readiness,
        hosts: Vec<String>,
        request_status: impl Fn(Detail, oneshot::Sender<Status>) + Send + Sync + 'static,
    ) -> AdminPages {
        AdminPages {
            readiness,
            hosts: hosts.into(),
            request_status: Arc::new(request_status),
        }
    }

    /// Answers a request. Requests under unknown host names are refused (DNS rebinding).
    pub async fn answer<B>(&self, request: &Request<B>) -> AdminResponse {
        let host = header_text(request.headers(), HOST);
        if !is_addressed_to(&self.hosts, host, None) {
            let message = "this host name is not served here\n";
            return text_response(StatusCode::MISDIRECTED_REQUEST, message);
        }
        let path = request.uri().path();
        let detail = match path {
            "/healthz" | "/readyz" => None,
            "/metrics" | "/configuration" => Some(Detail::Figures),
            "/subscriptions" => Some(Detail::Subscriptions),
            "/status.json" | "/" | "/channels" | "/channel" | "/payload" => {
                Some(Detail::Everything)
            }
            _ => return empty_response(StatusCode::NOT_FOUND),
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut page = empty_response(StatusCode::METHOD_NOT_ALLOWED);
            let allowed = HeaderValue::from_static("GET,HEAD");
            page.headers_mut().insert(ALLOW, allowed);
            return page;
        }
        let Some(detail) = detail else {
            return match self.readiness.why_not_ready() {
                _ if path == "/healthz" => text_response(StatusCode::OK, "alive\n"),
                None => text_response(StatusCode::OK, "ready\n"),
                Some(why) => text_response(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            };
        };
        let (sender, receiver) = oneshot::channel();
        (self.request_status)(detail, sender);
        let received = tokio::time::timeout(Duration::from_secs(5), receiver).await;
        let Ok(Ok(status)) = received else {
            let message = "the event loop does not answer\n";
            return text_response(StatusCode::SERVICE_UNAVAILABLE, message);
        };
        match path {
            "/metrics" => {
                let format = ExpositionFormat::accepted(header_text(request.headers(), ACCEPT));
                let is_ready = self.readiness.why_not_ready().is_none();
                let text = metrics::expose(&status, is_ready, format);
                ok_response(format.content_type(), text)
            }
            "/status.json" => {
                let page = Versioned {
                    version: JSON_VERSION,
                    message: &status,
                };
                match serde_json::to_string(&page) {
                    Ok(text) => ok_response("application/json", escaped_lines(&text).into_owned()),
                    Err(_) => empty_response(StatusCode::INTERNAL_SERVER_ERROR),
                }
            }
            _ => page::page_at(path, request.uri().query().unwrap_or_default(), &status),
        }
    }
}

/// A response whose body is in memory.
pub type AdminResponse = Response<Full<Bytes>>;

fn text_response(status: StatusCode, text: impl Into<Bytes>) -> AdminResponse {
    let mut page = ok_response("text/plain; charset=utf-8", text);
    *page.status_mut() = status;
    page
}

fn ok_response(content_type: &'static str, body: impl Into<Bytes>) -> AdminResponse {
    let mut page = Response::new(Full::new(body.into()));
    let content_type = HeaderValue::from_static(content_type);
    page.headers_mut().insert(CONTENT_TYPE, content_type);
    page
}

fn empty_response(status: StatusCode) -> AdminResponse {
    let mut page = Response::new(Full::default());
    *page.status_mut() = status;
    page
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> &str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

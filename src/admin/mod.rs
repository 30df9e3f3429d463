//! The admin listener: health, readiness, metrics, status. Read-only.
//!
//! `/healthz` and `/readyz` answer from two flags; the others request the daemon's status from the event loop.

mod metrics;
mod page;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::admin::metrics::ExpositionFormat;
use crate::report::status::{Detail, Status};
use crate::resourcesync::escape::escaped_lines;

/// Readiness of the daemon, as `/readyz` reports it.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    flags: Arc<Flags>,
}

#[derive(Debug, Default)]
struct Flags {
    is_saved: AtomicBool,
    is_settled: AtomicBool,
}

impl Readiness {
    pub fn new() -> Readiness {
        Readiness::default()
    }

    /// Notes an iteration of the event loop: if the state is saved, and if every present mount was swept.
    pub fn update(&self, is_saved: bool, is_settled: bool) {
        self.flags.is_saved.store(is_saved, Ordering::Relaxed);
        self.flags.is_settled.store(is_settled, Ordering::Relaxed);
    }

    /// Returns the reason why the daemon is not ready.
    fn not_ready(&self) -> Option<&'static str> {
        if !self.flags.is_settled.load(Ordering::Relaxed) {
            Some("not every mount was swept yet")
        } else if !self.flags.is_saved.load(Ordering::Relaxed) {
            Some("the state cannot be saved")
        } else {
            None
        }
    }
}

#[derive(Serialize)]
struct StatusPage<'a> {
    version: u64,
    #[serde(flatten)]
    status: &'a Status,
}

/// Requests the status from the event loop, which answers through the sender.
type RequestStatus = dyn Fn(Detail, oneshot::Sender<Status>) + Send + Sync;

/// The admin pages.
#[derive(Clone)]
pub struct Admin {
    readiness: Readiness,
    hosts: Arc<[String]>,
    request_status: Arc<RequestStatus>,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl Admin {
    /// Returns the admin pages. `hosts` are the accepted `Host` names beside IP addresses.
    pub fn new(
        readiness: Readiness,
        hosts: Vec<String>,
        request_status: impl Fn(Detail, oneshot::Sender<Status>) + Send + Sync + 'static,
    ) -> Admin {
        Admin {
            readiness,
            hosts: hosts.into(),
            request_status: Arc::new(request_status),
        }
    }

    async fn status(&self, detail: Detail) -> Result<Status, (StatusCode, &'static str)> {
        let (sender, receiver) = oneshot::channel();
        (self.request_status)(detail, sender);
        match tokio::time::timeout(Duration::from_secs(5), receiver).await {
            Ok(Ok(status)) => Ok(status),
            _ => Err((
                StatusCode::SERVICE_UNAVAILABLE,
                "the event loop does not answer\n",
            )),
        }
    }
}

/// Returns the pages as a service.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthz", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(exposition))
        .route("/status.json", get(status_json))
        .route("/", get(page::overview))
        .route("/channels", get(page::channels))
        .route("/channel", get(page::channel))
        .route("/payload", get(page::payload))
        .route("/configuration", get(page::configuration))
        .layer(middleware::from_fn_with_state(admin.clone(), known_host))
        .with_state(admin)
}

/// Refuses requests under unknown host names (DNS rebinding).
async fn known_host(
    State(admin): State<Admin>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let is_known = name.is_empty()
        || name.parse::<IpAddr>().is_ok()
        || admin
            .hosts
            .iter()
            .any(|host| host.eq_ignore_ascii_case(name));
    if is_known {
        next.run(request).await
    } else {
        (
            StatusCode::MISDIRECTED_REQUEST,
            "this host name is not served here\n",
        )
            .into_response()
    }
}

async fn ready(State(admin): State<Admin>) -> Response {
    match admin.readiness.not_ready() {
        None => "ready\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn exposition(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = ExpositionFormat::accepted(accept.unwrap_or_default());
    match admin.status(Detail::Figures).await {
        Ok(status) => {
            let is_ready = admin.readiness.not_ready().is_none();
            let text = metrics::expose(&status, is_ready, format);
            ([(CONTENT_TYPE, format.content_type())], text).into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

async fn status_json(State(admin): State<Admin>) -> Response {
    match admin.status(Detail::Everything).await {
        Ok(status) => {
            let page = StatusPage {
                version: 1,
                status: &status,
            };
            let content_type = [(CONTENT_TYPE, "application/json")];
            match serde_json::to_string(&page) {
                Ok(text) => (content_type, escaped_lines(&text).into_owned()).into_response(),
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        }
        Err(refusal) => refusal.into_response(),
    }
}

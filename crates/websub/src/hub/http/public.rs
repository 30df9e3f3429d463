//! The public listener: topics, and the embedded hub if enabled; or a hub for many Sources, which serves no topics.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use tokio::sync::watch;

use crate::http::server::{self, Listener, ServerLimits, text};
use crate::hub::http::EmbeddedHub;
use crate::hub::publication::http::PublicHub;
use crate::topics::http::Topics;

/// Serves until `shutdown`, then finishes requests under way; the caller limits that wait. A reload may replace or remove
/// the hub meanwhile.
pub async fn serve_public(
    listener: Listener,
    topics: Arc<Topics>,
    hub: watch::Receiver<Option<EmbeddedHub>>,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()>,
) {
    let body_timeout = limits.body_timeout;
    let handler = move |request: Request<Incoming>| {
        let topics = topics.clone();
        let hub = hub.borrow().clone();
        let hub = hub.filter(|hub| hub.is_at(request.uri().path()));
        async move {
            match hub {
                Some(hub) => hub.answer(request, body_timeout).await,
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
pub async fn serve_hub(
    listener: Listener,
    hub: Arc<PublicHub>,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()>,
) {
    let body_timeout = limits.body_timeout;
    let handler = move |request: Request<Incoming>| {
        let hub = hub.clone();
        async move {
            if hub.embedded.is_at(request.uri().path()) {
                hub.answer(request, body_timeout).await
            } else {
                text(StatusCode::NOT_FOUND, NOT_HERE)
            }
        }
    };
    server::serve(listener, limits, shutdown, handler).await;
}

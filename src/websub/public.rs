//! The public listener: topics, and the embedded hub if enabled.

use hyper::Request;
use hyper::body::Incoming;
use tokio::sync::watch;

use crate::websub::hub::EmbeddedHub;
use crate::websub::server::{self, Listener, ServerLimits};
use crate::websub::topics::Topics;

/// Serves until `shutdown`, then finishes requests under way; the caller limits that wait. A reload may replace or remove
/// the hub meanwhile.
pub async fn serve_public(
    listener: Listener,
    topics: Topics,
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

//! A Destination: subscribes to topics, confirms verification requests, and receives notifications and denials.

pub mod retrieve;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, LINK};
use hyper::{Method, Request, StatusCode};
use jiff::Timestamp;
use reqwest::Client;
use resourcesync::uri::{Hub, Topic};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use url::Url;
use uuid::Uuid;

use crate::answer::{Answer, is_temporary};
use crate::headers::{FORM_TYPE, Links, encode_form, form_value};
use crate::http::client::header_values;
use crate::http::server::{self, FullResponse, Listener, ServerLimits, small_body, text};
use crate::http::{client, lock};
use crate::hub::delivery::is_signed;
use crate::secret::{Mask, Secret};

const TIMEOUT: Duration = Duration::from_secs(30);
const SUBSCRIBE: &str = "subscribe";
/// Deliveries of one subscription that are queued before the next one is read.
const WAITING: usize = 64;

/// The unguessable last segment of a callback, and the secret of its subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackKey {
    /// The segment.
    pub id: String,
    /// The secret that the hub signs deliveries with.
    pub secret: Secret,
}

impl CallbackKey {
    /// Returns a new random key.
    pub fn random() -> CallbackKey {
        let random = || Uuid::new_v4().simple().to_string();
        CallbackKey {
            id: random(),
            secret: Secret::new(random() + &random()),
        }
    }
}

/// A request that arrived at a callback, by its signature.
#[derive(Debug)]
pub enum SignatureCheck {
    /// A notification, signed with the secret. The hub waits for the answer.
    Notification(ReceivedNotification),
    /// A notification without the right signature; it was acknowledged and is ignored (WebSub section 7.1.2).
    BadSignature {
        /// The value of `X-Hub-Signature`, if there is one.
        signature: Option<String>,
    },
}

/// A received notification. Unless it is acknowledged, the hub is answered 503, so that it tries again.
#[derive(Debug)]
pub struct ReceivedNotification {
    /// Content of the topic.
    pub body: Bytes,
    /// The `self` link of the notification.
    pub self_uri: Option<Topic>,
    /// Sent to answer the hub. Closed if the hub no longer waits: it will deliver the notification again.
    pub answer: oneshot::Sender<()>,
}

impl ReceivedNotification {
    /// Answers the hub with 200.
    pub fn acknowledge(self) {
        // Fails if the hub no longer waits; then it delivers the notification again.
        let _ = self.answer.send(());
    }
}

/// The decision of a hub on a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubDecision {
    /// With the lease, which some hubs do not state.
    Verified(Option<Duration>),
    /// With the reason. A hub may deny a subscription at any time (WebSub section 5.2).
    Denied(String),
}

/// An error of subscribing.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Cause.
        source: std::io::Error,
    },
    /// The HTTP client cannot be built.
    #[error("cannot prepare requests")]
    Client(#[from] reqwest::Error),
    /// There is no answer.
    #[error("hub {hub} does not answer: {reason}")]
    NoAnswer {
        /// The hub.
        hub: Hub,
        /// The error in words.
        reason: String,
    },
    /// The hub answers with an error.
    #[error("hub {hub} refuses with {status}: {excerpt}")]
    Refused {
        /// The hub.
        hub: Hub,
        /// HTTP status.
        status: u16,
        /// The beginning of its answer.
        excerpt: String,
        /// The wait that the hub asks for.
        retry_after: Option<Duration>,
    },
    /// The hub denies the subscription (WebSub section 5.2).
    #[error("hub {hub} denies it: {reason}")]
    Denied {
        /// The hub.
        hub: Hub,
        /// Its reason.
        reason: String,
    },
    /// The hub accepted the request, and verified nothing in time.
    #[error("hub {hub} did not verify at {callback}; can it reach that address?")]
    NotVerified {
        /// The hub.
        hub: Hub,
        /// URL of the callback.
        callback: String,
    },
}

impl SubscribeError {
    /// Returns true if the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            SubscribeError::NoAnswer { .. } => true,
            SubscribeError::Refused { status, .. } => is_temporary(*status),
            _ => false,
        }
    }

    /// Returns the wait before the next request that the hub asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            SubscribeError::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// The receiver of subscriptions.
#[derive(Debug)]
pub struct HttpSubscriber {
    base: String,
    /// The address that is bound.
    pub address: SocketAddr,
    client: Client,
    callbacks: Arc<Callbacks>,
    /// Until it is served, or closed.
    listener: Mutex<Option<TcpListener>>,
    /// The server, which stops when its sender is dropped.
    server: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

/// The subscriptions, by the id of their callbacks.
type Callbacks = Mutex<HashMap<String, CallbackEntry>>;

/// One callback, and the subscription that it is for.
#[derive(Debug)]
struct CallbackEntry {
    topic: Topic,
    secret: Secret,
    /// The mode that is to be verified.
    mode: &'static str,
    decisions: mpsc::UnboundedSender<HubDecision>,
    received: mpsc::Sender<SignatureCheck>,
}

/// A callback of ours: its subscription at a hub, and the hub's decisions on it.
#[derive(Debug)]
pub struct SubscriptionHandle {
    key: CallbackKey,
    /// Decisions that no request of ours is waiting for: a denial, or another verification.
    pub decisions: mpsc::UnboundedReceiver<HubDecision>,
}

impl HttpSubscriber {
    /// Binds `address`. Callbacks are below `public`, or that address. Requests wait until [`HttpSubscriber::serve`].
    ///
    /// # Errors
    ///
    /// If the address cannot be bound, or the HTTP client cannot be built.
    pub async fn bind(
        address: SocketAddr,
        public: Option<Url>,
    ) -> Result<HttpSubscriber, SubscribeError> {
        let failed = |source| SubscribeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let mut reachable = bound;
        if bound.ip().is_unspecified() {
            reachable.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let base = public.map_or_else(|| format!("http://{reachable}/"), String::from);
        let make = || client::builder(TIMEOUT);
        Ok(HttpSubscriber {
            base: format!("{}/", base.trim_end_matches('/')),
            address: bound,
            client: client::build_or_plain_http(make)?,
            callbacks: Arc::default(),
            listener: Mutex::new(Some(listener)),
            server: Mutex::default(),
        })
    }

    /// Opens a callback for a topic. Returns the subscription and the receiver of the requests that arrive at the
    /// callback.
    pub fn open_callback(
        &self,
        key: &CallbackKey,
        topic: &Topic,
    ) -> (SubscriptionHandle, mpsc::Receiver<SignatureCheck>) {
        let (decisions, decided) = mpsc::unbounded_channel();
        let (sender, received) = mpsc::channel(WAITING);
        let callback = CallbackEntry {
            topic: topic.clone(),
            secret: key.secret.clone(),
            mode: SUBSCRIBE,
            decisions,
            received: sender,
        };
        lock(&self.callbacks).insert(key.id.clone(), callback);
        let subscription = SubscriptionHandle {
            key: key.clone(),
            decisions: decided,
        };
        (subscription, received)
    }

    /// Answers requests from now on. The callbacks of earlier subscriptions must be open by then: an unknown one is
    /// answered 410, which ends its subscription.
    pub fn serve(&self) {
        let Some(listener) = lock(&self.listener).take() else {
            return;
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let callbacks = Arc::clone(&self.callbacks);
        let handler = move |request| answer_request(Arc::clone(&callbacks), request);
        let until_stopped = async {
            // An error signals the drop.
            let _ = stopped.await;
        };
        let (listener, limits) = (Listener::Tcp(listener), ServerLimits::default());
        let task = tokio::spawn(server::serve(listener, limits, until_stopped, handler));
        *lock(&self.server) = Some((stop, task));
    }

    /// Stops listening, and waits until requests under way are answered. The caller limits that wait.
    pub async fn close(&self) {
        drop(lock(&self.listener).take());
        let server = lock(&self.server).take();
        if let Some((stop, task)) = server {
            drop(stop);
            // An error is a panic, which was reported.
            let _ = task.await;
        }
    }

    /// Subscribes, or renews, and waits until the hub has verified it. Returns the lease, if the hub states it.
    ///
    /// # Errors
    ///
    /// If the hub does not answer, refuses or denies it, or verifies nothing in time.
    pub async fn subscribe(
        &self,
        subscription: &mut SubscriptionHandle,
        hub: &Hub,
        topic: &Topic,
        lease: Duration,
    ) -> Result<Option<Duration>, SubscribeError> {
        let seconds = lease.as_secs().to_string();
        let secret = subscription.key.secret.clone();
        let more = [
            ("hub.lease_seconds", seconds.as_str()),
            ("hub.secret", secret.reveal()),
        ];
        self.ask_and_verify(subscription, hub, topic, SUBSCRIBE, &more)
            .await
    }

    /// Unsubscribes, and waits until the hub has verified it.
    ///
    /// # Errors
    ///
    /// If the hub does not answer, refuses or denies it, or verifies nothing in time.
    pub async fn unsubscribe(
        &self,
        subscription: &mut SubscriptionHandle,
        hub: &Hub,
        topic: &Topic,
    ) -> Result<(), SubscribeError> {
        self.ask_and_verify(subscription, hub, topic, "unsubscribe", &[])
            .await?;
        self.close_callback(subscription);
        Ok(())
    }

    /// Closes the callback of a subscription that is given up. A hub that verifies it late is refused, and one that
    /// delivers is answered 410.
    pub fn close_callback(&self, subscription: &SubscriptionHandle) {
        lock(&self.callbacks).remove(&subscription.key.id);
    }

    async fn ask_and_verify(
        &self,
        subscription: &mut SubscriptionHandle,
        hub: &Hub,
        topic: &Topic,
        mode: &'static str,
        more: &[(&str, &str)],
    ) -> Result<Option<Duration>, SubscribeError> {
        if let Some(callback) = lock(&self.callbacks).get_mut(&subscription.key.id) {
            callback.topic = topic.clone();
            callback.mode = mode;
        }
        // A decision made before this request is no answer to it.
        while subscription.decisions.try_recv().is_ok() {}
        let callback = format!("{}{}", self.base, subscription.key.id);
        let mut parameters = vec![
            ("hub.mode", mode),
            ("hub.topic", topic.as_str()),
            ("hub.callback", callback.as_str()),
            // Required by hubs older than WebSub.
            ("hub.verify", "async"),
        ];
        parameters.extend_from_slice(more);
        let post = self
            .client
            .post(hub.as_str())
            .header("Content-Type", FORM_TYPE)
            .body(encode_form(&parameters));
        let hub = hub.clone();
        // A hub may repeat what it was sent.
        let mask = Mask::new([subscription.key.secret.clone()]);
        let answer = client::answer(post.send().await, &mask).await;
        let retry_after = answer.retry_after(Timestamp::now());
        match answer {
            // No HTTP server gives the answers of a message broker.
            Answer::Status {
                status: 200..=299, ..
            }
            | Answer::Receipts => {}
            Answer::Status {
                status, excerpt, ..
            } => {
                return Err(SubscribeError::Refused {
                    hub,
                    status,
                    excerpt,
                    retry_after,
                });
            }
            Answer::Failed(reason)
            | Answer::BrokerError {
                excerpt: reason, ..
            } => return Err(SubscribeError::NoAnswer { hub, reason }),
        }
        match tokio::time::timeout(TIMEOUT, subscription.decisions.recv()).await {
            Ok(Some(HubDecision::Verified(lease))) => Ok(lease),
            Ok(Some(HubDecision::Denied(reason))) => Err(SubscribeError::Denied { hub, reason }),
            Ok(None) | Err(_) => Err(SubscribeError::NotVerified { hub, callback }),
        }
    }
}

/// Maximum size of a notification.
const BODY_BYTES: usize = 16 * 1024 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

async fn answer_request(callbacks: Arc<Callbacks>, request: Request<Incoming>) -> FullResponse {
    // The last segment of the path decides: a proxy may have changed the others.
    let last = request.uri().path().rsplit('/').next().unwrap_or_default();
    let id = last.to_owned();
    match *request.method() {
        Method::GET => {
            answer_verification(&callbacks, &id, request.uri().query().unwrap_or_default())
        }
        Method::POST => notification(&callbacks, &id, request).await,
        _ => text(StatusCode::METHOD_NOT_ALLOWED, "GET or POST\n"),
    }
}

/// Confirms a verification request for a subscription that we want (WebSub section 5.3.1), and no other. Passes on a
/// denial, which may come at any time (section 5.2).
fn answer_verification(callbacks: &Callbacks, id: &str, query: &str) -> FullResponse {
    let value = |name| form_value(query.as_bytes(), name);
    let not_ours = || text(StatusCode::NOT_FOUND, "not asked for\n");
    let callbacks = lock(callbacks);
    let Some(callback) = callbacks.get(id) else {
        return not_ours();
    };
    if value("hub.topic").as_deref() != Some(callback.topic.as_str()) {
        return not_ours();
    }
    let mode = value("hub.mode");
    let (decision, reply) = match (mode.as_deref(), value("hub.challenge")) {
        (Some(mode), Some(challenge)) if mode == callback.mode => {
            let lease = value("hub.lease_seconds")
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs);
            (
                HubDecision::Verified(lease),
                text(StatusCode::OK, challenge),
            )
        }
        (Some("denied"), _) => {
            let reason = value("hub.reason").unwrap_or_else(|| "no reason given".to_owned());
            (HubDecision::Denied(reason), text(StatusCode::OK, ""))
        }
        _ => return not_ours(),
    };
    // Fails if the subscription is being given up.
    let _ = callback.decisions.send(decision);
    reply
}

/// Hands a notification over, and answers as its receiver decides: 200 only if it was acknowledged.
async fn notification(callbacks: &Callbacks, id: &str, request: Request<Incoming>) -> FullResponse {
    let known = lock(callbacks)
        .get(id)
        .map(|callback| (callback.secret.clone(), callback.received.clone()));
    let Some((secret, received)) = known else {
        return text(StatusCode::GONE, "not subscribed\n");
    };
    let (head, body) = request.into_parts();
    let body = match small_body(body, BODY_BYTES, BODY_TIMEOUT).await {
        Ok(body) => body,
        Err((status, words)) => return text(status, words),
    };
    let signature = HeaderName::from_static("x-hub-signature");
    let signature = header_values(&head.headers, signature).into_iter().next();
    if !is_signed(signature.as_deref().unwrap_or_default(), &secret, &body) {
        // Only a report. If so many are waiting, it can be left out.
        let _ = received.try_send(SignatureCheck::BadSignature { signature });
        return text(StatusCode::ACCEPTED, "");
    }
    let links = Links::parse(header_values(&head.headers, LINK));
    let (answer, answered) = oneshot::channel();
    let notification = SignatureCheck::Notification(ReceivedNotification {
        body,
        self_uri: links.self_links.into_iter().next().map(Topic::new),
        answer,
    });
    if received.send(notification).await.is_ok() && answered.await.is_ok() {
        text(StatusCode::OK, "")
    } else {
        text(
            StatusCode::SERVICE_UNAVAILABLE,
            "not handed over; try again\n",
        )
    }
}

//! A Destination: subscribes to topics, confirms verification requests, and receives notifications.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use reqwest::Client;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use url::Url;
use uuid::Uuid;

use crate::http::answer::Answer;
use crate::http::form::{FORM_TYPE, encode_form};
use crate::http::secret::{Mask, Secret};
use crate::resourcesync::uri::{Hub, Topic};
use crate::websub::client;
use crate::websub::server::{self, Listener, ServerLimits};

mod callback;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Notifications buffered for a slow reader before hubs have to wait.
const WAITING: usize = 64;

/// A received notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The topic subscribed to.
    pub topic: Topic,
    /// The `self` link of the notification.
    pub self_uri: Option<Topic>,
    pub content_type: Option<String>,
    pub body: Bytes,
}

/// An error of subscribing.
#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot prepare requests")]
    Client(#[from] reqwest::Error),
    #[error("hub {hub} does not answer: {reason}")]
    NoAnswer { hub: Hub, reason: String },
    #[error("hub {hub} refuses with {status}: {excerpt}")]
    Refused {
        hub: Hub,
        status: u16,
        excerpt: String,
    },
    #[error("hub {hub} denies it: {reason}")]
    Denied { hub: Hub, reason: String },
    #[error("hub {hub} did not verify at {callback}; can it reach that address?")]
    NotVerified { hub: Hub, callback: String },
}

/// The receiver of subscriptions. Stops listening when dropped; [`Destination::unsubscribe`] tells the hub.
pub struct Destination {
    base: String,
    client: Client,
    expected: Arc<Expected>,
    /// Ends the listener when dropped.
    _listening: oneshot::Sender<()>,
}

/// The wanted subscriptions, by the unguessable last segment of their callbacks.
struct Expected {
    subscriptions: Mutex<HashMap<String, WantedSubscription>>,
    received: mpsc::Sender<Received>,
}

/// A subscription that we want, or want to end.
struct WantedSubscription {
    topic: Topic,
    secret: Option<Secret>,
    intent: Intent,
    /// Receives the decision of the hub.
    decided: Option<oneshot::Sender<Decision>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intent {
    Subscribe,
    Unsubscribe,
}

/// The decision of a hub on our request.
enum Decision {
    /// With the lease, which some hubs do not state.
    Verified(Option<Duration>),
    Denied(String),
}

impl Destination {
    /// Listens at `address`. Callbacks are below `public`, or that address.
    pub async fn bind(
        address: SocketAddr,
        public: Option<Url>,
    ) -> Result<(Destination, mpsc::Receiver<Received>), SubscribeError> {
        let failed = |source| SubscribeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let base = public.map_or_else(|| format!("http://{}/", reachable(bound)), String::from);
        let (sender, receiver) = mpsc::channel(WAITING);
        let (listening, dropped) = oneshot::channel::<()>();
        let expected = Arc::new(Expected {
            subscriptions: Mutex::default(),
            received: sender,
        });
        let make = || client::builder().timeout(TIMEOUT);
        let destination = Destination {
            base: format!("{}/", base.trim_end_matches('/')),
            client: client::build_without_certificates(make)?,
            expected: Arc::clone(&expected),
            _listening: listening,
        };
        let handler = move |request| callback::answer(Arc::clone(&expected), request);
        let until_dropped = async {
            // An error signals the drop.
            let _ = dropped.await;
        };
        tokio::spawn(async move {
            let listener = Listener::Tcp(listener);
            server::serve(listener, ServerLimits::default(), until_dropped, handler).await;
        });
        Ok((destination, receiver))
    }

    /// Subscribes, or renews, and waits until the hub has verified it. Returns the lease, if the hub states it.
    pub async fn subscribe(
        &self,
        hub: &Hub,
        topic: &Topic,
        lease: Option<Duration>,
        secret: Option<Secret>,
    ) -> Result<Option<Duration>, SubscribeError> {
        let seconds = lease.map(|lease| lease.as_secs().to_string());
        let mut more = Vec::new();
        more.extend(
            seconds
                .iter()
                .map(|seconds| ("hub.lease_seconds", seconds.as_str())),
        );
        more.extend(secret.iter().map(|secret| ("hub.secret", secret.reveal())));
        let (id, decided) = self.expected.want(topic, Intent::Subscribe, secret.clone());
        self.ask(hub, topic, &id, "subscribe", &more, decided).await
    }

    /// Unsubscribes, and waits until the hub has verified it.
    pub async fn unsubscribe(&self, hub: &Hub, topic: &Topic) -> Result<(), SubscribeError> {
        let (id, decided) = self.expected.want(topic, Intent::Unsubscribe, None);
        self.ask(hub, topic, &id, "unsubscribe", &[], decided)
            .await?;
        self.expected.lock().remove(&id);
        Ok(())
    }

    /// Returns the callback of a topic subscribed to.
    pub fn callback(&self, topic: &Topic) -> Option<String> {
        let subscriptions = self.expected.lock();
        let found = subscriptions
            .iter()
            .find(|(_, wanted)| wanted.topic == *topic);
        found.map(|(id, _)| format!("{}{id}", self.base))
    }

    async fn ask(
        &self,
        hub: &Hub,
        topic: &Topic,
        id: &str,
        mode: &str,
        more: &[(&str, &str)],
        decided: oneshot::Receiver<Decision>,
    ) -> Result<Option<Duration>, SubscribeError> {
        let callback = format!("{}{id}", self.base);
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
        match client::answer(post.send().await, &Mask::default()).await {
            Answer::Status {
                status: 200..=299, ..
            } => {}
            Answer::Status {
                status, excerpt, ..
            } => {
                return Err(SubscribeError::Refused {
                    hub,
                    status,
                    excerpt,
                });
            }
            Answer::Failed(reason) => return Err(SubscribeError::NoAnswer { hub, reason }),
        }
        match tokio::time::timeout(TIMEOUT, decided).await {
            Ok(Ok(Decision::Verified(lease))) => Ok(lease),
            Ok(Ok(Decision::Denied(reason))) => Err(SubscribeError::Denied { hub, reason }),
            Ok(Err(_)) | Err(_) => Err(SubscribeError::NotVerified { hub, callback }),
        }
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

impl Expected {
    /// Records the intent for a topic, under its existing callback or a new one.
    fn want(
        &self,
        topic: &Topic,
        intent: Intent,
        secret: Option<Secret>,
    ) -> (String, oneshot::Receiver<Decision>) {
        let (decided, decision) = oneshot::channel();
        let mut subscriptions = self.lock();
        let known = subscriptions
            .iter()
            .find(|(_, wanted)| wanted.topic == *topic);
        let id = known.map_or_else(|| Uuid::new_v4().simple().to_string(), |(id, _)| id.clone());
        let earlier = subscriptions.remove(&id);
        let wanted = WantedSubscription {
            topic: topic.clone(),
            // Notifications before the end are signed as before.
            secret: secret.or(earlier.and_then(|earlier| earlier.secret)),
            intent,
            decided: Some(decided),
        };
        subscriptions.insert(id.clone(), wanted);
        (id, decision)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, WantedSubscription>> {
        self.subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the address by which this machine reaches a listener at `bound`.
fn reachable(bound: SocketAddr) -> SocketAddr {
    match bound.ip().is_unspecified() {
        true => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), bound.port()),
        false => bound,
    }
}

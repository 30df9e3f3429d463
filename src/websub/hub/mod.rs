//! The embedded hub: takes subscriptions to our topics, verifies them, and relays notifications
//! (Framework Notification 1.0.1 sections 4.2–4.4). It saves nothing itself: what must survive leaves as
//! [`HubRecord`]s, and deliveries are saved by the caller between [`EmbeddedHub::relay`] and
//! [`EmbeddedHub::dispatch`].

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Client;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tracing::warn;

use crate::announce::delivery::Submission;
use crate::announce::subscription::audience::{Assignment, Audience, Delivery, Forgone};
use crate::announce::subscription::callback::CallbackPolicy;
use crate::announce::subscription::request::Request;
use crate::announce::subscription::{HubRecord, Key, Progress, Relay, Subscription};
use crate::resourcesync::uri::{Hub, Topic};
use crate::websub::client;
use crate::websub::hub::lanes::Lanes;
use crate::websub::topics::Topics;

mod answer;
mod lanes;
mod relay;
mod verification;

/// How the hub behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// As advertised; its path is where subscriptions are taken.
    pub hub: Hub,
    pub policy: CallbackPolicy,
    /// For each request to a callback, from connecting to the end of the answer.
    pub timeout: Duration,
    /// Deliveries under way at a time.
    pub concurrent_deliveries: usize,
    /// What may wait on one topic for subscribers who do not take it; the oldest is given up for the newest.
    pub waiting_notifications: usize,
    pub waiting_bytes: usize,
    /// Verifications under way at a time, and waiting altogether.
    pub concurrent_verifications: usize,
    pub pending_verifications: usize,
    /// Tries of a verification whose callback does not answer at all.
    pub verification_attempts: u32,
}

impl Settings {
    pub fn new(hub: Hub, policy: CallbackPolicy) -> Settings {
        Settings {
            hub,
            policy,
            timeout: Duration::from_secs(10),
            concurrent_deliveries: 512,
            waiting_notifications: 1_000,
            waiting_bytes: 16 * 1024 * 1024,
            concurrent_verifications: 64,
            pending_verifications: 1_000,
            verification_attempts: 3,
        }
    }
}

/// What earlier runs saved.
#[derive(Debug, Clone, Default)]
pub struct Restored {
    pub subscriptions: Vec<(Subscription, Progress)>,
    pub relays: Vec<Relay>,
}

/// Why the hub cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare the embedded hub's requests")]
pub struct HubError(#[from] reqwest::Error);

/// The hub. Clones are the same hub.
#[derive(Clone)]
pub struct EmbeddedHub {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    path: String,
    topics: Topics,
    records: Box<dyn Fn(HubRecord) + Send + Sync>,
    client: Client,
    runtime: Handle,
    audience: Mutex<Audience>,
    verifications: Lanes<Request>,
    verifying: Semaphore,
    delivering: Arc<Semaphore>,
}

/// How often ended leases are forgotten. They are not delivered to in the meantime.
const END_LEASES_EVERY: Duration = Duration::from_secs(60);

impl EmbeddedHub {
    /// Takes up what earlier runs left; must be called within a tokio runtime. `records` hears, in order,
    /// what is to be saved; it must neither block nor call the hub.
    pub fn start(
        settings: Settings,
        restored: Restored,
        topics: Topics,
        records: impl Fn(HubRecord) + Send + Sync + 'static,
    ) -> Result<EmbeddedHub, HubError> {
        let (audience, obsolete) = Audience::restore(restored.subscriptions, restored.relays);
        obsolete.into_iter().for_each(&records);
        let topics_owed = audience.topics_owed();
        let timeout = settings.timeout;
        let shared = Arc::new(Shared {
            path: path(&settings.hub),
            topics,
            records: Box::new(records),
            client: client::build_without_certificates(|| callback_client(timeout))?,
            runtime: Handle::current(),
            audience: Mutex::new(audience),
            verifications: Lanes::default(),
            verifying: Semaphore::new(settings.concurrent_verifications),
            delivering: Arc::new(Semaphore::new(settings.concurrent_deliveries)),
            settings,
        });
        tokio::spawn(end_leases(Arc::downgrade(&shared)));
        let hub = EmbeddedHub { shared };
        topics_owed.iter().for_each(|topic| hub.deliver(topic));
        Ok(hub)
    }

    /// The path at which subscriptions are taken.
    pub fn path(&self) -> &str {
        &self.shared.path
    }

    /// A notification for whoever subscribes to its topic, if anybody does. To be saved, then handed to
    /// [`EmbeddedHub::dispatch`].
    pub fn relay(&self, submission: &Submission) -> Option<Relay> {
        let Submission {
            topic, seq, body, ..
        } = submission;
        self.shared
            .audience()
            .relay(topic, *seq, body, Timestamp::now())
    }

    /// Delivers notifications that are saved, to each subscriber after those given earlier. What waits too long for
    /// those who take nothing is given up.
    pub fn dispatch(&self, relays: Vec<Relay>) {
        for relay in relays {
            let topic = relay.topic.clone();
            self.shared
                .change(|audience| audience.owe(relay).into_iter().collect());
            self.shared.trim(&topic);
            self.deliver(&topic);
        }
    }

    /// Ends all subscriptions to a topic, and tells the subscribers.
    pub fn end_topic(&self, topic: &Topic) {
        let callbacks = self.shared.audience().callbacks(topic);
        for callback in callbacks {
            let topic = topic.clone();
            let key = Key { topic, callback };
            self.shared.change(|audience| audience.unsubscribe(&key));
            let denial = verification::deny(Arc::clone(&self.shared), key, "the topic has ended");
            self.shared.runtime.spawn(denial);
        }
    }

    fn deliver(&self, topic: &Topic) {
        let assignments = self.shared.audience().assign(topic);
        let shared = Arc::clone(&self.shared);
        self.shared
            .runtime
            .spawn(relay::deliver_to_all(shared, assignments));
    }
}

impl fmt::Debug for EmbeddedHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedHub")
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn next(&self, assignment: &Assignment) -> Option<Delivery> {
        self.audience().next(assignment, Timestamp::now())
    }

    fn trim(&self, topic: &Topic) {
        let (most, most_bytes) = (
            self.settings.waiting_notifications,
            self.settings.waiting_bytes,
        );
        self.change(|audience| {
            let forgone = audience.trim(topic, most, most_bytes).into_iter();
            forgone
                .map(|Forgone { relay, subscribers }| {
                    let seq = relay.seq;
                    warn!(
                        %topic, seq, subscribers,
                        "gave up notification {seq} of {topic}, which {subscribers} subscribers did not take: \
                         too many wait"
                    );
                    HubRecord::Ended(relay.id)
                })
                .collect()
        });
    }

    /// Records are made while the lock is held, so that they leave in the order in which things changed.
    fn change(&self, change: impl FnOnce(&mut Audience) -> Vec<HubRecord>) {
        let mut audience = self.audience();
        change(&mut audience).into_iter().for_each(&self.records);
    }

    fn audience(&self) -> MutexGuard<'_, Audience> {
        self.audience.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn end_leases(hub: Weak<Shared>) {
    loop {
        tokio::time::sleep(END_LEASES_EVERY).await;
        let Some(hub) = hub.upgrade() else { return };
        hub.change(|audience| audience.end_leases(Timestamp::now()));
    }
}

/// Callbacks are given by strangers: no proxy between us and the address that was checked, and `localhost`
/// is this machine whatever a resolver says.
fn callback_client(timeout: Duration) -> reqwest::ClientBuilder {
    let localhost = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
    ];
    client::builder()
        .no_proxy()
        .timeout(timeout)
        .resolve_to_addrs("localhost", &localhost)
}

fn path(hub: &Hub) -> String {
    let uri = hub.as_str();
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |slash| &rest[slash..]);
    path.split(['?', '#']).next().unwrap_or(path).to_owned()
}

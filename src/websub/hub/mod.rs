//! The embedded hub: takes subscriptions to our topics, verifies them, and relays notifications
//! (Framework Notification 1.0.1 sections 4.2–4.4). It saves nothing itself: what must survive leaves as
//! [`HubRecord`]s, and deliveries are saved by the caller between [`EmbeddedHub::relay`] and
//! [`EmbeddedHub::dispatch`].

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::Handle;
use tracing::warn;

use crate::announce::delivery::Submission;
use crate::hub::admission::Admission;
use crate::hub::audience::view::HubStatus;
use crate::hub::audience::{Audience, Forgone};
use crate::hub::callback::CallbackPolicy;
use crate::hub::counts::Counts;
use crate::hub::limits::Limits;
use crate::hub::network::Network;
use crate::hub::{HubRecord, Key, Progress, Relay, Subscription};
use crate::resourcesync::uri::{Hub, Topic};
use crate::websub::hub::calls::Caller;
use crate::websub::hub::lanes::Lanes;
pub use crate::websub::hub::lookups::Resolver;
use crate::websub::hub::relay::Wakers;
use crate::websub::hub::slots::Slots;
use crate::websub::hub::subscriptions::{Lines, Subscriptions};
use crate::websub::hub::verification::Pending;
use crate::websub::topics::Topics;

mod answer;
mod calls;
mod lanes;
mod lookups;
mod relay;
mod slots;
mod subscriptions;
mod verification;

pub use crate::websub::hub::lookups::LookUp;

/// How the hub behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// As advertised; its path is where subscriptions are taken.
    pub hub: Hub,
    pub policy: CallbackPolicy,
    pub resolver: Resolver,
    pub limits: Limits,
    /// Whose word about who asks is believed.
    pub trusted_proxies: Vec<Network>,
    /// For each request to a callback, from connecting to the end of the answer.
    pub timeout: Duration,
    /// Deliveries under way at a time, and as many that take long.
    pub concurrent_deliveries: usize,
    /// What may wait on one topic for subscribers who do not take it; the oldest is given up for the newest.
    pub waiting_notifications: usize,
    pub waiting_bytes: usize,
    /// Verifications under way at a time, and as many that take long; the others wait.
    pub concurrent_verifications: usize,
    /// Names looked up at a time, and as many lookups that take long. Each takes a thread.
    pub concurrent_lookups: usize,
    /// The hosts under which requests may come, besides IP addresses and localhost; any if there are none. With them, no
    /// page of another origin may ask.
    pub own_hosts: Option<Vec<String>>,
    /// Tries of a verification whose callback does not answer at all.
    pub verification_attempts: u32,
}

impl Settings {
    pub fn new(hub: Hub) -> Settings {
        Settings {
            hub,
            policy: CallbackPolicy::default(),
            resolver: Resolver::System,
            limits: Limits::default(),
            trusted_proxies: Vec::new(),
            timeout: Duration::from_secs(10),
            concurrent_deliveries: 512,
            waiting_notifications: 1_000,
            waiting_bytes: 16 * 1024 * 1024,
            concurrent_verifications: 64,
            concurrent_lookups: 64,
            own_hosts: None,
            verification_attempts: 3,
        }
    }
}

/// How the hub behaves, with all that it takes at hand.
#[derive(Debug)]
pub struct Conduct {
    settings: Settings,
    path: String,
    caller: Caller,
}

impl Conduct {
    pub fn new(settings: Settings) -> Result<Conduct, HubError> {
        let caller = Caller::new(
            settings.policy.clone(),
            settings.resolver.clone(),
            settings.concurrent_lookups,
            settings.timeout,
        )?;
        Ok(Conduct {
            path: path(&settings.hub),
            caller,
            settings,
        })
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
    conduct: RwLock<Arc<Conduct>>,
    topics: Topics,
    records: Box<dyn Fn(Vec<HubRecord>) + Send + Sync>,
    runtime: Handle,
    subscriptions: Mutex<Subscriptions>,
    /// Locked last, where `subscriptions` is locked too.
    admission: Mutex<Admission>,
    /// Locked for no longer than it takes to count.
    counts: Mutex<Counts>,
    /// When the admission's times begin.
    started: Instant,
    proxy_was_noticed: AtomicBool,
    verifications: Lanes<Pending>,
    verifying: Slots,
    delivering: Slots,
    wakers: Arc<Wakers>,
    lines: Mutex<Lines>,
}

impl EmbeddedHub {
    /// Takes up what earlier runs left; must be called within a tokio runtime. `records` hears, in order,
    /// what is to be saved, and at once what is to be saved together; it must neither block nor call the hub.
    pub fn start(
        conduct: Conduct,
        restored: Restored,
        topics: Topics,
        records: impl Fn(Vec<HubRecord>) + Send + Sync + 'static,
    ) -> EmbeddedHub {
        let settings = &conduct.settings;
        let mut admission = Admission::new(settings.limits.clone());
        let Restored {
            subscriptions,
            relays,
        } = restored;
        let (subscriptions, obsolete) =
            Subscriptions::restore(subscriptions, relays, &mut admission);
        if !obsolete.is_empty() {
            records(obsolete);
        }
        let topics_owed = subscriptions.audience.topics_owed();
        let shared = Arc::new(Shared {
            topics,
            records: Box::new(records),
            runtime: Handle::current(),
            subscriptions: Mutex::new(subscriptions),
            admission: Mutex::new(admission),
            counts: Mutex::default(),
            started: Instant::now(),
            proxy_was_noticed: AtomicBool::new(false),
            verifications: Lanes::default(),
            verifying: Slots::new(settings.concurrent_verifications),
            delivering: Slots::new(settings.concurrent_deliveries),
            wakers: Arc::default(),
            lines: Mutex::default(),
            conduct: RwLock::new(Arc::new(conduct)),
        });
        tokio::spawn(subscriptions::end_leases(Arc::downgrade(&shared)));
        tokio::spawn(subscriptions::sum_up(Arc::downgrade(&shared)));
        let hub = EmbeddedHub { shared };
        topics_owed.iter().for_each(|topic| hub.deliver(topic));
        hub
    }

    /// Behaves otherwise from now on, but for how much it does at a time. What it knows, owes and has begun stays.
    pub fn change(&self, conduct: Conduct) {
        let limits = conduct.settings.limits.clone();
        self.shared.admission().change(limits);
        let own = self.shared.conduct.write();
        *own.unwrap_or_else(PoisonError::into_inner) = Arc::new(conduct);
    }

    /// Begins no more deliveries and asks no more subscribers, and waits for those that it has begun. What they came to
    /// is among the records then; what was not begun is owed, or was promised to nobody.
    pub async fn rest(&self) {
        let Shared {
            verifying,
            delivering,
            ..
        } = &*self.shared;
        tokio::join!(verifying.close(), delivering.close());
    }

    /// Whether subscriptions are taken at this path.
    pub fn is_at(&self, path: &str) -> bool {
        self.shared.conduct().path == path
    }

    /// A notification for whoever subscribes to its topic, if anybody does. To be saved, then handed to
    /// [`EmbeddedHub::dispatch`].
    pub fn relay(&self, submission: &Submission) -> Option<Relay> {
        let Submission {
            topic, seq, body, ..
        } = submission;
        let mut subscriptions = self.shared.subscriptions();
        subscriptions
            .audience
            .relay(topic, *seq, body, Timestamp::now())
    }

    /// Delivers notifications that are saved, to each subscriber after those given earlier. What waits too long for
    /// those who take nothing is given up.
    pub fn dispatch(&self, relays: Vec<Relay>) {
        for relay in relays {
            let topic = relay.topic.clone();
            self.shared.owe(relay);
            self.shared.trim(&topic);
            self.deliver(&topic);
        }
    }

    /// Ends all subscriptions to a topic, and tells the subscribers.
    pub fn end_topic(&self, topic: &Topic) {
        let callbacks = self.shared.subscriptions().audience.callbacks(topic);
        for callback in callbacks {
            let topic = topic.clone();
            self.end(Key { topic, callback }, "the topic has ended");
        }
    }

    /// Ends a subscription, and tells the subscriber why.
    pub fn end(&self, key: Key, why: &'static str) {
        self.shared.end(why, |audience| audience.unsubscribe(&key));
        let denial = verification::deny(Arc::clone(&self.shared), key, why);
        self.shared.runtime.spawn(denial);
    }

    /// Looks at the subscriptions; the hub waits meanwhile.
    pub fn look<T>(&self, look: impl FnOnce(&Audience) -> T) -> T {
        look(&self.shared.subscriptions().audience)
    }

    /// How it stands, and what it has done.
    pub fn status(&self, now: Timestamp) -> HubStatus {
        let mut status = self.look(|audience| audience.status(now));
        status.counts = self.shared.counts().clone();
        status
    }

    fn deliver(&self, topic: &Topic) {
        let assignments = self.shared.subscriptions().audience.assign(topic);
        let shared = Arc::clone(&self.shared);
        self.shared
            .runtime
            .spawn(relay::deliver_to_all(shared, assignments));
    }
}

impl fmt::Debug for EmbeddedHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedHub")
            .field("settings", &self.shared.conduct().settings)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn trim(&self, topic: &Topic) {
        let conduct = self.conduct();
        let Settings {
            waiting_notifications: most,
            waiting_bytes: most_bytes,
            ..
        } = conduct.settings;
        self.change(|audience| {
            let forgone = audience.trim(topic, most, most_bytes).into_iter();
            forgone
                .map(|Forgone { relay, subscribers }| {
                    let seq = relay.seq;
                    self.counts().deliveries.given_up += subscribers as u64;
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

    fn conduct(&self) -> Arc<Conduct> {
        Arc::clone(&self.conduct.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admission(&self) -> MutexGuard<'_, Admission> {
        self.admission
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn path(hub: &Hub) -> String {
    let uri = hub.as_str();
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |slash| &rest[slash..]);
    path.split(['?', '#']).next().unwrap_or(path).to_owned()
}

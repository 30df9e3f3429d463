//! The hub over HTTP, embedded or of `rsnotify hub`: accepts subscriptions, verifies them, and delivers notifications
//! (Framework Notification 1.0.1 sections 4.2–4.4). It does not write the state file itself: it emits [`HubRecord`]s to
//! save, and the caller saves notifications between [`EmbeddedHub::number_relay`] and [`EmbeddedHub::dispatch`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use jiff::Timestamp;
use resourcesync::uri::{Hub, Topic};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use crate::counts::EmbeddedHubCounts;
use crate::http::{BoxedFn, Clock, Replaceable, lock};
use crate::hub::admission::{Admission, HubLimits};
use crate::hub::callback::{CallbackClient, Resolver};
use crate::hub::delivery::http::{RelayReader, RelayStore};
use crate::hub::fair_queue::slots::FairSlots;
use crate::hub::published_topics::http::HubTopics;
use crate::hub::request::{CallbackPolicy, SubscriptionRequest};
use crate::hub::subscriptions::Subscriptions;
use crate::hub::subscriptions::backlog::BacklogSize;
use crate::hub::subscriptions::view::HubStatus;
use crate::hub::verification::{PendingVerification, TOPIC_ENDED};
use crate::hub::{HubRecord, Relay, RelayId, SavedHub, Subscription, SubscriptionKey};
use crate::retry::end_after_restart;
use crate::topics::http::host_and_target;

/// Interval of the limits on log lines, after which suppressed lines are summarized.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Log lines per interval about abandoned deliveries.
const ABANDONED_LINES: u64 = 10;

/// Interval at which subscriptions with ended leases are removed. Nothing is delivered to them meanwhile.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// Notifications whose time is remembered.
const MAX_RELAYED: usize = 10_000;

/// The hub. Records are emitted while the subscriptions are locked, so that they are in the order of the changes.
#[derive(Debug)]
pub struct EmbeddedHub {
    pub(crate) settings: Replaceable<HubSetup>,
    pub(crate) topics: HubTopics,
    pub(crate) clock: Clock,
    /// Locked only to count.
    pub(crate) counts: Mutex<EmbeddedHubCounts>,
    /// Changed by [`EmbeddedHub::change_subscriptions`] alone, but for relays, which the caller saves, and for what is not saved.
    pub(crate) subscriptions: Mutex<Subscriptions>,
    /// Locked after the subscriptions where both are. Its times are those since the clock's start.
    pub(crate) admission: Mutex<Admission>,
    pub(crate) relays: RelayReader,
    /// The times at which the last [`MAX_RELAYED`] notifications were relayed, if in this run.
    pub(crate) relayed: Mutex<BTreeMap<RelayId, Instant>>,
    /// The signals that end the waits of deliveries for a retry.
    pub(crate) wakers: Mutex<HashMap<SubscriptionKey, Arc<Notify>>>,
    pub(crate) delivery_slots: Arc<FairSlots>,
    /// The requests to verify for each topic and callback, in order, whose first is under way.
    pub(crate) unverified: Mutex<HashMap<SubscriptionKey, VecDeque<PendingVerification>>>,
    pub(crate) verification_slots: Arc<FairSlots>,
    records: BoxedFn<dyn Fn(Vec<HubRecord>) + Send + Sync>,
    /// Limits on log lines about subscriptions that begin or end, which strangers can cause.
    begun: LogLimit<50>,
    ended: LogLimit<50>,
    pub(crate) abandoned_lines: LogLimit<ABANDONED_LINES>,
    pub(crate) proxy_was_reported: AtomicBool,
    pub(crate) runtime: Handle,
}

impl EmbeddedHub {
    /// Starts the hub with the state of earlier runs, within a tokio runtime. `relays` reads what was saved. `records`
    /// is called, in order, with the records to save, each time with those to save together; it must neither block nor
    /// call the hub.
    pub fn start(
        prepared: HubSetup,
        mut saved: SavedHub,
        relays: RelayStore,
        topics: HubTopics,
        clock: Clock,
        records: impl Fn(Vec<HubRecord>) + Send + Sync + 'static,
    ) -> Arc<EmbeddedHub> {
        for (subscription, _) in &mut saved.subscriptions {
            subscription.expires =
                end_after_restart(subscription.expires, Duration::MAX, clock.began);
        }
        let (subscriptions, obsolete) = Subscriptions::restore(saved);
        if !obsolete.is_empty() {
            records(obsolete);
        }
        let pending = subscriptions.topics_with_pending();
        let hub = Arc::new(EmbeddedHub {
            admission: Mutex::new(Admission::new(prepared.settings.limits.clone())),
            relays: RelayReader::new(relays),
            relayed: Mutex::default(),
            wakers: Mutex::default(),
            delivery_slots: FairSlots::new(prepared.settings.concurrent_deliveries),
            unverified: Mutex::default(),
            verification_slots: FairSlots::new(prepared.settings.concurrent_verifications),
            settings: Replaceable::new(prepared),
            topics,
            clock,
            counts: Mutex::default(),
            subscriptions: Mutex::new(subscriptions),
            records: BoxedFn(Box::new(records)),
            begun: LogLimit::default(),
            ended: LogLimit::default(),
            abandoned_lines: LogLimit::default(),
            proxy_was_reported: AtomicBool::new(false),
            runtime: Handle::current(),
        });
        let weak = || Arc::downgrade(&hub);
        tokio::spawn(repeat(weak(), EXPIRY_INTERVAL, |hub| {
            let now = hub.clock.now();
            hub.change_subscriptions(Some("its lease has ended"), |all| all.end_leases(now));
        }));
        tokio::spawn(repeat(weak(), LOG_INTERVAL, EmbeddedHub::log_suppressed));
        for topic in pending {
            hub.deliver_topic(&topic);
        }
        hub
    }

    /// Applies other settings, except for the numbers of slots. Subscriptions, pending deliveries and requests under way
    /// stay.
    pub fn apply_settings(self: &Arc<Self>, prepared: HubSetup) {
        let limits = prepared.settings.limits.clone();
        lock(&self.admission).set_limits(limits);
        self.settings.replace(prepared);
        self.end_most_owed();
    }

    /// Begins no more deliveries and verifications, and waits for those under way, whose outcomes are among the records
    /// then. Deliveries not begun stay pending, and so do requests.
    pub async fn drain(&self) {
        tokio::join!(self.verification_slots.drain(), self.delivery_slots.drain());
    }

    /// Records the requests that were answered with 202 and are not verified, once no more come.
    pub fn save_unverified(&self) {
        let queues = lock(&self.unverified);
        let queued = queues.iter().flat_map(|(key, queue)| {
            let requests = queue.iter().map(|pending| pending.request.clone());
            requests.map(move |request| (key.clone(), request))
        });
        let unverified = queued.collect();
        drop(queues);
        self.change_subscriptions(None, |_| vec![HubRecord::Unverified(unverified)]);
    }

    /// Begins to verify the requests that an earlier run did not, within a tokio runtime. Those beyond the limits are
    /// dropped.
    pub fn resume_verifications(
        self: &Arc<Self>,
        unverified: Vec<(SubscriptionKey, SubscriptionRequest)>,
    ) {
        if unverified.is_empty() {
            return;
        }
        self.change_subscriptions(None, |_| vec![HubRecord::Unverified(Vec::new())]);
        for (key, request) in unverified {
            let callback = key.callback.clone();
            if let Err(why) = self.verify(key, request, None) {
                warn!(%callback, "a request of {callback} is not verified: {why}");
            }
        }
    }

    /// Numbers a notification for relaying, if its topic has subscribers and it is no repeat of the one
    /// relayed last. The caller saves it, then passes it to [`EmbeddedHub::dispatch`].
    pub fn number_relay(&self, notification: Relay) -> Option<Relay> {
        lock(&self.subscriptions).number_relay(notification, self.clock.now())
    }

    /// Relays as [`EmbeddedHub::number_relay`] does, for a publication that was found to be no repeat.
    pub fn number_new_relay(&self, notification: Relay) -> Option<Relay> {
        lock(&self.subscriptions).number_new_relay(notification, self.clock.now())
    }

    /// Delivers saved notifications, to each subscriber in order. If more than `max_backlog` is pending, the subscriptions
    /// that are owed most end.
    pub fn dispatch(self: &Arc<Self>, relays: Vec<Relay>) {
        for Relay { id, topic, .. } in relays {
            let mut relayed = lock(&self.relayed);
            relayed.insert(id, Instant::now());
            if relayed.len() > MAX_RELAYED {
                relayed.pop_first();
            }
            drop(relayed);
            self.change_subscriptions(None, |subscriptions| {
                subscriptions.note_saved(&topic, id).into_iter().collect()
            });
            self.end_most_owed();
            self.deliver_topic(&topic);
        }
    }

    /// Ends the subscriptions that are owed most until no more than `max_backlog` is pending in all, and notifies the
    /// subscribers.
    fn end_most_owed(self: &Arc<Self>) {
        let max = self.settings.get().settings.limits.backlog_bytes;
        // Not locked while they end.
        let debt = || lock(&self.subscriptions).largest_debt(max);
        while let Some((keys, BacklogSize { count, bytes })) = debt() {
            for key in keys {
                let SubscriptionKey { topic, callback } = &key;
                lock(&self.counts).deliveries.cut_off += 1;
                if self.abandoned_lines.allow() {
                    warn!(
                        %topic, %callback, notifications = count, bytes,
                        "ended the subscription of {callback} to {topic}: {count} notifications were pending for it, \
                         {bytes} bytes, the most of all, and more than max_backlog in all"
                    );
                }
                self.change_subscriptions(None, |subscriptions| subscriptions.unsubscribe(&key));
                self.deny(key, "too many notifications were pending");
            }
        }
    }

    /// Ends all subscriptions to a topic and notifies the subscribers.
    pub fn end_topic(self: &Arc<Self>, topic: &Topic) {
        let keys = lock(&self.subscriptions).of_topic(topic);
        for key in keys {
            self.end_subscription(key, TOPIC_ENDED);
        }
    }

    /// Ends a subscription and notifies the subscriber of the reason.
    pub fn end_subscription(self: &Arc<Self>, key: SubscriptionKey, why: &'static str) {
        self.change_subscriptions(Some(why), |subscriptions| subscriptions.unsubscribe(&key));
        self.deny(key, why);
    }

    /// Calls a function with the subscriptions, which are locked meanwhile.
    pub fn with_subscriptions<T>(&self, inspect: impl FnOnce(&Subscriptions) -> T) -> T {
        inspect(&lock(&self.subscriptions))
    }

    /// Returns the status with the counters.
    pub fn status(&self, now: Timestamp) -> HubStatus {
        let mut status = lock(&self.subscriptions).status(now);
        status.counts = lock(&self.counts).clone();
        status
    }

    /// Adds or renews a verified subscription. A renewal ends the wait for a retry.
    pub(crate) fn subscribe(&self, subscription: Subscription) {
        let key = subscription.key();
        let until = subscription.expires;
        let is_renewal = lock(&self.subscriptions).contains(&key);
        self.change_subscriptions(None, |subscriptions| subscriptions.subscribe(subscription));
        if let Some(waiting) = lock(&self.wakers).get(&key) {
            waiting.notify_one();
        }
        let SubscriptionKey { topic, callback } = &key;
        if is_renewal {
            debug!(%topic, %callback, %until, "{callback} renewed its subscription to {topic}");
        } else if self.begun.allow() {
            info!(%topic, %callback, %until, "{callback} subscribed to {topic}");
        } else {
            debug!(%topic, %callback, %until, "{callback} subscribed to {topic}");
        }
    }

    /// Makes a change, emits its records, and logs the subscriptions that it ended if there is a reason to tell.
    pub(crate) fn change_subscriptions(
        &self,
        why: Option<&str>,
        change: impl FnOnce(&mut Subscriptions) -> Vec<HubRecord>,
    ) {
        let mut subscriptions = lock(&self.subscriptions);
        let records = change(&mut subscriptions);
        let ended = |record: &HubRecord| match record {
            HubRecord::Unsubscribed(key) => Some(key.clone()),
            _ => None,
        };
        let ended: Vec<SubscriptionKey> = records.iter().filter_map(ended).collect();
        if !records.is_empty() {
            (self.records.0)(records);
        }
        drop(subscriptions);
        let Some(why) = why else { return };
        for SubscriptionKey { topic, callback } in ended {
            if self.ended.allow() {
                info!(%topic, %callback, why, "the subscription of {callback} to {topic} has ended: {why}");
            }
        }
    }

    /// Logs the numbers of lines that were suppressed.
    fn log_suppressed(&self) {
        self.settings.get().client.log_suppressed();
        let (begun, ended) = (self.begun.next_interval(), self.ended.next_interval());
        if begun + ended > 0 {
            info!(
                begun,
                ended, "more subscriptions: {begun} began, {ended} ended"
            );
        }
        let abandoned = self.abandoned_lines.next_interval();
        if abandoned > 0 {
            warn!(
                count = abandoned,
                "giving up on more deliveries to failing subscribers: {abandoned}"
            );
        }
    }
}

/// Runs something at intervals, as long as there is the hub.
async fn repeat(hub: Weak<EmbeddedHub>, interval: Duration, run: fn(&EmbeddedHub)) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(hub) = hub.upgrade() else { return };
        run(&hub);
    }
}

/// Settings of the embedded hub.
#[derive(Debug, Clone)]
pub struct EmbeddedHubSettings {
    /// The advertised URL, whose path is the endpoint for subscription requests.
    pub hub: Hub,
    /// Callbacks that it delivers to.
    pub policy: CallbackPolicy,
    /// Resolver of the callbacks' names, if it is not the system's.
    pub resolver: Option<Arc<Resolver>>,
    /// Limits on what clients may use.
    pub limits: HubLimits,
    /// Proxies whose forwarding headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Timeout of each request to a callback, from connecting to the end of the answer. Large deliveries have more time.
    pub timeout: Duration,
    /// Maximum deliveries under way, and as many slow ones.
    pub concurrent_deliveries: usize,
    /// Maximum verifications under way, and as many slow ones; the others wait.
    pub concurrent_verifications: usize,
    /// Maximum concurrent lookups, and as many slow ones. Each uses a thread.
    pub concurrent_lookups: usize,
    /// Host names under which requests are accepted, besides IP addresses and localhost. If set, requests from pages of
    /// other origins are refused; if not, any host name is accepted.
    pub own_hosts: Option<Vec<String>>,
    /// Attempts at a verification whose callback does not answer.
    pub verification_attempts: u32,
}

impl EmbeddedHubSettings {
    /// Returns the settings of a public hub at this URL.
    pub fn new(hub: Hub) -> EmbeddedHubSettings {
        EmbeddedHubSettings {
            hub,
            policy: CallbackPolicy::default(),
            resolver: None,
            limits: HubLimits::default(),
            trusted_proxies: Vec::new(),
            timeout: Duration::from_secs(10),
            concurrent_deliveries: 512,
            concurrent_verifications: 64,
            concurrent_lookups: 64,
            own_hosts: None,
            verification_attempts: 3,
        }
    }
}

/// Checked settings with the client built from them: a reload replaces both at once.
#[derive(Debug)]
pub struct HubSetup {
    /// The settings.
    pub settings: EmbeddedHubSettings,
    /// The path of its URI.
    pub path: String,
    /// The client for requests to callbacks.
    pub client: CallbackClient,
}

impl HubSetup {
    /// Builds the client of a hub.
    ///
    /// # Errors
    ///
    /// If the HTTP client cannot be built.
    pub fn new(settings: EmbeddedHubSettings) -> Result<HubSetup, HubStartError> {
        let client = CallbackClient::new(&settings)?;
        let (_, target) = host_and_target(settings.hub.as_str());
        Ok(HubSetup {
            path: target.split('?').next().unwrap_or("/").to_owned(),
            client,
            settings,
        })
    }
}

/// An error that prevents the hub from starting.
#[derive(Debug, thiserror::Error)]
#[error("cannot build the HTTP client of the embedded hub")]
pub struct HubStartError(#[from] reqwest::Error);

/// A limit on log lines of one kind, which strangers can cause: so many in each interval. Counts those of the current one.
#[derive(Debug, Default)]
pub(crate) struct LogLimit<const LINES: u64>(AtomicU64);

impl<const LINES: u64> LogLimit<LINES> {
    /// Returns true if the next line may be logged, else counts it as suppressed.
    pub(crate) fn allow(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < LINES
    }

    /// Begins the next interval and returns the number of lines that the last one suppressed.
    pub(crate) fn next_interval(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed).saturating_sub(LINES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_lines_are_counted_until_the_next_interval() {
        let lines = LogLimit::<2>::default();
        let allowed: Vec<bool> = (0..5).map(|_| lines.allow()).collect();
        assert_eq!(allowed, [true, true, false, false, false]);
        assert_eq!(lines.next_interval(), 3);
        assert!(lines.allow());
        assert_eq!(lines.next_interval(), 0);
    }
}

//! The hub over HTTP, embedded or of `rsnotify hub`: accepts subscriptions, verifies them, and delivers notifications
//! (Framework Notification 1.0.1 sections 4.2–4.4). It does not write the state file itself: it emits [`HubRecord`]s to
//! save, and the caller saves notifications between [`EmbeddedHub::relay`] and [`EmbeddedHub::dispatch`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::Topic;
use tracing::warn;

use crate::http::{Clock, lock};
use crate::hub::delivery::bodies::RelayStore;
use crate::hub::delivery::http::Deliverer;
use crate::hub::http::settings::PreparedHub;
use crate::hub::http::state::{HubState, expire};
use crate::hub::published_topics::directory::HubTopics;
use crate::hub::request::SubscriptionRequest;
use crate::hub::subscriptions::Subscriptions;
use crate::hub::subscriptions::backlog::BacklogSize;
use crate::hub::subscriptions::view::HubStatus;
use crate::hub::verification::{TOPIC_ENDED, Verifications};
use crate::hub::{HubRecord, Relay, SavedHub, SubscriptionKey};
use crate::retry::end_after_restart;

pub mod fetches;
pub mod public;
pub mod settings;
pub(crate) mod state;
pub mod topic_client;

/// Interval of the limits on log lines, after which suppressed lines are summarized.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The hub. Clones are the same hub.
#[derive(Debug, Clone)]
pub struct EmbeddedHub {
    pub(crate) state: Arc<HubState>,
    deliveries: Arc<Deliverer>,
    pub(crate) verifications: Arc<Verifications>,
}

impl EmbeddedHub {
    /// Starts the hub with the state of earlier runs, within a tokio runtime. `relays` reads what was saved. `records`
    /// is called, in order, with the records to save, each time with those to save together; it must neither block nor
    /// call the hub.
    pub fn start(
        prepared: PreparedHub,
        mut saved: SavedHub,
        relays: RelayStore,
        topics: HubTopics,
        clock: Clock,
        records: impl Fn(Vec<HubRecord>) + Send + Sync + 'static,
    ) -> EmbeddedHub {
        for (subscription, _) in &mut saved.subscriptions {
            subscription.expires =
                end_after_restart(subscription.expires, Duration::MAX, clock.began);
        }
        let state = Arc::new(HubState::restore(prepared, saved, clock, records));
        let deliveries = Arc::new(Deliverer::new(Arc::clone(&state), relays));
        let verifications = Arc::new(Verifications::new(topics, Arc::clone(&deliveries)));
        tokio::spawn(expire(Arc::downgrade(&state)));
        tokio::spawn(log_suppressed(Arc::downgrade(&deliveries)));
        let pending = state.subscriptions().topics_with_pending();
        for topic in pending {
            deliveries.begin(&topic);
        }
        EmbeddedHub {
            state,
            deliveries,
            verifications,
        }
    }

    /// Applies other settings, except for the numbers of slots. Subscriptions, pending deliveries and requests under way
    /// stay.
    pub fn apply(&self, prepared: PreparedHub) {
        let limits = prepared.settings.limits.clone();
        self.state.admission().set_limits(limits);
        self.state.settings.replace(prepared);
        self.cut_off();
    }

    /// Begins no more deliveries and verifications, and waits for those under way, whose outcomes are among the records
    /// then. Deliveries not begun stay pending, and so do requests.
    pub async fn drain(&self) {
        let (verifications, deliveries) = (&self.verifications.slots, &self.deliveries.slots);
        tokio::join!(verifications.drain(), deliveries.drain());
    }

    /// Records the requests that were answered with 202 and are not verified, once no more come.
    pub fn record_unverified(&self) {
        let unverified = self.verifications.unverified();
        self.state.record(HubRecord::Unverified(unverified));
    }

    /// Begins to verify the requests that an earlier run did not, within a tokio runtime. Those beyond the limits are
    /// dropped.
    pub fn resume_verifications(&self, unverified: Vec<(SubscriptionKey, SubscriptionRequest)>) {
        if unverified.is_empty() {
            return;
        }
        self.state.record(HubRecord::Unverified(Vec::new()));
        for (key, request) in unverified {
            let callback = key.callback.clone();
            if let Err(why) = self.verifications.begin(key, request, None) {
                warn!(%callback, "a request of {callback} is not verified: {why}");
            }
        }
    }

    /// Numbers a notification for relaying, if its topic has subscribers and it is no repeat of the one
    /// relayed last. The caller saves it, then passes it to [`EmbeddedHub::dispatch`].
    pub fn relay(&self, notification: Relay) -> Option<Relay> {
        let now = self.state.clock.now();
        self.state.subscriptions().relay(notification, now)
    }

    /// Relays as [`EmbeddedHub::relay`] does, for a publication that was found to be no repeat.
    pub fn relay_new(&self, notification: Relay) -> Option<Relay> {
        let now = self.state.clock.now();
        self.state.subscriptions().relay_new(notification, now)
    }

    /// Delivers saved notifications, to each subscriber in order. If more than `max_backlog` is pending, the subscriptions
    /// that are owed most end.
    pub fn dispatch(&self, relays: Vec<Relay>) {
        for Relay { id, topic, .. } in relays {
            self.state.saved(&topic, id);
            self.cut_off();
            self.deliveries.begin(&topic);
        }
    }

    /// Ends the subscriptions that are owed most until no more than `max_backlog` is pending in all, and notifies the
    /// subscribers.
    fn cut_off(&self) {
        let max = self.state.settings.get().settings.limits.backlog_bytes;
        // Not locked while they end.
        let debt = || self.state.subscriptions().largest_debt(max);
        while let Some((keys, BacklogSize { count, bytes })) = debt() {
            for key in keys {
                let SubscriptionKey { topic, callback } = &key;
                lock(&self.state.counts).deliveries.cut_off += 1;
                if self.deliveries.abandoned_lines.allow() {
                    warn!(
                        %topic, %callback, notifications = count, bytes,
                        "ended the subscription of {callback} to {topic}: {count} notifications were pending for it, \
                         {bytes} bytes, the most of all, and more than max_backlog in all"
                    );
                }
                self.state
                    .change(|subscriptions| subscriptions.unsubscribe(&key));
                self.verifications
                    .deny(key, "too many notifications were pending");
            }
        }
    }

    /// Ends all subscriptions to a topic and notifies the subscribers.
    pub fn end_topic(&self, topic: &Topic) {
        let callbacks = self.state.subscriptions().callbacks(topic);
        for callback in callbacks {
            let topic = topic.clone();
            self.end(SubscriptionKey { topic, callback }, TOPIC_ENDED);
        }
    }

    /// Ends a subscription and notifies the subscriber of the reason.
    pub fn end(&self, key: SubscriptionKey, why: &'static str) {
        self.state
            .end(why, |subscriptions| subscriptions.unsubscribe(&key));
        self.verifications.deny(key, why);
    }

    /// Calls a function with the subscriptions, which are locked meanwhile.
    pub fn inspect<T>(&self, inspect: impl FnOnce(&Subscriptions) -> T) -> T {
        inspect(&self.state.subscriptions())
    }

    /// Returns the status with the counters.
    pub fn status(&self, now: Timestamp) -> HubStatus {
        let mut status = self.state.subscriptions().status(now);
        status.counts = lock(&self.state.counts).clone();
        status
    }
}

/// Summarizes suppressed log lines at the end of each interval.
async fn log_suppressed(deliveries: Weak<Deliverer>) {
    loop {
        tokio::time::sleep(LOG_INTERVAL).await;
        let Some(deliveries) = deliveries.upgrade() else {
            return;
        };
        deliveries.log_suppressed();
    }
}

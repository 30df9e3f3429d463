//! The keeper of one subscription: subscribes, renews in time, acts on denials, and tries again after failures.

use std::sync::Arc;
use std::time::Duration;

use resourcesync::uri::{Hub, Topic};
use tokio::sync::Notify;
use tokio::time::Instant;
use websub::retry::backoff;
use websub::subscriber::{HubDecision, SubscribeError, SubscriptionHandle};

use crate::channels::current_hub;
use crate::failure::{Failure, FailureKind};
use crate::{ListenContext, wait_for_stop};

/// Part of a lease after which it is renewed.
const RENEWAL: f64 = 0.8;
/// Lease if the hub does not state one.
const UNTOLD_LEASE: Duration = Duration::from_secs(600);
/// Maximum lease that is relied on.
const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Minimum time between renewals, however short the lease.
const MIN_RENEWAL: Duration = Duration::from_secs(30);
/// Timeout for unsubscribing. The lease ends by itself if the hub does not answer.
const UNSUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The keeper of one subscription.
#[derive(Debug)]
pub struct SubscriptionKeeper {
    pub listening: Arc<ListenContext>,
    pub subscription: SubscriptionHandle,
    pub topic: Topic,
    /// The hub that the topic named last.
    pub hub: Hub,
    /// Signal to the receiver that notifications may have been missed.
    pub check: Arc<Notify>,
    /// True once a hub has verified the subscription, now or in an earlier run.
    pub is_verified: bool,
    /// True if the channel was found while others were being received.
    pub is_found_later: bool,
    /// The lease; none before the first one, and after the hub ended it by itself.
    pub lease: Option<Lease>,
    /// Attempts since the hub verified the subscription last.
    pub attempts: u32,
}

/// The failure of a first request.
#[derive(Debug)]
pub struct FirstRequestFailure {
    pub topic: Topic,
    pub failure: Failure,
    /// The time of the next request, if others go on; none if there is none.
    pub retry_at: Option<Instant>,
}

/// The lease of a subscription, and the time of the next renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    renew_at: Instant,
    ends_at: Instant,
}

impl Lease {
    fn new(granted: Option<Duration>, now: Instant) -> Lease {
        let lasts = granted.unwrap_or(UNTOLD_LEASE).min(LONGEST_LEASE);
        Lease {
            renew_at: now + lasts.mul_f64(RENEWAL).max(MIN_RENEWAL),
            ends_at: now + lasts,
        }
    }

    /// Returns the seconds that are left; none if it has ended.
    fn seconds_left(self, now: Instant) -> Option<u64> {
        let rest = self.ends_at.saturating_duration_since(now).as_secs();
        (rest > 0).then_some(rest)
    }
}

impl SubscriptionKeeper {
    /// Keeps the subscription until it is stopped, then ends it at the hub unless the next run goes on with it. Ends by
    /// itself only if it is refused for good before a hub has verified it; its callback is closed then, so that no late
    /// verification confirms a subscription that nobody renews.
    pub async fn run(mut self) {
        let listening = Arc::clone(&self.listening);
        tokio::select! {
            () = wait_for_stop(&listening.stop) => {}
            () = self.keep() => {
                listening.destination.close_callback(&self.subscription);
                return;
            }
        }
        if listening.state.path.is_none() {
            let destination = &listening.destination;
            let farewell = destination.unsubscribe(&mut self.subscription, &self.hub, &self.topic);
            let _ = tokio::time::timeout(UNSUBSCRIBE_TIMEOUT, farewell).await;
        }
    }

    async fn keep(&mut self) {
        loop {
            let requested_at = Instant::now();
            let (destination, wanted) = (&self.listening.destination, self.listening.options.lease);
            let (subscription, hub) = (&mut self.subscription, &self.hub);
            let outcome = destination.subscribe(subscription, hub, &self.topic, wanted);
            let mut next_at = match outcome.await {
                Ok(granted) => self.note_verified(granted, requested_at),
                Err(error) => match self.note_failed(error) {
                    Some(wait) => Instant::now() + wait,
                    None => return,
                },
            };
            loop {
                let decision = tokio::select! {
                    () = tokio::time::sleep_until(next_at) => break,
                    decision = self.subscription.decisions.recv() => decision,
                };
                match decision {
                    // The hub verifies late, or once more.
                    Some(HubDecision::Verified(granted)) => {
                        next_at = self.note_verified(granted, Instant::now());
                    }
                    Some(HubDecision::Denied(reason)) => {
                        self.lease = None;
                        self.attempts += 1;
                        next_at = Instant::now() + backoff(self.attempts, fastrand::f64());
                        self.report_denial(&reason);
                    }
                    None => return,
                }
            }
            if self.listening.options.hub.is_none()
                && let Some(hub) = current_hub(&self.topic).await
            {
                self.hub = hub;
            }
        }
    }

    /// Notes a verified subscription, and its lease. Returns the time of the renewal.
    fn note_verified(&mut self, granted: Option<Duration>, at: Instant) -> Instant {
        self.attempts = 0;
        let reporter = &self.listening.reporter;
        let (topic, hub) = (self.topic.as_str(), self.hub.as_str());
        let lease_seconds = granted.map(|granted| granted.as_secs());
        // Later verifications are reported as renewals, unless the lease has ended.
        if (self.lease).is_none_or(|earlier| earlier.ends_at <= Instant::now()) {
            reporter.subscribed(topic, hub, lease_seconds);
            let saved = self.listening.state.update(&self.topic, |saved| {
                saved.is_verified = true;
                saved.hub = self.hub.clone();
            });
            if let Err(error) = saved {
                reporter.not_saved(topic, &error);
            }
            self.check.notify_one();
        } else {
            reporter.renewed(topic, hub, lease_seconds);
        }
        if self.lease.is_none() {
            self.is_verified = true;
            // Only the first one is awaited.
            let _ = self.listening.first.send(Ok(()));
        }
        self.lease.insert(Lease::new(granted, at)).renew_at
    }

    /// Notes a failed request. Returns the wait before the next one; `None` if there is none, because the subscription is
    /// given up.
    fn note_failed(&mut self, error: SubscribeError) -> Option<Duration> {
        self.attempts += 1;
        let (reporter, first) = (&self.listening.reporter, &self.listening.first);
        let denial = match &error {
            SubscribeError::Denied { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        let asked_for = error.retry_after();
        let failure = Failure::from(error);
        let is_kept = self.is_verified || self.is_found_later || is_retryable(failure.kind);
        let wait = || asked_for.unwrap_or_else(|| backoff(self.attempts, fastrand::f64()));
        let wait = is_kept.then(wait);
        let is_first = self.attempts == 1 && !self.is_verified;
        if let Some(reason) = denial.as_ref().filter(|_| !is_first || reporter.is_json) {
            self.report_denial(reason);
        }
        let topic = self.topic.as_str();
        if is_first {
            let _ = first.send(Err(FirstRequestFailure {
                topic: self.topic.clone(),
                failure,
                retry_at: wait.map(|wait| Instant::now() + wait),
            }));
            return wait;
        }
        if self.attempts == 1 {
            // It goes on where an earlier run ended, so that a hub that is down for the moment does not end it.
            let _ = first.send(Ok(()));
        }
        if denial.is_none() || wait.is_none() {
            let rest = (self.lease).and_then(|lease| lease.seconds_left(Instant::now()));
            let retry = wait.map(|wait| wait.as_secs());
            reporter.not_subscribed(topic, &failure.reason, rest, retry);
        }
        wait
    }

    fn report_denial(&self, reason: &str) {
        let (topic, hub) = (self.topic.as_str(), self.hub.as_str());
        self.listening.reporter.denied(topic, hub, reason);
    }
}

/// Returns true for failures of a first request after which the same request may succeed: those of hubs that are busy, or
/// that verify late. A hub that refuses or denies has decided.
fn is_retryable(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Temporary | FailureKind::NotVerified)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{Duration, FailureKind, Instant, Lease, is_retryable};

    #[test]
    fn a_subscription_that_was_not_verified_is_requested_again() {
        for (kind, want) in [
            (FailureKind::Temporary, true),
            (FailureKind::NotVerified, true),
            (FailureKind::Refused, false),
            (FailureKind::Denied, false),
            (FailureKind::Other, false),
        ] {
            assert_eq!(is_retryable(kind), want, "{kind:?}");
        }
    }

    #[rstest]
    #[case(Some(0), 30)]
    #[case(Some(20), 30)]
    #[case(Some(1_000), 800)]
    #[case(None, 480)]
    #[case(Some(u64::MAX), 25_228_800)]
    fn a_lease_is_renewed_before_it_ends_but_not_at_once(
        #[case] granted: Option<u64>,
        #[case] want: u64,
    ) {
        let now = Instant::now();
        let lease = Lease::new(granted.map(Duration::from_secs), now);
        assert_eq!(lease.renew_at - now, Duration::from_secs(want));
    }

    #[test]
    fn a_subscription_that_is_not_renewed_lasts_as_long_as_its_lease() {
        let now = Instant::now();
        let lease = Lease::new(Some(Duration::from_secs(1_000)), now);
        for (seconds, want) in [(0, Some(1_000)), (800, Some(200)), (1_000, None)] {
            let rest = lease.seconds_left(now + Duration::from_secs(seconds));
            assert_eq!(rest, want, "{seconds}");
        }
    }
}

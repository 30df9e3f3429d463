//! Verification of the intent of subscribers (WebSub section 5.3). An existing subscription stays until the change is
//! confirmed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::Response;
use tracing::debug;
use uuid::Uuid;

use crate::headers::url_with_parameters;
use crate::http::failure::describe;
use crate::http::{client, lock};
use crate::hub::admission::{LimitExceeded, NewOrRenewal, QuotaKeys, address_buckets};
use crate::hub::callback::ResolvedCallback;
use crate::hub::client_address::Requester;
use crate::hub::delivery::http::CUT_OFF;
use crate::hub::fair_queue::Priority;
use crate::hub::fair_queue::slots::FairSlot;
use crate::hub::http::EmbeddedHub;
use crate::hub::request::{RequestedAction, SubscriptionRequest};
use crate::hub::{Subscription, SubscriptionKey};
use crate::retry::{backoff, later};

/// The reason for a denial: the topic is there no more.
pub const TOPIC_ENDED: &str = "the topic has ended";

/// The time after which no further attempt at a verification begins.
const VERIFICATION_TIMEOUT: Duration = Duration::from_secs(120);

/// Minimum wait for a limit that is exceeded, and the longest before the queue is looked at again.
const LIMITED_WAIT: Duration = Duration::from_secs(1);

/// A subscription request that waits for verification.
#[derive(Debug, Clone)]
pub(crate) struct PendingVerification {
    pub(crate) request: SubscriptionRequest,
    requester: Option<Requester>,
    kind: NewOrRenewal,
}

/// The outcome of one attempt at a verification.
enum VerificationOutcome {
    Confirmed(Timestamp, FairSlot),
    /// Answered with this status, without confirming.
    Refused(u16),
    /// Not sent: the limit of the callback's address is exceeded.
    Limited(LimitExceeded),
}

impl EmbeddedHub {
    /// Begins to verify a request, after those that are pending for its topic and callback.
    pub(crate) fn verify(
        self: &Arc<Self>,
        key: SubscriptionKey,
        request: SubscriptionRequest,
        requester: Option<Requester>,
    ) -> Result<(), LimitExceeded> {
        let buckets = QuotaKeys::new(&key.callback, requester);
        let subscriptions = lock(&self.subscriptions);
        let kind = if subscriptions.contains(&key) {
            NewOrRenewal::Renewal
        } else {
            NewOrRenewal::New
        };
        let mut admission = lock(&self.admission);
        if let (NewOrRenewal::New, RequestedAction::Subscribe { .. }) = (kind, &request.action) {
            admission.may_subscribe(&buckets, &subscriptions.usage)?;
        }
        admission.begin(&buckets, kind, self.clock.started.elapsed())?;
        drop((admission, subscriptions));
        let pending = PendingVerification {
            request,
            requester,
            kind,
        };
        let mut queues = lock(&self.unverified);
        let queue = queues.entry(key.clone()).or_default();
        queue.push_back(pending);
        if queue.len() == 1 {
            self.runtime.spawn(Arc::clone(self).verify_pending(key));
        }
        Ok(())
    }

    /// Begins to tell a subscriber that its subscription has ended (WebSub section 5.2), until it answers; any answer
    /// will do.
    pub(crate) fn deny(self: &Arc<Self>, key: SubscriptionKey, reason: &'static str) {
        let hub = Arc::clone(self);
        self.runtime.spawn(async move {
            let parameters = [
                ("hub.mode", "denied"),
                ("hub.topic", key.topic.as_str()),
                ("hub.reason", reason),
            ];
            let url = url_with_parameters(key.callback.as_str(), &parameters);
            for attempt in 1..=hub.settings.get().settings.verification_attempts {
                let priority = match attempt {
                    1 => Priority::First,
                    _ => Priority::Retry,
                };
                let prepared = hub.settings.get();
                if let Ok(location) = prepared.client.resolve(&key.callback, priority).await {
                    let taken = hub.verification_slots.acquire(&location.host, priority);
                    let mut slot = taken.await;
                    if send(&url, &location, &mut slot).await.is_ok() {
                        return;
                    }
                }
                tokio::time::sleep(backoff(attempt, fastrand::f64())).await;
            }
        });
    }

    /// Verifies the pending requests for one topic and callback, in order: the last confirmed one wins.
    async fn verify_pending(self: Arc<Self>, key: SubscriptionKey) {
        loop {
            let first = lock(&self.unverified)
                .get(&key)
                .and_then(|queue| queue.front().cloned());
            let Some(pending) = first else { return };
            let confirmed = Box::pin(self.await_confirmation(&pending)).await;
            if confirmed.is_none() && self.verification_slots.is_draining() {
                // It is verified after the next start.
                return;
            }
            let requester = pending.requester;
            if let Some((sent_at, _slot)) = confirmed {
                match pending.request.action {
                    RequestedAction::Subscribe { .. }
                        if self.topics.find(key.topic.as_str()).is_none() =>
                    {
                        self.deny(key.clone(), TOPIC_ENDED);
                    }
                    RequestedAction::Subscribe { lease, secret } => {
                        let subscription = Subscription {
                            topic: key.topic.clone(),
                            callback: key.callback.clone(),
                            secret,
                            expires: later(sent_at, lease),
                            requester,
                        };
                        self.subscribe(subscription);
                        // Its lease may have ended with something pending.
                        let assignment = lock(&self.subscriptions).assign_task(&key);
                        if let Some(assignment) = assignment {
                            self.runtime
                                .spawn(Arc::clone(&self).run_delivery_task(assignment));
                        }
                    }
                    RequestedAction::Unsubscribe => {
                        self.change_subscriptions(Some("it unsubscribed"), |subscriptions| {
                            subscriptions.unsubscribe(&key)
                        });
                    }
                }
            }
            let buckets = QuotaKeys::new(&key.callback, requester);
            lock(&self.admission).end_verification(&buckets, pending.kind);
            let mut queues = lock(&self.unverified);
            let queue = queues.get_mut(&key).filter(|queue| queue.len() > 1);
            let Some(queue) = queue else {
                queues.remove(&key);
                return;
            };
            queue.pop_front();
        }
    }

    /// Returns the time of the verification request that the subscriber confirmed, from which its lease runs, and the slot,
    /// which is to be released only after the change is made.
    async fn await_confirmation(
        &self,
        pending: &PendingVerification,
    ) -> Option<(Timestamp, FairSlot)> {
        let callback = &pending.request.callback;
        let started = Instant::now();
        let mut attempts = 1;
        while started.elapsed() < VERIFICATION_TIMEOUT {
            match self.attempt_verification(pending, attempts).await {
                Ok(VerificationOutcome::Confirmed(sent_at, slot)) => {
                    lock(&self.counts).verifications.confirmed += 1;
                    return Some((sent_at, slot));
                }
                Ok(VerificationOutcome::Refused(status)) => {
                    lock(&self.counts).verifications.refused += 1;
                    debug!(%callback, status, "the callback {callback} did not confirm the verification: it answered {status}");
                    return None;
                }
                Ok(VerificationOutcome::Limited(exceeded)) => {
                    debug!(%callback, "verification of the callback {callback} is delayed: {exceeded}");
                    if !self.wait_for_limit(exceeded.retry_after).await {
                        break;
                    }
                    continue;
                }
                Err(reason) => {
                    // Only logged. An address that may not be called is retried as often as one that refuses, so that
                    // the remaining quota does not tell them apart either.
                    debug!(
                        %callback, attempts,
                        "cannot verify the callback {callback}: {reason}"
                    );
                }
            }
            let allowed = self.settings.get().settings.verification_attempts;
            let is_new = pending.kind == NewOrRenewal::New;
            if attempts >= allowed || is_new && lock(&self.admission).has_max_pending() {
                break;
            }
            tokio::time::sleep(backoff(attempts, fastrand::f64())).await;
            attempts += 1;
        }
        lock(&self.counts).verifications.failed += 1;
        None
    }

    /// Waits for a limit that is exceeded. Returns false as soon as the queue is full: then nothing holds a slot of it only to
    /// wait, as after any other failed attempt.
    async fn wait_for_limit(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait.max(LIMITED_WAIT);
        while !lock(&self.admission).has_max_pending() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            tokio::time::sleep(left.min(LIMITED_WAIT)).await;
        }
        false
    }

    async fn attempt_verification(
        &self,
        pending: &PendingVerification,
        attempts: u32,
    ) -> Result<VerificationOutcome, String> {
        let PendingVerification { request, kind, .. } = pending;
        let priority = match (kind, attempts) {
            (NewOrRenewal::Renewal, _) => Priority::Known,
            (NewOrRenewal::New, 1) => Priority::First,
            (NewOrRenewal::New, _) => Priority::Retry,
        };
        let (location, mut slot) = loop {
            let prepared = self.settings.get();
            let location = prepared.client.resolve(&request.callback, priority).await?;
            // Names cost nothing, so the address that one resolved to counts as a host too. One in the URL was counted with
            // the request.
            if let (Some(address), NewOrRenewal::New) = (location.by_name, kind) {
                let (buckets, now) = (address_buckets(address), self.clock.started.elapsed());
                let connected = lock(&self.admission).acquire(&buckets, 1, now);
                if let Err(exceeded) = connected {
                    return Ok(VerificationOutcome::Limited(exceeded));
                }
            }
            let taken = self.verification_slots.acquire(&location.host, priority);
            let slot = taken.await;
            // Otherwise the policy has changed since the addresses were checked.
            if Arc::ptr_eq(&prepared, &self.settings.get()) {
                break (location, slot);
            }
        };
        // Each attempt has its own challenge.
        let challenge = Uuid::new_v4().to_string();
        let url = verification_url(request, &challenge);
        let sent_at = self.clock.now();
        // One byte more than the challenge, to notice anything after it.
        let max_bytes = challenge.len() + 1;
        let mut response = send(&url, &location, &mut slot).await?;
        let status = response.status().as_u16();
        let beginning = slot.unless_cut_off(client::beginning(&mut response, max_bytes));
        Ok(match beginning.await {
            Some((body, None)) if confirms(status, &body, &challenge) => {
                VerificationOutcome::Confirmed(sent_at, slot)
            }
            _ => VerificationOutcome::Refused(status),
        })
    }
}

async fn send(
    url: &str,
    location: &ResolvedCallback,
    slot: &mut FairSlot,
) -> Result<Response, String> {
    match slot.unless_cut_off(location.client.get(url).send()).await {
        Some(Ok(response)) => {
            slot.was_answered = true;
            Ok(response)
        }
        Some(Err(error)) => Err(describe(error)),
        None => Err(CUT_OFF.to_owned()),
    }
}

/// Returns the URL of a verification request: the callback's own query stays, the parameters are appended.
fn verification_url(request: &SubscriptionRequest, challenge: &str) -> String {
    let lease = match &request.action {
        RequestedAction::Subscribe { lease, .. } => Some(lease.as_secs().to_string()),
        RequestedAction::Unsubscribe => None,
    };
    let mut parameters = vec![
        ("hub.mode", request.action.mode()),
        ("hub.topic", &request.topic),
        ("hub.challenge", challenge),
    ];
    let lease = lease.as_deref();
    parameters.extend(lease.map(|lease| ("hub.lease_seconds", lease)));
    url_with_parameters(request.callback.as_str(), &parameters)
}

/// Returns true if an answer confirms the request.
fn confirms(status: u16, body: &[u8], challenge: &str) -> bool {
    (200..300).contains(&status) && body == challenge.as_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::hub::Callback;

    /// WebSub 5.1.1 and 5.3.
    #[test]
    fn the_callback_s_own_query_is_kept() {
        let subscribe = RequestedAction::Subscribe {
            lease: Duration::from_secs(300),
            secret: None,
        };
        for (action, topic, callback, want) in [
            (
                subscribe,
                "http://e.org/t?a&b",
                "http://127.0.0.1/c?k=a%20b+c",
                "http://127.0.0.1/c?k=a%20b+c&hub.mode=subscribe\
                 &hub.topic=http%3A%2F%2Fe.org%2Ft%3Fa%26b&hub.challenge=42&hub.lease_seconds=300",
            ),
            (
                RequestedAction::Unsubscribe,
                "t",
                "http://[::1]/",
                "http://[::1]/?hub.mode=unsubscribe&hub.topic=t&hub.challenge=42",
            ),
        ] {
            let request = SubscriptionRequest {
                action,
                topic: topic.to_owned(),
                callback: Callback::new(callback),
            };
            assert_eq!(verification_url(&request, "42"), want);
        }
    }

    /// WebSub 5.3.1.
    #[test]
    fn only_a_2xx_with_the_exact_challenge_confirms() {
        for (status, body, want) in [
            (200, "42", true),
            (204, "42", true),
            (299, "42", true),
            (200, "42\n", false),
            (200, "<p>42</p>", false),
            (200, "", false),
            (302, "42", false),
            (404, "42", false),
        ] {
            assert_eq!(
                confirms(status, body.as_bytes(), "42"),
                want,
                "{status} {body}"
            );
        }
    }
}

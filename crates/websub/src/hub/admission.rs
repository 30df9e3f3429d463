//! Admission control: limits requests, verifications under way and subscriptions, for each callback host, for each
//! requester, and in total.

use std::time::Duration;

use crate::hub::limits::{HubLimits, LimitExceeded, LimitScope, Quota};
use crate::hub::rate_limiter::RateLimiter;
use crate::hub::usage::{BucketKey, QuotaKey, Usage};

/// `Retry-After` where verifications are exceeded: most end within this time.
const VERIFICATION: Duration = Duration::from_secs(30);
/// `Retry-After` where subscriptions are exceeded: they end with their leases, which may be long.
const SUBSCRIPTION: Duration = Duration::from_secs(3_600);

/// What a verification is about, which decides the quota that it counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerificationKind {
    /// A subscription that did not exist when the request came.
    New,
    /// An existing subscription, to be renewed or ended.
    Renewal,
}

/// The limits and their current usage.
#[derive(Debug)]
pub struct Admission {
    limits: HubLimits,
    rate: RateLimiter<BucketKey>,
    verifications: Usage,
    /// Verifications of existing subscriptions.
    renewals: Usage,
}

impl Admission {
    /// Enforces limits of which nothing is used yet.
    pub fn new(limits: HubLimits) -> Admission {
        Admission {
            rate: RateLimiter::new(limits.requests_per_minute),
            verifications: Usage::default(),
            renewals: Usage::default(),
            limits,
        }
    }

    /// Replaces the limits. Usage stays; a new rate begins with full buckets.
    pub fn set_limits(&mut self, limits: HubLimits) {
        if limits.requests_per_minute != self.limits.requests_per_minute {
            self.rate = RateLimiter::new(limits.requests_per_minute);
        }
        self.limits = limits;
    }

    /// Checks whether the quota of subscriptions, of which these exist, has room for another one.
    ///
    /// # Errors
    ///
    /// The quota that it exceeds.
    pub fn may_subscribe(
        &self,
        quota_key: &QuotaKey,
        subscriptions: &Usage,
    ) -> Result<(), LimitExceeded> {
        // Each verification under way may become a subscription.
        let usages = [subscriptions, &self.verifications];
        let checked = check_quota(&usages, quota_key, &self.limits.subscriptions);
        checked.map_err(|scope| LimitExceeded {
            what: "subscriptions",
            scope,
            retry_after: SUBSCRIPTION,
        })
    }

    /// Counts a verification that begins. Renewing or ending an existing subscription is limited neither by the number of
    /// subscriptions nor by strangers, who may name the same host over and over or fill the queue.
    ///
    /// # Errors
    ///
    /// The quota that it exceeds.
    pub fn begin(
        &mut self,
        quota_key: &QuotaKey,
        kind: VerificationKind,
        now: Duration,
    ) -> Result<(), LimitExceeded> {
        let limit = self.limits.verifications;
        let checked = check_quota(&[self.usage(kind)], quota_key, &limit);
        checked.map_err(|scope| LimitExceeded {
            what: "verifications under way",
            scope,
            retry_after: VERIFICATION,
        })?;
        if kind == VerificationKind::New {
            self.acquire(&quota_key.hosts, 1, now)?;
        }
        self.usage(kind).add(quota_key);
        Ok(())
    }

    /// Returns true if the total of verifications is reached. Then each is attempted only once.
    pub fn is_full(&self) -> bool {
        self.verifications.total >= self.limits.verifications.in_all
    }

    /// Ends a verification that [`begin`](Admission::begin) counted, of the same kind.
    pub fn end(&mut self, quota_key: &QuotaKey, kind: VerificationKind) {
        self.usage(kind).remove(quota_key);
    }

    fn usage(&mut self, kind: VerificationKind) -> &mut Usage {
        match kind {
            VerificationKind::New => &mut self.verifications,
            VerificationKind::Renewal => &mut self.renewals,
        }
    }

    /// Counts as many requests of any kind for these buckets, or none of them beyond a limit. Times count from
    /// any one start.
    ///
    /// # Errors
    ///
    /// The limit that they exceed.
    pub fn acquire(
        &mut self,
        buckets: &[(BucketKey, u32)],
        count: u32,
        now: Duration,
    ) -> Result<(), LimitExceeded> {
        let acquired = self.rate.acquire(buckets, count, now);
        acquired.map_err(|(bucket, retry_after)| LimitExceeded {
            what: "requests",
            scope: bucket.scope(),
            retry_after,
        })
    }
}

/// Returns the scope of the first quota that the sum of the usages has reached, as an error.
fn check_quota(usages: &[&Usage], quota_key: &QuotaKey, quota: &Quota) -> Result<(), LimitScope> {
    let sum = |count: &dyn Fn(&Usage) -> u32| usages.iter().map(|usage| count(usage)).sum::<u32>();
    let limits = [
        (&quota_key.requesters, quota.per_address),
        (&quota_key.hosts, quota.per_host),
    ];
    for (buckets, limit) in limits {
        for (bucket, times) in buckets {
            if sum(&|usage| usage.of(bucket)) >= limit.saturating_mul(*times) {
                return Err(bucket.scope());
            }
        }
    }
    if sum(&|usage| usage.total) >= quota.in_all {
        return Err(LimitScope::Total);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::hub::Callback;

    use super::VerificationKind::{New, Renewal};
    use super::*;
    use crate::hub::client_address::Requester;
    use crate::hub::usage::{address_buckets, requester_buckets};

    const START: Duration = Duration::ZERO;

    fn requester(last: u8) -> Requester {
        Requester::new([9, 9, 9, last].into())
    }

    fn quota_key(host: &str, last: u8) -> QuotaKey {
        quota_key_of(host, &format!("9.9.9.{last}"))
    }

    fn quota_key_of(host: &str, address: &str) -> QuotaKey {
        let callback = Callback::new(format!("http://{host}/c"));
        let requester = Requester::new(address.parse().unwrap());
        QuotaKey::new(&callback, Some(requester))
    }

    fn admission(limits: impl Fn(&mut HubLimits)) -> Admission {
        let mut set = HubLimits::default();
        limits(&mut set);
        Admission::new(set)
    }

    fn refused(outcome: Result<(), LimitExceeded>) -> Option<(&'static str, LimitScope)> {
        outcome
            .err()
            .map(|exceeded| (exceeded.what, exceeded.scope))
    }

    #[test]
    fn one_requester_cannot_use_the_quota_of_others() {
        let mut admission = admission(|limits| limits.requests_per_minute = 2);
        let mut acquire = |who| admission.acquire(&requester_buckets(who), 1, START);
        let one = Some(requester(1));
        assert_eq!((acquire(one), acquire(one)), (Ok(()), Ok(())));
        let exceeded = acquire(one).unwrap_err();
        assert_eq!(exceeded.to_string(), "too many requests from your address");
        assert_eq!(
            (exceeded.status(), exceeded.retry_after.as_secs()),
            (429, 30)
        );
        assert_eq!(acquire(Some(requester(2))), Ok(()));
        assert_eq!(acquire(None), Ok(()));
    }

    #[test]
    fn verifications_are_bounded_for_each_host_and_requester_and_in_all() {
        let mut admission = admission(|limits| {
            limits.verifications = Quota {
                in_all: 3,
                per_host: 2,
                per_address: 2,
            };
        });
        for (host, requester, want) in [
            ("a", 1, None),
            ("b", 1, None),
            ("c", 1, Some(LimitScope::Requester)),
            ("a", 2, None),
            ("A.", 3, Some(LimitScope::Host)),
            ("c", 3, Some(LimitScope::Total)),
        ] {
            let found = refused(admission.begin(&quota_key(host, requester), New, START));
            let want = want.map(|scope| ("verifications under way", scope));
            assert_eq!(found, want, "{host} {requester}");
        }
        let exceeded = admission.begin(&quota_key("a", 3), New, START).unwrap_err();
        let words = "too many verifications under way for callbacks on this host";
        assert_eq!(exceeded.to_string(), words);
        assert_eq!(
            (exceeded.status(), exceeded.retry_after.as_secs()),
            (429, 30)
        );
        admission.end(&quota_key("a", 1), New);
        assert_eq!(admission.begin(&quota_key("c", 3), New, START), Ok(()));
    }

    #[test]
    fn subscriptions_are_bounded_and_those_there_are_may_be_renewed_and_ended() {
        let mut admission = admission(|limits| {
            limits.subscriptions = Quota {
                in_all: 4,
                per_host: 3,
                per_address: 2,
            };
        });
        let mut subscriptions = Usage::default();
        for (host, requester, want) in [
            ("a", 1, None),
            ("a", 1, None),
            ("b", 1, Some(LimitScope::Requester)),
            ("a", 2, None),
            ("a", 2, Some(LimitScope::Host)),
            ("b", 2, None),
            ("c", 3, Some(LimitScope::Total)),
        ] {
            let quota_key = quota_key(host, requester);
            let found = admission.may_subscribe(&quota_key, &subscriptions);
            assert_eq!(refused(found), want.map(|scope| ("subscriptions", scope)));
            if want.is_none() {
                subscriptions.add(&quota_key);
            }
        }
        assert_eq!(admission.begin(&quota_key("a", 1), Renewal, START), Ok(()));
        admission.end(&quota_key("a", 1), Renewal);
        subscriptions.remove(&quota_key("a", 1));
        let first = quota_key("a", 1);
        assert_eq!(admission.may_subscribe(&first, &subscriptions), Ok(()));
        assert_eq!(admission.begin(&first, New, START), Ok(()));
        // Until that verification ends, its subscription may become the last one that the limit permits.
        let found = admission.may_subscribe(&quota_key("c", 3), &subscriptions);
        assert_eq!(found.unwrap_err().status(), 503);
    }

    #[test]
    fn many_requesters_together_cannot_exceed_the_rate_of_one_host() {
        let mut admission = admission(|limits| limits.requests_per_minute = 5);
        for requester in 0..5 {
            let quota_key = quota_key("victim.example", requester);
            assert_eq!(admission.begin(&quota_key, New, START), Ok(()));
            admission.end(&quota_key, New);
        }
        let quota_key = quota_key("victim.example", 9);
        let found = admission.begin(&quota_key, New, START);
        assert_eq!(refused(found), Some(("requests", LimitScope::Host)));
        // Existing subscriptions are not affected.
        assert_eq!(admission.begin(&quota_key, Renewal, START), Ok(()));
    }

    #[test]
    fn names_of_one_address_count_as_that_address() {
        let mut admission = admission(|limits| limits.requests_per_minute = 5);
        let address = "9.9.9.9".parse().unwrap();
        for _ in 0..5 {
            let taken = admission.acquire(&address_buckets(address), 1, START);
            assert_eq!(taken, Ok(()));
        }
        let mapped = "::ffff:9.9.9.9".parse().unwrap();
        let translated = "64:ff9b::9.9.9.9".parse().unwrap();
        for address in [address, mapped, translated] {
            let found = admission.acquire(&address_buckets(address), 1, START);
            assert_eq!(refused(found), Some(("requests", LimitScope::Host)));
        }
        // Callbacks that name it by its address count against the same limit.
        let found = admission.begin(&quota_key("9.9.9.9", 1), New, START);
        assert_eq!(refused(found), Some(("requests", LimitScope::Host)));
        let other = "9.9.9.8".parse().unwrap();
        assert_eq!(admission.acquire(&address_buckets(other), 1, START), Ok(()));
    }

    #[test]
    fn one_ipv6_prefix_cannot_fill_the_queue() {
        let mut admission = admission(|limits| limits.set_requests_per_minute(30));
        let (mut begun, mut refused) = (0, 0);
        for network in 0..34 {
            for n in 0..30 {
                let host = format!("h{n}.n{network}");
                let quota_key = quota_key_of(&host, &format!("2a00:1:2:{network:x}::1"));
                match admission.begin(&quota_key, New, START) {
                    Ok(()) => begun += 1,
                    Err(exceeded) => {
                        let found = (exceeded.scope, exceeded.status());
                        assert_eq!(found, (LimitScope::Requester, 429));
                        refused += 1;
                    }
                }
            }
        }
        // All are of one /56, which may take twice as much as a /64.
        assert_eq!((begun, refused), (60, 960));
        let neighbour = quota_key_of("other", "2a00:1:2:100::1");
        assert_eq!(admission.begin(&neighbour, New, START), Ok(()));
    }

    #[test]
    fn renewals_have_a_queue_of_their_own() {
        let mut admission = admission(|limits| limits.verifications.in_all = 2);
        for requester in 1..=2 {
            assert!(!admission.is_full());
            let quota_key = quota_key("a", requester);
            assert_eq!(admission.begin(&quota_key, New, START), Ok(()));
        }
        assert!(admission.is_full());
        let third = quota_key("a", 3);
        let found = admission.begin(&third, New, START);
        assert_eq!(found.unwrap_err().status(), 503);
        assert_eq!(admission.begin(&third, Renewal, START), Ok(()));
        admission.end(&third, Renewal);
        assert_eq!(admission.renewals, Usage::default());
        assert!(admission.is_full());
    }

    proptest! {
        #[test]
        fn usage_returns_to_zero(steps: Vec<(u8, u8, bool)>) {
            let mut admission = admission(|_| {});
            let mut begun = Vec::new();
            for (host, requester, ends) in steps {
                if ends && let Some(quota_key) = begun.pop() {
                    admission.end(&quota_key, New);
                }
                let quota_key = quota_key(&format!("h{}", host % 4), requester % 4);
                if admission.begin(&quota_key, New, START).is_ok() {
                    begun.push(quota_key);
                }
                prop_assert_eq!(admission.verifications.total as usize, begun.len());
            }
            for quota_key in begun {
                admission.end(&quota_key, New);
            }
            prop_assert_eq!(admission.verifications, Usage::default());
        }
    }
}

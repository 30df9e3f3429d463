//! Admission control: limits requests, verifications under way and subscriptions, for each callback host, for each
//! requester, and in total. Requests are limited by token buckets, a minute's worth as burst, in bounded memory.

// `core::net` has the addresses without the sockets.
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use url::{Host, Url};

use crate::hub::Callback;
use crate::hub::address::{quota_networks, routed_address};
use crate::hub::client_address::Requester;

/// Verifications in words, and `Retry-After` where they are exceeded: most end within this time.
const VERIFICATIONS: (&str, Duration) = ("verifications under way", Duration::from_secs(30));
/// The same of subscriptions: they end with their leases, which may be long.
const SUBSCRIPTIONS: (&str, Duration) = ("subscriptions", Duration::from_secs(3_600));

/// What a verification is about, which decides the quota that it counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewOrRenewal {
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
        buckets: &QuotaKeys,
        subscriptions: &Usage,
    ) -> Result<(), LimitExceeded> {
        // Each verification under way may become a subscription.
        let usages = [subscriptions, &self.verifications];
        let limit = self.limits.subscriptions;
        check_quota(&usages, buckets, limit, SUBSCRIPTIONS)
    }

    /// Counts a verification that begins. Renewing or ending an existing subscription is limited neither by the number of
    /// subscriptions nor by strangers, who may name the same host over and over or fill the queue.
    ///
    /// # Errors
    ///
    /// The quota that it exceeds.
    pub fn begin(
        &mut self,
        buckets: &QuotaKeys,
        kind: NewOrRenewal,
        now: Duration,
    ) -> Result<(), LimitExceeded> {
        let limit = self.limits.verifications;
        check_quota(&[self.usage_of_kind(kind)], buckets, limit, VERIFICATIONS)?;
        if kind == NewOrRenewal::New {
            self.acquire(&buckets.hosts, 1, now)?;
        }
        self.usage_of_kind(kind).add(buckets);
        Ok(())
    }

    /// Returns true if the total of verifications is reached. Then each is attempted only once.
    pub fn has_max_pending(&self) -> bool {
        self.verifications.total >= self.limits.verifications.in_all
    }

    /// Ends a verification that [`begin`](Admission::begin) counted, of the same kind.
    pub fn end_verification(&mut self, buckets: &QuotaKeys, kind: NewOrRenewal) {
        self.usage_of_kind(kind).remove(buckets);
    }

    fn usage_of_kind(&mut self, kind: NewOrRenewal) -> &mut Usage {
        match kind {
            NewOrRenewal::New => &mut self.verifications,
            NewOrRenewal::Renewal => &mut self.renewals,
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

/// Returns the first quota that the sum of the usages has reached, as an error.
fn check_quota(
    usages: &[&Usage],
    buckets: &QuotaKeys,
    quota: Quota,
    (what, retry_after): (&'static str, Duration),
) -> Result<(), LimitExceeded> {
    let exceeded = |scope| LimitExceeded {
        what,
        scope,
        retry_after,
    };
    let limits = [
        (&buckets.requesters, quota.per_address),
        (&buckets.hosts, quota.per_host),
    ];
    for (counted, limit) in limits {
        for (bucket, times) in counted {
            let used = usages
                .iter()
                .filter_map(|usage| usage.by_bucket.get(bucket));
            if used.sum::<u32>() >= limit.saturating_mul(*times) {
                return Err(exceeded(bucket.scope()));
            }
        }
    }
    if usages.iter().map(|usage| usage.total).sum::<u32>() >= quota.in_all {
        return Err(exceeded(LimitScope::Total));
    }
    Ok(())
}

/// The default rate limit, which is also the burst and the concurrency that it allows.
const REQUESTS_PER_MINUTE: u32 = 300;

/// The limits on what clients may use of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubLimits {
    /// From each address, and for callbacks on each host.
    pub requests_per_minute: u32,
    /// Verifications under way. Renewals have a total of their own, of the same size.
    pub verifications: Quota,
    /// Subscriptions that exist.
    pub subscriptions: Quota,
    /// Bytes of pending notifications; beyond it the subscriptions that are owed most end.
    pub backlog_bytes: u64,
}

/// The maximum number of something: in total, for one callback host, and for one client address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The maximum in total.
    pub in_all: u32,
    /// The maximum for one callback host.
    pub per_host: u32,
    /// The maximum for one client address.
    pub per_address: u32,
}

impl HubLimits {
    /// Sets the rate limit, and with it the burst and the verifications under way that it allows.
    pub fn set_requests_per_minute(&mut self, requests: u32) {
        self.requests_per_minute = requests;
        self.verifications.per_host = requests;
        self.verifications.per_address = requests;
    }
}

impl Default for HubLimits {
    fn default() -> HubLimits {
        HubLimits {
            requests_per_minute: REQUESTS_PER_MINUTE,
            verifications: Quota {
                in_all: 10_000,
                per_host: REQUESTS_PER_MINUTE,
                per_address: REQUESTS_PER_MINUTE,
            },
            subscriptions: Quota {
                in_all: 100_000,
                per_host: 1_000,
                per_address: 1_000,
            },
            backlog_bytes: 1 << 30,
        }
    }
}

/// A request that exceeds a limit. The text is for the subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many {what} {scope}")]
pub struct LimitExceeded {
    /// The things that there are too many of.
    pub what: &'static str,
    /// Where there is too much of it.
    pub scope: LimitScope,
    /// The value of the `Retry-After` header.
    pub retry_after: Duration,
}

/// The scope of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitScope {
    /// All clients together.
    #[error("in all")]
    Total,
    /// One callback host.
    #[error("for callbacks on this host")]
    Host,
    /// One client, by its address.
    #[error("from your address")]
    Requester,
}

impl LimitExceeded {
    /// Returns the HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self.scope {
            LimitScope::Total => 503,
            LimitScope::Host | LimitScope::Requester => 429,
        }
    }
}

/// One counter or token bucket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum BucketKey {
    /// A publisher, by name; its requests are limited elsewhere.
    Publisher(Arc<str>),
    /// Requesters, by address.
    Requester(IpNet),
    /// A callback host, by name.
    HostName(String),
    /// Callback hosts, by address.
    HostAddress(IpNet),
}

impl BucketKey {
    /// Returns what the bucket is of.
    pub fn scope(&self) -> LimitScope {
        match self {
            BucketKey::Publisher(_) | BucketKey::Requester(_) => LimitScope::Requester,
            BucketKey::HostName(_) | BucketKey::HostAddress(_) => LimitScope::Host,
        }
    }
}

/// The buckets under which a request or subscription is counted, each with the multiple of the quota that it allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaKeys {
    /// Those of the callback host as the URL has it.
    pub hosts: Vec<(BucketKey, u32)>,
    /// None behind a proxy that does not forward the requester, and for subscriptions of an earlier run.
    pub requesters: Vec<(BucketKey, u32)>,
}

impl QuotaKeys {
    /// Returns the buckets of a callback and a requester.
    pub fn new(callback: &Callback, requester: Option<Requester>) -> QuotaKeys {
        let url = Url::parse(callback.as_str()).ok();
        let of_name =
            |name: &str| vec![(BucketKey::HostName(name.trim_end_matches('.').into()), 1)];
        QuotaKeys {
            hosts: match url.as_ref().and_then(Url::host) {
                Some(Host::Domain(name)) => of_name(name),
                Some(Host::Ipv4(address)) => address_buckets(address.into()),
                Some(Host::Ipv6(address)) => address_buckets(address.into()),
                None => of_name(""),
            },
            requesters: requester_buckets(requester),
        }
    }

    fn keys(&self) -> impl Iterator<Item = &BucketKey> {
        let buckets = self.requesters.iter().chain(&self.hosts);
        buckets.map(|(bucket, _)| bucket)
    }
}

/// Returns the buckets of a requester, if it is known.
pub fn requester_buckets(requester: Option<Requester>) -> Vec<(BucketKey, u32)> {
    let networks = requester.map(|requester| quota_networks(requester.0));
    networks
        .unwrap_or_default()
        .into_iter()
        .map(|(network, times)| (BucketKey::Requester(network), times))
        .collect()
}

/// Returns the buckets of an address that is connected to, whatever its notation.
pub fn address_buckets(address: IpAddr) -> Vec<(BucketKey, u32)> {
    let networks = quota_networks(routed_address(address)).into_iter();
    networks
        .map(|(network, times)| (BucketKey::HostAddress(network), times))
        .collect()
}

/// Counters, in total and for each bucket. A bucket that drops to zero is removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Count in total.
    pub total: u32,
    by_bucket: BTreeMap<BucketKey, u32>,
}

impl Usage {
    /// Counts one more.
    pub fn add(&mut self, buckets: &QuotaKeys) {
        self.total += 1;
        for bucket in buckets.keys() {
            *self.by_bucket.entry(bucket.clone()).or_default() += 1;
        }
    }

    /// Counts one less.
    pub fn remove(&mut self, buckets: &QuotaKeys) {
        self.total = self.total.saturating_sub(1);
        for bucket in buckets.keys() {
            decrement(&mut self.by_bucket, bucket);
        }
    }
}

/// Counts one less for a key. A count that drops to zero is removed.
pub fn decrement<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// Maximum keys in each of the two generations. Beyond it the oldest keys begin with a full bucket again, so that many
/// clients cannot lock others out.
const MAX_KEYS: usize = 10_000;

/// A limiter with the same rate for each `K`. Times count from any one start.
///
/// Each bucket is kept as the time until which its tokens are spent (generic cell rate algorithm): at most a minute
/// ahead. One in the past is a full bucket and need not be kept, so a generation can be dropped a minute after it was
/// last filled.
#[derive(Debug)]
pub struct RateLimiter<K> {
    /// The time in which one token is regained.
    interval: Duration,
    recent: BTreeMap<K, Duration>,
    older: BTreeMap<K, Duration>,
    /// The start of `recent`.
    rotated_at: Duration,
}

impl<K: Ord + Clone> RateLimiter<K> {
    /// Permits so many in a minute for each key, and as many at once.
    pub fn new(per_minute: u32) -> RateLimiter<K> {
        RateLimiter {
            interval: MINUTE / per_minute.max(1),
            recent: BTreeMap::new(),
            older: BTreeMap::new(),
            rotated_at: Duration::ZERO,
        }
    }

    /// Takes `count` tokens from the bucket of each key, whose rate is multiplied by the number beside it; or returns the
    /// key that has to wait longest, with that time, and takes nothing. More tokens than a bucket holds are never there.
    ///
    /// # Errors
    ///
    /// The key and the time.
    pub fn acquire(
        &mut self,
        keys: &[(K, u32)],
        count: u32,
        now: Duration,
    ) -> Result<(), (K, Duration)> {
        if now.saturating_sub(self.rotated_at) >= MINUTE || self.recent.len() >= MAX_KEYS {
            self.older = std::mem::take(&mut self.recent);
            self.rotated_at = now;
        }
        let spent_until = |(key, times): &(K, u32)| {
            let known = self.recent.get(key).or_else(|| self.older.get(key));
            let cost = (self.interval / (*times).max(1)).saturating_mul(count);
            known.copied().unwrap_or(now).max(now).saturating_add(cost)
        };
        let spent: Vec<Duration> = keys.iter().map(spent_until).collect();
        let waits = keys
            .iter()
            .zip(&spent)
            .map(|((key, _), spent_until)| (key, spent_until.saturating_sub(now + MINUTE)));
        if let Some((key, wait)) = waits.max_by_key(|(_, wait)| *wait)
            && !wait.is_zero()
        {
            return Err((key.clone(), wait));
        }
        let spent = keys.iter().zip(spent);
        self.recent
            .extend(spent.map(|((key, _), spent_until)| (key.clone(), spent_until)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::NewOrRenewal::{New, Renewal};
    use super::*;
    use crate::hub::Callback;
    use crate::hub::admission::{address_buckets, requester_buckets};
    use crate::hub::client_address::Requester;

    const START: Duration = Duration::ZERO;

    fn requester(last: u8) -> Requester {
        Requester::at([9, 9, 9, last].into())
    }

    fn buckets(host: &str, last: u8) -> QuotaKeys {
        quota_key_of(host, &format!("9.9.9.{last}"))
    }

    fn quota_key_of(host: &str, address: &str) -> QuotaKeys {
        let callback = Callback::new(format!("http://{host}/c"));
        let requester = Requester::at(address.parse().unwrap());
        QuotaKeys::new(&callback, Some(requester))
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
            let found = refused(admission.begin(&buckets(host, requester), New, START));
            let want = want.map(|scope| ("verifications under way", scope));
            assert_eq!(found, want, "{host} {requester}");
        }
        let exceeded = admission.begin(&buckets("a", 3), New, START).unwrap_err();
        let words = "too many verifications under way for callbacks on this host";
        assert_eq!(exceeded.to_string(), words);
        assert_eq!(
            (exceeded.status(), exceeded.retry_after.as_secs()),
            (429, 30)
        );
        admission.end_verification(&buckets("a", 1), New);
        assert_eq!(admission.begin(&buckets("c", 3), New, START), Ok(()));
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
            let buckets = buckets(host, requester);
            let found = admission.may_subscribe(&buckets, &subscriptions);
            assert_eq!(refused(found), want.map(|scope| ("subscriptions", scope)));
            if want.is_none() {
                subscriptions.add(&buckets);
            }
        }
        assert_eq!(admission.begin(&buckets("a", 1), Renewal, START), Ok(()));
        admission.end_verification(&buckets("a", 1), Renewal);
        subscriptions.remove(&buckets("a", 1));
        let first = buckets("a", 1);
        assert_eq!(admission.may_subscribe(&first, &subscriptions), Ok(()));
        assert_eq!(admission.begin(&first, New, START), Ok(()));
        // Until that verification ends, its subscription may become the last one that the limit permits.
        let found = admission.may_subscribe(&buckets("c", 3), &subscriptions);
        assert_eq!(found.unwrap_err().status(), 503);
    }

    #[test]
    fn many_requesters_together_cannot_exceed_the_rate_of_one_host() {
        let mut admission = admission(|limits| limits.requests_per_minute = 5);
        for requester in 0..5 {
            let buckets = buckets("victim.example", requester);
            assert_eq!(admission.begin(&buckets, New, START), Ok(()));
            admission.end_verification(&buckets, New);
        }
        let buckets = buckets("victim.example", 9);
        let found = admission.begin(&buckets, New, START);
        assert_eq!(refused(found), Some(("requests", LimitScope::Host)));
        // Existing subscriptions are not affected.
        assert_eq!(admission.begin(&buckets, Renewal, START), Ok(()));
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
        let found = admission.begin(&buckets("9.9.9.9", 1), New, START);
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
                let buckets = quota_key_of(&host, &format!("2a00:1:2:{network:x}::1"));
                match admission.begin(&buckets, New, START) {
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
            assert!(!admission.has_max_pending());
            let buckets = buckets("a", requester);
            assert_eq!(admission.begin(&buckets, New, START), Ok(()));
        }
        assert!(admission.has_max_pending());
        let third = buckets("a", 3);
        let found = admission.begin(&third, New, START);
        assert_eq!(found.unwrap_err().status(), 503);
        assert_eq!(admission.begin(&third, Renewal, START), Ok(()));
        admission.end_verification(&third, Renewal);
        assert_eq!(admission.renewals, Usage::default());
        assert!(admission.has_max_pending());
    }

    proptest! {
        #[test]
        fn usage_returns_to_zero(steps: Vec<(u8, u8, bool)>) {
            let mut admission = admission(|_| {});
            let mut begun = Vec::new();
            for (host, requester, ends) in steps {
                if ends && let Some(buckets) = begun.pop() {
                    admission.end_verification(&buckets, New);
                }
                let buckets = buckets(&format!("h{}", host % 4), requester % 4);
                if admission.begin(&buckets, New, START).is_ok() {
                    begun.push(buckets);
                }
                prop_assert_eq!(admission.verifications.total as usize, begun.len());
            }
            for buckets in begun {
                admission.end_verification(&buckets, New);
            }
            prop_assert_eq!(admission.verifications, Usage::default());
        }
    }

    impl<K: Ord + Clone> RateLimiter<K> {
        fn acquire_one(&mut self, key: &K, now: Duration) -> Result<(), Duration> {
            let acquired = self.acquire(&[(key.clone(), 1)], 1, now);
            acquired.map_err(|(_, wait)| wait)
        }
    }

    #[test]
    fn a_request_that_one_bucket_refuses_takes_no_token_from_the_others() {
        let mut limiter = RateLimiter::new(2);
        let both = [("customer", 1), ("provider", 2)];
        for _ in 0..2 {
            assert_eq!(limiter.acquire(&both, 1, seconds(1)), Ok(()));
        }
        let wait = Err(("customer", seconds(30)));
        assert_eq!(limiter.acquire(&both, 1, seconds(1)), wait);
        let another = [("another", 1), ("provider", 2)];
        for _ in 0..2 {
            assert_eq!(limiter.acquire(&another, 1, seconds(1)), Ok(()));
        }
        let third = [("third", 1), ("provider", 2)];
        let wait = Err(("provider", seconds(15)));
        assert_eq!(limiter.acquire(&third, 1, seconds(1)), wait);
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_minute_s_worth_may_come_at_once_and_is_regained_evenly() {
        let mut limiter = RateLimiter::new(6);
        for _ in 0..6 {
            assert_eq!(limiter.acquire_one(&1, seconds(100)), Ok(()));
        }
        assert_eq!(limiter.acquire_one(&1, seconds(100)), Err(seconds(10)));
        assert_eq!(limiter.acquire_one(&1, seconds(104)), Err(seconds(6)));
        // Others go on.
        assert_eq!(limiter.acquire_one(&2, seconds(104)), Ok(()));
        assert_eq!(limiter.acquire_one(&1, seconds(110)), Ok(()));
        assert_eq!(limiter.acquire_one(&1, seconds(110)), Err(seconds(10)));
        for _ in 0..6 {
            assert_eq!(limiter.acquire_one(&1, seconds(300)), Ok(()));
        }
        assert_eq!(limiter.acquire_one(&1, seconds(300)), Err(seconds(10)));
    }

    #[test]
    fn many_tokens_are_taken_together_or_not_at_all() {
        let mut limiter = RateLimiter::new(6);
        let key = [("a", 1)];
        assert_eq!(limiter.acquire(&key, 0, seconds(1)), Ok(()));
        assert_eq!(limiter.acquire(&key, 4, seconds(1)), Ok(()));
        let wait = Err(("a", seconds(10)));
        assert_eq!(limiter.acquire(&key, 3, seconds(1)), wait);
        assert_eq!(limiter.acquire(&key, 2, seconds(1)), Ok(()));
        assert_eq!(limiter.acquire(&key, 1, seconds(1)), wait);
        assert!(limiter.acquire(&key, 7, seconds(600)).is_err());
        assert_eq!(limiter.acquire(&[("a", 2)], 12, seconds(600)), Ok(()));
    }

    #[test]
    fn a_client_that_has_to_wait_is_not_forgotten() {
        let mut limiter = RateLimiter::new(60);
        let mut taken = 0;
        for half_second in 0..1_200 {
            let now = Duration::from_millis(500 * half_second);
            taken += u32::from(limiter.acquire_one(&"hasty", now).is_ok());
        }
        // Ten minutes: sixty at once, and one in each second.
        assert_eq!(taken, 60 + 599);
    }

    #[test]
    fn many_clients_take_bounded_memory_and_lock_no_other_out() {
        let mut limiter = RateLimiter::new(1);
        for who in 0..100_000 {
            assert_eq!(limiter.acquire_one(&who, seconds(1)), Ok(()));
            assert!(limiter.recent.len() + limiter.older.len() <= 2 * MAX_KEYS);
        }
    }
}

//! Usage counters, and the quota keys under which a request is counted.

// `core::net` has the addresses without the sockets.
use core::net::IpAddr;
use std::borrow::Borrow;
use std::collections::BTreeMap;

use ipnet::IpNet;
use url::{Host, Url};

use crate::hub::Callback;
use crate::hub::address::{quota_networks, routed_address};
use crate::hub::client_address::Requester;
use crate::hub::limits::LimitScope;

/// One counter or token bucket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum BucketKey {
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
            BucketKey::Requester(_) => LimitScope::Requester,
            BucketKey::HostName(_) | BucketKey::HostAddress(_) => LimitScope::Host,
        }
    }
}

/// The buckets under which a request or subscription is counted, each with the multiple of the quota that it allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaKey {
    /// Those of the callback host as the URL has it.
    pub hosts: Vec<(BucketKey, u32)>,
    /// None behind a proxy that does not forward the requester, and for subscriptions of an earlier run.
    pub requesters: Vec<(BucketKey, u32)>,
}

impl QuotaKey {
    /// Returns the buckets of a callback and a requester.
    pub fn new(callback: &Callback, requester: Option<Requester>) -> QuotaKey {
        let url = Url::parse(callback.as_str()).ok();
        let of_name =
            |name: &str| vec![(BucketKey::HostName(name.trim_end_matches('.').into()), 1)];
        QuotaKey {
            hosts: match url.as_ref().and_then(Url::host) {
                Some(Host::Domain(name)) => of_name(name),
                Some(Host::Ipv4(address)) => address_buckets(address.into()),
                Some(Host::Ipv6(address)) => address_buckets(address.into()),
                None => of_name(""),
            },
            requesters: requester_buckets(requester),
        }
    }

    fn buckets(&self) -> impl Iterator<Item = &BucketKey> {
        let buckets = self.requesters.iter().chain(&self.hosts);
        buckets.map(|(bucket, _)| bucket)
    }
}

/// Returns the buckets of a requester, if it is known.
pub fn requester_buckets(requester: Option<Requester>) -> Vec<(BucketKey, u32)> {
    requester.map_or_else(Vec::new, |requester| {
        buckets(requester.networks(), BucketKey::Requester)
    })
}

/// Returns the buckets of an address that is connected to, whatever its notation.
pub fn address_buckets(address: IpAddr) -> Vec<(BucketKey, u32)> {
    buckets(
        quota_networks(routed_address(address)),
        BucketKey::HostAddress,
    )
}

fn buckets(networks: Vec<(IpNet, u32)>, bucket: fn(IpNet) -> BucketKey) -> Vec<(BucketKey, u32)> {
    let networks = networks.into_iter();
    networks
        .map(|(network, times)| (bucket(network), times))
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
    pub fn add(&mut self, key: &QuotaKey) {
        self.total += 1;
        for bucket in key.buckets() {
            *self.by_bucket.entry(bucket.clone()).or_default() += 1;
        }
    }

    /// Counts one less.
    pub fn remove(&mut self, key: &QuotaKey) {
        self.total = self.total.saturating_sub(1);
        for bucket in key.buckets() {
            decrement(&mut self.by_bucket, bucket);
        }
    }

    /// Returns the count of one bucket.
    pub fn of(&self, bucket: &BucketKey) -> u32 {
        self.by_bucket.get(bucket).copied().unwrap_or(0)
    }
}

/// Counts one less for a key. A count that drops to zero is removed.
pub fn decrement<K, Q>(counts: &mut BTreeMap<K, u32>, key: &Q)
where
    K: Ord + Borrow<Q>,
    Q: Ord + ?Sized,
{
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

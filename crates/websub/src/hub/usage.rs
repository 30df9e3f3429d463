//! Usage counters, and the quota keys under which a request is counted.

// `core::net` has the addresses without the sockets.
use core::net::IpAddr;
use std::collections::BTreeMap;

use ipnet::IpNet;
use url::{Host, Url};

use crate::hub::Callback;
use crate::hub::address::destination;
use crate::hub::client_address::Requester;
use crate::hub::limits::LimitScope;
use crate::hub::network;

/// One counter or token bucket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bucket {
    Requester(IpNet),
    /// A callback host, by name.
    HostName(String),
    /// Callback hosts, by address.
    HostAddress(IpNet),
}

impl Bucket {
    pub fn scope(&self) -> LimitScope {
        match self {
            Bucket::Requester(_) => LimitScope::Requester,
            Bucket::HostName(_) | Bucket::HostAddress(_) => LimitScope::Host,
        }
    }
}

/// The callback host and the requester under which a request or subscription is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaKey {
    host: CallbackHost,
    /// Unknown behind a proxy that does not forward it, and for subscriptions of an earlier run.
    requester: Option<Requester>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CallbackHost {
    Name(String),
    Address(IpAddr),
}

impl QuotaKey {
    pub fn new(callback: &Callback, requester: Option<Requester>) -> QuotaKey {
        let url = Url::parse(callback.as_str()).ok();
        let host = match url.as_ref().and_then(Url::host) {
            Some(Host::Domain(name)) => CallbackHost::Name(name.trim_end_matches('.').to_owned()),
            Some(Host::Ipv4(address)) => CallbackHost::Address(address.into()),
            Some(Host::Ipv6(address)) => CallbackHost::Address(address.into()),
            None => CallbackHost::Name(String::new()),
        };
        QuotaKey { host, requester }
    }

    /// Returns the buckets of the requester, each with the multiple of the quota that it allows.
    pub fn requester_buckets(&self) -> Vec<(Bucket, u32)> {
        self.requester
            .as_ref()
            .map(requester_buckets)
            .unwrap_or_default()
    }

    /// Returns the buckets of the callback host as the URL has it, each with the multiple of the quota that it allows.
    pub fn host_buckets(&self) -> Vec<(Bucket, u32)> {
        match &self.host {
            CallbackHost::Name(name) => vec![(Bucket::HostName(name.clone()), 1)],
            CallbackHost::Address(address) => address_buckets(*address),
        }
    }

    fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let buckets = self
            .requester_buckets()
            .into_iter()
            .chain(self.host_buckets());
        buckets.map(|(bucket, _)| bucket)
    }
}

/// Returns the buckets of a requester.
pub fn requester_buckets(requester: &Requester) -> Vec<(Bucket, u32)> {
    let networks = requester.networks().into_iter();
    networks
        .map(|(network, times)| (Bucket::Requester(network), times))
        .collect()
}

/// Returns the buckets of an address that is connected to, whatever its notation.
pub fn address_buckets(address: IpAddr) -> Vec<(Bucket, u32)> {
    let networks = network::counted(destination(address)).into_iter();
    networks
        .map(|(network, times)| (Bucket::HostAddress(network), times))
        .collect()
}

/// Counters, in total and for each bucket. A bucket that drops to zero is removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub total: u32,
    by_bucket: BTreeMap<Bucket, u32>,
}

impl Usage {
    pub fn add(&mut self, key: &QuotaKey) {
        self.total += 1;
        for bucket in key.buckets() {
            *self.by_bucket.entry(bucket).or_default() += 1;
        }
    }

    pub fn remove(&mut self, key: &QuotaKey) {
        self.total = self.total.saturating_sub(1);
        for bucket in key.buckets() {
            if let Some(count) = self.by_bucket.get_mut(&bucket) {
                *count -= 1;
                if *count == 0 {
                    self.by_bucket.remove(&bucket);
                }
            }
        }
    }

    /// Returns the count of one bucket.
    pub fn of(&self, bucket: &Bucket) -> u32 {
        self.by_bucket.get(bucket).copied().unwrap_or(0)
    }
}

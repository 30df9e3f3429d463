//! On whose account something counts, and how many of it there are.

use std::collections::BTreeMap;

use url::{Host, Url};

use crate::announce::subscription::Callback;
use crate::announce::subscription::requester::Requester;

/// On whose account something counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The callback's.
    pub host: String,
    /// Unknown behind a proxy that does not say, and for what an earlier run took.
    pub requester: Option<Requester>,
}

impl Share {
    pub fn new(callback: &Callback, requester: Option<Requester>) -> Share {
        let url = Url::parse(callback.as_str()).ok();
        let host = match url.as_ref().and_then(Url::host) {
            Some(Host::Domain(name)) => name.trim_end_matches('.').to_owned(),
            Some(Host::Ipv4(address)) => Requester::new(address.into()).to_string(),
            Some(Host::Ipv6(address)) => Requester::new(address.into()).to_string(),
            None => String::new(),
        };
        Share { host, requester }
    }
}

/// How many there are of something, and on whose account. Who has none left is forgotten.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub in_all: u32,
    of_hosts: BTreeMap<String, u32>,
    of_requesters: BTreeMap<Requester, u32>,
}

impl Tally {
    pub fn add(&mut self, share: &Share) {
        self.in_all += 1;
        *self.of_hosts.entry(share.host.clone()).or_default() += 1;
        if let Some(requester) = share.requester {
            *self.of_requesters.entry(requester).or_default() += 1;
        }
    }

    pub fn remove(&mut self, share: &Share) {
        self.in_all = self.in_all.saturating_sub(1);
        take_one(&mut self.of_hosts, &share.host);
        if let Some(requester) = &share.requester {
            take_one(&mut self.of_requesters, requester);
        }
    }

    pub fn of_host(&self, share: &Share) -> u32 {
        self.of_hosts.get(&share.host).copied().unwrap_or(0)
    }

    pub fn of_requester(&self, share: &Share) -> u32 {
        let of = |requester| self.of_requesters.get(&requester).copied();
        share.requester.and_then(of).unwrap_or(0)
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, u32>, of: &K) {
    if let Some(count) = counts.get_mut(of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(of);
        }
    }
}

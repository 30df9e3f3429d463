//! On whose account something counts, and how many of it there are.

// The addresses alone: `core` has no sockets.
use core::net::IpAddr;
use std::collections::BTreeMap;

use url::{Host, Url};

use crate::hub::Callback;
use crate::hub::address::destination;
use crate::hub::limits::Whose;
use crate::hub::network::Network;
use crate::hub::requester::Requester;

/// One of those who share the hub.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Requester(Network),
    /// A callback host, by its name.
    Host(String),
    /// Callback hosts, by their addresses.
    Callbacks(Network),
}

impl Scope {
    pub fn whose(&self) -> Whose {
        match self {
            Scope::Requester(_) => Whose::Requester,
            Scope::Host(_) | Scope::Callbacks(_) => Whose::Host,
        }
    }
}

/// On whose account something counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    host: CallbackHost,
    /// Unknown behind a proxy that does not say, and for what an earlier run took.
    requester: Option<Requester>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CallbackHost {
    Name(String),
    Address(IpAddr),
}

impl Share {
    pub fn new(callback: &Callback, requester: Option<Requester>) -> Share {
        let url = Url::parse(callback.as_str()).ok();
        let host = match url.as_ref().and_then(Url::host) {
            Some(Host::Domain(name)) => CallbackHost::Name(name.trim_end_matches('.').to_owned()),
            Some(Host::Ipv4(address)) => CallbackHost::Address(address.into()),
            Some(Host::Ipv6(address)) => CallbackHost::Address(address.into()),
            None => CallbackHost::Name(String::new()),
        };
        Share { host, requester }
    }

    /// Who asked, with how many times as much as one each may take.
    pub fn requesters(&self) -> Vec<(Scope, u32)> {
        self.requester.as_ref().map(requesters).unwrap_or_default()
    }

    /// Whom the callback belongs to, by its text.
    pub fn hosts(&self) -> Vec<(Scope, u32)> {
        match &self.host {
            CallbackHost::Name(name) => vec![(Scope::Host(name.clone()), 1)],
            CallbackHost::Address(address) => callbacks(*address),
        }
    }

    fn scopes(&self) -> impl Iterator<Item = Scope> {
        let scopes = self.requesters().into_iter().chain(self.hosts());
        scopes.map(|(scope, _)| scope)
    }
}

/// The scopes of one who asks.
pub fn requesters(requester: &Requester) -> Vec<(Scope, u32)> {
    let networks = requester.networks().into_iter();
    networks
        .map(|(network, times)| (Scope::Requester(network), times))
        .collect()
}

/// The scopes of an address that is called, whatever notation it has.
pub fn callbacks(address: IpAddr) -> Vec<(Scope, u32)> {
    let networks = Network::counted(destination(address)).into_iter();
    networks
        .map(|(network, times)| (Scope::Callbacks(network), times))
        .collect()
}

/// How many there are of something, and on whose account. Who has none left is forgotten.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub in_all: u32,
    of: BTreeMap<Scope, u32>,
}

impl Tally {
    pub fn add(&mut self, share: &Share) {
        self.in_all += 1;
        for scope in share.scopes() {
            *self.of.entry(scope).or_default() += 1;
        }
    }

    pub fn remove(&mut self, share: &Share) {
        self.in_all = self.in_all.saturating_sub(1);
        for scope in share.scopes() {
            if let Some(count) = self.of.get_mut(&scope) {
                *count -= 1;
                if *count == 0 {
                    self.of.remove(&scope);
                }
            }
        }
    }

    pub fn of(&self, scope: &Scope) -> u32 {
        self.of.get(scope).copied().unwrap_or(0)
    }
}

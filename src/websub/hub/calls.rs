//! Requests to callbacks, which strangers name: they go exactly to addresses that were judged, and nowhere else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::Method;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, RequestBuilder};
use tracing::info;
use url::Url;

use crate::hub::Callback;
use crate::hub::address::destination;
use crate::hub::callback::{CallbackPolicy, literal_address};
use crate::hub::fairness::Priority;
use crate::hub::network::Network;
use crate::hub::quota::LineQuota;
use crate::websub::client;
use crate::websub::hub::lookups::{Located, LookupError, Lookups, Resolver};

/// Refused addresses that are logged before they are summed up.
const REFUSED_LINES: u32 = 10;

/// Why a callback is not called.
#[derive(Debug, thiserror::Error)]
pub enum NotCalled {
    #[error("its URL is none that this hub delivers to")]
    Url,
    #[error("{0} is an address that this hub does not deliver to")]
    Address(IpAddr),
    #[error("{0} has no address")]
    Nowhere(String),
    #[error(transparent)]
    Lookup(#[from] LookupError),
}

/// Makes requests to callbacks.
#[derive(Debug)]
pub struct Caller {
    client: Client,
    judge: Judge,
}

/// Where a callback was found, to be called there.
#[derive(Debug)]
pub struct Location {
    /// By its name: the address, which is then a host like any other. Nothing if the callback has an address itself.
    pub by_name: Option<IpAddr>,
    /// On whose account requests to it are.
    pub account: String,
    /// What the client may connect to.
    _located: Option<Located>,
}

impl Caller {
    /// No proxy stands between us and the address that was judged, and a redirection leads nowhere. `lookups` are made
    /// at a time.
    pub fn new(
        policy: CallbackPolicy,
        resolver: Resolver,
        lookups: usize,
        timeout: Duration,
    ) -> reqwest::Result<Caller> {
        let judge = Judge {
            policy: Arc::new(policy),
            lookups: Lookups::new(resolver, lookups),
            lines: Arc::new(Mutex::new(LineQuota::new(REFUSED_LINES))),
        };
        let client = client::build_without_certificates(|| {
            client::builder()
                .no_proxy()
                .timeout(timeout)
                .dns_resolver(judge.clone())
        })?;
        Ok(Caller { client, judge })
    }

    /// Looks up where a callback is, and judges that. The callback is judged again: it may have been saved under
    /// another policy.
    pub async fn locate(
        &self,
        callback: &Callback,
        priority: Priority,
    ) -> Result<Location, NotCalled> {
        let accepted = self.judge.policy.accept(callback.as_str());
        accepted.map_err(|_| NotCalled::Url)?;
        // The client connects to these without asking its resolver.
        if let Some(address) = literal_address(callback) {
            self.judge.judge(&address.to_string(), &[address])?;
            return Ok(Location {
                by_name: None,
                account: account(address),
                _located: None,
            });
        }
        let url = Url::parse(callback.as_str()).map_err(|_| NotCalled::Url)?;
        let name = url.host_str().ok_or(NotCalled::Url)?;
        let located = self.judge.lookups.locate(name, priority).await?;
        self.judge.judge(name, &located.addresses)?;
        let first = located.addresses.first().copied();
        let first = first.ok_or_else(|| NotCalled::Nowhere(name.to_owned()))?;
        Ok(Location {
            by_name: Some(first),
            account: account(first),
            _located: Some(located),
        })
    }

    /// A request for `url`, which is a callback with other parameters at most. Its location is to be kept until the
    /// request has ended.
    pub fn request(&self, method: Method, url: &str, _: &Location) -> RequestBuilder {
        self.client.request(method, url)
    }

    /// Says how many refused addresses were not logged since the last time.
    pub fn sum_up(&self) {
        let count = self.judge.lines().sum_up();
        if count > 0 {
            info!(
                count,
                "called no callback {count} more times, at addresses that are not public, or this machine"
            );
        }
    }
}

/// On whose account requests to an address are: of IPv6, of whoever has the /56.
fn account(address: IpAddr) -> String {
    let address = destination(address);
    let length = if address.is_ipv4() { 32 } else { 56 };
    Network::around(address, length).to_string()
}

/// Lets a connection be made only if each of the addresses that were found for the request is permitted: a name may
/// stand for others each time it is asked for.
#[derive(Debug, Clone)]
struct Judge {
    policy: Arc<CallbackPolicy>,
    lookups: Lookups,
    lines: Arc<Mutex<LineQuota>>,
}

impl Resolve for Judge {
    fn resolve(&self, name: Name) -> Resolving {
        let judge = self.clone();
        Box::pin(async move {
            let addresses = judge.lookups.located(name.as_str());
            judge.judge(name.as_str(), &addresses)?;
            // The client puts the URL's port in place of none.
            let addresses = addresses
                .into_iter()
                .map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

impl Judge {
    fn judge(&self, name: &str, addresses: &[IpAddr]) -> Result<(), NotCalled> {
        if addresses.is_empty() {
            return Err(NotCalled::Nowhere(name.to_owned()));
        }
        let refused = addresses
            .iter()
            .find(|address| !self.policy.permits(**address, is_own));
        let Some(&address) = refused else {
            return Ok(());
        };
        // The subscriber is not told; the operator may have to allow it.
        if self.lines().take() {
            info!(
                host = name, %address,
                "called no callback at {name}: {address} is not public, or this machine, and no network of \
                 embedded_hub.allow_callback_networks has it"
            );
        }
        Err(NotCalled::Address(address))
    }

    fn lines(&self) -> MutexGuard<'_, LineQuota> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an address is one of this machine's: then what we send there would come from there. Nothing is sent to find
/// out, and nothing is kept, for addresses come and go.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        // Any port does.
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_known_as_such() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("192.0.2.1".parse().unwrap()));
        assert!(!is_own("2001:db8::1".parse().unwrap()));
        // Whatever address the machine has beside those, where it has any way out.
        let out = UdpSocket::bind("0.0.0.0:0").unwrap();
        if out.connect("192.0.2.1:9").is_ok() {
            assert!(is_own(out.local_addr().unwrap().ip()));
        }
    }
}

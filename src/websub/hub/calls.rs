//! Requests to callbacks, which strangers name: they go exactly to addresses that were judged, and nowhere else.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, RequestBuilder};
use tokio::sync::Semaphore;
use tracing::info;

use crate::announce::subscription::Callback;
use crate::announce::subscription::callback::{CallbackPolicy, literal_address};
use crate::websub::client;

/// Names looked up at a time. Each takes a thread, for as long as a stranger's name server keeps it waiting.
const LOOKUPS: usize = 128;

/// The addresses of a name.
pub type LookUp = dyn Fn(&str) -> Vec<IpAddr> + Send + Sync;

/// Where names are looked up.
#[derive(Clone)]
pub enum Resolver {
    System,
    Given(Arc<LookUp>),
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resolver::System => "System",
            Resolver::Given(_) => "Given",
        })
    }
}

/// Why a callback is not called.
#[derive(Debug, thiserror::Error)]
pub enum NotCalled {
    #[error("its URL is none that this hub delivers to")]
    Url,
    #[error("{0} is an address that this hub does not deliver to")]
    Address(IpAddr),
    #[error("{0} has no address")]
    Nowhere(String),
}

/// Makes requests to callbacks.
#[derive(Debug)]
pub struct Caller {
    client: Client,
    judge: Judge,
}

impl Caller {
    /// No proxy stands between us and the address that was judged, and a redirection leads nowhere.
    pub fn new(
        policy: CallbackPolicy,
        resolver: Resolver,
        timeout: Duration,
    ) -> reqwest::Result<Caller> {
        let judge = Judge {
            policy: Arc::new(policy),
            resolver,
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
        };
        let client = client::build_without_certificates(|| {
            client::builder()
                .no_proxy()
                .timeout(timeout)
                .dns_resolver(judge.clone())
        })?;
        Ok(Caller { client, judge })
    }

    /// A request for `url`, which is the callback with other parameters at most. The callback is judged again: it may
    /// have been saved under another policy.
    pub fn request(
        &self,
        method: Method,
        callback: &Callback,
        url: &str,
    ) -> Result<RequestBuilder, NotCalled> {
        let accepted = self.judge.policy.accept(callback.as_str());
        accepted.map_err(|_| NotCalled::Url)?;
        // The client connects to these without asking its resolver.
        if let Some(address) = literal_address(callback) {
            self.judge.judge(&address.to_string(), &[address])?;
        }
        Ok(self.client.request(method, url))
    }
}

/// Resolves the name for each connection, and lets it be made only if each of the addresses is permitted: the name
/// may stand for others each time it is asked for.
#[derive(Debug, Clone)]
struct Judge {
    policy: Arc<CallbackPolicy>,
    resolver: Resolver,
    lookups: Arc<Semaphore>,
}

impl Resolve for Judge {
    fn resolve(&self, name: Name) -> Resolving {
        let judge = self.clone();
        Box::pin(async move {
            let addresses = judge.look_up(name.as_str()).await?;
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
    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, Box<dyn Error + Send + Sync>> {
        if let Resolver::Given(addresses) = &self.resolver {
            return Ok(addresses(name));
        }
        let permit = Arc::clone(&self.lookups).acquire_owned().await?;
        let name = name.to_owned();
        let lookup = tokio::task::spawn_blocking(move || -> io::Result<Vec<IpAddr>> {
            let found = (name.as_str(), 0).to_socket_addrs()?;
            // The thread is taken until now, whether or not anyone still waits.
            drop(permit);
            Ok(found.map(|found| found.ip()).collect())
        });
        Ok(lookup.await??)
    }

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
        info!(
            host = name, %address,
            "called no callback at {name}: {address} is not public, or this machine, and no network of \
             embedded_hub.allow_callback_networks has it"
        );
        Err(NotCalled::Address(address))
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

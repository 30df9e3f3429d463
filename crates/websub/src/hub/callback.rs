//! The HTTP client for callbacks, which strangers name: it connects only to addresses that the policy permits.
//!
//! The name servers of callbacks may be hostile: lookups have a timeout, fair slots for each registrable domain, and are not
//! repeated soon after a failed one.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tracing::info;
use url::Url;

use crate::http::{BoxedFn, client, lock};
use crate::hub::Callback;
use crate::hub::address::{around, routed_address};
use crate::hub::fair_queue::Priority;
use crate::hub::fair_queue::slots::{FairSlot, FairSlots};
use crate::hub::http::{EmbeddedHubSettings, LogLimit};
use crate::hub::request::{CallbackPolicy, Rejection, literal_address};

/// Log lines per interval about forbidden addresses.
const FORBIDDEN_LINES: u64 = 10;

/// A client for requests to callbacks.
#[derive(Debug)]
pub struct CallbackClient {
    client: Client,
    guard: AddressGuard,
}

/// A callback whose addresses were resolved and are permitted.
#[derive(Debug)]
pub struct ResolvedCallback {
    /// The client for requests to it. This is to be kept until they have ended.
    pub client: Client,
    /// The address that its name resolved to; none if the URL has an address itself.
    pub by_name: Option<IpAddr>,
    /// The host under which requests to it are queued.
    pub host: String,
    /// The addresses that the client may connect to.
    _located: Option<HostAddresses>,
}

impl CallbackClient {
    /// Builds the client, which uses no proxy and follows no redirection.
    pub fn new(settings: &EmbeddedHubSettings) -> reqwest::Result<CallbackClient> {
        let lookups = Lookups::new(settings.resolver.clone(), settings.concurrent_lookups);
        let guard = AddressGuard {
            policy: Arc::new(settings.policy.clone()),
            lookups,
            lines: Arc::default(),
        };
        let client = client::build_or_plain_http(|| {
            client::builder(settings.timeout)
                .no_proxy()
                .dns_resolver(guard.clone())
        })?;
        Ok(CallbackClient { client, guard })
    }

    /// Resolves a callback and checks its URL and addresses. The URL is checked again because the callback may have been
    /// saved under another policy. The error is the reason in words why it is not called.
    pub async fn resolve(
        &self,
        callback: &Callback,
        priority: Priority,
    ) -> Result<ResolvedCallback, String> {
        let no_url = || Rejection::Callback.to_string();
        let url = Url::parse(callback.as_str()).map_err(|_| no_url())?;
        // The client connects to an address in a URL without calling its resolver.
        let literal = literal_address(&url);
        if let Some(address) = literal {
            self.guard.check(&address.to_string(), &[address])?;
        }
        let policy = &self.guard.policy;
        let accepted = policy.accept(callback.as_str());
        accepted.map_err(|rejection| rejection.to_string())?;
        let (address, located) = if let Some(address) = literal {
            (address, None)
        } else {
            let name = url.host_str().ok_or_else(no_url)?;
            let resolved = self.guard.lookups.resolve(name, priority).await?;
            let first = self.guard.check(name, &resolved.addresses)?;
            let port = url.port_or_known_default().ok_or_else(no_url)?;
            let mut addresses = resolved.addresses.iter();
            if let Some(address) =
                addresses.find(|address| !policy.permits_port(port, Some(**address)))
            {
                return Err(format!(
                    "this hub does not deliver to port {port} of its address {address}"
                ));
            }
            (first, Some(resolved))
        };
        Ok(ResolvedCallback {
            client: self.client.clone(),
            by_name: located.is_some().then_some(address),
            host: queue_host(address),
            _located: located,
        })
    }

    /// Logs the number of lines about forbidden addresses that were suppressed.
    pub fn log_suppressed(&self) {
        let count = self.guard.lines.next_interval();
        if count > 0 {
            info!(
                count,
                "more callbacks not called, whose addresses are not public, or belong to this machine: {count}"
            );
        }
    }
}

/// Returns the host under which requests to an address are queued: of IPv6, the /56.
fn queue_host(address: IpAddr) -> String {
    let address = routed_address(address);
    let length = if address.is_ipv4() { 32 } else { 56 };
    around(address, length).to_string()
}

/// Permits a connection only if the policy permits each address that the request's name resolved to. Also the client's
/// resolver, so that it connects to the addresses that were checked.
#[derive(Debug, Clone)]
struct AddressGuard {
    policy: Arc<CallbackPolicy>,
    lookups: Arc<Lookups>,
    lines: Arc<LogLimit<FORBIDDEN_LINES>>,
}

impl Resolve for AddressGuard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            // None if there is no request under way any more.
            let found = lock(&guard.lookups.found);
            let latest = found.get(name.as_str()).and_then(|found| found.last());
            let addresses = latest.cloned().unwrap_or_default();
            drop(found);
            guard.check(name.as_str(), &addresses)?;
            // The client replaces port 0 by the URL's port.
            let addresses: Vec<SocketAddr> = addresses
                .iter()
                .map(|address| SocketAddr::new(*address, 0))
                .collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

impl AddressGuard {
    /// Returns the first address, if all are permitted.
    fn check(&self, name: &str, addresses: &[IpAddr]) -> Result<IpAddr, String> {
        let no_address = || format!("{name} has no address");
        let first = *addresses.first().ok_or_else(no_address)?;
        let forbidden = addresses
            .iter()
            .find(|address| !self.policy.permits(**address, is_own_address));
        let Some(&address) = forbidden else {
            return Ok(first);
        };
        // The subscriber is not told, but the operator may have to allow it.
        if self.lines.allow() {
            info!(
                host = name, %address,
                "callback at {name} not called: {address} is not public, or belongs to this machine, and is in no \
                 network of allow_callback_networks"
            );
        }
        Err(format!(
            "{address} is not public, or belongs to this machine, and is in no network of allow_callback_networks"
        ))
    }
}

/// Returns true if an address is one of this machine's: then a socket connected to it has it as its source. Nothing is
/// sent, and nothing is cached, since addresses come and go.
pub fn is_own_address(address: IpAddr) -> bool {
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

/// The timeout of a lookup. Its thread may take longer, and keeps its slot until then.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A replacement of the system's resolver, for tests.
pub type Resolver = BoxedFn<dyn Fn(&str) -> Vec<IpAddr> + Send + Sync>;

/// Lookups, and the addresses they found for requests under way.
#[derive(Debug)]
struct Lookups {
    resolver: Option<Arc<Resolver>>,
    slots: Arc<FairSlots>,
    started: Instant,
    failed: Mutex<FailedLookups>,
    found: Mutex<HashMap<String, Vec<Arc<[IpAddr]>>>>,
}

/// The addresses of a name, to which requests may connect until this is dropped.
#[derive(Debug)]
struct HostAddresses {
    lookups: Arc<Lookups>,
    name: String,
    /// The addresses.
    addresses: Arc<[IpAddr]>,
}

impl Lookups {
    /// Allows `count` lookups at a time, and as many slow ones.
    fn new(resolver: Option<Arc<Resolver>>, count: usize) -> Arc<Lookups> {
        Arc::new(Lookups {
            resolver,
            slots: FairSlots::new(count),
            started: Instant::now(),
            failed: Mutex::default(),
            found: Mutex::default(),
        })
    }

    /// Looks up a name. The result holds for one request: a name may resolve differently each time.
    ///
    /// # Errors
    ///
    /// If it fails, failed a moment ago, or takes too long.
    async fn resolve(
        self: &Arc<Self>,
        name: &str,
        priority: Priority,
    ) -> Result<HostAddresses, String> {
        let has_not_failed = || lock(&self.failed).check(name, self.started.elapsed());
        has_not_failed()?;
        let slot = self.slots.acquire(registrable(name), priority).await;
        // Another lookup may have failed meanwhile.
        has_not_failed()?;
        let outcome = tokio::time::timeout(TIMEOUT, self.look_up(name, slot)).await;
        let mut failed = lock(&self.failed);
        let reason = match outcome {
            Ok(Ok(addresses)) => {
                failed.names.remove(name);
                let addresses: Arc<[IpAddr]> = addresses.into();
                let mut found = lock(&self.found);
                let of_name = found.entry(name.to_owned()).or_default();
                of_name.push(Arc::clone(&addresses));
                return Ok(HostAddresses {
                    lookups: Arc::clone(self),
                    name: name.to_owned(),
                    addresses,
                });
            }
            Ok(Err(error)) => format!("the lookup of {name} failed: {error}"),
            Err(_) => format!("the lookup of {name} timed out"),
        };
        failed.insert(name, self.started.elapsed());
        Err(reason)
    }

    async fn look_up(&self, name: &str, mut slot: FairSlot) -> io::Result<Vec<IpAddr>> {
        let (name, resolver, began) = (name.to_owned(), self.resolver.clone(), Instant::now());
        let lookup = tokio::task::spawn_blocking(move || {
            let found = match resolver {
                Some(resolver) => Ok((resolver.0)(&name)),
                None => (name.as_str(), 0)
                    .to_socket_addrs()
                    .map(|found| found.map(|found| found.ip()).collect()),
            };
            // The thread was in use until now, even if the request timed out. A name server that says there is no
            // such name has answered too.
            slot.was_answered = began.elapsed() < TIMEOUT;
            drop(slot);
            found
        });
        lookup.await.map_err(io::Error::other)?
    }
}

impl Drop for HostAddresses {
    fn drop(&mut self) {
        let mut found = lock(&self.lookups.found);
        if let Some(entries) = found.get_mut(&self.name) {
            entries.retain(|entry| !Arc::ptr_eq(entry, &self.addresses));
            if entries.is_empty() {
                found.remove(&self.name);
            }
        }
    }
}

/// Second-level categories of country domains, below which names are registered.
const SECOND_LEVEL: [&str; 22] = [
    "ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "id", "ltd", "me", "mil", "ne", "net",
    "nhs", "nom", "or", "org", "plc", "police", "sch", "web",
];

/// The first and the maximum time for which a failed lookup is not repeated; it doubles with each failure.
const MIN_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Maximum names remembered.
const MAX_NAMES: usize = 10_000;

/// Returns the registrable domain of a name: the last two labels, or three below a country's categories such as `co.uk`.
/// The public suffix list is not consulted: customers of one host (`a.github.io`) count as one, and share its lookup
/// slots.
fn registrable(name: &str) -> &str {
    let name = name.trim_end_matches('.');
    let mut labels = name.rsplit('.');
    let (top, second) = (labels.next(), labels.next());
    let is_category = top.is_some_and(|top| top.len() == 2)
        && second.is_some_and(|second| SECOND_LEVEL.contains(&second));
    let count = if is_category { 3 } else { 2 };
    let start = name.rmatch_indices('.').nth(count - 1);
    start.map_or(name, |(dot, _)| &name[dot + 1..])
}

/// Names whose lookups failed. Times count from any one start.
#[derive(Debug, Default)]
struct FailedLookups {
    /// The ends of the waits, and their lengths.
    names: BTreeMap<String, (Duration, Duration)>,
}

impl FailedLookups {
    /// Returns an error if a name is not to be looked up yet.
    fn check(&self, name: &str, now: Duration) -> Result<(), String> {
        match self.names.get(name) {
            Some((until, _)) if now < *until => {
                Err(format!("the lookup of {name} failed a moment ago"))
            }
            _ => Ok(()),
        }
    }

    /// Records a failed lookup.
    fn insert(&mut self, name: &str, now: Duration) {
        if self.names.len() >= MAX_NAMES {
            self.names.retain(|_, (until, _)| now < *until);
        }
        if self.names.len() >= MAX_NAMES {
            // Too many to remember all; begin anew.
            self.names.clear();
        }
        let known = self.names.get(name);
        let wait = known.map_or(MIN_WAIT, |(_, wait)| (*wait * 2).min(MAX_WAIT));
        self.names.insert(name.to_owned(), (now + wait, wait));
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::uri::Hub;
    use rstest::rstest;

    use super::*;
    use crate::http::BoxedFn;
    use crate::hub::address::parse_network;

    fn client(
        policy: CallbackPolicy,
        addresses: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static,
    ) -> CallbackClient {
        let settings = EmbeddedHubSettings {
            policy,
            resolver: Some(Arc::new(BoxedFn(Box::new(addresses)))),
            ..EmbeddedHubSettings::new(Hub::new("http://hub.example/"))
        };
        CallbackClient::new(&settings).unwrap()
    }

    #[tokio::test]
    async fn a_name_may_have_any_port_only_if_it_leads_into_an_allowed_network() {
        let policy = CallbackPolicy {
            allowed: vec![parse_network("10.1.0.0/16").unwrap()],
            ..CallbackPolicy::default()
        };
        let addresses = |name: &str| match name {
            "inside" => vec![IpAddr::from([10, 1, 2, 3])],
            _ => vec![IpAddr::from([93, 184, 215, 14])],
        };
        let client = client(policy, addresses);
        for (url, is_located) in [
            ("http://inside:22/", true),
            ("http://outside:22/", false),
            ("http://outside:8080/", true),
        ] {
            let located = client.resolve(&Callback::new(url), Priority::Known).await;
            assert_eq!(located.is_ok(), is_located, "{url}: {located:?}");
        }
    }

    #[tokio::test]
    async fn a_callback_that_the_policy_permits_no_more_fails_for_its_address() {
        let client = client(CallbackPolicy::default(), |_: &str| Vec::new());
        for (url, words) in [
            ("http://127.0.0.1:8500/c", "127.0.0.1 is not public, or"),
            ("http://127.0.0.1:22/c", "127.0.0.1 is not public, or"),
            ("http://93.184.215.14:22/c", "hub.callback is at a port"),
        ] {
            let callback = Callback::new(url);
            let located = client.resolve(&callback, Priority::Known);
            let reason = located.await.unwrap_err();
            assert!(reason.starts_with(words), "{url}: {reason}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_known_as_such() {
        assert!(is_own_address("127.0.0.1".parse().unwrap()));
        assert!(!is_own_address("192.0.2.1".parse().unwrap()));
        assert!(!is_own_address("2001:db8::1".parse().unwrap()));
        // Whatever address the machine has beside those, where it has any way out.
        let out = UdpSocket::bind("0.0.0.0:0").unwrap();
        if out.connect("192.0.2.1:9").is_ok() {
            assert!(is_own_address(out.local_addr().unwrap().ip()));
        }
    }

    /// Longer than a lookup may take.
    const SLOW: Duration = Duration::from_millis(2_500);

    #[tokio::test]
    async fn a_lookup_that_takes_long_has_failed_and_is_not_repeated_at_once() {
        let slow = |_: &str| {
            std::thread::sleep(SLOW);
            vec![IpAddr::from([127, 0, 0, 1])]
        };
        let lookups = Lookups::new(Some(Arc::new(BoxedFn(Box::new(slow)))), 2);
        let begun = Instant::now();
        let first = lookups.resolve("slow.example", Priority::First).await;
        assert_eq!(first.unwrap_err(), "the lookup of slow.example timed out");
        assert!(begun.elapsed() < SLOW);
        let again = lookups.resolve("slow.example", Priority::First).await;
        let known = "the lookup of slow.example failed a moment ago";
        assert_eq!(again.unwrap_err(), known);
    }

    #[rstest]
    #[case("example.org", "example.org")]
    #[case("a.b.example.org.", "example.org")]
    #[case("a.example.co.uk", "example.co.uk")]
    #[case("example.co.uk", "example.co.uk")]
    #[case("co.uk", "co.uk")]
    #[case("a.t.co", "t.co")]
    #[case("a.com.example", "com.example")]
    #[case("localhost", "localhost")]
    #[case("", "")]
    fn names_of_one_owner_share_a_registrable_domain(#[case] name: &str, #[case] want: &str) {
        assert_eq!(registrable(name), want);
    }

    #[test]
    fn a_name_that_fails_again_is_looked_up_less_often() {
        let seconds = Duration::from_secs;
        let mut failed = FailedLookups::default();
        let waits = |failed: &FailedLookups, name, now| failed.check(name, now).is_err();
        assert!(!waits(&failed, "a", seconds(0)));
        failed.insert("a", seconds(0));
        assert!(waits(&failed, "a", Duration::from_millis(999)));
        assert!(!waits(&failed, "b", seconds(0)));
        assert!(!waits(&failed, "a", seconds(1)));
        for _ in 0..9 {
            failed.insert("a", seconds(1));
        }
        assert!(waits(&failed, "a", seconds(60)) && !waits(&failed, "a", seconds(61)));
        failed.names.remove("a");
        failed.insert("a", seconds(70));
        assert!(!waits(&failed, "a", seconds(71)));
        for n in 0..3 * MAX_NAMES {
            failed.insert(&n.to_string(), seconds(72));
        }
        assert!(failed.names.len() <= MAX_NAMES);
    }
}

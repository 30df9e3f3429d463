//! DNS lookups of callback names, whose name servers may be hostile: with a timeout, fair slots for each registrable
//! domain, and no second lookup soon after a failed one.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::http::{BoxedFn, lock};
use crate::hub::callback::http::CallbackError;
use crate::hub::fair_queue::Priority;
use crate::hub::fair_queue::slots::{FairSlot, FairSlots};

/// The timeout of a lookup. Its thread may take longer, and keeps its slot until then.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A replacement of the system's resolver, for tests.
pub type Resolver = BoxedFn<dyn Fn(&str) -> Vec<IpAddr> + Send + Sync>;

/// Lookups, and the addresses they found for requests under way.
#[derive(Debug)]
pub struct Lookups {
    resolver: Option<Arc<Resolver>>,
    slots: Arc<FairSlots>,
    started: Instant,
    failed: Mutex<FailedLookups>,
    found: Mutex<HashMap<String, Vec<Arc<[IpAddr]>>>>,
}

/// The addresses of a name, to which requests may connect until this is dropped.
#[derive(Debug)]
pub struct PinnedAddresses {
    lookups: Arc<Lookups>,
    name: String,
    /// The addresses.
    pub addresses: Arc<[IpAddr]>,
}

impl Lookups {
    /// Allows `count` lookups at a time, and as many slow ones.
    pub fn new(resolver: Option<Arc<Resolver>>, count: usize) -> Arc<Lookups> {
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
    pub async fn resolve(
        self: &Arc<Self>,
        name: &str,
        priority: Priority,
    ) -> Result<PinnedAddresses, CallbackError> {
        let has_failed = || lock(&self.failed).contains(name, self.started.elapsed());
        if has_failed() {
            return Err(CallbackError::FailedBefore(name.to_owned()));
        }
        let slot = self.slots.acquire(registrable(name), priority).await;
        // Another lookup may have failed meanwhile.
        if has_failed() {
            return Err(CallbackError::FailedBefore(name.to_owned()));
        }
        let outcome = tokio::time::timeout(TIMEOUT, self.look_up(name, slot)).await;
        let mut failed = lock(&self.failed);
        let name = name.to_owned();
        if let Ok(Ok(addresses)) = outcome {
            failed.names.remove(&name);
            let addresses: Arc<[IpAddr]> = addresses.into();
            let mut found = lock(&self.found);
            let of_name = found.entry(name.clone()).or_default();
            of_name.push(Arc::clone(&addresses));
            return Ok(PinnedAddresses {
                lookups: Arc::clone(self),
                name,
                addresses,
            });
        }
        failed.insert(&name, self.started.elapsed());
        Err(match outcome {
            Ok(Err(source)) => CallbackError::Lookup { name, source },
            _ => CallbackError::LookupTimeout(name),
        })
    }

    async fn look_up(&self, name: &str, mut slot: FairSlot) -> io::Result<Vec<IpAddr>> {
        let (name, resolver, began) = (name.to_owned(), self.resolver.clone(), Instant::now());
        let lookup = tokio::task::spawn_blocking(move || {
            let found = match resolver {
                Some(resolver) => Ok(resolver(&name)),
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

    /// Returns the addresses of a name for a request under way; none if there is no such request any more.
    pub fn resolved(&self, name: &str) -> Arc<[IpAddr]> {
        let found = lock(&self.found);
        let latest = found.get(name).and_then(|found| found.last());
        latest.cloned().unwrap_or_default()
    }
}

impl Drop for PinnedAddresses {
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
pub fn registrable(name: &str) -> &str {
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
pub struct FailedLookups {
    /// The ends of the waits, and their lengths.
    names: BTreeMap<String, (Duration, Duration)>,
}

impl FailedLookups {
    /// Returns true if a name is not to be looked up yet.
    pub fn contains(&self, name: &str, now: Duration) -> bool {
        self.names.get(name).is_some_and(|(until, _)| now < *until)
    }

    /// Records a failed lookup.
    pub fn insert(&mut self, name: &str, now: Duration) {
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
    use super::*;

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
        let is_timeout = matches!(first, Err(CallbackError::LookupTimeout(_)));
        assert!(is_timeout && begun.elapsed() < SLOW, "{first:?}");
        let again = lookups.resolve("slow.example", Priority::First).await;
        let is_known = matches!(again, Err(CallbackError::FailedBefore(_)));
        assert!(is_known, "{again:?}");
    }

    use rstest::rstest;

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
        assert!(!failed.contains("a", seconds(0)));
        failed.insert("a", seconds(0));
        assert!(failed.contains("a", Duration::from_millis(999)));
        assert!(!failed.contains("b", seconds(0)));
        assert!(!failed.contains("a", seconds(1)));
        for _ in 0..9 {
            failed.insert("a", seconds(1));
        }
        assert!(failed.contains("a", seconds(60)) && !failed.contains("a", seconds(61)));
        failed.names.remove("a");
        failed.insert("a", seconds(70));
        assert!(!failed.contains("a", seconds(71)));
        for n in 0..3 * MAX_NAMES {
            failed.insert(&n.to_string(), seconds(72));
        }
        assert!(failed.names.len() <= MAX_NAMES);
    }
}

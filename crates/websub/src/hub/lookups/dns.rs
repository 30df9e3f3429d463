//! DNS lookups of callback names, whose name servers may be hostile: with a timeout, fair slots for each registrable
//! domain, and no second lookup soon after a failed one.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::hub::fair_queue::Priority;
use crate::hub::fair_queue::slots::{FairSlot, FairSlots};
use crate::hub::lookups::{FailedLookups, registrable};

/// The timeout of a lookup. Its thread may take longer, and keeps its slot until then.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A replacement of the system's resolver, for tests.
pub type LookUp = dyn Fn(&str) -> Vec<IpAddr> + Send + Sync;

/// The resolver for callback names.
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

/// An error of a lookup.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error("the lookup of {0} timed out")]
    Timeout(String),
    #[error("the lookup of {0} failed a moment ago")]
    Known(String),
    #[error("the lookup of {name} failed: {source}")]
    Failed { name: String, source: io::Error },
}

/// Lookups, and the addresses they found for requests under way. Clones share them.
#[derive(Debug, Clone)]
pub struct Lookups {
    inner: Arc<LookupsInner>,
}

#[derive(Debug)]
struct LookupsInner {
    resolver: Resolver,
    slots: FairSlots,
    started: Instant,
    failed: Mutex<FailedLookups>,
    found: Mutex<HashMap<String, Vec<ResolvedEntry>>>,
    last: Mutex<u64>,
}

#[derive(Debug)]
struct ResolvedEntry {
    number: u64,
    addresses: Vec<IpAddr>,
}

/// The addresses of a name, to which requests may connect until this is dropped.
#[derive(Debug)]
pub struct ResolvedName {
    lookups: Lookups,
    name: String,
    number: u64,
    pub addresses: Vec<IpAddr>,
}

impl Lookups {
    /// Allows `count` lookups at a time, and as many slow ones.
    pub fn new(resolver: Resolver, count: usize) -> Lookups {
        Lookups {
            inner: Arc::new(LookupsInner {
                resolver,
                slots: FairSlots::new(count),
                started: Instant::now(),
                failed: Mutex::default(),
                found: Mutex::default(),
                last: Mutex::default(),
            }),
        }
    }

    /// Looks up a name. The result holds for one request: a name may resolve differently each time.
    pub async fn resolve(
        &self,
        name: &str,
        priority: Priority,
    ) -> Result<ResolvedName, LookupError> {
        let inner = &self.inner;
        let has_failed = || lock(&inner.failed).contains(name, inner.started.elapsed());
        if has_failed() {
            return Err(LookupError::Known(name.to_owned()));
        }
        let slot = inner.slots.acquire(registrable(name), priority).await;
        // Another lookup may have failed meanwhile.
        if has_failed() {
            return Err(LookupError::Known(name.to_owned()));
        }
        let outcome = tokio::time::timeout(TIMEOUT, self.look_up(name, slot)).await;
        let outcome = match outcome {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(source)) => Err(LookupError::Failed {
                name: name.to_owned(),
                source,
            }),
            Err(_) => Err(LookupError::Timeout(name.to_owned())),
        };
        let mut failed = lock(&inner.failed);
        match outcome {
            Ok(addresses) => {
                failed.remove(name);
                Ok(self.keep(name, addresses))
            }
            Err(error) => {
                failed.insert(name, inner.started.elapsed());
                Err(error)
            }
        }
    }

    async fn look_up(&self, name: &str, mut slot: FairSlot) -> io::Result<Vec<IpAddr>> {
        let (name, resolver) = (name.to_owned(), self.inner.resolver.clone());
        let lookup = tokio::task::spawn_blocking(move || {
            let found = match resolver {
                Resolver::Given(addresses) => Ok(addresses(&name)),
                Resolver::System => (name.as_str(), 0)
                    .to_socket_addrs()
                    .map(|found| found.map(|found| found.ip()).collect()),
            };
            // The thread was in use until now, even if the request timed out. A name server that says there is no
            // such name has answered too.
            slot.answered_within(TIMEOUT);
            found
        });
        lookup.await.map_err(io::Error::other)?
    }

    fn keep(&self, name: &str, addresses: Vec<IpAddr>) -> ResolvedName {
        let number = {
            let mut last = lock(&self.inner.last);
            *last += 1;
            *last
        };
        let found = ResolvedEntry {
            number,
            addresses: addresses.clone(),
        };
        let mut all = lock(&self.inner.found);
        all.entry(name.to_owned()).or_default().push(found);
        drop(all);
        ResolvedName {
            lookups: self.clone(),
            name: name.to_owned(),
            number,
            addresses,
        }
    }

    /// Returns the addresses of a name for a request under way; none if there is no such request any more.
    pub fn resolved(&self, name: &str) -> Vec<IpAddr> {
        let found = lock(&self.inner.found);
        let latest = found.get(name).and_then(|found| found.last());
        latest
            .map(|found| found.addresses.clone())
            .unwrap_or_default()
    }
}

impl Drop for ResolvedName {
    fn drop(&mut self) {
        let mut found = lock(&self.lookups.inner.found);
        if let Some(entries) = found.get_mut(&self.name) {
            entries.retain(|entry| entry.number != self.number);
            if entries.is_empty() {
                found.remove(&self.name);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let lookups = Lookups::new(Resolver::Given(Arc::new(slow)), 2);
        let begun = Instant::now();
        let first = lookups.resolve("slow.example", Priority::First).await;
        assert!(matches!(first, Err(LookupError::Timeout(_))), "{first:?}");
        assert!(begun.elapsed() < SLOW);
        let again = lookups.resolve("slow.example", Priority::First).await;
        assert!(matches!(again, Err(LookupError::Known(_))), "{again:?}");
    }
}

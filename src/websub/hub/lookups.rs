//! Looks up the names of callbacks, whose name servers are strangers': with a timeout of their own, a share of the
//! threads for each registered name, and no second lookup soon after one that failed.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::hub::fairness::Priority;
use crate::hub::name::{FailedLookups, registrable};
use crate::websub::hub::slots::{Slot, Slots};

/// How long a name server may take. The thread that asks it may take longer, and keeps its slot as long.
const TIMEOUT: Duration = Duration::from_secs(2);

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

/// Why a name was not found.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error("the lookup of {0} timed out")]
    Timeout(String),
    #[error("the lookup of {0} has failed a moment ago")]
    Known(String),
    #[error("the lookup of {name} failed: {source}")]
    Failed { name: String, source: io::Error },
}

/// Lookups, and what they found for requests that are under way. Clones share them.
#[derive(Debug, Clone)]
pub struct Lookups {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    resolver: Resolver,
    slots: Slots,
    started: Instant,
    failed: Mutex<FailedLookups>,
    found: Mutex<HashMap<String, Vec<Found>>>,
    last: Mutex<u64>,
}

#[derive(Debug)]
struct Found {
    number: u64,
    addresses: Vec<IpAddr>,
}

/// The addresses of a name, to which requests for it may connect until this is dropped.
#[derive(Debug)]
pub struct Located {
    lookups: Lookups,
    name: String,
    number: u64,
    pub addresses: Vec<IpAddr>,
}

impl Lookups {
    /// At most `count` names are looked up at a time, and as many lookups may take long.
    pub fn new(resolver: Resolver, count: usize) -> Lookups {
        Lookups {
            shared: Arc::new(Shared {
                resolver,
                slots: Slots::new(count),
                started: Instant::now(),
                failed: Mutex::default(),
                found: Mutex::default(),
                last: Mutex::default(),
            }),
        }
    }

    /// Looks a name up. What is found holds for one request: the name may stand for others each time it is asked for.
    pub async fn locate(&self, name: &str, priority: Priority) -> Result<Located, LookupError> {
        let shared = &self.shared;
        let has_failed = || lock(&shared.failed).has(name, shared.started.elapsed());
        if has_failed() {
            return Err(LookupError::Known(name.to_owned()));
        }
        let slot = shared.slots.take(registrable(name), priority).await;
        // Others may have asked for it meanwhile.
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
        let mut failed = lock(&shared.failed);
        match outcome {
            Ok(addresses) => {
                failed.found(name);
                Ok(self.keep(name, addresses))
            }
            Err(error) => {
                failed.failed(name, shared.started.elapsed());
                Err(error)
            }
        }
    }

    async fn look_up(&self, name: &str, mut slot: Slot) -> io::Result<Vec<IpAddr>> {
        let (name, resolver) = (name.to_owned(), self.shared.resolver.clone());
        let lookup = tokio::task::spawn_blocking(move || {
            let found = match resolver {
                Resolver::Given(addresses) => Ok(addresses(&name)),
                Resolver::System => (name.as_str(), 0)
                    .to_socket_addrs()
                    .map(|found| found.map(|found| found.ip()).collect()),
            };
            // The thread is taken until now, whether or not anyone still waits. A name server that says there is no
            // such name has answered too.
            slot.answered_within(TIMEOUT);
            found
        });
        lookup.await.map_err(io::Error::other)?
    }

    fn keep(&self, name: &str, addresses: Vec<IpAddr>) -> Located {
        let number = {
            let mut last = lock(&self.shared.last);
            *last += 1;
            *last
        };
        let found = Found {
            number,
            addresses: addresses.clone(),
        };
        let mut all = lock(&self.shared.found);
        all.entry(name.to_owned()).or_default().push(found);
        drop(all);
        Located {
            lookups: self.clone(),
            name: name.to_owned(),
            number,
            addresses,
        }
    }

    /// The addresses of a name for a request that is under way; none if there is no such request any more.
    pub fn located(&self, name: &str) -> Vec<IpAddr> {
        let found = lock(&self.shared.found);
        let latest = found.get(name).and_then(|found| found.last());
        latest
            .map(|found| found.addresses.clone())
            .unwrap_or_default()
    }
}

impl Drop for Located {
    fn drop(&mut self) {
        let mut found = lock(&self.lookups.shared.found);
        if let Some(own) = found.get_mut(&self.name) {
            own.retain(|found| found.number != self.number);
            if own.is_empty() {
                found.remove(&self.name);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

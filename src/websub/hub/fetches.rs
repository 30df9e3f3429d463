//! Fetches after pings: one at a time for each topic, with retries, so that a slow publisher delays no other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::Semaphore;
use tracing::debug;

use crate::http::retry::backoff;
use crate::hub::published_topics::Publication;
use crate::resourcesync::uri::Topic;
use crate::websub::hub::hub_topics::TopicDirectory;
use crate::websub::hub::topic_client::{FetchError, FetchedTopic, TopicClient};

/// Attempts before a fetch is given up, after about eleven hours, as with deliveries.
const MAX_ATTEMPTS: u32 = 100;
/// Fetches from one publisher at a time.
const CONCURRENT_FETCHES: usize = 8;

/// The outcome of a fetch.
#[derive(Debug)]
pub enum FetchOutcome {
    Fetched(Publication),
    /// The content is the one that was fetched last.
    Unchanged {
        topic: Topic,
        publisher: Arc<str>,
        began: Timestamp,
    },
    /// An attempt failed; if it was the last one, the ping is given up.
    Failed {
        topic: Topic,
        publisher: Arc<str>,
        reason: String,
        began: Timestamp,
        is_first: bool,
        is_last: bool,
    },
}

/// The fetches under way.
pub struct Fetches {
    client: Arc<TopicClient>,
    directory: Arc<TopicDirectory>,
    /// By topic: true if it was pinged again since its fetch began.
    under_way: Mutex<HashMap<Topic, bool>>,
    slots: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    report: Box<dyn Fn(FetchOutcome) + Send + Sync>,
}

impl Fetches {
    pub fn new(
        client: Arc<TopicClient>,
        directory: Arc<TopicDirectory>,
        report: impl Fn(FetchOutcome) + Send + Sync + 'static,
    ) -> Fetches {
        Fetches {
            client,
            directory,
            under_way: Mutex::default(),
            slots: Mutex::default(),
            report: Box::new(report),
        }
    }

    /// Fetches a topic, of at most `max` bytes; again after a fetch that is under way. Must be called within a tokio
    /// runtime.
    pub fn begin(self: &Arc<Self>, topic: Topic, publisher: Arc<str>, max: usize) {
        let mut under_way = self.under_way();
        if let Some(is_again) = under_way.get_mut(&topic) {
            *is_again = true;
            return;
        }
        under_way.insert(topic.clone(), false);
        tokio::spawn(Arc::clone(self).run(topic, publisher, max));
    }

    async fn run(self: Arc<Self>, topic: Topic, publisher: Arc<str>, max: usize) {
        loop {
            self.fetch(&topic, &publisher, max).await;
            let mut under_way = self.under_way();
            match under_way.get_mut(&topic) {
                Some(is_again) if *is_again => *is_again = false,
                _ => {
                    under_way.remove(&topic);
                    return;
                }
            }
        }
    }

    async fn fetch(&self, topic: &Topic, publisher: &Arc<str>, max: usize) {
        for attempts in 1..=MAX_ATTEMPTS {
            // A ping during the wait is answered by this attempt too.
            if let Some(is_again) = self.under_way().get_mut(topic) {
                *is_again = false;
            }
            let began = Timestamp::now();
            match self.attempt(topic, publisher, max).await {
                Ok(FetchedTopic::Unchanged) => {
                    return (self.report)(FetchOutcome::Unchanged {
                        topic: topic.clone(),
                        publisher: Arc::clone(publisher),
                        began,
                    });
                }
                Ok(FetchedTopic::Content {
                    body,
                    content_type,
                    capability_list,
                    etag,
                }) => {
                    return (self.report)(FetchOutcome::Fetched(Publication {
                        topic: topic.clone(),
                        publisher: Arc::clone(publisher),
                        body,
                        content_type,
                        capability_list,
                        etag,
                        fetched: Some(began),
                    }));
                }
                Err(error) => {
                    debug!(%topic, attempts, "fetch after a ping failed: {error}");
                    (self.report)(FetchOutcome::Failed {
                        topic: topic.clone(),
                        publisher: Arc::clone(publisher),
                        reason: error.to_string(),
                        began,
                        is_first: attempts == 1,
                        is_last: attempts == MAX_ATTEMPTS,
                    });
                }
            }
            tokio::time::sleep(backoff(attempts, fastrand::f64())).await;
        }
    }

    async fn attempt(
        &self,
        topic: &Topic,
        publisher: &Arc<str>,
        max: usize,
    ) -> Result<FetchedTopic, FetchError> {
        let slots = self.slots_of(publisher);
        // It is never closed.
        let _slot = slots.acquire().await;
        let etag = self.directory.read().get(topic).and_then(|published| {
            let etag = published.etag.clone();
            etag.filter(|_| published.digest.is_some())
        });
        self.client.fetch(topic, etag.as_deref(), max).await
    }

    fn slots_of(&self, publisher: &Arc<str>) -> Arc<Semaphore> {
        let slots = self.slots.lock();
        let mut slots = slots.unwrap_or_else(PoisonError::into_inner);
        let of_publisher = slots
            .entry(Arc::clone(publisher))
            .or_insert_with(|| Arc::new(Semaphore::new(CONCURRENT_FETCHES)));
        Arc::clone(of_publisher)
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<Topic, bool>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Fetches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetches").finish_non_exhaustive()
    }
}

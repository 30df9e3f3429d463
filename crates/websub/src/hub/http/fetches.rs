//! Fetches after pings: one at a time for each topic, with retries, so that a slow publisher delays no other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::Topic;
use tokio::sync::{Notify, Semaphore};
use tracing::debug;

use crate::http::{BoxedFn, Clock, lock};
use crate::hub::http::topic_client::{FetchedTopic, TopicClient};
use crate::hub::published_topics::Publication;
use crate::hub::published_topics::directory::TopicRegistry;
use crate::retry::{MAX_ATTEMPTS, backoff};

/// Fetches from one publisher at a time.
const CONCURRENT_FETCHES: usize = 8;
/// Time between a failed attempt and the next one if the topic is pinged in between.
const PINGED_WAIT: Duration = Duration::from_secs(1);

/// The report of an attempt to fetch a topic.
#[derive(Debug)]
pub struct FetchReport {
    /// The topic.
    pub topic: Topic,
    /// Name of the publisher that pinged it.
    pub publisher: Arc<str>,
    /// The time at which the attempt began.
    pub began: Timestamp,
    /// The outcome.
    pub outcome: FetchOutcome,
}

/// The outcome of an attempt.
#[derive(Debug)]
pub enum FetchOutcome {
    /// New content.
    Fetched(Publication),
    /// The content is the one that was fetched last.
    Unchanged,
    /// The publisher may not publish the topic any more.
    Withdrawn,
    /// It failed, for a reason in words.
    Failed(AttemptPosition, String),
}

/// The position of a failed attempt among those of its fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptPosition {
    /// The first; it is attempted again.
    First,
    /// A later one; it is attempted again.
    Again,
    /// The ping is given up.
    Last,
}

/// A fetch under way.
#[derive(Debug)]
struct Fetch {
    /// The publisher that pinged last.
    publisher: Arc<str>,
    /// True if the topic was pinged again since the fetch began.
    is_again: bool,
    /// Signal that ends the wait for the next attempt.
    pinged: Arc<Notify>,
}

/// The fetches under way.
#[derive(Debug)]
pub struct Fetches {
    client: Arc<TopicClient>,
    directory: Arc<TopicRegistry>,
    clock: Clock,
    under_way: Mutex<HashMap<Topic, Fetch>>,
    slots: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    report: BoxedFn<dyn Fn(FetchReport) + Send + Sync>,
}

impl Fetches {
    /// Returns the fetches of a hub, none of them under way. `report` is called after each attempt; it must not block.
    pub fn new(
        client: Arc<TopicClient>,
        directory: Arc<TopicRegistry>,
        clock: Clock,
        report: impl Fn(FetchReport) + Send + Sync + 'static,
    ) -> Fetches {
        Fetches {
            client,
            directory,
            clock,
            under_way: Mutex::default(),
            slots: Mutex::default(),
            report: BoxedFn(Box::new(report)),
        }
    }

    /// Fetches a topic, of at most `max` bytes; again after a fetch that is under way, or soon if that waits for its next
    /// attempt. Must be called within a tokio runtime.
    pub fn begin(self: &Arc<Self>, topic: Topic, publisher: Arc<str>, max: usize) {
        let mut under_way = lock(&self.under_way);
        if let Some(fetch) = under_way.get_mut(&topic) {
            fetch.is_again = true;
            fetch.publisher = publisher;
            fetch.pinged.notify_one();
            return;
        }
        let pinged = Arc::new(Notify::new());
        let fetch = Fetch {
            publisher,
            is_again: false,
            pinged: Arc::clone(&pinged),
        };
        under_way.insert(topic.clone(), fetch);
        tokio::spawn(Arc::clone(self).run(topic, max, pinged));
    }

    async fn run(self: Arc<Self>, topic: Topic, max: usize, pinged: Arc<Notify>) {
        loop {
            self.fetch(&topic, max, &pinged).await;
            let mut under_way = lock(&self.under_way);
            match under_way.get_mut(&topic) {
                Some(fetch) if fetch.is_again => fetch.is_again = false,
                _ => {
                    under_way.remove(&topic);
                    return;
                }
            }
        }
    }

    async fn fetch(&self, topic: &Topic, max: usize, pinged: &Notify) {
        let mut is_first = true;
        let mut attempts = 0;
        loop {
            attempts += 1;
            // A ping during the wait is answered by this attempt too.
            let publisher = lock(&self.under_way).get_mut(topic).map(|fetch| {
                fetch.is_again = false;
                Arc::clone(&fetch.publisher)
            });
            let Some(publisher) = &publisher else {
                return;
            };
            let began = self.clock.now();
            let report = |outcome| {
                (self.report)(FetchReport {
                    topic: topic.clone(),
                    publisher: Arc::clone(publisher),
                    began,
                    outcome,
                });
            };
            if !self.directory.may_publish(publisher, topic) {
                return report(FetchOutcome::Withdrawn);
            }
            match self.attempt(topic, publisher, max).await {
                Ok(None) => return report(FetchOutcome::Unchanged),
                Ok(Some((body, headers, etag))) => {
                    return report(FetchOutcome::Fetched(Publication {
                        topic: topic.clone(),
                        publisher: Arc::clone(publisher),
                        body,
                        headers,
                        etag,
                        fetched: Some(began),
                    }));
                }
                Err(error) => {
                    let attempt = match attempts {
                        MAX_ATTEMPTS => AttemptPosition::Last,
                        _ if is_first => AttemptPosition::First,
                        _ => AttemptPosition::Again,
                    };
                    debug!(%topic, attempts, "fetch after a ping failed: {error}");
                    report(FetchOutcome::Failed(attempt, error));
                }
            }
            if attempts == MAX_ATTEMPTS {
                return;
            }
            is_first = false;
            if wait(backoff(attempts, fastrand::f64()), pinged).await {
                attempts = 0;
            }
        }
    }

    async fn attempt(
        &self,
        topic: &Topic,
        publisher: &Arc<str>,
        max: usize,
    ) -> Result<Option<FetchedTopic>, String> {
        let slots = self.slots_of(publisher);
        // It is never closed.
        let _slot = slots.acquire().await;
        let etag = self
            .directory
            .read()
            .topics()
            .get(topic)
            .and_then(|published| {
                let etag = published.etag.clone();
                etag.filter(|_| published.digest.is_some())
            });
        self.client.fetch(topic, etag.as_deref(), max).await
    }

    fn slots_of(&self, publisher: &Arc<str>) -> Arc<Semaphore> {
        let mut slots = lock(&self.slots);
        let of_publisher = slots
            .entry(Arc::clone(publisher))
            .or_insert_with(|| Arc::new(Semaphore::new(CONCURRENT_FETCHES)));
        Arc::clone(of_publisher)
    }
}

/// Waits before the next attempt: for a time, or for a shorter one if the topic is pinged. Returns true if it was.
async fn wait(backoff: Duration, pinged: &Notify) -> bool {
    let soon = tokio::time::sleep(PINGED_WAIT);
    tokio::select! {
        () = tokio::time::sleep(backoff) => false,
        () = pinged.notified() => {
            soon.await;
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_ping_shortens_the_wait_for_the_next_attempt() {
        let (short, long) = (Duration::from_millis(10), Duration::from_secs(900));
        let pinged = Notify::new();
        assert!(!wait(short, &pinged).await);
        // During the attempt before, or during the wait.
        let began = Instant::now();
        pinged.notify_one();
        assert!(wait(long, &pinged).await);
        assert!(began.elapsed() >= PINGED_WAIT);
        let ping = async { pinged.notify_one() };
        assert!(tokio::join!(wait(long, &pinged), ping).0);
        assert!(began.elapsed() < long);
    }
}

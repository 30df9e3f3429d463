//! The topics of a hub: those that this process serves, or those that publishers may publish, with requests to them: which
//! hubs a topic links to, and its content after a ping.
//!
//! The operator named their hosts, and not the addresses to which these resolve. No redirection is followed, and no proxy is
//! used. Of each topic, there is one fetch at a time, with retries, so that a slow publisher delays no other.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use hyper::Method;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LINK,
};
use jiff::Timestamp;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, StatusCode};
use resourcesync::payload::PAYLOAD_TYPE;
use resourcesync::uri::{Hub, Topic, Uri};
use tokio::sync::{Notify, Semaphore};
use tracing::debug;
use url::Url;

use crate::answer::is_temporary;
use crate::headers::Links;
use crate::http::failure::describe;
use crate::http::{BoxedFn, Clock, Replaceable, client, lock, read};
use crate::hub::RelayHeaders;
use crate::hub::callback::is_own_address;
use crate::hub::publication::{
    PublicationRefusal, Publishers, capability_list, checked_topic, is_unencoded,
};
use crate::hub::published_topics::{Publication, PublishedTopics};
use crate::hub::request::CallbackPolicy;
use crate::retry::{MAX_ATTEMPTS, backoff};
use crate::topics::http::Topics;

/// The topics that may be subscribed to.
#[derive(Debug, Clone)]
pub enum HubTopics {
    /// Those of the Source in this process.
    Served(Arc<Topics>),
    /// Those below the prefixes of publishers.
    Published(Arc<TopicRegistry>),
}

/// The topics of publishers, shared by the event loop and the requests.
#[derive(Debug)]
pub struct TopicRegistry {
    /// The topics that were published.
    pub topics: RwLock<PublishedTopics>,
    /// The publishers in effect.
    pub publishers: Replaceable<Publishers>,
}

impl HubTopics {
    /// Finds the topic that a subscriber named: one that is served, or was published, or that a publisher may publish later.
    pub fn find(&self, name: &str) -> Option<Topic> {
        let registry = match self {
            HubTopics::Served(topics) => return topics.find(name),
            HubTopics::Published(registry) => registry,
        };
        let known = read(&registry.topics).find(name).cloned();
        let topic = known.or_else(|| checked_topic(name).ok())?;
        let publishers = registry.publishers.get();
        publishers.of_topic(&topic).is_some().then_some(topic)
    }

    /// Returns what a subscriber should know of a topic that nobody has published, and that others may spell otherwise: a
    /// topic is the string that its publisher will use (WebSub section 4).
    pub fn spelling_warning(&self, topic: &Topic) -> Option<String> {
        let HubTopics::Published(registry) = self else {
            return None;
        };
        let is_published = read(&registry.topics).topics().contains_key(topic);
        (!is_published && topic.as_str().contains('%')).then(|| {
            format!(
                "nobody has published {topic} yet: notifications follow if its publisher spells it exactly so, as the \
                 rel=\"self\" of its Link header\n"
            )
        })
    }
}

impl TopicRegistry {
    /// Returns true if a topic lies below the prefixes of the publisher with this name.
    pub fn may_publish(&self, publisher: &str, topic: &Topic) -> bool {
        let publishers = self.publishers.get();
        let of_topic = publishers.of_topic(topic);
        of_topic.is_some_and(|of_topic| *of_topic.name == *publisher)
    }
}

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
struct RunningFetch {
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
    clock: Clock,
    under_way: Mutex<HashMap<Topic, RunningFetch>>,
    slots: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    report: BoxedFn<dyn Fn(FetchReport) + Send + Sync>,
}

impl Fetches {
    /// Returns the fetches of a hub, none of them under way. `report` is called after each attempt; it must not block.
    pub fn new(
        client: Arc<TopicClient>,
        clock: Clock,
        report: impl Fn(FetchReport) + Send + Sync + 'static,
    ) -> Fetches {
        Fetches {
            client,
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
        let fetch = RunningFetch {
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
            if !under_way.get(&topic).is_some_and(|fetch| fetch.is_again) {
                under_way.remove(&topic);
                return;
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
                (self.report.0)(FetchReport {
                    topic: topic.clone(),
                    publisher: Arc::clone(publisher),
                    began,
                    outcome,
                });
            };
            if !self.client.directory.may_publish(publisher, topic) {
                return report(FetchOutcome::Withdrawn);
            }
            let slots = {
                let mut slots = lock(&self.slots);
                let new = || Arc::new(Semaphore::new(CONCURRENT_FETCHES));
                Arc::clone(slots.entry(Arc::clone(publisher)).or_insert_with(new))
            };
            // It is never closed.
            let slot = slots.acquire().await;
            let directory = &self.client.directory;
            let published = read(&directory.topics).topics().get(topic).cloned();
            let published = published.filter(|published| published.digest.is_some());
            let etag = published.and_then(|published| published.etag);
            let fetched = self
                .client
                .fetch(topic, publisher, etag.as_deref(), max)
                .await;
            drop(slot);
            match fetched {
                Ok(None) => return report(FetchOutcome::Unchanged),
                Ok(Some(mut publication)) => {
                    publication.fetched = Some(began);
                    return report(FetchOutcome::Fetched(publication));
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

/// Timeout of one request, including the body.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which a topic that names this hub is not asked again.
const CACHED: Duration = Duration::from_secs(60);
/// Time for which a topic that names another hub, or none, is not asked again.
const CACHED_REFUSAL: Duration = Duration::from_secs(10);
/// Maximum topics whose answers are kept.
const MAX_CACHED: usize = 10_000;

/// A client for requests to topics.
#[derive(Debug)]
pub struct TopicClient {
    client: Client,
    /// The publishers whose topics it requests.
    pub directory: Arc<TopicRegistry>,
    /// Topics that were asked if they name this hub: the answer, and the time until which it holds.
    verified: Mutex<HashMap<Topic, (bool, Instant)>>,
}

/// The client's resolver, by which it connects only to addresses that are permitted for the publishers at a host; one in a
/// topic itself was named by the operator.
struct TopicResolver(Arc<TopicRegistry>);

impl Resolve for TopicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let mut policy = CallbackPolicy::default();
        for publisher in &self.0.publishers.get().0 {
            let is_there = |prefix: &Uri| {
                Url::parse(prefix.as_str()).is_ok_and(|url| url.host_str() == Some(&host))
            };
            if publisher.topics.iter().any(is_there) {
                policy.allowed.extend(&publisher.topic_networks);
            }
        }
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            let mut addresses = found.iter().map(SocketAddr::ip);
            if !addresses.all(|address| policy.permits(address, is_own_address)) {
                // It may reach strangers, and does not tell the address.
                let reason = format!(
                    "{host} has an address that is not public, or is the hub's own, and is in no network of \
                     allow_topic_networks"
                );
                return Err(reason.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

impl TopicClient {
    /// Builds the client.
    ///
    /// # Errors
    ///
    /// If the HTTP client cannot be built.
    pub fn new(directory: Arc<TopicRegistry>) -> reqwest::Result<TopicClient> {
        let client = client::build_or_plain_http(|| {
            client::builder(TIMEOUT)
                .no_proxy()
                .dns_resolver(TopicResolver(Arc::clone(&directory)))
        })?;
        Ok(TopicClient {
            client,
            directory,
            verified: Mutex::default(),
        })
    }

    /// Verifies that the `Link` of a topic names a hub, and no other topic. The answer is kept for a short time.
    ///
    /// # Errors
    /// 403 if it names another hub or none, 503 if it cannot be read at the moment.
    pub async fn verify(&self, topic: &Topic, hub: &Hub) -> Result<(), PublicationRefusal> {
        let verified = lock(&self.verified).get(topic).copied();
        let names_us = match verified.filter(|(_, until)| Instant::now() < *until) {
            Some((names_us, _)) => names_us,
            None => {
                let names_us = self.names_hub(topic, hub).await?;
                let now = Instant::now();
                let kept = if names_us { CACHED } else { CACHED_REFUSAL };
                let mut cache = lock(&self.verified);
                if cache.len() >= MAX_CACHED {
                    cache.retain(|_, (_, until)| now < *until);
                }
                if cache.len() < MAX_CACHED {
                    cache.insert(topic.clone(), (names_us, now + kept));
                }
                names_us
            }
        };
        let other = || PublicationRefusal::OtherHub(topic.clone());
        names_us.then_some(()).ok_or_else(other)
    }

    /// Replaces the publishers, and forgets which topics name which hub.
    pub fn set_publishers(&self, publishers: Publishers) {
        self.directory.publishers.replace(publishers);
        lock(&self.verified).clear();
    }

    /// Asks by `HEAD`, and by `GET` if that names no hub: some servers set the header with content only.
    async fn names_hub(&self, topic: &Topic, hub: &Hub) -> Result<bool, PublicationRefusal> {
        let mut reason = String::new();
        for method in [Method::HEAD, Method::GET] {
            match self.client.request(method, topic.as_str()).send().await {
                Ok(response) if response.status().is_success() => {
                    let links = Links::parse(client::header_values(response.headers(), LINK));
                    if links.hubs.iter().any(|target| target == hub.as_str()) {
                        return Ok(is_itself(topic, &links));
                    }
                    reason.clear();
                }
                Ok(response) if is_temporary(response.status().as_u16()) => {
                    reason = format!("it answers {}", response.status());
                }
                // A page that is not there names no hub.
                Ok(_) => reason.clear(),
                Err(error) => {
                    let is_slow = error.is_timeout();
                    reason = describe(error);
                    // The publisher waits for the answer.
                    if is_slow {
                        break;
                    }
                }
            }
        }
        match reason.as_str() {
            "" => Ok(false),
            _ => Err(PublicationRefusal::Unverified {
                topic: topic.clone(),
                reason,
            }),
        }
    }

    /// Fetches a topic of at most `max` bytes; none if it still has this `ETag`. The error is for the operator.
    async fn fetch(
        &self,
        topic: &Topic,
        publisher: &Arc<str>,
        etag: Option<&str>,
        max: usize,
    ) -> Result<Option<Publication>, String> {
        let failed = |error| format!("cannot read {topic}: {}", describe(error));
        let accepted = format!("{PAYLOAD_TYPE}, */*;q=0.5");
        let get = self.client.get(topic.as_str()).header(ACCEPT, accepted);
        let mut get = get.header(ACCEPT_ENCODING, "identity");
        if let Some(etag) = etag {
            get = get.header(IF_NONE_MATCH, etag);
        }
        let mut response = get.send().await.map_err(failed)?;
        let status = response.status();
        if status == StatusCode::NOT_MODIFIED && etag.is_some() {
            return Ok(None);
        }
        if status != StatusCode::OK {
            return Err(format!("{topic} answers {status}"));
        }
        let encoding = client::header_values(response.headers(), CONTENT_ENCODING).join(", ");
        if !is_unencoded(&encoding) {
            return Err(format!(
                "{topic} has the Content-Encoding {encoding}, for which nobody asked"
            ));
        }
        let header = |name| {
            let values = client::header_values(response.headers(), name);
            values.into_iter().next()
        };
        // Relayed as it is (WebSub section 7); without one, a topic is bytes (RFC 9110 section 8.3).
        let content_type =
            header(CONTENT_TYPE).unwrap_or_else(|| "application/octet-stream".into());
        let etag = header(ETAG);
        let links = Links::parse(client::header_values(response.headers(), LINK));
        match client::beginning(&mut response, max.saturating_add(1)).await {
            (_, Some(error)) => Err(failed(error)),
            (body, None) if body.len() > max => Err(format!("{topic} is larger than {max} bytes")),
            (body, None) if body.is_empty() => Err(format!("{topic} has no content")),
            (body, None) => Ok(Some(Publication {
                topic: topic.clone(),
                publisher: Arc::clone(publisher),
                body: body.into(),
                headers: RelayHeaders {
                    content_type,
                    capability_list: capability_list(&links),
                },
                etag,
                fetched: None,
            })),
        }
    }
}

/// Returns true if the links name this topic as `self`, or none: the hub of another page is not that of this topic.
fn is_itself(topic: &Topic, links: &Links) -> bool {
    let base = Url::parse(topic.as_str()).ok();
    let is_topic = |target: &String| {
        let resolved = base.as_ref().and_then(|base| base.join(target).ok());
        target == topic.as_str() || resolved.is_some_and(|resolved| base == Some(resolved))
    };
    links.self_links.is_empty() || links.self_links.iter().any(is_topic)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use jiff::Timestamp;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::http::write;
    use crate::hub::publication::Publisher;

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

    fn registry(publishers: Vec<Publisher>) -> Arc<TopicRegistry> {
        Arc::new(TopicRegistry {
            topics: RwLock::default(),
            publishers: Replaceable::new(Publishers(publishers)),
        })
    }

    #[test]
    fn a_subscriber_is_told_that_the_spelling_of_an_unpublished_topic_matters() {
        let publisher = Publisher {
            topic_networks: Vec::new(),
            name: "library".into(),
            topics: vec![Uri::parse("https://e.org/").unwrap()],
            token: None,
            verify_topic: true,
        };
        let directory = registry(vec![publisher]);
        let topics = HubTopics::Published(Arc::clone(&directory));
        let cautioned = |name: &str| {
            let topic = topics.find(name).unwrap();
            topics.spelling_warning(&topic).is_some()
        };
        let upper = Topic::new("https://e.org/%C3%A9");
        assert!(cautioned("https://e.org/%C3%A9") && cautioned("https://e.org/%c3%a9"));
        assert!(!cautioned("https://e.org/plain"));
        write(&directory.topics).take_ping(&upper, "library", Timestamp::now());
        // The other spelling is now found to be that topic.
        assert!(!cautioned("https://e.org/%C3%A9") && !cautioned("https://e.org/%c3%a9"));
    }

    #[test]
    fn a_page_that_names_another_topic_as_itself_is_not_the_topic() {
        let topic = Topic::new("https://e.org/t?a");
        for (header, want) in [
            ("<https://hub.example/>; rel=\"hub\"", true),
            ("<https://e.org/t?a>; rel=\"self\"", true),
            ("<HTTPS://E.org:443/t?a>; rel=\"self\"", true),
            ("</t?a>; rel=\"self\"", true),
            ("<https://e.org/u>; rel=self, </t?a>; rel=self", true),
            ("<https://e.org/t>; rel=\"self\"", false),
            ("<https://e.org/u>; rel=\"self\"", false),
            ("<https://other.example/t?a>; rel=\"self\"", false),
        ] {
            assert_eq!(is_itself(&topic, &Links::parse([header])), want, "{header}");
        }
    }

    #[tokio::test]
    async fn a_name_is_no_way_into_the_network_of_the_hub() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let _ = connection.read(&mut [0; 1_000]).await;
                let answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\
                              Link: <https://hub.example/>; rel=hub\r\n\r\n";
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        });
        let hub = Hub::new("https://hub.example/");
        let client = TopicClient::new(registry(Vec::new())).unwrap();
        let prefix = |host: &str| Uri::parse(&format!("http://{host}:{port}/")).unwrap();
        let here = "127.0.0.0/8 ::1/128";
        for (networks, is_read) in [("", false), ("10.0.0.0/8", false), (here, true)] {
            let networks = networks.split_whitespace();
            client.set_publishers(Publishers(vec![Publisher {
                name: "library".into(),
                topics: vec![prefix("localhost"), prefix("127.0.0.1")],
                token: None,
                verify_topic: true,
                topic_networks: networks.map(|network| network.parse().unwrap()).collect(),
            }]));
            let named = Topic::new(format!("http://localhost:{port}/t"));
            let verified = client.verify(&named, &hub).await;
            assert_eq!(verified.is_ok(), is_read, "{verified:?}");
            let fetched = client
                .fetch(&named, &"p".into(), None, 100)
                .await
                .unwrap_err();
            let is_refused = fetched.contains("allow_topic_networks");
            assert_eq!(is_refused, !is_read, "{fetched}");
            let literal = Topic::new(format!("http://127.0.0.1:{port}/t"));
            client.verify(&literal, &hub).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_topic_that_hangs_is_asked_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let topic = Topic::new(format!("http://{}/t", listener.local_addr().unwrap()));
        let quick = client::builder(Duration::from_millis(300)).build();
        let client = TopicClient {
            client: quick.unwrap(),
            ..TopicClient::new(registry(Vec::new())).unwrap()
        };
        let hub = Hub::new("https://hub.example/");
        let (sender, mut asked) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(connection) = listener.accept().await {
                let _ = sender.send(connection);
            }
        });
        let refusal = client.verify(&topic, &hub).await.unwrap_err();
        assert_eq!(refusal.status(), 503);
        assert!(asked.try_recv().is_ok());
        assert!(asked.try_recv().is_err(), "it is asked once");
    }
}

//! Requests to the topics of publishers: which hubs a topic links to, and its content after a ping. The operator named their
//! hosts, and not the addresses to which these resolve. No redirection is followed, and no proxy is used.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::Method;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LINK,
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, StatusCode};
use resourcesync::payload::PAYLOAD_TYPE;
use resourcesync::uri::{Hub, Topic};
use url::Url;

use crate::answer::is_temporary;
use crate::headers::Links;
use crate::http::failure::describe;
use crate::http::{client, lock};
use crate::hub::RelayHeaders;
use crate::hub::callback::CallbackPolicy;
use crate::hub::callback::http::is_own_address;
use crate::hub::publication::{PublicationRefusal, capability_list, is_plain};
use crate::hub::publisher::Publishers;

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
    hosts: TopicHosts,
    /// Whether topics name this hub, and the time until which that is not asked again.
    verified: Mutex<HashMap<Topic, (bool, Instant)>>,
}

/// The hosts of publishers with what permits their addresses. Also the client's resolver, so that it connects to the addresses
/// that were checked; one in a topic itself was named by the operator.
#[derive(Debug, Clone, Default)]
struct TopicHosts(Arc<Mutex<HashMap<String, CallbackPolicy>>>);

impl Resolve for TopicHosts {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let policy = lock(&self.0).get(&host).cloned().unwrap_or_default();
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

/// The content of a topic, the header values to deliver with it, and its `ETag`.
pub type FetchedTopic = (Arc<[u8]>, RelayHeaders, Option<String>);

impl TopicClient {
    /// Builds the client.
    ///
    /// # Errors
    ///
    /// If the HTTP client cannot be built.
    pub fn new() -> reqwest::Result<TopicClient> {
        TopicClient::with_timeout(TIMEOUT)
    }

    fn with_timeout(timeout: Duration) -> reqwest::Result<TopicClient> {
        let hosts = TopicHosts::default();
        let client = client::build_or_plain_http(|| {
            client::builder(timeout)
                .no_proxy()
                .dns_resolver(hosts.clone())
        })?;
        Ok(TopicClient {
            client,
            hosts,
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
                let names_us = self.ask(topic, hub).await?;
                self.remember(topic, names_us);
                names_us
            }
        };
        names_us
            .then_some(())
            .ok_or_else(|| PublicationRefusal::OtherHub {
                topic: topic.clone(),
            })
    }

    /// Takes the networks that topics may be in, and forgets which topics name which hub.
    pub fn set_publishers(&self, publishers: &Publishers) {
        let mut hosts: HashMap<String, CallbackPolicy> = HashMap::new();
        for publisher in &publishers.0 {
            for prefix in &publisher.topics {
                let url = Url::parse(prefix.as_str()).ok();
                let Some(host) = url.as_ref().and_then(Url::host_str) else {
                    continue;
                };
                let policy = hosts.entry(host.to_owned()).or_default();
                policy.allowed.extend(&publisher.topic_networks);
            }
        }
        *lock(&self.hosts.0) = hosts;
        lock(&self.verified).clear();
    }

    fn remember(&self, topic: &Topic, names_us: bool) {
        let now = Instant::now();
        let kept = if names_us { CACHED } else { CACHED_REFUSAL };
        let mut cache = lock(&self.verified);
        if cache.len() >= MAX_CACHED {
            cache.retain(|_, (_, until)| now < *until);
        }
        if cache.len() < MAX_CACHED {
            cache.insert(topic.clone(), (names_us, now + kept));
        }
    }

    /// Asks by `HEAD`, and by `GET` if that names no hub: some servers set the header with content only.
    async fn ask(&self, topic: &Topic, hub: &Hub) -> Result<bool, PublicationRefusal> {
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
    ///
    /// # Errors
    ///
    /// If it cannot be fetched, or is too large; the reason in words.
    pub async fn fetch(
        &self,
        topic: &Topic,
        etag: Option<&str>,
        max: usize,
    ) -> Result<Option<FetchedTopic>, String> {
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
        if !is_plain(&encoding) {
            return Err(format!(
                "{topic} has the Content-Encoding {encoding}, for which nobody asked"
            ));
        }
        let header = |name| {
            client::header_values(response.headers(), name)
                .into_iter()
                .next()
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
            (body, None) => {
                let headers = RelayHeaders {
                    content_type,
                    capability_list: capability_list(&links),
                };
                Ok(Some((body.into(), headers, etag)))
            }
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
    use resourcesync::uri::Uri;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::hub::publisher::Publisher;

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
        let client = TopicClient::new().unwrap();
        let prefix = |host: &str| Uri::parse(&format!("http://{host}:{port}/")).unwrap();
        let here = "127.0.0.0/8 ::1/128";
        for (networks, is_read) in [("", false), ("10.0.0.0/8", false), (here, true)] {
            let networks = networks.split_whitespace();
            client.set_publishers(&Publishers(vec![Publisher {
                name: "library".into(),
                topics: vec![prefix("localhost"), prefix("127.0.0.1")],
                token: None,
                verify_topic: true,
                topic_networks: networks.map(|network| network.parse().unwrap()).collect(),
            }]));
            let named = Topic::new(format!("http://localhost:{port}/t"));
            let verified = client.verify(&named, &hub).await;
            assert_eq!(verified.is_ok(), is_read, "{verified:?}");
            let fetched = client.fetch(&named, None, 100).await.unwrap_err();
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
        let client = TopicClient::with_timeout(Duration::from_millis(300)).unwrap();
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

//! A hub for many Sources over HTTP: takes notifications and pings from publishers, and leaves the rest to the hub that
//! serves subscribers.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderName, HeaderValue,
    LINK, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{HeaderMap, Method, Request, StatusCode};
use ipnet::{IpNet, Ipv6Net};
use jiff::Timestamp;
use resourcesync::uri::{Hub, Topic};
use tokio::sync::{oneshot, watch};
use tracing::{debug, info, warn};

use crate::http::client::header_values;
use crate::http::lock;
use crate::http::server::{FullResponse, small_body, text};
use crate::hub::RelayHeaders;
use crate::hub::client_address::Requester;
use crate::hub::http::EmbeddedHub;
use crate::hub::http::topic_client::TopicClient;
use crate::hub::limits::LogLimit;
use crate::hub::publication::{
    FormRequest, PUBLIC_HUB_GREETING, PublicationRefusal, RequestKind, bearer_token, form_request,
    kind, links, verify_plain,
};
use crate::hub::published_topics::Publication;
use crate::hub::published_topics::directory::TopicDirectory;
use crate::hub::publisher::{Publisher, Publishers};
use crate::hub::publisher_counts::{PublisherCounts, UnknownToken, count_unknown};
use crate::hub::rate_limiter::RateLimiter;
use crate::hub::request::http::{FORM_BYTES, limit_exceeded, only_post, plain_text};
use crate::hub::usage::decrement;

/// Timeout for receiving a notification.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Publications without a token from one address at a time; a multiple of that for larger IPv6 networks.
const CONCURRENT_OF_ADDRESS: u32 = 4;
/// The multiple of that for all whose address is unknown.
const TIMES_OF_UNKNOWN: u32 = 16;
/// Publications with the token of one publisher at a time: each may take the memory of a whole body.
const CONCURRENT_PUBLICATIONS: usize = 64;
/// Time in which the body of a request that is refused is read, because many clients read no answer before they have
/// sent it.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of it, beyond the maximum size of a notification.
const DISCARD_BYTES: usize = 1 << 20;
/// Log lines about refused publications in an interval.
const REFUSED_LINES: u64 = 20;
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Settings that a reload may change.
#[derive(Debug, Clone)]
pub struct IntakeSettings {
    /// URI of this hub as it is advertised.
    pub hub: Hub,
    /// Maximum size of a notification, in bytes.
    pub max_body: usize,
    /// Publications of one publisher in a minute.
    pub publications_per_minute: u32,
}

/// A request that is to be saved before it is answered.
#[derive(Debug)]
pub enum AcceptedRequest {
    /// A notification.
    Publication(Publication),
    /// Topics to fetch.
    Pings {
        /// The topics.
        topics: Vec<Topic>,
        /// Name of the publisher.
        publisher: Arc<str>,
    },
}

/// Passes on requests to be saved. Each is answered once it is saved.
type Accept =
    dyn Fn(AcceptedRequest, oneshot::Sender<Result<(), PublicationRefusal>>) + Send + Sync;

/// The progress of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    /// True when no publication is accepted any more.
    Stopping,
    /// True when requests that were passed on to be saved are not answered any more.
    Ended,
}

/// A hub for many Sources.
pub struct PublicHub {
    /// The part that serves subscribers.
    pub embedded: EmbeddedHub,
    settings: Mutex<Arc<IntakeSettings>>,
    directory: Arc<TopicDirectory>,
    client: Arc<TopicClient>,
    accept: Box<Accept>,
    started: Instant,
    rate: Mutex<RateLimiter<Arc<str>>>,
    publishers: Mutex<HashMap<Arc<str>, PublisherUse>>,
    unknown_tokens: Mutex<Vec<UnknownToken>>,
    /// Publications without a token under way, by network.
    networks: Mutex<BTreeMap<IpNet, u32>>,
    lines: LogLimit,
    /// The start of the interval of `lines`.
    lines_since: Mutex<Instant>,
    stage: watch::Sender<Stage>,
}

#[derive(Debug, Default)]
struct PublisherUse {
    counts: PublisherCounts,
    under_way: usize,
}

/// The publisher or address whose rate limit a request counts against.
#[derive(Debug, Clone)]
enum Payer {
    /// The publisher whose token the request has.
    Publisher(Arc<str>),
    /// The address of any other request: a stranger cannot use up the quota of the publisher.
    Address(Option<Requester>),
}

impl Payer {
    /// Returns the networks whose publications are counted, each with the multiple of the limit that it has.
    fn networks(&self) -> Vec<(IpNet, u32)> {
        match self {
            Payer::Address(Some(requester)) => requester.networks(),
            // All of these together.
            Payer::Address(None) => vec![(Ipv6Net::default().into(), TIMES_OF_UNKNOWN)],
            Payer::Publisher(_) => Vec::new(),
        }
    }

    /// Returns the publisher for which a refusal is counted.
    fn publisher(&self) -> Option<&Arc<str>> {
        match self {
            Payer::Publisher(name) => Some(name),
            Payer::Address(_) => None,
        }
    }
}

/// The credentials of a request, and the publishers of which one may have them.
struct Credentials {
    publishers: Arc<Publishers>,
    token: Option<String>,
    payer: Payer,
}

/// A publication under way, counted until this is dropped: for the publisher whose token it has, else for the address that
/// it comes from. Strangers take no slots of a publisher.
struct UnderWay {
    hub: Arc<PublicHub>,
    payer: Payer,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        match &self.payer {
            Payer::Publisher(name) => self
                .hub
                .with_use(name, |of_publisher| of_publisher.under_way -= 1),
            payer => free(&mut lock(&self.hub.networks), &payer.networks()),
        }
    }
}

impl PublicHub {
    /// Joins a hub for subscribers with the publishers of a directory. `accept` must not block.
    pub fn new(
        embedded: EmbeddedHub,
        settings: IntakeSettings,
        directory: Arc<TopicDirectory>,
        client: Arc<TopicClient>,
        accept: impl Fn(AcceptedRequest, oneshot::Sender<Result<(), PublicationRefusal>>)
        + Send
        + Sync
        + 'static,
    ) -> Arc<PublicHub> {
        Arc::new(PublicHub {
            embedded,
            rate: Mutex::new(RateLimiter::new(settings.publications_per_minute)),
            settings: Mutex::new(Arc::new(settings)),
            directory,
            client,
            accept: Box::new(accept),
            started: Instant::now(),
            publishers: Mutex::default(),
            unknown_tokens: Mutex::default(),
            networks: Mutex::default(),
            lines: LogLimit::new(REFUSED_LINES),
            lines_since: Mutex::new(Instant::now()),
            stage: watch::Sender::new(Stage::Running),
        })
    }

    /// Applies other settings and publishers. Requests under way go on.
    pub fn apply(&self, settings: IntakeSettings, publishers: Publishers) {
        if settings.publications_per_minute != self.settings().publications_per_minute {
            let rate = RateLimiter::new(settings.publications_per_minute);
            *lock(&self.rate) = rate;
        }
        self.client.set_publishers(&publishers);
        self.directory.set_publishers(publishers);
        *lock(&self.settings) = Arc::new(settings);
    }

    /// Answers 503 to publications from now on, also to those whose body or topic is being read.
    pub fn stop(&self) {
        self.stage.send_replace(Stage::Stopping);
    }

    /// Answers 503 to requests that were passed on and not answered: the loop that saves has ended.
    pub fn end(&self) {
        self.stage.send_replace(Stage::Ended);
    }

    /// Returns the counts of a publisher.
    pub fn counts(&self, publisher: &str) -> PublisherCounts {
        let publishers = lock(&self.publishers);
        let of_publisher = publishers.get(publisher);
        of_publisher.map_or_else(PublisherCounts::default, |it| it.counts.clone())
    }

    /// Returns the tokens that no publisher has, those sent last at the end.
    pub fn unknown_tokens(&self) -> Vec<UnknownToken> {
        lock(&self.unknown_tokens).clone()
    }

    /// Counts an event of a publisher.
    pub fn count(&self, publisher: &Arc<str>, count: impl FnOnce(&mut PublisherCounts)) {
        self.with_use(publisher, |of_publisher| count(&mut of_publisher.counts));
    }

    /// Answers a request for the hub's path.
    pub async fn answer(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        body_timeout: Duration,
    ) -> FullResponse {
        if *request.method() != Method::POST {
            return self.greet();
        }
        let content_type = text_of(request.headers(), CONTENT_TYPE);
        let kind = kind(content_type.as_deref());
        let credentials = self.credentials(&request);
        let payer = &credentials.payer;
        let charged = self.charge(payer, 1).inspect_err(|refused| {
            if matches!((&kind, payer), (Ok(RequestKind::Form), Payer::Address(_))) {
                self.embedded.count_request(refused.status().as_u16());
            }
        });
        let refused = match (charged, kind) {
            (Ok(()), Ok(RequestKind::Form)) => {
                return self.answer_form(&credentials, request, body_timeout).await;
            }
            (Ok(()), Ok(RequestKind::Content)) => {
                self.take_content(&credentials, &mut request).await.err()
            }
            (Ok(()), Err(refusal)) => Some(self.note(payer.publisher(), None, refusal)),
            (Err(refused), _) => Some(refused),
        };
        match refused {
            None => text(StatusCode::OK, "accepted\n"),
            Some(refused) => {
                self.discard(request).await;
                *refused
            }
        }
    }

    fn credentials(&self, request: &Request<Incoming>) -> Credentials {
        let publishers = self.directory.publishers();
        let token = token_of(request.headers());
        let publisher = token
            .as_deref()
            .and_then(|token| publishers.with_token(token));
        let payer = match publisher {
            Some(publisher) => Payer::Publisher(Arc::clone(&publisher.name)),
            None => Payer::Address(self.embedded.requester(request)),
        };
        Credentials {
            publishers,
            token,
            payer,
        }
    }

    /// Finds the publisher of a topic that has these credentials.
    fn authorize<'c>(
        &self,
        credentials: &'c Credentials,
        topic: &Topic,
    ) -> Result<&'c Publisher, RefusedPublication> {
        let Credentials {
            publishers,
            token,
            payer,
        } = credentials;
        publishers
            .authorize(topic, token.as_deref())
            .map_err(|refusal| {
                if let (PublicationRefusal::UnknownToken, Some(token)) = (&refusal, token) {
                    let (publisher, now) = (publishers.of_topic(topic), Timestamp::now());
                    count_unknown(&mut lock(&self.unknown_tokens), token, publisher, now);
                }
                self.note(payer.publisher(), Some(topic), refusal)
            })
    }

    /// Counts requests against the rate limit of their payer: all of them, or none beyond it.
    fn charge(&self, payer: &Payer, count: u32) -> Result<(), RefusedPublication> {
        match payer {
            Payer::Publisher(name) => {
                let acquired = lock(&self.rate).acquire(
                    &[(Arc::clone(name), 1)],
                    count,
                    self.started.elapsed(),
                );
                acquired.map_err(|(_, retry_after)| {
                    let per_minute = self.settings().publications_per_minute;
                    let refusal = PublicationRefusal::TooMany {
                        per_minute,
                        retry_after,
                    };
                    self.note(Some(name), None, refusal)
                })
            }
            Payer::Address(requester) => self
                .embedded
                .admit(*requester, count)
                .map_err(|exceeded| Box::new(limit_exceeded(&exceeded))),
        }
    }

    async fn take_content(
        self: &Arc<Self>,
        credentials: &Credentials,
        request: &mut Request<Incoming>,
    ) -> Result<(), RefusedPublication> {
        let payer = &credentials.payer;
        let values = header_values(request.headers(), LINK);
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let read = links(&values, request.uri().query());
        let published = read.map_err(|refusal| self.note(payer.publisher(), None, refusal))?;
        let topic = published.topic.clone();
        let publisher = self.authorize(credentials, &topic)?;
        // Bytes that are not text are no encoding that is known.
        let encodings = request.headers().get_all(CONTENT_ENCODING).iter();
        let encodings: Vec<&str> = encodings
            .map(|value| value.to_str().unwrap_or("unknown"))
            .collect();
        verify_plain(&encodings)
            .map_err(|refusal| self.note(payer.publisher(), Some(&topic), refusal))?;
        let _under_way = self.begin(publisher, payer, Some(&topic))?;
        let name = &publisher.name;
        let refuse = |refusal| self.note(Some(name), Some(&topic), refusal);
        published.verify_hub(&self.settings().hub).map_err(refuse)?;
        let max = self.settings().max_body;
        let announced = text_of(request.headers(), CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.parse::<usize>().ok());
        if announced.is_some_and(|length| length > max) {
            return Err(refuse(PublicationRefusal::TooLarge { max }));
        }
        self.verify(publisher, &topic).await?;
        let read = small_body(request.body_mut(), max, BODY_TIMEOUT);
        let read = self.unless_stopping(read).await.map_err(refuse)?;
        // The bytes that were read are dropped before the body is saved: it may be large.
        let read = read.map(|bytes| Arc::from(&bytes[..]));
        let body: Arc<[u8]> = read.map_err(|(status, words)| match status {
            StatusCode::PAYLOAD_TOO_LARGE => refuse(PublicationRefusal::TooLarge { max }),
            _ => Box::new(text(status, words)),
        })?;
        if body.is_empty() {
            return Err(refuse(PublicationRefusal::Empty));
        }
        let publication = Publication {
            topic: topic.clone(),
            publisher: Arc::clone(name),
            body,
            headers: RelayHeaders {
                content_type: text_of(request.headers(), CONTENT_TYPE).unwrap_or_default(),
                capability_list: published.capability_list,
            },
            etag: None,
            fetched: None,
        };
        self.save(AcceptedRequest::Publication(publication))
            .await
            .map_err(refuse)
    }

    async fn answer_form(
        self: &Arc<Self>,
        credentials: &Credentials,
        request: Request<Incoming>,
        body_timeout: Duration,
    ) -> FullResponse {
        let requester = self.embedded.requester(&request);
        let form = match small_body(request.into_body(), FORM_BYTES, body_timeout).await {
            Ok(form) => form,
            Err((status, words)) => return text(status, words),
        };
        let answered = match form_request(&form) {
            Ok(FormRequest::Subscription) => {
                return self.embedded.answer_form(&form, requester);
            }
            Ok(FormRequest::Ping(topics)) => self.take_topics(credentials, topics, false).await,
            Ok(FormRequest::Check(topics)) => self.take_topics(credentials, topics, true).await,
            Err(refusal) => Err(self.note(credentials.payer.publisher(), None, refusal)),
        };
        answered.unwrap_or_else(|refused| *refused)
    }

    /// Takes pings of topics; of a check, answers if a publication would be accepted, and publishes nothing.
    async fn take_topics(
        self: &Arc<Self>,
        credentials: &Credentials,
        topics: Vec<Topic>,
        is_check: bool,
    ) -> Result<FullResponse, RefusedPublication> {
        let payer = &credentials.payer;
        let publisher = self.authorize_all(credentials, &topics)?;
        // Otherwise a check is charged nothing else: `rsnotify check` must not use up the quota of its Source.
        if publisher.verify_topic || !is_check {
            self.charge(payer, all_but_one(&topics))?;
        }
        let _under_way = self.begin(publisher, payer, topics.first())?;
        for topic in &topics {
            self.verify(publisher, topic).await?;
        }
        let name = &publisher.name;
        if is_check {
            let hub = &self.settings().hub;
            let lines = topics.iter().map(|topic| {
                format!("{name} may publish {topic} at {hub}; nothing was published\n")
            });
            return Ok(text(StatusCode::OK, lines.collect::<String>()));
        }
        let pings = AcceptedRequest::Pings {
            publisher: Arc::clone(name),
            topics,
        };
        let saved = self.save(pings).await;
        saved.map_err(|refusal| self.note(Some(name), None, refusal))?;
        Ok(text(StatusCode::ACCEPTED, "the topic will be fetched\n"))
    }

    /// Authorizes all topics of one form, which are those of one publisher.
    fn authorize_all<'c>(
        &self,
        credentials: &'c Credentials,
        topics: &[Topic],
    ) -> Result<&'c Publisher, RefusedPublication> {
        let mut found: Option<&Publisher> = None;
        for topic in topics {
            let publisher = self.authorize(credentials, topic)?;
            if let Some(before) = found
                && before.name != publisher.name
            {
                let refusal = PublicationRefusal::Outside {
                    topic: topic.clone(),
                };
                return Err(self.note(Some(&before.name), Some(topic), refusal));
            }
            found = Some(publisher);
        }
        let payer = &credentials.payer;
        found.ok_or_else(|| self.note(payer.publisher(), None, PublicationRefusal::NoTopic))
    }

    async fn verify(&self, publisher: &Publisher, topic: &Topic) -> Result<(), RefusedPublication> {
        if !publisher.verify_topic {
            return Ok(());
        }
        let hub = &self.settings().hub;
        let verified = self.client.verify(topic, hub);
        let verified = self.unless_stopping(verified).await;
        verified.flatten().map_err(|refusal| {
            let name = &publisher.name;
            self.note(Some(name), Some(topic), refusal)
        })
    }

    /// Waits until a request is saved.
    async fn save(&self, request: AcceptedRequest) -> Result<(), PublicationRefusal> {
        let (sender, receiver) = oneshot::channel();
        (self.accept)(request, sender);
        // An answer counts, whatever ends at the same time.
        tokio::select! {
            biased;
            saved = receiver => saved.unwrap_or(Err(PublicationRefusal::Unsaved)),
            () = self.reached(Stage::Ended) => Err(PublicationRefusal::Unsaved),
        }
    }
}

impl fmt::Debug for PublicHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicHub").finish_non_exhaustive()
    }
}

/// An answer other than acceptance.
type RefusedPublication = Box<FullResponse>;

fn refused(refusal: &PublicationRefusal) -> RefusedPublication {
    let mut answer = plain_text(refusal.status(), refusal);
    if let Some(wait) = refusal.retry_after() {
        let seconds = wait.as_secs_f64().ceil() as u64;
        answer.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    if answer.status() == StatusCode::UNAUTHORIZED {
        // RFC 6750 section 3.1.
        let challenge = HeaderValue::from_static(match refusal {
            PublicationRefusal::UnknownToken => "Bearer error=\"invalid_token\"",
            _ => "Bearer",
        });
        answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    Box::new(answer)
}

impl PublicHub {
    /// Returns the settings in effect.
    pub fn settings(&self) -> Arc<IntakeSettings> {
        Arc::clone(&lock(&self.settings))
    }

    async fn reached(&self, stage: Stage) {
        let mut stages = self.stage.subscribe();
        // The sender is in `self`.
        let _ = stages.wait_for(|reached| *reached >= stage).await;
    }

    /// Waits for a step of a publication, unless the hub stops.
    async fn unless_stopping<T>(
        &self,
        step: impl Future<Output = T>,
    ) -> Result<T, PublicationRefusal> {
        tokio::select! {
            biased;
            () = self.reached(Stage::Stopping) => Err(PublicationRefusal::Unsaved),
            done = step => Ok(done),
        }
    }

    fn with_use<T>(&self, publisher: &Arc<str>, act: impl FnOnce(&mut PublisherUse) -> T) -> T {
        let mut publishers = lock(&self.publishers);
        act(publishers.entry(Arc::clone(publisher)).or_default())
    }

    /// Answers another method than `POST`. `check` recognises this hub by its link.
    fn greet(&self) -> FullResponse {
        let mut answer = only_post(PUBLIC_HUB_GREETING);
        let link = format!("<{}>; rel=\"hub\"", self.settings().hub.as_str());
        if let Ok(link) = HeaderValue::from_str(&link) {
            answer.headers_mut().insert(LINK, link);
        }
        answer
    }

    /// Counts a publication that begins, and refuses one too many.
    fn begin(
        self: &Arc<Self>,
        publisher: &Publisher,
        payer: &Payer,
        topic: Option<&Topic>,
    ) -> Result<UnderWay, RefusedPublication> {
        let is_one_more = match payer {
            Payer::Publisher(name) => self.with_use(name, |of_publisher| {
                let is_one_more = of_publisher.under_way < CONCURRENT_PUBLICATIONS;
                of_publisher.under_way += usize::from(is_one_more);
                is_one_more
            }),
            payer => occupy(&mut lock(&self.networks), &payer.networks()),
        };
        if !is_one_more {
            return Err(self.note(Some(&publisher.name), topic, PublicationRefusal::Busy));
        }
        Ok(UnderWay {
            hub: Arc::clone(self),
            payer: payer.clone(),
        })
    }

    /// Counts and logs a refusal. Returns the answer.
    fn note(
        &self,
        publisher: Option<&Arc<str>>,
        topic: Option<&Topic>,
        refusal: PublicationRefusal,
    ) -> RefusedPublication {
        let publishers = self.directory.publishers();
        // Only the operator learns whose topic it is.
        let exchanged = match &refusal {
            PublicationRefusal::Outside { topic } => publishers.of_topic(topic).map(|owner| {
                let owner = &owner.name;
                format!("{topic} is none of its topics, but one of {owner}: their tokens may be exchanged")
            }),
            _ => None,
        };
        let reason = exchanged.unwrap_or_else(|| refusal.to_string());
        if let Some(name) = publisher {
            let (reason, now) = (reason.clone(), Timestamp::now());
            self.with_use(name, |of_publisher| {
                of_publisher.counts.refused(&refusal, reason, now)
            });
        }
        let mut since = lock(&self.lines_since);
        if since.elapsed() >= LOG_INTERVAL {
            *since = Instant::now();
            let count = self.lines.next_interval();
            if count > 0 {
                info!(count, "more refused publications: {count}");
            }
        }
        let (status, topic) = (refusal.status(), topic.map(Topic::as_str));
        match (self.lines.allow(), publisher) {
            (true, Some(publisher)) => warn!(
                %publisher, topic, status,
                "refused a publication of {publisher}: {reason}"
            ),
            (true, None) => info!(topic, status, "refused a publication: {reason}"),
            (false, _) => debug!(topic, status, "refused a publication: {reason}"),
        }
        refused(&refusal)
    }

    /// Reads the rest of a request that is refused, unless the client waits for leave to send it.
    async fn discard(&self, request: Request<Incoming>) {
        if request.headers().contains_key(EXPECT) {
            return;
        }
        let mut left = self.settings().max_body.saturating_add(DISCARD_BYTES);
        let mut body = request.into_body();
        let all = async {
            while let Some(Ok(frame)) = body.frame().await {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                if bytes > left {
                    return;
                }
                left -= bytes;
            }
        };
        // The rest is not read.
        let all = tokio::time::timeout(DISCARD_TIMEOUT, all);
        let _ = self.unless_stopping(all).await;
    }
}

/// Counts one more publication for each of these networks, or for none if one of them has no more slots.
fn occupy(under_way: &mut BTreeMap<IpNet, u32>, networks: &[(IpNet, u32)]) -> bool {
    let has_slot = |(network, times): &(IpNet, u32)| {
        let count = under_way.get(network).copied().unwrap_or(0);
        count < CONCURRENT_OF_ADDRESS * times
    };
    if !networks.iter().all(has_slot) {
        return false;
    }
    for (network, _) in networks {
        *under_way.entry(*network).or_default() += 1;
    }
    true
}

/// Counts one publication less for each of these networks.
fn free(under_way: &mut BTreeMap<IpNet, u32>, networks: &[(IpNet, u32)]) {
    for (network, _) in networks {
        decrement(under_way, network);
    }
}

/// Returns the number of topics besides the first, for which the request was counted before it was read.
fn all_but_one(topics: &[Topic]) -> u32 {
    u32::try_from(topics.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

fn text_of(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

/// Returns the bearer token of a request. One that is not text is no publisher's.
fn token_of(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?;
    let value = value.to_str().unwrap_or("Bearer \u{0}");
    bearer_token(value).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_an_address_have_slots_together() {
        let mut under_way = BTreeMap::new();
        let unknown = Payer::Address(None).networks();
        for _ in 0..64 {
            assert!(occupy(&mut under_way, &unknown));
        }
        assert!(!occupy(&mut under_way, &unknown));
        let known = Requester::new("2001:db8::1".parse().unwrap()).networks();
        assert!(occupy(&mut under_way, &known));
        free(&mut under_way, &unknown);
        assert!(occupy(&mut under_way, &unknown));
    }

    #[test]
    fn an_address_has_few_slots_and_its_neighbours_have_their_own() {
        let mut under_way = BTreeMap::new();
        let networks = |address: &str| Requester::new(address.parse().unwrap()).networks();
        let (one, other) = (networks("203.0.113.1"), networks("203.0.113.2"));
        for _ in 0..4 {
            assert!(occupy(&mut under_way, &one));
        }
        assert!(!occupy(&mut under_way, &one));
        assert!(occupy(&mut under_way, &other));
        free(&mut under_way, &one);
        assert!(occupy(&mut under_way, &one));
        // The /48 of a customer has four times as many.
        let customer = (0..1_000).map(|number| networks(&format!("2001:db8:0:{number:x}::1")));
        let occupied: Vec<_> = customer
            .filter(|networks| occupy(&mut under_way, networks))
            .collect();
        assert_eq!(occupied.len(), 16);
        for networks in &occupied {
            free(&mut under_way, networks);
        }
        (0..4).for_each(|_| free(&mut under_way, &one));
        free(&mut under_way, &other);
        assert!(under_way.is_empty());
    }
}

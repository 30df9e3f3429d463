//! A hub for many Sources over HTTP: takes notifications and pings from publishers, and leaves the rest to the hub that
//! serves subscribers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderValue, LINK,
    WWW_AUTHENTICATE,
};
use hyper::{Method, Request, StatusCode};
use ipnet::Ipv6Net;
use jiff::Timestamp;
use resourcesync::uri::Topic;
use tokio::sync::{oneshot, watch};
use tracing::{debug, info, warn};

use crate::headers::{Links, is_form};
use crate::http::client::{header_text, header_values};
use crate::http::server::{FullResponse, not_allowed, small_body, text};
use crate::http::{BoxedFn, Replaceable, lock};
use crate::hub::RelayHeaders;
use crate::hub::admission::{BucketKey, RateLimiter, decrement, requester_buckets};
use crate::hub::client_address::Requester;
use crate::hub::http::{EmbeddedHub, LogLimit};
use crate::hub::publication::{
    HubFormRequest, PUBLIC_HUB_GREETING, PublicationRefusal, Publisher, PublisherCounts,
    Publishers, UnknownTokenCount, bearer_token, capability_list, count_unknown_token,
    form_request, is_notification, is_unencoded, published_topic, refuse_other_hub,
};
use crate::hub::published_topics::Publication;
use crate::hub::published_topics::http::TopicClient;
use crate::hub::request::http::{FORM_BYTES, FORM_TIMEOUT, plain_text};

/// Timeout for receiving a notification.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Publications without a token from one address at a time; a multiple of that for larger IPv6 networks.
const CONCURRENT_OF_ADDRESS: u32 = 4;
/// The multiple of that for all whose address is unknown.
const TIMES_OF_UNKNOWN: u32 = 16;
/// The multiple of the former with the token of one publisher (64): each may take the memory of a whole body.
const TIMES_OF_PUBLISHER: u32 = 16;
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
pub struct PublicHubLimits {
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

/// Passes on requests to be saved. Each is answered once it is saved. It must not block.
pub type Accept = BoxedFn<dyn Fn(AcceptedRequest, PublicationReply) + Send + Sync>;

/// The answer to a publication or a ping.
pub type PublicationReply = oneshot::Sender<Result<(), PublicationRefusal>>;

/// The progress of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownStage {
    /// Publications are accepted.
    Running,
    /// Publications are answered 503, also those whose body or topic is being read.
    Stopping,
    /// So are requests that were passed on to be saved: the loop that saves has ended.
    Ended,
}

/// A hub for many Sources.
#[derive(Debug)]
pub struct PublicHub {
    /// The part that serves subscribers.
    pub embedded: Arc<EmbeddedHub>,
    /// The settings in effect.
    pub settings: Replaceable<PublicHubLimits>,
    client: Arc<TopicClient>,
    accept: Accept,
    started: Instant,
    rate: Mutex<RateLimiter<Arc<str>>>,
    publishers: Mutex<HashMap<Arc<str>, PublisherCounts>>,
    unknown_tokens: Mutex<Vec<UnknownTokenCount>>,
    /// Publications under way.
    under_way: Mutex<BTreeMap<BucketKey, u32>>,
    lines: LogLimit<REFUSED_LINES>,
    /// The start of the interval of `lines`.
    lines_since: Mutex<Instant>,
    /// The stage of the shutdown, which only goes on.
    pub stage: watch::Sender<ShutdownStage>,
}

/// Returns the buckets in which publications under way are counted, each with the multiple of a quota that it allows: that
/// of the publisher whose token they have, else those of the address that they come from. Strangers take no slots of a
/// publisher.
fn concurrency_buckets(
    publisher: Option<&Arc<str>>,
    requester: Option<Requester>,
) -> Vec<(BucketKey, u32)> {
    match (publisher, requester) {
        (Some(name), _) => vec![(BucketKey::Publisher(Arc::clone(name)), TIMES_OF_PUBLISHER)],
        (None, Some(_)) => requester_buckets(requester),
        // All without an address together.
        (None, None) => vec![(
            BucketKey::Requester(Ipv6Net::default().into()),
            TIMES_OF_UNKNOWN,
        )],
    }
}

/// Where a request comes from, with what a refusal is counted and logged for, as far as it is known.
struct PublicationOrigin {
    token: Option<String>,
    /// The publisher whose token it is, against whose limits the request counts.
    payer: Option<Arc<str>>,
    /// The address of any other request: a stranger cannot use up the quota of the publisher.
    requester: Option<Requester>,
    publisher: Option<Arc<str>>,
    topic: Option<Topic>,
}

/// A publication under way, counted until this is dropped.
struct HeldSlots {
    hub: Arc<PublicHub>,
    slots: Vec<(BucketKey, u32)>,
}

impl Drop for HeldSlots {
    fn drop(&mut self) {
        free(&mut lock(&self.hub.under_way), &self.slots);
    }
}

impl PublicHub {
    /// Joins a hub for subscribers with the publishers of a client.
    pub fn new(
        embedded: Arc<EmbeddedHub>,
        settings: PublicHubLimits,
        client: Arc<TopicClient>,
        accept: Accept,
    ) -> Arc<PublicHub> {
        Arc::new(PublicHub {
            embedded,
            rate: Mutex::new(RateLimiter::new(settings.publications_per_minute)),
            settings: Replaceable::new(settings),
            client,
            accept,
            started: Instant::now(),
            publishers: Mutex::default(),
            unknown_tokens: Mutex::default(),
            under_way: Mutex::default(),
            lines: LogLimit::default(),
            lines_since: Mutex::new(Instant::now()),
            stage: watch::Sender::new(ShutdownStage::Running),
        })
    }

    /// Applies other settings and publishers. Requests under way go on.
    pub fn apply_settings(&self, settings: PublicHubLimits, publishers: Publishers) {
        if settings.publications_per_minute != self.settings.get().publications_per_minute {
            *lock(&self.rate) = RateLimiter::new(settings.publications_per_minute);
        }
        self.client.set_publishers(publishers);
        self.settings.replace(settings);
    }

    /// Returns the counts of a publisher.
    pub fn counts(&self, publisher: &str) -> PublisherCounts {
        let publishers = lock(&self.publishers);
        publishers.get(publisher).cloned().unwrap_or_default()
    }

    /// Returns the tokens that no publisher has, those sent last at the end.
    pub fn unknown_tokens(&self) -> Vec<UnknownTokenCount> {
        lock(&self.unknown_tokens).clone()
    }

    /// Counts an event of a publisher.
    pub fn update_counts(&self, publisher: &Arc<str>, count: impl FnOnce(&mut PublisherCounts)) {
        let mut publishers = lock(&self.publishers);
        count(publishers.entry(Arc::clone(publisher)).or_default());
    }

    /// Answers a request for the hub's path.
    pub async fn answer(self: &Arc<Self>, mut request: Request<Incoming>) -> FullResponse {
        if *request.method() != Method::POST {
            return self.greet();
        }
        let content_type = header_text(request.headers(), CONTENT_TYPE).unwrap_or_default();
        let is_form = is_form(content_type);
        let is_notification = is_notification(content_type);
        let mut origin = self.origin(&request);
        let taken = match self.charge(&origin, 1) {
            Ok(()) if is_form => return self.answer_form(origin, request).await,
            Ok(()) if is_notification => self.take_publication(&mut origin, &mut request).await,
            Ok(()) => Err(PublicationRefusal::MediaType),
            Err(refusal) => {
                if is_form && let PublicationRefusal::Limit(_) = refusal {
                    self.embedded.count_request(refusal.status());
                }
                Err(refusal)
            }
        };
        match taken {
            Ok(()) => text(StatusCode::OK, "accepted\n"),
            Err(refusal) => {
                let answer = self.refuse(&origin, &refusal);
                self.discard(request).await;
                answer
            }
        }
    }

    fn origin(&self, request: &Request<Incoming>) -> PublicationOrigin {
        // A token that is not text is no publisher's.
        let header = request.headers().get(AUTHORIZATION);
        let text = header.map(|value| value.to_str().unwrap_or("Bearer \u{0}"));
        let token = text.and_then(bearer_token).map(str::to_owned);
        let publishers = self.client.directory.publishers.get();
        let publisher = token
            .as_deref()
            .and_then(|token| publishers.with_token(token))
            .map(|publisher| Arc::clone(&publisher.name));
        PublicationOrigin {
            token,
            requester: match publisher {
                Some(_) => None,
                None => self.embedded.requester(request),
            },
            payer: publisher.clone(),
            publisher,
            topic: None,
        }
    }

    /// Finds the publisher of a topic that has these credentials.
    fn authorize<'p>(
        &self,
        origin: &mut PublicationOrigin,
        publishers: &'p Publishers,
        topic: &Topic,
    ) -> Result<&'p Publisher, PublicationRefusal> {
        origin.topic = Some(topic.clone());
        let token = origin.token.as_deref();
        publishers.authorize(topic, token).inspect_err(|refusal| {
            if let (PublicationRefusal::UnknownToken, Some(token)) = (refusal, token) {
                let (publisher, now) = (publishers.of_topic(topic), Timestamp::now());
                count_unknown_token(&mut lock(&self.unknown_tokens), token, publisher, now);
            }
        })
    }

    /// Counts requests against the rate limit of their payer: all of them, or none beyond it.
    fn charge(&self, origin: &PublicationOrigin, count: u32) -> Result<(), PublicationRefusal> {
        let Some(name) = &origin.payer else {
            let admitted = self.embedded.admit(origin.requester, count);
            return admitted.map_err(PublicationRefusal::Limit);
        };
        let key = [(Arc::clone(name), 1)];
        let acquired = lock(&self.rate).acquire(&key, count, self.started.elapsed());
        acquired.map_err(|(_, retry_after)| PublicationRefusal::TooMany {
            per_minute: self.settings.get().publications_per_minute,
            retry_after,
        })
    }

    async fn take_publication(
        self: &Arc<Self>,
        origin: &mut PublicationOrigin,
        request: &mut Request<Incoming>,
    ) -> Result<(), PublicationRefusal> {
        let publishers = self.client.directory.publishers.get();
        let links = Links::parse(header_values(request.headers(), LINK));
        let topic = published_topic(&links, request.uri().query())?;
        let topic = &topic;
        let publisher = self.authorize(origin, &publishers, topic)?;
        // It is delivered as it was sent, without that header. Bytes that are not text are no encoding that is known.
        let is_encoded = |value: &HeaderValue| !is_unencoded(value.to_str().unwrap_or("unknown"));
        let mut encodings = request.headers().get_all(CONTENT_ENCODING).iter();
        if encodings.any(is_encoded) {
            return Err(PublicationRefusal::Encoded);
        }
        origin.publisher = Some(Arc::clone(&publisher.name));
        let _under_way = self.begin_publication(origin)?;
        refuse_other_hub(topic, &links, &self.embedded.settings.get().settings.hub)?;
        let max_body = self.settings.get().max_body;
        let too_large = || PublicationRefusal::TooLarge(max_body);
        let announced = header_text(request.headers(), CONTENT_LENGTH)
            .and_then(|length| length.parse::<usize>().ok());
        if announced.is_some_and(|length| length > max_body) {
            return Err(too_large());
        }
        self.verify(publisher, topic).await?;
        let read = small_body(request.body_mut(), max_body, BODY_TIMEOUT);
        let read = self.unless_stopping(read).await?;
        // The bytes that were read are dropped before the body is saved: it may be large.
        let read = read.map(|bytes| Arc::from(&bytes[..]));
        let body: Arc<[u8]> = read.map_err(|(status, words)| match status {
            StatusCode::PAYLOAD_TOO_LARGE => too_large(),
            _ => PublicationRefusal::Unread {
                status: status.as_u16(),
                words: words.trim_end(),
            },
        })?;
        if body.is_empty() {
            return Err(PublicationRefusal::Empty);
        }
        let publication = Publication {
            topic: topic.clone(),
            publisher: Arc::clone(&publisher.name),
            body,
            headers: RelayHeaders {
                content_type: header_text(request.headers(), CONTENT_TYPE)
                    .unwrap_or_default()
                    .into(),
                capability_list: capability_list(&links),
            },
            etag: None,
            fetched: None,
        };
        self.save(AcceptedRequest::Publication(publication)).await
    }

    async fn answer_form(
        self: &Arc<Self>,
        mut origin: PublicationOrigin,
        request: Request<Incoming>,
    ) -> FullResponse {
        let requester = self.embedded.requester(&request);
        let form = match small_body(request.into_body(), FORM_BYTES, FORM_TIMEOUT).await {
            Ok(form) => form,
            Err((status, words)) => return text(status, words),
        };
        let taken = match form_request(&form) {
            Ok(HubFormRequest::Subscription) => {
                let answered = self.embedded.answer_form(&form, requester);
                return self.embedded.count_answer(answered);
            }
            Ok(HubFormRequest::Publish { topics, is_check }) => {
                self.answer_pings(&mut origin, topics, is_check).await
            }
            Err(refusal) => Err(refusal),
        };
        taken.unwrap_or_else(|refusal| self.refuse(&origin, &refusal))
    }

    /// Takes pings of topics, which are those of one publisher; of a check, answers if a publication would be accepted, and
    /// publishes nothing.
    async fn answer_pings(
        self: &Arc<Self>,
        origin: &mut PublicationOrigin,
        topics: Vec<Topic>,
        is_check: bool,
    ) -> Result<FullResponse, PublicationRefusal> {
        let publishers = self.client.directory.publishers.get();
        let mut found: Option<&Publisher> = None;
        for topic in &topics {
            let publisher = self.authorize(origin, &publishers, topic)?;
            if let Some(before) = found
                && before.name != publisher.name
            {
                origin.publisher = Some(Arc::clone(&before.name));
                return Err(PublicationRefusal::Outside(topic.clone()));
            }
            found = Some(publisher);
        }
        let publisher = found.ok_or(PublicationRefusal::NoTopic)?;
        let name = &publisher.name;
        (origin.publisher, origin.topic) = (Some(Arc::clone(name)), None);
        // Otherwise a check is charged nothing else: `rsnotify check` must not use up the quota of its Source.
        if publisher.verify_topic || !is_check {
            // The request was counted for the first before it was read.
            let others = u32::try_from(topics.len() - 1).unwrap_or(u32::MAX);
            self.charge(origin, others)?;
        }
        origin.topic = topics.first().cloned();
        let _under_way = self.begin_publication(origin)?;
        for topic in &topics {
            origin.topic = Some(topic.clone());
            self.verify(publisher, topic).await?;
        }
        if is_check {
            let hub = &self.embedded.settings.get().settings.hub;
            let lines = topics.iter().map(|topic| {
                format!("{name} may publish {topic} at {hub}; nothing was published\n")
            });
            return Ok(text(StatusCode::OK, lines.collect::<String>()));
        }
        let publisher = Arc::clone(name);
        origin.topic = None;
        self.save(AcceptedRequest::Pings { publisher, topics })
            .await?;
        Ok(text(StatusCode::ACCEPTED, "the topic will be fetched\n"))
    }

    async fn verify(&self, publisher: &Publisher, topic: &Topic) -> Result<(), PublicationRefusal> {
        if !publisher.verify_topic {
            return Ok(());
        }
        let prepared = self.embedded.settings.get();
        let verified = self.client.verify(topic, &prepared.settings.hub);
        self.unless_stopping(verified).await.flatten()
    }

    /// Waits until a request is saved.
    async fn save(&self, request: AcceptedRequest) -> Result<(), PublicationRefusal> {
        let (sender, receiver) = oneshot::channel();
        (self.accept.0)(request, sender);
        // An answer counts, whatever ends at the same time.
        tokio::select! {
            biased;
            saved = receiver => saved.unwrap_or(Err(PublicationRefusal::Unsaved)),
            () = self.wait_for_shutdown(ShutdownStage::Ended) => Err(PublicationRefusal::Unsaved),
        }
    }

    async fn wait_for_shutdown(&self, stage: ShutdownStage) {
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
            () = self.wait_for_shutdown(ShutdownStage::Stopping) => Err(PublicationRefusal::Unsaved),
            done = step => Ok(done),
        }
    }

    /// Answers another method than `POST`. `check` recognises this hub by its link.
    fn greet(&self) -> FullResponse {
        let mut answer = not_allowed("POST", PUBLIC_HUB_GREETING);
        let hub = &self.embedded.settings.get().settings.hub;
        let link = format!("<{}>; rel=\"hub\"", hub.as_str());
        if let Ok(link) = HeaderValue::from_str(&link) {
            answer.headers_mut().insert(LINK, link);
        }
        answer
    }

    /// Counts a publication that begins, and refuses one too many.
    fn begin_publication(
        self: &Arc<Self>,
        origin: &PublicationOrigin,
    ) -> Result<HeldSlots, PublicationRefusal> {
        let slots = concurrency_buckets(origin.payer.as_ref(), origin.requester);
        if !occupy(&mut lock(&self.under_way), &slots) {
            return Err(PublicationRefusal::Busy);
        }
        let hub = Arc::clone(self);
        Ok(HeldSlots { hub, slots })
    }

    /// Counts and logs a refusal, unless it is for a limit on strangers or a body that broke off. Returns the answer.
    fn refuse(&self, origin: &PublicationOrigin, refusal: &PublicationRefusal) -> FullResponse {
        let mut answer = plain_text(refusal.status(), refusal, refusal.retry_after());
        if let PublicationRefusal::Limit(_) | PublicationRefusal::Unread { .. } = refusal {
            return answer;
        }
        let publishers = self.client.directory.publishers.get();
        // Only the operator learns whose topic it is.
        let exchanged = match refusal {
            PublicationRefusal::Outside(topic) => publishers.of_topic(topic).map(|owner| {
                let owner = &owner.name;
                format!("{topic} is none of its topics, but one of {owner}: their tokens may be exchanged")
            }),
            _ => None,
        };
        let reason = exchanged.unwrap_or_else(|| refusal.to_string());
        if let Some(name) = &origin.publisher {
            let (reason, now) = (reason.clone(), Timestamp::now());
            self.update_counts(name, |counts| counts.count_refused(refusal, reason, now));
        }
        let mut since = lock(&self.lines_since);
        if since.elapsed() >= LOG_INTERVAL {
            *since = Instant::now();
            let count = self.lines.next_interval();
            if count > 0 {
                info!(count, "more refused publications: {count}");
            }
        }
        let (status, topic) = (refusal.status(), origin.topic.as_ref().map(Topic::as_str));
        match (self.lines.allow(), &origin.publisher) {
            (true, Some(publisher)) => warn!(
                %publisher, topic, status,
                "refused a publication of {publisher}: {reason}"
            ),
            (true, None) => info!(topic, status, "refused a publication: {reason}"),
            (false, _) => debug!(topic, status, "refused a publication: {reason}"),
        }
        if answer.status() == StatusCode::UNAUTHORIZED {
            // RFC 6750 section 3.1.
            let challenge = HeaderValue::from_static(match refusal {
                PublicationRefusal::UnknownToken => "Bearer error=\"invalid_token\"",
                _ => "Bearer",
            });
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        answer
    }

    /// Reads the rest of a request that is refused, unless the client waits for leave to send it.
    async fn discard(&self, request: Request<Incoming>) {
        if request.headers().contains_key(EXPECT) {
            return;
        }
        let mut left = self.settings.get().max_body.saturating_add(DISCARD_BYTES);
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

/// Takes one of each of these slots, or none if one kind of them is used up.
fn occupy(under_way: &mut BTreeMap<BucketKey, u32>, slots: &[(BucketKey, u32)]) -> bool {
    let has_one = |(slots, times): &(BucketKey, u32)| {
        under_way.get(slots).copied().unwrap_or_default() < CONCURRENT_OF_ADDRESS * times
    };
    let has_all = slots.iter().all(has_one);
    if has_all {
        for (slots, _) in slots {
            *under_way.entry(slots.clone()).or_default() += 1;
        }
    }
    has_all
}

/// Releases one of each of these slots.
fn free(under_way: &mut BTreeMap<BucketKey, u32>, slots: &[(BucketKey, u32)]) {
    for (slots, _) in slots {
        decrement(under_way, slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_an_address_and_all_without_one_have_slots_of_their_own() {
        let of = |address: Option<&str>| {
            let requester = address.map(|address| Requester::at(address.parse().unwrap()));
            concurrency_buckets(None, requester)
        };
        let publisher = |name: &str| concurrency_buckets(Some(&name.into()), None);
        for (one, other, count) in [
            (publisher("one"), publisher("other"), 64),
            (of(None), of(Some("2001:db8::1")), 64),
            (of(Some("203.0.113.1")), of(Some("203.0.113.2")), 4),
        ] {
            let mut under_way = BTreeMap::new();
            for _ in 0..count {
                assert!(occupy(&mut under_way, &one));
            }
            assert!(!occupy(&mut under_way, &one));
            assert!(occupy(&mut under_way, &other));
            free(&mut under_way, &one);
            assert!(occupy(&mut under_way, &one));
            (0..count).for_each(|_| free(&mut under_way, &one));
            free(&mut under_way, &other);
            assert!(under_way.is_empty());
        }
        // The /48 of a customer has four times as many.
        let mut under_way = BTreeMap::new();
        let customer = (0..1_000).map(|number| of(Some(&format!("2001:db8:0:{number:x}::1"))));
        let occupied = customer.filter(|networks| occupy(&mut under_way, networks));
        assert_eq!(occupied.count(), 16);
    }
}

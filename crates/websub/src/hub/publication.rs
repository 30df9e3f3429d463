//! Publications: who may send them, what is wrong with them, and the publishers of a hub for many Sources as operators see
//! them (Framework Notification 1.0.1 section 4.1).

#[cfg(feature = "hub")]
pub mod http;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use resourcesync::payload::PAYLOAD_TYPE;
use resourcesync::uri::{Hub, Topic, Uri, has_valid_chars};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::{Url, form_urlencoded};

use crate::headers::{FORM_TYPE, Links, form_value, media_type};
use crate::hub::admission::LimitExceeded;
use crate::hub::published_topics::PublishedTopics;
use crate::secret::Secret;

/// Body of the answer of a hub for many publishers to a `GET`.
pub const PUBLIC_HUB_GREETING: &str =
    "this is a WebSub hub: POST a subscription form, or a notification as a publisher\n";

/// The value of `hub.mode` that asks if a publication would be accepted, and publishes nothing.
pub const CHECK_MODE: &str = "check";

/// The reason for which a publication is refused. The text is for the publisher.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each says it")]
pub enum PublicationRefusal {
    #[error("the topic is missing: name it by a Link header with rel=\"self\", or by hub.topic")]
    NoTopic,
    #[error("the topic is not an absolute http or https URI with a host")]
    NoHost,
    #[error("the topic has dot segments (. or ..) in its path: write it without")]
    DotSegments,
    #[error(
        "the topic has credentials, a fragment, or characters that no URI has, or more than 2000 bytes"
    )]
    TopicUri,
    #[error("the Link headers and hub.topic name different topics: exactly one is expected")]
    TwoTopics,
    #[error("the body is empty: a notification is expected")]
    Empty,
    #[error("a bearer token is needed: send the publisher's own as Authorization: Bearer …")]
    NoToken,
    #[error("no publisher of this hub has this bearer token")]
    UnknownToken,
    #[error("this publisher may not publish {0}: it lies outside the configured prefixes")]
    Outside(Topic),
    #[error(
        "{0} does not name this hub: its Link header needs rel=\"hub\" with this hub's URI, and no rel=\"self\" but \
         its own"
    )]
    OtherHub(Topic),
    #[error("this publisher has {0} topics on this hub, and may not have more")]
    TooManyTopics(usize),
    #[error("cannot find out if {topic} names this hub ({reason}); try again later")]
    Unverified { topic: Topic, reason: String },
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the body has a Content-Encoding: send it without")]
    Encoded,
    #[error("a notification is {PAYLOAD_TYPE}, and a subscription or ping is {FORM_TYPE}")]
    MediaType,
    #[error("too many publications: at most {per_minute} a minute")]
    TooMany {
        per_minute: u32,
        retry_after: Duration,
    },
    #[error("too many publications in progress at a time; try again later")]
    Busy,
    #[error("the hub cannot save at the moment; try again later")]
    Unsaved,
    #[error(transparent)]
    Limit(LimitExceeded),
    #[error("{words}")]
    Unread { status: u16, words: &'static str },
}

/// `Retry-After` where publications are in progress.
const SOON: Duration = Duration::from_secs(1);
/// `Retry-After` where this hub, or the topic, has a temporary problem.
const LATER: Duration = Duration::from_secs(30);

impl PublicationRefusal {
    /// Returns the HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            PublicationRefusal::NoTopic
            | PublicationRefusal::NoHost
            | PublicationRefusal::DotSegments
            | PublicationRefusal::TopicUri
            | PublicationRefusal::TwoTopics
            | PublicationRefusal::Empty => 400,
            PublicationRefusal::NoToken | PublicationRefusal::UnknownToken => 401,
            PublicationRefusal::Outside(_)
            | PublicationRefusal::OtherHub(_)
            | PublicationRefusal::TooManyTopics(_) => 403,
            PublicationRefusal::TooLarge(_) => 413,
            PublicationRefusal::MediaType | PublicationRefusal::Encoded => 415,
            PublicationRefusal::TooMany { .. } | PublicationRefusal::Busy => 429,
            PublicationRefusal::Unverified { .. } | PublicationRefusal::Unsaved => 503,
            PublicationRefusal::Limit(exceeded) => exceeded.status(),
            PublicationRefusal::Unread { status, .. } => *status,
        }
    }

    /// Returns the time after which the same publication may succeed.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            PublicationRefusal::TooMany { retry_after, .. } => Some(*retry_after),
            PublicationRefusal::Limit(exceeded) => Some(exceeded.retry_after),
            PublicationRefusal::Busy => Some(SOON),
            PublicationRefusal::Unverified { .. } | PublicationRefusal::Unsaved => Some(LATER),
            _ => None,
        }
    }
}

/// Returns true if a body of this content type is a notification.
pub fn is_notification(content_type: &str) -> bool {
    media_type(content_type).eq_ignore_ascii_case(PAYLOAD_TYPE)
}

/// Returns true if a `Content-Encoding` names none.
pub fn is_unencoded(content_encoding: &str) -> bool {
    let mut codings = content_encoding.split(',').map(str::trim);
    codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case("identity"))
}

/// Refuses a notification whose links name hubs, and not this one.
///
/// # Errors
/// 403.
pub fn refuse_other_hub(topic: &Topic, links: &Links, hub: &Hub) -> Result<(), PublicationRefusal> {
    let mut hubs = links.hubs.iter();
    if links.hubs.is_empty() || hubs.any(|named| named == hub.as_str()) {
        return Ok(());
    }
    Err(PublicationRefusal::OtherHub(topic.clone()))
}

/// Returns the topic that the `Link` headers name as `self`, or the query as `hub.topic` or `hub.url`.
///
/// # Errors
/// 400 without a topic, with two different ones, or with one that is no plain URI.
pub fn published_topic(links: &Links, query: Option<&str>) -> Result<Topic, PublicationRefusal> {
    let by_link = links.self_links.iter().map(Cow::from);
    let by_query = form_urlencoded::parse(query.unwrap_or_default().as_bytes())
        .filter(|(name, value)| matches!(&**name, "hub.topic" | "hub.url") && !value.is_empty())
        .map(|(_, value)| value);
    let mut named = by_link.chain(by_query);
    let topic = named.next().ok_or(PublicationRefusal::NoTopic)?;
    if named.any(|other| other != topic) {
        return Err(PublicationRefusal::TwoTopics);
    }
    checked_topic(&topic)
}

/// Returns the target of `rel="resourcesync"`.
pub fn capability_list(links: &Links) -> Option<Uri> {
    let mut lists = links.capability_lists.iter();
    let list = lists.find_map(|list| Uri::parse(list).ok());
    list.filter(|list| has_valid_chars(list.as_str()))
}

/// Request of a form to the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubFormRequest {
    /// To subscribe or unsubscribe, or anything else.
    Subscription,
    /// To fetch topics; or of a check, to say if a publication of them would be accepted.
    Publish {
        /// The topics.
        topics: Vec<Topic>,
        /// True if nothing is to be published.
        is_check: bool,
    },
}

/// Reads the mode and the topics of a form. Those that publish name topics by `hub.url` or `hub.topic`, each any number
/// of times.
///
/// # Errors
/// 400 without a topic, or with one that is no plain URI.
pub fn form_request(form: &[u8]) -> Result<HubFormRequest, PublicationRefusal> {
    let is_check = match form_value(form, "hub.mode").as_deref() {
        Some("publish") => false,
        Some(CHECK_MODE) => true,
        _ => return Ok(HubFormRequest::Subscription),
    };
    let mut topics = Vec::new();
    for (name, value) in form_urlencoded::parse(form) {
        if matches!(&*name, "hub.url" | "hub.topic") && !value.is_empty() {
            let topic = checked_topic(&value)?;
            if !topics.contains(&topic) {
                topics.push(topic);
            }
        }
    }
    if topics.is_empty() {
        Err(PublicationRefusal::NoTopic)
    } else {
        Ok(HubFormRequest::Publish { topics, is_check })
    }
}

/// Returns the token of an `Authorization` header, if it has one.
pub fn bearer_token(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The maximum length of a topic, as of callbacks.
const TOPIC_BYTES: usize = 2_000;

/// A publisher, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publisher {
    /// Its name in reports and metrics.
    pub name: Arc<str>,
    /// The prefixes, each ending in `/`, below which it may publish.
    pub topics: Vec<Uri>,
    /// The bearer token that it has to send, if any.
    pub token: Option<Secret>,
    /// True if the `Link` of a topic has to name this hub.
    pub verify_topic: bool,
    /// Networks that its topics may be in although they are not public, or belong to this machine.
    pub topic_networks: Vec<IpNet>,
}

/// All publishers. The prefixes of two of them never overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Publishers(pub Vec<Publisher>);

impl Publisher {
    /// Returns true if the topic lies below one of its prefixes.
    pub fn may_publish(&self, topic: &Topic) -> bool {
        let Ok(uri) = Uri::parse(topic.as_str()) else {
            return false;
        };
        self.topics.iter().any(|prefix| uri.is_below(prefix))
    }
}

impl Publishers {
    /// Returns the publisher below whose prefixes a topic lies.
    pub fn of_topic(&self, topic: &Topic) -> Option<&Publisher> {
        self.0.iter().find(|publisher| publisher.may_publish(topic))
    }

    /// Returns the publisher whose token this is. Takes the same time for any token.
    pub fn with_token(&self, token: &str) -> Option<&Publisher> {
        let given: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        self.0.iter().fold(None, |found, publisher| {
            let is_same = publisher.token.as_ref().is_some_and(|token| {
                let own: [u8; 32] = Sha256::digest(token.reveal().as_bytes()).into();
                let pairs = own.iter().zip(&given);
                pairs.fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
            });
            if is_same { Some(publisher) } else { found }
        })
    }

    /// Finds who publishes a topic, which itself may still have to be verified. `token` is the bearer token of the
    /// request, if it has one.
    ///
    /// # Errors
    /// 401 without the credentials that the topic needs, and with a token that nobody has; 403 for a topic that is not the
    /// publisher's.
    pub fn authorize(
        &self,
        topic: &Topic,
        token: Option<&str>,
    ) -> Result<&Publisher, PublicationRefusal> {
        let outside = || PublicationRefusal::Outside(topic.clone());
        if let Some(token) = token {
            let publisher = self
                .with_token(token)
                .ok_or(PublicationRefusal::UnknownToken)?;
            let may_publish = publisher.may_publish(topic);
            return may_publish.then_some(publisher).ok_or_else(outside);
        }
        match self.of_topic(topic) {
            Some(publisher) if publisher.token.is_none() => Ok(publisher),
            Some(_) => Err(PublicationRefusal::NoToken),
            // A stranger learns no prefix that is guarded by a token.
            None if self.0.iter().any(|publisher| publisher.token.is_some()) => {
                Err(PublicationRefusal::NoToken)
            }
            None => Err(outside()),
        }
    }
}

/// Checks the URI of a topic, which is kept byte for byte.
///
/// # Errors
/// 400: it is no http or https URI with a host, or has dot segments, credentials or a fragment.
pub fn checked_topic(text: &str) -> Result<Topic, PublicationRefusal> {
    let url = Url::parse(text).ok();
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    // `http:/path` and `http:path` have a host by the rules of browsers only.
    let has_authority = text
        .split_once("://")
        .is_some_and(|(_, rest)| !rest.is_empty() && !rest.starts_with(['/', '?', '#']));
    let Some(url) = url.filter(|url| is_web(url) && has_authority) else {
        return Err(PublicationRefusal::NoHost);
    };
    let is_plain = url.username().is_empty() && url.password().is_none() && !text.contains('#');
    if !is_plain || !has_valid_chars(text) || text.contains('\\') || text.len() > TOPIC_BYTES {
        return Err(PublicationRefusal::TopicUri);
    }
    if has_dot_segments(text) {
        return Err(PublicationRefusal::DotSegments);
    }
    Ok(Topic::new(text))
}

/// Returns true if the path has a segment `.` or `..`, percent-encoded or not: below which prefix it lies depends on who
/// resolves it.
fn has_dot_segments(text: &str) -> bool {
    let address = text.split(['?', '#']).next().unwrap_or_default();
    let path = address.split_once("://").map_or(address, |(_, rest)| rest);
    let decoded: Vec<u8> = percent_encoding::percent_decode_str(path).collect();
    decoded
        .split(|byte| matches!(byte, b'/' | b'\\'))
        .skip(1)
        .any(|segment| matches!(segment, b"." | b".."))
}

/// Maximum unknown tokens that are counted each: strangers can send any number.
const MAX_TOKENS: usize = 10;
/// The time after which one that is not sent any more gives its place to another.
const TOKEN_AGE: SignedDuration = SignedDuration::from_hours(24);
/// Maximum characters that are shown of a token.
const TOKEN_CHARS: usize = 6;
/// Stands for the tokens beyond the maximum.
const OTHER_TOKENS: &str = "others";

/// The counts of one publisher since the daemon began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublisherCounts {
    /// Accepted, repeats included.
    pub accepted: u64,
    /// Accepted and not relayed, because the body was the topic's last one, or the fetched content had not changed.
    pub repeated: u64,
    /// Refused for any other reason than their number.
    pub refused: u64,
    /// Refused because there were too many.
    pub limited: u64,
    /// Attempts to fetch a topic that failed.
    pub failed_fetches: u64,
    /// The last publication that was refused, or could not be fetched.
    pub last_refusal: Option<LastRefusal>,
}

/// The last publication that was refused, or could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRefusal {
    /// The time.
    pub at: Timestamp,
    /// The reason in words.
    pub reason: String,
}

impl PublisherCounts {
    /// Counts a publication that is saved.
    pub fn count_accepted(&mut self, is_repeat: bool) {
        self.accepted += 1;
        self.repeated += u64::from(is_repeat);
    }

    /// Counts a publication that is refused, with the reason for the hub's operator.
    pub fn count_refused(&mut self, refusal: &PublicationRefusal, reason: String, now: Timestamp) {
        match refusal {
            PublicationRefusal::TooMany { .. } | PublicationRefusal::Busy => self.limited += 1,
            _ => self.refused += 1,
        }
        self.last_refusal = Some(LastRefusal { at: now, reason });
    }

    /// Counts a failed attempt to fetch a topic.
    pub fn count_failed_fetch(&mut self, reason: String, now: Timestamp) {
        self.failed_fetches += 1;
        self.last_refusal = Some(LastRefusal { at: now, reason });
    }
}

/// Requests with a token that no publisher has, since the daemon began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownTokenCount {
    /// The beginning of the token, at most a quarter of it.
    pub token: String,
    /// Number of these requests.
    pub times: u64,
    /// Time of the last one.
    pub last: Timestamp,
    /// The publisher whose topic the last one named.
    pub publisher: Option<String>,
}

/// Counts a request with a token that no publisher has.
pub fn count_unknown_token(
    tokens: &mut Vec<UnknownTokenCount>,
    token: &str,
    publisher: Option<&Publisher>,
    now: Timestamp,
) {
    let length = TOKEN_CHARS.min(token.chars().count() / 4);
    let mut shown: String = token.chars().take(length).collect();
    shown.push('…');
    if tokens.len() >= MAX_TOKENS && tokens.iter().all(|it| it.token != shown) {
        let is_old = |it: &UnknownTokenCount| {
            it.token != OTHER_TOKENS && now.duration_since(it.last) > TOKEN_AGE
        };
        match tokens.iter().position(is_old) {
            Some(at) => drop(tokens.remove(at)),
            None => OTHER_TOKENS.clone_into(&mut shown),
        }
    }
    let before = tokens.iter().position(|it| it.token == shown);
    let before = before.map_or(0, |at| tokens.remove(at).times);
    tokens.push(UnknownTokenCount {
        token: shown,
        times: before + 1,
        last: now,
        publisher: publisher.map(|publisher| publisher.name.to_string()),
    });
}

/// A publisher with its counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublisherView {
    /// Name of the publisher.
    pub name: String,
    /// The prefixes below which it may publish.
    pub topics: Vec<String>,
    /// True if it authenticates by a bearer token.
    pub token: bool,
    /// True if its topics have to name this hub.
    pub verify_topic: bool,
    /// The number of topics that it has published.
    pub published_topics: usize,
    /// The time of its last publication that was no repeat.
    pub published: Option<Timestamp>,
    /// Topics that were pinged and not fetched yet.
    pub waiting_fetches: usize,
    /// Its counts.
    #[serde(flatten)]
    pub counts: PublisherCounts,
}

/// Returns the views of all publishers, with the figures of their topics.
pub fn views<'a>(
    publishers: impl Iterator<Item = (&'a Publisher, PublisherCounts)>,
    topics: &PublishedTopics,
) -> Vec<PublisherView> {
    let views = publishers.map(|(publisher, counts)| PublisherView {
        name: publisher.name.to_string(),
        topics: publisher.topics.iter().map(ToString::to_string).collect(),
        token: publisher.token.is_some(),
        verify_topic: publisher.verify_topic,
        published_topics: 0,
        published: None,
        waiting_fetches: 0,
        counts,
    });
    let mut views: Vec<PublisherView> = views.collect();
    for published in topics.topics().values() {
        let view = views
            .iter_mut()
            .find(|view| view.name == published.publisher);
        if let Some(view) = view {
            view.published_topics += usize::from(published.seq > 0);
            view.waiting_fetches += usize::from(published.pinged.is_some());
            if published.seq > 0 {
                view.published = view.published.max(Some(published.published));
            }
        }
    }
    views
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::headers::is_form;

    fn publishers() -> Publishers {
        let publisher = |name: &str, prefix: &str, token: Option<&str>| Publisher {
            topic_networks: Vec::new(),
            name: name.into(),
            topics: vec![Uri::parse(prefix).unwrap()],
            token: token.map(Secret::new),
            verify_topic: token.is_none(),
        };
        Publishers(vec![
            publisher("library", "https://library.example/", Some("books")),
            publisher("archive", "https://archive.example/r/", Some("boxes")),
            publisher("open", "https://open.example/", None),
        ])
    }

    fn answer(topic: &str, token: Option<&str>) -> Result<String, u16> {
        let publishers = publishers();
        let found = publishers
            .authorize(&Topic::new(topic), token)
            .map(|publisher| publisher.name.to_string());
        found.map_err(|refusal| refusal.status())
    }

    #[test]
    fn a_publisher_is_who_has_the_token_and_the_prefix() {
        for (topic, token, want) in [
            ("https://library.example/a", Some("books"), Ok("library")),
            (
                "HTTPS://Library.example:443/a",
                Some("books"),
                Ok("library"),
            ),
            (
                "https://archive.example/r/a?b",
                Some("boxes"),
                Ok("archive"),
            ),
            ("https://open.example/a", None, Ok("open")),
            ("https://library.example/a", None, Err(401)),
            ("https://library.example/a", Some("book"), Err(401)),
            ("https://library.example/a", Some(""), Err(401)),
            ("https://open.example/a", Some("wrong"), Err(401)),
            ("https://library.example/a", Some("boxes"), Err(403)),
            ("https://open.example/a", Some("books"), Err(403)),
            ("https://archive.example/rest", Some("boxes"), Err(403)),
            ("https://library.example.evil/a", Some("books"), Err(403)),
            ("http://library.example/a", Some("books"), Err(403)),
            ("https://nobody.example/a", None, Err(401)),
        ] {
            let want = want.map(str::to_owned);
            assert_eq!(answer(topic, token), want, "{topic} {token:?}");
        }
        // No publisher has a token.
        let publishers = Publishers(publishers().0.split_off(2));
        let refused = publishers.authorize(&Topic::new("https://nobody.example/a"), None);
        assert_eq!(refused.map(drop).unwrap_err().status(), 403);
    }

    #[rstest]
    #[case("https://e.org/a/b?c=../d", Ok(()))]
    #[case("https://e.org", Ok(()))]
    #[case("https://e.org/a..b/...", Ok(()))]
    #[case("https://e.org/a//b", Ok(()))]
    #[case("https://e.org/a/../b", Err(PublicationRefusal::DotSegments))]
    #[case("https://e.org/a/..", Err(PublicationRefusal::DotSegments))]
    #[case("https://e.org/./b", Err(PublicationRefusal::DotSegments))]
    #[case("https://e.org/a/%2e%2E/b", Err(PublicationRefusal::DotSegments))]
    #[case("https://e.org/a%2f..%2fb", Err(PublicationRefusal::DotSegments))]
    #[case("https://e.org/a\\..\\b", Err(PublicationRefusal::TopicUri))]
    #[case("https://u@e.org/", Err(PublicationRefusal::TopicUri))]
    #[case("https://e.org/#a", Err(PublicationRefusal::TopicUri))]
    #[case("https://e.org/a b", Err(PublicationRefusal::TopicUri))]
    #[case("/topics/a", Err(PublicationRefusal::NoHost))]
    #[case("topics", Err(PublicationRefusal::NoHost))]
    #[case("https:///a", Err(PublicationRefusal::NoHost))]
    #[case("http:a", Err(PublicationRefusal::NoHost))]
    #[case("urn:a:b", Err(PublicationRefusal::NoHost))]
    #[case("file:///etc/passwd", Err(PublicationRefusal::NoHost))]
    #[case("", Err(PublicationRefusal::NoHost))]
    fn a_topic_is_a_plain_uri_with_a_host(
        #[case] text: &str,
        #[case] want: Result<(), PublicationRefusal>,
    ) {
        let checked = checked_topic(text);
        assert_eq!(checked.map(|topic| assert_eq!(topic.as_str(), text)), want);
    }

    const TOPIC: &str = "https://e.org/t";

    #[rstest]
    #[case("application/xml", false, true)]
    #[case("Application/XML ; charset=utf-8", false, true)]
    #[case("application/x-www-form-urlencoded", true, false)]
    #[case("application/x-www-form-urlencoded;charset=utf-8", true, false)]
    #[case("text/xml", false, false)]
    #[case("application/json", false, false)]
    #[case("", false, false)]
    fn a_request_is_a_form_or_a_notification(
        #[case] content_type: &str,
        #[case] form: bool,
        #[case] notification: bool,
    ) {
        assert_eq!(is_form(content_type), form);
        assert_eq!(is_notification(content_type), notification);
    }

    #[test]
    fn an_encoded_notification_is_not_plain() {
        for encoding in ["", "identity", "Identity, "] {
            assert!(is_unencoded(encoding), "{encoding}");
        }
        for encoding in ["gzip", "br", "identity, gzip"] {
            assert!(!is_unencoded(encoding), "{encoding}");
        }
    }

    #[test]
    fn the_topic_is_in_the_link_or_in_the_query() {
        let own = "<https://e.org/t>; rel=self";
        let both = "<https://e.org/t>; rel=self, <https://e.org/u>; rel=self";
        let two = || Err(PublicationRefusal::TwoTopics);
        for (headers, query, want) in [
            (&["<https://e.org/t>; rel=\"self\""][..], "", Ok(())),
            (&["<https://h/>; rel=hub", own], "", Ok(())),
            (&[own, "<https://e.org/t>; rel=\"self\""], "", Ok(())),
            (
                &[],
                "hub.mode=publish&hub.topic=https%3A%2F%2Fe.org%2Ft",
                Ok(()),
            ),
            (&[], "hub.url=https://e.org/t", Ok(())),
            (&[own], "hub.topic=https://e.org/t", Ok(())),
            (&[own], "hub.topic=https://e.org/u", two()),
            (&[both], "", two()),
            (
                &[],
                "hub.topic=https://e.org/t&hub.url=https://e.org/u",
                two(),
            ),
            (
                &["<https://h/>; rel=hub"],
                "hub.topic=",
                Err(PublicationRefusal::NoTopic),
            ),
            (&["</t>; rel=self"], "", Err(PublicationRefusal::NoHost)),
        ] {
            let query = (!query.is_empty()).then_some(query);
            let read = published_topic(&Links::parse(headers), query)
                .map(|topic| assert_eq!(topic.as_str(), TOPIC));
            assert_eq!(read, want, "{headers:?} {query:?}");
        }
    }

    #[rstest]
    #[case("", Ok(()))]
    #[case(", <https://hub.example/>; rel=\"hub\"", Ok(()))]
    #[case(", <https://other.example/>; rel=hub, <https://hub.example/>; rel=hub", Ok(()))]
    #[case(", <https://other.example/>; rel=\"hub\"", Err(403))]
    #[case(", <https://hub.example>; rel=\"hub\"", Err(403))]
    fn links_that_name_other_hubs_only_are_refused(
        #[case] hubs: &str,
        #[case] want: Result<(), u16>,
    ) {
        let links = Links::parse([format!("<{TOPIC}>; rel=\"self\"{hubs}")]);
        let hub = Hub::new("https://hub.example/");
        let verified = refuse_other_hub(&Topic::new(TOPIC), &links, &hub);
        assert_eq!(verified.map_err(|refusal| refusal.status()), want);
    }

    #[test]
    fn the_capability_list_is_kept_where_it_can_stand_in_a_header() {
        for (header, want) in [
            (
                "<https://e.org/cl.xml>; rel=\"resourcesync\"",
                Some("https://e.org/cl.xml"),
            ),
            ("<https://e.org/a b>; rel=\"resourcesync\"", None),
            ("<cl.xml>; rel=\"resourcesync\"", None),
            ("<https://e.org/cl.xml>; rel=\"hub\"", None),
        ] {
            let list = capability_list(&Links::parse([header]));
            assert_eq!(list.as_ref().map(Uri::as_str), want, "{header}");
        }
    }

    #[test]
    fn a_form_subscribes_pings_or_asks() {
        let named = "hub.url=https://e.org/t&hub.topic=https://e.org/t&hub.url=https://e.org/u";
        let publish = |is_check| {
            let topics = [TOPIC, "https://e.org/u"].map(Topic::new).into();
            Ok(HubFormRequest::Publish { topics, is_check })
        };
        let dotted = "hub.mode=publish&hub.url=https://e.org/../t";
        for (form, want) in [
            ("hub.mode=subscribe", Ok(HubFormRequest::Subscription)),
            ("", Ok(HubFormRequest::Subscription)),
            (&format!("hub.mode=publish&{named}"), publish(false)),
            (&format!("hub.mode=check&{named}"), publish(true)),
            ("hub.mode=publish", Err(PublicationRefusal::NoTopic)),
            (dotted, Err(PublicationRefusal::DotSegments)),
        ] {
            assert_eq!(form_request(form.as_bytes()), want, "{form}");
        }
    }

    #[rstest]
    #[case("Bearer abc", Some("abc"))]
    #[case(" bearer  abc ", Some("abc"))]
    #[case("Basic abc", None)]
    #[case("Bearer", None)]
    fn a_token_stands_behind_bearer(#[case] header: &str, #[case] want: Option<&str>) {
        assert_eq!(bearer_token(header), want);
    }

    #[test]
    fn unknown_tokens_are_counted_by_their_beginnings_and_are_few() {
        let mut tokens = Vec::new();
        let mut count = |token: &str, seconds| {
            count_unknown_token(
                &mut tokens,
                token,
                None,
                Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds),
            );
            let last = tokens.last().unwrap();
            (last.token.clone(), last.times, tokens.len())
        };
        let counted = |token: &str, times, tokens| (token.to_owned(), times, tokens);
        let long = "0123456789abcdef0123456789abcdef";
        for (token, want) in [
            (long, counted("012345…", 1, 1)),
            (long, counted("012345…", 2, 1)),
            ("books", counted("b…", 1, 2)),
            ("", counted("…", 1, 3)),
        ] {
            assert_eq!(count(token, 0), want, "{token}");
        }
        for number in 3..10 {
            count(&format!("{number}{long}"), 1);
        }
        assert_eq!(count("xxxx", 2), counted("others", 1, 11));
        assert_eq!(count("yyyy", 3), counted("others", 2, 11));
        // The first of them was not sent for a day.
        assert_eq!(count("zzzz", 24 * 3_600 + 1), counted("z…", 1, 11));
    }
}

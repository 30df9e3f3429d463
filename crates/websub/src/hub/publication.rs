//! Publications: what a publisher sends, what is wrong with it, and which of them are repeats (Framework Notification 1.0.1
//! section 4.1).

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::payload::PAYLOAD_TYPE;
use resourcesync::uri::{Hub, Topic, Uri};
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use crate::headers::{FORM_TYPE, Links, form_value, is_form, media_type};
use crate::hub::limits::LimitExceeded;
use crate::hub::publisher::checked_topic;

#[cfg(feature = "hub")]
pub mod http;

/// Body of the answer of a hub for many publishers to a `GET`.
pub const PUBLIC_HUB_GREETING: &str =
    "this is a WebSub hub: POST a subscription form, or a notification as a publisher\n";

/// The value of `hub.mode` that asks if a publication would be accepted, and publishes nothing.
pub const CHECK_MODE: &str = "check";

/// The kind of a request to the hub, by its `Content-Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// A subscription, a ping or a check.
    Form,
    /// A notification.
    Content,
}

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
    #[error("this publisher may not publish {topic}: it lies outside the configured prefixes")]
    Outside { topic: Topic },
    #[error(
        "{topic} does not name this hub: its Link header needs rel=\"hub\" with this hub's URI, and no rel=\"self\" but \
         its own"
    )]
    OtherHub { topic: Topic },
    #[error("this publisher has {max} topics on this hub, and may not have more")]
    TooManyTopics { max: usize },
    #[error("cannot find out if {topic} names this hub ({reason}); try again later")]
    Unverified { topic: Topic, reason: String },
    #[error("the body is larger than {max} bytes")]
    TooLarge { max: usize },
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
            PublicationRefusal::Outside { .. }
            | PublicationRefusal::OtherHub { .. }
            | PublicationRefusal::TooManyTopics { .. } => 403,
            PublicationRefusal::TooLarge { .. } => 413,
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

/// Returns the kind of a request.
///
/// # Errors
/// 415 for any other content type.
pub fn kind(content_type: Option<&str>) -> Result<BodyKind, PublicationRefusal> {
    match content_type.unwrap_or_default() {
        form if is_form(form) => Ok(BodyKind::Form),
        xml if media_type(xml).eq_ignore_ascii_case(PAYLOAD_TYPE) => Ok(BodyKind::Content),
        _ => Err(PublicationRefusal::MediaType),
    }
}

/// Returns true if a `Content-Encoding` names none.
pub fn is_plain(content_encoding: &str) -> bool {
    let mut codings = content_encoding.split(',').map(str::trim);
    codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case("identity"))
}

/// Refuses a notification whose links name hubs, and not this one.
///
/// # Errors
/// 403.
pub fn verify_hub(topic: &Topic, links: &Links, hub: &Hub) -> Result<(), PublicationRefusal> {
    let mut hubs = links.hubs.iter();
    if links.hubs.is_empty() || hubs.any(|named| named == hub.as_str()) {
        return Ok(());
    }
    Err(PublicationRefusal::OtherHub {
        topic: topic.clone(),
    })
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
    list.filter(Uri::is_clean)
}

/// Request of a form to the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubFormRequest {
    /// To subscribe or unsubscribe, or anything else.
    Subscription,
    /// To fetch these topics.
    Ping(Vec<Topic>),
    /// To say if a publication of these topics would be accepted.
    Check(Vec<Topic>),
}

/// Reads the mode and the topics of a form. Those that publish name topics by `hub.url` or `hub.topic`, each any number
/// of times.
///
/// # Errors
/// 400 without a topic, or with one that is no plain URI.
pub fn form_request(form: &[u8]) -> Result<HubFormRequest, PublicationRefusal> {
    let mode = form_value(form, "hub.mode");
    let request: fn(Vec<Topic>) -> HubFormRequest = match mode.as_deref() {
        Some("publish") => HubFormRequest::Ping,
        Some(CHECK_MODE) => HubFormRequest::Check,
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
        Ok(request(topics))
    }
}

/// Returns the token of an `Authorization` header, if it has one.
pub fn bearer_token(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A topic that was published, with its last notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedTopic {
    /// The topic.
    pub topic: Topic,
    /// The name of the publisher.
    pub publisher: String,
    /// The number of its notifications.
    pub seq: u64,
    /// The last body; none before the first.
    pub digest: Option<BodyDigest>,
    /// The time of the last publication that was no repeat.
    pub published: Timestamp,
    /// The `ETag` of the topic when it was last fetched.
    pub etag: Option<String>,
    /// The time of a ping whose fetch has not succeeded.
    pub pinged: Option<Timestamp>,
}

impl PublishedTopic {
    /// Returns the entry of a topic before its first notification.
    pub fn new(topic: Topic, publisher: &str, now: Timestamp) -> PublishedTopic {
        PublishedTopic {
            topic,
            publisher: publisher.to_owned(),
            seq: 0,
            digest: None,
            published: now,
            etag: None,
            pinged: None,
        }
    }

    /// Ends the wait for a fetch, unless the topic was pinged after the fetch began. Returns true if it ended.
    pub fn end_ping(&mut self, began: Timestamp) -> bool {
        let is_ended = self.pinged.is_some_and(|pinged| pinged <= began);
        if is_ended {
            self.pinged = None;
        }
        is_ended
    }

    /// Returns true if nobody has published it for so long.
    pub fn is_older_than(&self, ttl: Duration, now: Timestamp) -> bool {
        let age = Duration::try_from(now.duration_since(self.published));
        self.pinged.is_none() && age.is_ok_and(|age| age > ttl)
    }
}

/// The digest of a notification's body, by which a repeat is recognised: `until` differs in each notification, so a
/// topic's last body is never its next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyDigest(pub [u8; 32]);

impl BodyDigest {
    /// Returns the digest of a body.
    pub fn of(body: &[u8]) -> BodyDigest {
        BodyDigest(Sha256::digest(body).into())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const TOPIC: &str = "https://e.org/t";

    #[test]
    fn a_request_is_a_form_or_a_notification() {
        let other = || Err(PublicationRefusal::MediaType);
        for (content_type, want) in [
            ("application/xml", Ok(BodyKind::Content)),
            ("Application/XML ; charset=utf-8", Ok(BodyKind::Content)),
            ("application/x-www-form-urlencoded", Ok(BodyKind::Form)),
            (
                "application/x-www-form-urlencoded;charset=utf-8",
                Ok(BodyKind::Form),
            ),
            ("text/xml", other()),
            ("application/json", other()),
            ("", other()),
        ] {
            assert_eq!(kind(Some(content_type)), want, "{content_type}");
        }
        assert_eq!(kind(None), other());
    }

    #[test]
    fn an_encoded_notification_is_not_plain() {
        for encoding in ["", "identity", "Identity, "] {
            assert!(is_plain(encoding), "{encoding}");
        }
        for encoding in ["gzip", "br", "identity, gzip"] {
            assert!(!is_plain(encoding), "{encoding}");
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
            let read = published_topic(&Links::parse(headers), query);
            let read = read.map(|topic| assert_eq!(topic.as_str(), TOPIC));
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
        let verified = verify_hub(&Topic::new(TOPIC), &links, &hub);
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
        let topics = || [TOPIC, "https://e.org/u"].map(Topic::new).into();
        let dotted = "hub.mode=publish&hub.url=https://e.org/../t";
        for (form, want) in [
            ("hub.mode=subscribe", Ok(HubFormRequest::Subscription)),
            ("", Ok(HubFormRequest::Subscription)),
            (
                &format!("hub.mode=publish&{named}"),
                Ok(HubFormRequest::Ping(topics())),
            ),
            (
                &format!("hub.mode=check&{named}"),
                Ok(HubFormRequest::Check(topics())),
            ),
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
    fn a_topic_ages_unless_it_waits_for_a_fetch() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let mut topic = PublishedTopic::new(Topic::new(TOPIC), "p", at("2026-01-01T00:00:00Z"));
        let ttl = Duration::from_secs(24 * 3_600);
        assert!(!topic.is_older_than(ttl, at("2026-01-02T00:00:00Z")));
        assert!(topic.is_older_than(ttl, at("2026-01-02T00:00:01Z")));
        assert!(!topic.is_older_than(ttl, at("2025-01-02T00:00:01Z")));
        topic.pinged = Some(at("2026-01-01T00:00:00Z"));
        assert!(!topic.is_older_than(ttl, at("2027-01-02T00:00:01Z")));
    }
}

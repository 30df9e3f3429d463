//! Submission of notifications to hubs, and the meaning of their answers.
//!
//! Here are the words and the request (R24); [`verdict`] judges an answer, by a [`reason`] if it is not accepted, and
//! [`retry`] says when to try again, and [`hub_queue`] which of a hub's submissions may go (R23); [`attempt`] is what is kept of it, [`redirect`] says where an answer may
//! lead, and [`secret`] keeps what no log may show.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use url::form_urlencoded;

use crate::announce::delivery::retry::asked_for;
use crate::announce::ids::ChannelId;
use crate::announce::plan::Mode;
use crate::resourcesync::uri::{Hub, Topic, Uri, is_clean};

pub mod attempt;
pub mod hub_queue;
pub mod reason;
pub mod redirect;
pub mod retry;
pub mod secret;
pub mod verdict;

/// One attempt to tell one hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    pub channel: ChannelId,
    pub hub: Hub,
    pub mode: Mode,
    /// Counts the notifications of a channel, from 1.
    pub seq: u64,
    pub topic: Topic,
    pub capability_list: Uri,
    /// The payload; a ping sends none of it.
    pub body: Arc<[u8]>,
}

/// The answer to a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Status {
        status: u16,
        content_type: Option<String>,
        retry_after: Option<String>,
        /// The beginning of the body, for reports: a few hundred characters, and of a form as much as decides.
        excerpt: String,
    },
    /// No answer: what failed, on what.
    Failed(String),
}

impl Answer {
    /// Returns the time for which the hub asks to be left alone, within reason (R23).
    pub fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        match self {
            Answer::Status { retry_after, .. } => asked_for(retry_after.as_deref()?, now),
            Answer::Failed(_) => None,
        }
    }

    /// Returns true if the hub may have taken the notification all the same: a gateway before it may have answered.
    pub fn leaves_doubt(&self) -> bool {
        match self {
            Answer::Status { status, .. } => matches!(status, 500 | 502 | 504),
            Answer::Failed(_) => true,
        }
    }
}

/// The content of a topic URI (R25 and the contract).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPage {
    pub topic: Topic,
    pub capability_list: Uri,
    pub hubs: Vec<Hub>,
    /// Empty before the first notification, if no ping hub is told.
    pub body: Arc<[u8]>,
    /// True if a fetch must be reported to the engine, because a ping hub is told.
    pub report_fetches: bool,
}

/// The content type of every payload, exactly: some hubs refuse a `charset`.
pub const PAYLOAD_TYPE: &str = "application/xml";
/// The content type of a form.
pub const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// A `POST`, before anything the operator adds to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubRequest {
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Arc<[u8]>,
}

/// Returns the request for a submission to a hub that takes it at `publish_url` (R24).
pub fn request(submission: &Submission, publish_url: &str) -> HubRequest {
    let topic = submission.topic.as_str();
    match submission.mode {
        Mode::Content | Mode::Embedded => HubRequest {
            url: publish_url.to_owned(),
            headers: payload_headers(submission),
            body: Arc::clone(&submission.body),
        },
        Mode::ContentQuery => HubRequest {
            url: with_parameters(
                publish_url,
                &[("hub.mode", "publish"), ("hub.topic", topic)],
            ),
            headers: payload_headers(submission),
            body: Arc::clone(&submission.body),
        },
        Mode::Ping => HubRequest {
            url: publish_url.to_owned(),
            headers: vec![("Content-Type", FORM_TYPE.to_owned())],
            body: form(&[
                ("hub.mode", "publish"),
                ("hub.url", topic),
                ("hub.topic", topic),
            ])
            .into_bytes()
            .into(),
        },
    }
}

/// Returns the `Link` header of a topic, and of every notification of it: one line, no space before `;`, which some
/// readers reject. What would break the header is left out (R8).
pub fn link_header(topic: &Topic, hubs: &[Hub], capability_list: Option<&Uri>) -> String {
    let itself = std::iter::once((topic.as_str(), "self"));
    let hubs = hubs.iter().map(|hub| (hub.as_str(), "hub"));
    let list = capability_list.map(|list| (list.as_str(), "resourcesync"));
    itself
        .chain(hubs)
        .chain(list)
        .filter(|(uri, _)| is_clean(uri))
        .map(|(uri, relation)| format!("<{uri}>; rel=\"{relation}\""))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns `url` with parameters after its own query, which stays as it is.
pub fn with_parameters(url: &str, parameters: &[(&str, &str)]) -> String {
    let url = url.split('#').next().unwrap_or(url);
    let join = match url.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some((_, query)) if query.ends_with('&') => "",
        Some(_) => "&",
    };
    format!("{url}{join}{}", form(parameters))
}

/// Returns name-value pairs, urlencoded.
pub fn form(parameters: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish()
}

fn payload_headers(submission: &Submission) -> Vec<(&'static str, String)> {
    let hub = std::slice::from_ref(&submission.hub);
    let links = link_header(&submission.topic, hub, Some(&submission.capability_list));
    vec![("Content-Type", PAYLOAD_TYPE.to_owned()), ("Link", links)]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn submission(mode: Mode) -> Submission {
        Submission {
            channel: ChannelId(1),
            hub: Hub::new("https://hub.example.net/websub/"),
            mode,
            seq: 1,
            topic: Topic::new("https://e.org/set 1/?a=b&c".replace(' ', "%20")),
            capability_list: Uri::parse("https://e.org/cl.xml").unwrap(),
            body: b"<urlset/>".as_slice().into(),
        }
    }

    const LINKS: &str = "<https://e.org/set%201/?a=b&c>; rel=\"self\", \
        <https://hub.example.net/websub/>; rel=\"hub\", <https://e.org/cl.xml>; rel=\"resourcesync\"";

    #[test]
    fn content_is_the_payload_with_its_links() {
        for mode in [Mode::Content, Mode::Embedded] {
            let request = request(&submission(mode), "https://inside/publish");
            assert_eq!(request.url, "https://inside/publish");
            assert_eq!(
                request.headers,
                [
                    ("Content-Type", "application/xml".into()),
                    ("Link", LINKS.into())
                ]
            );
            assert_eq!(&*request.body, b"<urlset/>");
        }
    }

    #[test]
    fn a_ping_names_the_topic_twice_and_sends_no_payload() {
        let request = request(&submission(Mode::Ping), "https://hub/");
        assert_eq!(
            request.headers,
            [("Content-Type", "application/x-www-form-urlencoded".into())]
        );
        let topic = "https%3A%2F%2Fe.org%2Fset%25201%2F%3Fa%3Db%26c";
        let want = format!("hub.mode=publish&hub.url={topic}&hub.topic={topic}");
        assert_eq!(&*request.body, want.as_bytes());
    }

    #[rstest]
    #[case("https://hub/p", "https://hub/p?")]
    #[case("https://hub/p?", "https://hub/p?")]
    #[case("https://hub/p?key=%41", "https://hub/p?key=%41&")]
    #[case("https://hub/p?key=1&", "https://hub/p?key=1&")]
    #[case("https://hub/p#part", "https://hub/p?")]
    fn a_content_query_is_put_after_the_url_s_own(#[case] url: &str, #[case] begins: &str) {
        let request = request(&submission(Mode::ContentQuery), url);
        let query = "hub.mode=publish&hub.topic=https%3A%2F%2Fe.org%2Fset%25201%2F%3Fa%3Db%26c";
        assert_eq!(request.url, format!("{begins}{query}"));
        assert_eq!(&*request.body, b"<urlset/>");
    }

    #[test]
    fn a_uri_that_would_break_the_header_is_left_out() {
        let hubs = [
            Hub::new("https://h/a>b"),
            Hub::new("https://h/\r\nX: y"),
            Hub::new("https://h/,;"),
        ];
        let links = link_header(&Topic::new("https://e.org/t"), &hubs, None);
        assert_eq!(
            links,
            "<https://e.org/t>; rel=\"self\", <https://h/,;>; rel=\"hub\""
        );
    }
}

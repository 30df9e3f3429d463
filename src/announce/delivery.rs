//! Submissions to hubs and message brokers, and the meaning of their answers.
//!
//! This file builds the request (R24). [`verdict`] judges an answer, with a [`reason`] if it is not accepted, [`hub_queue`]
//! decides which of a hub's submissions may be sent (R23), [`attempt`] is the part of an answer that is kept, and
//! [`redirect`] decides about redirections.

use std::sync::Arc;

use resourcesync::channel_kind::ChannelKind;
use resourcesync::payload::PAYLOAD_TYPE;
use resourcesync::uri::{Hub, Topic, Uri};

use crate::announce::ids::ChannelId;
use crate::announce::plan::Mode;
use crate::http::form::{FORM_TYPE, encode_form, with_parameters};
use crate::http::link::link_header;

pub mod attempt;
pub mod hub_queue;
pub mod reason;
pub mod redirect;
pub mod verdict;

/// One attempt to tell one hub or broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    pub channel: ChannelId,
    pub hub: Hub,
    pub mode: Mode,
    /// Number of the notification on its channel, from 1.
    pub seq: u64,
    /// The name of the source.
    pub source: String,
    pub kind: ChannelKind,
    pub topic: Topic,
    pub capability_list: Uri,
    /// The payload; a ping sends none of it.
    pub body: Arc<[u8]>,
}

/// The answer of a topic URI (R25 and the contract).
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
        // A broker gets messages, which its adaptor makes of the body.
        Mode::Content | Mode::Embedded | Mode::Broker => HubRequest {
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
            body: encode_form(&[
                ("hub.mode", "publish"),
                ("hub.url", topic),
                ("hub.topic", topic),
            ])
            .into_bytes()
            .into(),
        },
    }
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
            source: "main".to_owned(),
            kind: ChannelKind::Framework,
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
}

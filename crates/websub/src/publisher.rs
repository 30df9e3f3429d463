//! Notifications to hubs, and the meaning of their answers.
//!
//! This file builds the request (R24). [`verdict`] judges an answer, with a [`reason`] if it is not accepted, and
//! [`redirect`] decides about redirections.

use std::sync::Arc;

use resourcesync::payload::PAYLOAD_TYPE;
use resourcesync::uri::{Hub, Topic, Uri};

use crate::form::{FORM_TYPE, encode_form, with_parameters};
use crate::link::link_header;

#[cfg(feature = "publisher")]
pub mod http;
#[cfg(feature = "publisher")]
pub mod preview;
pub mod reason;
pub mod redirect;
#[cfg(feature = "publisher")]
pub mod settings;
pub mod verdict;

/// The way in which a hub is notified (R24).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishMode {
    /// The payload as body, as Framework Notification 1.0.1 section 4.1 says.
    Content,
    /// A form that names the topic, as W3C-style hubs want it.
    Ping,
    /// The payload as body, the topic in the query.
    ContentQuery,
}

/// A notification for one hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubNotification {
    pub hub: Hub,
    pub mode: PublishMode,
    pub topic: Topic,
    pub capability_list: Uri,
    /// The payload; a ping sends none of it.
    pub body: Arc<[u8]>,
}

/// A `POST`, before anything the operator adds to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubRequest {
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Arc<[u8]>,
}

/// Returns the request that notifies a hub which takes notifications at `publish_url` (R24).
pub fn request(notification: &HubNotification, publish_url: &str) -> HubRequest {
    let topic = notification.topic.as_str();
    match notification.mode {
        PublishMode::Content => HubRequest {
            url: publish_url.to_owned(),
            headers: payload_headers(notification),
            body: Arc::clone(&notification.body),
        },
        PublishMode::ContentQuery => HubRequest {
            url: with_parameters(
                publish_url,
                &[("hub.mode", "publish"), ("hub.topic", topic)],
            ),
            headers: payload_headers(notification),
            body: Arc::clone(&notification.body),
        },
        PublishMode::Ping => HubRequest {
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

fn payload_headers(notification: &HubNotification) -> Vec<(&'static str, String)> {
    let hub = std::slice::from_ref(&notification.hub);
    let links = link_header(
        &notification.topic,
        hub,
        Some(&notification.capability_list),
    );
    vec![("Content-Type", PAYLOAD_TYPE.to_owned()), ("Link", links)]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn notification(mode: PublishMode) -> HubNotification {
        HubNotification {
            hub: Hub::new("https://hub.example.net/websub/"),
            mode,
            topic: Topic::new("https://e.org/set 1/?a=b&c".replace(' ', "%20")),
            capability_list: Uri::parse("https://e.org/cl.xml").unwrap(),
            body: b"<urlset/>".as_slice().into(),
        }
    }

    const LINKS: &str = "<https://e.org/set%201/?a=b&c>; rel=\"self\", \
        <https://hub.example.net/websub/>; rel=\"hub\", <https://e.org/cl.xml>; rel=\"resourcesync\"";

    #[test]
    fn content_is_the_payload_with_its_links() {
        let request = request(
            &notification(PublishMode::Content),
            "https://inside/publish",
        );
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

    #[test]
    fn a_ping_names_the_topic_twice_and_sends_no_payload() {
        let request = request(&notification(PublishMode::Ping), "https://hub/");
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
        let request = request(&notification(PublishMode::ContentQuery), url);
        let query = "hub.mode=publish&hub.topic=https%3A%2F%2Fe.org%2Fset%25201%2F%3Fa%3Db%26c";
        assert_eq!(request.url, format!("{begins}{query}"));
        assert_eq!(&*request.body, b"<urlset/>");
    }
}

//! Notifications to hubs, and the meaning of their answers.
//!
//! This file builds the request (R24). [`verdict`] judges an answer, with a [`reason`] if it is not accepted, and decides
//! about redirections.

use std::sync::Arc;

use resourcesync::payload::PAYLOAD_TYPE;
use resourcesync::uri::{Hub, Topic, Uri};
use url::Url;

use crate::headers::{FORM_TYPE, encode_form, link_header, url_with_parameters};

#[cfg(feature = "publisher")]
pub mod http;
pub mod reason;
#[cfg(feature = "publisher")]
pub mod settings;
pub mod verdict;

/// A `POST` that notifies a hub (R24), before its address and anything the operator adds to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubRequest {
    /// The hub.
    pub hub: Hub,
    /// The topic that its query names, for hubs that want that with the payload.
    pub in_query: Option<Topic>,
    /// Header fields.
    pub headers: Vec<(&'static str, String)>,
    /// The payload or form.
    pub body: Arc<[u8]>,
}

impl HubRequest {
    /// Returns the payload with its links, as Framework Notification 1.0.1 section 4.1 says.
    pub fn content(hub: Hub, topic: &Topic, capability_list: &Uri, body: &Arc<[u8]>) -> HubRequest {
        let links = link_header(topic, std::slice::from_ref(&hub), Some(capability_list));
        HubRequest {
            hub,
            in_query: None,
            headers: vec![("Content-Type", PAYLOAD_TYPE.to_owned()), ("Link", links)],
            body: Arc::clone(body),
        }
    }

    /// Returns a form that names the topic, as W3C-style hubs want it.
    pub fn ping(hub: Hub, topic: &Topic) -> HubRequest {
        let topic = topic.as_str();
        let form = [
            ("hub.mode", "publish"),
            ("hub.url", topic),
            ("hub.topic", topic),
        ];
        HubRequest {
            hub,
            in_query: None,
            headers: vec![("Content-Type", FORM_TYPE.to_owned())],
            body: encode_form(&form).into_bytes().into(),
        }
    }

    /// Returns the address of the request to a hub which takes notifications at `publish_url`.
    pub fn url(&self, publish_url: &Url) -> String {
        match &self.in_query {
            None => publish_url.to_string(),
            Some(topic) => url_with_parameters(
                publish_url.as_str(),
                &[("hub.mode", "publish"), ("hub.topic", topic.as_str())],
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn topic() -> Topic {
        Topic::new("https://e.org/set%201/?a=b&c")
    }

    fn hub() -> Hub {
        Hub::new("https://hub.example.net/websub/")
    }

    fn content() -> HubRequest {
        let list = Uri::parse("https://e.org/cl.xml").unwrap();
        HubRequest::content(hub(), &topic(), &list, &b"<urlset/>".as_slice().into())
    }

    const LINKS: &str = "<https://e.org/set%201/?a=b&c>; rel=\"self\", \
        <https://hub.example.net/websub/>; rel=\"hub\", <https://e.org/cl.xml>; rel=\"resourcesync\"";

    #[test]
    fn content_is_the_payload_with_its_links() {
        let request = content();
        let inside = "https://inside/publish";
        assert_eq!(request.url(&inside.parse().unwrap()), inside);
        let kind = ("Content-Type", "application/xml".into());
        assert_eq!(request.headers, [kind, ("Link", LINKS.into())]);
        assert_eq!(&*request.body, b"<urlset/>");
    }

    #[test]
    fn a_ping_names_the_topic_twice_and_sends_no_payload() {
        let request = HubRequest::ping(hub(), &topic());
        let kind = ("Content-Type", "application/x-www-form-urlencoded".into());
        assert_eq!(request.headers, [kind]);
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
        let request = HubRequest {
            in_query: Some(topic()),
            ..content()
        };
        let query = "hub.mode=publish&hub.topic=https%3A%2F%2Fe.org%2Fset%25201%2F%3Fa%3Db%26c";
        let url = request.url(&url.parse().unwrap());
        assert_eq!(url, format!("{begins}{query}"));
        assert_eq!(&*request.body, b"<urlset/>");
    }
}

//! The publishers of a hub for many Sources: the topics that each may publish, and its credentials.

use std::sync::Arc;

use ipnet::IpNet;
use resourcesync::uri::{Topic, Uri, is_clean};
use sha2::{Digest, Sha256};
use url::Url;

use crate::hub::publication::PublicationRefusal;
use crate::secret::Secret;

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
        let outside = || PublicationRefusal::Outside {
            topic: topic.clone(),
        };
        if let Some(token) = token {
            let publisher = self.with_token(token);
            let publisher = publisher.ok_or(PublicationRefusal::UnknownToken)?;
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
    if !is_plain || !is_clean(text) || text.contains('\\') || text.len() > TOPIC_BYTES {
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
    let path = text.split(['?', '#']).next().unwrap_or_default();
    let path = path.split_once("://").map_or(path, |(_, rest)| rest);
    let decoded: Vec<u8> = percent_encoding::percent_decode_str(path).collect();
    decoded
        .split(|byte| matches!(byte, b'/' | b'\\'))
        .skip(1)
        .any(|segment| matches!(segment, b"." | b".."))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

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
        let found = publishers.authorize(&Topic::new(topic), token);
        let found = found.map(|publisher| publisher.name.to_string());
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
}

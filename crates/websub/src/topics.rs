//! Topics, as their URIs answer (R25).

use std::sync::Arc;

use resourcesync::uri::{Hub, Topic, Uri, is_unreserved, unescape_at};

#[cfg(any(feature = "publisher", feature = "hub"))]
pub mod http;

/// Body of the answer for an unknown topic, by which it is recognised.
pub const NO_SUCH_TOPIC: &str = "no such topic\n";

/// Returns a topic with the escapes of unreserved characters decoded, and those of others in capitals, which are the same
/// topic (WebSub section 5.1.1, RFC 3986 section 6.2.2). `a%2Fb` and `a/b` are two.
pub fn normalized(topic: &str) -> String {
    let bytes = topic.as_bytes();
    let mut normalized = Vec::with_capacity(topic.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = unescape_at(bytes, at);
        match escaped {
            None => normalized.push(byte),
            Some(decoded) if is_unreserved(decoded) => normalized.push(decoded),
            Some(decoded) => normalized.extend(format!("%{decoded:02X}").into_bytes()),
        }
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&normalized).into_owned()
}

/// The answer of a topic URI (R25 and the contract).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPage {
    /// The topic.
    pub topic: Topic,
    /// The Capability List of its set.
    pub capability_list: Uri,
    /// The hubs that it is published at.
    pub hubs: Vec<Hub>,
    /// Empty before the first notification, if no ping hub is told.
    pub body: Arc<[u8]>,
    /// True if a fetch must be reported, because a ping hub is told.
    pub report_fetches: bool,
}

#[cfg(test)]
mod tests {
    use super::normalized;

    #[test]
    fn escapes_of_reserved_characters_make_another_topic() {
        for (topic, want) in [
            ("https://e.org/%74%2d%7E", "https://e.org/t-~"),
            ("https://e.org/a%2fb", "https://e.org/a%2Fb"),
            ("https://e.org/%c3%a9?%3f%25", "https://e.org/%C3%A9?%3F%25"),
            ("é%4%zz%", "é%4%zz%"),
        ] {
            assert_eq!(normalized(topic), want);
        }
    }
}

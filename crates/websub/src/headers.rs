//! Header fields and forms: `Link` (RFC 8288), parsed leniently, since servers do not always follow the RFC; `Host` and
//! `Origin`, which tell DNS rebinding and cross-origin requests; URL-encoded forms and query parameters.

// The address alone: `core` has no sockets.
use core::net::IpAddr;

use resourcesync::uri::{Hub, Topic, Uri, has_valid_chars};
use url::form_urlencoded;

/// Returns the `Link` header of a topic and its notifications: one line, no space before `;`, which some readers reject.
/// URIs that would break the header are left out (R8).
pub fn link_header(topic: &Topic, hubs: &[Hub], capability_list: Option<&Uri>) -> String {
    let topic = std::iter::once((topic.as_str(), "self"));
    let hubs = hubs.iter().map(|hub| (hub.as_str(), "hub"));
    let list = capability_list.map(|list| (list.as_str(), "resourcesync"));
    topic
        .chain(hubs)
        .chain(list)
        .filter(|(uri, _)| has_valid_chars(uri))
        .map(|(uri, relation)| format!("<{uri}>; rel=\"{relation}\""))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The targets of `Link` headers by relation, byte for byte, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// Targets of `rel="self"`.
    pub self_links: Vec<String>,
    /// Targets of `rel="hub"`.
    pub hubs: Vec<String>,
    /// Targets of `rel="resourcesync"`.
    pub capability_lists: Vec<String>,
}

impl Links {
    /// Parses the links of all values of a `Link` header. Malformed ones are skipped.
    pub fn parse(values: impl IntoIterator<Item = impl AsRef<str>>) -> Links {
        let mut links = Links::default();
        for value in values {
            let mut rest = value.as_ref();
            while let Some((target, after)) = rest
                .split_once('<')
                .and_then(|(_, from)| from.split_once('>'))
            {
                let (relations, after) = relations(after);
                for (relation, targets) in [
                    ("self", &mut links.self_links),
                    ("hub", &mut links.hubs),
                    ("resourcesync", &mut links.capability_lists),
                ] {
                    let mut relations = relations.split_whitespace();
                    if relations.any(|one| one.eq_ignore_ascii_case(relation)) {
                        targets.push(target.trim().to_owned());
                    }
                }
                rest = after;
            }
        }
        links
    }
}

/// Returns the relation types among a link's parameters, and the text after the link.
fn relations(mut rest: &str) -> (String, &str) {
    // RFC 8288 section 3.3: of several rel parameters the first counts.
    let mut relations = None;
    loop {
        rest = rest.trim_start();
        let Some(parameter) = rest.strip_prefix(';') else {
            return (relations.unwrap_or_default(), rest);
        };
        let end = parameter.find(['=', ';', ',']).unwrap_or(parameter.len());
        let (name, after) = parameter.split_at(end);
        let Some(after) = after.strip_prefix('=') else {
            rest = after;
            continue;
        };
        let (value, after) = parameter_value(after.trim_start());
        if name.trim().eq_ignore_ascii_case("rel") {
            relations.get_or_insert(value);
        }
        rest = after;
    }
}

/// Returns a parameter's value, quoted or not, and the text after it.
fn parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        let (token, rest) = text.split_at(end);
        return (token.trim().to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

/// Returns true if a request with this `Host`, and this `Origin` if it has one, is addressed to a server with these host
/// names. IP addresses and `localhost` always are. Only browsers send `Origin`, with requests that pages make.
pub fn is_addressed_to(hosts: &[String], host: &str, origin: Option<&str>) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let is_own = bare.unwrap_or(name).parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|host| host.eq_ignore_ascii_case(name));
    let is_same = |origin: &str| {
        let rest = origin.split_once("://").map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
    };
    (is_own || name.is_empty()) && origin.is_none_or(is_same)
}

/// Content type of a form.
pub const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// Returns `url` with parameters appended to its own query, which stays as it is.
pub fn url_with_parameters(url: &str, parameters: &[(&str, &str)]) -> String {
    let url = url.split('#').next().unwrap_or(url);
    let join = match url.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some((_, query)) if query.ends_with('&') => "",
        Some(_) => "&",
    };
    format!("{url}{join}{}", encode_form(parameters))
}

/// Returns the first value of a name.
pub fn form_value(form: &[u8], name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(form);
    let (_, value) = pairs.find(|(found, _)| found == name)?;
    Some(value.into_owned())
}

/// Returns a content type without its parameters.
pub fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Returns true if a body of this content type is a form.
pub fn is_form(content_type: &str) -> bool {
    media_type(content_type).eq_ignore_ascii_case(FORM_TYPE)
}

/// Returns URL-encoded name-value pairs.
pub fn encode_form(parameters: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case(&["<a>; rel=\"self\", <b>; rel=\"hub\""], "a", "b")]
    #[case(&["<a>; rel=\"self\"", "<b>;rel=hub"], "a", "b")]
    #[case(&["<a> ; rel=\"self\",\t<b> ; rel = hub"], "a", "b")]
    #[case(&["<a>;rel=self,<b>;rel=hub;type=x"], "a", "b")]
    #[case(&["<http://e/a,b;c>; rel=\"hub\""], "", "http://e/a,b;c")]
    #[case(&["<a>; title=\"x, <y>; rel=hub\"; rel=\"SELF  Hub\""], "a", "a")]
    #[case(&["<a>; title=\"\\\"\"; rel=self; rel=hub"], "a", "")]
    #[case(&["<a>; crossorigin; rel=hub"], "", "a")]
    #[case(&["<a>"], "", "")]
    #[case(&["<a>, , junk <b>; rel=hub,"], "", "b")]
    #[case(&["<a>; rel=\"self"], "a", "")]
    #[case(&["", "rel=hub", "<never ended", ">"], "", "")]
    #[case(&["<a>; rel=self, < b >; rel=\"self\"", "<c>; rel=\"hub hub\""], "a|b", "c")]
    fn links_are_read_as_they_are_written(
        #[case] values: &[&str],
        #[case] self_links: &str,
        #[case] hubs: &str,
    ) {
        let read = Links::parse(values);
        assert_eq!(read.self_links.join("|"), self_links);
        assert_eq!(read.hubs.join("|"), hubs);
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

    proptest! {
        #[test]
        fn any_header_is_parsed(value in "[<>;=,\" \\\\a-cé]{0,40}") {
            Links::parse([value.as_str()]);
        }
    }

    #[rstest]
    #[case("127.0.0.1:8400", None, true)]
    #[case("[::1]:8400", None, true)]
    #[case("192.0.2.7", None, true)]
    #[case("localhost:8400", None, true)]
    #[case("LOCALHOST", None, true)]
    #[case("hub.example:80", None, true)]
    #[case("", None, true)]
    #[case("evil.example", None, false)]
    #[case("evil.example:8400", None, false)]
    #[case("localhost.evil.example:8400", None, false)]
    #[case("127.0.0.1.evil.example", None, false)]
    #[case("127.0.0.1:8400", Some("http://127.0.0.1:8400"), true)]
    #[case("127.0.0.1:8400", Some("http://127.0.0.1:3000"), false)]
    #[case("127.0.0.1:8400", Some("https://evil.example"), false)]
    #[case("127.0.0.1:8400", Some("null"), false)]
    #[case("127.0.0.1:8400", Some(""), false)]
    #[case("evil.example:8400", Some("http://evil.example:8400"), false)]
    fn only_requests_to_our_hosts_and_not_from_pages_of_other_origins_are_accepted(
        #[case] host: &str,
        #[case] origin: Option<&str>,
        #[case] want: bool,
    ) {
        let hosts = ["hub.example".to_owned()];
        assert_eq!(is_addressed_to(&hosts, host, origin), want);
    }
}

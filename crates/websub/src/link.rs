//! `Link` headers (RFC 8288): writes them, and parses them leniently, since servers do not always follow the RFC.

use resourcesync::uri::{Hub, Topic, Uri, is_clean};

/// Returns the `Link` header of a topic and its notifications: one line, no space before `;`, which some readers reject.
/// URIs that would break the header are left out (R8).
pub fn link_header(topic: &Topic, hubs: &[Hub], capability_list: Option<&Uri>) -> String {
    let topic = std::iter::once((topic.as_str(), "self"));
    let hubs = hubs.iter().map(|hub| (hub.as_str(), "hub"));
    let list = capability_list.map(|list| (list.as_str(), "resourcesync"));
    topic
        .chain(hubs)
        .chain(list)
        .filter(|(uri, _)| is_clean(uri))
        .map(|(uri, relation)| format!("<{uri}>; rel=\"{relation}\""))
        .collect::<Vec<_>>()
        .join(", ")
}

/// One link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Target of the link, as written.
    pub target: String,
    /// Relation types, in lower case.
    pub relations: Vec<String>,
}

/// Parses the links of all values of a `Link` header. Malformed ones are skipped.
pub fn parse_links(values: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Link> {
    let values = values.into_iter();
    values.flat_map(|value| links_of(value.as_ref())).collect()
}

/// Returns the targets with a relation type.
pub fn targets<'a>(links: &'a [Link], relation: &str) -> impl Iterator<Item = &'a str> {
    links
        .iter()
        .filter(move |link| link.relations.iter().any(|name| name == relation))
        .map(|link| link.target.as_str())
}

fn links_of(value: &str) -> Vec<Link> {
    let mut links = Vec::new();
    let mut rest = value;
    while let Some((target, after)) = rest
        .split_once('<')
        .and_then(|(_, from)| from.split_once('>'))
    {
        let (relations, after) = parameters(after);
        links.push(Link {
            target: target.trim().to_owned(),
            relations: relations.unwrap_or_default(),
        });
        rest = after;
    }
    links
}

/// Returns the relation types among a link's parameters, and the text after the link.
fn parameters(mut rest: &str) -> (Option<Vec<String>>, &str) {
    // RFC 8288 section 3.3: of several rel parameters the first counts.
    let mut relations = None;
    loop {
        rest = rest.trim_start();
        let Some(parameter) = rest.strip_prefix(';') else {
            return (relations, rest);
        };
        let end = parameter.find(['=', ';', ',']).unwrap_or(parameter.len());
        let (name, after) = parameter.split_at(end);
        let Some(after) = after.strip_prefix('=') else {
            rest = after;
            continue;
        };
        let (value, after) = value(after.trim_start());
        if name.trim().eq_ignore_ascii_case("rel") && relations.is_none() {
            let words = value.split_whitespace();
            relations = Some(words.map(str::to_ascii_lowercase).collect());
        }
        rest = after;
    }
}

/// Returns a parameter's value, quoted or not, and the text after it.
fn value(text: &str) -> (String, &str) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&["<a>; rel=\"self\", <b>; rel=\"hub\""], "a self|b hub")]
    #[case(&["<a>; rel=\"self\"", "<b>;rel=hub"], "a self|b hub")]
    #[case(&["<a> ; rel=\"self\",\t<b> ; rel = hub"], "a self|b hub")]
    #[case(&["<a>;rel=self,<b>;rel=hub;type=x"], "a self|b hub")]
    #[case(&["<http://e/a,b;c>; rel=\"hub\""], "http://e/a,b;c hub")]
    #[case(&["<a>; title=\"x, <y>; rel=hub\"; rel=\"SELF  Hub\""], "a self hub")]
    #[case(&["<a>; title=\"\\\"\"; rel=self; rel=hub"], "a self")]
    #[case(&["<a>; crossorigin; rel=hub"], "a hub")]
    #[case(&["<a>"], "a")]
    #[case(&["<a>, , junk <b>; rel=hub,"], "a|b hub")]
    #[case(&["<a>; rel=\"self"], "a self")]
    #[case(&["", "rel=hub", "<never ended", ">"], "")]
    fn links_are_read_as_they_are_written(#[case] values: &[&str], #[case] want: &str) {
        let read = parse_links(values)
            .iter()
            .map(|link| {
                format!("{} {}", link.target, link.relations.join(" "))
                    .trim()
                    .to_owned()
            })
            .collect::<Vec<_>>();
        assert_eq!(read.join("|"), want);
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
            parse_links([value.as_str()]);
        }
    }
}

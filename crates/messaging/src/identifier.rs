//! Identifiers of objects and items, and the locations of their content, as a broker's consumers expect them.

use resourcesync::uri::rest_below;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Scheme and authority of repository identifiers.
const INFO_FEDORA: &str = "info:fedora/";

/// The resources that are one object (F5).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectGranularity {
    /// Each resource is an object, and its own only item.
    #[default]
    Resource,
    /// A directory is an object: the URI up to its last slash. Resources in it are the items.
    Directory,
}

/// Form of identifiers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identifiers {
    /// The URI as the Change List has it.
    #[default]
    #[serde(rename = "uri")]
    Uri,
    /// `info:fedora/` and the path of the repository; a URI without an authority as the Change List has it.
    #[serde(rename = "info:fedora")]
    InfoFedora,
}

impl Identifiers {
    /// Returns the identifier of a resource, object or parent with a URI.
    pub fn of(self, uri: &str) -> String {
        match self {
            Identifiers::Uri => uri.to_owned(),
            Identifiers::InfoFedora => info_fedora(uri),
        }
    }
}

/// Another location of the content, for consumers that cannot use the published one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LocationRewrite {
    /// Beginning of URIs that is replaced, by whole segments: `/rest` does not match `/restricted`.
    #[schemars(extend("x-form" = "location"))]
    pub from: String,
    /// Text that replaces it.
    #[schemars(extend("x-form" = "location"))]
    pub to: String,
}

/// A type of objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectType {
    /// Glob of the URIs of objects, in which `*` stops at `/` and `**` does not.
    #[schemars(extend("x-form" = "glob of uris"))]
    pub objects: String,
    /// The type that they have: a URI or a word.
    #[serde(rename = "type")]
    #[schemars(extend("x-form" = "object type"))]
    pub name: String,
}

impl LocationRewrite {
    /// Returns the location of a resource's content. A URI that does not lie below the replaced ones stays unchanged.
    pub fn of(&self, uri: &str) -> String {
        // What follows is as it is written, where the beginning is: some servers take escapes for other characters.
        let written = uri.strip_prefix(&self.from).filter(|rest| !rest.is_empty());
        match rest_below(uri, &self.from) {
            Some(rest) => format!("{}{}", self.to, written.unwrap_or(&rest)),
            None => uri.to_owned(),
        }
    }
}

/// Returns the directory of a resource, or the one above a directory: the URI up to its last slash. `None` without one
/// below the authority.
pub(crate) fn directory(uri: &str) -> Option<&str> {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let path = uri[..end].strip_suffix('/').unwrap_or(&uri[..end]);
    let start = path_start(path)?;
    let slash = path[start..].rfind('/')?;
    Some(&uri[..=start + slash])
}

/// Returns the offset of the slash that the path begins with.
fn path_start(uri: &str) -> Option<usize> {
    let authority = authority_start(uri)?;
    let path = authority + uri[authority..].find(['/', '?', '#'])?;
    uri[path..].starts_with('/').then_some(path)
}

/// Returns the offset of the authority, after the scheme. A URI such as `urn:` has none, but may contain another URI.
fn authority_start(uri: &str) -> Option<usize> {
    let scheme = uri.find(':')?;
    let is_authority = uri[scheme..].starts_with("://");
    is_authority.then_some(scheme + "://".len())
}

/// Beginning of the path of an object in the interface of Fedora 3.
const OBJECTS: &str = "/objects/";
/// Beginning of the path of a resource in the interface of Fedora 4 and later.
const REST: &str = "/rest/";

/// Returns the repository's identifier for a URI of its HTTP interface: what follows `/objects/` or `/rest/`, and the
/// whole path of others. A datastream is named after its object. A URI without an authority, such as `info:` or `urn:`, is
/// an identifier already.
fn info_fedora(uri: &str) -> String {
    if authority_start(uri).is_none() {
        return uri.to_owned();
    }
    let Some(start) = path_start(uri) else {
        return INFO_FEDORA.to_owned();
    };
    let end = uri[start..].find(['?', '#']);
    let path = &uri[start..end.map_or(uri.len(), |end| start + end)];
    // The marker that comes first is the interface's; the other is a part of a name.
    let name = match (path.find(OBJECTS), path.find(REST)) {
        (Some(at), rest) if rest.is_none_or(|rest| at < rest) => {
            &object(&path[at + OBJECTS.len()..])
        }
        (_, Some(at)) => &uri[start + at + REST.len()..],
        _ => &uri[start..],
    };
    format!("{INFO_FEDORA}{}", name.trim_matches('/'))
}

/// Returns an object or datastream below `/objects/` as an identifier has it. The content of a datastream is named as the
/// datastream.
fn object(path: &str) -> String {
    match path.split_once("/datastreams/") {
        Some((object, datastream)) => {
            let datastream = datastream.strip_suffix("/content").unwrap_or(datastream);
            format!("{object}/{datastream}")
        }
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Identifiers, LocationRewrite, directory};

    #[test]
    fn a_directory_ends_at_the_last_slash() {
        for (uri, want) in [
            ("https://e.org/a/b.txt", Some("https://e.org/a/")),
            ("https://e.org/a/b/", Some("https://e.org/a/")),
            ("https://e.org/a/b?c/d", Some("https://e.org/a/")),
            ("https://e.org/b.txt", Some("https://e.org/")),
            ("https://e.org/", None),
            ("https://e.org", None),
            ("https://e.org?a/b", None),
            ("urn:a/b", None),
            ("urn:a/http://e.org/b/c", None),
            ("", None),
        ] {
            assert_eq!(directory(uri), want, "{uri}");
        }
    }

    /// Returns the rows of a table, whose cells are separated by spaces.
    fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
        let rows = table.trim().lines().map(str::split_whitespace);
        rows.map(|row| Vec::from_iter(row).try_into().unwrap())
    }

    #[test]
    fn repository_identifiers_have_the_path_of_the_repository() {
        for [uri, want] in rows(
            "
            http://e.org:8080/fedora/objects/demo:1 info:fedora/demo:1
            http://e.org:8080/fedora/objects/demo:1/datastreams/DC/content?asOfDateTime=2026 info:fedora/demo:1/DC
            http://e.org/fcrepo/rest/books/1/page info:fedora/books/1/page
            https://e.org/books/1/ info:fedora/books/1
            http://e.org/rest/museum/objects/7 info:fedora/museum/objects/7
            http://e.org/fedora/objects/a/content info:fedora/a/content
            https://e.org/view?id=1 info:fedora/view?id=1
            https://e.org/ info:fedora/
            https://e.org info:fedora/
            info:fedora/demo:1 info:fedora/demo:1
            urn:uuid:1 urn:uuid:1
            hdl:1/a hdl:1/a
            urn:x?u=http://e.org/objects/a:1 urn:x?u=http://e.org/objects/a:1
            urn:a:http://h urn:a:http://h
            ",
        ) {
            assert_eq!(Identifiers::InfoFedora.of(uri), want);
            assert_eq!(Identifiers::Uri.of(uri), uri);
        }
    }

    fn relocated(from: &str, uri: &str) -> String {
        let end = if from.ends_with('/') { "/" } else { "" };
        let (from, to) = (from.to_owned(), format!("https://repo.example.org{end}"));
        LocationRewrite { from, to }.of(uri)
    }

    #[test]
    fn content_is_relocated_by_whole_segments_of_equal_uris() {
        for [from, uri, want] in rows(
            "
            http://fedora:8080/ http://fedora:8080/a?b /a?b
            http://fedora/rest/ http://fedora/rest/a%3Bb%2B#c /a%3Bb%2B#c
            http://fedora:8080/ HTTP://Fedora:8080/%7ea /~a
            HTTP://Fedora:80 http://fedora/a /a
            http://fedora http://fedora /
            http://fedora/r%65st http://fedora/rest/1 /1
            http://fedora/rest http://fedora/rest?v=1 ?v=1
            http://fedora/get?id= http://fedora/get?id=7 7
            http://fedora/get?id=7 http://fedora/get?id=7&v=1 &v=1
            urn:uuid: URN:uuid:1 1
            ",
        ) {
            let want = format!("https://repo.example.org{want}");
            assert_eq!(relocated(from, uri), want, "{uri}");
        }
        for [from, uri] in rows(
            "
            http://fedora:8080/ http://fedora/a
            http://fedora http://fedora:8080/a
            http://fedora http://fedora.org/a
            http://fedora/rest http://fedora/restricted/1
            http://fedora/rest http://fedora/rest/../private/1
            http://fedora/rest/ http://fedora/rest
            http://fedora/a http://fedora/a&b
            http://fedora/get?id=7 http://fedora/get?id=77
            urn:a urn:ab
            ",
        ) {
            assert_eq!(relocated(from, uri), uri);
        }
    }
}

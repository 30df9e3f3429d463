//! Content change messages, as the consumers of repositories' message brokers read them: an Atom feed with the concurrent
//! changes of one object, and an entry for each of its items that changed.
//!
//! ```
//! use resourcesync::feed::ObjectFeed;
//! use resourcesync::payload::ChangeKind;
//!
//! let body = br#"<feed xmlns="http://www.w3.org/2005/Atom">
//!   <id>urn:uuid:11111111-2222-8333-8444-555555555555</id>
//!   <updated>2026-11-22T09:00:00Z</updated>
//!   <link rel="via" href="https://example.org/reports/"/>
//!   <entry>
//!     <link rel="via" href="https://example.org/reports/1.pdf"/>
//!     <content src="https://example.org/reports/1.pdf" type="application/pdf"/>
//!     <category scheme="changes:ITEM:CHANGE:TYPE" term="ADD"/>
//!   </entry>
//! </feed>"#;
//! let feed = ObjectFeed::parse(body)?;
//! assert_eq!(feed.object, "https://example.org/reports/");
//! assert_eq!(feed.items[0].change, Some(ChangeKind::Created));
//! # Ok::<(), resourcesync::feed::FeedError>(())
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::datetime::Datetime;
use crate::parse::{ReadError, read};
use crate::payload::ChangeKind;
use crate::reader::{ElementKind, Handler};
use crate::tag::StartTag;
use crate::writer::{rel_and_href, write_attribute, write_escaped, write_term};

/// Start of a relation that is written as the URI of its registration.
const REGISTERED: &str = "http://www.iana.org/assignments/relation/";
/// The type of a text construct (RFC 4287 section 3.1), as an attribute.
const TEXT: &str = " type=\"text\"";

/// Namespace of Atom (RFC 4287 section 1.2).
const ATOM: &str = "http://www.w3.org/2005/Atom";
/// Media type of Atom (RFC 4287 section 7).
pub const ATOM_TYPE: &str = "application/atom+xml";
/// Namespace of the schemes that begin with `changes:`.
const CHANGES: &str = "http://www.acuityunlimited.net/fedora/messaging#";
/// Scheme of the version of the server that sent a message.
const SERVER_SCHEME: &str = "info:fedora/fedora-system:def/view#version";
/// Scheme of the format of a message.
const FORMAT_SCHEME: &str = "http://www.fedora.info/definitions/1/0/types/formatURI";
/// Format of the messages that are written here.
pub const FORMAT: &str =
    "http://www.acuityunlimited.net/fedora/messaging#content-change-message-0.1";
/// Scheme of the types of an object.
const TYPE_SCHEME: &str = "changes:OBJECT:TYPE";
/// Scheme of the state of an item before the change.
const BEFORE_SCHEME: &str = "changes:CONTENT:ITEM:STATEBEFORE";
/// Scheme of the state of an item after the change.
const AFTER_SCHEME: &str = "changes:CONTENT:ITEM:STATEAFTER";
/// Scheme of the kind of the change.
const CHANGE_SCHEME: &str = "changes:ITEM:CHANGE:TYPE";
/// State of an item that is in use.
pub const ACTIVE: &str = "ACTIVE";

/// The concurrent changes of one object: an Atom feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectFeed {
    /// `urn:uuid:` and the message's id.
    pub id: String,
    /// Name and version of the server that sent the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// URI of the message's format.
    #[serde(rename = "formatUri", skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The user that made the changes, or the server's name where no user is known. Empty if a message has none.
    pub author: String,
    /// Description in words.
    pub title: String,
    /// Time of the changes, of the last of them if they have several.
    #[serde(serialize_with = "serialize_text")]
    pub updated: Datetime,
    /// Identifier of the object: the link with relation `via`.
    #[serde(rename = "objectUri")]
    pub object: String,
    /// Identifier of the object that it is part of: the link with relation `related`.
    #[serde(rename = "parentUri", skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Types of the object.
    #[serde(rename = "objectTypes")]
    pub types: Vec<String>,
    /// Changes in the order in which they happened.
    pub items: Vec<FeedEntry>,
    /// Number of entries that were left out when the message was read: they name no item, or an unknown change.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: usize,
}

/// The change of one item of an object: an Atom entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FeedEntry {
    /// Empty if a message has none.
    pub id: String,
    /// The user that made the change, or what [`ObjectFeed::author`] has.
    pub author: String,
    /// Description in words.
    pub title: String,
    /// Time of the change.
    #[serde(serialize_with = "serialize_text")]
    pub updated: Datetime,
    /// Identifier of the item: the link with relation `via`.
    #[serde(rename = "itemUri")]
    pub item: String,
    /// Location of the new content; `None` for a deletion, and for a change of state alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentLocation>,
    /// Description in words, required by Atom.
    pub summary: String,
    /// State of the item before the change, such as [`ACTIVE`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_before: Option<String>,
    /// State of the item after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_after: Option<String>,
    /// `None` for a change of state alone.
    #[serde(
        serialize_with = "serialize_term",
        skip_serializing_if = "Option::is_none"
    )]
    pub change: Option<ChangeKind>,
}

/// Location of the content of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContentLocation {
    /// The URI to get it from.
    pub src: String,
    /// Media type, where it is known.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

/// Returns the term of the category of a change.
pub fn change_term(change: ChangeKind) -> &'static str {
    match change {
        ChangeKind::Created => "ADD",
        ChangeKind::Deleted => "DELETE",
        ChangeKind::Updated => "UPDATE",
    }
}

fn serialize_term<S: serde::Serializer>(
    change: &Option<ChangeKind>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    change.map(change_term).serialize(serializer)
}

fn serialize_text<S: serde::Serializer>(
    datetime: &Datetime,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(datetime)
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The reason why bytes are not a content change message.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// It is broken off or malformed.
    #[error("it is not well-formed")]
    NotWellFormed(#[from] ReadError),
    /// It is another XML document, or no XML.
    #[error("its root element is not feed of the Atom namespace")]
    ForeignRoot,
    /// A part that every message has is missing: which.
    #[error("it has no {0}")]
    Incomplete(&'static str),
}

impl ObjectFeed {
    /// Reads a content change message. The caller limits the length.
    ///
    /// A feed needs `id`, `updated` and a link with relation `via`. Entries inherit author, title and time of the feed;
    /// one that names no item, or an unknown change, is left out and counted in [`ObjectFeed::skipped`]. Unknown elements,
    /// attributes and categories are ignored, but a category of the feed that is of another scheme is a type of its
    /// object.
    ///
    /// # Errors
    ///
    /// If it is no complete, well-formed XML, no Atom feed, or lacks what a feed needs.
    pub fn parse(bytes: &[u8]) -> Result<ObjectFeed, FeedError> {
        match read(bytes, FeedParser::default())? {
            Ok((handler, _)) => handler.feed(),
            Err(_) => Err(FeedError::ForeignRoot),
        }
    }

    /// Returns the message as it is sent. Characters that XML cannot hold are percent-encoded.
    pub fn render(&self) -> Vec<u8> {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<feed");
        write_attribute(&mut xml, "xmlns", ATOM);
        write_attribute(&mut xml, "xmlns:changes", CHANGES);
        xml.push_str(">\n");
        for (scheme, term) in [(SERVER_SCHEME, &self.server), (FORMAT_SCHEME, &self.format)] {
            if let Some(term) = term {
                write_feed_category(&mut xml, scheme, term);
            }
        }
        write_author(&mut xml, "  ", &self.author);
        write_text(&mut xml, "  <title", TEXT, &self.title);
        write_text(&mut xml, "  <updated", "", &self.updated.to_string());
        write_term(&mut xml, "  <link", &rel_and_href("via", &self.object));
        if let Some(parent) = &self.parent {
            write_term(&mut xml, "  <link", &rel_and_href("related", parent));
        }
        for term in &self.types {
            write_feed_category(&mut xml, TYPE_SCHEME, term);
        }
        write_text(&mut xml, "  <id", "", &self.id);
        for item in &self.items {
            write_entry(&mut xml, item);
        }
        xml.push_str("</feed>\n");
        xml.into_bytes()
    }
}

/// The parts that feed and entry have in common, as written.
#[derive(Debug, Default)]
struct AtomParts {
    /// The first text of each element that is read: `id`, `author`, `title`, `updated`, `summary`.
    texts: BTreeMap<String, String>,
    /// The first target of each relation.
    links: BTreeMap<String, String>,
    content: Option<ContentLocation>,
    /// Schemes and terms, in order.
    categories: Vec<(String, String)>,
}

#[derive(Debug, Default)]
struct FeedParser {
    feed: AtomParts,
    entry: Option<AtomParts>,
    entries: Vec<AtomParts>,
    /// Depth of the `author` that is being read.
    author: Option<usize>,
    /// The depth of the element whose text is being read, and the key of that in [`AtomParts::texts`].
    text: Option<(usize, String)>,
}

impl AtomParts {
    /// Returns the term of the first category of a scheme.
    fn term(&self, scheme: &str) -> Option<String> {
        let found = self.categories.iter().find(|(other, _)| other == scheme);
        found.map(|(_, term)| term.clone())
    }

    fn add_link(&mut self, tag: &StartTag<'_>) {
        if let Some(href) = tag.filled("href") {
            let text = tag.filled("rel").unwrap_or_default();
            let relation = text.strip_prefix(REGISTERED).unwrap_or(&text);
            let target = self.links.entry(relation.to_ascii_lowercase());
            target.or_insert(href);
        }
    }

    fn updated(&self) -> Option<Datetime> {
        Datetime::parse(self.texts.get("updated")?)
    }

    /// Returns the change of an entry; `None` if it names no item, or an unknown change.
    fn item(mut self, feed: &ObjectFeed) -> Option<FeedEntry> {
        let mut kinds = ChangeKind::ALL.into_iter();
        let change = match self.term(CHANGE_SCHEME) {
            Some(term) => Some(kinds.find(|kind| term.eq_ignore_ascii_case(change_term(*kind)))?),
            None => None,
        };
        let (updated, state_before) = (self.updated(), self.term(BEFORE_SCHEME));
        let state_after = self.term(AFTER_SCHEME);
        let mut text = |name| self.texts.remove(name);
        Some(FeedEntry {
            item: self.links.remove("via")?,
            id: text("id").unwrap_or_default(),
            author: text("author").unwrap_or_else(|| feed.author.clone()),
            title: text("title").unwrap_or_else(|| feed.title.clone()),
            updated: updated.unwrap_or(feed.updated),
            content: self.content,
            summary: text("summary").unwrap_or_default(),
            state_before,
            state_after,
            change,
        })
    }
}

impl Handler for FeedParser {
    const NAMESPACE: &'static str = ATOM;

    fn is_root(local: &str) -> bool {
        local == "feed"
    }

    fn start(&mut self, start: &StartTag<'_>) {
        if start.depth == 0 || start.namespaces.uri(start.namespace) != ATOM {
            return;
        }
        if start.depth == 1 && start.local == "entry" {
            self.entry = Some(AtomParts::default());
            return;
        }
        let (draft, inner) = match &mut self.entry {
            Some(entry) => (entry, 2),
            None => (&mut self.feed, 1),
        };
        let name = match (start.depth, start.local, self.author) {
            (depth, "name", Some(author)) if depth == author + 1 => "author",
            (depth, ..) if depth != inner => return,
            (_, name @ ("id" | "title" | "updated" | "summary"), _) => name,
            (depth, "author", _) => {
                self.author = Some(depth);
                return;
            }
            (_, "link", _) => return draft.add_link(start),
            (_, "category", _) => {
                let scheme = start.filled("scheme").unwrap_or_default();
                let term = start.filled("term");
                return draft.categories.extend(term.map(|term| (scheme, term)));
            }
            (_, "content", _) => {
                let media_type = start.filled("type");
                let src = start.filled("src");
                let content = src.map(|src| ContentLocation { src, media_type });
                draft.content = draft.content.take().or(content);
                return;
            }
            _ => return,
        };
        // Of several, the first counts.
        if self.text.is_none() && !draft.texts.contains_key(name) {
            self.text = Some((start.depth, name.to_owned()));
            // An empty element is a text too.
            draft.texts.insert(name.to_owned(), String::new());
        }
    }

    fn text(&mut self, _: usize, _: ElementKind, text: &str) {
        let draft = self.entry.as_mut().unwrap_or(&mut self.feed);
        if let Some((_, name)) = &self.text
            && let Some(read) = draft.texts.get_mut(name)
        {
            // The text of XHTML has parts.
            if !read.is_empty() {
                read.push(' ');
            }
            read.push_str(text);
        }
    }

    fn end(&mut self, depth: usize, _: u64) {
        self.text.take_if(|(at, _)| *at == depth);
        self.author.take_if(|at| *at == depth);
        if depth == 1 {
            self.entries.extend(self.entry.take());
        }
    }
}

impl FeedParser {
    fn feed(self) -> Result<ObjectFeed, FeedError> {
        let mut draft = self.feed;
        let (server, format) = (draft.term(SERVER_SCHEME), draft.term(FORMAT_SCHEME));
        let updated = draft.updated();
        let is_type = |scheme: &str| scheme != SERVER_SCHEME && scheme != FORMAT_SCHEME;
        let all = draft.categories.into_iter();
        let types = all.filter(|(scheme, _)| is_type(scheme));
        let mut text = |name| draft.texts.remove(name);
        let id = text("id").filter(|id| !id.is_empty());
        let object = draft.links.remove("via");
        let mut feed = ObjectFeed {
            id: id.ok_or(FeedError::Incomplete("id"))?,
            server,
            format,
            author: text("author").unwrap_or_default(),
            title: text("title").unwrap_or_default(),
            updated: updated.ok_or(FeedError::Incomplete("updated that is a date and time"))?,
            object: object.ok_or(FeedError::Incomplete("link with rel=\"via\""))?,
            parent: draft.links.remove("related"),
            types: types.map(|(_, term)| term).collect(),
            items: Vec::new(),
            skipped: 0,
        };
        for entry in self.entries {
            match entry.item(&feed) {
                Some(item) => feed.items.push(item),
                None => feed.skipped += 1,
            }
        }
        Ok(feed)
    }
}

fn write_entry(xml: &mut String, item: &FeedEntry) {
    xml.push_str("  <entry>\n");
    write_author(xml, "    ", &item.author);
    write_text(xml, "    <id", "", &item.id);
    write_text(xml, "    <title", TEXT, &item.title);
    write_text(xml, "    <updated", "", &item.updated.to_string());
    match &item.content {
        Some(ContentLocation { src, media_type }) => {
            let media_type = media_type.as_deref().map(Cow::from);
            let attributes = [("type", media_type), ("src", Some(src.into()))];
            write_term(xml, "    <content", &attributes);
        }
        // RFC 4287 section 4.1.2: an entry without content has an alternate.
        None => write_term(xml, "    <link", &rel_and_href("alternate", &item.item)),
    }
    write_term(xml, "    <link", &rel_and_href("via", &item.item));
    write_text(xml, "    <summary", TEXT, &item.summary);
    for (scheme, term) in [
        (BEFORE_SCHEME, item.state_before.as_deref()),
        (AFTER_SCHEME, item.state_after.as_deref()),
        (CHANGE_SCHEME, item.change.map(change_term)),
    ] {
        if let Some(term) = term {
            let attributes = [("scheme", Some(scheme.into())), ("term", Some(term.into()))];
            write_term(xml, "    <category", &attributes);
        }
    }
    xml.push_str("  </entry>\n");
}

fn write_author(xml: &mut String, indent: &str, name: &str) {
    xml.extend([indent, "<author><name>"]);
    write_escaped(xml, name);
    xml.push_str("</name></author>\n");
}

/// Writes a category of the feed. Its attributes come in another order than those of an entry's, as in the messages that
/// consumers know.
fn write_feed_category(xml: &mut String, scheme: &str, term: &str) {
    let attributes = [("term", Some(term.into())), ("scheme", Some(scheme.into()))];
    write_term(xml, "  <category", &attributes);
}

/// Writes an element with a text. `start` is its indentation and the start of its tag; `attributes` are written as they
/// are.
fn write_text(xml: &mut String, start: &str, attributes: &str, text: &str) {
    xml.extend([start, attributes, ">"]);
    write_escaped(xml, text);
    xml.extend(["</", start.trim_start_matches([' ', '<']), ">\n"]);
}

#[cfg(test)]
mod tests {
    use crate::datetime::Datetime;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::FeedError;
    use crate::feed::{ContentLocation, FeedEntry, ObjectFeed};
    use crate::payload::ChangeKind;

    #[test]
    fn messages_of_other_servers_are_read() {
        let text = "\u{feff}<?xml version='1.0' encoding='UTF-8'?><a:feed xmlns:a='http://www.w3.org/2005/Atom' xmlns:x='urn:x'>\
            <a:category term='3.8' scheme='info:fedora/fedora-system:def/view#version'>version</a:category>\
            <a:category term='info:fedora/demo:Image'/><a:author><x:name>no</x:name><a:name> ada </a:name></a:author>\
            <a:title type='xhtml'><div xmlns='http://www.w3.org/1999/xhtml'>two <b>parts</b></div></a:title>\
            <a:title>second</a:title><x:id>no</x:id><a:id>\n urn:uuid:1 \n</a:id>\
            <a:updated>2026-11-22T10:00:00.5+01:00</a:updated><a:link href='self'/>\
            <a:link rel='http://www.iana.org/assignments/relation/via' href='http://e.org/objects/demo:1'/>\
            <a:link rel='via' href='http://e.org/second'/><a:link rel='Related' href='http://e.org/objects/demo:0'/>\
            <a:entry><a:link rel='via' href='http://e.org/objects/demo:1/datastreams/DC'/><a:id>urn:uuid:2</a:id>\
            <a:category scheme='changes:CONTENT:ITEM:STATEBEFORE' term='ACTIVE'/>\
            <a:category scheme='changes:CONTENT:ITEM:STATEAFTER' term='INACTIVE'/></a:entry>\
            <a:entry><a:link rel='via' href='http://e.org/2'/><a:author><a:name>eve</a:name></a:author>\
            <a:content src='http://e.org/2?v=1'>x</a:content><a:updated>when?</a:updated>\
            <a:category scheme='changes:ITEM:CHANGE:TYPE' term='update'/></a:entry>\
            <a:entry><a:link rel='via' href='http://e.org/3'/>\
            <a:category scheme='changes:ITEM:CHANGE:TYPE' term='MOVE'/></a:entry>\
            <a:entry><a:content type='text'>inline</a:content></a:entry></a:feed>";
        let feed = ObjectFeed::parse(text.as_bytes()).unwrap();
        assert_eq!(feed.id, "urn:uuid:1");
        assert_eq!(feed.server.as_deref(), Some("3.8"));
        assert_eq!(feed.format, None);
        assert_eq!(feed.author, "ada");
        assert_eq!(feed.title, "two parts");
        assert_eq!(feed.updated.to_string(), "2026-11-22T09:00:00.5Z");
        assert_eq!(feed.object, "http://e.org/objects/demo:1");
        assert_eq!(feed.parent.as_deref(), Some("http://e.org/objects/demo:0"));
        assert_eq!(feed.types, ["info:fedora/demo:Image"]);
        assert_eq!(feed.skipped, 2);
        let [state, update] = &feed.items[..] else {
            panic!("{:?}", feed.items);
        };
        assert_eq!(state.change, None);
        assert_eq!(state.state_before.as_deref(), Some("ACTIVE"));
        assert_eq!(state.state_after.as_deref(), Some("INACTIVE"));
        assert_eq!(
            (state.author.as_str(), state.title.as_str()),
            ("ada", "two parts")
        );
        assert_eq!(update.change, Some(ChangeKind::Updated));
        assert_eq!(update.author, "eve");
        assert_eq!(update.updated, feed.updated);
        let content = update.content.as_ref().unwrap();
        assert_eq!(content.src, "http://e.org/2?v=1");
        assert_eq!(content.media_type, None);
    }

    #[rstest]
    #[case("<urlset/>", "its root element is not feed of the Atom namespace")]
    #[case("<feed/>", "its root element is not feed of the Atom namespace")]
    #[case("no XML", "its root element is not feed of the Atom namespace")]
    #[case("", "it is not well-formed")]
    #[case("<atom>", "it is not well-formed")]
    #[case("<atom>&lol;</feed>", "it is not well-formed")]
    #[case("<atom></feed>", "it has no id")]
    #[case("<atom><id> </id></feed>", "it has no id")]
    #[case("<atom><id>1</id></feed>", "it has no updated that is a date and time")]
    #[case(
        "<atom><id>1</id><updated>2026-11-22T10:00:00Z</updated></feed>",
        "it has no link with rel=\"via\""
    )]
    fn what_is_no_message_says_why(#[case] text: &str, #[case] want: &str) {
        let text = text.replace("<atom>", "<feed xmlns='http://www.w3.org/2005/Atom'>");
        let error: FeedError = ObjectFeed::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), want, "{text}");
    }

    fn any_text() -> impl Strategy<Value = String> {
        "[ -~é文]{1,20}".prop_map(|text| text.trim().to_owned())
    }

    fn any_attribute() -> impl Strategy<Value = String> {
        any_text().prop_filter("an attribute that is not empty", |text| !text.is_empty())
    }

    fn any_datetime() -> impl Strategy<Value = Datetime> {
        (0..4_102_444_800_000_i64).prop_map(|time| {
            let time = jiff::Timestamp::from_millisecond(time).unwrap();
            Datetime::parse(&time.to_string()).unwrap()
        })
    }

    prop_compose! {
        fn any_content()(
            src in any_attribute(),
            media_type in prop::option::of(any_attribute()),
        ) -> ContentLocation {
            ContentLocation { src, media_type }
        }
    }

    prop_compose! {
        fn any_item()(
            (id, author, title, updated) in (any_text(), any_text(), any_text(), any_datetime()),
            (item, summary) in (any_attribute(), any_text()),
            content in prop::option::of(any_content()),
            state_before in prop::option::of(any_attribute()),
            state_after in prop::option::of(any_attribute()),
            change in prop::option::of(prop::sample::select(ChangeKind::ALL.to_vec())),
        ) -> FeedEntry {
            FeedEntry {
                id, author, title, updated, item, content, summary, state_before, state_after, change,
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            (id, author, title, updated) in (any_attribute(), any_text(), any_text(), any_datetime()),
            (server, format) in (prop::option::of(any_attribute()), prop::option::of(any_attribute())),
            (object, parent) in (any_attribute(), prop::option::of(any_attribute())),
            types in prop::collection::vec(any_attribute(), 0..3),
            items in prop::collection::vec(any_item(), 0..6),
        ) {
            let feed = ObjectFeed {
                id, server, format, author, title, updated, object, parent, types, items, skipped: 0,
            };
            prop_assert_eq!(ObjectFeed::parse(&feed.render()).unwrap(), feed);
        }
    }
}

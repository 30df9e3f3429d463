//! Reading of content change messages, those of other servers too.

use crate::datetime::Datetime;
use crate::parse::{ReadError, read};
use crate::payload::ChangeKind;
use crate::reader::{Element, Handler, StartTag};
use crate::tag::TagAttributes;

use crate::feed::{
    AFTER_SCHEME, ATOM, BEFORE_SCHEME, CHANGE_SCHEME, ContentChangeMessage, ContentLocation,
    FORMAT_SCHEME, ItemChange, SERVER_SCHEME, change_term,
};

/// Start of a relation that is written as the URI of its registration.
const REGISTERED: &str = "http://www.iana.org/assignments/relation/";

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

impl ContentChangeMessage {
    /// Reads a content change message. The caller limits the length.
    ///
    /// A feed needs `id`, `updated` and a link with relation `via`. Entries inherit author, title and time of the feed;
    /// one that names no item, or an unknown change, is left out and counted in [`ContentChangeMessage::skipped`]. Unknown elements,
    /// attributes and categories are ignored, but a category of the feed that is of another scheme is a type of its
    /// object.
    ///
    /// # Errors
    ///
    /// If it is no complete, well-formed XML, no Atom feed, or lacks what a feed needs.
    pub fn parse(bytes: &[u8]) -> Result<ContentChangeMessage, FeedError> {
        match read(bytes, FeedHandler::default())? {
            Ok((handler, _)) => handler.feed(),
            Err(_) => Err(FeedError::ForeignRoot),
        }
    }
}

/// The parts that feed and entry have in common, as written.
#[derive(Debug, Default)]
struct AtomParts {
    id: Option<String>,
    author: Option<String>,
    title: Option<String>,
    updated: Option<String>,
    summary: Option<String>,
    via: Option<String>,
    related: Option<String>,
    content: Option<ContentLocation>,
    /// Schemes and terms, in order.
    categories: Vec<(String, String)>,
}

/// Returns a text of a draft.
type Field = fn(&mut AtomParts) -> &mut Option<String>;

#[derive(Debug, Default)]
struct FeedHandler {
    feed: AtomParts,
    entry: Option<AtomParts>,
    entries: Vec<AtomParts>,
    /// Depth of the `author` that is being read.
    author: Option<usize>,
    /// The text that is being read, and the depth of its element.
    field: Option<(usize, Field)>,
}

impl AtomParts {
    /// Returns the term of the first category of a scheme.
    fn term(&self, scheme: &str) -> Option<String> {
        let mut categories = self.categories.iter();
        let (_, term) = categories.find(|(other, _)| other == scheme)?;
        Some(term.clone())
    }

    fn link(&mut self, tag: TagAttributes<'_>) {
        let Some(href) = tag.filled("href") else {
            return;
        };
        let relation = tag.filled("rel").unwrap_or_default();
        let relation = relation.strip_prefix(REGISTERED).unwrap_or(&relation);
        let target = match relation.to_ascii_lowercase().as_str() {
            "via" => &mut self.via,
            "related" => &mut self.related,
            _ => return,
        };
        target.get_or_insert(href);
    }

    fn category(&mut self, tag: TagAttributes<'_>) {
        if let Some(term) = tag.filled("term") {
            let scheme = tag.filled("scheme").unwrap_or_default();
            self.categories.push((scheme, term));
        }
    }

    /// Returns the change of an entry; `None` if it names no item, or an unknown change.
    fn item(self, feed: &ContentChangeMessage) -> Option<ItemChange> {
        let change = match self.term(CHANGE_SCHEME) {
            Some(term) => Some(change_of(&term)?),
            None => None,
        };
        let state_before = self.term(BEFORE_SCHEME);
        let state_after = self.term(AFTER_SCHEME);
        let updated = self.updated.and_then(|text| Datetime::parse(&text));
        Some(ItemChange {
            item: self.via?,
            id: self.id.unwrap_or_default(),
            author: self.author.unwrap_or_else(|| feed.author.clone()),
            title: self.title.unwrap_or_else(|| feed.title.clone()),
            updated: updated.unwrap_or(feed.updated),
            content: self.content,
            summary: self.summary.unwrap_or_default(),
            state_before,
            state_after,
            change,
        })
    }
}

/// Returns the change that a term stands for, in any case.
fn change_of(term: &str) -> Option<ChangeKind> {
    let mut kinds = ChangeKind::ALL.into_iter();
    kinds.find(|kind| term.eq_ignore_ascii_case(change_term(*kind)))
}

impl Handler for FeedHandler {
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
        let field: Field = match (start.depth, start.local, self.author) {
            (depth, "name", Some(author)) if depth == author + 1 => |parts| &mut parts.author,
            (depth, ..) if depth != inner => return,
            (_, "id", _) => |parts| &mut parts.id,
            (_, "title", _) => |parts| &mut parts.title,
            (_, "updated", _) => |parts| &mut parts.updated,
            (_, "summary", _) => |parts| &mut parts.summary,
            (depth, "author", _) => {
                self.author = Some(depth);
                return;
            }
            (_, "link", _) => return draft.link(start.tag),
            (_, "category", _) => return draft.category(start.tag),
            (_, "content", _) => {
                if let Some(src) = start.tag.filled("src") {
                    let media_type = start.tag.filled("type");
                    draft
                        .content
                        .get_or_insert(ContentLocation { src, media_type });
                }
                return;
            }
            _ => return,
        };
        // Of several, the first counts.
        if self.field.is_none() && field(draft).is_none() {
            self.field = Some((start.depth, field));
            // An empty element is a text too.
            *field(draft) = Some(String::new());
        }
    }

    fn text(&mut self, _: usize, _: Element, text: &str) {
        let draft = self.entry.as_mut().unwrap_or(&mut self.feed);
        if let Some((_, field)) = self.field
            && let Some(read) = field(draft)
        {
            // The text of XHTML has parts.
            if !read.is_empty() {
                read.push(' ');
            }
            read.push_str(text);
        }
    }

    fn end(&mut self, depth: usize, _: u64) {
        if self.field.is_some_and(|(at, _)| at == depth) {
            self.field = None;
        }
        if self.author == Some(depth) {
            self.author = None;
        }
        if depth == 1 {
            self.entries.extend(self.entry.take());
        }
    }
}

impl FeedHandler {
    fn feed(self) -> Result<ContentChangeMessage, FeedError> {
        let draft = self.feed;
        let (server, format) = (draft.term(SERVER_SCHEME), draft.term(FORMAT_SCHEME));
        let is_type = |scheme: &str| scheme != SERVER_SCHEME && scheme != FORMAT_SCHEME;
        let types = draft.categories.into_iter();
        let types = types.filter(|(scheme, _)| is_type(scheme));
        let updated = draft.updated.and_then(|text| Datetime::parse(&text));
        let id = draft.id.filter(|id| !id.is_empty());
        let mut feed = ContentChangeMessage {
            id: id.ok_or(FeedError::Incomplete("id"))?,
            server,
            format,
            author: draft.author.unwrap_or_default(),
            title: draft.title.unwrap_or_default(),
            updated: updated.ok_or(FeedError::Incomplete("updated that is a date and time"))?,
            object: draft
                .via
                .ok_or(FeedError::Incomplete("link with rel=\"via\""))?,
            parent: draft.related,
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

#[cfg(test)]
mod tests {
    use crate::datetime::Datetime;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::FeedError;
    use crate::feed::{ContentChangeMessage, ContentLocation, ItemChange};
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
        let feed = ContentChangeMessage::parse(text.as_bytes()).unwrap();
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
        let error: FeedError = ContentChangeMessage::parse(text.as_bytes()).unwrap_err();
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

    fn any_item() -> impl Strategy<Value = ItemChange> {
        let content = (any_attribute(), prop::option::of(any_attribute()))
            .prop_map(|(src, media_type)| ContentLocation { src, media_type });
        (
            (any_text(), any_text(), any_text(), any_datetime()),
            (any_attribute(), prop::option::of(content), any_text()),
            prop::option::of(any_attribute()),
            prop::option::of(any_attribute()),
            prop::option::of(prop::sample::select(ChangeKind::ALL.to_vec())),
        )
            .prop_map(
                |(
                    (id, author, title, updated),
                    (item, content, summary),
                    state_before,
                    state_after,
                    change,
                )| ItemChange {
                    id,
                    author,
                    title,
                    updated,
                    item,
                    content,
                    summary,
                    state_before,
                    state_after,
                    change,
                },
            )
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
            let feed = ContentChangeMessage {
                id, server, format, author, title, updated, object, parent, types, items, skipped: 0,
            };
            prop_assert_eq!(ContentChangeMessage::parse(&feed.render()).unwrap(), feed);
        }
    }
}

//! Documents of every kind with all their entries, as they are written: Source Descriptions, Capability Lists, Resource
//! Lists, Change Lists, dumps and their manifests, indexes and archives.
//!
//! They are read leniently, as Destinations follow them: nothing is required, and unknown elements and attributes are
//! ignored. [`Listing::parse`] reads a document at once, [`Listing::each_entry`] entry by entry.
//!
//! ```
//! use resourcesync::capability::Capability;
//! use resourcesync::listing::Listing;
//!
//! let list = br#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
//!                        xmlns:rs="http://www.openarchives.org/rs/terms/">
//!   <rs:md capability="changelist" from="2026-11-20T00:00:00Z"/>
//!   <url>
//!     <loc>https://example.org/1.pdf</loc>
//!     <rs:md change="updated" datetime="2026-11-20T09:00:00Z"/>
//!   </url>
//! </urlset>"#;
//! let mut list = Listing::parse(list)?.expect("a document");
//! assert_eq!(list.known_capability(), Some(Capability::ChangeList));
//! assert_eq!(list.entries[0].change.as_deref(), Some("updated"));
//!
//! list.until = Some("2026-11-21T00:00:00Z".to_owned());
//! assert_eq!(Listing::parse(&list.render())?, Some(list));
//! # Ok::<(), resourcesync::parse::ReadError>(())
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;

use crate::capability::Capability;
use crate::document::Form;
use crate::parse::{ReadError, read};
use crate::reader::{ElementKind, Handler};
use crate::tag::{Namespace, StartTag};
use crate::writer::{DocumentWriter, WrittenAttribute};

/// The attributes of an `rs:ln` by name (core 1.1 section 14): `rel` and `href`, and what else is known of the target:
/// `hash`, `length`, `modified`, `path`, `pri`, `type`, `encoding`, `profile`.
pub type ListedLink = BTreeMap<String, String>;

/// A document in the Sitemap format with its root-level `rs:md` and `rs:ln` (core 1.1 section 6). All values are texts as
/// written, without the white space around them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// List or index: the root element.
    pub form: Form,
    /// The kind of document, such as `changelist`; see [`Listing::known_capability`].
    pub capability: Option<String>,
    /// Time at which the listed state of the resources was taken (W3C Datetime, core 1.1 section 7).
    pub at: Option<String>,
    /// Time at which taking it was complete.
    pub completed: Option<String>,
    /// Start of the interval whose changes are listed.
    pub from: Option<String>,
    /// End of that interval; none while more changes may be added.
    pub until: Option<String>,
    /// Each root-level `rs:ln`.
    pub links: Vec<ListedLink>,
    /// Entries in the order of the document.
    pub entries: Vec<ListedEntry>,
}

/// An entry: `url`, or `sitemap` of an index (core 1.1 section 7). If it has several `rs:md`, the first with an attribute
/// decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedEntry {
    /// URI of the resource or document.
    pub loc: Option<String>,
    /// Time of its last modification (W3C Datetime).
    pub lastmod: Option<String>,
    /// The frequency of its changes, such as `daily`.
    pub changefreq: Option<String>,
    /// The kind of the listed document, in a Source Description, Capability List or archive.
    pub capability: Option<String>,
    /// `created`, `updated` or `deleted`, in a Change List, Change Dump or notification.
    pub change: Option<String>,
    /// Time of the change (W3C Datetime).
    pub datetime: Option<String>,
    /// Time at which the state that a listed document has was taken.
    pub at: Option<String>,
    /// Time at which taking it was complete.
    pub completed: Option<String>,
    /// Start of the interval of a listed document.
    pub from: Option<String>,
    /// End of the interval of a listed document.
    pub until: Option<String>,
    /// Digests, separated by white space, each after the name of its algorithm: `md5:…`, `sha-1:…`, `sha-256:…`.
    pub hash: Option<String>,
    /// Number of bytes.
    pub length: Option<String>,
    /// Media type: the attribute `type`.
    pub media_type: Option<String>,
    /// Content codings, such as `gzip`.
    pub encoding: Option<String>,
    /// Path within the package of a dump, in its manifest.
    pub path: Option<String>,
    /// Each `rs:ln`.
    pub links: Vec<ListedLink>,
}

impl Listing {
    /// Returns a document that says nothing yet.
    pub fn new(form: Form) -> Listing {
        Listing {
            form,
            ..Listing::default()
        }
    }

    /// Reads a document; `None` of another XML document. The caller limits the length.
    ///
    /// # Errors
    ///
    /// If it is no complete, well-formed XML.
    pub fn parse(bytes: &[u8]) -> Result<Option<Listing>, ReadError> {
        let mut entries = Vec::new();
        let root = Listing::each_entry(bytes, |_, entry| entries.push(entry))?;
        Ok(root.map(|root| Listing { entries, ..root }))
    }

    /// Reads a document of any length in bounded memory: hands over each entry when it ends, with the document so far, and
    /// returns the document without entries; `None` of another XML document. Compressed ones go through
    /// [`unpacked`](crate::gzip::unpacked).
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is no complete, well-formed XML. Entries before the error have been handed over by then.
    pub fn each_entry(
        source: impl Read,
        take: impl FnMut(&Listing, ListedEntry),
    ) -> Result<Option<Listing>, ReadError> {
        let handler = ListingBuilder {
            listing: None,
            entry: None,
            take,
        };
        let read = read(source, handler)?;
        Ok(read.ok().and_then(|(handler, _)| handler.listing))
    }

    /// Returns the document as text. What a [`DocumentWriter`] writes needs no room for all entries.
    pub fn render(&self) -> Vec<u8> {
        let written = DocumentWriter::new(Vec::new(), self).and_then(|mut writer| {
            self.entries
                .iter()
                .try_for_each(|entry| writer.write(entry))?;
            writer.finish()
        });
        written.expect("a vector takes everything")
    }

    /// Returns the capability, unless it is none of a document.
    pub fn known_capability(&self) -> Option<Capability> {
        known_capability(self.capability.as_deref())
    }

    /// Returns true if the root element is `urlset`.
    pub fn is_urlset(&self) -> bool {
        self.form == Form::List
    }

    /// Returns the targets of its links with a relation, in order: `up`, `index`, `describedby`.
    pub fn targets(&self, relation: &str) -> impl Iterator<Item = &str> {
        targets(&self.links, relation)
    }

    pub(crate) fn md_attributes(&self) -> [WrittenAttribute<'_>; 5] {
        to_attributes([
            ("capability", &self.capability),
            ("at", &self.at),
            ("completed", &self.completed),
            ("from", &self.from),
            ("until", &self.until),
        ])
    }
}

impl ListedEntry {
    /// Returns the capability, unless it is none of a document.
    pub fn known_capability(&self) -> Option<Capability> {
        known_capability(self.capability.as_deref())
    }

    /// Returns the targets of its links with a relation, in order.
    pub fn targets(&self, relation: &str) -> impl Iterator<Item = &str> {
        targets(&self.links, relation)
    }

    pub(crate) fn md_attributes(&self) -> [WrittenAttribute<'_>; 12] {
        to_attributes([
            ("capability", &self.capability),
            ("change", &self.change),
            ("datetime", &self.datetime),
            ("at", &self.at),
            ("completed", &self.completed),
            ("from", &self.from),
            ("until", &self.until),
            ("hash", &self.hash),
            ("length", &self.length),
            ("type", &self.media_type),
            ("encoding", &self.encoding),
            ("path", &self.path),
        ])
    }
}

fn to_attributes<'a, const N: usize>(
    values: [(&'a str, &'a Option<String>); N],
) -> [WrittenAttribute<'a>; N] {
    values.map(|(name, value)| (name, value.as_deref().map(Cow::from)))
}

fn known_capability(written: Option<&str>) -> Option<Capability> {
    written?.parse().ok()
}

fn targets<'a>(links: &'a [ListedLink], relation: &str) -> impl Iterator<Item = &'a str> {
    links.iter().filter_map(move |link| {
        let mut relations = link.get("rel")?.split_ascii_whitespace();
        let has_relation = relations.any(|one| one.eq_ignore_ascii_case(relation));
        link.get("href")
            .map(String::as_str)
            .filter(|_| has_relation)
    })
}

/// Returns the attributes of each link, `rel` and `href` first.
pub(crate) fn link_attributes(
    links: &[ListedLink],
) -> impl Iterator<Item = Vec<WrittenAttribute<'_>>> {
    links.iter().map(|link| {
        let attributes = link
            .iter()
            .map(|(name, value)| (name.as_str(), Some(value.into())));
        let mut attributes: Vec<WrittenAttribute<'_>> = attributes.collect();
        attributes.sort_by_key(|(name, _)| (*name != "rel", *name != "href"));
        attributes
    })
}

/// The document that is being read.
struct ListingBuilder<F> {
    /// `None` before the root.
    listing: Option<Listing>,
    entry: Option<ListedEntry>,
    take: F,
}

impl<F: FnMut(&Listing, ListedEntry)> Handler for ListingBuilder<F> {
    fn start(&mut self, start: &StartTag<'_>) {
        let Some(listing) = &mut self.listing else {
            self.listing = Form::of_root(start.local).map(Listing::new);
            return;
        };
        let value = |name| {
            let value = start.value(name)?;
            Some(value.trim().to_owned())
        };
        let keep = |kept: &mut Option<String>, name| *kept = kept.take().or_else(|| value(name));
        match (start.depth, start.element, &mut self.entry) {
            (1, ElementKind::Entry, _) => self.entry = Some(ListedEntry::default()),
            (1, ElementKind::Md, _) => {
                keep(&mut listing.capability, "capability");
                keep(&mut listing.at, "at");
                keep(&mut listing.completed, "completed");
                keep(&mut listing.from, "from");
                keep(&mut listing.until, "until");
            }
            (1, ElementKind::Ln, _) => listing.links.push(link(start)),
            (2, ElementKind::Md, Some(entry)) => {
                keep(&mut entry.capability, "capability");
                keep(&mut entry.change, "change");
                keep(&mut entry.datetime, "datetime");
                keep(&mut entry.at, "at");
                keep(&mut entry.completed, "completed");
                keep(&mut entry.from, "from");
                keep(&mut entry.until, "until");
                keep(&mut entry.hash, "hash");
                keep(&mut entry.length, "length");
                keep(&mut entry.media_type, "type");
                keep(&mut entry.encoding, "encoding");
                keep(&mut entry.path, "path");
            }
            (2, ElementKind::Ln, Some(entry)) => entry.links.push(link(start)),
            _ => {}
        }
    }

    fn text(&mut self, depth: usize, element: ElementKind, text: &str) {
        let Some(entry) = self.entry.as_mut().filter(|_| depth == 2) else {
            return;
        };
        let part = match element {
            ElementKind::Loc => &mut entry.loc,
            ElementKind::Lastmod => &mut entry.lastmod,
            ElementKind::Changefreq => &mut entry.changefreq,
            _ => return,
        };
        part.get_or_insert_with(|| text.to_owned());
    }

    fn end(&mut self, depth: usize, _: u64) {
        if depth == 1
            && let Some(listing) = &self.listing
            && let Some(entry) = self.entry.take()
        {
            (self.take)(listing, entry);
        }
    }
}

/// Reads an `rs:ln`.
fn link(tag: &StartTag<'_>) -> ListedLink {
    let all = tag.attributes.iter();
    let plain = all.filter(|attribute| attribute.namespace == Namespace::None);
    let pairs = plain.filter_map(|attribute| {
        let (name, value) = (tag.local_name(attribute), tag.value_of(attribute).ok()?);
        Some((name.to_owned(), value.trim().to_owned()))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::{Form, Listing};

    #[test]
    fn channels_of_both_kinds_are_read_with_their_hubs() {
        let list = Listing::parse(
            b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/'>\
            <rs:md capability='capabilitylist'/><rs:ln rel='up' href=' https://e.org/d '/>\
            <url><loc>https://e.org/t</loc><rs:md capability='change-notification'/>\
            <rs:ln rel='x HUB' href='https://h.org/1'/><rs:ln rel='hub' href='https://h.org/2'/><rs:ln rel='up' href='y'/></url>\
            <url><md/><lastmod>2026</lastmod></url></urlset>",
        );
        let list = list.unwrap().unwrap();
        assert_eq!((list.form, list.is_urlset()), (Form::List, true));
        assert_eq!(list.capability.as_deref(), Some("capabilitylist"));
        assert_eq!(list.targets("up").next(), Some("https://e.org/d"));
        let [channel, other] = &list.entries[..] else {
            panic!("{list:?}")
        };
        assert_eq!(channel.capability.as_deref(), Some("change-notification"));
        let hubs: Vec<&str> = channel.targets("hub").collect();
        assert_eq!(hubs, ["https://h.org/1", "https://h.org/2"]);
        assert_eq!(other.lastmod.as_deref(), Some("2026"));
    }

    #[test]
    fn other_documents_are_none() {
        assert_eq!(Listing::parse(b"<html></html>").unwrap(), None);
        assert_eq!(Listing::parse(b"text").unwrap(), None);
        Listing::parse(b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>")
            .unwrap_err();
    }
}

//! A document with all its entries, read leniently, as Destinations follow it: Capability Lists to channels and Change
//! Lists, Change Lists to changes.

use std::collections::BTreeMap;

use crate::capability::Capability;
use crate::document::Form;
use crate::namespaces::Namespace;
use crate::parse::{ReadError, read};
use crate::reader::{Element, Handler, Start};

/// A document in the Sitemap format with its root-level `rs:md` and `rs:ln`. All values are texts as written, without
/// the white space around them; nothing is required, and unknown elements and attributes are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    pub form: Form,
    pub capability: Option<String>,
    /// Target of `rs:ln rel="up"`.
    pub up: Option<String>,
    pub from: Option<String>,
    pub until: Option<String>,
    pub entries: Vec<ListedEntry>,
}

/// An entry: `url`, or `sitemap` of an index. If it has several `rs:md`, the first with an attribute decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedEntry {
    pub loc: Option<String>,
    pub lastmod: Option<String>,
    pub capability: Option<String>,
    pub change: Option<String>,
    pub datetime: Option<String>,
    pub hash: Option<String>,
    pub length: Option<String>,
    /// Value of `type`.
    pub media_type: Option<String>,
    pub encoding: Option<String>,
    /// End of the interval of a list that an index names.
    pub until: Option<String>,
    /// Attributes of each `rs:ln`.
    pub links: Vec<BTreeMap<String, String>>,
}

impl Listing {
    /// Reads a document; `None` of another XML document. The caller limits the length.
    pub fn parse(bytes: &[u8]) -> Result<Option<Listing>, ReadError> {
        let read = read(bytes, ListingHandler::default())?;
        Ok(read.ok().and_then(|(handler, _)| handler.listing))
    }

    /// Returns the capability, unless it is none of a document.
    pub fn known_capability(&self) -> Option<Capability> {
        self.capability.as_deref()?.parse().ok()
    }

    /// Returns true if the root element is `urlset`.
    pub fn is_list(&self) -> bool {
        self.form == Form::List
    }
}

impl ListedEntry {
    /// Returns the capability, unless it is none of a document.
    pub fn known_capability(&self) -> Option<Capability> {
        self.capability.as_deref()?.parse().ok()
    }

    /// Returns the targets of its links with a relation, in order.
    pub fn targets(&self, relation: &str) -> impl Iterator<Item = &str> {
        self.links.iter().filter_map(move |link| {
            let mut relations = link.get("rel")?.split_ascii_whitespace();
            let has_relation = relations.any(|one| one.eq_ignore_ascii_case(relation));
            link.get("href")
                .map(String::as_str)
                .filter(|_| has_relation)
        })
    }
}

/// The document that is being read.
#[derive(Debug, Default)]
struct ListingHandler {
    /// `None` before the root.
    listing: Option<Listing>,
    entry: Option<ListedEntry>,
    /// True within the `lastmod` of an entry.
    is_lastmod: bool,
}

impl Handler for ListingHandler {
    fn start(&mut self, start: &Start<'_>) {
        let value = |name| {
            let value = start.tag.value(name)?;
            Some(value.trim().to_owned())
        };
        self.is_lastmod =
            start.depth == 2 && start.namespace == Namespace::Sitemap && start.local == "lastmod";
        let Some(listing) = &mut self.listing else {
            self.listing = Form::of_root(start.local).map(|form| Listing {
                form,
                ..Listing::default()
            });
            return;
        };
        let keep = |kept: &mut Option<String>, name| *kept = kept.take().or_else(|| value(name));
        match (start.depth, start.element, &mut self.entry) {
            (1, Element::Entry, _) => self.entry = Some(ListedEntry::default()),
            (1, Element::Md, _) => {
                keep(&mut listing.capability, "capability");
                keep(&mut listing.from, "from");
                keep(&mut listing.until, "until");
            }
            (1, Element::Ln, _) if start.tag.has_relation("up") => keep(&mut listing.up, "href"),
            (2, Element::Md, Some(entry)) => {
                keep(&mut entry.capability, "capability");
                keep(&mut entry.change, "change");
                keep(&mut entry.datetime, "datetime");
                keep(&mut entry.hash, "hash");
                keep(&mut entry.length, "length");
                keep(&mut entry.media_type, "type");
                keep(&mut entry.encoding, "encoding");
                keep(&mut entry.until, "until");
            }
            (2, Element::Ln, Some(entry)) => {
                let plain = start.tag.attributes.iter();
                let plain = plain.filter(|attribute| attribute.namespace == Namespace::None);
                let pairs = plain.filter_map(|attribute| {
                    let name = start.tag.local_name(attribute).to_owned();
                    let value = start.tag.text(attribute).ok()?;
                    Some((name, value.trim().to_owned()))
                });
                entry.links.push(pairs.collect());
            }
            _ => {}
        }
    }

    fn text(&mut self, depth: usize, element: Element, text: &str) {
        let Some(entry) = self.entry.as_mut().filter(|_| depth == 2) else {
            return;
        };
        if element == Element::Loc {
            entry.loc.get_or_insert_with(|| text.to_owned());
        } else if self.is_lastmod {
            entry.lastmod.get_or_insert_with(|| text.to_owned());
        }
    }

    fn end(&mut self, depth: usize, _: usize) {
        if let (1, Some(listing)) = (depth, &mut self.listing) {
            listing.entries.extend(self.entry.take());
        }
    }
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
        assert_eq!((list.form, list.is_list()), (Form::List, true));
        assert_eq!(list.capability.as_deref(), Some("capabilitylist"));
        assert_eq!(list.up.as_deref(), Some("https://e.org/d"));
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

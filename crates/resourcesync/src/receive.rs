//! Reading of notifications as Destinations receive them (Framework Notification 1.0.1 section 3, Change Notification
//! 1.0.1 section 3).

use jiff::Timestamp;
use serde::Serialize;

use crate::capability::{ChannelKind, UnknownCapability};
use crate::change::kind;
use crate::datetime::Datetime;
use crate::listing::{ListedEntry, ListedLink, Listing};
use crate::parse::ReadError;
use crate::payload::{ChangeKind, Entry, Payload};
use crate::uri::{NotAUri, Uri};

/// A notification of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// Changes of documents.
    Framework(Payload),
    /// Changes of resources.
    Change(ChangeNotification),
}

/// A change notification as received. Times are texts as written: the specification's own formats have several
/// precisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeNotification {
    /// URI of the Capability List of the set.
    pub up: Option<String>,
    /// Start of the interval of which it has all changes.
    pub from: Option<String>,
    /// End of that interval.
    pub until: Option<String>,
    /// Changes in the order in which they happened.
    pub changes: Vec<ReceivedChange>,
    /// Number of entries without a `loc` or a known `change`; they are left out.
    pub skipped: usize,
}

/// One change of one resource, as a change notification or a Change List describes it (core 1.1 section 7). All
/// values are texts as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReceivedChange {
    /// URI of the resource.
    pub loc: String,
    /// Created, updated or deleted.
    pub change: ChangeKind,
    /// Time of the change (W3C Datetime).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datetime: Option<String>,
    /// Time of the last modification (W3C Datetime).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lastmod: Option<String>,
    /// Digests, separated by white space, each after the name of its algorithm and a colon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Number of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<String>,
    /// Value of `type`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Content codings, such as `gzip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Attributes of each `rs:ln`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<ListedLink>,
}

impl Notification {
    /// Reads a notification of either kind.
    ///
    /// # Errors
    ///
    /// If it is no complete, well-formed XML, no notification, or has no valid entries of a framework notification.
    pub fn parse(bytes: &[u8]) -> Result<Notification, PayloadError> {
        let listing = Listing::parse(bytes)?.ok_or(PayloadError::ForeignRoot)?;
        let capability = listing.capability.as_deref();
        match capability.and_then(ChannelKind::of_capability) {
            Some(ChannelKind::Change) if listing.is_urlset() => {
                Ok(Notification::Change(listing.into()))
            }
            Some(ChannelKind::Framework) => listing.try_into().map(Notification::Framework),
            Some(ChannelKind::Change) => Err(PayloadError::ForeignRoot),
            None => Err(PayloadError::UnknownKind),
        }
    }

    /// Returns the kind of the channels on which such notifications are sent.
    pub fn kind(&self) -> ChannelKind {
        match self {
            Notification::Framework(_) => ChannelKind::Framework,
            Notification::Change(_) => ChannelKind::Change,
        }
    }
}

impl From<Listing> for ChangeNotification {
    fn from(listing: Listing) -> ChangeNotification {
        let up = listing.targets("up").next().map(str::to_owned);
        let entries = listing.entries.len();
        let changes = listing.entries.into_iter();
        let changes: Vec<ReceivedChange> = changes.filter_map(ReceivedChange::of).collect();
        ChangeNotification {
            up,
            from: listing.from,
            until: listing.until,
            skipped: entries - changes.len(),
            changes,
        }
    }
}

impl ReceivedChange {
    /// Returns the change that an entry describes; `None` without a `loc` or a known `change`.
    pub fn of(entry: ListedEntry) -> Option<ReceivedChange> {
        Some(ReceivedChange {
            change: kind(&entry.change?)?,
            loc: entry.loc?,
            datetime: entry.datetime,
            lastmod: entry.lastmod,
            hash: entry.hash,
            length: entry.length,
            media_type: entry.media_type,
            encoding: entry.encoding,
            links: entry.links,
        })
    }
}

/// Returns the time that a text stands for and the end of it: a second stands for all of it, a day for the whole day
/// (W3C Datetime, core 1.1 section 7). Without a zone it is UTC.
pub fn time_span(text: &str) -> Option<(Timestamp, Timestamp)> {
    let datetime = Datetime::parse(text)?;
    let unit = match text.trim().len() {
        4 => jiff::Span::new().years(1),
        7 => jiff::Span::new().months(1),
        10 => jiff::Span::new().days(1),
        _ => return Some((datetime.at(), datetime.end())),
    };
    let start = datetime.at().to_zoned(jiff::tz::TimeZone::UTC);
    Some((datetime.at(), start.checked_add(unit).ok()?.timestamp()))
}

/// The reason why bytes are not a notification.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// It is broken off or malformed.
    #[error("it is not well-formed")]
    NotWellFormed(#[from] ReadError),
    /// It is another XML document, or no XML.
    #[error("its root element is not urlset of the sitemap namespace")]
    ForeignRoot,
    /// It is another document of the framework, or a plain sitemap.
    #[error("it has no root-level rs:md with capability \"framework-notification\"")]
    NotANotification,
    /// It is no notification of either kind.
    #[error(
        "it has no root-level rs:md with capability \"framework-notification\" or \"change-notification\""
    )]
    UnknownKind,
    /// An entry lacks what every entry has.
    #[error("entry {entry} has no {part}")]
    Incomplete {
        /// Number of the entry, from 1.
        entry: usize,
        /// `loc`, `change` or `capability`.
        part: &'static str,
    },
    /// An entry is about a document of no capability of the framework.
    #[error("entry {entry}")]
    UnknownCapability {
        /// Number of the entry, from 1.
        entry: usize,
        /// The value.
        source: UnknownCapability,
    },
    /// An entry has another value of `change`.
    #[error("entry {entry} has the unknown change \"{change}\"")]
    UnknownChange {
        /// Number of the entry, from 1.
        entry: usize,
        /// The value.
        change: String,
    },
    /// A time is none: the text.
    #[error("\"{0}\" is no date and time")]
    Datetime(String),
    /// A URI is relative or malformed.
    #[error(transparent)]
    NotAUri(#[from] NotAUri),
}

impl Payload {
    /// Reads a notification as a Destination receives it, whatever its prefixes and the order of its
    /// elements (Framework Notification 1.0.1 section 3).
    ///
    /// # Errors
    ///
    /// If it is no complete, well-formed XML, no framework notification, or has an entry that is not valid.
    pub fn parse(bytes: &[u8]) -> Result<Payload, PayloadError> {
        let listing = Listing::parse(bytes)?;
        listing.ok_or(PayloadError::ForeignRoot)?.try_into()
    }
}

impl TryFrom<Listing> for Payload {
    type Error = PayloadError;

    fn try_from(listing: Listing) -> Result<Payload, PayloadError> {
        if !listing.is_urlset() {
            return Err(PayloadError::ForeignRoot);
        }
        if listing.capability.as_deref() != Some(ChannelKind::Framework.capability()) {
            return Err(PayloadError::NotANotification);
        }
        let up = listing.targets("up").next().map(Uri::parse).transpose();
        let entries = (1..)
            .zip(listing.entries)
            .map(|(number, listed)| read_entry(number, listed));
        Ok(Payload {
            up: up?,
            from: listing.from.map(timestamp).transpose()?,
            until: listing.until.map(timestamp).transpose()?,
            entries: entries.collect::<Result<_, _>>()?,
        })
    }
}

/// Returns the entry with this number in a notification.
fn read_entry(entry: usize, listed: ListedEntry) -> Result<Entry, PayloadError> {
    let missing = |part| PayloadError::Incomplete { entry, part };
    let loc = listed.loc.as_deref().ok_or_else(|| missing("loc"))?;
    let index = listed.targets("index").next().map(Uri::parse).transpose();
    let text = listed.capability.as_deref();
    let capability = text.ok_or_else(|| missing("capability"));
    let change = listed.change.clone().ok_or_else(|| missing("change"))?;
    let mut kinds = ChangeKind::ALL.into_iter();
    let kind = kinds.find(|kind| kind.as_str() == change);
    Ok(Entry {
        uri: Uri::parse(loc)?,
        change: kind.ok_or(PayloadError::UnknownChange { entry, change })?,
        capability: capability?
            .parse()
            .map_err(|source| PayloadError::UnknownCapability { entry, source })?,
        index: index?,
        datetime: listed.datetime.map(timestamp).transpose()?,
    })
}

/// Reads a date and time, in UTC where it names no zone.
fn timestamp(text: String) -> Result<Timestamp, PayloadError> {
    let in_utc = || {
        let local: jiff::civil::DateTime = text.parse().ok()?;
        jiff::tz::Offset::UTC.to_timestamp(local).ok()
    };
    let time = text.parse().ok().or_else(in_utc);
    time.ok_or(PayloadError::Datetime(text))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::{ChangeNotification, Notification, time_span};
    use crate::capability::Capability;
    use crate::payload::{ChangeKind, Entry, Payload};
    use crate::uri::Uri;

    fn changes(text: &str) -> ChangeNotification {
        match Notification::parse(text.as_bytes()).unwrap() {
            Notification::Change(notification) => notification,
            Notification::Framework(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_change_notification_is_read_as_it_is_written() {
        let read = changes(
            "<s:urlset xmlns:s='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/'>\
             <s:url><rs:md datetime='2026-11-20T10:05Z' change=' Updated ' hash='md5:00 sha-256:11' length='8876' type='text/plain' \
             encoding='gzip' shoe='9'/><s:lastmod> 2026-11-20 </s:lastmod><s:changefreq>daily</s:changefreq>\
             <s:loc>https://e.org/a?b&amp;c</s:loc><rs:ln rel='describedby' href='https://e.org/m'/></s:url>\
             <s:url><s:loc>https://e.org/b</s:loc><rs:md change='deleted'/></s:url>\
             <s:url><s:loc>https://e.org/c</s:loc><rs:md change='moved'/></s:url>\
             <s:url><rs:md change='deleted'/></s:url>\
             <rs:md until='2026-11-20T10:05:31.000001Z' from='then' capability='change-notification'/>\
             <rs:ln href='https://e.org/cl.xml' rel='up'/></s:urlset>",
        );
        assert_eq!(read.up.as_deref(), Some("https://e.org/cl.xml"));
        assert_eq!(read.from.as_deref(), Some("then"));
        assert_eq!(read.until.as_deref(), Some("2026-11-20T10:05:31.000001Z"));
        assert_eq!((read.changes.len(), read.skipped), (2, 2));
        assert_eq!(
            serde_json::to_string(&read.changes).unwrap(),
            "[{\"loc\":\"https://e.org/a?b&c\",\"change\":\"updated\",\"datetime\":\"2026-11-20T10:05Z\",\
             \"lastmod\":\"2026-11-20\",\"hash\":\"md5:00 sha-256:11\",\"length\":\"8876\",\"type\":\"text/plain\",\
             \"encoding\":\"gzip\",\"links\":[{\"href\":\"https://e.org/m\",\"rel\":\"describedby\"}]},\
             {\"loc\":\"https://e.org/b\",\"change\":\"deleted\"}]"
        );
    }

    #[test]
    fn a_notification_has_the_kind_of_its_capability() {
        let framework = Payload::default().render();
        let read = Notification::parse(&framework).unwrap();
        assert_eq!(read, Notification::Framework(Payload::default()));
        let text = String::from_utf8(framework).unwrap();
        let capability = "it has no root-level rs:md with capability \"framework-notification\" or \"change-notification\"";
        let root = "its root element is not urlset of the sitemap namespace";
        for (from, to, message) in [
            ("framework-notification", "changelist", capability),
            ("urlset", "sitemapindex", root),
        ] {
            let text = text.replace(from, to);
            let error = Notification::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn a_time_stands_for_all_of_its_unit() {
        // A text, its start, and its end.
        let table = "
            2026 | 2026-01-01T00:00:00Z | 2027-01-01T00:00:00Z
            2026-11 | 2026-11-01T00:00:00Z | 2026-12-01T00:00:00Z
            2026-11-20 | 2026-11-20T00:00:00Z | 2026-11-21T00:00:00Z
            2026-11-20T10:05Z | 2026-11-20T10:05:00Z | 2026-11-20T10:05:01Z
            2026-11-20T10:05+01:00 | 2026-11-20T09:05:00Z | 2026-11-20T09:05:01Z
            2026-11-20T10:05:07 | 2026-11-20T10:05:07Z | 2026-11-20T10:05:08Z
            2026-11-20T10:05:07.5-01:00 | 2026-11-20T11:05:07.5Z | 2026-11-20T11:05:07.6Z
        ";
        for row in table.trim().lines() {
            let mut cells = row.split('|').map(str::trim);
            let [text, start, end] = [(); 3].map(|()| cells.next().unwrap());
            assert_eq!(time_span(text), Some((time(start), time(end))), "{text}");
        }
        for text in ["", "soon", "2026-13", "99999-01-01", "10:05:07", "äöüß"] {
            assert_eq!(time_span(text), None, "{text}");
        }
    }

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn receivers_need_no_particular_prefix_or_order() {
        let payload = Payload::parse(
            b"\xef\xbb\xbf<?xml version='1.0'?>\r\n\
            <sm:urlset xmlns:sm='http://www.sitemaps.org/schemas/sitemap/0.9'>\r\n\
              <!-- one --><sm:url><r:ln xmlns:r='http://www.openarchives.org/rs/terms/' href='https://e.org/i.xml' rel='x index'/>\r\n\
                <r:md xmlns:r='http://www.openarchives.org/rs/terms/' capability='changelist' datetime='2026-11-20' change='created'/>\r\n\
                <sm:loc>\r\n <![CDATA[https://e.org/?a]]>&amp;b\r\n</sm:loc></sm:url>\r\n\
              <md xmlns='http://www.openarchives.org/rs/terms/' until='2026-11-20T19:00:01+09:00' from='2026-11-20T09:00:00' capability='framework-notification'/>\r\n\
            </sm:urlset>",
        );
        let expected = Payload {
            up: None,
            from: Some(time("2026-11-20T09:00:00Z")),
            until: Some(time("2026-11-20T10:00:01Z")),
            entries: vec![Entry {
                uri: uri("https://e.org/?a&b"),
                change: ChangeKind::Created,
                capability: Capability::ChangeList,
                datetime: Some(time("2026-11-20T00:00:00Z")),
                index: Some(uri("https://e.org/i.xml")),
            }],
        };
        assert_eq!(payload.unwrap(), expected);
    }

    #[test]
    fn other_content_is_named() {
        // What is replaced by what, and the message.
        let table = "
            resourcelist | warpdrive | entry 1
            updated | renamed | entry 1 has the unknown change \"renamed\"
            change= | changed= | entry 1 has no change
            https://e.org/rl.xml | | entry 1 has no loc
            https://e.org/rl.xml | rl.xml | \"rl.xml\" is not an absolute URI such as https://example.org/
            2026-11-20T10:00:01.000Z | soon | \"soon\" is no date and time
            framework- | change- | it has no root-level rs:md with capability \"framework-notification\"
            urlset | feed | its root element is not urlset of the sitemap namespace
            </urlset> | | it is not well-formed
            </url> | </loc> | it is not well-formed
            rl.xml | \u{0} | it is not well-formed
        ";
        let good = Payload {
            up: Some(uri("https://e.org/capabilitylist.xml")),
            from: None,
            until: Some(time("2026-11-20T10:00:01Z")),
            entries: vec![Entry {
                uri: uri("https://e.org/rl.xml"),
                change: ChangeKind::Updated,
                capability: Capability::ResourceList,
                datetime: None,
                index: None,
            }],
        };
        let good = String::from_utf8(good.render()).unwrap();
        let refused = |from, to| {
            let other = good.replace(from, to);
            Payload::parse(other.as_bytes()).unwrap_err()
        };
        for row in table.trim().lines() {
            let mut cells = row.split('|').map(str::trim);
            let [from, to, message] = [(); 3].map(|()| cells.next().unwrap());
            assert_eq!(refused(from, to).to_string(), message, "{row}");
        }
        let unknown = refused("resourcelist", "warpdrive");
        let source = std::error::Error::source(&unknown).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("unknown capability \"warpdrive\""));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_receiver_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Payload::parse(&bytes), Notification::parse(&bytes));
        }

        #[test]
        fn no_text_makes_the_reading_of_times_panic(text in ".{0,30}") {
            let _ = time_span(&text);
        }
    }
}

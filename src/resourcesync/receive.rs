//! Reading of notifications as Destinations receive them (Framework Notification 1.0.1 section 3).

use jiff::Timestamp;

use crate::resourcesync::capability::UnknownCapability;
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::parse::{ReadError, read};
use crate::resourcesync::payload::{ChangeKind, Entry, Payload};
use crate::resourcesync::reader::{Element, Handler, Start};
use crate::resourcesync::uri::{NotAUri, Uri};

/// The reason why bytes are not a framework notification.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error("it is not well-formed")]
    NotWellFormed(#[from] ReadError),
    #[error("its root element is not urlset of the sitemap namespace")]
    ForeignRoot,
    #[error("it has no root-level rs:md with capability \"framework-notification\"")]
    NotANotification,
    #[error("entry {entry} has no {part}")]
    Incomplete { entry: usize, part: &'static str },
    #[error("entry {entry}")]
    UnknownCapability {
        entry: usize,
        source: UnknownCapability,
    },
    #[error("entry {entry} has the unknown change \"{change}\"")]
    UnknownChange { entry: usize, change: String },
    #[error("\"{0}\" is no date and time")]
    Datetime(String),
    #[error(transparent)]
    NotAUri(#[from] NotAUri),
}

impl Payload {
    /// Reads a notification as a Destination receives it, whatever its prefixes and the order of its
    /// elements (Framework Notification 1.0.1 section 3).
    pub fn parse(bytes: &[u8]) -> Result<Payload, PayloadError> {
        match read(bytes, PayloadHandler::default())? {
            Ok((handler, _)) if handler.is_urlset => handler.payload(),
            _ => Err(PayloadError::ForeignRoot),
        }
    }
}

/// A notification as it is written.
#[derive(Debug, Default)]
struct PayloadHandler {
    is_urlset: bool,
    is_notification: bool,
    up: Option<String>,
    from: Option<String>,
    until: Option<String>,
    entries: Vec<EntryDraft>,
    /// The entry that is being read.
    entry: Option<EntryDraft>,
}

/// An entry as it is written.
#[derive(Debug, Default)]
struct EntryDraft {
    loc: Option<String>,
    change: Option<String>,
    capability: Option<String>,
    datetime: Option<String>,
    index: Option<String>,
}

impl Handler for PayloadHandler {
    fn start(&mut self, start: &Start<'_>) {
        let value = |name| {
            let value = start.tag.value(name)?;
            Some(value.trim().to_owned())
        };
        match (start.depth, start.element, &mut self.entry) {
            (0, ..) => self.is_urlset = start.local == "urlset",
            (1, Element::Entry, _) => self.entry = Some(EntryDraft::default()),
            (1, Element::Md, _) => {
                let framework = ChannelKind::Framework.capability();
                self.is_notification |= value("capability").as_deref() == Some(framework);
                self.from = value("from").or(self.from.take());
                self.until = value("until").or(self.until.take());
            }
            (1, Element::Ln, _) if start.tag.has_relation("up") => self.up = value("href"),
            (2, Element::Md, Some(entry)) => {
                entry.change = value("change").or(entry.change.take());
                entry.capability = value("capability").or(entry.capability.take());
                entry.datetime = value("datetime").or(entry.datetime.take());
            }
            (2, Element::Ln, Some(entry)) if start.tag.has_relation("index") => {
                entry.index = value("href");
            }
            _ => {}
        }
    }

    fn text(&mut self, depth: usize, element: Element, text: &str) {
        if let (2, Element::Loc, Some(entry)) = (depth, element, &mut self.entry) {
            entry.loc.get_or_insert_with(|| text.to_owned());
        }
    }

    fn end(&mut self, depth: usize, _: usize) {
        if depth == 1 {
            self.entries.extend(self.entry.take());
        }
    }
}

impl PayloadHandler {
    fn payload(self) -> Result<Payload, PayloadError> {
        if !self.is_notification {
            return Err(PayloadError::NotANotification);
        }
        let entries = (1..).zip(self.entries);
        Ok(Payload {
            up: self.up.map(|up| Uri::parse(&up)).transpose()?,
            from: self.from.map(timestamp).transpose()?,
            until: self.until.map(timestamp).transpose()?,
            entries: entries
                .map(|(number, draft)| draft.entry(number))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl EntryDraft {
    /// Returns the entry, the `number`th of its notification.
    fn entry(self, number: usize) -> Result<Entry, PayloadError> {
        let entry = number;
        let missing = |part| PayloadError::Incomplete { entry, part };
        let loc = self.loc.ok_or_else(|| missing("loc"))?;
        let change = self.change.ok_or_else(|| missing("change"))?;
        let capability = self.capability.ok_or_else(|| missing("capability"))?;
        let mut changes = [
            ChangeKind::Created,
            ChangeKind::Updated,
            ChangeKind::Deleted,
        ]
        .into_iter();
        let kind = changes.find(|kind| kind.as_str() == change);
        Ok(Entry {
            uri: Uri::parse(&loc)?,
            change: kind.ok_or(PayloadError::UnknownChange { entry, change })?,
            capability: capability
                .parse()
                .map_err(|source| PayloadError::UnknownCapability { entry, source })?,
            datetime: self.datetime.map(timestamp).transpose()?,
            index: self.index.map(|index| Uri::parse(&index)).transpose()?,
        })
    }
}

/// Reads a date and time, in UTC where it names no zone.
fn timestamp(text: String) -> Result<Timestamp, PayloadError> {
    let in_utc = |text: &str| {
        let local: jiff::civil::DateTime = text.parse().ok()?;
        local.to_zoned(jiff::tz::TimeZone::UTC).ok()
    };
    let time = text.parse().ok();
    let time = time.or_else(|| in_utc(&text).map(|zoned| zoned.timestamp()));
    time.ok_or(PayloadError::Datetime(text))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use crate::resourcesync::capability::Capability;
    use crate::resourcesync::payload::{ChangeKind, Entry, Payload};
    use crate::resourcesync::uri::Uri;

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
        for (from, to, message) in [
            ("resourcelist", "warpdrive", "entry 1"),
            (
                "updated",
                "renamed",
                "entry 1 has the unknown change \"renamed\"",
            ),
            ("change=", "changed=", "entry 1 has no change"),
            ("https://e.org/rl.xml", " ", "entry 1 has no loc"),
            (
                "https://e.org/rl.xml",
                "rl.xml",
                "\"rl.xml\" is not an absolute URI such as https://example.org/",
            ),
            (
                "2026-11-20T10:00:01.000Z",
                "soon",
                "\"soon\" is no date and time",
            ),
            (
                "framework-",
                "change-",
                "it has no root-level rs:md with capability \"framework-notification\"",
            ),
            (
                "urlset",
                "feed",
                "its root element is not urlset of the sitemap namespace",
            ),
            ("</urlset>", "", "it is not well-formed"),
            ("</url>", "</loc>", "it is not well-formed"),
            ("rl.xml", "\u{0}", "it is not well-formed"),
        ] {
            let error = Payload::parse(good.replace(from, to).as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), message, "{from} -> {to}");
        }
        let unknown = Payload::parse(good.replace("resourcelist", "warpdrive").as_bytes());
        let source = std::error::Error::source(&unknown.unwrap_err())
            .unwrap()
            .to_string();
        assert_eq!(source, "unknown capability \"warpdrive\"");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_receiver_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Payload::parse(&bytes);
        }
    }
}

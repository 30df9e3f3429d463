//! The payload of a framework notification (Framework Notification 1.0.1 section 3).

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::capability::Capability;
use crate::channel_kind::ChannelKind;
use crate::characters::is_allowed;
use crate::uri::Uri;

/// Content type of every payload, exactly: some hubs refuse a `charset`.
pub const PAYLOAD_TYPE: &str = "application/xml";

/// The kind of a change: the values of the `change` attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    Created,
    Updated,
    Deleted,
}

impl ChangeKind {
    /// Returns the attribute's value.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeKind::Created => "created",
            ChangeKind::Updated => "updated",
            ChangeKind::Deleted => "deleted",
        }
    }
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One notification, as its receivers read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payload {
    /// Root-level `rs:ln rel="up"` (R20).
    pub up: Option<Uri>,
    /// Start of the interval of which it has all changes; written with milliseconds (R20).
    pub from: Option<Timestamp>,
    /// End of that interval; written with milliseconds (R20).
    pub until: Option<Timestamp>,
    pub entries: Vec<Entry>,
}

/// One `url` element: one change of one document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub uri: Uri,
    pub change: ChangeKind,
    pub capability: Capability,
    /// Time of the change; written with milliseconds (R19).
    pub datetime: Option<Timestamp>,
    /// The index under which the document resides.
    pub index: Option<Uri>,
}

const HEAD: &str = concat!(
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
    "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"",
    " xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n",
);
/// The end of every notification.
pub(crate) const TAIL: &str = "</urlset>\n";

impl Payload {
    /// Returns the notification as it is sent (Framework Notification 1.0.1 section 3; R19, R20).
    pub fn render(&self) -> Vec<u8> {
        let mut xml = self.head();
        for entry in &self.entries {
            write_entry(&mut xml, entry);
        }
        xml.push_str(TAIL);
        xml.into_bytes()
    }

    /// Returns the length of the rendering without its entries, each of which adds its [`entry_len`].
    pub fn overhead(&self) -> usize {
        self.head().len() + TAIL.len()
    }

    fn head(&self) -> String {
        let times = [("from", self.from), ("until", self.until)];
        let times = times.map(|(name, time)| (name, time.map(datetime)));
        head(
            self.up.as_ref(),
            ChannelKind::Framework.capability(),
            &times,
        )
    }
}

/// Returns the start of a notification, up to its first entry.
pub(crate) fn head(up: Option<&Uri>, capability: &str, times: &[(&str, Option<String>)]) -> String {
    let mut xml = HEAD.to_owned();
    // R20: both come before the first url, since the reference reader fails otherwise.
    if let Some(up) = up {
        xml.push_str("  <rs:ln rel=\"up\"");
        write_attribute(&mut xml, "href", up.as_str());
        xml.push_str("/>\n");
    }
    xml.push_str("  <rs:md");
    write_attribute(&mut xml, "capability", capability);
    for (name, time) in times {
        if let Some(time) = time {
            write_attribute(&mut xml, name, time);
        }
    }
    xml.push_str("/>\n");
    xml
}

/// Returns the length that an entry adds to a rendering (R21).
pub fn entry_len(entry: &Entry) -> usize {
    let mut xml = String::new();
    write_entry(&mut xml, entry);
    xml.len()
}

fn write_entry(xml: &mut String, entry: &Entry) {
    xml.push_str("  <url>\n    <loc>");
    write_escaped(xml, entry.uri.as_str());
    xml.push_str("</loc>\n    <rs:md");
    write_attribute(xml, "change", entry.change.as_str());
    if let Some(time) = entry.datetime {
        write_attribute(xml, "datetime", &datetime(time));
    }
    write_attribute(xml, "capability", entry.capability.as_str());
    xml.push_str("/>\n");
    if let Some(index) = &entry.index {
        xml.push_str("    <rs:ln rel=\"index\"");
        write_attribute(xml, "href", index.as_str());
        xml.push_str("/>\n");
    }
    xml.push_str("  </url>\n");
}

/// Writes an attribute, with the space before it.
pub(crate) fn write_attribute(xml: &mut String, name: &str, value: &str) {
    xml.push(' ');
    xml.push_str(name);
    xml.push_str("=\"");
    write_escaped(xml, value);
    xml.push('"');
}

/// Writes a text so that it reads back the same, in an element as in an attribute. Characters that XML cannot hold are
/// percent-encoded.
pub(crate) fn write_escaped(xml: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            '\t' => xml.push_str("&#9;"),
            '\n' => xml.push_str("&#10;"),
            '\r' => xml.push_str("&#13;"),
            character if is_allowed(character) => xml.push(character),
            character => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    xml.push_str(&format!("%{byte:02X}"));
                }
            }
        }
    }
}

/// Returns the length of a text as it is written.
pub(crate) fn escaped_len(text: &str) -> usize {
    let mut xml = String::new();
    write_escaped(&mut xml, text);
    xml.len()
}

/// Returns a time in UTC with milliseconds (R19).
fn datetime(time: Timestamp) -> String {
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::{ChangeKind, Entry, Payload, entry_len};
    use crate::capability::Capability;
    use crate::uri::Uri;

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn updated(text: &str) -> Entry {
        Entry {
            uri: uri(text),
            change: ChangeKind::Updated,
            capability: Capability::ResourceList,
            datetime: Some(time("2026-11-20T10:00:00.5+01:00")),
            index: None,
        }
    }

    fn text(payload: &Payload) -> String {
        String::from_utf8(payload.render()).unwrap()
    }

    #[test]
    fn links_and_description_come_before_the_entries() {
        let payload = Payload {
            up: Some(uri("https://e.org/capabilitylist.xml")),
            from: Some(time("2026-11-20T09:00:00.25Z")),
            until: Some(time("2026-11-20T10:00:01Z")),
            entries: vec![
                updated("https://e.org/rl.xml"),
                Entry {
                    change: ChangeKind::Created,
                    capability: Capability::ChangeList,
                    index: Some(uri("https://e.org/clindex.xml")),
                    ..updated("https://e.org/cl.xml")
                },
            ],
        };
        assert_snapshot!(text(&payload), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
          <rs:ln rel="up" href="https://e.org/capabilitylist.xml"/>
          <rs:md capability="framework-notification" from="2026-11-20T09:00:00.250Z" until="2026-11-20T10:00:01.000Z"/>
          <url>
            <loc>https://e.org/rl.xml</loc>
            <rs:md change="updated" datetime="2026-11-20T09:00:00.500Z" capability="resourcelist"/>
          </url>
          <url>
            <loc>https://e.org/cl.xml</loc>
            <rs:md change="created" datetime="2026-11-20T09:00:00.500Z" capability="changelist"/>
            <rs:ln rel="index" href="https://e.org/clindex.xml"/>
          </url>
        </urlset>
        "#);
    }

    #[test]
    fn an_empty_notification_is_one() {
        let payload = Payload {
            up: None,
            from: None,
            until: None,
            entries: Vec::new(),
        };
        assert_snapshot!(text(&payload), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
          <rs:md capability="framework-notification"/>
        </urlset>
        "#);
        assert_eq!(Payload::parse(&payload.render()).unwrap(), payload);
    }

    #[test]
    fn what_would_be_markup_is_escaped() {
        let payload = Payload {
            up: Some(uri("https://e.org/?a=\"1\"&b=<2>")),
            from: None,
            until: None,
            entries: vec![Entry {
                datetime: None,
                ..updated("https://e.org/?a=1&b='2'\u{1}\tx")
            }],
        };
        assert_snapshot!(text(&payload), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
          <rs:ln rel="up" href="https://e.org/?a=&quot;1&quot;&amp;b=&lt;2&gt;"/>
          <rs:md capability="framework-notification"/>
          <url>
            <loc>https://e.org/?a=1&amp;b='2'%01&#9;x</loc>
            <rs:md change="updated" capability="resourcelist"/>
          </url>
        </urlset>
        "#);
    }

    fn any_uri() -> impl Strategy<Value = Uri> {
        "https?://[a-z]{1,9}(:[0-9]{1,4})?/[ -~\t\n\r]{0,40}"
            .prop_filter_map("an absolute URI", |text| Uri::parse(&text).ok())
            // White space at the end would be trimmed.
            .prop_filter_map("a trimmed URI", |uri| {
                (Uri::parse(uri.as_str()).as_ref() == Ok(&uri)).then_some(uri)
            })
    }

    fn any_time() -> impl Strategy<Value = Timestamp> {
        (0..4_102_444_800_000_i64).prop_map(|time| Timestamp::from_millisecond(time).unwrap())
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        let changes = [
            ChangeKind::Created,
            ChangeKind::Updated,
            ChangeKind::Deleted,
        ];
        let capabilities: Vec<_> = Capability::all().collect();
        (
            any_uri(),
            prop::sample::select(changes.to_vec()),
            prop::sample::select(capabilities),
            prop::option::of(any_time()),
            prop::option::of(any_uri()),
        )
            .prop_map(|(uri, change, capability, datetime, index)| Entry {
                uri,
                change,
                capability,
                datetime,
                index,
            })
    }

    proptest! {
        #[test]
        fn what_is_rendered_reads_back(
            up in prop::option::of(any_uri()),
            from in prop::option::of(any_time()),
            until in prop::option::of(any_time()),
            entries in prop::collection::vec(any_entry(), 0..8),
        ) {
            let payload = Payload { up, from, until, entries };
            let rendered = payload.render();
            let length: usize = payload.entries.iter().map(entry_len).sum();
            prop_assert_eq!(rendered.len(), payload.overhead() + length);
            prop_assert_eq!(Payload::parse(&rendered).unwrap(), payload);
        }
    }
}

//! The payload of a framework notification (Framework Notification 1.0.1 section 3).

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::capability::{Capability, ChannelKind};
use crate::document::Form;
use crate::uri::Uri;
use crate::writer::{self, rel_and_href, written_len};

/// Content type of every payload, exactly: some hubs refuse a `charset`.
pub const PAYLOAD_TYPE: &str = "application/xml";

/// The kind of a change: the values of the `change` attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// It has other content.
    Updated,
    /// It is gone.
    Deleted,
}

impl ChangeKind {
    /// Each kind.
    pub const ALL: [Self; 3] = [Self::Created, Self::Updated, Self::Deleted];

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
    /// Changes of documents, in order.
    pub entries: Vec<Entry>,
}

/// One `url` element: one change of one document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// URI of the document.
    pub uri: Uri,
    /// Created, updated or deleted.
    pub change: ChangeKind,
    /// The kind of document.
    pub capability: Capability,
    /// Time of the change; written with milliseconds (R19).
    pub datetime: Option<Timestamp>,
    /// The index under which the document resides.
    pub index: Option<Uri>,
}

impl Payload {
    /// Returns the notification as it is sent (Framework Notification 1.0.1 section 3; R19, R20).
    pub fn render(&self) -> Vec<u8> {
        let interval = [self.from, self.until].map(|time| time.map(datetime));
        render_payload(self.up.as_ref(), ChannelKind::Framework, interval, |xml| {
            self.entries
                .iter()
                .for_each(|entry| write_entry(xml, entry));
        })
    }
}

/// Returns a notification whose entries are written by a function.
pub(crate) fn render_payload(
    up: Option<&Uri>,
    kind: ChannelKind,
    interval: [Option<Cow<'_, str>>; 2],
    write_entries: impl FnOnce(&mut String),
) -> Vec<u8> {
    let [from, until] = interval;
    let up = up.map(|up| rel_and_href("up", up.as_str()));
    let capability = Some(kind.capability().into());
    let description = [("capability", capability), ("from", from), ("until", until)];
    let mut xml = String::new();
    writer::write_head(&mut xml, Form::List, up, &description);
    write_entries(&mut xml);
    xml.extend(["</", Form::List.root(), ">\n"]);
    xml.into_bytes()
}

/// Returns the length that an entry adds to a rendering (R21).
pub fn entry_len(entry: &Entry) -> usize {
    written_len(|xml| write_entry(xml, entry))
}

fn write_entry(xml: &mut String, entry: &Entry) {
    let loc = [("loc", Some(entry.uri.as_str()))];
    let description = [
        ("change", Some(entry.change.as_str().into())),
        ("datetime", entry.datetime.map(datetime)),
        ("capability", Some(entry.capability.as_str().into())),
    ];
    let uri = entry.index.as_ref();
    let index = uri.map(|index| rel_and_href("index", index.as_str()));
    writer::write_entry(xml, Form::List, loc, &description, index);
}

/// Returns a time in UTC with milliseconds (R19).
fn datetime(time: Timestamp) -> Cow<'static, str> {
    format!("{time:.3}").into()
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
    fn what_would_be_markup_is_escaped() {
        let payload = Payload {
            up: Some(uri("https://e.org/?a=\"1\"&b=<2>")),
            entries: vec![Entry {
                datetime: None,
                ..updated("https://e.org/?a=1&b='2'\u{1}\tx")
            }],
            ..Payload::default()
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

    prop_compose! {
        fn any_entry()(
            uri in any_uri(),
            change in prop::sample::select(ChangeKind::ALL.to_vec()),
            capability in prop::sample::select(Vec::from_iter(Capability::all())),
            datetime in prop::option::of(any_time()),
            index in prop::option::of(any_uri()),
        ) -> Entry {
            Entry { uri, change, capability, datetime, index }
        }
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
            let empty = Payload { entries: Vec::new(), ..payload.clone() };
            prop_assert_eq!(rendered.len(), empty.render().len() + length);
            prop_assert_eq!(Payload::parse(&rendered).unwrap(), payload);
        }
    }
}

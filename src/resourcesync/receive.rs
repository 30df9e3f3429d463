//! A notification as Destinations receive it: `listen` and the tests read what hubs deliver
//! (Framework Notification 1.0.1 section 3).

use jiff::Timestamp;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;

use crate::resourcesync::capability::UnknownCapability;
use crate::resourcesync::document::Malformed;
use crate::resourcesync::namespaces::{RS, SITEMAP};
use crate::resourcesync::payload::{ChangeKind, Entry, NOTIFICATION, Payload};
use crate::resourcesync::uri::{NotAUri, Uri};
use crate::resourcesync::window::Window;

/// Why bytes are not a framework notification.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error("it is not well-formed")]
    NotWellFormed(#[from] quick_xml::Error),
    #[error("it is not readable text")]
    Unreadable(#[from] Malformed),
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
        let mut window = Window::new(bytes);
        window.lift_limit();
        // Reading from memory does not fail.
        while window.grow().unwrap_or_default() {}
        if let Some(malformed) = window.fault() {
            return Err(malformed.into());
        }
        read(window.text())
    }
}

/// The entry whose elements go by.
#[derive(Default)]
struct Draft {
    loc: String,
    change: Option<String>,
    capability: Option<String>,
    datetime: Option<Timestamp>,
    index: Option<Uri>,
}

fn read(text: &str) -> Result<Payload, PayloadError> {
    let mut reader = NsReader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut payload = Payload::default();
    let mut is_notification = false;
    let mut draft = Draft::default();
    let mut path: Vec<Element> = Vec::new();
    loop {
        match reader.read_event()? {
            Event::Start(tag) => {
                let element = element(&reader, &tag);
                match (&path[..], element) {
                    ([], Element::Urlset) => {}
                    ([], _) => return Err(PayloadError::ForeignRoot),
                    ([_], Element::Url) => draft = Draft::default(),
                    ([_], Element::Md) => {
                        is_notification |=
                            value(&tag, "capability")?.as_deref() == Some(NOTIFICATION);
                        if let Some(from) = value(&tag, "from")? {
                            payload.from = Some(timestamp(&from)?);
                        }
                        if let Some(until) = value(&tag, "until")? {
                            payload.until = Some(timestamp(&until)?);
                        }
                    }
                    ([_], Element::Ln) if has_relation(&tag, "up")? => {
                        payload.up = target(&tag)?;
                    }
                    ([_, Element::Url], Element::Md) => describe(&mut draft, &tag)?,
                    ([_, Element::Url], Element::Ln) if has_relation(&tag, "index")? => {
                        draft.index = target(&tag)?;
                    }
                    _ => {}
                }
                path.push(element);
            }
            Event::End(_) => {
                let ended = path.pop();
                if ended == Some(Element::Url) && path.len() == 1 {
                    let entry = finish(std::mem::take(&mut draft), payload.entries.len() + 1)?;
                    payload.entries.push(entry);
                }
            }
            Event::Text(text) if is_in_loc(&path) => draft.loc.push_str(&text.into_inner()),
            Event::CData(text) if is_in_loc(&path) => draft.loc.push_str(&text.into_inner()),
            Event::GeneralRef(name) if is_in_loc(&path) => {
                let reference = format!("&{};", name.into_inner());
                let text = unescape(&reference).map_err(quick_xml::Error::from)?;
                draft.loc.push_str(&text);
            }
            Event::Eof if !path.is_empty() => {
                let malformed = Malformed::Truncated {
                    line: 1 + text.matches('\n').count() as u64,
                };
                return Err(malformed.into());
            }
            Event::Eof if is_notification => return Ok(payload),
            Event::Eof => return Err(PayloadError::NotANotification),
            _ => {}
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Urlset,
    Url,
    Loc,
    Md,
    Ln,
    Other,
}

fn element(reader: &NsReader<&[u8]>, tag: &BytesStart<'_>) -> Element {
    let (namespace, local) = reader.resolver().resolve_element(tag.name());
    let namespace = match namespace {
        ResolveResult::Bound(namespace) => namespace.into_inner(),
        _ => "",
    };
    match (namespace, local.into_inner()) {
        (SITEMAP, "urlset") => Element::Urlset,
        (SITEMAP, "url") => Element::Url,
        (SITEMAP, "loc") => Element::Loc,
        (RS, "md") => Element::Md,
        (RS, "ln") => Element::Ln,
        _ => Element::Other,
    }
}

fn is_in_loc(path: &[Element]) -> bool {
    matches!(path, [_, Element::Url, Element::Loc])
}

fn value(tag: &BytesStart<'_>, name: &str) -> Result<Option<String>, PayloadError> {
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(quick_xml::Error::from)?;
        if attribute.key.into_inner() == name {
            let value = unescape(&attribute.value).map_err(quick_xml::Error::from)?;
            return Ok(Some(value.trim().to_owned()));
        }
    }
    Ok(None)
}

fn has_relation(tag: &BytesStart<'_>, relation: &str) -> Result<bool, PayloadError> {
    let rel = value(tag, "rel")?.unwrap_or_default();
    Ok(rel
        .split_ascii_whitespace()
        .any(|one| one.eq_ignore_ascii_case(relation)))
}

fn target(tag: &BytesStart<'_>) -> Result<Option<Uri>, PayloadError> {
    let href = value(tag, "href")?;
    Ok(href.map(|href| Uri::parse(&href)).transpose()?)
}

fn describe(draft: &mut Draft, tag: &BytesStart<'_>) -> Result<(), PayloadError> {
    draft.change = value(tag, "change")?.or(draft.change.take());
    draft.capability = value(tag, "capability")?.or(draft.capability.take());
    if let Some(time) = value(tag, "datetime")? {
        draft.datetime = Some(timestamp(&time)?);
    }
    Ok(())
}

fn finish(draft: Draft, entry: usize) -> Result<Entry, PayloadError> {
    let missing = |part| PayloadError::Incomplete { entry, part };
    if draft.loc.trim().is_empty() {
        return Err(missing("loc"));
    }
    let change = draft.change.ok_or_else(|| missing("change"))?;
    let change = [
        ChangeKind::Created,
        ChangeKind::Updated,
        ChangeKind::Deleted,
    ]
    .into_iter()
    .find(|kind| kind.as_str() == change)
    .ok_or(PayloadError::UnknownChange { entry, change })?;
    let capability = draft.capability.ok_or_else(|| missing("capability"))?;
    Ok(Entry {
        uri: Uri::parse(&draft.loc)?,
        change,
        capability: capability
            .parse()
            .map_err(|source| PayloadError::UnknownCapability { entry, source })?,
        datetime: draft.datetime,
        index: draft.index,
    })
}

/// A date and time, in UTC where it names no zone.
fn timestamp(text: &str) -> Result<Timestamp, PayloadError> {
    let in_utc = |text: &str| {
        let local: jiff::civil::DateTime = text.parse().ok()?;
        local.to_zoned(jiff::tz::TimeZone::UTC).ok()
    };
    text.parse()
        .ok()
        .or_else(|| in_utc(text).map(|zoned| zoned.timestamp()))
        .ok_or_else(|| PayloadError::Datetime(text.to_owned()))
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
    fn what_is_no_notification_is_named() {
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
            ("</urlset>", "", "it is not readable text"),
            ("</url>", "</loc>", "it is not well-formed"),
            ("rl.xml", "\u{0}", "it is not readable text"),
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

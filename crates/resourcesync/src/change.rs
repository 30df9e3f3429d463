//! One change of a resource, as a Change List has it and as it is passed on (core 1.1 sections 7 and 12.1; C2, C3, C16).

use std::borrow::Cow;
use std::fmt;

use crate::change_payload::{entry_len, link_len};
use crate::datetime::{Datetime, is_strict, is_xsd_datetime};
use crate::document::beginning;
use crate::fingerprint::{push_string, write_beginning};
use crate::payload::ChangeKind;
use crate::reader::ElementKind;
use crate::tag::{Namespace, StartTag};
use crate::uri::{is_scheme, normal_resource};
use crate::writer::{write_escaped, written_len};

/// Longest fixity information that is passed on, in bytes.
const LONGEST_HASH: usize = 1 << 10;
/// Longest media type or content coding that is passed on, in bytes.
const LONGEST_TYPE: usize = 256;
/// Lowest priority of a link.
const LAST_PRIORITY: u32 = 999_999;

/// Longest entry that is passed on, as rendered; a longer one goes without its links.
const LONGEST_ENTRY: usize = 64 << 10;
/// Longest `loc` as rendered. The other values are bounded too, to less than what is left of [`LONGEST_ENTRY`], so that
/// an entry without links is never too long.
const LONGEST_LOC: usize = 48 << 10;
/// Longest rendering of one byte: `&quot;`.
const LONGEST_ESCAPE: usize = 6;

/// An entry of a Change List as it is passed on (C16). Values that a reader could refuse are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The URI of the resource, byte for byte but for the white space around it.
    pub loc: Box<str>,
    /// As written: a W3C Datetime.
    pub lastmod: Option<Box<str>>,
    /// Created, updated or deleted.
    pub kind: ChangeKind,
    /// Time of the change.
    pub datetime: Option<Datetime>,
    /// White space around each hash value is one space.
    pub hash: Option<Box<str>>,
    /// In bytes.
    pub length: Option<u64>,
    /// The media type: the attribute `type`.
    pub mime_type: Option<Box<str>>,
    /// Content codings, such as `gzip`.
    pub encoding: Option<Box<str>>,
    /// Links to related resources.
    pub links: Vec<RelatedLink>,
}

impl Change {
    /// Returns a change of which no more is said.
    pub fn new(loc: Box<str>, kind: ChangeKind) -> Change {
        Change {
            loc,
            lastmod: None,
            kind,
            datetime: None,
            hash: None,
            length: None,
            mime_type: None,
            encoding: None,
            links: Vec::new(),
        }
    }
}

/// A link from a changed resource to a related one: `rs:ln` (core 1.1 section 14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelatedLink {
    /// Relation type (core 1.1 section 14; RFC 8288).
    pub rel: Box<str>,
    /// An absolute URI, since a relative one would mean another resource elsewhere.
    pub href: Box<str>,
    /// The other attributes that are passed on, by name, in the order in which they are written: `hash`, `length`,
    /// `modified`, `pri`, `type`, `encoding`, `profile`.
    pub attributes: Vec<(&'static str, Box<str>)>,
}

/// Returns a value as it is passed on, if it is.
type ValueFilter = fn(&str) -> Option<Box<str>>;

/// The attributes of a link beside `rel` and `href`, in the order in which they are written.
const LINK_ATTRIBUTES: [(&str, ValueFilter); 7] = [
    ("hash", valid_hash),
    ("length", |length| Some(number(length)?.to_string().into())),
    // As written: a W3C Datetime with seconds and zone.
    ("modified", |modified| {
        is_xsd_datetime(modified.trim()).then(|| modified.trim().into())
    }),
    ("pri", |pri| Some(priority(pri)?.to_string().into())),
    ("type", media_type),
    ("encoding", coding),
    ("profile", |profile| {
        has_scheme(profile.trim()).then(|| profile.trim().into())
    }),
];

impl RelatedLink {
    /// Reads an `rs:ln`; `None` if it has no relation type, or no absolute URI.
    fn read(tag: &StartTag<'_>) -> Option<RelatedLink> {
        let href = tag.filled("href").filter(|href| has_scheme(href))?;
        let filtered = |(name, filter): &(&'static str, ValueFilter)| {
            let value = tag.value(name)?;
            Some((*name, filter(&value)?))
        };
        Some(RelatedLink {
            rel: tag.filled("rel")?.into(),
            href: href.into(),
            attributes: LINK_ATTRIBUTES.iter().filter_map(filtered).collect(),
        })
    }
}

/// The identity of a change (C3): 128 bits of blake3 over its URI as compared, its kind, and its datetime as an instant,
/// or instead of that over `lastmod`, `hash` and `length`.
///
/// State files hold keys: another computation would make every change that is listed a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChangeKey(pub [u8; 16]);

impl fmt::Debug for ChangeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_beginning(f, &self.0)
    }
}

impl ChangeKey {
    /// Returns the key of a change; `uri` is normalised. `undated` has its `lastmod`, `hash` and `length`, empty if absent,
    /// which tell it apart if it has no time. `room` is overwritten.
    pub(crate) fn of(
        uri: &str,
        kind: ChangeKind,
        datetime: Option<Datetime>,
        undated: [&str; 3],
        room: &mut Vec<u8>,
    ) -> ChangeKey {
        const DATED: u8 = 1;
        const UNDATED: u8 = 2;
        room.clear();
        room.push(match kind {
            ChangeKind::Created => 1,
            ChangeKind::Updated => 2,
            ChangeKind::Deleted => 3,
        });
        // Of a fixed length, or with lengths, so that two changes never yield the same bytes.
        if let Some(datetime) = datetime {
            let at = datetime.at();
            room.push(DATED);
            room.extend_from_slice(&at.as_second().to_le_bytes());
            room.extend_from_slice(&at.subsec_nanosecond().to_le_bytes());
        } else {
            room.push(UNDATED);
            for part in undated {
                push_string(room, part);
            }
        }
        room.extend_from_slice(uri.as_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&blake3::hash(room).as_bytes()[..16]);
        ChangeKey(key)
    }
}

/// The reason why an entry does not count (C2).
pub type SkipReason = Cow<'static, str>;

/// One entry. Used for one after the other, so that the parts that decide whether it counts, and its key, need no memory
/// of their own.
#[derive(Debug, Default)]
pub(crate) struct EntryDraft {
    pub(crate) loc: String,
    pub(crate) lastmod: String,
    change: String,
    pub(crate) datetime: String,
    pub(crate) hash: String,
    pub(crate) length: String,
    has_change: bool,
    /// True if the entries are those of a Resource List, which have no `change`.
    pub(crate) is_of_resources: bool,
    /// True if the parts below are read too.
    pub(crate) is_whole: bool,
    mime_type: Option<Box<str>>,
    encoding: Option<Box<str>>,
    links: Vec<RelatedLink>,
    /// Total length of the links as rendered.
    links_len: usize,
}

impl EntryDraft {
    pub(crate) fn clear(&mut self) {
        self.loc.clear();
        self.lastmod.clear();
        self.hash.clear();
        self.length.clear();
        self.has_change = false;
        (self.mime_type, self.encoding) = (None, None);
        self.links.clear();
        self.links_len = 0;
    }

    /// Takes an `rs:md`, if it is the first with a `change`: the others mean nothing (C2).
    pub(crate) fn take_md(&mut self, tag: &StartTag<'_>) {
        let value = tag.value("change").unwrap_or_default();
        let change = value.trim();
        let is_empty = change.is_empty() && !self.is_of_resources;
        if self.has_change || is_empty {
            return;
        }
        self.has_change = true;
        self.change.clear();
        self.change.push_str(change);
        for part in [&mut self.datetime, &mut self.hash, &mut self.length] {
            part.clear();
        }
        for attribute in tag.attributes {
            let part = match (attribute.namespace, tag.local_name(attribute)) {
                (Namespace::None, "datetime") => &mut self.datetime,
                (Namespace::None, "hash") => &mut self.hash,
                (Namespace::None, "length") => &mut self.length,
                _ => continue,
            };
            part.push_str(tag.value_of(attribute).unwrap_or_default().trim());
        }
        if self.is_whole {
            self.mime_type = tag.value("type").and_then(|value| media_type(&value));
            self.encoding = tag.value("encoding").and_then(|value| coding(&value));
        }
    }

    pub(crate) fn add_link(&mut self, tag: &StartTag<'_>) {
        // Beyond the limit no link is passed on, and none needs to be kept.
        if self.is_whole
            && self.links_len <= LONGEST_ENTRY
            && let Some(link) = RelatedLink::read(tag)
        {
            self.links_len += link_len(&link);
            self.links.push(link);
        }
    }

    pub(crate) fn take_text(&mut self, element: ElementKind, text: &str) {
        let part = match element {
            ElementKind::Loc => &mut self.loc,
            ElementKind::Lastmod => &mut self.lastmod,
            _ => return,
        };
        if part.is_empty() {
            part.push_str(text);
        }
    }

    /// Returns the URI as compared, and the kind; or the reason why the entry does not count.
    pub(crate) fn uri_and_kind(&self) -> Result<(Cow<'_, str>, ChangeKind), SkipReason> {
        if self.loc.is_empty() {
            return Err("it has no loc".into());
        }
        let escaped_len = || written_len(|xml| write_escaped(xml, &self.loc));
        if self.loc.len() > LONGEST_LOC / LONGEST_ESCAPE && escaped_len() > LONGEST_LOC {
            return Err("its loc is too long".into());
        }
        let uri = normal_resource(&self.loc)
            .map_err(|error| format!("its loc \"{}\" is not an absolute URI", error.0))?;
        if self.is_of_resources {
            // It is not known yet whether it is new.
            return Ok((uri, ChangeKind::Updated));
        }
        if !self.has_change {
            return Err("it has no rs:md with a change".into());
        }
        let kind = kind(&self.change).ok_or_else(|| {
            let change = beginning(&self.change);
            format!("its change \"{change}\" is none of created, updated and deleted")
        })?;
        Ok((uri, kind))
    }

    /// Takes the change, if the entry counts.
    pub(crate) fn finish(&mut self) -> Option<Change> {
        let (_, kind) = self.uri_and_kind().ok()?;
        let mut change = Change {
            loc: self.loc.as_str().into(),
            lastmod: is_strict(&self.lastmod).then(|| self.lastmod.as_str().into()),
            kind,
            datetime: Datetime::parse(&self.datetime).filter(|_| !self.is_of_resources),
            hash: valid_hash(&self.hash),
            length: number(&self.length),
            mime_type: self.mime_type.take(),
            encoding: self.encoding.take(),
            links: std::mem::take(&mut self.links),
        };
        let max = self.links_len + change.loc.len() * LONGEST_ESCAPE;
        if max > LONGEST_LOC && entry_len(&change) > LONGEST_ENTRY {
            change.links = Vec::new();
        }
        Some(change)
    }

    /// Returns the key of a change (C3), or the reason why the entry does not count. `room` is overwritten.
    pub(crate) fn key(
        &self,
        datetime: Option<Datetime>,
        room: &mut Vec<u8>,
    ) -> Result<ChangeKey, SkipReason> {
        let (uri, kind) = self.uri_and_kind()?;
        let (lastmod, hash) = if datetime.is_some() {
            Default::default()
        } else {
            (normal_lastmod(&self.lastmod), normal_hash(&self.hash))
        };
        let undated = [&lastmod, &*hash, &self.length];
        Ok(ChangeKey::of(&uri, kind, datetime, undated, room))
    }
}

/// Returns the kind that a value of `change` names, whatever its case and the white space around it (C2).
pub(crate) fn kind(value: &str) -> Option<ChangeKind> {
    let value = value.trim();
    let mut kinds = ChangeKind::ALL.into_iter();
    kinds.find(|kind| value.eq_ignore_ascii_case(kind.as_str()))
}

/// Returns a value of `hash` as it is passed on: hash values, each with the name of its algorithm before a colon.
fn valid_hash(value: &str) -> Option<Box<str>> {
    let is_one = |value: &str| {
        let parts = value.split_once(':');
        parts.is_some_and(|(algorithm, digest)| !algorithm.is_empty() && !digest.is_empty())
    };
    let values: Vec<&str> = value.split_ascii_whitespace().collect();
    let is_fixity = !values.is_empty() && values.iter().all(|value| is_one(value));
    let value = values.join(" ");
    (is_fixity && value.len() <= LONGEST_HASH).then(|| value.into())
}

/// Reads a number of digits alone.
fn number(value: &str) -> Option<u64> {
    let value = value.trim();
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| value.parse().ok()).flatten()
}

/// Returns a value of `type` as it is passed on: a media type, with parameters or without (RFC 2045 section 5.1).
fn media_type(value: &str) -> Option<Box<str>> {
    let value = value.trim();
    let (essence, parameters) = value.split_once(';').unwrap_or((value, ""));
    let (general, specific) = essence.trim_end().split_once('/')?;
    let is_type = is_token(general) && is_token(specific) && !parameters.contains(char::is_control);
    (is_type && value.len() <= LONGEST_TYPE).then(|| value.into())
}

/// Returns a value of `encoding` as it is passed on: content codings (RFC 2616 section 14.11).
fn coding(value: &str) -> Option<Box<str>> {
    let value = value.trim();
    let is_coding = value.split(',').all(|coding| is_token(coding.trim()));
    (is_coding && value.len() <= LONGEST_TYPE).then(|| value.into())
}

fn priority(value: &str) -> Option<u32> {
    let pri = number(value)?.try_into().ok()?;
    (1..=LAST_PRIORITY).contains(&pri).then_some(pri)
}

/// Returns true if a text begins with a scheme, so that it is no relative reference (RFC 3986 section 4.2).
fn has_scheme(text: &str) -> bool {
    let parts = text.split_once(':');
    parts.is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// Returns true if a text is a token (RFC 2045 section 5.1).
fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

/// Returns digests as they are compared, in order: names of algorithms and hexadecimal digits in lower case.
pub(crate) fn normalized_digests(hash: &str) -> Vec<String> {
    let digests = hash.split_ascii_whitespace();
    let mut digests: Vec<String> = digests.map(str::to_ascii_lowercase).collect();
    digests.sort_unstable();
    digests.dedup();
    digests
}

/// Returns a `hash` as it is compared, whatever the order and the case of its digests.
fn normal_hash(hash: &str) -> Cow<'_, str> {
    let is_normal = |byte: u8| !byte.is_ascii_whitespace() && !byte.is_ascii_uppercase();
    if hash.bytes().all(is_normal) {
        return hash.into();
    }
    normalized_digests(hash).join(" ").into()
}

/// Returns a `lastmod` as it is compared: an instant, whatever its zone.
pub(crate) fn normal_lastmod(lastmod: &str) -> Cow<'_, str> {
    // As most are written: it would be written out again as it is, or is no datetime.
    if lastmod.len() == 20 && lastmod.find('T') == Some(10) && lastmod.ends_with('Z') {
        return lastmod.into();
    }
    match Datetime::parse(lastmod) {
        Some(datetime) => datetime.at().to_string().into(),
        None => lastmod.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ChangeKey, coding, has_scheme, kind, media_type, number, priority, valid_hash};
    use crate::datetime::Datetime;
    use crate::payload::ChangeKind;

    #[test]
    fn space_and_case_of_a_change_do_not_matter() {
        for (value, want) in [
            ("created", Some(ChangeKind::Created)),
            (" Updated\n", Some(ChangeKind::Updated)),
            ("DELETED", Some(ChangeKind::Deleted)),
            ("moved", None),
            ("delete", None),
            ("", None),
        ] {
            assert_eq!(kind(value), want, "{value}");
        }
    }

    #[test]
    fn what_a_reader_would_refuse_is_left_out() {
        for (value, want) in [
            ("md5:1584", Some("md5:1584")),
            (
                " md5:15\n  sha-256:y66dER_t= ",
                Some("md5:15 sha-256:y66dER_t="),
            ),
        ] {
            assert_eq!(valid_hash(value).as_deref(), want, "{value}");
        }
        for value in "|1584|md5:|:15|md5:15 16".split('|') {
            assert_eq!(valid_hash(value), None, "{value}");
        }
        for (value, want) in [
            ("text/html", Some("text/html")),
            (" application/ld+json ", Some("application/ld+json")),
            (
                "text/html; charset=\"utf-8\"",
                Some("text/html; charset=\"utf-8\""),
            ),
        ] {
            assert_eq!(media_type(value).as_deref(), want, "{value}");
        }
        for value in "|text|text/|/html|text/x html|text/html/5".split('|') {
            assert_eq!(media_type(value), None, "{value}");
        }
        for (value, want) in [("8876", Some(8876)), (" 0 ", Some(0)), ("", None)] {
            assert_eq!(number(value), want, "{value}");
        }
        for value in "-1|+1|1_000|8876.0|8 876|99999999999999999999".split('|') {
            assert_eq!(number(value), None, "{value}");
        }
        for (value, want) in [("1", Some(1)), ("999999", Some(999_999)), ("0", None)] {
            assert_eq!(priority(value), want, "{value}");
        }
        assert_eq!(priority("1000000"), None);
        assert_eq!(coding("gzip, br").as_deref(), Some("gzip, br"));
        assert_eq!(coding(" "), None);
    }

    #[test]
    fn a_scheme_makes_a_reference_absolute() {
        assert!(has_scheme("https://e.org/") && has_scheme("urn:nbn:x"));
        for text in ["a.xml", "/a:b", "a/b:c", ":a", "1a:b"] {
            assert!(!has_scheme(text), "{text}");
        }
    }

    fn undated(lastmod: &str, hash: &str, length: &str) -> ChangeKey {
        let (kind, parts) = (ChangeKind::Updated, [lastmod, hash, length]);
        ChangeKey::of("https://e.org/", kind, None, parts, &mut Vec::new())
    }

    #[test]
    fn state_files_can_rely_on_keys() {
        let at = Datetime::parse("2026-11-20T11:05:00.0+01:00");
        assert!(at.is_some());
        let (uri, kind) = ("https://e.org/1.txt", ChangeKind::Updated);
        let dated = ChangeKey::of(uri, kind, at, [""; 3], &mut vec![7; 9]);
        assert_eq!(format!("{dated:?}"), "65032d55cdd8");
        let undated = undated("2026", "md5:1", "1");
        assert_eq!(format!("{undated:?}"), "9249cfc41b24");
    }

    proptest! {
        #[test]
        fn what_is_told_apart_has_other_keys(
            one in prop::array::uniform3("[ab]{0,2}"),
            other in prop::array::uniform3("[ab]{0,2}"),
        ) {
            let key = |[a, b, c]: &[String; 3]| undated(a, b, c);
            prop_assert_eq!(key(&one) == key(&other), one == other);
        }

        #[test]
        fn what_is_normal_is_compared_as_it_is_written(
            lastmod in " {0,3}2026-0[1-3]-[0-2][1-9]T[01][0-9]:[0-5][0-9](:[0-5][0-9])?([Zz ]|[+]01:00)",
            hash in "[a-bB :]{0,8}",
        ) {
            let at = Datetime::parse(&lastmod).map_or(lastmod.clone(), |it| it.at().to_string());
            prop_assert_eq!(super::normal_lastmod(&lastmod), at);
            let digests = super::normalized_digests(&hash).join(" ");
            prop_assert_eq!(super::normal_hash(&hash), digests);
        }
    }
}

//! One change of a resource, as a Change List has it and as it is passed on (core 1.1 sections 7 and 12.1; C2, C3, C16).

use std::fmt;

use crate::characters::is_space;
use crate::datetime::{Datetime, is_xsd_datetime};
use crate::fingerprint::{push_string, write_beginning};
use crate::payload::ChangeKind;
use crate::tag::TagAttributes;
use crate::uri::is_scheme;

/// Longest fixity information that is passed on, in bytes.
const LONGEST_HASH: usize = 1 << 10;
/// Longest media type or content coding that is passed on, in bytes.
const LONGEST_TYPE: usize = 256;
/// Lowest priority of a link.
const LAST_PRIORITY: u32 = 999_999;

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
    /// White space around each hash value is one space.
    pub hash: Option<Box<str>>,
    /// In bytes.
    pub length: Option<u64>,
    /// As written: a W3C Datetime with seconds and zone.
    pub modified: Option<Box<str>>,
    /// From 1 to 999,999; the lower goes first.
    pub pri: Option<u32>,
    /// The media type: the attribute `type`.
    pub mime_type: Option<Box<str>>,
    /// Content codings, such as `gzip`.
    pub encoding: Option<Box<str>>,
    /// URI of a profile of its media type.
    pub profile: Option<Box<str>>,
}

impl RelatedLink {
    /// Reads an `rs:ln`; `None` if it has no relation type, or no absolute URI.
    pub(crate) fn read(tag: TagAttributes<'_>) -> Option<RelatedLink> {
        let value = |name| tag.value(name);
        let filled = |name| tag.filled(name).map(String::into_boxed_str);
        let href = filled("href")?;
        has_scheme(&href).then_some(())?;
        Some(RelatedLink {
            rel: filled("rel")?,
            href,
            hash: value("hash").and_then(|hash| fixity(&hash)),
            length: value("length").and_then(|length| number(&length)),
            modified: filled("modified").filter(|modified| is_xsd_datetime(modified)),
            pri: value("pri").and_then(|pri| priority(&pri)),
            mime_type: value("type").and_then(|mime_type| media_type(&mime_type)),
            encoding: value("encoding").and_then(|encoding| coding(&encoding)),
            profile: filled("profile").filter(|profile| has_scheme(profile)),
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
        match datetime {
            Some(datetime) => {
                let at = datetime.at();
                room.push(DATED);
                room.extend_from_slice(&at.as_second().to_le_bytes());
                room.extend_from_slice(&at.subsec_nanosecond().to_le_bytes());
            }
            None => {
                room.push(UNDATED);
                for part in undated {
                    push_string(room, part);
                }
            }
        }
        room.extend_from_slice(uri.as_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&blake3::hash(room).as_bytes()[..16]);
        ChangeKey(key)
    }
}

/// Returns the kind that a value of `change` names, whatever its case and the white space around it (C2).
pub(crate) fn kind(value: &str) -> Option<ChangeKind> {
    let value = value.trim();
    let mut kinds = ChangeKind::ALL.into_iter();
    kinds.find(|kind| value.eq_ignore_ascii_case(kind.as_str()))
}

/// Returns a value of `hash` as it is passed on: hash values, each with the name of its algorithm before a colon.
pub(crate) fn fixity(value: &str) -> Option<Box<str>> {
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
pub(crate) fn number(value: &str) -> Option<u64> {
    let value = value.trim();
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| value.parse().ok()).flatten()
}

/// Returns a value of `type` as it is passed on: a media type, with parameters or without (RFC 2045 section 5.1).
pub(crate) fn media_type(value: &str) -> Option<Box<str>> {
    let value = value.trim();
    let (essence, parameters) = value.split_once(';').unwrap_or((value, ""));
    let (general, specific) = essence.trim_end().split_once('/')?;
    let is_type = is_token(general) && is_token(specific) && !parameters.contains(char::is_control);
    (is_type && value.len() <= LONGEST_TYPE).then(|| value.into())
}

/// Returns a value of `encoding` as it is passed on: content codings (RFC 2616 section 14.11).
pub(crate) fn coding(value: &str) -> Option<Box<str>> {
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
    text.split_once(':')
        .is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// Returns true if a text is a token (RFC 2045 section 5.1).
fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| !is_space(byte) && is_part(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ChangeKey, coding, fixity, has_scheme, kind, media_type, number, priority};
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
            ("", None),
            ("1584", None),
            ("md5:", None),
            (":15", None),
            ("md5:15 16", None),
        ] {
            assert_eq!(fixity(value).as_deref(), want, "{value}");
        }
        for (value, want) in [
            ("text/html", Some("text/html")),
            (" application/ld+json ", Some("application/ld+json")),
            (
                "text/html; charset=\"utf-8\"",
                Some("text/html; charset=\"utf-8\""),
            ),
            ("", None),
            ("text", None),
            ("text/", None),
            ("/html", None),
            ("text/x html", None),
            ("text/html/5", None),
        ] {
            assert_eq!(media_type(value).as_deref(), want, "{value}");
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
        for (text, want) in [
            ("https://e.org/", true),
            ("urn:nbn:x", true),
            ("a.xml", false),
            ("/a:b", false),
            ("a/b:c", false),
            (":a", false),
            ("1a:b", false),
        ] {
            assert_eq!(has_scheme(text), want, "{text}");
        }
    }

    fn undated(lastmod: &str, hash: &str, length: &str) -> ChangeKey {
        let (kind, parts) = (ChangeKind::Updated, [lastmod, hash, length]);
        ChangeKey::of("https://e.org/", kind, None, parts, &mut Vec::new())
    }

    #[test]
    fn state_files_can_rely_on_keys() {
        let at = Datetime::parse("2026-11-20T11:05:00.0+01:00");
        let key = |number: u8, kind, at| {
            let uri = format!("https://e.org/{number}.txt");
            ChangeKey::of(&uri, kind, at, [""; 3], &mut vec![7; 9])
        };
        let dated = key(1, ChangeKind::Updated, at);
        assert_eq!(format!("{dated:?}"), "65032d55cdd8");
        let undated = undated("2026", "md5:1", "1");
        assert_eq!(format!("{undated:?}"), "9249cfc41b24");
        let later = Datetime::parse("2026-11-20T10:05:00.1Z");
        assert!(at.is_some() && later.is_some());
        let others = [
            key(2, ChangeKind::Updated, at),
            key(1, ChangeKind::Deleted, at),
            key(1, ChangeKind::Updated, later),
        ];
        assert!(!others.contains(&dated));
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
    }
}

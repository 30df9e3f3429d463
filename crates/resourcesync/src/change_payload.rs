//! The payload of a change notification (Change Notification 1.0.1 section 3), and its parts and unions.

use std::ops::Range;

use jiff::{SignedDuration, Timestamp};

use crate::change::{Change, RelatedLink};
use crate::change_list::{ChangesHandler, WantedEntries};
use crate::channel_kind::ChannelKind;
use crate::datetime::Datetime;
use crate::parse::read;
use crate::payload::{TAIL, head, write_attribute, write_escaped};
use crate::uri::Uri;

/// Least duration of an entry, and precision of `from` and `until` (C14).
pub const TICK: SignedDuration = SignedDuration::from_micros(1);

/// One change notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePayload {
    /// Root-level `rs:ln rel="up"`: the Capability List (C19).
    pub up: Option<Uri>,
    /// Start of the interval of which it has all changes; written in whole seconds, or else in microseconds, and cut
    /// off there (C14).
    pub from: Timestamp,
    /// End of that interval; written as `from`.
    pub until: Timestamp,
    pub entries: Vec<Change>,
}

impl ChangePayload {
    /// Returns the notification as it is sent.
    pub fn render(&self) -> Vec<u8> {
        let mut xml = self.head();
        for change in &self.entries {
            write_entry(&mut xml, change);
        }
        xml.push_str(TAIL);
        xml.into_bytes()
    }

    /// Returns the length of the rendering without its entries, each of which adds its [`entry_len`].
    pub fn overhead(&self) -> usize {
        self.head().len() + TAIL.len()
    }

    /// Reads a notification that was [rendered](ChangePayload::render) here.
    pub fn parse(body: &[u8]) -> Option<ChangePayload> {
        let (handler, _) = read(body, ChangesHandler::new(WantedEntries::All))
            .ok()?
            .ok()?;
        let root = handler.root;
        root.is_list_of(ChannelKind::Change.capability())
            .then_some(())?;
        let time = |time: Option<Box<str>>| Some(Datetime::parse(&time?)?.at());
        Some(ChangePayload {
            up: root.up.and_then(|up| Uri::parse(&up).ok()),
            from: time(root.span.from)?,
            until: time(root.span.until)?,
            entries: handler.changes,
        })
    }

    fn head(&self) -> String {
        self.head_since(self.from)
    }

    /// Returns the head of the same notification with another `from`.
    fn head_since(&self, from: Timestamp) -> String {
        let times = [("from", from), ("until", self.until)];
        let times = times.map(|(name, time)| (name, Some(written(time))));
        head(self.up.as_ref(), ChannelKind::Change.capability(), &times)
    }

    /// Returns the boundaries of its entries: one before each, and one after the last. Each is later than the one
    /// before it, and an entry's datetime is not later than the boundary after it, unless it is later than `until`.
    /// `None` if the interval is too short for that.
    fn boundaries(&self) -> Option<Vec<Timestamp>> {
        let mut after = u32::try_from(self.entries.len()).ok()?;
        let mut boundary = self.from;
        let mut boundaries = vec![boundary];
        for change in &self.entries {
            after -= 1;
            let latest = self
                .until
                .checked_sub(TICK.checked_mul(after as i32)?)
                .ok()?;
            let least = boundary.checked_add(TICK).ok()?;
            let wanted = match change.datetime {
                Some(datetime) => least.max(to_tick(datetime.at())),
                None => least,
            };
            boundary = match after {
                0 => self.until,
                _ => latest.min(wanted),
            };
            boundaries.push(boundary);
        }
        boundaries
            .is_sorted_by(|one, next| one < next)
            .then_some(boundaries)
    }
}

/// Returns a notification that was rendered here, reduced to some of its entries (C23). `None` if it has no such
/// entries, or is none of ours.
///
/// The boundary between two entries depends on the whole notification alone, so that parts that follow one another
/// cover intervals that do. A datetime that lies outside its part is left out.
pub fn part(body: &[u8], entries: Range<usize>) -> Option<Vec<u8>> {
    let mut whole = ChangePayload::parse(body)?;
    if entries.is_empty() || entries.end > whole.entries.len() {
        return None;
    }
    let boundaries = whole.boundaries()?;
    let (from, until) = (
        *boundaries.get(entries.start)?,
        *boundaries.get(entries.end)?,
    );
    let mut part = ChangePayload {
        up: whole.up,
        from,
        until,
        entries: whole.entries.drain(entries).collect(),
    };
    for change in &mut part.entries {
        let lies_within = |datetime: &Datetime| datetime.end() > from && datetime.at() <= until;
        change.datetime = change.datetime.filter(lies_within);
    }
    Some(part.render())
}

/// Returns the last of some notifications, oldest first, in one (C25): as many consecutive ones as fit, and the last
/// one in any case. `None` without one, or if the last is none of ours. No more bodies are taken from the iterator than
/// fit, and one.
pub fn merge(
    bodies: impl DoubleEndedIterator<Item = impl AsRef<[u8]>>,
    max_entries: usize,
    max_bytes: usize,
) -> Option<Vec<u8>> {
    let mut bodies = bodies.rev();
    let mut merged = ChangePayload::parse(bodies.next()?.as_ref())?;
    let mut len: usize = merged.entries.iter().map(entry_len).sum();
    for earlier in bodies.map_while(|body| ChangePayload::parse(body.as_ref())) {
        let entries = merged.entries.len() + earlier.entries.len();
        len += earlier.entries.iter().map(entry_len).sum::<usize>();
        let overhead = merged.head_since(earlier.from).len() + TAIL.len();
        let is_consecutive = earlier.until == merged.from;
        if !is_consecutive || entries > max_entries || overhead + len > max_bytes {
            break;
        }
        merged.from = earlier.from;
        merged.entries.splice(0..0, earlier.entries);
    }
    Some(merged.render())
}

/// Returns the length that an entry adds to a rendering (C18).
pub fn entry_len(change: &Change) -> usize {
    let mut xml = String::new();
    write_entry(&mut xml, change);
    xml.len()
}

/// Returns the length that a link adds to an entry.
pub(crate) fn link_len(link: &RelatedLink) -> usize {
    let mut xml = String::new();
    write_link(&mut xml, link);
    xml.len()
}

fn write_entry(xml: &mut String, change: &Change) {
    xml.push_str("  <url>\n    <loc>");
    write_escaped(xml, &change.loc);
    xml.push_str("</loc>\n");
    if let Some(lastmod) = &change.lastmod {
        xml.push_str("    <lastmod>");
        write_escaped(xml, lastmod);
        xml.push_str("</lastmod>\n");
    }
    xml.push_str("    <rs:md");
    write_attribute(xml, "change", change.kind.as_str());
    if let Some(datetime) = change.datetime {
        write_attribute(xml, "datetime", &datetime.to_string());
    }
    write_optional(xml, "hash", change.hash.as_deref());
    write_number(xml, "length", change.length);
    write_optional(xml, "type", change.mime_type.as_deref());
    write_optional(xml, "encoding", change.encoding.as_deref());
    xml.push_str("/>\n");
    for link in &change.links {
        write_link(xml, link);
    }
    xml.push_str("  </url>\n");
}

fn write_link(xml: &mut String, link: &RelatedLink) {
    xml.push_str("    <rs:ln");
    write_attribute(xml, "rel", &link.rel);
    write_attribute(xml, "href", &link.href);
    write_optional(xml, "hash", link.hash.as_deref());
    write_number(xml, "length", link.length);
    write_optional(xml, "modified", link.modified.as_deref());
    write_number(xml, "pri", link.pri.map(u64::from));
    write_optional(xml, "type", link.mime_type.as_deref());
    write_optional(xml, "encoding", link.encoding.as_deref());
    write_optional(xml, "profile", link.profile.as_deref());
    xml.push_str("/>\n");
}

fn write_optional(xml: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        write_attribute(xml, name, value);
    }
}

fn write_number(xml: &mut String, name: &str, number: Option<u64>) {
    if let Some(number) = number {
        write_attribute(xml, name, &number.to_string());
    }
}

/// Returns an end of an interval as it is written.
fn written(time: Timestamp) -> String {
    match time.subsec_nanosecond() / 1_000 {
        0 => format!("{time:.0}"),
        _ => format!("{time:.6}"),
    }
}

/// Returns the first whole microsecond that is not earlier.
fn to_tick(time: Timestamp) -> Timestamp {
    let beyond = time.subsec_nanosecond().rem_euclid(1_000);
    let missing = (1_000 - beyond) % 1_000;
    let whole = time.checked_add(SignedDuration::from_nanos(missing.into()));
    whole.unwrap_or(time)
}

#[cfg(test)]
mod tests;

//! The payload of a change notification (Change Notification 1.0.1 section 3), and its parts and unions.

use std::borrow::Cow;
use std::ops::Range;

use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};

use crate::capability::ChannelKind;
use crate::change::{Change, RelatedLink};
use crate::change_list::{EntriesReader, read_entries};
use crate::datetime::Datetime;
use crate::document::Form;
use crate::payload::render_payload;
use crate::uri::Uri;
use crate::writer::{self, WrittenAttribute, written_len};

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
    /// Changes in the order in which they happened.
    pub entries: Vec<Change>,
}

impl ChangePayload {
    /// Returns the notification as it is sent.
    pub fn render(&self) -> Vec<u8> {
        let interval = [self.from, self.until].map(|time| Some(written(time).into()));
        render_payload(self.up.as_ref(), ChannelKind::Change, interval, |xml| {
            self.entries
                .iter()
                .for_each(|change| write_entry(xml, change));
        })
    }

    /// Reads a notification that was [rendered](ChangePayload::render) here.
    pub fn parse(body: &[u8]) -> Option<ChangePayload> {
        let mut entries = Vec::new();
        let whole = EntriesReader::with_all_fields(ChannelKind::Change.capability(), None);
        let read = read_entries(body, whole, |whole, _| entries.extend(whole.draft.finish()));
        let EntriesReader { up, span, .. } = read.ok()?;
        let time = |time: Option<Box<str>>| Some(Datetime::parse(&time?)?.at());
        Some(ChangePayload {
            up: up.and_then(|up| Uri::parse(&up).ok()),
            from: time(span.from)?,
            until: time(span.until)?,
            entries,
        })
    }

    /// Returns the boundaries of its entries: one before each, and one after the last. Each is later than the one
    /// before it, and an entry's datetime is not later than the boundary after it, unless it is later than `until`.
    /// `None` if the interval is too short for that.
    fn cut_times(&self) -> Option<Vec<Timestamp>> {
        let mut after = u32::try_from(self.entries.len()).ok()?;
        let mut boundary = self.from;
        let mut boundaries = vec![boundary];
        for change in &self.entries {
            after -= 1;
            let reserved = TICK.checked_mul(after as i32)?;
            let latest = self.until.checked_sub(reserved).ok()?;
            let least = boundary.checked_add(TICK).ok()?;
            let written = change
                .datetime
                .map(|datetime| ceil_to_microsecond(datetime.at()));
            let wanted = written.map_or(least, |written| least.max(written));
            boundary = match after {
                0 => self.until,
                _ => latest.min(wanted),
            };
            boundaries.push(boundary);
        }
        let ascend = boundaries.is_sorted_by(|one, next| one < next);
        ascend.then_some(boundaries)
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
    let boundaries = whole.cut_times()?;
    let (from, until) = (boundaries[entries.start], boundaries[entries.end]);
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
pub fn merge_latest(
    bodies: impl DoubleEndedIterator<Item = impl AsRef<[u8]>>,
    max_entries: usize,
    max_bytes: usize,
) -> Option<Vec<u8>> {
    let mut bodies = bodies.rev();
    let mut merged = ChangePayload::parse(bodies.next()?.as_ref())?;
    let mut entries = std::mem::take(&mut merged.entries);
    let mut len: usize = entries.iter().map(entry_len).sum();
    for earlier in bodies.map_while(|body| ChangePayload::parse(body.as_ref())) {
        let is_consecutive = earlier.until == merged.from;
        let longer = ChangePayload {
            from: earlier.from,
            ..merged.clone()
        };
        let count = entries.len() + earlier.entries.len();
        len += earlier.entries.iter().map(entry_len).sum::<usize>();
        if !is_consecutive || count > max_entries || longer.render().len() + len > max_bytes {
            break;
        }
        merged = longer;
        entries.splice(0..0, earlier.entries);
    }
    merged.entries = entries;
    Some(merged.render())
}

/// Returns the length that an entry adds to a rendering (C18).
pub fn entry_len(change: &Change) -> usize {
    written_len(|xml| write_entry(xml, change))
}

/// Returns the length that a link adds to an entry.
pub(crate) fn link_len(link: &RelatedLink) -> usize {
    written_len(|xml| writer::write_link(xml, &link_attributes(link)))
}

fn write_entry(xml: &mut String, change: &Change) {
    let elements = [
        ("loc", Some(&*change.loc)),
        ("lastmod", change.lastmod.as_deref()),
    ];
    let description = [
        ("change", Some(change.kind.as_str().into())),
        ("datetime", number_text(change.datetime)),
        ("hash", text(&change.hash)),
        ("length", number_text(change.length)),
        ("type", text(&change.mime_type)),
        ("encoding", text(&change.encoding)),
    ];
    let links = change.links.iter().map(link_attributes);
    writer::write_entry(xml, Form::List, elements, &description, links);
}

fn link_attributes(link: &RelatedLink) -> Vec<WrittenAttribute<'_>> {
    let attributes = link.attributes.iter().map(|(name, value)| (*name, value));
    [("rel", &link.rel), ("href", &link.href)]
        .into_iter()
        .chain(attributes)
        .map(|(name, value)| (name, Some((&**value).into())))
        .collect()
}

fn text(value: &Option<Box<str>>) -> Option<Cow<'_, str>> {
    value.as_deref().map(Cow::from)
}

fn number_text(value: Option<impl ToString>) -> Option<Cow<'static, str>> {
    value.map(|value| value.to_string().into())
}

/// Returns an end of an interval as it is written.
fn written(time: Timestamp) -> String {
    match time.subsec_nanosecond() / 1_000 {
        0 => format!("{time:.0}"),
        _ => format!("{time:.6}"),
    }
}

/// Returns the time, or the next whole microsecond: an interval is written with no more digits (C14).
pub fn ceil_to_microsecond(time: Timestamp) -> Timestamp {
    let up = TimestampRound::new().smallest(Unit::Microsecond);
    time.round(up.mode(RoundMode::Ceil)).unwrap_or(time)
}

#[cfg(test)]
mod tests;

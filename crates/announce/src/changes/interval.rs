//! The notifications of a round: consecutive intervals of the Source's time, which hold their entries' datetimes
//! (C13 to C15, C18; Change Notification 1.0.1 section 3, core 1.1 section 7).

use std::collections::BTreeMap;

use jiff::{RoundMode, Timestamp, TimestampRound, ToSpan, Unit};
use resourcesync::change::Change;
use resourcesync::change_payload::entry_len;
use resourcesync::datetime::Datetime;

/// A change that is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreshChange {
    pub change: Change,
    /// Effective time: its datetime, or where it has none that can be true, what stands in for it (C13).
    pub time: Timestamp,
    /// Position of its list among those of the round.
    pub list: usize,
}

/// Limits of one notification (R21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotificationLimits {
    pub entries: usize,
    /// Size of all entries together.
    pub bytes: usize,
}

/// The changes of one notification, which are all of this interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub from: Timestamp,
    pub until: Timestamp,
    pub entries: Vec<Change>,
    /// The datetimes that were left out because they lie outside, with the positions of their entries (C15).
    pub outside: Vec<(usize, Datetime)>,
    /// Entries whose datetime was left out because it lies before `from`, by list (C15).
    pub back_dated: BTreeMap<usize, usize>,
}

/// Cuts changes, in order of their times, into consecutive intervals that begin with `from`.
///
/// A cut falls between two times, unless the changes of one time are too many for one notification (C18).
pub fn intervals(
    fresh: Vec<FreshChange>,
    from: Timestamp,
    limits: NotificationLimits,
) -> Vec<Interval> {
    let mut from = from;
    let lengths = lengths(&fresh, limits);
    let mut fresh = fresh.into_iter();
    let intervals = lengths.into_iter().map(|length| {
        let interval = interval(fresh.by_ref().take(length).collect(), from);
        from = interval.until;
        interval
    });
    intervals.collect()
}

/// Returns the numbers of changes of each notification.
fn lengths(fresh: &[FreshChange], limits: NotificationLimits) -> Vec<usize> {
    let mut lengths = Vec::new();
    let (mut open, mut bytes) = (0, 0);
    for group in fresh.chunk_by(|one, other| one.time == other.time) {
        let sizes = group.iter().map(|fresh| entry_len(&fresh.change));
        let whole = (group.len(), sizes.clone().sum());
        for (number, size) in sizes.enumerate() {
            let (entries, needed) = if number == 0 { whole } else { (1, size) };
            if open + entries > limits.entries || bytes + needed > limits.bytes {
                lengths.push(open);
                (open, bytes) = (0, 0);
            }
            // One that is too large by itself is told by itself.
            (open, bytes) = (open + 1, bytes + size);
        }
    }
    lengths.push(open);
    lengths.retain(|length| *length > 0);
    lengths
}

fn interval(part: Vec<FreshChange>, from: Timestamp) -> Interval {
    let last = part
        .last()
        .map_or(from, |fresh| ceil_to_microsecond(fresh.time));
    let until = last.max(after(from, part.len()));
    let (mut outside, mut back_dated) = (Vec::new(), BTreeMap::new());
    let entries = part.into_iter().enumerate().map(|(position, fresh)| {
        let mut change = fresh.change;
        if let Some(datetime) = change.datetime {
            let is_before = datetime.end() <= from;
            // One that is too far ahead has another effective time.
            if is_before || datetime.at() > fresh.time {
                change.datetime = None;
                outside.push((position, datetime));
            }
            if is_before {
                *back_dated.entry(fresh.list).or_insert(0) += 1;
            }
        }
        change
    });
    Interval {
        from,
        until,
        entries: entries.collect(),
        outside,
        back_dated,
    }
}

/// Returns the time, or the next whole microsecond: an interval is written with no more digits (C14).
fn ceil_to_microsecond(time: Timestamp) -> Timestamp {
    let rounded = time.round(
        TimestampRound::new()
            .smallest(Unit::Microsecond)
            .mode(RoundMode::Ceil),
    );
    rounded.unwrap_or(time)
}

/// Returns `from` and a microsecond for each entry: what is divided at one time still lies in consecutive intervals.
fn after(from: Timestamp, entries: usize) -> Timestamp {
    let entries = i64::try_from(entries).unwrap_or(i64::MAX / 2);
    from.checked_add(entries.microseconds())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;

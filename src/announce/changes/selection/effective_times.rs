//! The times by which the entries of a list are ordered (C13), where their datetimes cannot be believed (C15).

use jiff::Timestamp;
use resourcesync::change_list::Listed;

use crate::announce::changes::round::AHEAD;
use crate::announce::time::later;

/// The effective times of the entries of a list.
#[derive(Debug)]
pub struct EffectiveTimes {
    /// In order of the list: of an entry without a datetime that can be true, that of the last one before it that has one,
    /// or else the time of the comparison.
    pub times: Vec<Timestamp>,
    /// Position of the first entry with a datetime that can be true.
    pub dated: Option<u32>,
    /// The latest datetime that can be true.
    pub latest: Option<Timestamp>,
}

impl EffectiveTimes {
    pub fn new(entries: &[Listed], at: Timestamp) -> EffectiveTimes {
        let mut effective = EffectiveTimes {
            times: Vec::with_capacity(entries.len()),
            dated: None,
            latest: None,
        };
        let mut last = at;
        for entry in entries {
            if let Some(time) = believed(entry, at) {
                effective.dated.get_or_insert(entry.position);
                effective.latest = effective.latest.max(Some(time));
                last = time;
            }
            effective.times.push(last);
        }
        effective
    }
}

/// Returns true if the datetime of an entry is too far ahead to be believed.
pub fn is_ahead(entry: &Listed, at: Timestamp) -> bool {
    entry.datetime.is_some() && believed(entry, at).is_none()
}

/// Returns the datetime of an entry that is not too far ahead.
fn believed(entry: &Listed, at: Timestamp) -> Option<Timestamp> {
    let time = entry.datetime?.at();
    (time <= later(at, AHEAD)).then_some(time)
}

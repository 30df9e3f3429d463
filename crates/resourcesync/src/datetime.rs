//! W3C Datetimes with the precision in which they are written (core 1.1 section 7); and durations as people write them, a
//! whole number and a unit.

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU8;
use std::time::Duration;

use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

/// Most digits of a fraction that are kept: nanoseconds.
const MAX_DIGITS: usize = 9;
/// Longest text that is a datetime: a fraction of some hundred digits means nothing.
const LONGEST: usize = 64;
/// Farthest zone of an `xsd:dateTime`, in seconds.
const FARTHEST_ZONE: i32 = 14 * 3600;
/// First second of the year 1.
const FIRST_SECOND: i64 = -62_135_596_800;

/// An instant and the precision in which it is written. Two are equal, and ordered, as instants.
#[derive(Debug, Clone, Copy)]
pub struct Datetime {
    // The parts of a `Timestamp`, which are in its range. Apart, they leave a `Listed` small.
    second: i64,
    nanosecond: i32,
    /// Number of digits after the seconds, plus one: 1 to 10.
    precision: NonZeroU8,
}

impl Datetime {
    /// Reads a W3C Datetime of any precision: year, month, day, minutes, seconds, fractions of seconds. One without a
    /// zone is in UTC. White space around it, and `t` and `z` in lower case, are accepted. Digits beyond the ninth of a
    /// fraction are cut off. Returns `None` for other texts, and outside the years 1 to 9999 in UTC, in which every
    /// reader can express it.
    pub fn parse(text: &str) -> Option<Datetime> {
        read(text.trim()).map(|(datetime, ..)| datetime)
    }

    /// Returns the instant; parts that are not written are the first of their kind.
    pub fn at(&self) -> Timestamp {
        Timestamp::new(self.second, self.nanosecond).unwrap_or(Timestamp::MAX)
    }

    /// Returns the first instant after the second, or after the finer unit, that it names as [displayed](fmt::Display).
    pub fn end(&self) -> Timestamp {
        let unit = 10_i64.pow((MAX_DIGITS - self.fraction_digits()) as u32);
        let end = self.at().checked_add(SignedDuration::from_nanos(unit));
        end.unwrap_or(Timestamp::MAX)
    }

    /// Returns the number of digits after the seconds.
    fn fraction_digits(&self) -> usize {
        usize::from(self.precision.get() - 1).min(MAX_DIGITS)
    }
}

/// Writes it in UTC with seconds, and with as many digits after them as it was written with.
impl fmt::Display for Datetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*}", self.fraction_digits(), self.at())
    }
}

impl PartialEq for Datetime {
    fn eq(&self, other: &Datetime) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Datetime {}

impl Ord for Datetime {
    fn cmp(&self, other: &Datetime) -> Ordering {
        // Both parts have the same sign.
        (self.second, self.nanosecond).cmp(&(other.second, other.nanosecond))
    }
}

impl PartialOrd for Datetime {
    fn partial_cmp(&self, other: &Datetime) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns true if any reader accepts a text as W3C Datetime: a time has a zone, and letters are in upper case.
pub(crate) fn is_strict(text: &str) -> bool {
    read(text).is_some_and(|(_, is_strict, _)| is_strict)
}

/// Returns true if a text is a W3C Datetime and an `xsd:dateTime` too: it is [strict](is_strict) and has seconds.
pub(crate) fn is_xsd_datetime(text: &str) -> bool {
    read(text).is_some_and(|(_, is_strict, has_seconds)| is_strict && has_seconds)
}

/// Reads a text without white space around it. Returns too if it [is strict](is_strict), and if it has seconds.
fn read(text: &str) -> Option<(Datetime, bool, bool)> {
    if text.len() > LONGEST {
        return None;
    }
    let (date, time) = text.as_bytes().split_at(text.len().min("YYYY-MM-DD".len()));
    let ([a, b, c, d], month, day) = match *date {
        [a, b, c, d, b'-', e, f, b'-', g, h] => ([a, b, c, d], pair(e, f)?, pair(g, h)?),
        [a, b, c, d, b'-', e, f] => ([a, b, c, d], pair(e, f)?, 1),
        [a, b, c, d] => ([a, b, c, d], 1, 1),
        _ => return None,
    };
    let year = i16::from(pair(a, b)?) * 100 + i16::from(pair(c, d)?);
    let (hour, minute, rest): (_, _, &[u8]) = match *time {
        // A date alone is the start of its first minute in UTC.
        [] => (0, 0, b"Z"),
        [b'T' | b't', a, b, b':', c, d, ref rest @ ..] => (pair(a, b)?, pair(c, d)?, rest),
        _ => return None,
    };
    let (second, (nanosecond, digits), zone) = match *rest {
        [b':', a, b, ref rest @ ..] => {
            let mut bytes = rest.iter();
            let zone = bytes.position(|byte| matches!(byte, b'Z' | b'z' | b'+' | b'-'));
            let (fraction, zone) = rest.split_at(zone.unwrap_or(rest.len()));
            (Some(pair(a, b)?), nanoseconds(fraction)?, zone)
        }
        _ => (None, (0, 0), rest),
    };
    let offset = offset(zone)?;
    let date = Date::new(year, month, day).ok()?;
    let time_of_day = Time::new(hour, minute, second.unwrap_or(0), nanosecond).ok()?;
    let zone = Offset::from_seconds(offset.unwrap_or(0)).ok()?;
    let at = zone.to_timestamp(date.to_datetime(time_of_day)).ok()?;
    let datetime = Datetime {
        second: at.as_second(),
        nanosecond: at.subsec_nanosecond(),
        precision: NonZeroU8::new(digits + 1)?,
    };
    let is_in_range = (datetime.second, datetime.nanosecond) >= (FIRST_SECOND, 0);
    let is_upper_case = !matches!(time, [b't', ..] | [.., b'z']);
    let is_strict = is_upper_case && offset.is_some_and(|offset| offset.abs() <= FARTHEST_ZONE);
    is_in_range.then_some((datetime, is_strict, second.is_some()))
}

/// Reads a number of two digits.
fn pair(tens: u8, ones: u8) -> Option<i8> {
    let are_digits = tens.is_ascii_digit() && ones.is_ascii_digit();
    are_digits.then(|| (10 * (tens - b'0') + ones - b'0') as i8)
}

/// Reads a fraction of a second with its point, if there is one. Returns the number of its digits too.
fn nanoseconds(fraction: &[u8]) -> Option<(i32, u8)> {
    let Some(digits) = fraction.strip_prefix(b".") else {
        return fraction.is_empty().then_some((0, 0));
    };
    let are_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let kept = are_digits.then(|| &digits[..digits.len().min(MAX_DIGITS)])?;
    let unit = 10_i32.pow((MAX_DIGITS - kept.len()) as u32);
    let digits = kept.iter().map(|digit| i32::from(digit - b'0'));
    Some((
        digits.fold(0, |all, digit| all * 10 + digit) * unit,
        kept.len() as u8,
    ))
}

/// Returns the offset of a zone in seconds, `Some(None)` where none is written; `None` if it is wrong.
fn offset(zone: &[u8]) -> Option<Option<i32>> {
    let (sign, hours, minutes) = match *zone {
        [] => return Some(None),
        [b'Z' | b'z'] => return Some(Some(0)),
        [b'+', a, b, b':', c, d] => (1, pair(a, b)?, pair(c, d)?),
        [b'-', a, b, b':', c, d] => (-1, pair(a, b)?, pair(c, d)?),
        _ => return None,
    };
    let seconds = i32::from(hours) * 3600 + i32::from(minutes) * 60;
    (hours < 24 && minutes < 60).then_some(Some(sign * seconds))
}

// Durations.

/// The longest duration that is accepted; more is surely a slip, and would overflow a calendar.
const LONGEST_DAYS: u64 = 3650;

/// The units with their milliseconds, the largest first.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads `"100ms"`, `"2s"`, `"5m"`, `"12h"` or `"30d"`.
///
/// # Errors
///
/// If it is no duration, or too long, with the reason.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(0));
    let mut units = UNITS.iter();
    let Some((_, unit)) = units.find(|(name, _)| !number.is_empty() && *name == unit) else {
        return Err(format!(
            "\"{text}\" is not a duration: write a whole number and ms, s, m, h or d, such as \"30s\""
        ));
    };
    let number = number.parse::<u64>().ok();
    match number.and_then(|number| number.checked_mul(*unit)) {
        Some(total) if total <= LONGEST_DAYS * 86_400_000 => Ok(Duration::from_millis(total)),
        _ => Err(format!("\"{text}\" is longer than {LONGEST_DAYS}d")),
    }
}

/// Returns the text that [`parse_duration`] reads back, in the largest unit that is exact.
pub fn format_duration(duration: Duration) -> String {
    let total = duration.as_millis();
    let mut units = UNITS.iter().map(|(name, unit)| (name, u128::from(*unit)));
    match units.find(|(_, unit)| total > 0 && total.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", total / unit),
        None => "0s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;
    use std::time::Duration;

    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::{Datetime, format_duration, is_strict, is_xsd_datetime, parse_duration};

    fn datetime(text: &str) -> Datetime {
        Datetime::parse(text).unwrap()
    }

    #[test]
    fn every_precision_is_completed_to_seconds() {
        // A text, what is shown of it, and its end.
        let table = "
            2026 | 2026-01-01T00:00:00Z | 2026-01-01T00:00:01Z
            2026-11 | 2026-11-01T00:00:00Z | 2026-11-01T00:00:01Z
            2026-11-20 | 2026-11-20T00:00:00Z | 2026-11-20T00:00:01Z
            2026-11-20T10:05Z | 2026-11-20T10:05:00Z | 2026-11-20T10:05:01Z
            2026-11-20T10:05 | 2026-11-20T10:05:00Z | 2026-11-20T10:05:01Z
            2026-11-20T10:05:07Z | 2026-11-20T10:05:07Z | 2026-11-20T10:05:08Z
            2026-11-20T10:05:07 | 2026-11-20T10:05:07Z | 2026-11-20T10:05:08Z
            2026-11-20T10:05:00.5Z | 2026-11-20T10:05:00.5Z | 2026-11-20T10:05:00.6Z
            2026-11-20T10:05:00.50Z | 2026-11-20T10:05:00.50Z | 2026-11-20T10:05:00.51Z
            2026-11-20T10:05:00.000Z | 2026-11-20T10:05:00.000Z | 2026-11-20T10:05:00.001Z
            2026-11-20T23:59:59.123456789012+00:30 | 2026-11-20T23:29:59.123456789Z | 2026-11-20T23:29:59.12345679Z
            2026-12-31T20:00:00-05:00 | 2027-01-01T01:00:00Z | 2027-01-01T01:00:01Z
            1969-12-31T23:59:59.25Z | 1969-12-31T23:59:59.25Z | 1969-12-31T23:59:59.26Z
            0001-01-01 | 0001-01-01T00:00:00Z | 0001-01-01T00:00:01Z
            9999-12-30T21:59:59.999999999Z | 9999-12-30T21:59:59.999999999Z | 9999-12-30T22:00:00Z
            9999-12-30T22:00:00.999999999Z | 9999-12-30T22:00:00.999999999Z | 9999-12-30T22:00:00.999999999Z
        ";
        for row in table.trim().lines() {
            let mut cells = row.split('|').map(str::trim);
            let [text, shown, end] = [(); 3].map(|()| cells.next().unwrap());
            let datetime = datetime(text);
            assert_eq!(datetime.to_string(), shown, "{text}");
            assert_eq!(datetime.end(), end.parse().unwrap(), "{text}");
            assert_eq!(datetime.at(), shown.parse().unwrap(), "{text}");
        }
        let spaced = datetime(" 2026-11-20t10:05:07z\n");
        assert_eq!(spaced.to_string(), "2026-11-20T10:05:07Z");
    }

    #[test]
    fn other_texts_are_no_datetimes() {
        let others = "| |soon|26-11-20|2026-|2026-1|2026-11-2|2026-11-|2026-13-01|2026-02-30|2026-11-20T|\
                 2026-11-20T10|2026-11-20T10Z|2026-11-20T24:00:00Z|2026-11-20T10:60:00Z|2026-11-20T10:05:60Z|\
                 2026-11-20T10:05:00.Z|2026-11-20T10:05:00,5Z|2026-11-20 10:05:00Z|2026-11-20T10:05:00 Z|\
                 2026-11-20T10:05:00ZZ|2026-11-20T10:05:00+1:00|2026-11-20T10:05:00+0100|\
                 2026-11-20T10:05:00+24:00|2026-11-20T10:05:00+01:60|2026-11Z|+2026-11-20|2026-11-20T10:0é|\
                 0000-01-01|0000-12-31T23:59:59.5Z|0001-01-01T00:00:00+00:01|9999-12-31T23:59:59Z";
        let endless = format!("2026-11-20T10:05:00.{}Z", "0".repeat(100));
        for text in others.split('|').chain([&*endless]) {
            assert!(Datetime::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn equal_instants_are_equal_and_small() {
        let other = datetime("2026-11-20T01:00:00.000+01:00");
        assert_eq!(datetime("2026-11-20"), other);
        assert_eq!(size_of::<Option<Datetime>>(), 16);
        assert!(datetime("1969-12-31T23:59:58.5Z") < datetime("1969-12-31T23:59:58.7Z"));
        assert!(datetime("1969-12-31T23:59:59.5Z") < datetime("1970-01-01T00:00:00.1Z"));
    }

    #[test]
    fn readers_are_strict() {
        for (text, strict, complete) in [
            ("2026", true, false),
            ("2026-11-20", true, false),
            ("2026-11-20T10:05Z", true, false),
            ("2026-11-20T10:05:00Z", true, true),
            ("2026-11-20T10:05:00.123+14:00", true, true),
            ("2026-11-20T10:05:00+14:01", false, false),
            ("2026-11-20T10:05:00", false, false),
            ("2026-11-20T10:05:00z", false, false),
            ("2026-11-20t10:05:00Z", false, false),
            (" 2026-11-20T10:05:00Z", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_strict(text), strict, "{text}");
            assert_eq!(is_xsd_datetime(text), complete, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}|[0-9]{0,5}[-0-9TZtz:.+ ]{0,40}") {
            let _ = Datetime::parse(&text);
        }

        #[test]
        fn what_is_shown_reads_back(
            at in -62_135_596_800_i64..253_402_207_200,
            nanosecond in 0..1_000_000_000_i32,
            digits in 0..=9_usize,
        ) {
            let at = Timestamp::new(at, 0).unwrap();
            let text = format!("{:.0}", at).replace('Z', &format!(".{nanosecond:09}"));
            let text = &text[..20 + digits];
            let read = datetime(text.trim_end_matches('.'));
            let shown = read.to_string();
            prop_assert_eq!(shown.trim_end_matches('Z'), text.trim_end_matches('.'));
            let again = datetime(&shown);
            prop_assert_eq!((again.at(), again.end()), (read.at(), read.end()));
            prop_assert!(read.at() < read.end());
        }
    }

    #[test]
    fn every_unit_reads_back() {
        for (text, milliseconds) in [
            ("0s", 0),
            ("100ms", 100),
            ("2s", 2_000),
            ("90s", 90_000),
            ("5m", 300_000),
            ("12h", 43_200_000),
            ("30d", 2_592_000_000),
        ] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!(parse_duration(text), Ok(duration), "{text}");
            assert_eq!(format_duration(duration), text);
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_an_example() {
        let want = "is not a duration: write a whole number and ms, s, m, h or d, such as \"30s\"";
        for text in "|5|s|-1s|1.5s|2 s|2S|1h30m|2 hours|٣s".split('|') {
            assert_eq!(
                parse_duration(text).unwrap_err(),
                format!("\"{text}\" {want}")
            );
        }
        for text in ["3651d", "99999999999999999999s", "18446744073709551615d"] {
            let message = parse_duration(text).unwrap_err();
            assert_eq!(message, format!("\"{text}\" is longer than 3650d"));
        }
    }
}

//! W3C Datetimes with the precision in which they are written (core 1.1 section 7).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::repeat;
use std::num::NonZeroU8;

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

/// Most digits of a fraction that are kept: nanoseconds.
const MAX_DIGITS: usize = 9;
/// Longest text that is a datetime: a fraction of some hundred digits means nothing.
const LONGEST: usize = 64;
/// Farthest zone of an `xsd:dateTime`, in seconds.
const FARTHEST_ZONE: i32 = 14 * 3600;

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
        WrittenDatetime::read(text.trim()).map(|written| written.datetime)
    }

    /// Returns the instant; parts that are not written are the first of their kind.
    pub fn at(&self) -> Timestamp {
        Timestamp::new(self.second, self.nanosecond).unwrap_or(Timestamp::MAX)
    }

    /// Returns the first instant after the second, or after the finer unit, that it names as [displayed](fmt::Display).
    pub fn end(&self) -> Timestamp {
        let unit = 10_i64.pow((MAX_DIGITS - self.digits()) as u32);
        let end = self.at().checked_add(SignedDuration::from_nanos(unit));
        end.unwrap_or(Timestamp::MAX)
    }

    /// Returns the number of digits after the seconds.
    fn digits(&self) -> usize {
        usize::from(self.precision.get() - 1).min(MAX_DIGITS)
    }
}

/// Writes it in UTC with seconds, and with as many digits after them as it was written with.
impl fmt::Display for Datetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*}", self.digits(), self.at())
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

impl Hash for Datetime {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.second, self.nanosecond).hash(state);
    }
}

/// Returns true if any reader accepts a text as W3C Datetime: a time has a zone, and letters are in upper case.
pub(crate) fn is_strict(text: &str) -> bool {
    WrittenDatetime::read(text).is_some_and(|written| written.is_strict)
}

/// Returns true if a text is a W3C Datetime and an `xsd:dateTime` too: it is [strict](is_strict) and has seconds.
pub(crate) fn is_complete(text: &str) -> bool {
    WrittenDatetime::read(text).is_some_and(|written| written.is_strict && written.has_seconds)
}

/// A datetime with the form in which it is written.
struct WrittenDatetime {
    datetime: Datetime,
    is_strict: bool,
    has_seconds: bool,
}

impl WrittenDatetime {
    /// Reads a text without white space around it.
    fn read(text: &str) -> Option<WrittenDatetime> {
        let mut rest = Digits(text.as_bytes());
        if text.len() > LONGEST {
            return None;
        }
        let year = rest.number(4)?;
        let month = rest.after(b"-", 2)?.unwrap_or(1);
        let day = rest.after(b"-", 2)?.unwrap_or(1);
        let mut time = [0; 3];
        let mut nanosecond = 0;
        let mut digits = 0;
        let mut is_strict = true;
        let mut has_seconds = false;
        let mut offset = 0;
        if let Some(&separator) = rest.0.first() {
            time[0] = rest.after(b"Tt", 2)??;
            time[1] = rest.after(b":", 2)??;
            if let Some(second) = rest.after_if(b':', 2)? {
                time[2] = second;
                has_seconds = true;
                (nanosecond, digits) = rest.fraction()?;
            }
            let zone = rest.zone()?;
            offset = zone.unwrap_or(0);
            let is_upper_case = separator == b'T' && !text.ends_with('z');
            is_strict = is_upper_case && zone.is_some_and(|zone| zone.abs() <= FARTHEST_ZONE);
        }
        let [hour, minute, second] = time.map(|part| part as i8);
        let civil = DateTime::new(
            year,
            month as i8,
            day as i8,
            hour,
            minute,
            second,
            nanosecond,
        );
        let zone = Offset::from_seconds(offset).ok()?;
        let at = zone.to_timestamp(civil.ok()?).ok()?;
        let first = DateTime::constant(1, 1, 1, 0, 0, 0, 0);
        if at < Offset::UTC.to_timestamp(first).ok()? {
            return None;
        }
        let datetime = Datetime {
            second: at.as_second(),
            nanosecond: at.subsec_nanosecond(),
            precision: NonZeroU8::new(digits + 1)?,
        };
        Some(WrittenDatetime {
            datetime,
            is_strict,
            has_seconds,
        })
    }
}

/// The rest of a text, read from its start. A result is `None` where the text is no datetime.
struct Digits<'a>(&'a [u8]);

impl Digits<'_> {
    /// Reads a number of so many digits, at most four.
    fn number(&mut self, length: usize) -> Option<i16> {
        let (digits, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        digits.iter().try_fold(0, |number, digit| {
            let is_digit = digit.is_ascii_digit();
            is_digit.then(|| number * 10 + i16::from(digit - b'0'))
        })
    }

    /// Reads one of some separators and a number after it; `Some(None)` at the end of the text.
    fn after(&mut self, separators: &[u8], length: usize) -> Option<Option<i16>> {
        let Some((first, rest)) = self.0.split_first() else {
            return Some(None);
        };
        self.0 = rest;
        let is_separator = separators.contains(first);
        is_separator
            .then(|| self.number(length))
            .flatten()
            .map(Some)
    }

    /// Reads a separator and a number after it, if the text goes on with this separator.
    fn after_if(&mut self, separator: u8, length: usize) -> Option<Option<i16>> {
        match self.0.first() {
            Some(first) if *first == separator => self.after(&[separator], length),
            _ => Some(None),
        }
    }

    /// Reads a fraction of a second, if there is one. Returns nanoseconds and the number of digits.
    fn fraction(&mut self) -> Option<(i32, u8)> {
        let Some(fraction) = self.0.strip_prefix(b".") else {
            return Some((0, 0));
        };
        let length = fraction
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, rest) = fraction.split_at(length);
        self.0 = rest;
        let kept = length.min(MAX_DIGITS);
        let padded = digits.iter().copied().chain(repeat(b'0'));
        let nanosecond = padded
            .take(MAX_DIGITS)
            .fold(0, |number, digit| number * 10 + i32::from(digit - b'0'));
        (length > 0).then_some((nanosecond, kept as u8))
    }

    /// Reads a zone up to the end of the text. Returns its offset in seconds; `Some(None)` without one.
    fn zone(&mut self) -> Option<Option<i32>> {
        let sign = match self.0 {
            [] => return Some(None),
            [b'Z' | b'z'] => return Some(Some(0)),
            [b'+', ..] => 1,
            [b'-', ..] => -1,
            _ => return None,
        };
        let hours = self.after(b"+-", 2)??;
        let minutes = self.after(b":", 2)??;
        let is_zone = hours < 24 && minutes < 60 && self.0.is_empty();
        is_zone.then(|| Some(sign * (i32::from(hours) * 3600 + i32::from(minutes) * 60)))
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::{Datetime, is_complete, is_strict};

    fn datetime(text: &str) -> Datetime {
        Datetime::parse(text).unwrap()
    }

    #[test]
    fn every_precision_is_completed_to_seconds() {
        for (text, shown, end) in [
            ("2026", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
            ("2026-11", "2026-11-01T00:00:00Z", "2026-11-01T00:00:01Z"),
            ("2026-11-20", "2026-11-20T00:00:00Z", "2026-11-20T00:00:01Z"),
            (
                "2026-11-20T10:05Z",
                "2026-11-20T10:05:00Z",
                "2026-11-20T10:05:01Z",
            ),
            (
                "2026-11-20T10:05",
                "2026-11-20T10:05:00Z",
                "2026-11-20T10:05:01Z",
            ),
            (
                "2026-11-20T10:05:07Z",
                "2026-11-20T10:05:07Z",
                "2026-11-20T10:05:08Z",
            ),
            (
                "2026-11-20T10:05:07",
                "2026-11-20T10:05:07Z",
                "2026-11-20T10:05:08Z",
            ),
            (
                " 2026-11-20t10:05:07z\n",
                "2026-11-20T10:05:07Z",
                "2026-11-20T10:05:08Z",
            ),
            (
                "2026-11-20T10:05:00.5Z",
                "2026-11-20T10:05:00.5Z",
                "2026-11-20T10:05:00.6Z",
            ),
            (
                "2026-11-20T10:05:00.50Z",
                "2026-11-20T10:05:00.50Z",
                "2026-11-20T10:05:00.51Z",
            ),
            (
                "2026-11-20T10:05:00.000Z",
                "2026-11-20T10:05:00.000Z",
                "2026-11-20T10:05:00.001Z",
            ),
            (
                "2026-11-20T23:59:59.123456789012+00:30",
                "2026-11-20T23:29:59.123456789Z",
                "2026-11-20T23:29:59.12345679Z",
            ),
            (
                "2026-12-31T20:00:00-05:00",
                "2027-01-01T01:00:00Z",
                "2027-01-01T01:00:01Z",
            ),
            (
                "1969-12-31T23:59:59.25Z",
                "1969-12-31T23:59:59.25Z",
                "1969-12-31T23:59:59.26Z",
            ),
            ("0001-01-01", "0001-01-01T00:00:00Z", "0001-01-01T00:00:01Z"),
        ] {
            let datetime = datetime(text);
            assert_eq!(datetime.to_string(), shown, "{text}");
            assert_eq!(datetime.end(), end.parse().unwrap(), "{text}");
            assert_eq!(datetime.at(), shown.parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_datetimes() {
        for text in [
            "",
            " ",
            "soon",
            "26-11-20",
            "2026-",
            "2026-1",
            "2026-11-2",
            "2026-11-",
            "2026-13-01",
            "2026-02-30",
            "2026-11-20T",
            "2026-11-20T10",
            "2026-11-20T10Z",
            "2026-11-20T24:00:00Z",
            "2026-11-20T10:60:00Z",
            "2026-11-20T10:05:60Z",
            "2026-11-20T10:05:00.Z",
            "2026-11-20T10:05:00,5Z",
            "2026-11-20 10:05:00Z",
            "2026-11-20T10:05:00 Z",
            "2026-11-20T10:05:00ZZ",
            "2026-11-20T10:05:00+1:00",
            "2026-11-20T10:05:00+0100",
            "2026-11-20T10:05:00+24:00",
            "2026-11-20T10:05:00+01:60",
            "2026-11Z",
            "+2026-11-20",
            "2026-11-20T10:0é",
            "0000-01-01",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59Z",
        ] {
            assert!(Datetime::parse(text).is_none(), "{text}");
        }
        let fraction = format!("2026-11-20T10:05:00.{}Z", "0".repeat(100));
        assert!(Datetime::parse(&fraction).is_none());
    }

    #[test]
    fn the_end_of_the_range_is_no_edge() {
        let last = datetime("9999-12-30T21:59:59.999999999Z");
        assert!(last.end() >= last.at());
        assert_eq!(
            datetime("9999-12-30T22:00:00.999999999Z").end(),
            Timestamp::MAX
        );
    }

    #[test]
    fn equal_instants_are_equal() {
        assert_eq!(
            datetime("2026-11-20"),
            datetime("2026-11-20T01:00:00.000+01:00")
        );
        assert!(datetime("1969-12-31T23:59:58.5Z") < datetime("1969-12-31T23:59:58.7Z"));
        assert!(datetime("1969-12-31T23:59:59.5Z") < datetime("1970-01-01T00:00:00.1Z"));
    }

    #[test]
    fn it_is_small() {
        assert_eq!(size_of::<Option<Datetime>>(), 16);
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
            assert_eq!(is_complete(text), complete, "{text}");
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
}

//! Durations as people write them: a whole number and a unit.

use std::time::Duration;

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
pub fn parse(text: &str) -> Result<Duration, String> {
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

/// Returns the text that [`parse`] reads back, in the largest unit that is exact.
pub fn display(duration: Duration) -> String {
    let total = duration.as_millis();
    let mut units = UNITS.iter().map(|(name, unit)| (name, u128::from(*unit)));
    match units.find(|(_, unit)| total > 0 && total.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", total / unit),
        None => "0s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{display, parse};

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
            assert_eq!(parse(text), Ok(duration), "{text}");
            assert_eq!(display(duration), text);
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_an_example() {
        let want = "is not a duration: write a whole number and ms, s, m, h or d, such as \"30s\"";
        for text in "|5|s|-1s|1.5s|2 s|2S|1h30m|2 hours|٣s".split('|') {
            assert_eq!(parse(text).unwrap_err(), format!("\"{text}\" {want}"));
        }
        for text in ["3651d", "99999999999999999999s", "18446744073709551615d"] {
            let message = parse(text).unwrap_err();
            assert_eq!(message, format!("\"{text}\" is longer than 3650d"));
        }
    }
}

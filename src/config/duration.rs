//! Durations as the file writes them: a whole number and a unit.

use std::time::Duration;

/// The longest duration that is accepted; more is surely a slip, and would overflow a calendar.
const LONGEST_DAYS: u64 = 3650;

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotADuration {
    #[error(
        "\"{0}\" is not a duration: write a whole number and ms, s, m, h or d, such as \"30s\""
    )]
    Form(String),
    #[error("\"{0}\" is longer than {LONGEST_DAYS}d")]
    TooLong(String),
}

/// Reads `"100ms"`, `"2s"`, `"5m"`, `"12h"` or `"30d"`.
pub fn parse(text: &str) -> Result<Duration, NotADuration> {
    let form = || NotADuration::Form(text.to_owned());
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit())
        .filter(|at| *at > 0)
        .ok_or_else(form)?;
    let (number, unit) = text.split_at(unit_at);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(form()),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(milliseconds))
        .filter(|total| *total <= LONGEST_DAYS * 86_400_000)
        .map(Duration::from_millis)
        .ok_or_else(|| NotADuration::TooLong(text.to_owned()))
}

/// Returns the text that [`parse`] reads back, in the largest unit that is exact.
pub fn display(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    for (unit, size) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
    ] {
        if milliseconds >= size && milliseconds.is_multiple_of(size) {
            return format!("{}{unit}", milliseconds / size);
        }
    }
    match milliseconds {
        0 => "0s".to_owned(),
        milliseconds => format!("{milliseconds}ms"),
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
        for text in [
            "", "5", "s", "-1s", "1.5s", "2 s", "2S", "1h30m", "2 hours", "٣s",
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert_eq!(
                message,
                format!(
                    "\"{text}\" is not a duration: write a whole number and ms, s, m, h or d, such as \"30s\""
                )
            );
        }
        for text in ["3651d", "99999999999999999999s", "18446744073709551615d"] {
            let message = parse(text).unwrap_err().to_string();
            assert_eq!(message, format!("\"{text}\" is longer than 3650d"));
        }
    }
}

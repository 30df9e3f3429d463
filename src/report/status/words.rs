//! Numbers and times in words, on the status page as on a terminal.

use std::fmt::Display;

use jiff::Timestamp;

/// Returns a number of things, such as "1 change" and "2 changes".
pub fn counted(count: impl Display, thing: &str) -> String {
    let count = count.to_string();
    match (count.as_str(), thing.strip_suffix("entry")) {
        ("1", _) => format!("1 {thing}"),
        (_, Some(kind)) => format!("{count} {kind}entries"),
        (_, None) => format!("{count} {thing}s"),
    }
}

/// Returns the documents and resources that are accepted as deleted.
pub fn accepted_in_words(documents: usize, resources: usize) -> String {
    match (documents, resources) {
        (_, 0) => counted(documents, "missing document"),
        (0, _) => counted(resources, "missing resource"),
        _ => format!(
            "{} and {}",
            counted(documents, "missing document"),
            counted(resources, "resource")
        ),
    }
}

/// Returns a number of things, with separators of thousands.
pub fn counted_grouped(number: impl Display, thing: &str) -> String {
    counted(grouped(number), thing)
}

/// Returns a number with separators of thousands, such as 41,200.
pub fn grouped(number: impl Display) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns the time from or to `at`, in one or two units; JSON has it to the second.
pub fn relative(at: &Timestamp, now: &Timestamp) -> String {
    let seconds = at.duration_since(*now).as_secs();
    let length = length(seconds.unsigned_abs());
    match seconds {
        0 => "now".to_owned(),
        ..0 => format!("{length} ago"),
        1.. => format!("in {length}"),
    }
}

/// Returns the time from `since` to `now`, in one or two units.
pub fn elapsed(since: &Timestamp, now: &Timestamp) -> String {
    length(now.duration_since(*since).as_secs().unsigned_abs())
}

/// Returns [`relative`], and the time to the second.
pub fn relative_with_time(at: &Timestamp, now: &Timestamp) -> String {
    format!("{} ({at:.0})", relative(at, now))
}

/// Returns the time of the next attempt, if there is one.
pub fn next_try_in_words(at: Option<Timestamp>, now: Timestamp) -> String {
    match at {
        Some(at) if at > now => relative(&at, &now),
        Some(_) => "now".to_owned(),
        None => "-".to_owned(),
    }
}

/// Returns a number of seconds in one or two units.
fn length(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let first = UNITS.iter().position(|(unit, _)| seconds >= *unit);
    let at = first.unwrap_or(UNITS.len() - 1);
    let (unit, name) = UNITS[at];
    let first = format!("{} {name}", seconds / unit);
    let smaller = UNITS.get(at + 1);
    match smaller.map(|(part, name)| (seconds % unit / part, name)) {
        Some((count @ 1.., name)) => format!("{first} {count} {name}"),
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::{counted, length};

    #[test]
    fn one_thing_has_no_plural() {
        for (count, thing, want) in [
            (1, "change", "1 change"),
            (0, "change", "0 changes"),
            (1, "new entry", "1 new entry"),
            (2, "new entry", "2 new entries"),
        ] {
            assert_eq!(counted(count, thing), want);
        }
    }

    #[test]
    fn lengths_of_time_are_told_in_two_units_at_most() {
        for (seconds, want) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (754, "12 min 34 s"),
            (3_600, "1 h"),
            (3_605, "1 h"),
            (7_500, "2 h 5 min"),
            (8 * 86_400 + 3_600 + 59, "8 d 1 h"),
        ] {
            assert_eq!(length(seconds), want);
        }
    }
}

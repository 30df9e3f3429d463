//! The clocks of a step, arithmetic on times that never fails, and the time that a notification speaks for: `from` and
//! `until` (R20).

use std::time::Duration;

use jiff::Timestamp;

/// The moment of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepClocks {
    /// By the clock that nobody sets: whatever waits, lasts or ends counts in it.
    pub now: Timestamp,
    /// By the wall clock, for the times that are said, and what is compared with those of files and lists.
    pub wall: Timestamp,
}

/// As if nobody ever set the wall clock: in a dry run nobody does.
impl From<Timestamp> for StepClocks {
    fn from(now: Timestamp) -> StepClocks {
        StepClocks { now, wall: now }
    }
}

/// Returns `time` plus `duration`, or the end of time.
pub fn later(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// Returns `time` less `duration`, or the beginning of time.
pub fn earlier(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

/// Returns the time since `start`, or zero if that lies ahead.
pub fn elapsed(start: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(start)).unwrap_or_default()
}

/// Resolution of the times in notifications.
pub const MILLISECOND: Duration = Duration::from_millis(1);

/// Returns the `from` and `until` that are true of a notification which is cut `now`.
///
/// `before` is the `until` of the one before on this account, `open` the time of the earliest change that is held or
/// left for the next one, and `used` holds what was said on this topic before.
pub fn span(
    now: Timestamp,
    before: Option<Timestamp>,
    open: Option<Timestamp>,
    used: &[Timestamp],
) -> (Option<Timestamp>, Option<Timestamp>) {
    let written = |time: Timestamp| Timestamp::from_millisecond(time.as_millisecond());
    let [mut until, open] =
        [now, open.unwrap_or(Timestamp::MAX)].map(|it| written(it).unwrap_or(it));
    until = until.min(earlier(open, MILLISECOND));
    // A statement that is true of a time is true of an earlier one.
    while used.contains(&until) {
        until = earlier(until, MILLISECOND);
    }
    // A clock that went back leaves nothing true to begin with.
    let from = before.filter(|before| *before <= now);
    if from.is_some_and(|from| until <= from) {
        return (None, None);
    }
    (from, Some(until))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::span;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(milliseconds).unwrap()
    }

    #[rstest]
    #[case::the_first(100, None, None, &[], (None, Some(100)))]
    #[case::the_next(100, Some(50), None, &[50], (Some(50), Some(100)))]
    #[case::something_is_held(100, Some(50), Some(80), &[50], (Some(50), Some(79)))]
    #[case::what_is_held_lies_ahead(100, Some(50), Some(180), &[50], (Some(50), Some(100)))]
    #[case::said_already(100, Some(50), None, &[99, 100], (Some(50), Some(98)))]
    #[case::nothing_to_say(100, Some(79), Some(80), &[79], (None, None))]
    #[case::in_the_same_millisecond(100, Some(100), None, &[100], (None, None))]
    #[case::a_clock_that_went_back(100, Some(900), None, &[900], (None, Some(100)))]
    #[case::a_clock_that_went_back_to_what_was_said(100, Some(900), None, &[100, 900], (None, Some(99)))]
    fn a_span_says_what_is_true(
        #[case] now: i64,
        #[case] before: Option<i64>,
        #[case] open: Option<i64>,
        #[case] used: &[i64],
        #[case] (from, until): (Option<i64>, Option<i64>),
    ) {
        let used: Vec<Timestamp> = used.iter().map(|used| at(*used)).collect();
        let wanted = (from.map(at), until.map(at));
        assert_eq!(span(at(now), before.map(at), open.map(at), &used), wanted);
    }

    proptest! {
        #[test]
        fn a_span_is_new_and_before_all_that_is_open(
            now in 0..100_i64,
            before in prop::option::of(0..100_i64),
            open in prop::option::of(0..100_i64),
            used in prop::collection::vec(0..100_i64, 0..30),
        ) {
            let used: Vec<Timestamp> = used.into_iter().map(at).collect();
            let (from, until) = span(at(now), before.map(at), open.map(at), &used);
            prop_assert!(from.is_none() || until > from);
            if let Some(until) = until {
                prop_assert!(until <= at(now) && !used.contains(&until));
                prop_assert!(open.is_none_or(|open| until < at(open)));
            }
        }
    }
}

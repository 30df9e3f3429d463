//! Retry times of failed attempts (R23): `Retry-After`, or exponential backoff; and the end of what is kept for a while,
//! such as a lease, although nothing ran meanwhile.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// The minimum wait.
const MIN_WAIT: Duration = Duration::from_secs(1);
/// The maximum backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(15 * 60);
/// The maximum `Retry-After` that is honoured.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

/// Attempts of the embedded hub before it gives up a delivery or a fetch, after about eleven hours of [`backoff`].
pub const MAX_ATTEMPTS: u32 = 100;

/// Returns the time of the next attempt: after the wait that was [asked for](parse_retry_after), else after [`backoff`].
pub fn next_try(
    asked_for: Option<Duration>,
    attempts: u32,
    now: Timestamp,
    jitter: f64,
) -> Timestamp {
    later(now, asked_for.unwrap_or_else(|| backoff(attempts, jitter)))
}

/// Returns the time after a wait, or the end of time.
pub(crate) fn later(time: Timestamp, wait: Duration) -> Timestamp {
    time.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// Returns the wait of a `Retry-After` header, in seconds or as a date, clamped; none for a past date or anything else.
pub fn parse_retry_after(retry_after: &str, now: Timestamp) -> Option<Duration> {
    let text = retry_after.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        // The day of the week says nothing that the date does not.
        let parser = rfc2822::DateTimeParser::new().relaxed_weekday(true);
        let date = parser.parse_timestamp(text).ok()?;
        let wait = Duration::try_from(date.duration_since(now)).ok()?;
        Some(wait).filter(|wait| !wait.is_zero())?
    };
    Some(wait.clamp(MIN_WAIT, MAX_RETRY_AFTER))
}

/// Returns an exponential backoff from 1 s to 15 min, with full jitter.
pub fn backoff(attempts: u32, jitter: f64) -> Duration {
    let ceiling = MIN_WAIT
        .saturating_mul(2_u32.saturating_pow(attempts))
        .min(MAX_BACKOFF);
    let jitter = if jitter.is_finite() {
        jitter.clamp(0.0, 1.0)
    } else {
        1.0
    };
    MIN_WAIT + ceiling.saturating_sub(MIN_WAIT).mul_f64(jitter)
}

/// Time for which a run ends nothing that an earlier one left: its renewal needs a while, and a wall clock that was
/// wrong at the start of either may have moved its end.
const FIRST_HOUR: Duration = Duration::from_secs(60 * 60);

/// Returns when something ends that is due to end at `due`, after it has lasted for `lasts`: not before the run that `began`
/// then has lasted for as long, or for an hour.
pub fn end_after_restart(due: Timestamp, lasts: Duration, began: Timestamp) -> Timestamp {
    due.max(later(began, lasts.min(FIRST_HOUR)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    #[rstest]
    #[case("120", Some(120))]
    #[case(" 7 ", Some(7))]
    #[case("0", Some(1))]
    #[case("3601", Some(3600))]
    #[case("99999999999999999999999999", Some(3600))]
    #[case("Fri, 20 Nov 2026 12:02:00 GMT", Some(120))]
    #[case("Fri, 20 Nov 2099 12:02:00 GMT", Some(3600))]
    #[case("Mon, 20 Nov 2026 12:02:00 GMT", Some(120))]
    #[case("Fri, 20 Nov 2020 12:02:00 GMT", None)]
    #[case("-5", None)]
    #[case("1e9", None)]
    #[case("soon", None)]
    #[case("", None)]
    fn retry_after_is_honoured_within_reason(#[case] said: &str, #[case] wait: Option<i64>) {
        let at = next_try(parse_retry_after(said, now()), 4, now(), 1.0);
        assert_eq!(at.duration_since(now()).as_secs(), wait.unwrap_or(16));
    }

    proptest! {
        #[test]
        fn waits_stay_within_their_bounds(attempts: u32, jitter: f64) {
            let wait = backoff(attempts, jitter);
            prop_assert!((MIN_WAIT..=MAX_BACKOFF).contains(&wait));
        }

        #[test]
        fn any_retry_after_is_survived(text in "\\PC{0,40}", attempts: u32) {
            let at = next_try(parse_retry_after(&text, now()), attempts, now(), 0.5);
            let wait = at.duration_since(now()).as_secs();
            prop_assert!((1..=3600).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn waits_are_spread_from_a_second_to_the_longest() {
        let waits = [0.0, 0.5, 1.0].map(|jitter| backoff(4, jitter).as_secs_f64());
        assert_eq!(waits, [1.0, 8.5, 16.0]);
    }

    #[test]
    fn what_an_earlier_run_left_is_kept_for_an_hour() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        // The run began after ten hours. Each row: since when, for how long, and the end, in minutes.
        for (since, lasts, end) in [
            (0, 120_i64, 660),
            (0, 20, 620),
            (590, 20, 620),
            (500, 600, 1_100),
            (600, 20, 620),
            (700, 20, 720),
        ] {
            let lasts_for = Duration::from_secs(lasts.unsigned_abs() * 60);
            let found = end_after_restart(at(since + lasts), lasts_for, at(600));
            assert_eq!(found, at(end), "{since} {lasts}");
        }
    }
}

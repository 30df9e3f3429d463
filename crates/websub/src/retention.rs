//! The end of what is kept for a while, such as a lease, although nothing ran meanwhile.

use std::time::Duration;

use jiff::Timestamp;

/// Time for which a run ends nothing that an earlier one left: its renewal needs a while, and a wall clock that was
/// wrong at the start of either may have moved its end.
const FIRST_HOUR: Duration = Duration::from_secs(60 * 60);

/// Returns when something ends that is due to end at `due`, after it has lasted for `lasts`: not before the run that `began`
/// then has lasted for as long, or for an hour.
pub fn end_of(due: Timestamp, lasts: Duration, began: Timestamp) -> Timestamp {
    let first_hour = began.checked_add(lasts.min(FIRST_HOUR));
    due.max(first_hour.unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let found = end_of(at(since + lasts), lasts_for, at(600));
            assert_eq!(found, at(end), "{since} {lasts}");
        }
    }
}

//! Retention of retired channels and of the accounts of hubs that left (R11).

use std::time::Duration;

use jiff::Timestamp;

use crate::announce::engine::step::Step;
use crate::announce::time::{elapsed, later};

/// Minimum time for which a run keeps what an earlier one retired: a clock that is wrong at the start may be set
/// meanwhile.
const CLOCK_DOUBTED: Duration = Duration::from_secs(60 * 60);

/// Returns how long something is still kept that retired at `since`; zero if it is over by both clocks.
///
/// The wall clock may be wrong for a while, so it ends nothing before `kept_until` by the monotonic one. If that is not
/// set, an earlier run retired it, and it is set now.
pub fn still_kept(
    since: Timestamp,
    retention: Duration,
    kept_until: &mut Option<Duration>,
    step: &Step,
) -> Duration {
    let left = elapsed(step.now(), later(since, retention));
    let least = left.max(retention.min(CLOCK_DOUBTED));
    let kept_until = kept_until.get_or_insert(step.monotonic().saturating_add(least));
    left.max(kept_until.saturating_sub(step.monotonic()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::announce::event::Now;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// Returns a step of a run at a time by each clock, in days; the wall clock counts from when something retired.
    fn step(wall: u32, monotonic: u32) -> Step {
        let mut step = Step::new(Timestamp::UNIX_EPOCH);
        step.begin(Now {
            wall: later(Timestamp::UNIX_EPOCH, DAY * wall),
            monotonic: DAY * monotonic,
        });
        step
    }

    #[test]
    fn what_retired_is_kept_until_it_is_over_by_both_clocks() {
        let since = Timestamp::UNIX_EPOCH;
        let day = |days: u32| DAY * days;
        // Kept for a week, of which the run that retired it has seen so many days by each clock.
        for (wall, monotonic, left) in [(2, 2, 5), (9, 2, 5), (2, 9, 5), (7, 7, 0), (9, 9, 0)] {
            let mut kept_until = Some(day(7));
            let step = step(wall, monotonic);
            let kept = still_kept(since, day(7), &mut kept_until, &step);
            assert_eq!(kept, day(left), "{wall} and {monotonic} days");
        }
    }

    #[test]
    fn what_an_earlier_run_retired_is_kept_for_an_hour_at_least() {
        let mut kept_until = None;
        let kept = still_kept(
            Timestamp::UNIX_EPOCH,
            DAY * 7,
            &mut kept_until,
            &step(30, 1),
        );
        assert_eq!(kept, CLOCK_DOUBTED);
        assert_eq!(kept_until, Some(DAY + CLOCK_DOUBTED));
    }
}

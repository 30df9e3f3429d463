//! The rate at which `resend` sends: evenly, also after a pause.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// A rate, and the time before which it allows nothing more.
#[derive(Debug)]
pub struct SendRate {
    /// Resources per second.
    rate: NonZeroU32,
    not_before: Instant,
}

impl SendRate {
    pub fn new(rate: NonZeroU32, now: Instant) -> SendRate {
        SendRate {
            rate,
            not_before: now,
        }
    }

    /// Returns the time at which so many resources may be sent. An unused part of the rate is lost, so that nothing is
    /// sent in a burst.
    pub fn next(&mut self, count: u64, now: Instant) -> Instant {
        let at = self.not_before.max(now);
        let duration = Duration::from_secs_f64(count as f64 / f64::from(self.rate.get()));
        self.not_before = at + duration;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_even_and_a_pause_is_not_made_up_for() {
        let rate = NonZeroU32::new(100).unwrap();
        let start = Instant::now();
        let second = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut rate = SendRate::new(rate, start);
        for (count, now, want) in [
            (50, 0.0, 0.0),
            (50, 0.1, 0.5),
            // It took longer than it may; then the broker was away.
            (10, 1.2, 1.2),
            (50, 90.0, 90.0),
            (50, 90.0, 90.5),
            (50, 90.5, 91.0),
        ] {
            assert_eq!(rate.next(count, second(now)), second(want), "at {now} s");
        }
    }
}

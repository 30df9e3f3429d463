//! The clock that nobody sets, of which a process has one.

use std::time::Instant;

use jiff::Timestamp;

/// The time of the wall clock when the process began, and what has passed since by a monotonic clock. It never goes back
/// and never jumps, and stands still while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// The time at which the process began.
    pub began: Timestamp,
    started: Instant,
}

impl Clock {
    /// Starts the clock, not before the time that it showed when a process saved it last.
    pub fn start(saved: Option<Timestamp>) -> Clock {
        let wall = Timestamp::now();
        Clock {
            began: saved.map_or(wall, |saved| wall.max(saved)),
            started: Instant::now(),
        }
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        let now = self.began.checked_add(self.started.elapsed());
        now.unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::Clock;

    #[test]
    fn it_goes_on_from_the_time_that_was_saved_whatever_the_wall_clock_shows() {
        let ahead = Timestamp::now() + SignedDuration::from_hours(24 * 365);
        let clock = Clock::start(Some(ahead));
        let first = clock.now();
        assert!(first >= ahead && clock.now() >= first);
        let behind = Timestamp::now() - SignedDuration::from_hours(1);
        assert!(Clock::start(Some(behind)).now() > behind + SignedDuration::from_mins(59));
    }
}

//! The timer for a time by the clock that nobody sets. It fires by the wall clock: too early once that was set forward, and
//! is set again then.

use std::time::Duration;

use jiff::Timestamp;

use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::time::{earlier, elapsed, later};

/// A timer that is set only if it would not fire in time already.
#[derive(Debug, Default)]
pub struct SteadyTimer {
    last: Option<SetTimer>,
}

#[derive(Debug, Clone, Copy)]
struct SetTimer {
    /// The time that it was set for, by the steady clock.
    set_for: Timestamp,
    /// The time at which it fires, by the wall clock.
    fires: Timestamp,
}

impl SteadyTimer {
    /// Wakes at a time by the steady clock, or before.
    pub fn wake_at(&mut self, at: Timestamp, timer: impl FnOnce() -> Timer, step: &mut Step) {
        let is_set = |last: SetTimer| last.set_for <= at && last.fires > step.now();
        if self.last.is_some_and(is_set) {
            return;
        }
        let fires = later(step.now(), elapsed(step.steady(), at));
        self.last = Some(SetTimer { set_for: at, fires });
        step.wake_at(fires, timer());
    }

    /// Moves with all timers as the clock was set back.
    pub fn set_back(&mut self, by: Duration) {
        if let Some(last) = &mut self.last {
            last.fires = earlier(last.fires, by);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use resourcesync::uri::Uri;

    use super::SteadyTimer;
    use crate::announce::engine::change_sets::tests::{moment, timers};
    use crate::announce::engine::step::Step;
    use crate::announce::engine::timers::Timer;
    use crate::announce::event::Now;

    #[test]
    fn a_timer_is_set_once_for_a_time_whatever_the_wall_clock_does() {
        let set = Uri::parse("https://e.org/cl.xml").unwrap();
        let mut step = Step::new(Timestamp::UNIX_EPOCH);
        step.begin(moment(0));
        let mut timer = SteadyTimer::default();
        let mut wake = |timer: &mut SteadyTimer, now: Now, at: i64| {
            step.begin(now);
            timer.wake_at(moment(at).wall, || Timer::Changes(set.clone()), &mut step);
            timers(&mut step)
        };
        assert_eq!(wake(&mut timer, moment(0), 50), [50]);
        assert_eq!(wake(&mut timer, moment(1), 50), [0; 0], "it is set");
        assert_eq!(wake(&mut timer, moment(1), 60), [0; 0], "it fires before");
        assert_eq!(wake(&mut timer, moment(2), 40), [40], "an earlier one");
        let forward = Now {
            wall: moment(1_000).wall,
            ..moment(3)
        };
        assert_eq!(wake(&mut timer, forward, 40), [1_037], "fired too early");
        timer.set_back(Duration::from_secs(1_000));
        let back = Now {
            wall: moment(4).wall,
            ..moment(4)
        };
        assert_eq!(wake(&mut timer, back, 40), [0; 0], "moved with the clock");
        assert_eq!(wake(&mut timer, moment(40), 60), [60], "the next");
    }
}

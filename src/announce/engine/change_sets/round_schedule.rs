//! The schedule of a set's rounds: when the next one is due, and which one is under way (C8, C20).

use std::time::Duration;

use jiff::Timestamp;

use crate::announce::changes::inventory::INVENTORY_QUIET;
use crate::announce::plan::ChangeWindowPlan;
use crate::announce::time::{earlier, later};

/// The longest that fresh changes wait because no hub has heard what was cut (C20).
const HUB_WAIT: Duration = Duration::from_secs(5 * 60);
/// Delay before something is read again that could not be read.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The longest of these delays.
pub const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The rounds of one set. All times are by the wall clock.
#[derive(Debug, Default)]
pub struct RoundSchedule {
    /// Nothing if no change was seen since the last round began.
    signs: Option<Signs>,
    /// Time before which no round begins.
    not_before: Option<Timestamp>,
    /// The round that is under way.
    under_way: Option<u64>,
    /// The last round of which something was taken, if nothing else was done to the lists and keys since.
    last_taken: Option<u64>,
    /// Number of times that a round was put off since something was taken.
    delays: u32,
    /// The time of the last cut.
    cut: Option<Timestamp>,
}

/// The first sign of a change since the last round, and the last.
#[derive(Debug, Clone, Copy)]
struct Signs {
    first: Timestamp,
    last: Timestamp,
}

impl Signs {
    /// Signs for which a round is due at once.
    const AT_ONCE: Signs = Signs {
        first: Timestamp::MIN,
        last: Timestamp::MIN,
    };

    fn at(now: Timestamp) -> Signs {
        Signs {
            first: now,
            last: now,
        }
    }
}

impl RoundSchedule {
    // Reasons for a round.

    /// Notes that a change was seen. This version need not wait like a round that is repeated without one.
    pub fn sign(&mut self, now: Timestamp) {
        self.signs.get_or_insert(Signs::at(now)).last = now;
        self.not_before = None;
    }

    /// Lets a round follow, unless one does already.
    pub fn sign_if_none(&mut self, now: Timestamp) {
        self.signs.get_or_insert(Signs::at(now));
    }

    /// Lets a round be due at once.
    pub fn hurry(&mut self) {
        self.signs = Some(Signs::AT_ONCE);
        self.not_before = None;
    }

    /// Forgets the signs of a change: there is nothing to read.
    pub fn skip(&mut self) {
        self.signs = None;
    }

    /// Puts a round off, longer each time until something is taken. Returns when it begins, unless another version is seen
    /// before.
    pub fn delay(&mut self, now: Timestamp) -> Timestamp {
        self.delays = self.delays.saturating_add(1);
        let at = later(now, retry_delay(self.delays));
        self.delay_until(at, now);
        at
    }

    /// Puts a round off until a time.
    pub fn delay_until(&mut self, at: Timestamp, now: Timestamp) {
        self.signs = Some(Signs::at(now));
        self.not_before = Some(at);
    }

    pub fn has_signs(&self) -> bool {
        self.signs.is_some()
    }

    /// Returns true if a round was to begin at once, and has not.
    pub fn is_hurried(&self) -> bool {
        self.signs
            .is_some_and(|signs| signs.first == Timestamp::MIN)
    }

    /// Returns when a round is due for the changes that were seen, if any were.
    pub fn due_at(&self, window: &ChangeWindowPlan) -> Option<Timestamp> {
        let Signs { first, last } = self.signs?;
        let due = later(last, window.quiet).min(later(first, window.max_wait));
        Some(self.not_before.map_or(due, |at| due.max(at)))
    }

    /// Returns until when a round waits that is due at a time, while no hub has heard what was cut (C20).
    pub fn after_hubs(&self, due: Timestamp) -> Timestamp {
        self.cut.map_or(due, |cut| due.max(later(cut, HUB_WAIT)))
    }

    // A round.

    /// Begins a round with this number.
    pub fn begin(&mut self, round: u64) {
        self.under_way = Some(round);
        self.signs = None;
        self.not_before = None;
    }

    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Ends a round. Returns false if another one took its place.
    pub fn end(&mut self, round: u64) -> bool {
        self.last_taken = None;
        self.under_way
            .take_if(|under_way| *under_way == round)
            .is_some()
    }

    /// Notes that something was taken in a round.
    pub fn taken(&mut self, round: u64) {
        self.last_taken = Some(round);
        self.delays = 0;
    }

    /// Returns the last round of which something was taken, if its comparison still holds.
    pub fn last_taken(&self) -> Option<u64> {
        self.last_taken
    }

    /// Notes that something else was done to the lists or keys, so that the next round compares anew.
    pub fn compare_anew(&mut self) {
        self.last_taken = None;
    }

    /// Gives the round up that is under way, for which another one is to follow. Returns false if there is none.
    pub fn give_up(&mut self, now: Timestamp) -> bool {
        let was_under_way = self.under_way.take().is_some();
        if was_under_way {
            self.signs = Some(Signs::at(now));
        }
        was_under_way
    }

    /// Notes that notifications were cut.
    pub fn cut(&mut self, now: Timestamp) {
        self.cut = Some(now);
    }

    /// Moves all times as the clock was set back.
    pub fn set_back(&mut self, by: Duration) {
        if let Some(Signs { first, last }) = &mut self.signs {
            (*first, *last) = (earlier(*first, by), earlier(*last, by));
        }
        for at in [&mut self.not_before, &mut self.cut].into_iter().flatten() {
            *at = earlier(*at, by);
        }
    }
}

/// Returns how long something is not read again that could not be read so many times.
pub fn retry_delay(times: u32) -> Duration {
    let delay = RETRY_DELAY.saturating_mul(1 << times.min(6));
    delay.min(LONGEST_RETRY_DELAY)
}

/// Returns the window of a set whose Resource Lists are compared: they count once none has changed for a while (C27).
pub fn inventory_window() -> ChangeWindowPlan {
    ChangeWindowPlan {
        quiet: INVENTORY_QUIET,
        max_wait: Duration::MAX,
        ..ChangeWindowPlan::default()
    }
}

//! The schedule of cuts: the next notifications of a channel are cut after a window in which changes gather (R16).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::ids::ChannelId;
use crate::announce::plan::WindowPlan;
use crate::announce::time::later;

/// Schedule of the next cut of each channel: once its window closes, at the end of this step, or once its source is
/// settled.
#[derive(Debug, Default)]
pub struct CutSchedule {
    /// The windows that are open.
    windows: BTreeMap<ChannelId, ChannelWindow>,
    /// The channels whose notifications are cut at the end of this step.
    ready: BTreeSet<ChannelId>,
    /// The channels that were ready while their source was not settled.
    parked: BTreeSet<ChannelId>,
}

/// An open window: the times of its first and last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelWindow {
    first: Timestamp,
    last: Timestamp,
}

impl ChannelWindow {
    /// Returns when the next notifications are cut.
    pub fn closes(&self, plan: &WindowPlan) -> Timestamp {
        later(self.last, plan.quiet).min(later(self.first, plan.max_wait))
    }
}

impl CutSchedule {
    /// Returns the window of a channel, if it is open.
    pub fn window(&self, id: ChannelId) -> Option<ChannelWindow> {
        self.windows.get(&id).copied()
    }

    /// Opens the window of a channel with a change, or keeps it open.
    pub fn touch(&mut self, id: ChannelId, plan: &WindowPlan, step: &mut Step) {
        let now = step.now();
        let first = self.windows.get(&id).map_or(now, |window| window.first);
        let window = ChannelWindow { first, last: now };
        let closes = window.closes(plan);
        if closes <= now {
            self.close(id);
        } else if self.windows.insert(id, window).is_none() {
            step.wake_at(closes, Timer::Window(id));
        }
    }

    /// Closes the window of a channel, unless it was kept open meanwhile.
    pub fn close_window(&mut self, id: ChannelId, plan: &WindowPlan, step: &mut Step) {
        let Some(window) = self.windows.get(&id) else {
            return;
        };
        let closes = window.closes(plan);
        if closes > step.now() {
            step.wake_at(closes, Timer::Window(id));
        } else {
            self.close(id);
        }
    }

    fn close(&mut self, id: ChannelId) {
        self.windows.remove(&id);
        self.ready.insert(id);
    }

    /// Forgets a channel that is removed.
    pub fn forget(&mut self, id: ChannelId) {
        self.windows.remove(&id);
        self.ready.remove(&id);
        self.parked.remove(&id);
    }

    /// Schedules the next notifications of a channel to be cut at the end of this step.
    pub fn set_ready(&mut self, id: ChannelId) {
        self.ready.insert(id);
    }

    /// Delays the next notifications of a channel until its source is settled.
    pub fn park(&mut self, id: ChannelId) {
        self.parked.insert(id);
    }

    /// Makes those ready that were parked and are of a settled source.
    pub fn unpark(&mut self, is_settled: impl Fn(ChannelId) -> bool) {
        let settled = self.parked.extract_if(.., |id| is_settled(*id));
        self.ready.extend(settled);
    }

    /// Takes those that are ready now.
    pub fn take_ready(&mut self) -> BTreeSet<ChannelId> {
        std::mem::take(&mut self.ready)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::CutSchedule;
    use crate::announce::engine::step::Step;
    use crate::announce::ids::ChannelId;
    use crate::announce::plan::{ChangeWindowPlan, WindowPlan};

    const ID: ChannelId = ChannelId(1);

    /// A window that closes 5 s after the last change, and 12 s after the first.
    fn plan() -> WindowPlan {
        WindowPlan {
            quiet: Duration::from_secs(5),
            max_wait: Duration::from_secs(12),
            hold: Duration::ZERO,
            max_entries: 1,
            max_bytes: 1,
            changes: ChangeWindowPlan::default(),
        }
    }

    fn at(step: &mut Step, second: i64) -> &mut Step {
        step.begin(Timestamp::new(second, 0).unwrap().into());
        step
    }

    /// Returns the seconds for which timers were set.
    fn timers(step: &mut Step) -> Vec<i64> {
        let timers = step.take_timers();
        timers.map(|(at, _)| at.as_second()).collect()
    }

    #[test]
    fn a_window_closes_after_the_last_change_or_long_after_the_first() {
        let (mut cuts, mut step) = (
            CutSchedule::default(),
            Step::new(Timestamp::UNIX_EPOCH.into()),
        );
        for (second, set, is_ready) in [
            (0, vec![5], false),
            (4, vec![], false),
            (8, vec![], false),
            (12, vec![], true),
            (13, vec![18], false),
        ] {
            cuts.touch(ID, &plan(), at(&mut step, second));
            assert_eq!(timers(&mut step), set, "{second}");
            assert_eq!(cuts.take_ready().contains(&ID), is_ready, "{second}");
            assert_eq!(cuts.window(ID).is_none(), is_ready, "{second}");
        }
    }

    #[test]
    fn a_window_that_was_kept_open_closes_later() {
        let (mut cuts, mut step) = (
            CutSchedule::default(),
            Step::new(Timestamp::UNIX_EPOCH.into()),
        );
        for second in [0, 4] {
            cuts.touch(ID, &plan(), at(&mut step, second));
        }
        timers(&mut step);
        for (second, set) in [(5, vec![9]), (9, vec![]), (10, vec![])] {
            cuts.close_window(ID, &plan(), at(&mut step, second));
            assert_eq!(timers(&mut step), set, "{second}");
            assert_eq!(cuts.take_ready().contains(&ID), second == 9, "{second}");
        }
    }

    #[test]
    fn nothing_is_cut_on_a_channel_that_is_removed() {
        let (mut cuts, mut step) = (
            CutSchedule::default(),
            Step::new(Timestamp::UNIX_EPOCH.into()),
        );
        for id in [ID, ChannelId(2)] {
            cuts.touch(id, &plan(), at(&mut step, 0));
            cuts.set_ready(id);
            cuts.park(id);
        }
        cuts.forget(ID);
        cuts.close_window(ID, &plan(), at(&mut step, 5));
        cuts.unpark(|_| true);
        assert_eq!(cuts.take_ready(), [ChannelId(2)].into());
        assert_eq!(cuts.window(ID), None);
    }

    #[test]
    fn what_is_parked_is_ready_once_its_source_is_settled() {
        let mut cuts = CutSchedule::default();
        let other = ChannelId(2);
        for id in [ID, other] {
            cuts.park(id);
        }
        cuts.unpark(|id| id == ID);
        assert_eq!(cuts.take_ready(), [ID].into());
        cuts.unpark(|_| true);
        assert_eq!(cuts.take_ready(), [other].into());
    }
}

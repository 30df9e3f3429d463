//! The deliveries of the last 24 hours, in intervals, for the picture on the status page. Since the start only: nothing
//! here is saved.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use websub::hub::subscriptions::view::HubStatus;

use crate::announce::time::later;
use crate::report::figures::Counts;
use crate::report::status::{INTERVALS, IntervalView};

/// Length of an interval.
const INTERVAL: Duration = Duration::from_secs(15 * 60);

/// Counts by interval.
#[derive(Debug, Clone, Default)]
pub struct LastDay {
    intervals: VecDeque<IntervalView>,
    last: IntervalView,
}

impl LastDay {
    /// Adds what was counted since the last time, of all since the start, to the interval of now.
    pub fn note(&mut self, totals: IntervalView) {
        self.advance(totals.from);
        let last = std::mem::replace(&mut self.last, totals);
        if let Some(interval) = self.intervals.back_mut() {
            interval.delivered += totals.delivered.saturating_sub(last.delivered);
            interval.failed += totals.failed.saturating_sub(last.failed);
            interval.pending = interval.pending.max(totals.pending);
        }
    }

    /// Begins the intervals up to `now`; the first one with it.
    fn advance(&mut self, now: Timestamp) {
        let wanted = start_of_interval(now);
        let mut next = match self.intervals.back() {
            None => now,
            Some(last) => later(start_of_interval(last.from), INTERVAL),
        };
        let day = INTERVAL.saturating_mul(u32::try_from(INTERVALS).unwrap_or(u32::MAX));
        if later(next, day) < wanted {
            self.intervals.clear();
            next = wanted;
        }
        while next <= wanted || self.intervals.is_empty() {
            if self.intervals.len() == INTERVALS {
                self.intervals.pop_front();
            }
            self.intervals.push_back(IntervalView {
                from: next,
                pending: self.last.pending,
                ..IntervalView::default()
            });
            next = later(next, INTERVAL);
        }
    }

    /// Returns the intervals since the start, at most those of a day, the oldest first.
    pub fn view(&self) -> Vec<IntervalView> {
        self.intervals.iter().copied().collect()
    }
}

/// Returns what hubs, brokers and subscribers accepted and refused since the start, and what is pending now.
pub fn totals(
    counts: &Counts,
    pending: usize,
    hub: Option<&HubStatus>,
    now: Timestamp,
) -> IntervalView {
    let hubs = || counts.hubs.values();
    let accepted: u64 = hubs().map(|counts| counts.accepted).sum();
    let refused: u64 = hubs().flat_map(|counts| counts.refused.values()).sum();
    let deliveries = hub.map(|hub| hub.counts.deliveries).unwrap_or_default();
    let owed = hub.map_or(0, |hub| hub.owed);
    IntervalView {
        from: now,
        delivered: accepted + deliveries.delivered,
        failed: refused + deliveries.refused + deliveries.failed + deliveries.abandoned,
        pending: (pending + owed) as u64,
    }
}

fn start_of_interval(time: Timestamp) -> Timestamp {
    let length = i64::try_from(INTERVAL.as_secs()).unwrap_or(1);
    let second = time.as_second();
    Timestamp::from_second(second - second.rem_euclid(length)).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::LastDay;
    use crate::report::status::{INTERVALS, IntervalView};

    fn totals(text: &str, delivered: u64, failed: u64, pending: u64) -> IntervalView {
        IntervalView {
            from: format!("2026-11-{text}Z").parse().unwrap(),
            delivered,
            failed,
            pending,
        }
    }

    /// Returns start, delivered, failed and pending of each interval.
    fn view(day: &LastDay) -> Vec<String> {
        let view = day.view().into_iter();
        let rows = view.map(|one| {
            let from = one.from.to_string();
            let (delivered, failed, pending) = (one.delivered, one.failed, one.pending);
            format!("{} {delivered} {failed} {pending}", &from[11..16])
        });
        rows.collect()
    }

    #[test]
    fn counts_belong_to_the_interval_in_which_they_are_noted() {
        let mut day = LastDay::default();
        day.note(totals("20T10:07:00", 3, 0, 2));
        day.note(totals("20T10:14:59", 5, 1, 4));
        day.note(totals("20T10:50:00", 9, 1, 0));
        assert_eq!(
            view(&day),
            ["10:07 5 1 4", "10:15 0 0 4", "10:30 0 0 4", "10:45 4 0 4"]
        );
        day.note(totals("20T11:00:00", 9, 1, 0));
        assert_eq!(view(&day).last().unwrap(), "11:00 0 0 0");
    }

    #[test]
    fn older_intervals_than_those_of_a_day_are_forgotten() {
        let mut day = LastDay::default();
        day.note(totals("20T10:00:00", 1, 0, 1));
        day.note(totals("21T10:00:00", 2, 0, 1));
        assert_eq!(day.view().len(), INTERVALS);
        assert_eq!(view(&day)[0], "10:15 0 0 1");
        day.note(totals("25T10:00:00", 4, 0, 0));
        assert_eq!(view(&day), ["10:00 2 0 1"]);
    }
}

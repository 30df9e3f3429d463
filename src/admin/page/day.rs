//! The picture of the last 24 hours: a bar for each interval, a line for what was pending, and a mark for each start of the
//! daemon.

use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};

use crate::report::status::{INTERVAL, INTERVALS, IntervalDeliveries};

/// Width of an interval, and height of the picture, in its own units.
const WIDTH: usize = 8;
const HEIGHT: u64 = 100;

/// The shapes of the picture.
pub struct DayPicture {
    pub bars: Vec<Bar>,
    /// The points of the line of pending deliveries; empty if none were.
    pub pending: String,
    /// The places of intervals in which the daemon started.
    pub starts: Vec<usize>,
    /// The times at the beginning of each quarter of the picture.
    pub ticks: Vec<Timestamp>,
    /// Maximum of deliveries and failures in an interval.
    pub max: u64,
    pub max_pending: u64,
    pub delivered: u64,
    pub failed: u64,
    pub retries: u64,
    pub started: u64,
}

/// The bar of one interval, with the heights of its parts: the failures stand on the deliveries.
pub struct Bar {
    pub x: usize,
    pub delivered: u64,
    pub failed: u64,
}

impl DayPicture {
    pub const WIDTH: usize = WIDTH * INTERVALS;
    pub const HEIGHT: u64 = HEIGHT;
    pub const BAR: usize = WIDTH - 1;

    /// Draws the intervals, the last at the right.
    pub fn new(intervals: &[IntervalDeliveries]) -> DayPicture {
        let sum =
            |figure: fn(&IntervalDeliveries) -> u64| intervals.iter().map(figure).sum::<u64>();
        let highest = |figure: fn(&IntervalDeliveries) -> u64| intervals.iter().map(figure).max();
        let max = highest(|one| one.delivered + one.failed).unwrap_or(0);
        let max_pending = highest(|one| one.pending).unwrap_or(0);
        let first = INTERVALS.saturating_sub(intervals.len());
        let places = (first..).map(|place| place * WIDTH);
        let mut pending = String::new();
        let (mut bars, mut starts) = (Vec::new(), Vec::new());
        for (x, one) in places.zip(intervals) {
            let delivered = scaled(one.delivered, max);
            let failed = scaled(one.failed, max).min(HEIGHT - delivered);
            if delivered + failed > 0 {
                bars.push(Bar {
                    x,
                    delivered,
                    failed,
                });
            }
            if one.starts > 0 {
                starts.push(x);
            }
            if max_pending > 0 {
                let y = HEIGHT - scaled(one.pending, max_pending);
                // Writing to a String cannot fail.
                let _ = write!(pending, "{x},{y} {},{y} ", x + WIDTH);
            }
        }
        DayPicture {
            bars,
            pending,
            starts,
            ticks: intervals.last().map_or(Vec::new(), ticks),
            max,
            max_pending,
            delivered: sum(|one| one.delivered),
            failed: sum(|one| one.failed),
            retries: sum(|one| one.retries),
            started: sum(|one| one.starts),
        }
    }
}

/// Returns the times at the beginning of each quarter of a day that ends with the interval.
fn ticks(last: &IntervalDeliveries) -> Vec<Timestamp> {
    let begun = last.from.as_second().rem_euclid(INTERVAL);
    let hours = [24, 18, 12, 6].into_iter().map(|hours| hours * 3_600);
    hours
        .filter_map(|before| {
            let offset = SignedDuration::from_secs(INTERVAL - begun - before);
            last.from.checked_add(offset).ok()
        })
        .collect()
}

/// Returns the height of a value; any value above zero is visible.
fn scaled(value: u64, max: u64) -> u64 {
    match value {
        0 => 0,
        value => (value.saturating_mul(HEIGHT) / max.max(1)).clamp(2, HEIGHT),
    }
}

#[cfg(test)]
mod tests {
    use super::DayPicture;
    use crate::report::status::IntervalDeliveries;

    fn interval(delivered: u64, failed: u64, pending: u64) -> IntervalDeliveries {
        IntervalDeliveries {
            delivered,
            failed,
            pending,
            ..IntervalDeliveries::default()
        }
    }

    #[test]
    fn bars_end_at_the_right_and_are_scaled_to_the_highest() {
        let picture = DayPicture::new(&[interval(30, 10, 0), interval(0, 0, 5), interval(1, 0, 1)]);
        let bars = picture.bars.iter();
        let bars = bars.map(|bar| (bar.x, bar.delivered, bar.failed));
        assert_eq!(Vec::from_iter(bars), [(744, 75, 25), (760, 2, 0)]);
        let pending = "744,100 752,100 752,0 760,0 760,80 768,80 ";
        assert_eq!(picture.pending, pending);
        assert_eq!((picture.delivered, picture.failed), (31, 10));
    }

    #[test]
    fn starts_are_marked_and_each_quarter_of_the_day_has_its_time() {
        let started = IntervalDeliveries {
            from: "2026-11-20T10:07:00Z".parse().unwrap(),
            retries: 3,
            starts: 2,
            ..IntervalDeliveries::default()
        };
        let picture = DayPicture::new(&[started, interval(1, 0, 0), started]);
        assert_eq!(picture.starts, [744, 760]);
        assert_eq!((picture.started, picture.retries), (4, 6));
        let ticks = picture.ticks.iter().map(ToString::to_string);
        let ticks = ticks.collect::<Vec<_>>().join(" ");
        let want =
            "2026-11-19T10:15:00Z 2026-11-19T16:15:00Z 2026-11-19T22:15:00Z 2026-11-20T04:15:00Z";
        assert_eq!(ticks, want);
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        let picture = DayPicture::new(&[interval(0, 0, 0)]);
        assert!(picture.bars.is_empty() && picture.pending.is_empty());
        assert!(DayPicture::new(&[]).bars.is_empty());
        let large = DayPicture::new(&[interval(u64::MAX / 4, 1, u64::MAX)]);
        assert_eq!(large.bars.len(), 1);
    }
}

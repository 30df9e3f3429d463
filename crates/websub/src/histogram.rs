//! A histogram of durations, in bounded memory.

use std::time::Duration;

/// Upper bounds of the buckets, in seconds.
const SECONDS: [f64; 15] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0, 3600.0,
];

/// Durations of an operation since the daemon started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// The sum in seconds.
    pub sum: f64,
    /// The number in each bucket; the last is beyond all bounds.
    counts: [u64; SECONDS.len() + 1],
}

impl Histogram {
    /// Counts a duration.
    pub fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.sum += seconds;
        self.counts[SECONDS.partition_point(|bound| *bound < seconds)] += 1;
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the upper bound and the number of each bucket.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = SECONDS.into_iter().chain([f64::INFINITY]);
        bounds.zip(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_lies_in_the_lowest_bucket_that_holds_it() {
        let mut durations = Histogram::default();
        for seconds in [0.0, 0.005, 0.006, 3600.0, 86_400.0] {
            durations.observe(Duration::from_secs_f64(seconds));
        }
        let held: Vec<(f64, u64)> = durations
            .buckets()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(
            held,
            [(0.005, 2), (0.01, 1), (3600.0, 1), (f64::INFINITY, 1)]
        );
        assert_eq!((durations.count(), durations.sum), (5, 90_000.011));
    }
}

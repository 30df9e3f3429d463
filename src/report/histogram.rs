//! Durations, counted by their length, in little and bounded memory.

use std::time::Duration;

/// The bounds of durations that are told apart: from an answer next door to one that took a night.
const SECONDS: [f64; 15] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0, 3600.0,
];

/// The durations of something, each time it was done since the daemon began.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// In seconds.
    pub sum: f64,
    /// Durations within each bound and not within a lower one; the last, beyond all.
    counts: [u64; SECONDS.len() + 1],
}

impl Histogram {
    pub fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.sum += seconds;
        self.counts[SECONDS.partition_point(|bound| *bound < seconds)] += 1;
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns each bound with the number of durations within it and not within a lower one.
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

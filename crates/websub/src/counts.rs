//! Counters and histograms since the daemon started, for metrics.

use crate::answer::Answer;
use crate::hub::delivery::DeliveryOutcome;
use std::time::Duration;

/// All counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EmbeddedHubCounts {
    /// Subscription requests.
    pub requests: RequestCounts,
    /// Verifications of them.
    pub verifications: VerificationCounts,
    /// Deliveries.
    pub deliveries: DeliveryCounts,
    /// Durations of deliveries that succeeded.
    pub latency: DurationHistogram,
}

/// Requests to subscribe, or for topics, by the HTTP status of their answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Answered 202, or with content.
    pub answered: u64,
    /// Answered 304.
    pub not_modified: u64,
    /// Answered with an error.
    pub refused: u64,
    /// Over a limit.
    pub limited: u64,
}

impl RequestCounts {
    /// Counts an answer by its HTTP status.
    pub fn count(&mut self, status: u16) {
        match status {
            200..=299 => self.answered += 1,
            300..=399 => self.not_modified += 1,
            429 | 503 => self.limited += 1,
            _ => self.refused += 1,
        }
    }
}

/// Verifications, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerificationCounts {
    /// Confirmed by the callback.
    pub confirmed: u64,
    /// Answered without confirming.
    pub refused: u64,
    /// Not answered at any attempt.
    pub failed: u64,
}

/// Attempts to deliver, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Accepted by the subscriber.
    pub delivered: u64,
    /// Answered with an error status; to be retried.
    pub refused: u64,
    /// Not answered; to be retried.
    pub failed: u64,
    /// Failed at the last attempt.
    pub abandoned: u64,
    /// Attempts that were not the first with their notification, whatever their outcome.
    pub retries: u64,
    /// 410: the subscription has ended.
    pub gone: u64,
    /// Subscriptions that ended because too much was pending for them.
    pub cut_off: u64,
}

impl DeliveryCounts {
    /// Counts attempt number `attempts`.
    pub fn count_attempt(&mut self, answer: &Answer, outcome: DeliveryOutcome, attempts: u32) {
        self.retries += u64::from(attempts > 1);
        let count = match (outcome, answer) {
            (DeliveryOutcome::Delivered, _) => &mut self.delivered,
            (DeliveryOutcome::Gone, _) => &mut self.gone,
            (DeliveryOutcome::Abandoned, _) => &mut self.abandoned,
            (DeliveryOutcome::Retry(_), Answer::Status { .. }) => &mut self.refused,
            (DeliveryOutcome::Retry(_), _) => &mut self.failed,
        };
        *count += 1;
    }
}

/// Upper bounds of the buckets, in seconds.
const SECONDS: [f64; 15] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0, 3600.0,
];

/// Durations of an operation since the daemon started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DurationHistogram {
    /// The sum in seconds.
    pub sum: f64,
    /// The number in each bucket; the last is beyond all bounds.
    counts: [u64; SECONDS.len() + 1],
}

impl DurationHistogram {
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
        SECONDS.into_iter().chain([f64::INFINITY]).zip(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    #[test]
    fn each_attempt_counts_once_under_its_outcome() {
        let answered = |status| Answer::Status {
            status,
            content_type: None,
            retry_after: None,
            excerpt: String::new(),
            credentials: None,
        };
        let retry = DeliveryOutcome::Retry(Timestamp::MAX);
        let mut deliveries = DeliveryCounts::default();
        for (answer, outcome, times) in [
            (answered(200), DeliveryOutcome::Delivered, 1),
            (answered(503), retry, 2),
            (Answer::Failed("timed out".to_owned()), retry, 3),
            (answered(503), DeliveryOutcome::Abandoned, 4),
            (answered(410), DeliveryOutcome::Gone, 5),
        ] {
            for attempts in 1..=times {
                deliveries.count_attempt(&answer, outcome, attempts);
            }
        }
        let want = DeliveryCounts {
            delivered: 1,
            refused: 2,
            failed: 3,
            abandoned: 4,
            retries: 10,
            gone: 5,
            cut_off: 0,
        };
        assert_eq!(deliveries, want);
    }

    #[test]
    fn requests_are_counted_by_the_status_of_the_answer() {
        let mut requests = RequestCounts::default();
        for status in [202, 404, 413, 400, 429, 503, 304] {
            requests.count(status);
        }
        let want = RequestCounts {
            answered: 1,
            not_modified: 1,
            refused: 3,
            limited: 2,
        };
        assert_eq!(requests, want);
    }

    #[test]
    fn a_duration_lies_in_the_lowest_bucket_that_holds_it() {
        let mut durations = DurationHistogram::default();
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

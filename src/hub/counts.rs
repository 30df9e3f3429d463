//! What the embedded hub has done since the daemon began, in figures.

use std::time::Duration;

use crate::announce::delivery::Answer;
use crate::hub::relay::Outcome;
use crate::report::histogram::Histogram;

/// All that is counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    pub requests: Requests,
    pub verifications: Verifications,
    pub deliveries: Deliveries,
    pub latency: Histogram,
}

impl Counts {
    /// A delivery was tried, `took` after its notification was relayed, if that is known.
    pub fn tried(&mut self, answer: &Answer, outcome: Outcome, took: Option<Duration>) {
        self.deliveries.tried(answer, outcome);
        if let (Outcome::Delivered, Some(took)) = (outcome, took) {
            self.latency.observe(took);
        }
    }
}

/// Subscription requests, by what was answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    pub accepted: u64,
    pub refused: u64,
    /// More than a limit allows.
    pub excess: u64,
}

impl Requests {
    pub fn answered(&mut self, status: u16) {
        match status {
            200..=299 => self.accepted += 1,
            429 | 503 => self.excess += 1,
            _ => self.refused += 1,
        }
    }
}

/// Verifications that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verifications {
    pub confirmed: u64,
    /// Answered, but not so as to confirm.
    pub refused: u64,
    /// Not answered, however often it was tried.
    pub failed: u64,
}

/// Tries of deliveries, by what came of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deliveries {
    pub delivered: u64,
    /// Answered, but not with success; to be tried again.
    pub refused: u64,
    /// Not answered; to be tried again.
    pub failed: u64,
    /// Tried for the last time, or forgone because too much waits.
    pub given_up: u64,
    /// 410: the subscription has ended.
    pub gone: u64,
}

impl Deliveries {
    pub fn tried(&mut self, answer: &Answer, outcome: Outcome) {
        let count = match (outcome, answer) {
            (Outcome::Delivered, _) => &mut self.delivered,
            (Outcome::Gone, _) => &mut self.gone,
            (Outcome::GivenUp, _) => &mut self.given_up,
            (Outcome::Retry { .. }, Answer::Status { .. }) => &mut self.refused,
            (Outcome::Retry { .. }, Answer::Failed(_)) => &mut self.failed,
        };
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn each_try_counts_once_under_what_came_of_it() {
        let answered = |status| Answer::Status {
            status,
            content_type: None,
            retry_after: None,
            excerpt: String::new(),
        };
        let retry = Outcome::Retry { at: Timestamp::MAX };
        let mut deliveries = Deliveries::default();
        for (answer, outcome, times) in [
            (answered(200), Outcome::Delivered, 1),
            (answered(503), retry, 2),
            (Answer::Failed("timed out".to_owned()), retry, 3),
            (answered(503), Outcome::GivenUp, 4),
            (answered(410), Outcome::Gone, 5),
        ] {
            for _ in 0..times {
                deliveries.tried(&answer, outcome);
            }
        }
        let want = Deliveries {
            delivered: 1,
            refused: 2,
            failed: 3,
            given_up: 4,
            gone: 5,
        };
        assert_eq!(deliveries, want);
    }

    #[test]
    fn requests_count_by_what_they_are_answered() {
        let mut requests = Requests::default();
        for status in [202, 404, 413, 400, 429, 503] {
            requests.answered(status);
        }
        let want = Requests {
            accepted: 1,
            refused: 3,
            excess: 2,
        };
        assert_eq!(requests, want);
    }
}

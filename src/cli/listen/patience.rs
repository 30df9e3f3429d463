//! Patience with documents that are missing or malformed: generators delete and rewrite them, in no order. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Attempts before a document is given up.
const ATTEMPTS: u32 = 5;
/// Time before a document is given up: more than a generator needs to rewrite a set.
const TIME: Duration = Duration::from_secs(5 * 60);

/// The documents that could not be used in the attempts so far, by URL. Each has its own time: one that is gone for good
/// shortens that of no other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patience {
    failing: BTreeMap<String, FailingDocument>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FailingDocument {
    since: Instant,
    attempts: u32,
}

impl Patience {
    /// Notes that a document could not be used. Returns the number of attempts if it is given up now.
    pub fn failed(&mut self, url: &str, now: Instant) -> Option<u32> {
        let failing = self
            .failing
            .entry(url.to_owned())
            .or_insert(FailingDocument {
                since: now,
                attempts: 0,
            });
        failing.attempts = failing.attempts.saturating_add(1);
        let has_waited = now.duration_since(failing.since) >= TIME;
        (has_waited && failing.attempts >= ATTEMPTS).then_some(failing.attempts)
    }

    /// Notes that a document could be used.
    pub fn succeeded(&mut self, url: &str) {
        self.failing.remove(url);
    }
}

#[cfg(test)]
mod tests {
    use super::{ATTEMPTS, Duration, Instant, Patience, TIME};

    #[test]
    fn a_document_is_given_up_after_several_attempts_and_some_minutes() {
        let start = Instant::now();
        let mut patience = Patience::default();
        for attempt in 1..ATTEMPTS * 2 {
            let now = start + Duration::from_secs(u64::from(attempt));
            assert_eq!(patience.failed("a", now), None, "{attempt} attempts");
        }
        let late = start + TIME + Duration::from_secs(1);
        assert_eq!(patience.failed("a", late), Some(ATTEMPTS * 2));
        // Later ones have a time of their own, and a long one alone is not enough.
        for attempt in 1..ATTEMPTS {
            let now = late + TIME * (attempt - 1);
            assert_eq!(patience.failed("b", now), None, "{attempt} attempts");
        }
        assert_eq!(patience.failed("b", late + TIME * ATTEMPTS), Some(ATTEMPTS));
    }

    #[test]
    fn a_document_that_was_back_meanwhile_has_all_its_time_again() {
        let start = Instant::now();
        let mut patience = Patience::default();
        for _ in 1..ATTEMPTS {
            assert_eq!(patience.failed("a", start), None);
        }
        patience.succeeded("a");
        assert_eq!(patience.failed("a", start + TIME), None);
    }
}

//! A limit on log lines that strangers can cause: beyond it, lines are only counted, for a summary.

use std::sync::atomic::{AtomicU64, Ordering};

/// Log lines of one kind in the current interval.
#[derive(Debug)]
pub struct LogLimit {
    limit: u64,
    lines: AtomicU64,
}

impl LogLimit {
    /// Allows `limit` lines per interval.
    pub fn new(limit: u64) -> LogLimit {
        LogLimit {
            limit,
            lines: AtomicU64::new(0),
        }
    }

    /// Returns true if the next line may be logged, else counts it as suppressed.
    pub fn allow(&self) -> bool {
        self.lines.fetch_add(1, Ordering::Relaxed) < self.limit
    }

    /// Begins the next interval and returns the number of lines that the last one suppressed.
    pub fn next_interval(&self) -> u64 {
        let lines = self.lines.swap(0, Ordering::Relaxed);
        lines.saturating_sub(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_lines_are_counted_until_the_next_interval() {
        let lines = LogLimit::new(2);
        let allowed: Vec<bool> = (0..5).map(|_| lines.allow()).collect();
        assert_eq!(allowed, [true, true, false, false, false]);
        assert_eq!(lines.next_interval(), 3);
        assert!(lines.allow());
        assert_eq!(lines.next_interval(), 0);
    }
}

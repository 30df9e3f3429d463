//! A limit on log lines that strangers can cause: beyond it, lines are only counted, for a summary.

/// Log lines of one kind in the current interval.
#[derive(Debug)]
pub struct LogLimit {
    limit: u32,
    allowed: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Allows `limit` lines per interval.
    pub fn new(limit: u32) -> LogLimit {
        LogLimit {
            limit,
            allowed: 0,
            suppressed: 0,
        }
    }

    /// Returns true if the next line may be logged, else counts it as suppressed.
    pub fn allow(&mut self) -> bool {
        let is_allowed = self.allowed < self.limit;
        match is_allowed {
            true => self.allowed += 1,
            false => self.suppressed += 1,
        }
        is_allowed
    }

    /// Begins the next interval and returns the number of lines that the last one suppressed.
    pub fn next_interval(&mut self) -> u64 {
        self.allowed = 0;
        std::mem::take(&mut self.suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_lines_are_counted_until_the_next_interval() {
        let mut lines = LogLimit::new(2);
        let allowed: Vec<bool> = (0..5).map(|_| lines.allow()).collect();
        assert_eq!(allowed, [true, true, false, false, false]);
        assert_eq!(lines.next_interval(), 3);
        assert!(lines.allow());
        assert_eq!(lines.next_interval(), 0);
    }
}

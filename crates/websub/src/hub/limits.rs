//! The hub's limits, the error for a request that exceeds one, and a limit on log lines that strangers can cause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The default rate limit, which is also the burst and the concurrency that it allows.
const REQUESTS_PER_MINUTE: u32 = 300;

/// The limits on what clients may use of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubLimits {
    /// From each address, and for callbacks on each host.
    pub requests_per_minute: u32,
    /// Verifications under way. Renewals have a total of their own, of the same size.
    pub verifications: Quota,
    /// Subscriptions that exist.
    pub subscriptions: Quota,
    /// Bytes of pending notifications; beyond it the subscriptions that are owed most end.
    pub backlog_bytes: u64,
}

/// The maximum number of something: in total, for one callback host, and for one client address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The maximum in total.
    pub in_all: u32,
    /// The maximum for one callback host.
    pub per_host: u32,
    /// The maximum for one client address.
    pub per_address: u32,
}

impl HubLimits {
    /// Sets the rate limit, and with it the burst and the verifications under way that it allows.
    pub fn set_requests_per_minute(&mut self, requests: u32) {
        self.requests_per_minute = requests;
        self.verifications.per_host = requests;
        self.verifications.per_address = requests;
    }
}

impl Default for HubLimits {
    fn default() -> HubLimits {
        HubLimits {
            requests_per_minute: REQUESTS_PER_MINUTE,
            verifications: Quota {
                in_all: 10_000,
                per_host: REQUESTS_PER_MINUTE,
                per_address: REQUESTS_PER_MINUTE,
            },
            subscriptions: Quota {
                in_all: 100_000,
                per_host: 1_000,
                per_address: 1_000,
            },
            backlog_bytes: 1 << 30,
        }
    }
}

/// A request that exceeds a limit. The text is for the subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many {what} {scope}")]
pub struct LimitExceeded {
    /// The things that there are too many of.
    pub what: &'static str,
    /// Where there is too much of it.
    pub scope: LimitScope,
    /// The value of the `Retry-After` header.
    pub retry_after: Duration,
}

/// The scope of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitScope {
    /// All clients together.
    #[error("in all")]
    Total,
    /// One callback host.
    #[error("for callbacks on this host")]
    Host,
    /// One client address.
    #[error("from your address")]
    Requester,
}

impl LimitExceeded {
    /// Returns the HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self.scope {
            LimitScope::Total => 503,
            LimitScope::Host | LimitScope::Requester => 429,
        }
    }
}

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

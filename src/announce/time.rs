//! Arithmetic on times that never fails.

use std::time::Duration;

use jiff::Timestamp;

/// Returns `time` plus `duration`, or the end of time.
pub fn later(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// Returns `time` less `duration`, or the beginning of time.
pub fn earlier(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

/// Returns the time since `start`, or zero if that lies ahead.
pub fn elapsed(start: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(start)).unwrap_or_default()
}

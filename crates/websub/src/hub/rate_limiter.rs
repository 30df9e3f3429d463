//! A rate limiter: one token bucket per key, a minute's worth as burst, in bounded memory.

use std::collections::BTreeMap;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Maximum keys in each of the two generations. Beyond it the oldest keys begin with a full bucket again, so that many
/// clients cannot lock others out.
const MAX_KEYS: usize = 10_000;

/// A limiter with the same rate for each `K`. Times count from any one start.
///
/// Each bucket is kept as the time until which its tokens are spent (generic cell rate algorithm): at most a minute
/// ahead. One in the past is a full bucket and need not be kept, so a generation can be dropped a minute after it was
/// last filled.
#[derive(Debug)]
pub struct RateLimiter<K> {
    /// The time in which one token is regained.
    interval: Duration,
    recent: BTreeMap<K, Duration>,
    older: BTreeMap<K, Duration>,
    /// The start of `recent`.
    rotated_at: Duration,
}

impl<K: Ord + Clone> RateLimiter<K> {
    /// Permits so many in a minute for each key, and as many at once.
    pub fn new(per_minute: u32) -> RateLimiter<K> {
        RateLimiter {
            interval: MINUTE / per_minute.max(1),
            recent: BTreeMap::new(),
            older: BTreeMap::new(),
            rotated_at: Duration::ZERO,
        }
    }

    /// Takes `count` tokens from the bucket of each key, whose rate is multiplied by the number beside it; or returns the
    /// key that has to wait longest, with that time, and takes nothing. More tokens than a bucket holds are never there.
    ///
    /// # Errors
    ///
    /// The key and the time.
    pub fn acquire(
        &mut self,
        keys: &[(K, u32)],
        count: u32,
        now: Duration,
    ) -> Result<(), (K, Duration)> {
        if now.saturating_sub(self.rotated_at) >= MINUTE || self.recent.len() >= MAX_KEYS {
            self.older = std::mem::take(&mut self.recent);
            self.rotated_at = now;
        }
        let spent_until = |(key, times): &(K, u32)| {
            let known = self.recent.get(key).or_else(|| self.older.get(key));
            let cost = (self.interval / (*times).max(1)).saturating_mul(count);
            known.copied().unwrap_or(now).max(now).saturating_add(cost)
        };
        let spent: Vec<Duration> = keys.iter().map(spent_until).collect();
        let waits = keys
            .iter()
            .zip(&spent)
            .map(|((key, _), spent_until)| (key, spent_until.saturating_sub(now + MINUTE)));
        if let Some((key, wait)) = waits.max_by_key(|(_, wait)| *wait)
            && !wait.is_zero()
        {
            return Err((key.clone(), wait));
        }
        let spent = keys.iter().zip(spent);
        self.recent
            .extend(spent.map(|((key, _), spent_until)| (key.clone(), spent_until)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<K: Ord + Clone> RateLimiter<K> {
        fn acquire_one(&mut self, key: &K, now: Duration) -> Result<(), Duration> {
            let acquired = self.acquire(&[(key.clone(), 1)], 1, now);
            acquired.map_err(|(_, wait)| wait)
        }
    }

    #[test]
    fn a_request_that_one_bucket_refuses_takes_no_token_from_the_others() {
        let mut limiter = RateLimiter::new(2);
        let both = [("customer", 1), ("provider", 2)];
        for _ in 0..2 {
            assert_eq!(limiter.acquire(&both, 1, seconds(1)), Ok(()));
        }
        let wait = Err(("customer", seconds(30)));
        assert_eq!(limiter.acquire(&both, 1, seconds(1)), wait);
        let another = [("another", 1), ("provider", 2)];
        for _ in 0..2 {
            assert_eq!(limiter.acquire(&another, 1, seconds(1)), Ok(()));
        }
        let third = [("third", 1), ("provider", 2)];
        let wait = Err(("provider", seconds(15)));
        assert_eq!(limiter.acquire(&third, 1, seconds(1)), wait);
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_minute_s_worth_may_come_at_once_and_is_regained_evenly() {
        let mut limiter = RateLimiter::new(6);
        for _ in 0..6 {
            assert_eq!(limiter.acquire_one(&1, seconds(100)), Ok(()));
        }
        assert_eq!(limiter.acquire_one(&1, seconds(100)), Err(seconds(10)));
        assert_eq!(limiter.acquire_one(&1, seconds(104)), Err(seconds(6)));
        // Others go on.
        assert_eq!(limiter.acquire_one(&2, seconds(104)), Ok(()));
        assert_eq!(limiter.acquire_one(&1, seconds(110)), Ok(()));
        assert_eq!(limiter.acquire_one(&1, seconds(110)), Err(seconds(10)));
        for _ in 0..6 {
            assert_eq!(limiter.acquire_one(&1, seconds(300)), Ok(()));
        }
        assert_eq!(limiter.acquire_one(&1, seconds(300)), Err(seconds(10)));
    }

    #[test]
    fn many_tokens_are_taken_together_or_not_at_all() {
        let mut limiter = RateLimiter::new(6);
        let key = [("a", 1)];
        assert_eq!(limiter.acquire(&key, 0, seconds(1)), Ok(()));
        assert_eq!(limiter.acquire(&key, 4, seconds(1)), Ok(()));
        let wait = Err(("a", seconds(10)));
        assert_eq!(limiter.acquire(&key, 3, seconds(1)), wait);
        assert_eq!(limiter.acquire(&key, 2, seconds(1)), Ok(()));
        assert_eq!(limiter.acquire(&key, 1, seconds(1)), wait);
        assert!(limiter.acquire(&key, 7, seconds(600)).is_err());
        assert_eq!(limiter.acquire(&[("a", 2)], 12, seconds(600)), Ok(()));
    }

    #[test]
    fn a_client_that_has_to_wait_is_not_forgotten() {
        let mut limiter = RateLimiter::new(60);
        let mut taken = 0;
        for half_second in 0..1_200 {
            let now = Duration::from_millis(500 * half_second);
            taken += u32::from(limiter.acquire_one(&"hasty", now).is_ok());
        }
        // Ten minutes: sixty at once, and one in each second.
        assert_eq!(taken, 60 + 599);
    }

    #[test]
    fn many_clients_take_bounded_memory_and_lock_no_other_out() {
        let mut limiter = RateLimiter::new(1);
        for who in 0..100_000 {
            assert_eq!(limiter.acquire_one(&who, seconds(1)), Ok(()));
            assert!(limiter.recent.len() + limiter.older.len() <= 2 * MAX_KEYS);
        }
    }
}

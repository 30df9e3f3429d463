//! How often one may do something: a minute's worth at once, then as fast as that is regained (a token bucket for each,
//! in bounded memory).

use std::collections::BTreeMap;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// How many are remembered in each half. Beyond, the oldest may begin anew, so that no crowd can lock others out.
const MOST: usize = 10_000;

/// The same pace for each `K`. Times run from any one beginning.
#[derive(Debug)]
pub struct Pace<K> {
    /// What one costs.
    interval: Duration,
    /// Until when each has paid; less than a minute ahead, or it must wait. Who has paid until the past may be
    /// forgotten, so that what a half holds is void a minute after the half was begun to be filled no more.
    recent: BTreeMap<K, Duration>,
    older: BTreeMap<K, Duration>,
    /// When `recent` was begun.
    turned: Duration,
}

impl<K: Ord + Clone> Pace<K> {
    pub fn new(per_minute: u32) -> Pace<K> {
        Pace {
            interval: MINUTE / per_minute.max(1),
            recent: BTreeMap::new(),
            older: BTreeMap::new(),
            turned: Duration::ZERO,
        }
    }

    /// Takes one, or says how long to wait for it. What had to wait costs nothing.
    pub fn take(&mut self, who: &K, now: Duration) -> Result<(), Duration> {
        if now.saturating_sub(self.turned) >= MINUTE || self.recent.len() >= MOST {
            self.older = std::mem::take(&mut self.recent);
            self.turned = now;
        }
        let known = self.recent.get(who).or_else(|| self.older.get(who));
        let paid_until = known.copied().unwrap_or(now).max(now) + self.interval;
        let wait = paid_until.saturating_sub(now + MINUTE);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.recent.insert(who.clone(), paid_until);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_minute_s_worth_may_come_at_once_and_is_regained_evenly() {
        let mut pace = Pace::new(6);
        for _ in 0..6 {
            assert_eq!(pace.take(&1, seconds(100)), Ok(()));
        }
        assert_eq!(pace.take(&1, seconds(100)), Err(seconds(10)));
        assert_eq!(pace.take(&1, seconds(104)), Err(seconds(6)));
        assert_eq!(pace.take(&2, seconds(104)), Ok(()), "others go on");
        assert_eq!(pace.take(&1, seconds(110)), Ok(()));
        assert_eq!(pace.take(&1, seconds(110)), Err(seconds(10)));
        for _ in 0..6 {
            assert_eq!(pace.take(&1, seconds(300)), Ok(()));
        }
        assert_eq!(pace.take(&1, seconds(300)), Err(seconds(10)));
    }

    #[test]
    fn nobody_is_forgotten_who_has_to_wait() {
        let mut pace = Pace::new(60);
        let mut taken = 0;
        for half_second in 0..1_200 {
            let now = Duration::from_millis(500 * half_second);
            taken += u32::from(pace.take(&"hasty", now).is_ok());
        }
        // Ten minutes: sixty at once, and one in each second.
        assert_eq!(taken, 60 + 599);
    }

    #[test]
    fn a_crowd_takes_bounded_memory_and_locks_nobody_out() {
        let mut pace = Pace::new(1);
        for who in 0..100_000 {
            assert_eq!(pace.take(&who, seconds(1)), Ok(()));
            assert!(pace.recent.len() + pace.older.len() <= 2 * MOST);
        }
    }
}

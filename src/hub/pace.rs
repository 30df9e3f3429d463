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

    /// Takes one for each of these, who may have so many times the pace; or says who has to wait, and for how long.
    /// What had to wait costs nobody anything.
    pub fn take_for_all(&mut self, all: &[(K, u32)], now: Duration) -> Result<(), (K, Duration)> {
        if now.saturating_sub(self.turned) >= MINUTE || self.recent.len() >= MOST {
            self.older = std::mem::take(&mut self.recent);
            self.turned = now;
        }
        let paid_until = |(who, times): &(K, u32)| {
            let known = self.recent.get(who).or_else(|| self.older.get(who));
            known.copied().unwrap_or(now).max(now) + self.interval / (*times).max(1)
        };
        let paid: Vec<Duration> = all.iter().map(paid_until).collect();
        let waits = all
            .iter()
            .zip(&paid)
            .map(|((who, _), paid_until)| (who, paid_until.saturating_sub(now + MINUTE)));
        if let Some((who, wait)) = waits.max_by_key(|(_, wait)| *wait)
            && !wait.is_zero()
        {
            return Err((who.clone(), wait));
        }
        let paid = all.iter().zip(paid);
        self.recent
            .extend(paid.map(|((who, _), paid_until)| (who.clone(), paid_until)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<K: Ord + Clone> Pace<K> {
        fn take(&mut self, who: &K, now: Duration) -> Result<(), Duration> {
            let taken = self.take_for_all(&[(who.clone(), 1)], now);
            taken.map_err(|(_, wait)| wait)
        }
    }

    #[test]
    fn what_one_of_them_may_not_take_costs_none_of_them_anything() {
        let mut pace = Pace::new(2);
        let both = [("customer", 1), ("provider", 2)];
        for _ in 0..2 {
            assert_eq!(pace.take_for_all(&both, seconds(1)), Ok(()));
        }
        let wait = Err(("customer", seconds(30)));
        assert_eq!(pace.take_for_all(&both, seconds(1)), wait);
        let another = [("another", 1), ("provider", 2)];
        for _ in 0..2 {
            assert_eq!(pace.take_for_all(&another, seconds(1)), Ok(()));
        }
        let third = [("third", 1), ("provider", 2)];
        let wait = Err(("provider", seconds(15)));
        assert_eq!(pace.take_for_all(&third, seconds(1)), wait);
    }

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

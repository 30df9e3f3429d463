//! Places for connections: when all are taken, who has been idle longest makes room for who comes, but nobody before
//! there was time to ask.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// For asking, after a client has connected. Who comes meanwhile waits, in the order in which all came.
const GRACE: Duration = Duration::from_millis(100);

/// Connections that must leave and have not yet, before others wait for that.
const MOST_LEAVING: usize = 64;

/// The places of a listener.
#[derive(Debug)]
pub struct Places {
    most: usize,
    taken: Mutex<Taken>,
    /// Told whenever a place is free.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    /// By the number that each was given when it was taken or last renewed.
    by_number: BTreeMap<u64, Connected>,
    /// Which must leave and have not yet.
    leaving: usize,
    last: u64,
}

#[derive(Debug)]
struct Connected {
    /// When, if nothing was answered yet.
    since: Option<Instant>,
    /// Whose sender is dropped must leave.
    stay: Sender<()>,
}

/// One connection's place, free once it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
}

impl Places {
    pub fn new(most: usize) -> Arc<Places> {
        Arc::new(Places {
            most,
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// A place, with what is ready when it must be left. If all are taken, one is left for it: an answer waits for
    /// nothing, so that all who are here keep us waiting, to ask or to take, and who has done so for longest leaves.
    pub async fn take(self: &Arc<Places>) -> (Place, Receiver<()>) {
        loop {
            let freed = self.freed.notified();
            match self.try_take(Instant::now()) {
                Ok(taken) => return taken,
                // The grace is over by then, or somebody has left.
                Err(wait) => {
                    let _ = tokio::time::timeout(wait, freed).await;
                }
            }
        }
    }

    /// A place, or how long to wait before the next try unless one is left.
    fn try_take(self: &Arc<Places>, now: Instant) -> Result<(Place, Receiver<()>), Duration> {
        let mut taken = self.lock();
        // Each that leaves still has its descriptor, and takes a moment to give it back.
        if taken.leaving > (self.most / 16).min(MOST_LEAVING) {
            return Err(GRACE);
        }
        if taken.by_number.len() >= self.most
            && let Some(longest) = taken.by_number.first_entry()
        {
            let has_had = longest.get().since.map(|since| now.duration_since(since));
            if let Some(has_had) = has_had
                && has_had < GRACE
            {
                return Err(GRACE - has_had);
            }
            longest.remove();
            taken.leaving += 1;
        }
        let (stay, must_leave) = channel();
        let since = Some(now);
        let number = taken.add(Connected { since, stay });
        let place = Place {
            places: Arc::clone(self),
            number,
        };
        Ok((place, must_leave))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn add(&mut self, connected: Connected) -> u64 {
        self.last += 1;
        self.by_number.insert(self.last, connected);
        self.last
    }
}

impl Place {
    /// The client took of what it asked for: of all it is now the last to leave. Sending alone earns nothing,
    /// or a byte now and then would keep a place.
    pub fn renew(&mut self) {
        let mut taken = self.places.lock();
        if let Some(Connected { stay, .. }) = taken.by_number.remove(&self.number) {
            self.number = taken.add(Connected { since: None, stay });
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if taken.by_number.remove(&self.number).is_none() {
            taken.leaving -= 1;
        }
        drop(taken);
        self.places.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError::Closed;

    use super::*;

    type Taken = (Place, Receiver<()>);

    /// Takes a place; whoever must leave for it does.
    fn take(places: &Arc<Places>, others: &mut Vec<Option<Taken>>, now: Instant) -> Vec<usize> {
        let taken = places.try_take(now).unwrap();
        let must_leave =
            |(_, leave): &mut Taken| leave.try_recv().is_err_and(|error| error == Closed);
        let mut left = Vec::new();
        for (position, other) in others.iter_mut().enumerate() {
            if other.as_mut().is_some_and(must_leave) {
                *other = None;
                left.push(position);
            }
        }
        others.push(Some(taken));
        left
    }

    fn place(taken: &mut [Option<Taken>], number: usize) -> &mut Place {
        &mut taken[number].as_mut().unwrap().0
    }

    #[test]
    fn who_took_nothing_for_longest_leaves_when_all_places_are_taken() {
        let (places, now) = (Places::new(3), Instant::now());
        let mut taken = Vec::new();
        for _ in 0..3 {
            assert!(take(&places, &mut taken, now).is_empty());
        }
        place(&mut taken, 0).renew();
        assert_eq!(take(&places, &mut taken, now + GRACE), [1]);
        assert_eq!(take(&places, &mut taken, now + GRACE), [2]);
    }

    #[test]
    fn who_has_just_connected_is_given_time_to_ask() {
        let (places, now) = (Places::new(2), Instant::now());
        let mut taken = Vec::new();
        let late = now + GRACE / 2;
        take(&places, &mut taken, now);
        take(&places, &mut taken, late);
        assert_eq!(places.try_take(late).unwrap_err(), GRACE / 2);
        // It has asked, and had its answer; then the other one is next.
        place(&mut taken, 0).renew();
        assert_eq!(places.try_take(now + GRACE).unwrap_err(), GRACE / 2);
        assert_eq!(take(&places, &mut taken, late + GRACE), [1]);
        // Who was answered needs no more time.
        place(&mut taken, 2).renew();
        assert_eq!(take(&places, &mut taken, late + GRACE), [0]);
    }

    #[test]
    fn a_place_that_was_left_is_free() {
        let (places, now) = (Places::new(2), Instant::now());
        let mut taken = Vec::new();
        take(&places, &mut taken, now);
        for _ in 0..3 {
            drop(places.try_take(now));
        }
        assert!(take(&places, &mut taken, now).is_empty());
        assert_eq!(places.lock().by_number.len(), 2);
    }

    #[test]
    fn who_must_leave_cannot_stay_by_taking_more() {
        let (places, now) = (Places::new(1), Instant::now());
        let (mut first, _) = places.try_take(now).unwrap();
        let second = places.try_take(now + GRACE).unwrap();
        first.renew();
        let late = now + GRACE * 2;
        assert!(places.try_take(late).is_err(), "the first has not left yet");
        drop(first);
        assert_eq!(places.lock().by_number.len(), 1);
        drop(second);
        assert_eq!(places.lock().by_number.len(), 0);
    }
}

//! Places for connections: when all are taken, who has been idle longest makes room for who comes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot::{Receiver, Sender, channel};

/// The places of a listener.
#[derive(Debug)]
pub struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// By the turn in which each was taken or last renewed. Whose sender is dropped must leave.
    by_turn: BTreeMap<u64, Sender<()>>,
    turns: u64,
}

/// One connection's place, free once it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    turn: u64,
}

impl Places {
    pub fn new(most: usize) -> Arc<Places> {
        Arc::new(Places {
            most,
            taken: Mutex::default(),
        })
    }

    /// A place, with what is ready when it must be left. There always is one: an answer waits for nothing, so that
    /// all who are here keep us waiting, to ask or to take; who has done so for longest leaves.
    pub fn take(self: &Arc<Places>) -> (Place, Receiver<()>) {
        let (sender, must_leave) = channel();
        let mut taken = self.lock();
        if taken.by_turn.len() >= self.most {
            taken.by_turn.pop_first();
        }
        let turn = taken.add(sender);
        let place = Place {
            places: Arc::clone(self),
            turn,
        };
        (place, must_leave)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn add(&mut self, sender: Sender<()>) -> u64 {
        self.turns += 1;
        self.by_turn.insert(self.turns, sender);
        self.turns
    }
}

impl Place {
    /// The client took of what it asked for: of all it is now the last to leave. Sending alone earns nothing,
    /// or a byte now and then would keep a place.
    pub fn renew(&mut self) {
        let mut taken = self.places.lock();
        if let Some(sender) = taken.by_turn.remove(&self.turn) {
            self.turn = taken.add(sender);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().by_turn.remove(&self.turn);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError::Closed;

    use super::*;

    /// Which of these must be left.
    fn left<const N: usize>(places: [&mut (Place, Receiver<()>); N]) -> [bool; N] {
        places.map(|(_, must_leave)| must_leave.try_recv().is_err_and(|error| error == Closed))
    }

    #[test]
    fn who_took_nothing_for_longest_leaves_when_all_places_are_taken() {
        let places = Places::new(3);
        let [mut first, mut second, mut third] = [(); 3].map(|()| places.take());
        assert_eq!(
            left([&mut first, &mut second, &mut third]),
            [false, false, false]
        );
        first.0.renew();
        let mut fourth = places.take();
        assert_eq!(
            left([&mut first, &mut second, &mut third, &mut fourth]),
            [false, true, false, false]
        );
        let _fifth = places.take();
        assert_eq!(
            left([&mut first, &mut third, &mut fourth]),
            [false, true, false]
        );
    }

    #[test]
    fn a_place_that_was_left_is_free() {
        let places = Places::new(2);
        let mut first = places.take();
        for _ in 0..3 {
            drop(places.take());
        }
        let _second = places.take();
        assert_eq!(left([&mut first]), [false]);
    }

    #[test]
    fn who_must_leave_cannot_stay_by_taking_more() {
        let places = Places::new(1);
        let mut first = places.take();
        let mut second = places.take();
        first.0.renew();
        drop(first);
        assert_eq!(left([&mut second]), [false]);
        assert_eq!(places.lock().by_turn.len(), 1);
    }
}

//! Brings notifications to subscribers: to each in order, to all at once as far as there is room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::Method;
use jiff::Timestamp;
use tokio::sync::Notify;
use tracing::{debug, warn};

use crate::announce::delivery::Answer;
use crate::announce::delivery::secret::Mask;
use crate::hub::Key;
use crate::hub::audience::view::LastTry;
use crate::hub::audience::{Assignment, Delivery};
use crate::hub::relay::{Outcome, headers, outcome};
use crate::websub::client;
use crate::websub::hub::calls::{Location, NotCalled};
use crate::websub::hub::slots::Slot;
use crate::websub::hub::{Conduct, Shared};

/// What a request is given up with that took long while others waited.
pub const CUT_OFF: &str = "cut off, because it took long and others waited";
/// Subscribers whose deliveries begin before other tasks go on.
const AT_A_TIME: usize = 100;

/// Subscribers that may be due at once although they were to be tried later.
#[derive(Debug, Default)]
pub struct Wakers {
    all: Mutex<HashMap<Key, Arc<Notify>>>,
}

/// Told when its subscriber is due at once.
struct Woken {
    wakers: Arc<Wakers>,
    key: Key,
    notify: Arc<Notify>,
}

impl Wakers {
    /// A subscriber is due at once.
    pub fn wake(&self, key: &Key) {
        if let Some(notify) = self.lock().get(key) {
            notify.notify_one();
        }
    }

    fn begin(self: &Arc<Wakers>, key: &Key) -> Woken {
        let notify = Arc::new(Notify::new());
        self.lock().insert(key.clone(), Arc::clone(&notify));
        Woken {
            wakers: Arc::clone(self),
            key: key.clone(),
            notify,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Notify>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        let mut all = self.wakers.lock();
        // The subscription may have begun anew meanwhile.
        if all
            .get(&self.key)
            .is_some_and(|own| Arc::ptr_eq(own, &self.notify))
        {
            all.remove(&self.key);
        }
    }
}

/// Begins to deliver to those who wait.
pub async fn deliver_to_all(shared: Arc<Shared>, assignments: Vec<Assignment>) {
    for (count, assignment) in (1..).zip(assignments) {
        tokio::spawn(deliver_all(Arc::clone(&shared), assignment));
        if count % AT_A_TIME == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Delivers what waits for one subscriber, until nothing does.
// What takes space is boxed: of a crowd, most only wait.
async fn deliver_all(shared: Arc<Shared>, assignment: Assignment) {
    let woken = shared.wakers.begin(&assignment.key);
    while let Some(next) = shared.next(&assignment) {
        let at = next.progress.next_try;
        let wait = at.and_then(|at| Duration::try_from(at.duration_since(Timestamp::now())).ok());
        if let Some(wait) = wait {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // It may be due at once now.
                () = woken.notify.notified() => continue,
            }
        }
        let (callback, conduct) = (&assignment.key.callback, shared.conduct());
        let locating = conduct.caller.locate(callback, next.priority);
        let location = Box::pin(locating).await;
        let account = location.as_ref().map(|location| location.account.clone());
        let slot = match account {
            Ok(account) => tokio::select! {
                slot = shared.delivering.take(&account, next.priority) => Some(slot),
                // It may go before others now.
                () = woken.notify.notified() => continue,
            },
            Err(_) if shared.delivering.is_closed() => return,
            Err(_) => None,
        };
        if !Arc::ptr_eq(&conduct, &shared.conduct()) {
            // It was judged by what holds no more.
            continue;
        }
        Box::pin(deliver(&shared, &conduct, &assignment, location, slot)).await;
    }
}

/// Tries what is next for a subscriber once.
async fn deliver(
    shared: &Shared,
    conduct: &Conduct,
    assignment: &Assignment,
    location: Result<Location, NotCalled>,
    mut slot: Option<Slot>,
) {
    // Looked up at the last moment: the subscription may have ended, or have a new secret.
    let Some(Delivery {
        relay,
        secret,
        progress,
        ..
    }) = shared.next(assignment)
    else {
        return;
    };
    let key = &assignment.key;
    // Unknown once the topic is no longer served.
    let list = shared.topics.capability_list(&key.topic);
    let (hub, secret) = (&conduct.settings.hub, secret.as_ref());
    let (topic, callback, seq) = (&key.topic, &key.callback, relay.seq);
    let answer = match (&location, &mut slot) {
        (Ok(location), Some(slot)) => {
            let mut post = conduct
                .caller
                .request(Method::POST, callback.as_str(), location);
            for (name, value) in headers(&relay, hub, list.as_ref(), secret) {
                post = post.header(name, value.as_bytes());
            }
            let post = post.body(client::body(&relay.body));
            let answered = async { client::answer(post.send().await, &Mask::default()).await };
            let answer = slot.unless_cut_off(answered).await;
            let answer = answer.unwrap_or_else(|| Answer::Failed(CUT_OFF.to_owned()));
            if let Answer::Status { .. } = answer {
                slot.answered();
            }
            answer
        }
        (Ok(_), None) => return,
        (Err(error), _) => Answer::Failed(error.to_string()),
    };
    let attempts = progress.attempts + 1;
    let now = Timestamp::now();
    let outcome = outcome(&answer, attempts, now, fastrand::f64());
    let last = LastTry::new(&answer, now);
    let took = shared.age(relay.id);
    shared.counts().tried(&answer, outcome, took);
    match outcome {
        Outcome::Delivered => debug!(
            %topic, %callback, seq, attempts, "{callback} took notification {seq}"
        ),
        // That its subscription ends is told below.
        Outcome::Gone => {}
        Outcome::Retry { at } => debug!(
            %topic, %callback, seq, attempts, next_try = %at,
            "{callback} did not take notification {seq}: {last}"
        ),
        Outcome::GivenUp => {
            if shared.lines().given_up.take() {
                warn!(
                    %topic, %callback, seq, attempts,
                    "gave up notification {seq} to {callback}, which takes nothing: {last}"
                );
            }
        }
    }
    shared.end("it is gone (410)", |audience| {
        audience.tried(assignment, last);
        audience.answered(assignment, relay.id, outcome)
    });
}

//! Failpoints of a delivery: a test can kill a debug build at any of them.
//!
//! With `RSNOTIFY_FAILPOINT=CutSaved:2` in its environment, a debug build ends when it reaches that failpoint for the
//! second time since it was ready (since it was started, for those of reading Change Lists): by SIGKILL, so that nothing
//! is unwound, flushed or answered. In a release build, the condition of each is constantly false, so that nothing of this
//! is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::process::{Signal, getpid, kill_process};
use websub::hub::HubRecord;

use crate::announce::event::{Effect, Event, Fact};
use crate::announce::observation::Look;

/// A point in the life of a delivery. At one without `Saved` in its name, the change is about to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failpoint {
    /// The tree has reported a change, and the engine has not received it.
    Observed,
    Seen,
    SeenSaved,
    /// A notification is cut, and with it the deliveries that the embedded hub owes.
    Cut,
    CutSaved,
    /// The topic serves the notification.
    Served,
    /// The request to the hub is about to be sent.
    Submitting,
    /// The hub has answered, and the loop has not received the answer.
    Answered,
    /// A hub has accepted a notification.
    Told,
    ToldSaved,
    /// The embedded hub has the deliveries that it owes.
    Dispatched,
    /// A subscriber has answered, and the loop has not received the answer.
    Relayed,
    Recorded,
    RecordedSaved,
    /// Change Lists are about to be read.
    Reading,
    /// The fresh entries of Change Lists were read, and the loop has not received them.
    Taken,
    /// Entries count as taken, and the notifications that tell of them are logged.
    Logged,
    LoggedSaved,
}

/// The failpoint at which this process dies, if any. Clones count together.
#[derive(Debug, Clone)]
pub struct Failpoints {
    end: Option<Arc<End>>,
}

#[derive(Debug)]
struct End {
    failpoint: String,
    passings_left: AtomicU32,
    is_ready: AtomicBool,
}

impl Failpoints {
    pub fn from_environment() -> Failpoints {
        if !cfg!(debug_assertions) {
            return Failpoints { end: None };
        }
        let end = std::env::var("RSNOTIFY_FAILPOINT")
            .ok()
            .and_then(|instruction| {
                let (failpoint, passing) = instruction.split_once(':')?;
                Some(Arc::new(End {
                    failpoint: failpoint.to_owned(),
                    passings_left: AtomicU32::new(passing.parse().ok()?),
                    is_ready: AtomicBool::new(false),
                }))
            });
        Failpoints { end }
    }

    /// Counts from here on.
    pub fn ready(&self) {
        if let Some(end) = &self.end {
            end.is_ready.store(true, Ordering::Relaxed);
        }
    }

    /// Dies here, if this failpoint was asked for.
    pub fn pass(&self, failpoint: Failpoint) {
        if cfg!(debug_assertions)
            && let Some(end) = &self.end
            && (end.is_ready.load(Ordering::Relaxed) || is_before_ready(failpoint))
            && end.failpoint == format!("{failpoint:?}")
            && end.passings_left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            die();
        }
    }

    /// Passes those before a step is saved, or those after it.
    pub fn cross(
        &self,
        is_saved: bool,
        events: &[Event],
        effects: &[Effect],
        records: &[HubRecord],
    ) {
        if cfg!(debug_assertions) {
            for (before, after) in crossed(events, effects, records) {
                self.pass(if is_saved { after } else { before });
            }
        }
    }
}

/// Returns true for what is counted from the start: Change Lists are learned while the daemon becomes ready.
fn is_before_ready(failpoint: Failpoint) -> bool {
    matches!(failpoint, Failpoint::Reading | Failpoint::Taken)
}

/// Returns the failpoints before and after this step is saved.
fn crossed(
    events: &[Event],
    effects: &[Effect],
    records: &[HubRecord],
) -> impl Iterator<Item = (Failpoint, Failpoint)> {
    let is_seen = |event: &Event| match event {
        Event::Observed(seen) => {
            let mut looks = seen.iter().map(|observation| &observation.look);
            looks.any(|look| matches!(look, Look::Document { .. }))
        }
        _ => false,
    };
    let has_fact = |is_meant: fn(&Fact) -> bool| {
        let mut facts = effects.iter();
        facts.any(|effect| matches!(effect, Effect::Tell(fact) if is_meant(fact)))
    };
    let is_delivered = |record: &HubRecord| matches!(record, HubRecord::Progressed(..));
    [
        (
            events.iter().any(is_seen),
            Failpoint::Seen,
            Failpoint::SeenSaved,
        ),
        (
            has_fact(|fact| matches!(fact, Fact::Cut { .. })),
            Failpoint::Cut,
            Failpoint::CutSaved,
        ),
        (
            has_fact(|fact| matches!(fact, Fact::Delivered { .. })),
            Failpoint::Told,
            Failpoint::ToldSaved,
        ),
        (
            has_fact(
                |fact| matches!(fact, Fact::Took { notifications, .. } if !notifications.is_empty()),
            ),
            Failpoint::Logged,
            Failpoint::LoggedSaved,
        ),
        (
            records.iter().any(is_delivered),
            Failpoint::Recorded,
            Failpoint::RecordedSaved,
        ),
    ]
    .into_iter()
    .filter(|(is_in, ..)| *is_in)
    .map(|(_, before, after)| (before, after))
}

fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}

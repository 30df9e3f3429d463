//! Failpoints of a delivery: a test can kill a debug build at any of them.
//!
//! With `RSNOTIFY_FAILPOINT=CutSaved:2` in its environment, a debug build ends when it reaches that failpoint for the
//! second time since it was ready (since it was started, for those of reading Change Lists): by SIGKILL, so that nothing
//! is unwound, flushed or answered. In a release build, the condition of each is constantly false, so that nothing of this
//! is left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::process::{Signal, getpid, kill_process};
use websub::hub::HubRecord;

use announce::event::{AnswerOutcome, Effect, Event, Fact};
use announce::observation::{Look, Observation};

/// A point in the life of a delivery. At some of them a change is about to be saved; once it is, `Saved` follows in the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failpoint {
    /// The tree has reported a change, and the engine has not received it.
    Observed,
    Seen,
    /// A notification is cut, and with it the deliveries that the embedded hub owes.
    Cut,
    /// The topic serves the notification.
    Served,
    /// The request to the hub is about to be sent.
    Submitting,
    /// The hub has answered, and the loop has not received the answer.
    Answered,
    /// A hub has accepted a notification.
    Told,
    /// The embedded hub has the deliveries that it owes.
    Dispatched,
    /// A subscriber has answered, and the loop has not received the answer.
    Relayed,
    Recorded,
    /// Change Lists are about to be read.
    Reading,
    /// The fresh entries of Change Lists were read, and the loop has not received them.
    Taken,
    /// Entries count as taken, and the notifications that tell of them are logged.
    Logged,
}

/// The failpoint at which this process dies, if any. Clones count together.
#[derive(Debug, Clone)]
pub struct Failpoints(Option<Arc<ArmedFailpoint>>);

#[derive(Debug)]
struct ArmedFailpoint {
    failpoint: String,
    passings_left: AtomicU32,
    is_ready: AtomicBool,
}

impl Failpoints {
    pub fn from_environment() -> Failpoints {
        let asked = std::env::var("RSNOTIFY_FAILPOINT").ok();
        let end = asked.filter(|_| cfg!(debug_assertions)).and_then(|asked| {
            let (failpoint, passing) = asked.split_once(':')?;
            Some(Arc::new(ArmedFailpoint {
                failpoint: failpoint.to_owned(),
                passings_left: AtomicU32::new(passing.parse().ok()?),
                is_ready: AtomicBool::new(false),
            }))
        });
        Failpoints(end)
    }

    /// Counts from here on.
    pub fn ready(&self) {
        if let Some(end) = &self.0 {
            end.is_ready.store(true, Ordering::Relaxed);
        }
    }

    /// Dies here, if this failpoint was asked for.
    pub fn pass(&self, failpoint: Failpoint) {
        self.end_at(failpoint, "");
    }

    fn end_at(&self, failpoint: Failpoint, suffix: &str) {
        // Change Lists are learned while the daemon becomes ready.
        let counts_from_start = matches!(failpoint, Failpoint::Reading | Failpoint::Taken);
        if cfg!(debug_assertions)
            && let Some(end) = &self.0
            && (end.is_ready.load(Ordering::Relaxed) || counts_from_start)
            && end.failpoint == format!("{failpoint:?}{suffix}")
            && end.passings_left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            let _ = kill_process(getpid(), Signal::KILL);
            loop {
                std::thread::park();
            }
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
        if !cfg!(debug_assertions) {
            return;
        }
        let is_document = |seen: &Observation| matches!(seen.look, Look::Document { .. });
        let seen = events.iter().filter_map(|event| match event {
            Event::Observed(seen) if seen.iter().any(is_document) => Some(Failpoint::Seen),
            _ => None,
        });
        let told = effects.iter().filter_map(|effect| match effect {
            Effect::Tell(Fact::Cut { .. }) => Some(Failpoint::Cut),
            Effect::Tell(Fact::Answered(_, AnswerOutcome::Delivered { .. })) => {
                Some(Failpoint::Told)
            }
            Effect::Tell(Fact::Took { notifications, .. }) if !notifications.is_empty() => {
                Some(Failpoint::Logged)
            }
            _ => None,
        });
        let is_delivered = |record: &&HubRecord| matches!(record, HubRecord::Progressed(..));
        let recorded = records.iter().filter(is_delivered);
        let recorded = recorded.map(|_| Failpoint::Recorded);
        // Each counts once for a step.
        let crossed: BTreeSet<Failpoint> = seen.chain(told).chain(recorded).collect();
        for failpoint in crossed {
            self.end_at(failpoint, if is_saved { "Saved" } else { "" });
        }
    }
}

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
use announce::observation::{Found, Observation};

/// A point in the life of a delivery. At some of them a change is about to be saved; there is a second one once it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// The failpoint at which this process dies, if any.
#[derive(Debug)]
pub struct FailpointTrigger {
    /// The name of the failpoint; empty if none was asked for.
    failpoint: String,
    passings_left: AtomicU32,
    is_ready: AtomicBool,
}

impl FailpointTrigger {
    pub fn from_environment() -> Arc<FailpointTrigger> {
        let asked = std::env::var("RSNOTIFY_FAILPOINT").unwrap_or_default();
        let (failpoint, passing) = asked.split_once(':').unwrap_or_default();
        Arc::new(FailpointTrigger {
            failpoint: failpoint.to_owned(),
            passings_left: AtomicU32::new(passing.parse().unwrap_or_default()),
            is_ready: AtomicBool::new(false),
        })
    }

    /// Counts from here on.
    pub fn arm(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    /// Dies here, if this failpoint was asked for.
    pub fn pass(&self, failpoint: Failpoint) {
        // Change Lists are learned while the daemon becomes ready.
        let counts_from_start = matches!(failpoint, Failpoint::Reading | Failpoint::Taken);
        if cfg!(debug_assertions)
            && (self.is_ready.load(Ordering::Relaxed) || counts_from_start)
            && self.failpoint == format!("{failpoint:?}")
            && self.passings_left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            let _ = kill_process(getpid(), Signal::KILL);
            loop {
                std::thread::park();
            }
        }
    }

    /// Passes those before a step is saved, or those after it.
    pub fn pass_step(
        &self,
        is_saved: bool,
        events: &[Event],
        effects: &[Effect],
        records: &[HubRecord],
    ) {
        if !cfg!(debug_assertions) {
            return;
        }
        let of_save = |before, after| Some(if is_saved { after } else { before });
        let is_document = |seen: &Observation| matches!(seen.look, Found::Document { .. });
        let seen = events.iter().filter_map(|event| match event {
            Event::Observed(seen) if seen.iter().any(is_document) => {
                of_save(Failpoint::Seen, Failpoint::SeenSaved)
            }
            _ => None,
        });
        let told = effects.iter().filter_map(|effect| match effect {
            Effect::Tell(Fact::Cut { .. }) => of_save(Failpoint::Cut, Failpoint::CutSaved),
            Effect::Tell(Fact::Answered(_, AnswerOutcome::Delivered { .. })) => {
                of_save(Failpoint::Told, Failpoint::ToldSaved)
            }
            Effect::Tell(Fact::Took { notifications, .. }) if !notifications.is_empty() => {
                of_save(Failpoint::Logged, Failpoint::LoggedSaved)
            }
            _ => None,
        });
        let recorded = records.iter().filter_map(|record| match record {
            HubRecord::Progressed(..) => of_save(Failpoint::Recorded, Failpoint::RecordedSaved),
            _ => None,
        });
        // Each counts once for a step.
        let crossed: BTreeSet<Failpoint> = seen.chain(told).chain(recorded).collect();
        crossed
            .into_iter()
            .for_each(|failpoint| self.pass(failpoint));
    }
}

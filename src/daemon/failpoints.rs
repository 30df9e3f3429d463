//! The failpoints that a delivery passes, so that a test can end a debug build between any two of them.
//!
//! With `RSNOTIFY_FAILPOINT=CutSaved:2` in its environment, a debug build ends when it passes that step for the second
//! time since it was ready: by SIGKILL, so that nothing is unwound, flushed or answered. A release build knows
//! nothing of it.

/// Where a delivery may stand. What is named without `Saved` is about to be saved.
#[cfg_attr(
    not(debug_assertions),
    expect(dead_code, reason = "failpoints are told apart in debug builds only")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failpoint {
    /// The tree reported something that the engine has not heard of.
    Observed,
    Seen,
    SeenSaved,
    /// A notification is cut, and what the embedded hub owes its subscribers with it.
    Cut,
    CutSaved,
    /// The topic serves what was cut.
    Served,
    /// The request to the hub is about to be sent.
    Submitting,
    /// The hub's answer is here, and the loop has not heard of it.
    Answered,
    Told,
    ToldSaved,
    /// The embedded hub was given what it owes.
    Dispatched,
    /// A subscriber's answer is here, and the loop has not heard of it.
    Relayed,
    Recorded,
    RecordedSaved,
}

#[cfg(debug_assertions)]
pub use dying::Failpoints;
#[cfg(not(debug_assertions))]
pub use living::Failpoints;

#[cfg(not(debug_assertions))]
mod living {
    use crate::announce::state::Save;
    use crate::daemon::failpoints::Failpoint;
    use crate::hub::HubRecord;

    /// Nothing.
    #[derive(Debug, Clone)]
    pub struct Failpoints;

    /// These are done when the program is compiled: nothing of them is left to be run.
    impl Failpoints {
        pub const fn from_environment() -> Failpoints {
            Failpoints
        }
        pub const fn ready(&self) {}
        pub const fn pass(&self, _: Failpoint) {}
        pub const fn saving(&self, _: &Save, _: &[HubRecord]) {}
        pub const fn saved(&self, _: &Save, _: &[HubRecord]) {}
    }

    const _: () = Failpoints::from_environment().pass(Failpoint::Observed);
}

#[cfg(debug_assertions)]
mod dying {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use crate::announce::state::{LedgerRow, Save};
    use crate::daemon::failpoints::Failpoint;
    use crate::hub::HubRecord;

    /// Where this process ends, if anywhere. Clones count together.
    #[derive(Debug, Clone)]
    pub struct Failpoints {
        end: Option<Arc<End>>,
    }

    #[derive(Debug)]
    struct End {
        step: String,
        passings_left: AtomicU32,
        is_ready: AtomicBool,
    }

    impl Failpoints {
        pub fn from_environment() -> Failpoints {
            let end = std::env::var("RSNOTIFY_FAILPOINT")
                .ok()
                .and_then(|instruction| {
                    let (step, passing) = instruction.split_once(':')?;
                    Some(Arc::new(End {
                        step: step.to_owned(),
                        passings_left: AtomicU32::new(passing.parse().ok()?),
                        is_ready: AtomicBool::new(false),
                    }))
                });
            Failpoints { end }
        }

        /// From here on passings count.
        pub fn ready(&self) {
            if let Some(end) = &self.end {
                end.is_ready.store(true, Ordering::Relaxed);
            }
        }

        pub fn pass(&self, step: Failpoint) {
            if let Some(end) = &self.end
                && end.is_ready.load(Ordering::Relaxed)
                && end.step == format!("{step:?}")
                && end.passings_left.fetch_sub(1, Ordering::Relaxed) == 1
            {
                die();
            }
        }

        pub fn saving(&self, save: &Save, records: &[HubRecord]) {
            for (step, _) in crossed(save, records) {
                self.pass(step);
            }
        }

        pub fn saved(&self, save: &Save, records: &[HubRecord]) {
            for (_, step) in crossed(save, records) {
                self.pass(step);
            }
        }
    }

    /// The failpoints before and after this is saved.
    fn crossed(save: &Save, records: &[HubRecord]) -> impl Iterator<Item = (Failpoint, Failpoint)> {
        let is_cut = |row: &LedgerRow| row.flight.as_ref().is_some_and(|own| own.attempts == 0);
        let is_delivered = |record: &HubRecord| matches!(record, HubRecord::Progressed(..));
        [
            (
                !save.documents.is_empty(),
                Failpoint::Seen,
                Failpoint::SeenSaved,
            ),
            (
                save.ledgers.values().flatten().any(is_cut),
                Failpoint::Cut,
                Failpoint::CutSaved,
            ),
            (!save.told.is_empty(), Failpoint::Told, Failpoint::ToldSaved),
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
}

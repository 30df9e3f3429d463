//! The state file as the loop saves it: what is saved beside the next step, and the error while steps fail.

use std::time::{Duration, Instant};

use announce::state::open::{StateFile, StateFileError};
use announce::state::{self, Db};
use rusqlite::Connection;
use tracing::{error, info, warn};
use websub::hub::{HubRecord, Relay};

use crate::daemon::log::error_chain;
use crate::report::figures::DaemonCounts;

/// Longest time between two probes of the file, so that a full disk is detected before there is something to save.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// Time between two checks that the state file was not deleted or cut, and is not too large.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two steps of shrinking the state file.
const SHRINK_INTERVAL: Duration = Duration::from_millis(50);
/// Delay before a failed step is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What the embedded hub and the status want saved, all of it or nothing.
#[derive(Debug, Default)]
pub struct SaveBatch {
    pub records: Vec<HubRecord>,
    /// Deliveries that the hub owes its subscribers.
    pub owed: Vec<Relay>,
    /// The counts of the last day.
    pub last_day: Option<String>,
}

impl SaveBatch {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.owed.is_empty() && self.last_day.is_none()
    }

    /// Writes it in the transaction of a step.
    pub fn write(&self, db: Db<'_>) -> state::Result<()> {
        state::hub::save_hub(db, &self.records, &self.owed)?;
        let last_day = self.last_day.as_deref();
        last_day.map_or(Ok(()), |intervals| state::save_last_day(db, intervals))
    }
}

/// The state file, and why it cannot be written.
#[derive(Debug)]
pub struct StateFileKeeper {
    pub file: StateFile,
    /// What is saved with the next step.
    pub unsaved: SaveBatch,
    /// Reason why the state cannot be saved: the error of the last step, until one succeeds.
    pub trouble: Option<String>,
    /// Time of the next probe or retry.
    probe_at: Instant,
    check_at: Instant,
}

impl StateFileKeeper {
    pub fn new(file: StateFile) -> StateFileKeeper {
        let now = Instant::now();
        StateFileKeeper {
            file,
            unsaved: SaveBatch::default(),
            trouble: None,
            probe_at: now + PROBE_INTERVAL,
            check_at: now + CHECK_INTERVAL,
        }
    }

    /// Returns when the loop must commit even if nothing changes. While steps fail, that is when the last one is retried, and
    /// none is tried before.
    pub fn wake_time(&self) -> Instant {
        if self.trouble.is_some() {
            return self.probe_at;
        }
        self.probe_at.min(self.check_at)
    }

    /// Has the file answer in the next step, although nothing may have changed, or the step before failed a moment ago.
    pub fn request_probe(&mut self) {
        self.probe_at = Instant::now();
    }

    /// Does what is due where there is no step: a probe, a check, or a part of shrinking the file.
    pub fn maintain(&mut self, connection: &Connection) -> Result<(), StateFileError> {
        let now = Instant::now();
        if now >= self.probe_at {
            return self.file.probe(connection);
        }
        if now < self.check_at {
            return Ok(());
        }
        self.check_at = now + CHECK_INTERVAL;
        self.file.check(connection)?;
        if self.file.shrink(connection) == Some(true) {
            self.check_at = now + SHRINK_INTERVAL;
        }
        Ok(())
    }

    /// Takes note that the file could be written. `was_written` says that it was.
    pub fn note_success(&mut self, was_written: bool) {
        if was_written || Instant::now() >= self.probe_at {
            self.probe_at = Instant::now() + PROBE_INTERVAL;
        }
        if self.trouble.take().is_some() {
            info!("the state can be saved again");
        }
    }

    /// Takes note that a step, a probe or a check failed.
    pub fn note_failure(&mut self, error: &StateFileError, counts: &mut DaemonCounts) {
        counts.save_failures += 1;
        let trouble = error_chain(error);
        if self.trouble.as_ref() != Some(&trouble) {
            error!(
                error = trouble,
                "cannot save the state; nothing is sent until it can be saved: {trouble}"
            );
        }
        self.trouble = Some(trouble);
        self.probe_at = Instant::now() + RETRY_INTERVAL;
    }

    /// Restores the state file from the one that is still open if it was deleted.
    pub fn restore_if_deleted(&mut self, connection: &mut Connection) {
        match self.file.restore_if_deleted(connection) {
            Ok(true) => warn!("the state file was missing and has been restored"),
            Ok(false) => {}
            Err(error) => {
                let error = error_chain(&error);
                error!(error, "cannot restore the state file: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the loop would run without a pause from the first check that it must not make.
    #[test]
    fn while_steps_fail_the_loop_wakes_to_retry_and_for_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let (file, _connection) = StateFile::open(directory.path()).unwrap();
        let mut saver = StateFileKeeper::new(file);
        saver.check_at = Instant::now();
        let error = StateFileError::InUse(directory.path().to_owned());
        saver.note_failure(&error, &mut DaemonCounts::default());
        assert_eq!(saver.wake_time(), saver.probe_at);
        assert!(saver.wake_time() > Instant::now());
        saver.note_success(true);
        assert_eq!(saver.wake_time(), saver.check_at);
    }
}

//! The state file as the loop uses it: collects the changes of one step, saves them, and keeps the error if that fails.

use std::time::{Duration, Instant};

use tracing::{error, info, warn};
use websub::http::clock::Clock;
use websub::hub::{HubRecord, Relay};

use crate::announce::state::Save;
use crate::daemon::failpoints::Failpoints;
use crate::daemon::log::error_chain;
use crate::report::figures::Counts;
use crate::store::Store;

/// Longest time between two probes of the store, so that a full disk is detected before there is something to save.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// Time between two checks that the state file was not deleted or cut, and is not too large.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two steps of shrinking the state file.
const SHRINK_INTERVAL: Duration = Duration::from_millis(50);
/// Delay before a failed save is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Whether the store must answer a save although nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreProbe {
    /// At intervals.
    WhenDue,
    Now,
}

/// Changes that wait to be saved, together or not at all.
#[derive(Default)]
pub struct Unsaved {
    pub save: Save,
    pub records: Vec<HubRecord>,
    /// Deliveries that the embedded hub owes its subscribers.
    pub owed: Vec<Relay>,
    /// True if somebody is answered once it is saved.
    pub is_awaited: bool,
}

impl StoreProbe {
    pub fn now_if(is_needed: bool) -> StoreProbe {
        match is_needed {
            true => StoreProbe::Now,
            false => StoreProbe::WhenDue,
        }
    }
}

impl Unsaved {
    fn must_be_written(&self) -> bool {
        !(self.save.is_empty() && self.has_save_only())
    }

    /// Returns true if nobody waits for it to be on the disk.
    fn can_lag(&self) -> bool {
        self.save.only_notes_answers() && self.has_save_only() && !self.is_awaited
    }

    fn has_save_only(&self) -> bool {
        self.records.is_empty() && self.owed.is_empty()
    }
}

/// The store, and the changes that are not saved yet.
pub struct StateSaver {
    store: Store,
    unsaved: Unsaved,
    /// Error of the last save, until one succeeds.
    trouble: Option<String>,
    /// Time of the next probe or retry.
    probe_at: Instant,
    check_at: Instant,
}

impl StateSaver {
    pub fn new(store: Store) -> StateSaver {
        let now = Instant::now();
        StateSaver {
            store,
            unsaved: Unsaved::default(),
            trouble: None,
            probe_at: now + PROBE_INTERVAL,
            check_at: now + CHECK_INTERVAL,
        }
    }

    /// Returns the store as it was saved last.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the changes that the next save writes, to add to them.
    pub fn unsaved(&mut self) -> &mut Unsaved {
        &mut self.unsaved
    }

    /// Returns the changes that the next save writes.
    pub fn unsaved_changes(&self) -> &Save {
        &self.unsaved.save
    }

    /// Returns why the state cannot be saved.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Returns when [`StateSaver::save`] must be called even if nothing changes.
    pub fn wake(&self) -> Instant {
        self.probe_at.min(self.check_at)
    }

    /// Forgets an earlier failure, so that the next save is tried at once. Returns true if there was one.
    pub fn forget_trouble(&mut self) -> bool {
        self.trouble.take().is_some()
    }

    /// Saves all changes and returns them; returns nothing while the state cannot be saved. The store is left alone while
    /// nothing changed and no probe is due.
    pub fn save(
        &mut self,
        probe: StoreProbe,
        clock: Clock,
        failpoints: &Failpoints,
        counts: &mut Counts,
    ) -> Option<Unsaved> {
        self.unsaved.save.clock = Some(clock.now());
        let now = Instant::now();
        let is_probe_due = probe == StoreProbe::Now || now >= self.probe_at;
        let is_check_due = now >= self.check_at;
        if is_check_due {
            self.check_at = now + CHECK_INTERVAL;
        }
        if self.trouble.is_some() && !is_probe_due {
            return None;
        }
        let unsaved = &self.unsaved;
        let must_write = unsaved.must_be_written();
        let saved = if must_write {
            failpoints.saving(&unsaved.save, &unsaved.records);
            let began = Instant::now();
            let saved = match unsaved.can_lag() {
                true => self.store.save_unsynced(&unsaved.save),
                false => self
                    .store
                    .save(&unsaved.save, &unsaved.records, &unsaved.owed),
            };
            saved.inspect(|()| counts.saves.observe(began.elapsed()))
        } else if is_probe_due {
            self.store.probe()
        } else if is_check_due {
            let checked = self.store.check();
            if checked.is_ok() && self.store.shrink() {
                self.check_at = now + SHRINK_INTERVAL;
            }
            checked
        } else {
            Ok(())
        };
        if let Err(error) = saved {
            counts.save_failures += 1;
            self.note_failure(error_chain(&error));
            return None;
        }
        if is_probe_due || must_write {
            self.probe_at = Instant::now() + PROBE_INTERVAL;
        }
        if self.trouble.take().is_some() {
            info!("the state can be saved again");
        }
        let saved = std::mem::take(&mut self.unsaved);
        failpoints.saved(&saved.save, &saved.records);
        Some(saved)
    }

    /// Restores the state file from memory if it was deleted.
    pub fn restore_file(&mut self) {
        match self.store.recreate() {
            Ok(true) => warn!("the state file was missing and has been restored"),
            Ok(false) => {}
            Err(error) => {
                let error = error_chain(&error);
                error!(error, "cannot restore the state file: {error}");
            }
        }
    }

    fn note_failure(&mut self, trouble: String) {
        if self.trouble.as_ref() != Some(&trouble) {
            error!(
                error = trouble,
                "cannot save the state; nothing is sent until it can be saved: {trouble}"
            );
        }
        self.trouble = Some(trouble);
        self.probe_at = Instant::now() + RETRY_INTERVAL;
    }
}

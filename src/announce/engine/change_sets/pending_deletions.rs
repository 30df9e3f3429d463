//! Deletions that wait: resources that are missing from the Resource Lists of a set, until they count as deleted (C29).

use jiff::Timestamp;

use crate::announce::changes::inventory::MissingResources;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::resourcesync::uri::Uri;

/// Resources of one set that are missing; none are known of a set that has Change Lists.
#[derive(Debug)]
pub struct PendingDeletions {
    set: Uri,
    missing: Option<MissingResources>,
    /// True until the next round if an operator accepts what is missing as deleted.
    is_accepted: bool,
}

impl PendingDeletions {
    pub fn new(set: Uri) -> PendingDeletions {
        PendingDeletions {
            set,
            missing: None,
            is_accepted: false,
        }
    }

    /// Notes which resources are missing after a round, and looks again once the first of them counts as deleted.
    pub fn note(&mut self, missing: MissingResources, step: &mut Step) {
        self.missing = Some(missing);
        self.is_accepted = false;
        self.wake(step);
    }

    /// Looks at the next occasion for resources that were missing when the state was saved.
    pub fn look_for_stored(&mut self, step: &Step) {
        self.missing = Some(MissingResources {
            next: Some(step.steady()),
            ..MissingResources::default()
        });
    }

    /// Forgets the resources of a set that has Change Lists now.
    pub fn forget(&mut self, step: &mut Step) {
        if self.missing.take().is_some() {
            let sets = &mut step.rows().forgotten_inventories;
            sets.insert(self.set.clone());
        }
    }

    /// Takes what is missing as deleted, as an operator wants it.
    pub fn accept(&mut self, step: &mut Step) {
        if self.missing.is_some_and(|missing| missing.missing > 0) {
            self.is_accepted = true;
            step.wake_at(step.now(), Timer::Changes(self.set.clone()));
        }
    }

    /// Sets a timer for the time at which the first counts as deleted.
    pub fn wake(&self, step: &mut Step) {
        if let Some(next) = self.next() {
            step.wake_at_steady(next, Timer::Changes(self.set.clone()));
        }
    }

    /// Returns true if an operator accepts what is missing as deleted.
    pub fn is_accepted(&self) -> bool {
        self.is_accepted
    }

    /// Returns the time at which the first counts as deleted, by the steady clock.
    fn next(&self) -> Option<Timestamp> {
        self.missing.and_then(|missing| missing.next)
    }

    /// Returns true if there is a reason to look for them, now or later.
    pub fn is_any(&self) -> bool {
        self.is_accepted || self.next().is_some()
    }

    /// Returns true if they are to be looked for now, although no list changed. `steady` is the moment by the steady
    /// clock.
    pub fn is_due(&self, steady: Timestamp) -> bool {
        self.is_accepted || self.next().is_some_and(|next| next <= steady)
    }
}

//! Deletions that wait: resources that are missing from the Resource Lists of a set, until they count as deleted (C29).

use jiff::Timestamp;

use crate::announce::changes::inventory::MissingResources;

/// Resources of one set that are missing; none are known of a set that has Change Lists.
#[derive(Debug, Default)]
pub struct PendingDeletions {
    missing: Option<MissingResources>,
    /// True until the next round if an operator accepts what is missing as deleted.
    is_accepted: bool,
}

impl PendingDeletions {
    /// Notes which resources are missing after a round.
    pub fn note(&mut self, missing: MissingResources) {
        self.missing = Some(missing);
        self.is_accepted = false;
    }

    /// Lets resources be looked for at a time that were missing when the state was saved.
    pub fn expect(&mut self, at: Timestamp) {
        self.missing = Some(MissingResources {
            next: Some(at),
            ..MissingResources::default()
        });
    }

    /// Forgets what is missing. Returns false if nothing was known of it.
    pub fn forget(&mut self) -> bool {
        self.missing.take().is_some()
    }

    /// Takes what is missing as deleted, as an operator wants it. Returns false if nothing is missing.
    pub fn accept(&mut self) -> bool {
        let is_any_missing = self.missing.is_some_and(|missing| missing.missing > 0);
        self.is_accepted |= is_any_missing;
        is_any_missing
    }

    /// Returns true if an operator accepts what is missing as deleted.
    pub fn is_accepted(&self) -> bool {
        self.is_accepted
    }

    /// Returns the time at which the first counts as deleted, by the steady clock.
    pub fn next(&self) -> Option<Timestamp> {
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

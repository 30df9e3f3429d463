//! Documents that are there and documents that are missing, counted per mount, so that no step walks the catalog to
//! judge a mass deletion (R15).

use std::collections::{BTreeMap, BTreeSet};

use resourcesync::uri::Uri;

use crate::announce::observation::MountId;
use crate::announce::state::{Presence, Record};

/// The counts of one source. They change only together with the records that they are of.
#[derive(Debug, Default)]
pub struct Census {
    mounts: BTreeMap<MountId, MountCount>,
    missing: BTreeSet<Uri>,
    /// Number of times that a missing document came, went or was accepted.
    changes: u64,
}

/// Documents of one mount, and the Capability Lists among them. Deleted ones do not count.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct MountCount {
    pub all: PresenceCount,
    pub lists: PresenceCount,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PresenceCount {
    pub present: usize,
    /// Missing, and not accepted as deleted.
    pub missing: usize,
    /// Missing, and accepted as deleted.
    pub accepted: usize,
}

impl PresenceCount {
    fn of(&mut self, presence: Presence) -> Option<&mut usize> {
        match presence {
            Presence::Present => Some(&mut self.present),
            Presence::Missing {
                approved: false, ..
            } => Some(&mut self.missing),
            Presence::Missing { approved: true, .. } => Some(&mut self.accepted),
            Presence::Gone { .. } => None,
        }
    }
}

impl Census {
    pub(super) fn add(&mut self, uri: &Uri, record: &Record) {
        if record.is_missing() {
            self.missing.insert(uri.clone());
            self.changes += 1;
        }
        self.count(record, |counted| *counted += 1);
    }

    pub(super) fn remove(&mut self, uri: &Uri, record: &Record) {
        if record.is_missing() {
            self.missing.remove(uri);
            self.changes += 1;
        }
        self.count(record, |counted| *counted = counted.saturating_sub(1));
    }

    fn count(&mut self, record: &Record, change: impl Fn(&mut usize)) {
        let count = self.mounts.entry(record.path.mount).or_default();
        count.all.of(record.presence).map(&change);
        if record.is_capability_list() {
            count.lists.of(record.presence).map(&change);
        }
    }

    /// Returns the counts of each mount that has or had a document.
    pub fn mounts(&self) -> impl Iterator<Item = (MountId, &MountCount)> {
        self.mounts.iter().map(|(id, count)| (*id, count))
    }

    pub fn of(&self, mount: MountId) -> MountCount {
        self.mounts.get(&mount).copied().unwrap_or_default()
    }

    /// Returns the documents that are missing, accepted ones too, in order.
    pub fn missing(&self) -> &BTreeSet<Uri> {
        &self.missing
    }

    /// Returns a number that differs after any change of what is missing, or accepted.
    pub fn missing_version(&self) -> u64 {
        self.changes
    }
}

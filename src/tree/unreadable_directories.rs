//! Directories that could not be read: when each is tried again, and what is reported of them.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::announce::observation::UnreadableDirectory;
use crate::tree::model::{DirectoryId, Model, join};

/// Delay of the first retry, doubled each time, and the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Maximum directories of a mount that are reported by name.
const MAX_NAMED: usize = 20;

#[derive(Debug, Default)]
pub(super) struct DeniedDirectories {
    denials: HashMap<DirectoryId, Denial>,
    /// Positions of mounts of which the last report is outdated.
    outdated: BTreeSet<usize>,
}

/// A directory that could not be read.
#[derive(Debug)]
struct Denial {
    retry_at: Instant,
    tries: u8,
    reason: String,
    remedy: Option<&'static str>,
    since: Timestamp,
}

impl DeniedDirectories {
    /// Takes note that a directory of a mount could not be read, perhaps once more.
    pub(super) fn deny(
        &mut self,
        id: DirectoryId,
        mount: usize,
        reason: &str,
        remedy: Option<&'static str>,
    ) {
        let before = self.denials.get(&id);
        if before.is_none_or(|before| before.reason != reason) {
            self.outdated.insert(mount);
        }
        let tries = before.map_or(0, |before| before.tries);
        let after = FIRST_RETRY.saturating_mul(1 << tries.min(5));
        let denial = Denial {
            retry_at: Instant::now() + after.min(LAST_RETRY),
            tries: tries.saturating_add(1),
            reason: reason.to_owned(),
            remedy,
            since: before.map_or_else(Timestamp::now, |before| before.since),
        };
        self.denials.insert(id, denial);
    }

    /// Takes note that a directory can be read, or is none any more.
    pub(super) fn allow(&mut self, id: DirectoryId, mount: usize) {
        if self.denials.remove(&id).is_some() {
            self.outdated.insert(mount);
        }
    }

    /// Returns the directories to try again.
    pub(super) fn due(&self, now: Instant) -> Vec<DirectoryId> {
        let due = self.denials.iter().filter(|(_, it)| it.retry_at <= now);
        due.map(|(id, _)| *id).collect()
    }

    /// Returns all directories that could not be read.
    pub(super) fn ids(&self) -> impl Iterator<Item = DirectoryId> {
        self.denials.keys().copied()
    }

    /// Takes a mount of which the last report is outdated.
    pub(super) fn pop_outdated(&mut self) -> Option<usize> {
        self.outdated.pop_first()
    }

    /// Returns the first directories of a mount that cannot be read, and the number of others.
    pub(super) fn in_mount(
        &self,
        at: usize,
        directory: &Path,
        model: &Model,
    ) -> (Vec<UnreadableDirectory>, usize) {
        let of_mount = self.denials.iter();
        let of_mount = of_mount.filter(|(id, _)| model.mount_of(**id) == Some(at));
        let mut denials: Vec<(Vec<u8>, &Denial)> = of_mount
            .map(|(id, denial)| (model.below(*id), denial))
            .collect();
        denials.sort_by(|(one, _), (other, _)| one.cmp(other));
        let named = denials.iter().take(MAX_NAMED);
        let named = named.map(|(below, denial)| UnreadableDirectory {
            directory: join(directory, below).display().to_string(),
            reason: denial.reason.clone(),
            remedy: denial.remedy.map(str::to_owned),
            since: denial.since,
        });
        (named.collect(), denials.len().saturating_sub(MAX_NAMED))
    }
}

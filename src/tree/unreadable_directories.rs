//! Directories that could not be read: when each is tried again, and what is reported of them.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::tree::directories::join;
use crate::tree::model::{DirectoryId, Model};
use crate::tree::mount::TreeMount;
use announce::event::Event;
use announce::observation::UnreadableDirectory;

/// Delay of the first retry, doubled each time, and the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Maximum directories of a mount that are reported by name. Those of a first sweep belong to the baseline later (R13).
const MAX_NAMED: usize = 1_000;

#[derive(Debug, Default)]
pub struct UnreadableDirectories {
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

impl UnreadableDirectories {
    /// Takes note that a directory of a mount could not be read. Returns true unless that is so once more.
    pub fn deny(
        &mut self,
        id: DirectoryId,
        mount: usize,
        reason: &str,
        remedy: Option<&'static str>,
    ) -> bool {
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
        self.denials.insert(id, denial).is_none()
    }

    /// Takes note that a directory can be read, or is none any more. Returns true if it could not be read before.
    pub fn allow(&mut self, id: DirectoryId, mount: usize) -> bool {
        let was_denied = self.denials.remove(&id).is_some();
        self.outdated.extend(was_denied.then_some(mount));
        was_denied
    }

    /// Returns the directories to try again.
    pub fn due(&self, now: Instant) -> Vec<DirectoryId> {
        let due = self.denials.iter().filter(|(_, it)| it.retry_at <= now);
        due.map(|(id, _)| *id).collect()
    }

    /// Returns the paths in a mount of the directories that could not be read.
    pub fn below(&self, mount: usize, model: &Model) -> Vec<Vec<u8>> {
        let denied = self.denials.keys();
        let of_mount = denied.filter(|id| model.mount_of(**id) == Some(mount));
        of_mount.map(|id| model.below(*id)).collect()
    }

    /// Takes the report about a mount of which the last one is outdated.
    pub fn pop_report(&mut self, model: &Model, mounts: &[TreeMount]) -> Option<Event> {
        let at = self.outdated.pop_first()?;
        let mount = &mounts[at];
        let of_mount = self.denials.iter();
        let of_mount = of_mount.filter(|(id, _)| model.mount_of(**id) == Some(at));
        let mut denials: Vec<(Vec<u8>, &Denial)> = of_mount
            .map(|(id, denial)| (model.below(*id), denial))
            .collect();
        denials.sort_by(|(one, _), (other, _)| one.cmp(other));
        let named = denials.iter().take(MAX_NAMED);
        let named = named.map(|(below, denial)| UnreadableDirectory {
            directory: join(&mount.directory, below).display().to_string(),
            below: below.clone(),
            reason: denial.reason.clone(),
            remedy: denial.remedy.map(str::to_owned),
            since: denial.since,
        });
        Some(Event::Unreadable {
            mount: mount.id,
            directories: named.collect(),
            more: denials.len().saturating_sub(MAX_NAMED),
        })
    }
}

//! Directories that could not be read: when each is tried again, and what is reported of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::io::Errno;

use crate::diagnostics::machine::{AccessFailure, access_remedy};
use crate::tree::model::{DirectoryId, ListingOutcome, Model, join};
use crate::tree::mount::unreadable_root;
use crate::tree::observer::Observer;
use crate::tree::{TreeNotice, TreeReport, file_status};
use announce::event::Event;
use announce::observation::{Incomplete, UnreadableDirectory};

/// Delay of the first retry, doubled each time, and the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Maximum directories of a mount that are reported by name. Those of a first sweep belong to the baseline later (R13).
const MAX_NAMED: usize = 1_000;

/// The directories of a mount that could not be read.
#[derive(Debug, Default)]
pub struct UnreadableDirectories {
    denials: BTreeMap<DirectoryId, Denial>,
    /// True if the last report is outdated.
    is_outdated: bool,
}

/// A directory that could not be read.
#[derive(Debug)]
pub struct Denial {
    retry_at: Instant,
    tries: u8,
    reason: String,
    remedy: Option<&'static str>,
    since: Timestamp,
}

impl UnreadableDirectories {
    /// Takes note that a directory could not be read. Returns true unless that is so once more.
    fn deny(&mut self, id: DirectoryId, reason: &str, remedy: Option<&'static str>) -> bool {
        let before = self.denials.get(&id);
        self.is_outdated |= before.is_none_or(|before| before.reason != reason);
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
    pub fn allow(&mut self, id: DirectoryId) -> bool {
        let was_denied = self.denials.remove(&id).is_some();
        self.is_outdated |= was_denied;
        was_denied
    }

    /// Returns the directories to try again.
    pub fn due(&self, now: Instant) -> impl Iterator<Item = DirectoryId> {
        let due = self
            .denials
            .iter()
            .filter(move |(_, it)| it.retry_at <= now);
        due.map(|(id, _)| *id)
    }

    /// Returns the paths below the mount of the directories, in order, with what is known of each.
    pub fn by_path(&self, model: &Model) -> BTreeMap<Vec<u8>, &Denial> {
        let denials = self.denials.iter();
        denials.map(|(id, it)| (model.below(*id), it)).collect()
    }
}

impl Observer<'_> {
    /// Takes note that a directory cannot be read: nothing beneath it is known, and nothing is missing (R15).
    pub fn deny(&mut self, id: DirectoryId, path: &Path, error: Errno) {
        let Some(directory) = self.model.directory_mut(id) else {
            return;
        };
        let at = directory.mount;
        if directory.parent.is_none() {
            let reason = unreadable_root(&self.mounts[at].directory, &error.into());
            return self.lose_mount(at, &reason);
        }
        let before = std::mem::replace(&mut directory.state, ListingOutcome::Denied);
        let reason = file_status::reason(error);
        let is_forbidden = matches!(error, Errno::ACCESS | Errno::PERM);
        let remedy = is_forbidden
            .then(|| access_remedy(path, AccessFailure::Denied))
            .flatten();
        if before != ListingOutcome::Denied {
            self.reports.notice(TreeNotice::Unreadable {
                directory: path.to_owned(),
                reason: remedy.map_or(reason.clone(), |remedy| format!("{reason}: {remedy}")),
            });
        }
        if !self.mounts[at].unreadable.deny(id, &reason, remedy) {
            return;
        }
        for id in self.model.beneath(id) {
            for file in self.model.files_in(id) {
                self.report_incomplete(file, Incomplete::Denied(reason.clone()));
            }
        }
    }

    /// Takes note that a directory can be read, or is none any more. If it could not be read before, the mount is swept: what
    /// is written in its place from then on is new (R13).
    pub fn end_denial(&mut self, id: DirectoryId, at: usize) {
        if self.mounts[at].unreadable.allow(id) {
            self.sweep_soon(at);
        }
    }

    /// Reports which directories may not be read, where the last report is outdated.
    pub fn report_unreadable(&mut self) {
        for at in 0..self.mounts.len() {
            let mount = &mut self.mounts[at];
            if !std::mem::take(&mut mount.unreadable.is_outdated) {
                continue;
            }
            let denials = mount.unreadable.by_path(&self.model);
            let more = denials.len().saturating_sub(MAX_NAMED);
            let named = denials.into_iter().take(MAX_NAMED);
            let named = named.map(|(below, denial)| UnreadableDirectory {
                directory: join(&mount.directory, &below).display().to_string(),
                below,
                reason: denial.reason.clone(),
                remedy: denial.remedy.map(str::to_owned),
                since: denial.since,
            });
            let event = Event::Unreadable {
                mount: mount.id,
                directories: named.collect(),
                more,
            };
            self.send(TreeReport::Event(event));
        }
    }
}

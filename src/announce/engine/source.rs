//! One source as the engine keeps it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::announce::candidates::{Candidates, PublishedPath};
use crate::announce::catalog::Catalog;
use crate::announce::delivery::ChannelId;
use crate::announce::engine::findings::ToldLately;
use crate::announce::event::Suspension;
use crate::announce::finding::Finding;
use crate::announce::observation::{MountId, NoDocument, Unreadable};
use crate::announce::plan::MassDeletion;
use crate::announce::state::{MountRow, Presence, Told, Trouble, Version};
use crate::resourcesync::uri::{Uri, UriMap};

#[derive(Debug)]
pub struct Source {
    pub catalog: Catalog,
    pub mounts: BTreeMap<MountId, Mount>,
    pub troubles: BTreeMap<Uri, Trouble>,
    pub stale: Stale,
    /// Whether deletions are not believed for now (R15).
    pub suspended: bool,
    /// What is wrong with a document or a set, by its URI.
    pub findings: BTreeMap<Uri, BTreeSet<Finding>>,
    /// What lies where a Capability List names a document and there is none, if anything does.
    pub explained: UriMap<NoDocument>,
    /// Those that the operator was told of.
    pub told_findings: BTreeSet<Finding>,
    /// What was told lately of each kind of finding.
    pub told_kinds: BTreeMap<&'static str, ToldLately>,
    /// Large lists whose findings may not be true any more, until they are looked for again.
    pub stale_findings: BTreeSet<Uri>,
    /// Channels that would have spoken while the source was not settled.
    pub parked: BTreeSet<ChannelId>,
    /// What a Source Description was before it changed, and when it last did, until that is said.
    pub described: BTreeMap<Uri, (Option<Version>, Timestamp)>,
    /// How often anything was settled since the start.
    pub settled: u64,
}

#[derive(Debug)]
pub struct Mount {
    pub row: MountRow,
    pub status: MountStatus,
    /// What an earlier configuration looked at, if it is not what this one does. Until the mount was swept,
    /// what else there is counts as known (R13).
    pub looked_at: Option<Candidates>,
    /// The sweep under way, or the next one, did not begin earlier. By the file system's clock if the mount
    /// was just found.
    pub started: Timestamp,
    /// The first directories in it that may not be read, and how many more.
    pub unreadable: (Vec<Unreadable>, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountStatus {
    /// Nothing was heard of it yet.
    Unknown,
    Sweeping,
    Ready,
    Absent,
}

/// What changed since the source last settled. It settles at the end of each step, but not while a mount is
/// swept for the first time: what a half-read tree suggests is not believed.
#[derive(Debug, Default)]
pub struct Stale {
    /// Documents whose relations must be resolved.
    pub relations: BTreeSet<Uri>,
    /// Documents with a new version.
    pub changed: BTreeSet<Uri>,
    /// What those documents were before; nothing for new ones.
    pub previous: BTreeMap<Uri, Option<Version>>,
    /// Sets whose channel may have to change.
    pub sets: BTreeSet<Uri>,
    /// What a mount without a baseline held when it was first read: this counts as told (R13).
    pub baseline: BTreeMap<Uri, Told>,
}

impl Stale {
    pub fn is_empty(&self) -> bool {
        self.relations.is_empty()
            && self.changed.is_empty()
            && self.sets.is_empty()
            && self.baseline.is_empty()
    }
}

impl Mount {
    /// Whether nobody has looked at `below` yet: what lies there was there before, as far as anybody knows
    /// (R13).
    pub fn is_new_ground(&self, below: &[u8]) -> bool {
        let was_looked_at =
            |before: &Candidates| before.accepts(&PublishedPath::of(&self.row.prefix), below);
        !self.row.baselined || !self.looked_at.as_ref().is_none_or(was_looked_at)
    }
}

impl Source {
    /// Whether every present mount was swept to its end in this run.
    pub fn is_settled(&self) -> bool {
        self.mounts
            .values()
            .all(|mount| matches!(mount.status, MountStatus::Ready | MountStatus::Absent))
    }

    /// R15: how many documents are missing and not yet accepted, of how many; and the same of Capability
    /// Lists.
    fn missing(&self) -> (Tally, Tally) {
        let (mut all, mut lists) = (Tally::default(), Tally::default());
        for (_, record) in self.catalog.iter() {
            let missing = match record.presence {
                Presence::Gone { .. } => continue,
                Presence::Missing { approved, .. } => !approved,
                Presence::Present => false,
            };
            all.count(missing);
            if record.is_capability_list() {
                lists.count(missing);
            }
        }
        (all, lists)
    }

    /// R15: whether more documents are missing than can be believed.
    pub fn is_mass_deletion(&self, limit: MassDeletion) -> bool {
        let MassDeletion::Percent(percent) = limit else {
            return false;
        };
        let (all, lists) = self.missing();
        let too_many = all.missing >= 10 && all.missing * 100 > all.of * usize::from(percent);
        let all_lists = lists.of > 1 && lists.missing == lists.of;
        too_many || all_lists
    }

    /// How much is missing, if that suspends deletions. `name` is the source's.
    pub fn suspension(&self, name: &str) -> Option<Suspension> {
        self.suspended.then(|| {
            let (Tally { missing, of }, _) = self.missing();
            Suspension {
                source: name.to_owned(),
                missing,
                of,
            }
        })
    }

    pub fn is_absent(&self, mount: MountId) -> bool {
        let mount = self.mounts.get(&mount);
        mount.is_none_or(|mount| mount.status == MountStatus::Absent)
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    missing: usize,
    of: usize,
}

impl Tally {
    fn count(&mut self, missing: bool) {
        self.of += 1;
        self.missing += usize::from(missing);
    }
}

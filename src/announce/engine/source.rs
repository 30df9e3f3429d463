//! One source as the engine keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::candidates::{Candidates, PublishedPath};
use crate::announce::catalog::Catalog;
use crate::announce::catalog::census::{MountCount, PresenceCount};
use crate::announce::engine::findings::ToldLately;
use crate::announce::event::Suspension;
use crate::announce::finding::Finding;
use crate::announce::ids::ChannelId;
use crate::announce::observation::{Identity, MountId, NoDocument, Unreadable};
use crate::announce::plan::MassDeletion;
use crate::announce::state::{MountRow, Told, Trouble, Version};
use crate::resourcesync::fingerprint::Fingerprint;
use crate::resourcesync::uri::{Uri, UriMap};

#[derive(Debug)]
pub struct Source {
    pub catalog: Catalog,
    pub mounts: BTreeMap<MountId, Mount>,
    pub troubles: BTreeMap<Uri, Trouble>,
    pub stale: Stale,
    /// Missing documents that this run saw to be absent.
    pub away: UriMap<Absence>,
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

/// A document that is absent from a tree that is there.
#[derive(Debug, Clone, Copy)]
pub struct Absence {
    /// By the monotonic clock; nothing while nobody can see that it is.
    pub since: Option<Duration>,
    /// Whether something else lies at its path.
    pub is_replaced: bool,
}

#[derive(Debug)]
pub struct Mount {
    /// Its identity is that of the root which held documents, once one did.
    pub row: MountRow,
    pub status: MountState,
    /// The root that is there. It may be another one than the row's, and hold nothing: then the mount is absent
    /// although its directory is there (R15).
    pub found: Option<Identity>,
    /// What was not found below a root that may be the wrong one.
    pub unfound: BTreeSet<Uri>,
    /// Why it is absent.
    pub reason: Option<String>,
    /// What an earlier configuration looked at, if it is not what this one does. Until the mount was swept,
    /// what else there is counts as known (R13).
    pub looked_at: Option<Candidates>,
    /// The sweep under way, or the next one, did not begin earlier. By the file system's clock if the mount
    /// was just found.
    pub started: Timestamp,
    /// The first directories in it that may not be read, and how many more.
    pub unreadable: (Vec<Unreadable>, usize),
    /// What was read for the first time and changed since then, by the clock of the files.
    pub fresh: Vec<(Uri, Fingerprint)>,
    /// Whether some file is from the future, so that the clock of the files is not ours.
    pub has_other_clock: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountState {
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
    /// R15: whether its directory is another one than the one that held documents, so that it must hold something to be
    /// taken for the mount.
    pub fn is_doubtful(&self) -> bool {
        self.row.held_document && self.found.is_some() && self.found != self.row.identity
    }

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
            .all(|mount| matches!(mount.status, MountState::Ready | MountState::Absent))
    }

    /// R15: whether more documents are missing than can be believed. Of what lies below a mount that is absent, nobody
    /// knows whether it is there.
    pub fn is_mass_deletion(&self, limit: MassDeletion) -> bool {
        let MassDeletion::Percent(percent) = limit else {
            return false;
        };
        let census = self.catalog.census();
        let is_emptied = |count: &MountCount| count.all.present == 0 && count.all.missing > 0;
        if census.mounts().any(|(_, count)| is_emptied(count)) {
            return true;
        }
        let (missing, of) = self.missing(|count| count.all);
        let (missing_lists, lists) = self.missing(|count| count.lists);
        let had_several = census.mounts().map(|(_, count)| {
            let PresenceCount {
                present, missing, ..
            } = count.lists;
            present + missing
        });
        let had_several = had_several.sum::<usize>() > 1;
        let too_many = missing >= 10 && missing * 100 > of * usize::from(percent);
        let all_lists = missing_lists > 0 && missing_lists == lists && had_several;
        too_many || all_lists
    }

    /// How many are missing and not yet accepted, of how many.
    fn missing(&self, counted: fn(&MountCount) -> PresenceCount) -> (usize, usize) {
        let mut all = (0, 0);
        for (id, count) in self.catalog.census().mounts() {
            let tally = counted(count);
            let visible = if self.is_absent(id) { 0 } else { tally.present };
            all.0 += tally.missing;
            all.1 += tally.missing + tally.accepted + visible;
        }
        all
    }

    /// How much is missing, if that suspends deletions. `name` is the source's.
    pub fn suspension(&self, name: &str) -> Option<Suspension> {
        self.suspended.then(|| {
            let (missing, of) = self.missing(|count| count.all);
            Suspension {
                source: name.to_owned(),
                missing,
                of,
            }
        })
    }

    /// Whether this run sees that a document is absent.
    pub fn is_seen_away(&self, uri: &Uri) -> bool {
        let away = self.away.get(uri);
        away.is_some_and(|away| away.since.is_some())
    }

    pub fn is_absent(&self, mount: MountId) -> bool {
        let mount = self.mounts.get(&mount);
        mount.is_none_or(|mount| mount.status == MountState::Absent)
    }
}

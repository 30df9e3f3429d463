//! Mounts as the engine found them: present, swept, or absent (R13, R15).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::announce::candidates::{Candidates, PublishedPath};
use crate::announce::engine::source::nested::{DocumentsBelow, NestedFileSystems};
use crate::announce::engine::source::sighting::Sighting;
use crate::announce::observation::{
    DocumentPath, Identity, MountId, NestedFileSystem, UnreadableDirectory,
};
use crate::announce::plan::{MountPlan, SourcePlan};
use crate::announce::state::{MountRow, Told};
use crate::resourcesync::fingerprint::Fingerprint;
use crate::resourcesync::uri::Uri;

/// The mounts of one source.
#[derive(Debug)]
pub struct Mounts {
    mounts: BTreeMap<MountId, KnownMount>,
}

/// A mount, with what this run knows of it.
#[derive(Debug)]
pub struct KnownMount {
    /// The stored row. Its identity is that of the root which held documents, once one did.
    row: MountRow,
    state: MountState,
    /// The root that is there. It may be another one than the row's, and hold nothing: then the mount is absent
    /// although its directory is there (R15).
    found: Option<Identity>,
    /// Documents that were not found below a root that may be the wrong one.
    unfound: BTreeSet<Uri>,
    /// The reason why it is absent.
    reason: Option<String>,
    /// The candidates of an earlier configuration, if this one has others. Until the mount was swept, what else there is
    /// counts as known (R13).
    looked_at: Option<Candidates>,
    /// A time before the sweep under way, or the next one, begins. By the file system's clock if the mount was just
    /// found.
    started: Timestamp,
    unreadable: UnreadableSample,
    nested: NestedFileSystems,
    /// Documents that were read for the first time, and changed since `started` by the clock of the files.
    fresh: Vec<(Uri, Fingerprint)>,
    /// True if some file is from the future, so that the clock of the files is not ours.
    has_other_clock: bool,
}

/// The directories of a mount that may not be read.
#[derive(Debug, Clone, Default)]
pub struct UnreadableSample {
    pub first: Vec<UnreadableDirectory>,
    pub more: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountState {
    /// Neither found nor lost since the start.
    Unknown,
    Sweeping,
    Ready,
    Absent,
}

/// A state of a mount's root that follows from what its sweep met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootJudgement {
    /// The root that held documents, or one where none were before.
    Known,
    /// Another root that holds something: it replaced the known one (R15).
    Replaced,
    /// Another root, which is empty: the mount is away (R15).
    Empty,
}

impl Mounts {
    /// Takes up stored rows, and makes those that are lacking.
    pub fn new(
        plan: &SourcePlan,
        rows: &mut BTreeMap<MountId, MountRow>,
        now: Timestamp,
    ) -> Mounts {
        let mounts = plan.mounts.iter().map(|mount| {
            let row = rows.remove(&mount.id);
            let mut row = row.unwrap_or_else(|| new_row(plan, mount));
            // R15: another directory is another root, which must hold something to be taken for the mount.
            row.directory.clone_from(&mount.directory);
            (mount.id, KnownMount::new(row, plan, now))
        });
        Mounts {
            mounts: mounts.collect(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (MountId, &KnownMount)> {
        self.mounts.iter().map(|(id, mount)| (*id, mount))
    }

    pub fn get(&self, id: MountId) -> Option<&KnownMount> {
        self.mounts.get(&id)
    }

    pub fn get_mut(&mut self, id: MountId) -> Option<&mut KnownMount> {
        self.mounts.get_mut(&id)
    }

    /// Returns true if every present mount was swept to its end in this run.
    pub fn are_settled(&self) -> bool {
        let mut mounts = self.mounts.values();
        mounts.all(|mount| matches!(mount.state, MountState::Ready | MountState::Absent))
    }

    pub fn is_absent(&self, id: MountId) -> bool {
        let mount = self.mounts.get(&id);
        mount.is_none_or(|mount| mount.state == MountState::Absent)
    }

    /// Returns true if a path lies where another file system was when documents were last seen there (R15).
    pub fn is_away(&self, path: &DocumentPath) -> bool {
        let mount = self.mounts.get(&path.mount);
        mount.is_some_and(|mount| mount.nested.is_away(&mount.row.nested, &path.below))
    }

    /// Returns true if a file system that held documents is known to be away from below a root.
    pub fn has_away(&self) -> bool {
        let mut rows = self
            .mounts
            .values()
            .flat_map(|mount| mount.row.nested.values());
        rows.any(|row| row.is_away)
    }
}

fn new_row(source: &SourcePlan, mount: &MountPlan) -> MountRow {
    MountRow {
        source: source.name.clone(),
        directory: mount.directory.clone(),
        prefix: mount.prefix.clone(),
        identity: None,
        baselined: false,
        held_document: false,
        swept: None,
        candidates: None,
        knows_nested: false,
        nested: BTreeMap::new(),
    }
}

impl KnownMount {
    fn new(row: MountRow, plan: &SourcePlan, now: Timestamp) -> KnownMount {
        let looked_at = row.candidates.clone();
        KnownMount {
            state: MountState::Unknown,
            found: None,
            unfound: BTreeSet::new(),
            reason: None,
            looked_at: looked_at.filter(|before| *before != plan.candidates),
            started: now,
            unreadable: UnreadableSample::default(),
            nested: NestedFileSystems::default(),
            fresh: Vec::new(),
            has_other_clock: false,
            row,
        }
    }

    pub fn row(&self) -> &MountRow {
        &self.row
    }

    pub fn state(&self) -> MountState {
        self.state
    }

    /// Returns why the mount is absent, if it is.
    pub fn reason(&self) -> Option<&str> {
        let reason = self.reason.as_deref();
        reason.filter(|_| self.state == MountState::Absent)
    }

    pub fn unreadable(&self) -> &UnreadableSample {
        &self.unreadable
    }

    pub fn set_unreadable(&mut self, unreadable: UnreadableSample) {
        self.unreadable = unreadable;
    }

    /// Notes the file systems that begin below its root. Returns the paths of those that went or came.
    pub fn find_nested(&mut self, found: Vec<NestedFileSystem>) -> BTreeSet<Arc<[u8]>> {
        let was_looked_at = self.row.knows_nested;
        self.nested.find(&mut self.row.nested, found, was_looked_at)
    }

    /// Decides which of them are away, when a sweep has met everything below its root.
    pub fn settle_nested(&mut self, documents: &DocumentsBelow<'_>) {
        let is_first = !std::mem::replace(&mut self.row.knows_nested, true);
        self.nested
            .settle(&mut self.row.nested, documents, is_first);
    }

    /// Returns the directory of a file system that is known to be away from above a path (R15), as text.
    pub fn directory_away(&self, below: &[u8]) -> Option<String> {
        let top = self.nested.known_away(&self.row.nested, below)?;
        Some(self.text_of(top))
    }

    /// Returns the path of something below its root in the file system, as text.
    pub fn text_of(&self, below: &[u8]) -> String {
        let mut path = self.row.directory.to_string_lossy().into_owned();
        if !below.is_empty() {
            if !path.ends_with('/') {
                path.push('/');
            }
            path.push_str(&String::from_utf8_lossy(below));
        }
        path
    }

    /// Returns true if its directory is another one than the one that held documents, so that it must hold something to
    /// be taken for the mount (R15).
    pub fn is_doubtful(&self) -> bool {
        self.row.held_document && self.found.is_some() && self.found != self.row.identity
    }

    /// Returns true if `below` was never looked at: what lies there was there before, as far as anybody knows (R13).
    pub fn is_new_ground(&self, below: &[u8]) -> bool {
        let was_looked_at =
            |before: &Candidates| before.accepts(&PublishedPath::of(&self.row.prefix), below);
        !self.row.baselined || !self.looked_at.as_ref().is_none_or(was_looked_at)
    }

    /// Begins a sweep of a root that was found.
    pub fn found(&mut self, identity: Identity, started: Timestamp) {
        // R13: another directory at this path is another tree, unless the first one held documents. If it did, this one
        // is taken for the mount once it holds something (R15).
        if !self.row.held_document {
            if self.row.identity != Some(identity) {
                self.row.baselined = false;
                self.row.knows_nested = false;
                self.row.nested.clear();
            }
            self.row.identity = Some(identity);
        }
        self.found = Some(identity);
        self.unfound.clear();
        self.fresh.clear();
        self.has_other_clock = false;
        self.state = MountState::Sweeping;
        self.started = started;
    }

    /// Judges the root by the number of candidates that a complete sweep met.
    pub fn root(&self, candidates: u64) -> RootJudgement {
        match (self.is_doubtful(), candidates) {
            (false, _) => RootJudgement::Known,
            (true, 0) => RootJudgement::Empty,
            (true, _) => RootJudgement::Replaced,
        }
    }

    /// Ends a complete sweep. Returns true if it was the first.
    pub fn swept(&mut self, candidates: &Candidates, now: Timestamp) -> bool {
        self.state = MountState::Ready;
        self.reason = None;
        self.row.swept = Some(self.started);
        self.row.candidates = Some(candidates.clone());
        self.looked_at = None;
        // No later sweep begins earlier than this, and not every one says when.
        self.started = now;
        !std::mem::replace(&mut self.row.baselined, true)
    }

    /// Takes the root that is there for the mount. Returns the documents that were not found below it, and whether the
    /// mount was absent.
    pub fn accept_root(&mut self) -> (BTreeSet<Uri>, bool) {
        let was_absent = self.state == MountState::Absent;
        self.row.identity = self.found;
        self.state = MountState::Ready;
        self.reason = None;
        (std::mem::take(&mut self.unfound), was_absent)
    }

    /// Takes the mount to be absent, because its root is empty. Returns the reason, unless it is absent already.
    pub fn reject_root(&mut self) -> Option<String> {
        self.unfound.clear();
        if self.state == MountState::Absent {
            return None;
        }
        self.state = MountState::Absent;
        let reason = format!(
            "{}: it is empty, and not the directory that held documents: is its file system mounted?",
            self.row.directory.display()
        );
        self.reason = Some(reason.clone());
        Some(reason)
    }

    /// Notes a document that was not found below a root that may be the wrong one. Returns false if the root is the right
    /// one.
    pub fn note_unfound(&mut self, uri: &Uri) -> bool {
        let is_doubtful = self.is_doubtful();
        if is_doubtful {
            self.unfound.insert(uri.clone());
        }
        is_doubtful
    }

    /// Notes that the root is not there, or cannot be listed.
    pub fn lost(&mut self) {
        self.state = MountState::Absent;
        self.found = None;
        self.unfound.clear();
        self.fresh.clear();
    }

    pub fn set_reason(&mut self, reason: String) {
        self.reason = Some(reason);
    }

    /// Notes that it held a document. Returns true if it is the first.
    pub fn hold_document(&mut self) -> bool {
        !std::mem::replace(&mut self.row.held_document, true)
    }

    /// Returns what counts as told of a document that is read for the first time. Its content does not if it could not be
    /// read before, or changed while the mount was swept (R13).
    pub fn baseline(&mut self, uri: &Uri, sighting: &Sighting, predates: bool) -> Told {
        let Sighting {
            parsed, stat, at, ..
        } = sighting;
        // A file from the future was stamped by another clock than ours, which says nothing about the sweep.
        let is_fresh = self.started <= stat.changed && stat.changed <= *at;
        self.has_other_clock |= stat.changed > *at;
        if !predates && is_fresh {
            self.fresh.push((uri.clone(), parsed.fingerprint));
        }
        let is_known = !predates && !is_fresh;
        Told {
            capability: parsed.document.capability,
            form: parsed.document.form,
            fingerprint: is_known.then_some(parsed.fingerprint),
        }
    }

    /// Returns the documents whose first version counts as told after all: where the file system's clock is not ours,
    /// nothing tells that a file changed while its mount was swept (R13).
    pub fn take_unclear(&mut self) -> Vec<(Uri, Fingerprint)> {
        let fresh = std::mem::take(&mut self.fresh);
        match std::mem::take(&mut self.has_other_clock) {
            true => fresh,
            false => Vec::new(),
        }
    }
}

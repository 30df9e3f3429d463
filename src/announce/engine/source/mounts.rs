//! Mounts as the engine found them: present, swept, or absent (R13, R15).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::announce::candidates::{Candidates, PublishedPath};
use crate::announce::engine::source::nested::{DocumentsBelow, NestedFileSystems};
use crate::announce::engine::source::sighting::Sighting;
use crate::announce::engine::step::Step;
use crate::announce::event::Fact;
use crate::announce::observation::{
    DocumentPath, Identity, MountId, NestedFileSystem, UnreadableDirectory,
};
use crate::announce::plan::{MountPlan, SourcePlan};
use crate::announce::state::{MountRow, Told};
use crate::resourcesync::fingerprint::Fingerprint;
use crate::resourcesync::uri::Uri;

/// The mounts of one source. Each change of a row is saved.
#[derive(Debug)]
pub struct Mounts {
    /// The name of the source.
    source: String,
    mounts: BTreeMap<MountId, KnownMount>,
    /// The last change of what can be seen of them, until it is taken.
    visibility: Option<Visibility>,
}

/// A change of what can be seen of a source's mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// A mount was lost or found again: nothing was seen in one piece.
    Lost,
    /// Every mount is there, and was swept in this run.
    Whole,
}

/// A complete sweep that has ended.
#[derive(Debug)]
pub struct EndedSweep {
    /// True if the baseline of the mount is complete with it.
    pub is_first: bool,
    /// Documents whose first version counts as told after all (R13).
    pub unclear: Vec<(Uri, Fingerprint)>,
}

/// A root that is taken for the mount, because it holds something.
#[derive(Debug)]
pub struct AcceptedRoot {
    /// Documents that were not found below it.
    pub unfound: BTreeSet<Uri>,
    /// True if the mount was absent until now.
    pub was_absent: bool,
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
            source: plan.name.clone(),
            mounts: mounts.collect(),
            visibility: None,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (MountId, &KnownMount)> {
        self.mounts.iter().map(|(id, mount)| (*id, mount))
    }

    pub fn get(&self, id: MountId) -> Option<&KnownMount> {
        self.mounts.get(&id)
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

    /// Returns true if the root of a mount is there, but empty, so that the mount is absent (R15).
    pub fn is_empty_root(&self, id: MountId) -> bool {
        let mount = self.mounts.get(&id);
        mount.is_some_and(|mount| mount.state == MountState::Absent && mount.is_doubtful())
    }

    /// Returns true if a path was never looked at: what lies there was there before, as far as anybody knows (R13).
    pub fn is_new_ground(&self, path: &DocumentPath) -> bool {
        let mount = self.mounts.get(&path.mount);
        mount.is_some_and(|mount| mount.is_new_ground(&path.below))
    }

    /// Returns true if every mount is there, and was swept in this run.
    pub fn are_whole(&self) -> bool {
        let mut states = self.mounts.values().map(KnownMount::state);
        states.all(|state| state == MountState::Ready)
    }

    /// Takes the last change of what can be seen of them.
    pub fn take_visibility_change(&mut self) -> Option<Visibility> {
        self.visibility.take()
    }

    // What the tree tells of them.

    /// Begins the sweep of a root that was found. Returns true if the mount was found or lost before in this run, so that
    /// it is not seen in one piece.
    pub fn find(
        &mut self,
        id: MountId,
        identity: Identity,
        started: Timestamp,
        step: &mut Step,
    ) -> bool {
        let Some(mount) = self.mounts.get_mut(&id) else {
            return false;
        };
        let is_again = mount.state != MountState::Unknown;
        mount.find(identity, started);
        save(id, mount, step);
        if is_again {
            self.visibility = Some(Visibility::Lost);
        }
        is_again
    }

    /// Judges the root of a mount by the number of candidates that a complete sweep met.
    pub fn judge_root(&self, id: MountId, candidates: u64) -> Option<RootJudgement> {
        self.mounts
            .get(&id)
            .map(|mount| mount.judge_root(candidates))
    }

    /// Takes a mount to be absent whose root is empty, and is not the one that held documents (R15).
    pub fn reject_root(&mut self, id: MountId, step: &mut Step) {
        let mount = self.mounts.get_mut(&id);
        if let Some(reason) = mount.and_then(KnownMount::reject_root) {
            self.tell_lost(id, reason, step);
        }
    }

    /// Takes another root than the one that held documents for the mount, because it holds something (R15).
    pub fn accept_root(&mut self, id: MountId, step: &mut Step) -> Option<AcceptedRoot> {
        let mount = self.mounts.get_mut(&id)?;
        let accepted = mount.accept_root();
        save(id, mount, step);
        Some(accepted)
    }

    /// Ends a complete sweep of a mount, of which these documents are known.
    pub fn end_sweep(
        &mut self,
        candidates: &Candidates,
        documents: &DocumentsBelow<'_>,
        step: &mut Step,
    ) -> Option<EndedSweep> {
        let id = documents.mount;
        let mount = self.mounts.get_mut(&id)?;
        let is_first = mount.end_sweep(candidates, step.now());
        mount.settle_nested(documents);
        save(id, mount, step);
        let unclear = mount.take_unclear();
        if self.are_whole() {
            self.visibility = Some(Visibility::Whole);
        }
        Some(EndedSweep { is_first, unclear })
    }

    /// Leaves a mount whose root is lost, or could not be swept to the end. Returns true if its baseline was not finished.
    pub fn leave(&mut self, id: MountId) -> bool {
        self.visibility = Some(Visibility::Lost);
        let Some(mount) = self.mounts.get_mut(&id) else {
            return false;
        };
        mount.leave();
        !mount.row.baselined
    }

    /// Notes why a mount that was left is absent.
    pub fn lose(&mut self, id: MountId, reason: String, step: &mut Step) {
        if let Some(mount) = self.mounts.get_mut(&id) {
            mount.reason = Some(reason.clone());
        }
        self.tell_lost(id, reason, step);
    }

    fn tell_lost(&self, mount: MountId, reason: String, step: &mut Step) {
        let source = self.source.clone();
        step.tell(Fact::MountLost {
            source,
            mount,
            reason,
        });
    }

    /// Notes the file systems that begin below the root of a mount. Returns the paths of those that went or came.
    pub fn find_nested(
        &mut self,
        id: MountId,
        found: Vec<NestedFileSystem>,
        step: &mut Step,
    ) -> BTreeSet<Arc<[u8]>> {
        let Some(mount) = self.mounts.get_mut(&id) else {
            return BTreeSet::new();
        };
        let changed = mount.find_nested(found);
        if !changed.is_empty() {
            save(id, mount, step);
        }
        changed
    }

    /// Notes the directories of a mount that may not be read.
    pub fn set_unreadable(&mut self, id: MountId, unreadable: UnreadableSample) {
        if let Some(mount) = self.mounts.get_mut(&id) {
            mount.unreadable = unreadable;
        }
    }

    // What looks found below them.

    /// Notes that a mount holds a document.
    pub fn hold_document(&mut self, id: MountId, step: &mut Step) {
        if let Some(mount) = self.mounts.get_mut(&id)
            && !std::mem::replace(&mut mount.row.held_document, true)
        {
            save(id, mount, step);
        }
    }

    /// Notes a document that was not found below a root that may be the wrong one. Returns false if the root is the right
    /// one.
    pub fn note_unfound(&mut self, id: MountId, uri: &Uri) -> bool {
        let mount = self.mounts.get_mut(&id);
        mount.is_some_and(|mount| mount.note_unfound(uri))
    }

    /// Returns what counts as told of a document that is read for the first time, below a mount whose baseline is taken
    /// (R13).
    pub fn baseline(&mut self, uri: &Uri, sighting: &Sighting, predates: bool) -> Option<Told> {
        let mount = self.mounts.get_mut(&sighting.path.mount)?;
        Some(mount.baseline(uri, sighting, predates))
    }
}

fn save(id: MountId, mount: &KnownMount, step: &mut Step) {
    step.rows().mounts.insert(id, Some(mount.row.clone()));
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

    /// Notes the file systems that begin below its root. Returns the paths of those that went or came.
    fn find_nested(&mut self, found: Vec<NestedFileSystem>) -> BTreeSet<Arc<[u8]>> {
        let was_looked_at = self.row.knows_nested;
        self.nested.find(&mut self.row.nested, found, was_looked_at)
    }

    /// Decides which of them are away, when a sweep has met everything below its root.
    fn settle_nested(&mut self, documents: &DocumentsBelow<'_>) {
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
    fn is_doubtful(&self) -> bool {
        self.row.held_document && self.found.is_some() && self.found != self.row.identity
    }

    /// Returns true if `below` was never looked at: what lies there was there before, as far as anybody knows (R13).
    pub fn is_new_ground(&self, below: &[u8]) -> bool {
        let was_looked_at =
            |before: &Candidates| before.accepts(&PublishedPath::of(&self.row.prefix), below);
        !self.row.baselined || !self.looked_at.as_ref().is_none_or(was_looked_at)
    }

    /// Begins a sweep of a root that was found.
    fn find(&mut self, identity: Identity, started: Timestamp) {
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
    fn judge_root(&self, candidates: u64) -> RootJudgement {
        match (self.is_doubtful(), candidates) {
            (false, _) => RootJudgement::Known,
            (true, 0) => RootJudgement::Empty,
            (true, _) => RootJudgement::Replaced,
        }
    }

    /// Ends a complete sweep. Returns true if it was the first.
    fn end_sweep(&mut self, candidates: &Candidates, now: Timestamp) -> bool {
        self.state = MountState::Ready;
        self.reason = None;
        self.row.swept = Some(self.started);
        self.row.candidates = Some(candidates.clone());
        self.looked_at = None;
        // No later sweep begins earlier than this, and not every one says when.
        self.started = now;
        !std::mem::replace(&mut self.row.baselined, true)
    }

    /// Takes the root that is there for the mount.
    fn accept_root(&mut self) -> AcceptedRoot {
        let was_absent = self.state == MountState::Absent;
        self.row.identity = self.found;
        self.state = MountState::Ready;
        self.reason = None;
        AcceptedRoot {
            unfound: std::mem::take(&mut self.unfound),
            was_absent,
        }
    }

    /// Takes the mount to be absent, because its root is empty. Returns the reason, unless it is absent already.
    fn reject_root(&mut self) -> Option<String> {
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
    fn note_unfound(&mut self, uri: &Uri) -> bool {
        let is_doubtful = self.is_doubtful();
        if is_doubtful {
            self.unfound.insert(uri.clone());
        }
        is_doubtful
    }

    /// Notes that the root is not there, or cannot be listed.
    fn leave(&mut self) {
        self.state = MountState::Absent;
        self.found = None;
        self.unfound.clear();
        self.fresh.clear();
    }

    /// Returns what counts as told of a document that is read for the first time. Its content does not if it could not be
    /// read before, or changed while the mount was swept (R13).
    fn baseline(&mut self, uri: &Uri, sighting: &Sighting, predates: bool) -> Told {
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
    fn take_unclear(&mut self) -> Vec<(Uri, Fingerprint)> {
        let fresh = std::mem::take(&mut self.fresh);
        match std::mem::take(&mut self.has_other_clock) {
            true => fresh,
            false => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::{EndedSweep, Mounts, RootJudgement, Visibility};
    use crate::announce::catalog::Catalog;
    use crate::announce::engine::source::nested::DocumentsBelow;
    use crate::announce::engine::source::tests::{MOUNT, facts, path, plan, step, uri};
    use crate::announce::engine::source::troubles::Troubles;
    use crate::announce::engine::step::Step;
    use crate::announce::event::Fact;
    use crate::announce::observation::Identity;

    fn mounts() -> (Mounts, Step) {
        let step = step();
        (Mounts::new(&plan(), &mut BTreeMap::new(), step.now()), step)
    }

    /// Finds a root with this inode.
    fn find(mounts: &mut Mounts, inode: u64, step: &mut Step) -> bool {
        let identity = Identity { device: 1, inode };
        mounts.find(MOUNT, identity, Timestamp::UNIX_EPOCH, step)
    }

    fn end_sweep(mounts: &mut Mounts, step: &mut Step) -> EndedSweep {
        let plan = plan();
        let documents = DocumentsBelow {
            mount: MOUNT,
            catalog: &Catalog::new(Default::default()),
            troubles: &Troubles::new(0, plan.clone()),
        };
        mounts
            .end_sweep(&plan.candidates, &documents, step)
            .unwrap()
    }

    #[test]
    fn a_source_is_seen_whole_once_all_was_swept_until_a_root_goes_or_comes() {
        let (mut mounts, mut step) = mounts();
        assert!(!mounts.are_settled());
        assert!(!find(&mut mounts, 1, &mut step));
        assert_eq!(mounts.take_visibility_change(), None);
        assert!(end_sweep(&mut mounts, &mut step).is_first);
        assert!(mounts.are_settled());
        assert_eq!(mounts.take_visibility_change(), Some(Visibility::Whole));
        assert_eq!(mounts.take_visibility_change(), None);
        mounts.leave(MOUNT);
        assert_eq!(mounts.take_visibility_change(), Some(Visibility::Lost));
        assert!(mounts.are_settled() && mounts.is_absent(MOUNT));
        assert!(find(&mut mounts, 1, &mut step));
        assert_eq!(mounts.take_visibility_change(), Some(Visibility::Lost));
        assert!(!end_sweep(&mut mounts, &mut step).is_first);
    }

    #[test]
    fn what_lies_there_before_the_first_sweep_has_ended_is_new_ground() {
        let (mut mounts, mut step) = mounts();
        find(&mut mounts, 1, &mut step);
        assert!(mounts.is_new_ground(&path("a.xml")));
        assert!(mounts.leave(MOUNT), "it was not finished");
        find(&mut mounts, 1, &mut step);
        end_sweep(&mut mounts, &mut step);
        assert!(!mounts.is_new_ground(&path("a.xml")));
        assert!(!mounts.leave(MOUNT));
    }

    #[test]
    fn another_root_is_the_mount_only_if_it_holds_something() {
        let (mut mounts, mut step) = mounts();
        find(&mut mounts, 1, &mut step);
        assert!(!mounts.note_unfound(MOUNT, &uri("a.xml")));
        mounts.hold_document(MOUNT, &mut step);
        end_sweep(&mut mounts, &mut step);
        let judge = |mounts: &Mounts, candidates| mounts.judge_root(MOUNT, candidates).unwrap();
        assert_eq!(judge(&mounts, 0), RootJudgement::Known);
        facts(&mut step);

        find(&mut mounts, 2, &mut step);
        assert_eq!(judge(&mounts, 0), RootJudgement::Empty);
        mounts.reject_root(MOUNT, &mut step);
        assert!(mounts.is_absent(MOUNT) && mounts.is_empty_root(MOUNT));
        assert!(matches!(facts(&mut step)[..], [Fact::MountLost { .. }]));
        mounts.reject_root(MOUNT, &mut step);
        assert_eq!(facts(&mut step), [], "it was told");

        assert_eq!(judge(&mounts, 1), RootJudgement::Replaced);
        assert!(mounts.note_unfound(MOUNT, &uri("a.xml")));
        let accepted = mounts.accept_root(MOUNT, &mut step).unwrap();
        assert_eq!(accepted.unfound, [uri("a.xml")].into());
        assert!(accepted.was_absent);
        assert_eq!(judge(&mounts, 0), RootJudgement::Known);
        assert!(!mounts.is_absent(MOUNT));
    }

    #[test]
    fn each_change_of_a_row_is_saved_once() {
        let (mut mounts, mut step) = mounts();
        let saved = |step: &mut Step| std::mem::take(&mut step.rows().mounts).len();
        find(&mut mounts, 1, &mut step);
        assert_eq!(saved(&mut step), 1);
        for want in [1, 0] {
            mounts.hold_document(MOUNT, &mut step);
            assert_eq!(saved(&mut step), want);
        }
        end_sweep(&mut mounts, &mut step);
        assert_eq!(saved(&mut step), 1);
        mounts.leave(MOUNT);
        assert_eq!(saved(&mut step), 0);
    }
}

//! Mounts as the engine found them: present, swept, or absent (R13, R15).
//!
//! A [`KnownMount`] is made of its root, its baseline, and the file systems below it.

pub mod baseline;
pub mod known_mount;
pub mod nested;
pub mod root;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::candidates::Candidates;
use crate::announce::engine::source::mounts::baseline::EndedSweep;
use crate::announce::engine::source::mounts::known_mount::KnownMount;
use crate::announce::engine::source::mounts::nested::DocumentsBelow;
use crate::announce::engine::source::mounts::root::{AcceptedRoot, MountState, RootJudgement};
use crate::announce::engine::source::sighting::Sighting;
use crate::announce::engine::step::Step;
use crate::announce::event::Fact;
use crate::announce::observation::{
    DocumentPath, Identity, MountId, NestedFileSystem, UnreadableDirectory,
};
use crate::announce::plan::SourcePlan;
use crate::announce::state::{MountRow, Told};

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

/// The directories of a mount that may not be read.
#[derive(Debug, Clone, Default)]
pub struct UnreadableSample {
    pub first: Vec<UnreadableDirectory>,
    pub more: usize,
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
            (mount.id, KnownMount::new(mount, plan, row, now))
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
        let mut states = self.states();
        states.all(|state| matches!(state, MountState::Ready | MountState::Absent))
    }

    pub fn is_absent(&self, id: MountId) -> bool {
        let mount = self.mounts.get(&id);
        mount.is_none_or(|mount| mount.root.state() == MountState::Absent)
    }

    /// Returns true if a path lies where another file system was when documents were last seen there (R15).
    pub fn is_away(&self, path: &DocumentPath) -> bool {
        let mount = self.mounts.get(&path.mount);
        mount.is_some_and(|mount| mount.nested.is_away(&path.below))
    }

    /// Returns true if a file system that held documents is known to be away from below a root.
    pub fn has_away(&self) -> bool {
        let mut mounts = self.mounts.values();
        mounts.any(|mount| mount.nested.has_away())
    }

    /// Returns true if the root of a mount is there, but empty, so that the mount is absent (R15).
    pub fn is_empty_root(&self, id: MountId) -> bool {
        let mount = self.mounts.get(&id);
        mount.is_some_and(|mount| mount.root.is_empty())
    }

    /// Returns true if a path was never looked at: what lies there was there before, as far as anybody knows (R13).
    pub fn is_new_ground(&self, path: &DocumentPath) -> bool {
        let mount = self.mounts.get(&path.mount);
        mount.is_some_and(|mount| mount.is_new_ground(&path.below))
    }

    /// Returns true if every mount is there, and was swept in this run.
    pub fn are_whole(&self) -> bool {
        self.states().all(|state| state == MountState::Ready)
    }

    fn states(&self) -> impl Iterator<Item = MountState> {
        self.mounts.values().map(|mount| mount.root.state())
    }

    /// Takes the last change of what can be seen of them.
    pub fn take_visibility_change(&mut self) -> Option<Visibility> {
        self.visibility.take()
    }

    // Reports of the tree.

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
        let is_again = mount.root.state() != MountState::Unknown;
        mount.find(identity, started);
        save(&self.source, id, mount, step);
        if is_again {
            self.visibility = Some(Visibility::Lost);
        }
        is_again
    }

    /// Judges the root of a mount by the number of candidates that a complete sweep met.
    pub fn judge_root(&self, id: MountId, candidates: u64) -> Option<RootJudgement> {
        let mount = self.mounts.get(&id)?;
        Some(mount.root.judge(candidates))
    }

    /// Counts a mount as absent, because its root is empty and is not the one that held documents (R15).
    pub fn reject_root(&mut self, id: MountId, step: &mut Step) {
        let mount = self.mounts.get_mut(&id);
        if let Some(reason) = mount.and_then(KnownMount::reject_root) {
            self.tell_lost(id, reason, step);
        }
    }

    /// Accepts a directory as the mount's root in place of the one that held documents, because it holds something
    /// (R15).
    pub fn accept_root(&mut self, id: MountId, step: &mut Step) -> Option<AcceptedRoot> {
        let mount = self.mounts.get_mut(&id)?;
        let accepted = mount.root.accept()?;
        save(&self.source, id, mount, step);
        Some(accepted)
    }

    /// Ends a complete sweep of a mount, of which these documents are known; nothing if what was swept is not the mount.
    pub fn end_sweep(
        &mut self,
        candidates: &Candidates,
        documents: &DocumentsBelow<'_>,
        step: &mut Step,
    ) -> Option<EndedSweep> {
        let id = documents.mount;
        let mount = self.mounts.get_mut(&id)?;
        let ended = mount.end_sweep(candidates, documents, step.wall())?;
        save(&self.source, id, mount, step);
        if self.are_whole() {
            self.visibility = Some(Visibility::Whole);
        }
        Some(ended)
    }

    /// Leaves a mount whose root is lost, or could not be swept to the end. Returns true if its baseline was not finished.
    pub fn leave(&mut self, id: MountId) -> bool {
        self.visibility = Some(Visibility::Lost);
        let Some(mount) = self.mounts.get_mut(&id) else {
            return false;
        };
        mount.leave();
        !mount.baseline.is_complete()
    }

    /// Notes why a mount that was left is absent.
    pub fn lose(&mut self, id: MountId, reason: String, step: &mut Step) {
        if let Some(mount) = self.mounts.get_mut(&id) {
            mount.root.lose(reason.clone());
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
        let changed = mount.nested.find(found);
        if !changed.is_empty() {
            save(&self.source, id, mount, step);
        }
        changed
    }

    /// Notes the directories of a mount that may not be read.
    pub fn set_unreadable(&mut self, id: MountId, unreadable: UnreadableSample) {
        if let Some(mount) = self.mounts.get_mut(&id) {
            mount.unreadable = unreadable;
        }
    }

    // Documents below them.

    /// Notes that a mount holds a document.
    pub fn hold_document(&mut self, id: MountId, step: &mut Step) {
        if let Some(mount) = self.mounts.get_mut(&id)
            && mount.root.hold_document()
        {
            save(&self.source, id, mount, step);
        }
    }

    /// Notes a document that was not found below a root that may be the wrong one. Returns false if the root is the right
    /// one.
    pub fn note_unfound(&mut self, id: MountId, uri: &Uri) -> bool {
        let mount = self.mounts.get_mut(&id);
        mount.is_some_and(|mount| mount.root.note_unfound(uri))
    }

    /// Returns what counts as told of a document that is read for the first time, below a mount whose baseline is taken
    /// (R13).
    pub fn baseline(&mut self, uri: &Uri, sighting: &Sighting, predates: bool) -> Option<Told> {
        let mount = self.mounts.get_mut(&sighting.path.mount)?;
        Some(mount.baseline.first_look(uri, sighting, predates))
    }
}

fn save(source: &str, id: MountId, mount: &KnownMount, step: &mut Step) {
    step.rows().mounts.insert(id, Some(mount.row(source)));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::{Mounts, Visibility};
    use crate::announce::catalog::Catalog;
    use crate::announce::engine::source::mounts::baseline::EndedSweep;
    use crate::announce::engine::source::mounts::nested::DocumentsBelow;
    use crate::announce::engine::source::mounts::root::RootJudgement;
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

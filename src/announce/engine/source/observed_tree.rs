//! The tree of one source as looks found it: documents, mounts, and what is missing or cannot be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::catalog::Catalog;
use crate::announce::engine::source::deletions::{Deletions, FoundInstead, Vanishing};
use crate::announce::engine::source::documents::Documents;
use crate::announce::engine::source::mounts::baseline::EndedSweep;
use crate::announce::engine::source::mounts::nested::DocumentsBelow;
use crate::announce::engine::source::mounts::root::RootJudgement;
use crate::announce::engine::source::mounts::{Mounts, UnreadableSample, Visibility};
use crate::announce::engine::source::sighting::{Prior, Sighting};
use crate::announce::engine::source::troubles::Troubles;
use crate::announce::engine::step::Step;
use crate::announce::event::{Fact, Suspension};
use crate::announce::observation::{
    DocumentPath, Identity, Incomplete, Look, MountId, NestedFileSystem, Observation,
};
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Presence, Record, Trouble};

/// The tree of one source.
///
/// Its parts are private, because a change of one may concern the others: once a mount is left, nothing below it counts as
/// seen to be absent (R15), and a baseline that was not finished is forgotten (R13).
#[derive(Debug)]
pub struct ObservedTree {
    plan: Arc<SourcePlan>,
    documents: Documents,
    mounts: Mounts,
    troubles: Troubles,
    deletions: Deletions,
}

impl ObservedTree {
    /// Makes the tree of the source at this position of the plan, of which no documents are known yet.
    pub fn new(
        position: usize,
        plan: Arc<SourcePlan>,
        configured_sets: BTreeSet<Uri>,
        mounts: Mounts,
    ) -> ObservedTree {
        ObservedTree {
            documents: Documents::new(position, configured_sets),
            mounts,
            troubles: Troubles::new(position, Arc::clone(&plan)),
            deletions: Deletions::new(Arc::clone(&plan)),
            plan,
        }
    }

    pub(super) fn documents(&self) -> &Documents {
        &self.documents
    }

    pub(super) fn documents_mut(&mut self) -> &mut Documents {
        &mut self.documents
    }

    pub(super) fn catalog(&self) -> &Catalog {
        self.documents.catalog()
    }

    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    pub fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    pub fn deletions(&self) -> &Deletions {
        &self.deletions
    }

    /// Returns true if a document lies below a mount whose baseline is being taken (R13).
    pub fn is_before_baseline(&self, uri: &Uri) -> bool {
        let record = self.catalog().get(uri);
        let mount = record.and_then(|record| self.mounts.get(record.path.mount));
        mount.is_some_and(|mount| !mount.baseline.is_complete())
    }

    /// Returns true if the deletion of this missing document is suspended (R15).
    pub fn is_deletion_suspended(&self, record: &Record) -> bool {
        self.deletions.is_suspended(record, &self.mounts)
    }

    /// Returns the numbers of missing documents if they suspend deletions.
    pub fn suspension(&self) -> Option<Suspension> {
        let census = self.catalog().census();
        self.deletions.suspension(census, &self.mounts)
    }

    /// Continues what an engine with another plan has seen to be absent.
    pub fn inherit(&mut self, before: &ObservedTree) {
        let missing = self.documents.catalog().census().missing();
        self.deletions.inherit(&before.deletions, missing);
    }

    /// Takes up a stored candidate that could not be read.
    pub fn restore_trouble(&mut self, uri: Uri, trouble: Trouble, step: &mut Step) {
        self.troubles.restore(uri, trouble, step);
    }

    // Observations.

    /// Takes one look at a candidate (R3, R4).
    pub(super) fn observe(&mut self, uri: Uri, observation: Observation, step: &mut Step) {
        let Observation { path, at, look } = observation;
        let is_nothing = matches!(
            look,
            Look::Missing | Look::Incomplete(Incomplete::Denied(_))
        );
        if !is_nothing {
            self.occupied(path.mount, at, step);
        }
        match look {
            Look::Document { parsed, stat } => {
                let sighting = Sighting {
                    path,
                    parsed: *parsed,
                    stat,
                    at,
                };
                let before = self.catalog().get(&uri);
                if !before.is_some_and(|before| sighting.ends_aloud(before, &self.plan)) {
                    return self.seen(uri, sighting, step);
                }
                self.vanished(&uri, at, FoundInstead::Document(Box::new(sighting)), step);
            }
            Look::Other { stat, .. } => {
                self.vanished(&uri, at, FoundInstead::File, step);
                self.troubles.forget(&uri, step);
                self.question(&uri, &path, step);
                step.rows().other_files.insert(path, Some((stat, at)));
            }
            // R15: what is missing or out of reach with its mount was not deleted, nor found again.
            Look::Incomplete(_) | Look::Missing if self.mounts.is_absent(path.mount) => {}
            Look::Incomplete(reason) => {
                self.question(&uri, &path, step);
                self.incomplete(uri, path, &reason, step);
            }
            Look::Missing => {
                self.troubles.forget(&uri, step);
                self.question(&uri, &path, step);
                if !self.mounts.note_unfound(path.mount, &uri) {
                    self.vanished(&uri, at, FoundInstead::Nothing, step);
                }
                step.rows().other_files.insert(path, None);
            }
        }
    }

    /// Takes in a complete document.
    fn seen(&mut self, uri: Uri, sighting: Sighting, step: &mut Step) {
        let trouble = self.troubles.forget(&uri, step);
        if trouble.as_ref().is_some_and(|trouble| trouble.reported) {
            let (path, uri) = (sighting.path.clone(), uri.clone());
            step.tell(Fact::Mended { path, uri });
        }
        self.remember_baseline(&uri, &sighting, trouble.as_ref());
        self.deletions.end(&uri);
        let before = self.catalog().shared(&uri);
        if before.is_none() {
            step.rows().other_files.insert(sighting.path.clone(), None);
        }
        let is_changed = sighting.is_changed(before.as_deref());
        let is_unread = self.catalog().is_unread(&uri);
        match before {
            Some(before) if !is_changed && !is_unread => {
                self.documents.meet(uri, sighting, before, step);
            }
            before => self.put(&uri, sighting, before, is_changed, step),
        }
    }

    /// Takes in a document that is new, changed, or read for the first time in this run.
    fn put(
        &mut self,
        uri: &Uri,
        sighting: Sighting,
        before: Option<Arc<Record>>,
        is_changed: bool,
        step: &mut Step,
    ) {
        let id = sighting.path.mount;
        let prior = Prior {
            before: before.as_deref(),
            is_changed,
            swept: self.mounts.get(id).and_then(|mount| mount.baseline.swept()),
            is_in_baseline: self.documents.is_in_baseline(uri),
        };
        self.documents.put(uri, sighting, &prior, &self.plan, step);
        self.mounts.hold_document(id, step);
    }

    /// R13: counts a document as told, in the version that is read first, if nobody had looked at its path before. Its
    /// content does not count if it could not be read before, or changed while the mount was swept.
    fn remember_baseline(&mut self, uri: &Uri, sighting: &Sighting, trouble: Option<&Trouble>) {
        if self.catalog().get(uri).is_some() {
            return;
        }
        let predates = trouble.is_some_and(|trouble| trouble.predates);
        let is_baseline = !self.plan.announce_existing && self.mounts.is_new_ground(&sighting.path);
        if (is_baseline || predates)
            && let Some(told) = self.mounts.baseline(uri, sighting, predates)
        {
            self.documents.add_to_baseline(uri, told);
        }
    }

    /// R3: notes that a document cannot be read; it keeps its last good state.
    fn incomplete(&mut self, uri: Uri, path: DocumentPath, reason: &Incomplete, step: &mut Step) {
        let is_reachable = !matches!(reason, Incomplete::Denied(_));
        if self.deletions.is_found_unread(&uri, is_reachable) {
            self.documents.set_presence(&uri, Presence::Present, step);
        }
        let is_baseline = self.mounts.is_new_ground(&path);
        let trouble = Trouble {
            path,
            since: step.now(),
            reason: reason.to_string(),
            predates: is_baseline && self.catalog().get(&uri).is_none(),
            reported: false,
        };
        self.troubles.add(uri, trouble, step);
    }

    /// Returns true if a set's Capability List, or a document that this or an index of the set lists, was found and cannot be
    /// read yet. One that is broken does not count.
    pub fn has_unreadable_member(&self, set: &Uri) -> bool {
        if self.troubles.count() == 0 {
            return false;
        }
        let catalog = self.catalog();
        let is_unreadable = |uri: &Uri| {
            let trouble = self.troubles.get(uri);
            let may_be_read_soon = trouble.is_some_and(|trouble| !trouble.reported);
            may_be_read_soon && (!catalog.is_there(uri) || catalog.is_unread(uri))
        };
        let members = catalog.members(set);
        let structures = members.iter().filter_map(|uri| catalog.structure(uri));
        let mut listed = structures.flat_map(|structure| &structure.members);
        is_unreadable(set) || listed.any(is_unreadable)
    }

    /// Returns the fact to tell about a candidate that cannot be read for long, once.
    pub(super) fn trouble_lasted(&mut self, uri: &Uri, now: Timestamp) -> Option<Fact> {
        let is_known = self.catalog().is_there(uri);
        self.troubles.lasted(uri, is_known, now)
    }

    /// Asks again what lies at a path that holds no document, where a Capability List names it.
    fn question(&self, uri: &Uri, path: &DocumentPath, step: &mut Step) {
        let catalog = self.catalog();
        if self.mounts.are_settled() && catalog.is_listed(uri) && !catalog.is_there(uri) {
            step.explain(path.clone());
        }
    }

    // Mounts.

    /// Takes the last change of what can be seen of them.
    pub fn take_visibility_change(&mut self) -> Option<Visibility> {
        self.mounts.take_visibility_change()
    }

    /// Begins the sweep of a mount that was found.
    pub fn mount_found(
        &mut self,
        id: MountId,
        identity: Identity,
        started: Timestamp,
        step: &mut Step,
    ) {
        if self.mounts.find(id, identity, started, step) {
            self.deletions.stop_watching(id, self.documents.catalog());
        }
    }

    /// Ends a complete sweep of a mount, which met so many candidates.
    pub fn mount_swept(&mut self, id: MountId, candidates: u64, step: &mut Step) {
        match self.mounts.judge_root(id, candidates) {
            None => return,
            Some(RootJudgement::Empty) => return self.mounts.reject_root(id, step),
            Some(RootJudgement::Replaced) => self.accept_root(id, step.wall(), step),
            Some(RootJudgement::Known) => {}
        }
        let below = DocumentsBelow {
            mount: id,
            catalog: self.documents.catalog(),
            troubles: &self.troubles,
        };
        let swept = self.mounts.end_sweep(&self.plan.candidates, &below, step);
        let Some(EndedSweep { is_first, unclear }) = swept else {
            return;
        };
        if is_first {
            step.tell(Fact::Baselined {
                source: self.plan.name.clone(),
                mount: id,
                documents: self.documents.catalog().census().of(id).all.present,
            });
            self.documents.save_mount(id, step);
        }
        for (uri, fingerprint) in unclear {
            self.documents.clear_up(&uri, fingerprint);
        }
        self.deletions.recount_away();
        self.look_at_missing(Some(id), step);
    }

    /// R15: accepts a directory as the mount's root in place of the one that held documents, because it holds
    /// something.
    fn accept_root(&mut self, id: MountId, at: Timestamp, step: &mut Step) {
        let Some(accepted) = self.mounts.accept_root(id, step) else {
            return;
        };
        for uri in accepted.unfound {
            self.vanished(&uri, at, FoundInstead::Nothing, step);
        }
        if accepted.was_absent {
            // While it was empty, missing documents were not noted, so each is looked at now.
            self.documents.look_at_mount(id, step);
        }
    }

    /// Notes that something lies below a root that may have been empty.
    fn occupied(&mut self, id: MountId, at: Timestamp, step: &mut Step) {
        if self.mounts.is_empty_root(id) {
            self.accept_root(id, at, step);
        }
    }

    /// Notes that a mount's root is not there, or cannot be read.
    pub fn mount_lost(&mut self, id: MountId, reason: String, step: &mut Step) {
        self.leave_mount(id, step);
        self.mounts.lose(id, reason, step);
    }

    /// Leaves a mount whose root is lost, or could not be swept to the end. R13: a baseline that was not finished is taken
    /// again, so nothing of it is kept.
    pub fn leave_mount(&mut self, id: MountId, step: &mut Step) {
        self.deletions.stop_watching(id, self.documents.catalog());
        if self.mounts.leave(id) {
            self.documents.forget_mount(id, step);
            self.troubles.forget_mount(id, step);
        }
    }

    /// Notes the file systems that begin below a mount's root. R15: what is missing with one that went was not deleted, and
    /// what is missing below one that came was not seen to be absent from it.
    pub fn set_nested(&mut self, id: MountId, found: Vec<NestedFileSystem>, step: &mut Step) {
        let changed = self.mounts.find_nested(id, found, step);
        if changed.is_empty() {
            return;
        }
        self.deletions
            .stop_watching_below(id, &changed, self.documents.catalog());
        if self.mounts.are_settled() {
            self.look_at_missing(Some(id), step);
        }
    }

    /// Notes the directories of a mount that may not be read.
    pub fn set_unreadable(&mut self, id: MountId, unreadable: UnreadableSample) {
        self.mounts.set_unreadable(id, unreadable);
    }

    // Deletions (R15).

    /// Takes a document that is not there to be missing.
    fn vanished(&mut self, uri: &Uri, at: Timestamp, found: FoundInstead, step: &mut Step) {
        let vanishing = Vanishing { at, found };
        self.deletions
            .vanished(uri, vanishing, &mut self.documents, step);
    }

    /// Asks for a look at what is missing, below a mount that was swept just now or not: see
    /// [`Deletions::look_at_missing`].
    fn look_at_missing(&mut self, swept: Option<MountId>, step: &mut Step) {
        let catalog = self.documents.catalog();
        self.deletions
            .look_at_missing(swept, catalog, &self.mounts, step);
    }

    /// Asks for a look at each document whose grace has ended.
    pub fn end_graces(&mut self, step: &mut Step) {
        self.deletions
            .end_graces(self.documents.catalog(), &self.mounts, step);
    }

    /// Decides about the deletions that this step's looks found, all of them first counted. While a mount is being swept,
    /// nobody knows how many are missing.
    pub fn judge_deletions(&mut self, step: &mut Step) {
        let vanished = self.deletions.take_vanished();
        if !self.mounts.are_settled() {
            return;
        }
        self.judge_suspension(step);
        for (uri, successor) in vanished {
            let documents = &mut self.documents;
            if self.deletions.believe(&uri, documents, &self.mounts, step)
                && let Some(successor) = successor
            {
                self.seen(uri, *successor, step);
            }
        }
    }

    /// Suspends deletions if too many documents are missing, and believes them again if not.
    pub fn judge_suspension(&mut self, step: &mut Step) {
        let catalog = self.documents.catalog();
        self.deletions.judge(catalog, &self.mounts, step);
    }

    /// Accepts as deleted what is missing now.
    pub fn accept(&mut self, step: &mut Step) {
        self.deletions
            .accept(&mut self.documents, &self.mounts, step);
    }
}

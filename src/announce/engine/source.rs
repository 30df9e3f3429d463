//! One source: its documents as last seen complete, its mounts, what is missing of it, and what is wrong with it.
//!
//! Each of these is a part of its own; [`Source`] takes what a look found, and lets each part know of it.

pub mod changes;
pub mod deletions;
pub mod descriptions;
pub mod documents;
pub mod findings;
pub mod mounts;
pub mod nested;
pub mod sighting;
pub mod troubles;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::catalog::Catalog;
use crate::announce::difference::{Permission, is_end_said};
use crate::announce::engine::source::changes::Changes;
use crate::announce::engine::source::deletions::{Deletions, FoundInstead, Vanishing};
use crate::announce::engine::source::descriptions::Descriptions;
use crate::announce::engine::source::documents::Documents;
use crate::announce::engine::source::findings::Findings;
use crate::announce::engine::source::mounts::{
    MountState, Mounts, RootJudgement, UnreadableSample,
};
use crate::announce::engine::source::nested::DocumentsBelow;
use crate::announce::engine::source::sighting::{Prior, Recomputed, Sighting};
use crate::announce::engine::source::troubles::Troubles;
use crate::announce::engine::step::Step;
use crate::announce::event::{Fact, Suspension};
use crate::announce::finding::Finding;
use crate::announce::observation::{
    DocumentPath, Identity, Incomplete, Look, MountId, NestedFileSystem, NoDocument, Observation,
};
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Presence, Record, Told, Trouble, Version};
use crate::announce::time::later;
use crate::resourcesync::capability::Capability;
use crate::resourcesync::document::{Document, Form};
use crate::resourcesync::uri::{Topic, Uri, UriMap};

/// A source as the engine keeps it. What a look found goes in by [`Source::observe`]; what follows from it for channels is
/// gathered in its documents until the source settles.
#[derive(Debug)]
pub struct Source {
    plan: SourcePlan,
    documents: Documents,
    mounts: Mounts,
    troubles: Troubles,
    deletions: Deletions,
    findings: Findings,
    descriptions: Descriptions,
    sight: Option<Sight>,
}

/// A change of what can be seen of a source's mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// A mount was lost or found again: nothing was seen in one piece.
    Lost,
    /// Every mount is there, and was swept in this run.
    Whole,
}

impl Source {
    /// Makes the source at this position of the plan, which knows no documents yet.
    pub fn new(
        position: usize,
        plan: SourcePlan,
        configured_sets: BTreeSet<Uri>,
        mounts: Mounts,
    ) -> Source {
        Source {
            documents: Documents::new(position, configured_sets),
            mounts,
            troubles: Troubles::new(position),
            deletions: Deletions::default(),
            findings: Findings::new(position),
            descriptions: Descriptions::default(),
            sight: None,
            plan,
        }
    }

    /// Returns the rules that hold for it.
    pub fn plan(&self) -> &SourcePlan {
        &self.plan
    }

    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    pub fn documents_mut(&mut self) -> &mut Documents {
        &mut self.documents
    }

    pub fn catalog(&self) -> &Catalog {
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

    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Takes what happened to the sight of its mounts.
    pub fn take_sight(&mut self) -> Option<Sight> {
        self.sight.take()
    }

    /// Returns true if every present mount was swept to its end in this run.
    pub fn is_settled(&self) -> bool {
        self.mounts.are_settled()
    }

    /// Returns true if a document lies below a mount whose baseline is being taken (R13).
    pub fn is_before_baseline(&self, uri: &Uri) -> bool {
        let record = self.catalog().get(uri);
        let mount = record.and_then(|record| self.mounts.get(record.path.mount));
        mount.is_some_and(|mount| !mount.row().baselined)
    }

    /// Returns true if the deletions of some documents are suspended (R15).
    pub fn is_suspended(&self) -> bool {
        self.deletions.are_suspended()
    }

    /// Returns true if the deletion of this missing document is suspended (R15).
    pub fn is_deletion_suspended(&self, record: &Record) -> bool {
        self.deletions.is_suspended(record, &self.mounts)
    }

    /// Returns the numbers of missing documents if they suspend deletions. `name` is the source's.
    pub fn suspension(&self, name: &str) -> Option<Suspension> {
        let census = self.catalog().census();
        self.deletions.suspension(name, census, &self.mounts)
    }

    // Taking up a stored state.

    /// Puts back a stored candidate that could not be read.
    pub fn restore_trouble(&mut self, uri: Uri, trouble: Trouble, step: &mut Step) {
        let wait = self.plan.broken_after;
        self.troubles.restore(uri, trouble, wait, step);
    }

    /// Continues what an engine with another plan has seen to be absent.
    pub fn inherit(&mut self, before: &Source) {
        let missing = self.documents.catalog().census().missing();
        let grace = self.plan.deletion_grace;
        self.deletions.inherit(&before.deletions, missing, grace);
    }

    /// Moves all times as the clock was set back, except those of holds.
    pub fn set_back(&mut self, by: Duration) {
        self.troubles.set_back(by);
        self.descriptions.set_back(by);
    }

    // What looks found.

    /// Takes one look at a candidate (R3, R4).
    pub fn observe(
        &mut self,
        uri: Uri,
        observation: Observation,
        step: &mut Step,
    ) -> Option<Recomputed> {
        let Observation { path, at, look } = observation;
        let uri = self.catalog().interned(uri);
        let told_at = later(at, self.plan.broken_after);
        self.findings.find_in_file(&uri, &look, told_at, step);
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
                if !self.ends_aloud(&uri, &sighting.parsed.document) {
                    return self.seen(uri, sighting, step);
                }
                self.vanished(&uri, at, FoundInstead::Document(Box::new(sighting)), step);
            }
            Look::Other { stat, .. } => {
                self.vanished(&uri, at, FoundInstead::File, step);
                self.troubles.forget(&uri, step);
                self.question(&uri, &path, step);
                step.rows().others.insert(path, Some((stat, at)));
            }
            // R15: what is missing or out of reach with its mount was not deleted, nor found again.
            Look::Incomplete(_) | Look::Missing if self.mounts.is_absent(path.mount) => {}
            Look::Incomplete(reason) => {
                self.question(&uri, &path, step);
                self.incomplete(uri, path, &reason, at, step);
            }
            Look::Missing => {
                self.troubles.forget(&uri, step);
                self.question(&uri, &path, step);
                let mount = self.mounts.get_mut(path.mount);
                if !mount.is_some_and(|mount| mount.note_unfound(&uri)) {
                    self.vanished(&uri, at, FoundInstead::Nothing, step);
                }
                step.rows().others.insert(path, None);
            }
        }
        None
    }

    /// R14, R15: returns true if a look found another document in the place of one whose deletion is announced, so that it
    /// gets the grace of what is missing. An index of several Source Descriptions is no other document.
    fn ends_aloud(&self, uri: &Uri, found: &Document) -> bool {
        let before = self.catalog().get(uri);
        let Some(before) = before.filter(|record| !record.is_gone()) else {
            return false;
        };
        // An index of Source Descriptions may be known to hubs as the Source Description that it was.
        let form = match before.version.capability {
            Capability::SourceDescription => Form::List,
            _ => before.version.form,
        };
        let ended = Version {
            form,
            ..before.version
        };
        let is_description = found.capability == Capability::SourceDescription;
        let is_same =
            found.capability == ended.capability && (is_description || found.form == ended.form);
        let permission = Permission {
            archived: before.relations.archived,
            all_deletions: self.plan.announce_all_deletions,
        };
        !is_same && is_end_said(&ended, permission)
    }

    /// Takes in a complete document.
    fn seen(&mut self, uri: Uri, sighting: Sighting, step: &mut Step) -> Option<Recomputed> {
        self.findings.forget_explanation(&uri);
        let trouble = self.troubles.forget(&uri, step);
        if trouble.as_ref().is_some_and(|trouble| trouble.reported) {
            let (path, uri) = (sighting.path.clone(), uri.clone());
            step.tell(Fact::Mended { path, uri });
        }
        self.remember_baseline(&uri, &sighting, trouble.as_ref());
        self.deletions.end(&uri);
        let before = self.catalog().shared(&uri);
        if before.is_none() {
            step.rows().others.insert(sighting.path.clone(), None);
        }
        let recomputed = sighting.recomputed(&uri, before.as_deref());
        let is_changed = recomputed.is_none() && sighting.is_changed(before.as_deref());
        let is_unread = self.catalog().is_unread(&uri);
        match before {
            Some(before) if !is_changed && !before.outdated && !is_unread => {
                self.documents.meet(uri, sighting, before, step);
            }
            before => self.put(&uri, sighting, before, is_changed, step),
        }
        recomputed
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
            swept: self.mounts.get(id).and_then(|mount| mount.row().swept),
            is_in_baseline: self.documents.is_in_baseline(uri),
        };
        self.documents.put(uri, sighting, &prior, &self.plan, step);
        if let Some(mount) = self.mounts.get_mut(id)
            && mount.hold_document()
        {
            step.rows().mounts.insert(id, Some(mount.row().clone()));
        }
    }

    /// R13: takes a document below ground that nobody looked at before as told, in the version that is read first; unless
    /// it could not be read before, or changed while the mount was swept.
    fn remember_baseline(&mut self, uri: &Uri, sighting: &Sighting, trouble: Option<&Trouble>) {
        let Some(mount) = self.mounts.get_mut(sighting.path.mount) else {
            return;
        };
        let predates = trouble.is_some_and(|trouble| trouble.predates);
        let is_baseline = mount.is_new_ground(&sighting.path.below) && !self.plan.announce_existing;
        let is_known = self.documents.catalog().get(uri).is_some();
        if !is_known && (is_baseline || predates) {
            let told = mount.baseline(uri, sighting, predates);
            self.documents.add_to_baseline(uri, told);
        }
    }

    /// R3: notes that a document cannot be read; it keeps its last good state.
    fn incomplete(
        &mut self,
        uri: Uri,
        path: DocumentPath,
        reason: &Incomplete,
        at: Timestamp,
        step: &mut Step,
    ) {
        let is_reachable = !matches!(reason, Incomplete::Denied(_));
        if self.deletions.is_found_unread(&uri, is_reachable) {
            self.documents.set_presence(&uri, Presence::Present, step);
        }
        let mount = self.mounts.get(path.mount);
        let is_baseline = mount.is_some_and(|mount| mount.is_new_ground(&path.below));
        let trouble = Trouble {
            path,
            since: at,
            reason: reason.to_string(),
            predates: is_baseline && self.catalog().get(&uri).is_none(),
            reported: false,
        };
        let wait = self.plan.broken_after;
        self.troubles.add(uri, trouble, wait, step);
    }

    /// Handles the end of the time for which a candidate may be broken untold.
    pub fn trouble_lasted(&mut self, uri: &Uri, step: &mut Step) {
        let is_known = self.catalog().is_there(uri);
        let wait = self.plan.broken_after;
        let fact = self.troubles.lasted(uri, is_known, wait, step.now());
        if let Some(fact) = fact {
            self.findings.broken_lasted(fact);
        }
    }

    /// Asks again what lies at a path that holds no document, where a Capability List names it.
    fn question(&self, uri: &Uri, path: &DocumentPath, step: &mut Step) {
        let catalog = self.catalog();
        if self.is_settled() && catalog.is_listed(uri) && !catalog.is_there(uri) {
            step.explain(path.clone());
        }
    }

    /// Takes in what lies at a path that holds no document.
    pub fn explain(&mut self, uri: Uri, cause: NoDocument, step: &mut Step) {
        let catalog = self.documents.catalog();
        if !catalog.is_there(&uri) {
            let wait = self.plan.broken_after;
            self.findings.explain(uri, cause, catalog, wait, step);
        }
    }

    // Mounts.

    /// Begins the sweep of a mount that was found.
    pub fn mount_found(
        &mut self,
        id: MountId,
        identity: Identity,
        started: Timestamp,
        step: &mut Step,
    ) {
        let state = self.mounts.get(id).map(|mount| mount.state());
        if state != Some(MountState::Unknown) {
            self.sight = Some(Sight::Lost);
            self.deletions.lose_sight(id, self.documents.catalog());
        }
        if let Some(mount) = self.mounts.get_mut(id) {
            mount.found(identity, started);
            step.rows().mounts.insert(id, Some(mount.row().clone()));
        }
    }

    /// Ends a complete sweep of a mount, which met so many candidates.
    pub fn mount_swept(&mut self, id: MountId, candidates: u64, step: &mut Step) {
        let root = self.mounts.get(id).map(|mount| mount.root(candidates));
        match root {
            None => return,
            Some(RootJudgement::Empty) => return self.reject_root(id, step),
            Some(RootJudgement::Replaced) => self.accept_root(id, step.now(), step),
            Some(RootJudgement::Known) => {}
        }
        let Some(mount) = self.mounts.get_mut(id) else {
            return;
        };
        if mount.swept(&self.plan.candidates, step.now()) {
            step.tell(Fact::Baselined {
                source: self.plan.name.clone(),
                mount: id,
                documents: self.documents.catalog().census().of(id).all.present,
            });
            self.documents.save_mount(id, step);
        }
        mount.settle_nested(&DocumentsBelow {
            mount: id,
            catalog: self.documents.catalog(),
            troubles: &self.troubles,
        });
        self.deletions.recount_away();
        step.rows().mounts.insert(id, Some(mount.row().clone()));
        for (uri, fingerprint) in mount.take_unclear() {
            self.documents.clear_up(&uri, fingerprint);
        }
        let grace = self.plan.deletion_grace;
        self.deletions.look_at_missing(
            Some(id),
            self.documents.catalog(),
            &self.mounts,
            grace,
            step,
        );
        let mut mounts = self.mounts.iter();
        if mounts.all(|(_, mount)| mount.state() == MountState::Ready) {
            self.sight = Some(Sight::Whole);
        }
    }

    /// R15: takes the mount to be absent whose root holds no candidate, and is not the one that held documents.
    fn reject_root(&mut self, id: MountId, step: &mut Step) {
        let mount = self.mounts.get_mut(id);
        if let Some(reason) = mount.and_then(|mount| mount.reject_root()) {
            step.tell(Fact::MountLost {
                source: self.plan.name.clone(),
                mount: id,
                reason,
            });
        }
    }

    /// R15: takes another root than the one that held documents for the mount, because it holds something.
    fn accept_root(&mut self, id: MountId, at: Timestamp, step: &mut Step) {
        let Some(mount) = self.mounts.get_mut(id) else {
            return;
        };
        let (unfound, was_absent) = mount.accept_root();
        step.rows().mounts.insert(id, Some(mount.row().clone()));
        for uri in unfound {
            self.vanished(&uri, at, FoundInstead::Nothing, step);
        }
        if was_absent {
            // What was not found while it was empty was not told.
            self.documents.look_at_mount(id, step);
        }
    }

    /// Notes that something lies below a root that may have been empty.
    fn occupied(&mut self, id: MountId, at: Timestamp, step: &mut Step) {
        let mount = self.mounts.get(id);
        let was_empty =
            mount.is_some_and(|mount| mount.state() == MountState::Absent && mount.is_doubtful());
        if was_empty {
            self.accept_root(id, at, step);
        }
    }

    /// Notes that a mount's root is not there, or cannot be read.
    pub fn mount_lost(&mut self, id: MountId, reason: String, step: &mut Step) {
        self.leave_mount(id, step);
        if let Some(mount) = self.mounts.get_mut(id) {
            mount.set_reason(reason.clone());
        }
        step.tell(Fact::MountLost {
            source: self.plan.name.clone(),
            mount: id,
            reason,
        });
    }

    /// Leaves a mount whose root is lost, or could not be swept to the end. R13: a baseline that was not finished is taken
    /// again, so nothing of it is kept.
    pub fn leave_mount(&mut self, id: MountId, step: &mut Step) {
        self.sight = Some(Sight::Lost);
        self.deletions.lose_sight(id, self.documents.catalog());
        let Some(mount) = self.mounts.get_mut(id) else {
            return;
        };
        mount.lost();
        if !mount.row().baselined {
            self.documents.forget_mount(id, step);
            self.troubles.forget_mount(id, step);
        }
    }

    /// Notes the file systems that begin below a mount's root. R15: what is missing with one that went was not deleted, and
    /// what is missing below one that came was not seen to be absent from it.
    pub fn set_nested(&mut self, id: MountId, found: Vec<NestedFileSystem>, step: &mut Step) {
        let Some(mount) = self.mounts.get_mut(id) else {
            return;
        };
        let changed = mount.find_nested(found);
        if changed.is_empty() {
            return;
        }
        step.rows().mounts.insert(id, Some(mount.row().clone()));
        let catalog = self.documents.catalog();
        self.deletions.lose_sight_below(id, &changed, catalog);
        if self.is_settled() {
            let grace = self.plan.deletion_grace;
            self.deletions
                .look_at_missing(Some(id), catalog, &self.mounts, grace, step);
        }
    }

    pub fn set_unreadable(&mut self, id: MountId, unreadable: UnreadableSample) {
        if let Some(mount) = self.mounts.get_mut(id) {
            mount.set_unreadable(unreadable);
        }
    }

    // Deletions (R15).

    /// Takes a document that is not there to be missing.
    fn vanished(&mut self, uri: &Uri, at: Timestamp, found: FoundInstead, step: &mut Step) {
        let vanishing = Vanishing { at, found };
        let grace = self.plan.deletion_grace;
        self.deletions
            .vanished(uri, vanishing, &mut self.documents, grace, step);
    }

    /// Asks for a look at each document whose grace has ended.
    pub fn end_graces(&mut self, step: &mut Step) {
        let grace = self.plan.deletion_grace;
        self.deletions
            .end_graces(self.documents.catalog(), &self.mounts, grace, step);
    }

    /// Decides about the deletions that this step's looks found, all of them first counted. While a mount is being swept,
    /// nobody knows how many are missing.
    pub fn judge_deletions(&mut self, step: &mut Step) -> Vec<Recomputed> {
        let vanished = self.deletions.take_vanished();
        if !self.is_settled() {
            return Vec::new();
        }
        self.judge_suspension(step);
        let grace = self.plan.deletion_grace;
        let mut recomputed = Vec::new();
        for (uri, successor) in vanished {
            let documents = &mut self.documents;
            if self
                .deletions
                .believe(&uri, documents, &self.mounts, grace, step)
                && let Some(successor) = successor
            {
                recomputed.extend(self.seen(uri, *successor, step));
            }
        }
        recomputed
    }

    /// Suspends deletions if too many documents are missing, and believes them again if not.
    pub fn judge_suspension(&mut self, step: &mut Step) {
        let catalog = self.documents.catalog();
        self.deletions
            .judge(&self.plan, catalog, &self.mounts, step);
    }

    /// Accepts as deleted what is missing now.
    pub fn accept(&mut self, step: &mut Step) {
        self.deletions
            .accept(&self.plan, &mut self.documents, &self.mounts, step);
    }

    // Settling: what follows from changes.

    /// R10: remembers the Source Descriptions that changed, for sets that are published together with them.
    pub fn remember_descriptions(&mut self, changes: &Changes, quiet: Duration, now: Timestamp) {
        let catalog = self.documents.catalog();
        self.descriptions.remember(changes, catalog, quiet, now);
    }

    /// R13: returns what a new account takes as told of a document: the version before the one that this step saw, or, of
    /// a Source Description, the one before the window's. Nothing for a document of a set that is new.
    pub fn starting_point(
        &self,
        uri: &Uri,
        is_known: bool,
        previous: &UriMap<Option<Version>>,
    ) -> Option<Told> {
        let record = self.catalog().get(uri)?;
        let is_waiting = matches!(record.hold, Hold::Waiting { .. });
        if !(is_known || record.is_source_description()) || is_waiting {
            return None;
        }
        let before = self.descriptions.before(uri).or(previous.get(uri));
        match before {
            Some(before) => before.map(Told::from),
            None if record.is_gone() => None,
            None => Some(record.version.into()),
        }
    }

    /// Lets the sets that lack a channel because of a topic that is free now have one (R8).
    pub fn offer_topics(&mut self, topics: &BTreeSet<Topic>) {
        let sets = self.findings.without_topic(topics).cloned();
        self.documents.reconsider_sets(sets);
    }

    // Findings (R8).

    /// Makes each document that a list names, and of which there is no file, a finding of its own.
    pub fn find_each(&mut self) {
        self.findings.find_each();
    }

    /// Looks for findings about what changed; adds to `affected` the lists that they are about.
    pub fn find(&mut self, affected: &mut BTreeSet<Uri>, changes: &Changes, step: &mut Step) {
        let catalog = self.documents.catalog();
        self.findings
            .follow(changes, affected, catalog, &self.plan, step);
    }

    /// Replaces the findings about a set's channel.
    pub fn find_about_channel(&mut self, set: &Uri, findings: Vec<Finding>, step: &mut Step) {
        let told_at = later(step.now(), self.plan.broken_after);
        self.findings
            .replace(set, findings, Finding::is_about_channel, told_at, step);
    }

    /// Replaces the findings about the entries of a Change List.
    pub fn find_about_entries(&mut self, list: &Uri, findings: Vec<Finding>, step: &mut Step) {
        let told_at = later(step.now(), self.plan.broken_after);
        self.findings
            .replace(list, findings, Finding::is_about_entries, told_at, step);
    }

    /// Marks the findings about a document or set that have lasted.
    pub fn findings_lasted(&mut self, uri: &Uri, step: &mut Step) {
        let catalog = self.documents.catalog();
        self.findings.lasted(uri, catalog, &self.plan, step);
    }

    /// Tells how many findings of a kind there were since they were summed up.
    pub fn tell_untold(&mut self, kind: &'static str, step: &mut Step) {
        self.findings.tell_untold(kind, &self.plan, step);
    }

    /// Tells the operator of findings and broken documents that have lasted.
    pub fn tell_lasting(&mut self, step: &mut Step) {
        let catalog = self.documents.catalog();
        self.findings.tell_lasting(catalog, &self.plan, step);
    }
}

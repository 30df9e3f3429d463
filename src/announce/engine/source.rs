//! One source: its documents as last seen complete, its mounts, what is missing of it, and what is wrong with it.

pub mod changes;
pub mod deletions;
pub mod descriptions;
pub mod findings;
pub mod mounts;
pub mod sighting;
pub mod troubles;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::catalog::Catalog;
use crate::announce::difference::{Permission, is_end_said};
use crate::announce::engine::source::changes::Changes;
use crate::announce::engine::source::deletions::Deletions;
use crate::announce::engine::source::descriptions::Descriptions;
use crate::announce::engine::source::findings::Findings;
use crate::announce::engine::source::mounts::{MountState, Mounts, Root, UnreadableDirectories};
use crate::announce::engine::source::sighting::{Recomputed, Seen, Sighting};
use crate::announce::engine::source::troubles::Troubles;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::{Fact, Suspension};
use crate::announce::finding::Finding;
use crate::announce::ledger::Ledger;
use crate::announce::observation::{
    DocumentPath, Identity, Incomplete, Look, MountId, NoDocument, Observation,
};
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Presence, Record, Told, Trouble, Version};
use crate::announce::time::{earlier, later};
use crate::resourcesync::document::Document;
use crate::resourcesync::uri::{Topic, Uri, UriMap, UriSet};

/// A list of more entries is not gone through again each time that one of them comes or goes, but a little later, once
/// for all of them.
const LARGE: usize = 1_000;

/// A source as the engine keeps it. What a look found goes in by [`Source::observe`]; what follows from it for channels is
/// gathered in `changes` until the source settles.
#[derive(Debug)]
pub struct Source {
    /// Its position in the plan.
    position: usize,
    catalog: Catalog,
    mounts: Mounts,
    troubles: Troubles,
    deletions: Deletions,
    findings: Findings,
    descriptions: Descriptions,
    changes: Changes,
    /// The number of times that anything was settled since the start.
    settled: u64,
}

impl Source {
    pub fn new(position: usize, configured_sets: BTreeSet<Uri>, mounts: Mounts) -> Source {
        Source {
            position,
            catalog: Catalog::new(configured_sets),
            mounts,
            troubles: Troubles::new(position),
            deletions: Deletions::default(),
            findings: Findings::new(position),
            descriptions: Descriptions::default(),
            changes: Changes::default(),
            settled: 0,
        }
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    pub fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    pub fn findings_mut(&mut self) -> &mut Findings {
        &mut self.findings
    }

    pub fn descriptions(&self) -> &Descriptions {
        &self.descriptions
    }

    /// Returns true if every present mount was swept to its end in this run.
    pub fn is_settled(&self) -> bool {
        self.mounts.are_settled()
    }

    /// Returns the number of times that anything was settled since the start.
    pub fn times_settled(&self) -> u64 {
        self.settled
    }

    /// Returns true if a document lies below a mount whose baseline is being taken (R13).
    pub fn is_before_baseline(&self, uri: &Uri) -> bool {
        let record = self.catalog.get(uri);
        let mount = record.and_then(|record| self.mounts.get(record.path.mount));
        mount.is_some_and(|mount| !mount.row().baselined)
    }

    /// Returns true if deletions are not believed for now (R15).
    pub fn is_suspended(&self) -> bool {
        self.deletions.are_suspended()
    }

    /// Returns the numbers of missing documents if they suspend deletions. `name` is the source's.
    pub fn suspension(&self, name: &str) -> Option<Suspension> {
        let census = self.catalog.census();
        self.deletions.suspension(name, census, &self.mounts)
    }

    // Taking up a stored state.

    /// Puts a stored document back.
    pub fn restore_document(
        &mut self,
        uri: Uri,
        mut record: Arc<Record>,
        hold: Duration,
        step: &mut Step,
    ) {
        if let Hold::Waiting { since } = &mut Arc::make_mut(&mut record).hold {
            // The clock may have gone back since.
            *since = (*since).min(step.now());
            let timer = Timer::Hold(self.position, uri.clone());
            step.wake_at(later(*since, hold), timer);
        }
        self.catalog.restore(uri, record);
    }

    /// Puts back a stored candidate that could not be read.
    pub fn restore_trouble(
        &mut self,
        uri: Uri,
        trouble: Trouble,
        plan: &SourcePlan,
        step: &mut Step,
    ) {
        self.troubles.restore(uri, trouble, plan.broken_after, step);
    }

    /// Continues what an engine with another plan has seen to be absent.
    pub fn inherit(&mut self, before: &Source, plan: &SourcePlan) {
        let missing = self.catalog.census().missing();
        self.deletions
            .inherit(&before.deletions, missing, plan.deletion_grace);
    }

    /// Moves all times as the clock was set back, except those of holds.
    pub fn set_back(&mut self, by: Duration) {
        self.troubles.set_back(by);
        self.descriptions.set_back(by);
    }

    /// Moves the beginning of a hold as the clock was set back.
    pub fn set_back_hold(&mut self, uri: &Uri, by: Duration) {
        if let Some(record) = self.catalog.get_mut(uri)
            && let Hold::Waiting { since } = &mut record.hold
        {
            *since = earlier(*since, by);
        }
    }

    // What looks found.

    /// Takes one look at a candidate (R3, R4).
    pub fn observe(
        &mut self,
        uri: Uri,
        observation: Observation,
        plan: &SourcePlan,
        step: &mut Step,
    ) -> Option<Recomputed> {
        let Observation { path, at, look } = observation;
        let uri = self.catalog.interned(uri);
        let told_at = later(at, plan.broken_after);
        self.findings.find_in_file(&uri, &look, told_at, step);
        let is_nothing = matches!(
            look,
            Look::Missing | Look::Incomplete(Incomplete::Denied(_))
        );
        if !is_nothing {
            self.occupied(path.mount, at, plan, step);
        }
        match look {
            Look::Document { parsed, stat } => {
                let sighting = Sighting {
                    path,
                    parsed: *parsed,
                    stat,
                    at,
                };
                if self.ends_aloud(&uri, &sighting.parsed.document, plan) {
                    self.vanished(&uri, at, true, Some(sighting), plan, step);
                    return None;
                }
                return self.seen(uri, sighting, plan, step);
            }
            Look::Other { stat, .. } => {
                self.vanished(&uri, at, true, None, plan, step);
                self.troubles.forget(&uri, step);
                self.question(&uri, &path, step);
                step.rows().others.insert(path, Some((stat, at)));
            }
            // R15: what is missing or out of reach with its mount was not deleted, nor found again.
            Look::Incomplete(_) | Look::Missing if self.mounts.is_absent(path.mount) => {}
            Look::Incomplete(reason) => {
                self.question(&uri, &path, step);
                self.incomplete(uri, path, &reason, at, plan, step);
            }
            Look::Missing => {
                self.troubles.forget(&uri, step);
                self.question(&uri, &path, step);
                let mount = self.mounts.get_mut(path.mount);
                if !mount.is_some_and(|mount| mount.note_unfound(&uri)) {
                    self.vanished(&uri, at, false, None, plan, step);
                }
                step.rows().others.insert(path, None);
            }
        }
        None
    }

    /// R14, R15: returns true if a look found another document in the place of one whose deletion is announced, so that it
    /// gets the grace of what is missing. An index of several Source Descriptions is no other document.
    fn ends_aloud(&self, uri: &Uri, found: &Document, plan: &SourcePlan) -> bool {
        let Some(before) = self.catalog.get(uri).filter(|record| !record.is_gone()) else {
            return false;
        };
        let (capability, form) = (before.version.capability, before.version.form);
        let is_same = (capability, form) == (found.capability, found.form);
        let is_index_of_it = before.is_source_description() && found.capability == capability;
        let permission = Permission {
            archived: before.relations.archived,
            all_deletions: plan.announce_all_deletions,
        };
        !is_same && !is_index_of_it && is_end_said(&before.version, permission)
    }

    /// Takes in a complete document.
    fn seen(
        &mut self,
        uri: Uri,
        sighting: Sighting,
        plan: &SourcePlan,
        step: &mut Step,
    ) -> Option<Recomputed> {
        self.findings.forget_explanation(&uri);
        let trouble = self.troubles.forget(&uri, step);
        if trouble.as_ref().is_some_and(|trouble| trouble.reported) {
            let (path, uri) = (sighting.path.clone(), uri.clone());
            step.tell(Fact::Mended { path, uri });
        }
        self.remember_baseline(&uri, &sighting, trouble.as_ref(), plan);
        let before = self.catalog.shared(&uri);
        if before.is_none() {
            step.rows().others.insert(sighting.path.clone(), None);
        }
        let recomputed = sighting.recomputed(&uri, before.as_deref());
        let is_changed = recomputed.is_none() && sighting.is_changed(before.as_deref());
        let is_unread = self.catalog.is_unread(&uri);
        match before {
            Some(before) if !is_changed && !before.outdated && !is_unread => {
                self.seen_again(uri, sighting, before, step);
            }
            before => self.put(uri, sighting, before, is_changed, plan, step),
        }
        recomputed
    }

    /// Takes in a document in the version that is known.
    fn seen_again(&mut self, uri: Uri, sighting: Sighting, before: Arc<Record>, step: &mut Step) {
        let Sighting { path, stat, at, .. } = sighting;
        let was_missing = before.is_missing();
        let is_worth_saving =
            before.stat != stat || before.is_racy() || was_missing || before.path != path;
        // Shared, it would be copied to be changed.
        drop(before);
        self.catalog.meet(&uri, path, stat, at);
        self.deletions.end(&uri);
        if was_missing {
            self.changes.changed.insert(uri.clone());
        }
        if is_worth_saving {
            step.save_document(self.position, uri);
        }
    }

    /// Takes in a document that is new, changed, or read for the first time in this run.
    fn put(
        &mut self,
        uri: Uri,
        sighting: Sighting,
        before: Option<Arc<Record>>,
        is_changed: bool,
        plan: &SourcePlan,
        step: &mut Step,
    ) {
        let before = before.as_deref();
        let previous = before.filter(|before| !before.is_gone());
        if is_changed {
            let previous = previous.map(|before| before.version);
            self.changes.version(&uri, previous);
        }
        self.deletions.end(&uri);
        let id = sighting.path.mount;
        let seen = Seen {
            before,
            is_changed,
            swept: self.mounts.get(id).and_then(|mount| mount.row().swept),
            is_in_baseline: self.changes.baseline.contains_key(&uri),
        };
        let (record, structure) = sighting.into_record(&seen, &self.catalog, plan);
        if record.is_capability_list() || before.is_some_and(Record::is_capability_list) {
            self.changes.sets.insert(uri.clone());
        }
        let touched = self.catalog.put(&uri, record, structure);
        self.changes.relations.extend(touched);
        step.save_document(self.position, uri);
        if let Some(mount) = self.mounts.get_mut(id)
            && mount.hold_document()
        {
            step.rows().mounts.insert(id, Some(mount.row().clone()));
        }
    }

    /// R13: takes a document below ground that nobody looked at before as told, in the version that is read first; unless
    /// it could not be read before, or changed while the mount was swept.
    fn remember_baseline(
        &mut self,
        uri: &Uri,
        sighting: &Sighting,
        trouble: Option<&Trouble>,
        plan: &SourcePlan,
    ) {
        let Some(mount) = self.mounts.get_mut(sighting.path.mount) else {
            return;
        };
        let predates = trouble.is_some_and(|trouble| trouble.predates);
        let is_baseline = mount.is_new_ground(&sighting.path.below) && !plan.announce_existing;
        if self.catalog.get(uri).is_some() || !(is_baseline || predates) {
            return;
        }
        let told = mount.baseline(uri, sighting, predates);
        self.changes.baseline.entry(uri.clone()).or_insert(told);
    }

    /// R3: notes that a document cannot be read; it keeps its last good state.
    fn incomplete(
        &mut self,
        uri: Uri,
        path: DocumentPath,
        reason: &Incomplete,
        at: Timestamp,
        plan: &SourcePlan,
        step: &mut Step,
    ) {
        let is_reachable = !matches!(reason, Incomplete::Denied(_));
        if self.deletions.is_found_unread(&uri, is_reachable) {
            self.catalog.set_presence(&uri, Presence::Present);
            self.changes.changed.insert(uri.clone());
            step.save_document(self.position, uri.clone());
        }
        let mount = self.mounts.get(path.mount);
        let is_baseline = mount.is_some_and(|mount| mount.is_new_ground(&path.below));
        let trouble = Trouble {
            path,
            since: at,
            reason: reason.to_string(),
            predates: is_baseline && self.catalog.get(&uri).is_none(),
            reported: false,
        };
        self.troubles.add(uri, trouble, plan.broken_after, step);
    }

    /// Handles the end of the time for which a candidate may be broken untold.
    pub fn trouble_lasted(&mut self, uri: &Uri, plan: &SourcePlan, step: &mut Step) {
        let is_known = self.catalog.is_there(uri);
        let wait = plan.broken_after;
        let fact = self.troubles.lasted(uri, is_known, wait, step.now());
        if let Some(fact) = fact {
            self.findings.broken_lasted(fact);
        }
    }

    /// Asks again what lies at a path that holds no document, where a Capability List names it.
    fn question(&self, uri: &Uri, path: &DocumentPath, step: &mut Step) {
        let catalog = &self.catalog;
        if self.is_settled() && catalog.is_listed(uri) && !catalog.is_there(uri) {
            step.explain(path.clone());
        }
    }

    /// Takes in what lies at a path that holds no document.
    pub fn explain(&mut self, uri: Uri, cause: NoDocument, plan: &SourcePlan, step: &mut Step) {
        if !self.catalog.is_there(&uri) {
            let wait = plan.broken_after;
            self.findings.explain(uri, cause, &self.catalog, wait, step);
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
            self.deletions.lose_sight(id, &self.catalog);
        }
        if let Some(mount) = self.mounts.get_mut(id) {
            mount.found(identity, started);
            step.rows().mounts.insert(id, Some(mount.row().clone()));
        }
    }

    /// Ends a complete sweep of a mount, which met so many candidates.
    pub fn mount_swept(
        &mut self,
        id: MountId,
        candidates: u64,
        plan: &SourcePlan,
        step: &mut Step,
    ) {
        let root = self.mounts.get(id).map(|mount| mount.root(candidates));
        match root {
            None => return,
            Some(Root::Empty) => return self.reject_root(id, plan, step),
            Some(Root::Replaced) => self.accept_root(id, step.now(), plan, step),
            Some(Root::Known) => {}
        }
        let Some(mount) = self.mounts.get_mut(id) else {
            return;
        };
        if mount.swept(&plan.candidates, step.now()) {
            step.tell(Fact::Baselined {
                source: plan.name.clone(),
                mount: id,
                documents: self.catalog.census().of(id).all.present,
            });
            let records = self.catalog.iter();
            let of_mount = records.filter(|(_, record)| record.path.mount == id);
            step.save_documents(self.position, of_mount.map(|(uri, _)| uri.clone()));
        }
        step.rows().mounts.insert(id, Some(mount.row().clone()));
        for (uri, fingerprint) in mount.take_unclear() {
            if let Some(told) = self.changes.baseline.get_mut(&uri) {
                told.fingerprint.get_or_insert(fingerprint);
            }
        }
        self.look_at_missing(Some(id), plan, step);
    }

    /// R15: takes the mount to be absent whose root holds no candidate, and is not the one that held documents.
    fn reject_root(&mut self, id: MountId, plan: &SourcePlan, step: &mut Step) {
        let mount = self.mounts.get_mut(id);
        if let Some(reason) = mount.and_then(|mount| mount.reject_root()) {
            step.tell(Fact::MountLost {
                source: plan.name.clone(),
                mount: id,
                reason,
            });
        }
    }

    /// R15: takes another root than the one that held documents for the mount, because it holds something.
    fn accept_root(&mut self, id: MountId, at: Timestamp, plan: &SourcePlan, step: &mut Step) {
        let Some(mount) = self.mounts.get_mut(id) else {
            return;
        };
        let (unfound, was_absent) = mount.accept_root();
        step.rows().mounts.insert(id, Some(mount.row().clone()));
        for uri in unfound {
            self.vanished(&uri, at, false, None, plan, step);
        }
        if was_absent {
            // What was not found while it was empty was not told.
            let records = self.catalog.iter().map(|(_, record)| record);
            let there = records.filter(|record| record.path.mount == id && !record.is_gone());
            there.for_each(|record| step.look_at(record.path.clone()));
        }
    }

    /// Notes that something lies below a root that may have been empty.
    fn occupied(&mut self, id: MountId, at: Timestamp, plan: &SourcePlan, step: &mut Step) {
        let mount = self.mounts.get(id);
        let was_empty =
            mount.is_some_and(|mount| mount.state() == MountState::Absent && mount.is_doubtful());
        if was_empty {
            self.accept_root(id, at, plan, step);
        }
    }

    /// Notes that a mount's root is not there, or cannot be read.
    pub fn mount_lost(&mut self, id: MountId, reason: String, plan: &SourcePlan, step: &mut Step) {
        self.leave_mount(id, step);
        if let Some(mount) = self.mounts.get_mut(id) {
            mount.set_reason(reason.clone());
        }
        step.tell(Fact::MountLost {
            source: plan.name.clone(),
            mount: id,
            reason,
        });
    }

    /// Leaves a mount whose root is lost, or could not be swept to the end. R13: a baseline that was not finished is taken
    /// again, so nothing of it is kept.
    pub fn leave_mount(&mut self, id: MountId, step: &mut Step) {
        self.deletions.lose_sight(id, &self.catalog);
        let Some(mount) = self.mounts.get_mut(id) else {
            return;
        };
        mount.lost();
        if mount.row().baselined {
            return;
        }
        let records = self.catalog.iter();
        let half_read = records.filter(|(_, record)| record.path.mount == id);
        let half_read: Vec<Uri> = half_read.map(|(uri, _)| uri.clone()).collect();
        for uri in half_read {
            self.catalog.remove(&uri);
            self.changes.baseline.remove(&uri);
            step.save_document(self.position, uri);
        }
        self.troubles.forget_mount(id, step);
    }

    pub fn set_unreadable(&mut self, id: MountId, unreadable: UnreadableDirectories) {
        if let Some(mount) = self.mounts.get_mut(id) {
            mount.set_unreadable(unreadable);
        }
    }

    // Deletions.

    /// R15: takes a document that is not there to be missing; it is deleted later. So is one whose path holds something
    /// else, such as its `successor`.
    fn vanished(
        &mut self,
        uri: &Uri,
        at: Timestamp,
        is_replaced: bool,
        successor: Option<Sighting>,
        plan: &SourcePlan,
        step: &mut Step,
    ) {
        let Some(record) = self.catalog.get(uri) else {
            return;
        };
        match record.presence {
            Presence::Gone { .. } => return,
            Presence::Missing { .. } => {}
            Presence::Present => {
                let missing = Presence::Missing {
                    since: at,
                    approved: false,
                };
                self.catalog.set_presence(uri, missing);
                self.changes.changed.insert(uri.clone());
                step.save_document(self.position, uri.clone());
            }
        }
        let (grace, now) = (plan.deletion_grace, step.monotonic());
        self.deletions
            .vanished(uri, is_replaced, successor, grace, now);
    }

    /// Returns the end of the first grace, by the monotonic clock.
    pub fn next_grace_end(&self) -> Option<Duration> {
        self.deletions.next_end()
    }

    /// Asks for a look at each document whose grace has ended.
    pub fn end_graces(&mut self, plan: &SourcePlan, step: &mut Step) {
        while let Some(uri) = self.deletions.take_ended(step.monotonic()) {
            let grace = plan.deletion_grace;
            self.deletions.verify(&uri, &self.catalog, grace, step);
        }
    }

    /// R15: decides about the deletions that this step's looks found, all of them first counted. While a mount is being
    /// swept, nobody knows how many are missing.
    pub fn judge_deletions(&mut self, plan: &SourcePlan, step: &mut Step) -> Vec<Recomputed> {
        let vanished = self.deletions.take_vanished();
        if !self.is_settled() {
            return Vec::new();
        }
        self.judge_suspension(plan, step);
        let mut recomputed = Vec::new();
        for (uri, successor) in vanished {
            let Some(record) = self.catalog.get(&uri) else {
                continue;
            };
            let Presence::Missing { since, approved } = record.presence else {
                continue;
            };
            let is_suspended = self.is_suspended() && !approved;
            let (grace, now) = (plan.deletion_grace, step.monotonic());
            if is_suspended || !self.deletions.is_grace_over(&uri, grace, now) {
                continue;
            }
            self.deleted(&uri, since, step);
            if let Some(successor) = successor {
                recomputed.extend(self.seen(uri, successor, plan, step));
            }
        }
        recomputed
    }

    /// Takes a document to be deleted.
    fn deleted(&mut self, uri: &Uri, since: Timestamp, step: &mut Step) {
        let Some(mut record) = self.catalog.get(uri).cloned() else {
            return;
        };
        self.deletions.end(uri);
        record.presence = Presence::Gone { since };
        if record.is_capability_list() {
            self.changes.sets.insert(uri.clone());
        }
        self.changes.version(uri, Some(record.version));
        let touched = self.catalog.put(uri, record, None);
        self.changes.relations.extend(touched);
        step.save_document(self.position, uri.clone());
    }

    /// Suspends deletions if too many documents are missing, and believes them again if not (R15).
    pub fn judge_suspension(&mut self, plan: &SourcePlan, step: &mut Step) {
        let census = self.catalog.census();
        let limit = plan.mass_deletion;
        if !self.deletions.judge(limit, census, &self.mounts) {
            return;
        }
        match self.suspension(&plan.name) {
            Some(suspension) => step.tell(Fact::Suspended(suspension)),
            None => {
                let source = plan.name.clone();
                step.tell(Fact::Resumed { source });
                self.look_at_missing(None, plan, step);
            }
        }
    }

    /// Asks for a look at what is missing, if its grace is over; and, below a mount that was swept just now, at what this
    /// run has not seen to be absent.
    fn look_at_missing(&mut self, swept: Option<MountId>, plan: &SourcePlan, step: &mut Step) {
        for uri in self.catalog.census().missing() {
            let path = self.catalog.get(uri).map(|record| &record.path);
            match path {
                Some(path) if Some(path.mount) == swept && !self.deletions.is_seen_absent(uri) => {
                    step.look_at(path.clone());
                }
                _ => {
                    let grace = plan.deletion_grace;
                    self.deletions.verify(uri, &self.catalog, grace, step);
                }
            }
        }
    }

    /// Returns the documents that an operator accepts as deleted if asked now: those that are missing, except below a
    /// mount that is away, where nobody can see what is missing.
    pub fn acceptable(&self) -> impl Iterator<Item = &Uri> {
        self.catalog.census().missing().iter().filter(|uri| {
            let record = self.catalog.get(uri);
            record.is_some_and(|record| !self.mounts.is_absent(record.path.mount))
        })
    }

    /// Accepts as deleted what is missing now. What goes missing later, or returns and goes missing again, is not
    /// accepted.
    pub fn accept(&mut self, plan: &SourcePlan, step: &mut Step) {
        let missing: Vec<Uri> = self.acceptable().cloned().collect();
        let documents = missing.len();
        for uri in missing {
            let presence = self.catalog.get(&uri).map(|record| record.presence);
            if let Some(Presence::Missing { since, .. }) = presence {
                let accepted = Presence::Missing {
                    since,
                    approved: true,
                };
                self.catalog.set_presence(&uri, accepted);
                step.save_document(self.position, uri);
            }
        }
        if documents > 0 {
            step.tell(Fact::Accepted {
                source: plan.name.clone(),
                documents,
            });
        }
        self.look_at_missing(None, plan, step);
    }

    // Settling: what follows from changes.

    /// Takes what changed since the source last settled; nothing if nothing did. The first time, that is all there is.
    pub fn take_changes(&mut self) -> Option<Changes> {
        let is_first = self.settled == 0;
        if !is_first && self.changes.is_empty() {
            return None;
        }
        self.settled += 1;
        let mut changes = std::mem::take(&mut self.changes);
        if is_first {
            changes.relations = self.catalog.iter().map(|(uri, _)| uri.clone()).collect();
            changes.sets.extend(self.catalog.sets());
        }
        Some(changes)
    }

    /// Resolves the relations of these documents, and returns those whose relations changed with them (R5, R7).
    pub fn relate(&mut self, uris: &BTreeSet<Uri>, step: &mut Step) -> BTreeSet<Uri> {
        let rerouted = self.catalog.resolve(uris);
        step.save_documents(self.position, rerouted.iter().cloned());
        rerouted
    }

    /// R10: remembers the Source Descriptions that changed, for sets that are published together with them.
    pub fn remember_descriptions(&mut self, changes: &Changes, quiet: Duration, now: Timestamp) {
        self.descriptions
            .remember(changes, &self.catalog, quiet, now);
    }

    /// R13: returns what a new account takes as told of a document: the version before the one that this step saw, or, of
    /// a Source Description, the one before the window's. Nothing for a document of a set that is new.
    pub fn starting_point(
        &self,
        uri: &Uri,
        is_known: bool,
        previous: &UriMap<Option<Version>>,
    ) -> Option<Told> {
        let record = self.catalog.get(uri)?;
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

    /// Looks for findings about what changed: those of large lists a little later (R8).
    pub fn find(
        &mut self,
        affected: &mut BTreeSet<Uri>,
        changes: &Changes,
        plan: &SourcePlan,
        step: &mut Step,
    ) {
        let catalog = &self.catalog;
        // A list may name a document that came or went.
        let came_or_went = changes
            .previous
            .iter()
            .filter(|(uri, before)| before.is_some() != catalog.is_there(uri));
        let listers = came_or_went.flat_map(|(uri, _)| catalog.listers(uri));
        let listers: UriSet = listers.map(|(lister, _)| lister.clone()).collect();
        let is_large = |uri: &Uri| {
            let structure = catalog.structure(uri);
            structure.is_some_and(|structure| structure.members.len() > LARGE)
        };
        let (large, others): (BTreeSet<Uri>, BTreeSet<Uri>) =
            listers.into_iter().partition(is_large);
        affected.extend(others);
        self.findings
            .find_later(large, affected, plan.broken_after, step);
        self.findings
            .find(affected, &changes.changed, catalog, plan, step);
    }

    /// Replaces the findings about a set's channel.
    pub fn find_about_channel(
        &mut self,
        set: &Uri,
        findings: Vec<Finding>,
        plan: &SourcePlan,
        step: &mut Step,
    ) {
        let told_at = later(step.now(), plan.broken_after);
        self.findings
            .replace(set, findings, Finding::is_about_channel, told_at, step);
    }

    /// Replaces the findings about the entries of a Change List.
    pub fn find_about_entries(
        &mut self,
        list: &Uri,
        findings: Vec<Finding>,
        plan: &SourcePlan,
        step: &mut Step,
    ) {
        let told_at = later(step.now(), plan.broken_after);
        self.findings
            .replace(list, findings, Finding::is_about_entries, told_at, step);
    }

    /// Marks the findings about a document or set that have lasted.
    pub fn findings_lasted(&mut self, uri: &Uri, plan: &SourcePlan, step: &mut Step) {
        self.findings.lasted(uri, &self.catalog, plan, step);
    }

    /// Tells the operator of findings and broken documents that have lasted.
    pub fn tell_lasting(&mut self, plan: &SourcePlan, step: &mut Step) {
        self.findings.tell_lasting(&self.catalog, plan, step);
    }

    /// Lets the sets that lack a channel because of a topic that is free now have one (R8).
    pub fn offer_topics(&mut self, topics: &BTreeSet<Topic>) {
        let sets = self.findings.without_topic(topics).cloned();
        self.changes.sets.extend(sets);
    }

    /// Looks again at what is due of the deleted documents of an account that ended: they may be owed to nobody any more.
    pub fn account_ended(&mut self, ledger: &Ledger) {
        let uris = ledger.told.keys().chain(ledger.owed());
        let is_gone = |uri: &&Uri| self.catalog.get(uri).is_some_and(Record::is_gone);
        let gone = uris.filter(is_gone).cloned();
        self.changes.relations.extend(gone);
    }

    /// Looks again at what is due of documents.
    pub fn reconsider(&mut self, uris: impl IntoIterator<Item = Uri>) {
        self.changes.relations.extend(uris);
    }

    /// Begins or ends the hold of a document, as some hub is held or none is (R17).
    pub fn set_held(&mut self, uri: &Uri, is_held: bool, hold: Duration, step: &mut Step) {
        let Some(record) = self.catalog.get(uri) else {
            return;
        };
        let becomes = match (is_held, record.hold) {
            (true, Hold::Free) => Hold::Waiting { since: step.now() },
            (false, Hold::Waiting { .. }) => Hold::Free,
            _ => return,
        };
        if is_held {
            step.wake_after(hold, Timer::Hold(self.position, uri.clone()));
        }
        self.set_hold(uri, becomes);
        step.save_document(self.position, uri.clone());
    }

    fn set_hold(&mut self, uri: &Uri, hold: Hold) {
        if let Some(record) = self.catalog.get_mut(uri) {
            record.hold = hold;
        }
    }

    /// Ends a hold that has lasted: the change is announced although nothing lists the document (R17).
    pub fn hold_expires(&mut self, uri: &Uri, hold: Duration, step: &mut Step) {
        let Some(record) = self.catalog.get(uri) else {
            return;
        };
        let Hold::Waiting { since } = record.hold else {
            return;
        };
        if later(since, hold) > step.now() {
            return;
        }
        if record.is_missing() {
            // What is gone is not announced; if it comes back, it may be listed by then.
            let again = hold.max(Duration::from_secs(1));
            step.wake_after(again, Timer::Hold(self.position, uri.clone()));
            return;
        }
        let set = record.relations.sets.first().cloned();
        self.set_hold(uri, Hold::Expired);
        self.changes.changed.insert(uri.clone());
        step.save_document(self.position, uri.clone());
        step.tell(Fact::HoldExpired {
            uri: uri.clone(),
            set,
        });
    }

    /// Lets no document wait that did not wait when it was stored: where nobody reads the tree, nobody knows what lists it
    /// (R17).
    pub fn expire_free_holds(&mut self) {
        let free = self.catalog.iter();
        let free = free.filter(|(_, record)| record.hold == Hold::Free);
        let free: Vec<Uri> = free.map(|(uri, _)| uri.clone()).collect();
        for uri in free {
            self.set_hold(&uri, Hold::Expired);
        }
    }

    /// Notes that some hub is told of a set, so that it is new no more (R13).
    pub fn is_told_of(&mut self, set: &Uri, step: &mut Step) {
        if !self.is_new_set(set) {
            return;
        }
        if let Some(record) = self.catalog.get_mut(set) {
            record.is_new_set = false;
            step.save_document(self.position, set.clone());
        }
    }

    /// Returns true if a set came after the baseline and no hub was told of it yet (R13).
    pub fn is_new_set(&self, set: &Uri) -> bool {
        let record = self.catalog.get(set);
        record.is_some_and(|record| record.is_new_set)
    }

    /// Forgets a deleted document of which nothing is owed to any hub.
    pub fn forget(&mut self, uri: &Uri, step: &mut Step) {
        self.catalog.remove(uri);
        step.save_document(self.position, uri.clone());
    }
}

//! The documents of a source as last seen complete, and what changed of them (R3, R13, R17).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::uri::Uri;

use crate::announce::catalog::Catalog;
use crate::announce::engine::source::changes::Changes;
use crate::announce::engine::source::sighting::{Prior, Sighting};
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::ledger::Ledger;
use crate::announce::observation::MountId;
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Presence, Record, Told};
use crate::announce::time::later;

/// The documents of one source, and what changed of them since the source last settled.
///
/// A record changes only here, so that each change is saved, and gathered for the next time that the source settles.
/// Observations reach it through the tree, which also updates its other parts.
#[derive(Debug)]
pub struct Documents {
    /// The position of the source in the plan.
    source: usize,
    catalog: Catalog,
    changes: Changes,
    /// The number of times that changes were taken since the start.
    revision: u64,
}

impl Documents {
    pub fn new(source: usize, configured_sets: BTreeSet<Uri>) -> Documents {
        Documents {
            source,
            catalog: Catalog::new(configured_sets),
            changes: Changes::default(),
            revision: 0,
        }
    }

    /// Returns the position of the source in the plan.
    pub fn source(&self) -> usize {
        self.source
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns true if something changed since changes were taken last.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Returns the number of times that changes were taken since the start.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Puts a stored document back.
    pub fn restore(&mut self, uri: Uri, record: Arc<Record>, hold: Duration, step: &mut Step) {
        if let Hold::Waiting { since } = record.hold {
            let timer = Timer::Hold(self.source, uri.clone());
            step.wake_at(later(since, hold), timer);
        }
        self.catalog.restore(uri, record);
    }

    // Complete documents.

    /// Takes in a document in the version that is known.
    pub(super) fn meet(
        &mut self,
        uri: Uri,
        sighting: Sighting,
        before: Arc<Record>,
        step: &mut Step,
    ) {
        let Sighting { path, stat, at, .. } = sighting;
        let was_missing = before.is_missing();
        let is_worth_saving =
            before.stat != stat || before.is_racy() || was_missing || before.path != path;
        // Shared, it would be copied to be changed.
        drop(before);
        self.catalog.meet(&uri, path, stat, at);
        if was_missing {
            self.changes.changed.insert(uri.clone());
        }
        if is_worth_saving {
            self.save(&uri, step);
        }
    }

    /// Takes in a document that is new, changed, or read for the first time in this run.
    pub(super) fn put(
        &mut self,
        uri: &Uri,
        sighting: Sighting,
        prior: &Prior<'_>,
        plan: &SourcePlan,
        step: &mut Step,
    ) {
        let before = prior.before;
        if prior.is_changed {
            let previous = before.filter(|before| !before.is_gone());
            let previous = previous.map(|before| before.version);
            self.changes.version(uri, previous);
        }
        let (record, structure) = sighting.into_record(prior, &self.catalog, plan);
        if record.is_capability_list() || before.is_some_and(Record::is_capability_list) {
            self.changes.sets.insert(uri.clone());
        }
        let touched = self.catalog.put(uri, record, structure);
        self.reconsider(touched);
        self.save(uri, step);
    }

    /// R13: takes the version of a document that is read first as told.
    pub(super) fn add_to_baseline(&mut self, uri: &Uri, told: Told) {
        self.changes.baseline.entry(uri.clone()).or_insert(told);
    }

    /// R13: lets the content of a document in the baseline, which was unclear, count as told.
    pub(super) fn clear_up(&mut self, uri: &Uri, fingerprint: Fingerprint) {
        if let Some(told) = self.changes.baseline.get_mut(uri) {
            told.fingerprint.get_or_insert(fingerprint);
        }
    }

    /// Returns true if the version of a document that was read first counts as told (R13).
    pub(super) fn is_in_baseline(&self, uri: &Uri) -> bool {
        self.changes.baseline.contains_key(uri)
    }

    // Presence.

    /// Takes a document to be missing, or to be there after all.
    pub(super) fn set_presence(&mut self, uri: &Uri, presence: Presence, step: &mut Step) {
        self.catalog.set_presence(uri, presence);
        self.changes.changed.insert(uri.clone());
        self.save(uri, step);
    }

    /// Notes that an operator accepts as deleted what is missing.
    pub(super) fn approve_deletion(&mut self, uri: &Uri, step: &mut Step) {
        let presence = self.catalog.get(uri).map(|record| record.presence);
        if let Some(Presence::Missing { since, .. }) = presence {
            let approved = Presence::Missing {
                since,
                approved: true,
            };
            self.catalog.set_presence(uri, approved);
            self.save(uri, step);
        }
    }

    /// Takes a document to be deleted.
    pub(super) fn delete(&mut self, uri: &Uri, since: Timestamp, step: &mut Step) {
        let Some(mut record) = self.catalog.get(uri).cloned() else {
            return;
        };
        record.presence = Presence::Gone { since };
        if record.is_capability_list() {
            self.changes.sets.insert(uri.clone());
        }
        self.changes.version(uri, Some(record.version));
        let touched = self.catalog.put(uri, record, None);
        self.reconsider(touched);
        self.save(uri, step);
    }

    /// Forgets a deleted document of which nothing is owed to any hub.
    pub fn forget(&mut self, uri: &Uri, step: &mut Step) {
        self.catalog.remove(uri);
        self.save(uri, step);
    }

    // Mounts.

    /// Saves the documents of a mount, whose baseline is complete.
    pub(super) fn save_mount(&self, mount: MountId, step: &mut Step) {
        let documents = self.of_mount(mount).map(|(uri, _)| uri.clone());
        step.save_documents(self.source, documents);
    }

    /// Forgets the documents of a mount whose baseline was not finished.
    pub(super) fn forget_mount(&mut self, mount: MountId, step: &mut Step) {
        let half_read: Vec<Uri> = self.of_mount(mount).map(|(uri, _)| uri.clone()).collect();
        for uri in half_read {
            self.changes.baseline.remove(&uri);
            self.forget(&uri, step);
        }
    }

    /// Asks for a look at each document of a mount.
    pub(super) fn look_at_mount(&self, mount: MountId, step: &mut Step) {
        let records = self.of_mount(mount).map(|(_, record)| record);
        let there = records.filter(|record| !record.is_gone());
        there.for_each(|record| step.look_at(record.path.clone()));
    }

    fn of_mount(&self, mount: MountId) -> impl Iterator<Item = (&Uri, &Record)> {
        let documents = self.catalog.iter();
        documents.filter(move |(_, record)| record.path.mount == mount)
    }

    // Holds (R17).

    /// Begins or ends the hold of a document, as some hub is held or none is.
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
            step.wake_after(hold, Timer::Hold(self.source, uri.clone()));
        }
        self.set_hold(uri, becomes);
        self.save(uri, step);
    }

    fn set_hold(&mut self, uri: &Uri, hold: Hold) {
        if let Some(record) = self.catalog.get_mut(uri) {
            record.hold = hold;
        }
    }

    /// Ends a hold that has lasted: the change is announced although nothing lists the document.
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
            // A missing document is not announced; if it comes back, it may be listed by then.
            let again = hold.max(Duration::from_secs(1));
            step.wake_after(again, Timer::Hold(self.source, uri.clone()));
            return;
        }
        let set = record.relations.sets.first().cloned();
        self.set_hold(uri, Hold::Expired);
        self.changes.changed.insert(uri.clone());
        self.save(uri, step);
        step.tell(Fact::HoldExpired {
            uri: uri.clone(),
            set,
        });
    }

    /// Exempts documents that are not held from being held: where the tree is not swept, nobody knows what lists them.
    pub fn expire_free_holds(&mut self) {
        let free = self.catalog.iter();
        let free = free.filter(|(_, record)| record.hold == Hold::Free);
        let free: Vec<Uri> = free.map(|(uri, _)| uri.clone()).collect();
        for uri in free {
            self.set_hold(&uri, Hold::Expired);
        }
    }

    // New sets (R13).

    /// Returns true if a set came after the baseline and no hub was told of it yet.
    pub fn is_new_set(&self, set: &Uri) -> bool {
        let record = self.catalog.get(set);
        record.is_some_and(|record| record.is_new_set)
    }

    /// Notes that some hub is told of a set, so that it is new no more.
    pub fn is_told_of(&mut self, set: &Uri, step: &mut Step) {
        if !self.is_new_set(set) {
            return;
        }
        if let Some(record) = self.catalog.get_mut(set) {
            record.is_new_set = false;
            self.save(set, step);
        }
    }

    // Settling.

    /// Takes what changed since the source last settled; nothing if nothing did. The first time, that is all there is.
    pub fn take_changes(&mut self) -> Option<Changes> {
        let is_first = self.revision == 0;
        if !is_first && self.changes.is_empty() {
            return None;
        }
        self.revision += 1;
        let mut changes = std::mem::take(&mut self.changes);
        if is_first {
            changes.relations = self.catalog.iter().map(|(uri, _)| uri.clone()).collect();
            changes.sets.extend(self.catalog.sets());
        }
        Some(changes)
    }

    /// Resolves relations, and returns the documents of which another change may be due (R5, R7).
    pub fn relate(&mut self, changes: &mut Changes, step: &mut Step) -> BTreeSet<Uri> {
        let affected = std::mem::take(&mut changes.relations).into_iter();
        let mut affected: BTreeSet<Uri> = affected.collect();
        let mut rerouted = self.catalog.resolve(&affected);
        step.save_documents(self.source, rerouted.iter().cloned());
        affected.append(&mut rerouted);
        affected.append(&mut changes.changed.iter().cloned().collect());
        affected
    }

    /// Looks again at the relations of documents, and at what is due of them, when the source settles; the first time, it
    /// looks at all.
    pub fn reconsider(&mut self, uris: impl IntoIterator<Item = Uri>) {
        if self.revision > 0 {
            self.changes.relations.extend(uris);
        }
    }

    /// Looks again at what is due of the deleted documents of an account that ended: they may be owed to nobody any more.
    pub fn account_ended(&mut self, ledger: &Ledger) {
        if self.revision == 0 {
            return;
        }
        let uris = ledger.told.keys().chain(ledger.owed());
        let is_gone = |uri: &&Uri| self.catalog.get(uri).is_some_and(Record::is_gone);
        let gone = uris.filter(is_gone).cloned();
        self.changes.relations.extend(gone);
    }

    /// Looks again at which channels these sets should have.
    pub(super) fn reconsider_sets(&mut self, sets: impl IntoIterator<Item = Uri>) {
        self.changes.sets.extend(sets);
    }

    fn save(&self, uri: &Uri, step: &mut Step) {
        step.save_document(self.source, uri.clone());
    }
}

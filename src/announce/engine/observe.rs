//! What a look at the tree changes: documents, deletions, troubles, mounts.

use std::time::Duration;

use jiff::Timestamp;

use crate::announce::catalog::Structure;
use crate::announce::channel::later;
use crate::announce::engine::source::MountStatus;
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::observation::{
    DocumentPath, Identity, Incomplete, Look, MountId, Observation, Stat,
};
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Presence, Record, Relations, Told, Trouble, Version};
use crate::resourcesync::document::{Document, Parsed};
use crate::resourcesync::fingerprint::Fingerprint;
use crate::resourcesync::uri::Uri;

/// How long an unanswered look at a missing document is waited for.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// git's racy rule (R4): a file changed so shortly before it was read may have changed again unseen.
const RACY: Duration = Duration::from_secs(2);

impl Engine {
    pub(super) fn observe(&mut self, observation: Observation) {
        let Observation { path, at, look } = observation;
        let Some(uri) = self.plan.uri_of(&path) else {
            return;
        };
        let Some(source) = self.source_of(path.mount) else {
            return;
        };
        let mount = self.sources[source].mounts.get(&path.mount);
        let is_absent = mount.is_none_or(|mount| mount.status == MountStatus::Absent);
        match look {
            Look::Document { parsed, stat } => self.seen(source, uri, path, *parsed, stat, at),
            Look::Other { stat, .. } => {
                self.vanished(source, &uri, at);
                self.forget_trouble(source, &uri);
                self.turn.save.others.insert(path, Some((stat, at)));
            }
            Look::Incomplete(reason) => self.incomplete(source, uri, path, &reason, at),
            // R15: what is missing with its mount was not deleted.
            Look::Missing if is_absent => {}
            Look::Missing => {
                self.vanished(source, &uri, at);
                self.forget_trouble(source, &uri);
                self.turn.save.others.insert(path, None);
            }
        }
    }

    fn seen(
        &mut self,
        source: usize,
        uri: Uri,
        path: DocumentPath,
        parsed: Parsed,
        stat: Stat,
        at: Timestamp,
    ) {
        let trouble = self.forget_trouble(source, &uri);
        if trouble.as_ref().is_some_and(|trouble| trouble.reported) {
            let (path, uri) = (path.clone(), uri.clone());
            self.tell(Fact::Mended { path, uri });
        }
        self.remember_baseline(source, &uri, path.mount, &parsed, stat, trouble.as_ref());
        let state = &mut self.sources[source];
        let version = Version {
            capability: parsed.document.capability,
            form: parsed.document.form,
            fingerprint: parsed.fingerprint,
        };
        let before = state.catalog.get(&uri).cloned();
        if before.is_none() {
            self.turn.save.others.insert(path.clone(), None);
        }
        let is_changed = match &before {
            Some(before) if before.outdated && before.stat == stat => {
                let fingerprint = before.version.fingerprint;
                self.replace_fingerprint(&uri, fingerprint, version);
                false
            }
            Some(before) => before.is_gone() || before.version != version,
            None => true,
        };
        let state = &mut self.sources[source];
        let plan = &self.plan.sources[source];
        if let Some(before) = &before
            && !is_changed
            && !state.catalog.is_unread(&uri)
            && !before.outdated
        {
            let was_racy = later(before.stat.changed, RACY) >= before.looked;
            let was_missing = before.is_missing();
            let is_worth_saving =
                before.stat != stat || was_racy || was_missing || before.path != path;
            if let Some(record) = state.catalog.get_mut(&uri) {
                record.path = path;
                record.stat = stat;
                record.looked = at;
                record.presence = Presence::Present;
            }
            if is_worth_saving {
                self.turn.documents.insert((source, uri));
            }
            return;
        }
        let previous = before.as_ref().filter(|before| !before.is_gone());
        if is_changed {
            state
                .stale
                .previous
                .entry(uri.clone())
                .or_insert(previous.map(|before| before.version));
            state.stale.changed.insert(uri.clone());
        }
        let last_look = state
            .mounts
            .get(&path.mount)
            .and_then(|mount| mount.row.swept)
            .max(previous.map(|before| before.looked));
        let (document, structure) = resolve_aliases(parsed.document, plan);
        let named_index_form = document
            .index
            .as_ref()
            .and_then(|index| state.catalog.get(index))
            .filter(|index| !index.is_gone())
            .map(|index| index.version.form);
        let newly_indexed = match previous {
            None => false,
            Some(before) if !is_changed => before.newly_indexed,
            Some(before) => {
                let changed_form = before.named_index_form.is_some()
                    && named_index_form.is_some()
                    && before.named_index_form != named_index_form;
                // A generator may write a component several times before it writes the index.
                let still_waits =
                    before.newly_indexed && matches!(before.hold, Hold::Waiting { .. });
                let is_named = document.index.is_some();
                is_named && (document.index != before.named_index || changed_form || still_waits)
            }
        };
        let record = Record {
            path,
            stat,
            version,
            outdated: false,
            up: document.up,
            named_index: document.index,
            named_index_form,
            newly_indexed,
            changed: match (&before, is_changed) {
                (Some(before), false) => before.changed,
                _ => moment(stat.modified, last_look, at),
            },
            looked: at,
            presence: Presence::Present,
            hold: previous.map_or(Hold::Free, |before| before.hold),
            relations: before
                .as_ref()
                .map_or_else(Relations::default, |before| before.relations.clone()),
        };
        let is_set =
            record.is_capability_list() || before.as_ref().is_some_and(Record::is_capability_list);
        let mount = record.path.mount;
        let touched = state.catalog.put(&uri, record, structure);
        state.stale.relations.extend(touched);
        if is_set {
            state.stale.sets.insert(uri.clone());
        }
        self.turn.documents.insert((source, uri));
        self.hold_a_document(source, mount);
    }

    /// R13: what a mount without a baseline holds counts as told, unless it changed while it was swept.
    fn remember_baseline(
        &mut self,
        source: usize,
        uri: &Uri,
        mount: MountId,
        parsed: &Parsed,
        stat: Stat,
        trouble: Option<&Trouble>,
    ) {
        let state = &mut self.sources[source];
        let Some(mount) = state.mounts.get(&mount) else {
            return;
        };
        let predates = trouble.is_some_and(|trouble| trouble.predates);
        let is_baseline = !mount.row.baselined && !self.plan.sources[source].announce_existing;
        if state.catalog.get(uri).is_some() || !(is_baseline || predates) {
            return;
        }
        let is_known = is_baseline && !predates && stat.changed < mount.started;
        let told = Told {
            capability: parsed.document.capability,
            form: parsed.document.form,
            fingerprint: is_known.then_some(parsed.fingerprint),
        };
        state.stale.baseline.entry(uri.clone()).or_insert(told);
    }

    fn hold_a_document(&mut self, source: usize, id: MountId) {
        if let Some(mount) = self.sources[source].mounts.get_mut(&id)
            && !mount.row.held_document
        {
            mount.row.held_document = true;
            self.turn.save.mounts.insert(id, Some(mount.row.clone()));
        }
    }

    /// After an upgrade that changed how fingerprints are computed, in silence.
    fn replace_fingerprint(&mut self, uri: &Uri, before: Fingerprint, version: Version) {
        for id in self.heard.get(uri).into_iter().flatten() {
            let Some(channel) = self.channels.get_mut(id) else {
                continue;
            };
            for (hub, ledger) in &mut channel.ledgers {
                let is_outdated = |told: &&mut Told| told.fingerprint == Some(before);
                if let Some(told) = ledger.told.get_mut(uri).filter(is_outdated) {
                    told.fingerprint = Some(version.fingerprint);
                    self.turn.told.insert((*id, hub.clone(), uri.clone()));
                }
                let covers = ledger
                    .row
                    .flight
                    .iter_mut()
                    .flat_map(|flight| &mut flight.covers);
                let flying = covers.filter(|(covered, _)| covered == uri);
                for told in flying
                    .filter_map(|(_, told)| told.as_mut())
                    .filter(is_outdated)
                {
                    told.fingerprint = Some(version.fingerprint);
                    self.turn.ledgers.insert((*id, hub.clone()));
                }
            }
        }
    }

    /// R3: a document that cannot be read keeps its last good state.
    fn incomplete(
        &mut self,
        source: usize,
        uri: Uri,
        path: DocumentPath,
        reason: &Incomplete,
        at: Timestamp,
    ) {
        let state = &mut self.sources[source];
        if let Some(record) = state.catalog.get_mut(&uri)
            && record.is_missing()
        {
            record.presence = Presence::Present;
            self.turn.documents.insert((source, uri.clone()));
        }
        let is_baseline = state
            .mounts
            .get(&path.mount)
            .is_some_and(|mount| !mount.row.baselined);
        let predates = is_baseline && state.catalog.get(&uri).is_none();
        if let Some(trouble) = state.troubles.get_mut(&uri) {
            trouble.reason = reason.to_string();
            return;
        }
        let trouble = Trouble {
            path,
            since: at,
            reason: reason.to_string(),
            predates,
            reported: false,
        };
        state.troubles.insert(uri.clone(), trouble);
        if predates {
            self.turn.troubles.insert((source, uri.clone()));
        }
        let reported_at = later(at, self.plan.sources[source].broken_after);
        self.wake_at(reported_at, Timer::Broken(source, uri));
    }

    pub(super) fn report_broken(&mut self, source: usize, uri: &Uri, now: Timestamp) {
        let broken_after = self.plan.sources[source].broken_after;
        let Some(trouble) = self.sources[source].troubles.get_mut(uri) else {
            return;
        };
        if trouble.reported || later(trouble.since, broken_after) > now {
            return;
        }
        trouble.reported = true;
        let fact = Fact::Broken {
            path: trouble.path.clone(),
            uri: uri.clone(),
            reason: trouble.reason.clone(),
        };
        self.tell(fact);
    }

    fn forget_trouble(&mut self, source: usize, uri: &Uri) -> Option<Trouble> {
        let trouble = self.sources[source].troubles.remove(uri)?;
        if trouble.predates {
            self.turn.troubles.insert((source, uri.clone()));
        }
        Some(trouble)
    }

    /// R15: a document that is not there is missing first, and deleted later.
    fn vanished(&mut self, source: usize, uri: &Uri, at: Timestamp) {
        let Some(record) = self.sources[source].catalog.get_mut(uri) else {
            return;
        };
        match record.presence {
            Presence::Gone { .. } => return,
            Presence::Missing { .. } => {}
            Presence::Present => {
                record.presence = Presence::Missing {
                    since: at,
                    approved: false,
                };
                self.turn.documents.insert((source, uri.clone()));
                let grace_ends = later(at, self.plan.sources[source].deletion_grace);
                self.wake_at(grace_ends, Timer::Grace(source, uri.clone()));
            }
        }
        self.turn.vanished.insert((source, uri.clone()));
    }

    /// A deletion is believed only by a look after the grace, so this asks for one.
    pub(super) fn grace_ends(&mut self, source: usize, uri: &Uri, now: Timestamp) {
        let state = &self.sources[source];
        let Some(record) = state.catalog.get(uri) else {
            return;
        };
        let Presence::Missing { since, approved } = record.presence else {
            return;
        };
        let grace_ends = later(since, self.plan.sources[source].deletion_grace);
        if grace_ends > now || (state.suspended && !approved) {
            return;
        }
        self.turn.look.insert(record.path.clone());
        self.wake_at(later(now, LOOK_AGAIN), Timer::Grace(source, uri.clone()));
    }

    /// R15: decides about the deletions that this turn's looks found, all of them first counted.
    pub(super) fn judge_deletions(&mut self, source: usize, now: Timestamp) {
        let vanished: Vec<Uri> = self
            .turn
            .vanished
            .iter()
            .filter(|(own, _)| *own == source)
            .map(|(_, uri)| uri.clone())
            .collect();
        if vanished.is_empty() && !self.sources[source].suspended {
            return;
        }
        self.turn.vanished.retain(|(own, _)| *own != source);
        self.judge_suspension(source, now);
        let grace = self.plan.sources[source].deletion_grace;
        let state = &mut self.sources[source];
        for uri in vanished {
            let Some(record) = state.catalog.get(&uri) else {
                continue;
            };
            let Presence::Missing { since, approved } = record.presence else {
                continue;
            };
            if later(since, grace) > now || (state.suspended && !approved) {
                continue;
            }
            let mut record = record.clone();
            record.presence = Presence::Gone { since };
            if record.is_capability_list() {
                state.stale.sets.insert(uri.clone());
            }
            state
                .stale
                .previous
                .entry(uri.clone())
                .or_insert(Some(record.version));
            state.stale.changed.insert(uri.clone());
            let touched = state.catalog.put(&uri, record, None);
            state.stale.relations.extend(touched);
            self.turn.documents.insert((source, uri));
        }
    }

    fn judge_suspension(&mut self, source: usize, now: Timestamp) {
        let name = self.plan.sources[source].name.clone();
        let limit = self.plan.sources[source].mass_deletion;
        let state = &mut self.sources[source];
        match (state.mass_deletion(limit), state.suspended) {
            (Some((missing, of)), false) => {
                state.suspended = true;
                self.tell(Fact::Suspended {
                    source: name,
                    missing,
                    of,
                });
            }
            (None, true) => {
                state.suspended = false;
                self.tell(Fact::Resumed { source: name });
                self.look_at_missing(source, now);
            }
            _ => {}
        }
    }

    fn look_at_missing(&mut self, source: usize, now: Timestamp) {
        let missing: Vec<Uri> = self.sources[source]
            .catalog
            .iter()
            .filter(|(_, record)| record.is_missing())
            .map(|(uri, _)| uri.clone())
            .collect();
        for uri in missing {
            self.grace_ends(source, &uri, now);
        }
    }

    /// The operator believes what is missing now.
    pub(super) fn accept(&mut self, name: &str, now: Timestamp) {
        let Some(source) = self.plan.sources.iter().position(|own| own.name == name) else {
            return;
        };
        let missing: Vec<Uri> = self.sources[source]
            .catalog
            .iter()
            .filter(|(_, record)| record.is_missing())
            .map(|(uri, _)| uri.clone())
            .collect();
        for uri in &missing {
            if let Some(record) = self.sources[source].catalog.get_mut(uri)
                && let Presence::Missing { since, .. } = record.presence
            {
                record.presence = Presence::Missing {
                    since,
                    approved: true,
                };
                self.turn.documents.insert((source, uri.clone()));
            }
        }
        self.look_at_missing(source, now);
    }

    pub(super) fn mount_found(&mut self, id: MountId, identity: Identity, started: Timestamp) {
        let Some(source) = self.source_of(id) else {
            return;
        };
        let Some(mount) = self.sources[source].mounts.get_mut(&id) else {
            return;
        };
        // R13: another directory at this place is another tree, unless the first one held documents.
        if mount.row.identity != Some(identity) && !mount.row.held_document {
            mount.row.baselined = false;
        }
        mount.row.identity = Some(identity);
        mount.status = MountStatus::Sweeping;
        mount.started = started;
        self.turn.save.mounts.insert(id, Some(mount.row.clone()));
    }

    pub(super) fn mount_lost(&mut self, id: MountId, reason: String) {
        let Some(source) = self.source_of(id) else {
            return;
        };
        self.leave_mount(source, id);
        let source = self.plan.sources[source].name.clone();
        self.tell(Fact::MountLost {
            source,
            mount: id,
            reason,
        });
    }

    /// R13: a baseline that was not finished is taken again, so nothing of it is kept.
    fn leave_mount(&mut self, source: usize, id: MountId) {
        let state = &mut self.sources[source];
        let Some(mount) = state.mounts.get_mut(&id) else {
            return;
        };
        mount.status = MountStatus::Absent;
        if mount.row.baselined {
            return;
        }
        let own = |(_, record): &(&Uri, &Record)| record.path.mount == id;
        let half_read: Vec<Uri> = state
            .catalog
            .iter()
            .filter(own)
            .map(|(uri, _)| uri.clone())
            .collect();
        for uri in half_read {
            state.catalog.remove(&uri);
            state.stale.baseline.remove(&uri);
            self.turn.documents.insert((source, uri));
        }
    }

    pub(super) fn swept(&mut self, id: MountId, complete: bool, now: Timestamp) {
        let Some(source) = self.source_of(id) else {
            return;
        };
        let name = self.plan.sources[source].name.clone();
        let state = &mut self.sources[source];
        let documents = state
            .catalog
            .iter()
            .filter(|(_, record)| record.path.mount == id)
            .count();
        if !complete {
            return self.leave_mount(source, id);
        }
        let Some(mount) = state.mounts.get_mut(&id) else {
            return;
        };
        mount.status = MountStatus::Ready;
        mount.row.swept = Some(if mount.row.swept.is_none() {
            mount.started
        } else {
            now
        });
        if !mount.row.baselined {
            mount.row.baselined = true;
            self.turn.facts.push(Fact::Baselined {
                source: name,
                mount: id,
                documents,
            });
        }
        self.turn.save.mounts.insert(id, Some(mount.row.clone()));
    }
}

/// R19: the file's own time where it lies between the last look and now, else the time of the look.
fn moment(modified: Timestamp, last_look: Option<Timestamp>, at: Timestamp) -> Timestamp {
    match last_look {
        Some(last_look) if last_look <= modified && modified <= at => modified,
        _ => at,
    }
}

/// The document with every URI as we know it (R1), and its entries if it is structural.
fn resolve_aliases(mut document: Document, plan: &SourcePlan) -> (Document, Option<Structure>) {
    document.up = document.up.map(|uri| plan.canonical(&uri));
    document.index = document.index.map(|uri| plan.canonical(&uri));
    let structure = document.is_structural().then(|| {
        let mut members: Vec<Uri> = document
            .members
            .iter()
            .map(|uri| plan.canonical(uri))
            .collect();
        members.sort();
        members.dedup();
        Structure {
            capability: document.capability,
            form: document.form,
            members,
            channels: std::mem::take(&mut document.channels),
        }
    });
    (document, structure)
}

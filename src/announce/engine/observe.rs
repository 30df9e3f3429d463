//! What a look at the tree changes: the documents, as last seen complete (R3, R4).

use std::time::Duration;

use jiff::Timestamp;

use crate::announce::catalog::Structure;
use crate::announce::difference::{Permission, is_end_said};
use crate::announce::engine::Engine;
use crate::announce::event::Fact;
use crate::announce::observation::{DocumentPath, Incomplete, Look, MountId, Observation, Stat};
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Presence, Record, Relations, Told, Version};
use crate::announce::time::later;
use crate::resourcesync::capability::Capability;
use crate::resourcesync::document::{Document, Form, Parsed};
use crate::resourcesync::fingerprint::Fingerprint;
use crate::resourcesync::uri::Uri;

/// git's racy rule (R4): a file changed so shortly before it was read may have changed again unseen.
const RACY: Duration = Duration::from_secs(2);

/// A document as a look found it.
#[derive(Debug)]
pub(super) struct Sighting {
    pub(super) path: DocumentPath,
    pub(super) parsed: Parsed,
    pub(super) stat: Stat,
    pub(super) at: Timestamp,
}

impl Engine {
    pub(super) fn observe(&mut self, observation: Observation) {
        let Observation { path, at, look } = observation;
        let Some(uri) = self.plan.uri_of(&path) else {
            return;
        };
        let Some(source) = self.source_of(path.mount) else {
            return;
        };
        let uri = self.sources[source].catalog.interned(uri);
        self.find_in_file(source, &uri, &look, at);
        if !matches!(
            look,
            Look::Missing | Look::Incomplete(Incomplete::Denied(_))
        ) {
            self.occupied(source, path.mount, at);
        }
        let is_absent = self.sources[source].is_absent(path.mount);
        match look {
            Look::Document { parsed, stat } => {
                let sighting = Sighting {
                    path,
                    parsed: *parsed,
                    stat,
                    at,
                };
                match self.ends_aloud(source, &uri, &sighting.parsed.document) {
                    true => self.vanished(source, &uri, at, true, Some(sighting)),
                    false => self.seen(source, uri, sighting),
                }
            }
            Look::Other { stat, .. } => {
                self.vanished(source, &uri, at, true, None);
                self.forget_trouble(source, &uri);
                self.question(source, &uri, &path);
                self.turn.save.others.insert(path, Some((stat, at)));
            }
            // R15: what is missing or out of reach with its mount was not deleted, nor found again.
            Look::Incomplete(_) | Look::Missing if is_absent => {}
            Look::Incomplete(reason) => {
                self.question(source, &uri, &path);
                self.incomplete(source, uri, path, &reason, at);
            }
            Look::Missing => {
                self.forget_trouble(source, &uri);
                self.question(source, &uri, &path);
                let mount = self.sources[source].mounts.get_mut(&path.mount);
                match mount.filter(|mount| mount.is_doubtful()) {
                    Some(mount) => drop(mount.unfound.insert(uri)),
                    None => self.vanished(source, &uri, at, false, None),
                }
                self.turn.save.others.insert(path, None);
            }
        }
    }

    /// R14, R15: whether a look found another document in the place of one whose deletion would be said, so that it gets
    /// the grace of what is missing. An index of several Source Descriptions is no other document.
    fn ends_aloud(&self, source: usize, uri: &Uri, found: &Document) -> bool {
        let catalog = &self.sources[source].catalog;
        let Some(before) = catalog.get(uri).filter(|record| !record.is_gone()) else {
            return false;
        };
        let (capability, form) = (before.version.capability, before.version.form);
        let is_same = (capability, form) == (found.capability, found.form);
        let is_index_of_it =
            before.is_source_description() && found.capability == Capability::SourceDescription;
        let permission = Permission {
            archived: before.relations.archived,
            all_deletions: self.plan.sources[source].announce_all_deletions,
        };
        !is_same && !is_index_of_it && is_end_said(&before.version, permission)
    }

    pub(super) fn seen(&mut self, source: usize, uri: Uri, sighting: Sighting) {
        self.sources[source].explained.remove(&uri);
        let trouble = self.forget_trouble(source, &uri);
        if trouble.as_ref().is_some_and(|trouble| trouble.reported) {
            let (path, uri) = (sighting.path.clone(), uri.clone());
            self.tell(Fact::Mended { path, uri });
        }
        self.remember_baseline(source, &uri, &sighting, trouble.as_ref());
        let Sighting {
            path,
            parsed,
            stat,
            at,
        } = sighting;
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
            state.catalog.meet(&uri, path, stat, at);
            state.away.remove(&uri);
            if was_missing {
                state.stale.changed.insert(uri.clone());
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
        state.away.remove(&uri);
        let record = Record {
            path,
            stat,
            version,
            outdated: false,
            up: document.up.map(|up| state.catalog.interned(up)),
            named_index: document.index.map(|index| state.catalog.interned(index)),
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
            is_new_set: match previous.filter(|before| before.is_capability_list()) {
                Some(before) => before.is_new_set,
                None => is_set(&version) && !state.stale.baseline.contains_key(&uri),
            },
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
}

/// Whether it is a Capability List.
fn is_set(version: &Version) -> bool {
    (version.capability, version.form) == (Capability::CapabilityList, Form::List)
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

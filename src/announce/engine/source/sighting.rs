//! A document as a look found it, and the record that it becomes (R4, R17, R19).

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::document::{Document, Form, Parsed};
use resourcesync::uri::Uri;

use crate::announce::catalog::{Catalog, Structure};
use crate::announce::difference::{Permission, is_end_said};
use crate::announce::observation::{DocumentPath, Stat};
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Presence, Record, Version};

/// A complete document, as a look found it.
#[derive(Debug)]
pub struct Sighting {
    pub path: DocumentPath,
    pub parsed: Parsed,
    pub stat: Stat,
    pub at: Timestamp,
}

/// The facts that were known of a document that is sighted.
#[derive(Debug)]
pub struct Prior<'a> {
    pub before: Option<&'a Record>,
    /// True if this is another version.
    pub is_changed: bool,
    /// The last complete sweep of its mount.
    pub swept: Option<Timestamp>,
    /// True if it was there before anybody looked (R13).
    pub is_in_baseline: bool,
}

impl Sighting {
    fn version(&self) -> Version {
        Version {
            capability: self.parsed.document.capability,
            form: self.parsed.document.form,
            fingerprint: self.parsed.fingerprint,
        }
    }

    /// Returns true if this is another version than the one before, or there was none.
    pub fn is_changed(&self, before: Option<&Record>) -> bool {
        before.is_none_or(|before| before.is_gone() || before.version != self.version())
    }

    /// R14, R15: returns true if it lies in the place of another document whose deletion is announced, so that that one gets
    /// the grace of what is missing. An index of several Source Descriptions is no other document.
    pub fn ends_aloud(&self, before: &Record, plan: &SourcePlan) -> bool {
        if before.is_gone() {
            return false;
        }
        // An index of Source Descriptions may be known to hubs as the Source Description that it was.
        let form = match before.version.capability {
            Capability::SourceDescription => Form::List,
            _ => before.version.form,
        };
        let ended = Version {
            form,
            ..before.version
        };
        let found = self.version();
        let is_description = found.capability == Capability::SourceDescription;
        let is_same =
            found.capability == ended.capability && (is_description || found.form == ended.form);
        let permission = Permission {
            archived: before.relations.archived,
            all_deletions: plan.announce_all_deletions,
        };
        !is_same && is_end_said(&ended, permission)
    }

    /// Makes a record, with the entries if the document is structural.
    pub fn into_record(
        self,
        prior: &Prior<'_>,
        catalog: &Catalog,
        plan: &SourcePlan,
    ) -> (Record, Option<Structure>) {
        let version = self.version();
        let Sighting {
            path,
            parsed,
            stat,
            at,
        } = self;
        let previous = prior.before.filter(|before| !before.is_gone());
        let (document, structure) = resolve_aliases(parsed.document, plan);
        let index = document.index.as_ref().and_then(|uri| catalog.get(uri));
        let index = index.filter(|index| !index.is_gone());
        let named_index_form = index.map(|index| index.version.form);
        let last_look = prior.swept.max(previous.map(|before| before.looked));
        let relations = prior.before.map(|before| before.relations.clone());
        let record = Record {
            path,
            stat,
            version,
            newly_indexed: is_newly_indexed(
                previous,
                prior.is_changed,
                &document,
                named_index_form,
            ),
            named_index_form,
            up: document.up.map(|up| catalog.interned(up)),
            named_index: document.index.map(|index| catalog.interned(index)),
            changed: match (prior.before, prior.is_changed) {
                (Some(before), false) => before.changed,
                _ => moment(stat.modified, last_look, at),
            },
            looked: at,
            presence: Presence::Present,
            hold: previous.map_or(Hold::Free, |before| before.hold),
            relations: relations.unwrap_or_default(),
            is_new_set: match previous.filter(|before| before.is_capability_list()) {
                Some(before) => before.is_new_set,
                None => is_set(&version) && !prior.is_in_baseline,
            },
        };
        (record, structure)
    }
}

// R17.
fn is_newly_indexed(
    previous: Option<&Record>,
    is_changed: bool,
    document: &Document,
    named_index_form: Option<Form>,
) -> bool {
    let Some(before) = previous else {
        return false;
    };
    if !is_changed {
        return before.newly_indexed;
    }
    let changed_form = before.named_index_form.is_some()
        && named_index_form.is_some()
        && before.named_index_form != named_index_form;
    // A generator may write a component several times before it writes the index.
    let still_waits = before.newly_indexed && matches!(before.hold, Hold::Waiting { .. });
    let is_other = document.index != before.named_index;
    document.index.is_some() && (is_other || changed_form || still_waits)
}

/// Returns true for a Capability List.
fn is_set(version: &Version) -> bool {
    (version.capability, version.form) == (Capability::CapabilityList, Form::List)
}

/// R19: returns the file's own time where it lies between the last look and now, else the time of the look.
fn moment(modified: Timestamp, last_look: Option<Timestamp>, at: Timestamp) -> Timestamp {
    match last_look {
        Some(last_look) if last_look <= modified && modified <= at => modified,
        _ => at,
    }
}

/// Returns the document with every URI as we know it (R1), and its entries if it is structural.
fn resolve_aliases(mut document: Document, plan: &SourcePlan) -> (Document, Option<Structure>) {
    document.up = document.up.map(|uri| plan.canonical(&uri));
    document.index = document.index.map(|uri| plan.canonical(&uri));
    let structure = document.is_structural().then(|| {
        let members = document.members.iter();
        let mut members: Vec<Uri> = members.map(|uri| plan.canonical(uri)).collect();
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

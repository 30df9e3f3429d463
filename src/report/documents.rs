//! Every document of the trees with its state, and why it is not announced.

use std::collections::{BTreeSet, HashSet};

use foldhash::fast::FixedState;
use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::uri::{Topic, Uri};

use crate::announce::channel::Channel;
use crate::announce::engine::Engine;
use crate::announce::engine::source::Source;
use crate::announce::observation::{DocumentPath, Stat};
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Presence, Record, Version};

/// A document, or a candidate that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentView {
    pub source: String,
    pub uri: Uri,
    pub path: DocumentPath,
    /// Nothing for a candidate that was never read.
    pub kind: Option<(Capability, Form)>,
    pub index: Option<Uri>,
    pub sets: BTreeSet<Uri>,
    pub channels: BTreeSet<Topic>,
    /// Changes that were taken of a Change List on a change channel.
    pub changes: Option<TakenChanges>,
    pub state: DocumentState,
    pub reason: Option<String>,
}

/// The entries of a Change List, and those of them that were taken to be told, or that count as such (C10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenChanges {
    /// In the version that was read for them last.
    pub listed: usize,
    pub taken: usize,
    /// The version that is there now, if not all of it was taken.
    pub unread: Option<Stat>,
}

/// The state of a document, as `scan` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DocumentState {
    Announced,
    Pending,
    Held,
    Missing,
    Broken,
    /// No hub is told of it: it belongs to no set, or to one without a channel or without a configured hub.
    Unrouted,
    Archived,
    Silent,
    New,
}

impl DocumentState {
    pub const ALL: [DocumentState; 9] = [
        DocumentState::Announced,
        DocumentState::Pending,
        DocumentState::Held,
        DocumentState::Missing,
        DocumentState::Broken,
        DocumentState::Unrouted,
        DocumentState::Archived,
        DocumentState::Silent,
        DocumentState::New,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            DocumentState::Announced => "announced",
            DocumentState::Pending => "pending",
            DocumentState::Held => "held",
            DocumentState::Missing => "missing",
            DocumentState::Broken => "broken",
            DocumentState::Unrouted => "unrouted",
            DocumentState::Archived => "archived",
            DocumentState::Silent => "silent",
            DocumentState::New => "new",
        }
    }
}

/// Returns every document of every source, in order of their URIs.
pub fn all(engine: &Engine) -> Vec<DocumentView> {
    let mut documents = Vec::new();
    for (source, plan) in engine.sources().iter().zip(&engine.plan().sources) {
        let told = ToldSets::of(engine, &plan.name);
        for (uri, record) in source.catalog().iter() {
            let trouble = source.tree.troubles().get(uri);
            let (state, reason) = match trouble {
                Some(trouble) => (DocumentState::Broken, Some(trouble.reason.clone())),
                None if record.is_missing() => {
                    (DocumentState::Missing, Some(absence(source, plan, record)))
                }
                None => state_of(engine, uri, record, &told),
            };
            documents.push(DocumentView {
                source: plan.name.clone(),
                uri: uri.clone(),
                path: record.path.clone(),
                kind: Some((record.version.capability, record.version.form)),
                index: source.catalog().announced_index(record),
                sets: record.relations.sets.iter().cloned().collect(),
                channels: topics(engine, &plan.name, record),
                changes: taken_changes(engine, uri, record),
                state,
                reason,
            });
        }
        let unread = source.tree.troubles().iter();
        let unread = unread.filter(|(uri, _)| source.catalog().get(uri).is_none());
        documents.extend(unread.map(|(uri, trouble)| DocumentView {
            source: plan.name.clone(),
            uri: uri.clone(),
            path: trouble.path.clone(),
            kind: None,
            index: None,
            sets: BTreeSet::new(),
            channels: BTreeSet::new(),
            changes: None,
            state: DocumentState::Broken,
            reason: Some(trouble.reason.clone()),
        }));
    }
    documents.sort_by(|one, other| one.uri.cmp(&other.uri));
    documents
}

/// Returns how much of a Change List was taken; of several sets, for the one that has taken least.
fn taken_changes(engine: &Engine, uri: &Uri, record: &Record) -> Option<TakenChanges> {
    let Version {
        capability,
        form,
        fingerprint,
    } = record.version;
    if (capability, form) != (Capability::ChangeList, Form::List) || record.is_gone() {
        return None;
    }
    let sets = record.relations.sets.iter();
    let sets = sets.filter_map(|set| engine.change_sets().get(set));
    let changes = sets.filter(|set| set.learning().is_complete()).map(|set| {
        let row = set.lists().row(uri).copied().unwrap_or_default();
        let is_unread = !set.lists().has_taken(uri, fingerprint);
        TakenChanges {
            listed: row.listed,
            taken: row.taken,
            unread: is_unread.then_some(record.stat),
        }
    });
    changes.min_by_key(|changes| changes.taken)
}

/// Returns the topics of the channels that a document is announced on.
fn topics(engine: &Engine, source: &str, record: &Record) -> BTreeSet<Topic> {
    let channels = engine.channels().iter().map(|(_, channel)| channel);
    let channels = channels.filter(|channel| is_told_on(channel, source));
    let concerned = channels.filter(|channel| {
        record.is_source_description() || record.relations.sets.contains(&channel.row.set)
    });
    concerned.map(|channel| channel.row.topic.clone()).collect()
}

/// Returns the state of a document that can be read, with the reason.
fn state_of(
    engine: &Engine,
    uri: &Uri,
    record: &Record,
    told: &ToldSets<'_>,
) -> (DocumentState, Option<String>) {
    let ledgers = engine
        .channels()
        .that_heard(uri)
        .flat_map(|channel| &channel.ledgers);
    let due = ledgers.filter(|(_, ledger)| ledger.due.contains(uri));
    let hubs: BTreeSet<&str> = due.map(|(hub, _)| hub.as_str()).collect();
    if !hubs.is_empty() {
        let what = match record.is_gone() {
            true => "deletion",
            false => "change",
        };
        let hubs = hubs.into_iter().collect::<Vec<_>>().join(" ");
        let reason = format!("its {what} is due to {hubs}");
        return (DocumentState::Pending, Some(reason));
    }
    let state = state_alone(record, told);
    let reason = match (state, record.hold) {
        (DocumentState::Held, Hold::Waiting { since }) => Some(format!(
            "has waited since {since:.0} for a document that lists it"
        )),
        (DocumentState::Silent, _) => Some(match record.version.capability.is_manifest() {
            true => "manifests are not announced".to_owned(),
            false => "indexes are not announced".to_owned(),
        }),
        (DocumentState::Archived, _) => Some("listed by an archive only".to_owned()),
        (DocumentState::Unrouted, _) => Some(told.why_not(record).to_owned()),
        _ => None,
    };
    (state, reason)
}

/// Returns true for a channel that announces documents of a source.
fn is_told_on(channel: &Channel, source: &str) -> bool {
    channel.is_live() && !channel.is_of_changes() && channel.row.source == source
}

/// The sets of a source that have a channel, and those of them that some hub is told of.
#[derive(Debug, Default)]
pub struct ToldSets<'a> {
    with_channel: HashSet<&'a Uri, FixedState>,
    with_hub: HashSet<&'a Uri, FixedState>,
}

impl<'a> ToldSets<'a> {
    /// Returns those of a source.
    pub fn of(engine: &'a Engine, source: &str) -> ToldSets<'a> {
        let channels = engine.channels().iter().map(|(_, channel)| channel);
        let mut sets = ToldSets::default();
        for channel in channels.filter(|channel| is_told_on(channel, source)) {
            sets.with_channel.insert(&channel.row.set);
            if !channel.ledgers.is_empty() {
                sets.with_hub.insert(&channel.row.set);
            }
        }
        sets
    }

    /// Returns true if some hub is told of a document (R10).
    fn has(&self, record: &Record) -> bool {
        match record.version.capability {
            Capability::SourceDescription => !self.with_hub.is_empty(),
            _ => record
                .relations
                .sets
                .iter()
                .any(|set| self.with_hub.contains(set)),
        }
    }

    /// Returns why no hub is told of a document.
    fn why_not(&self, record: &Record) -> &'static str {
        let sets = &record.relations.sets;
        let has_channel = sets.iter().any(|set| self.with_channel.contains(set));
        match record.version.capability {
            Capability::SourceDescription if self.with_channel.is_empty() => {
                "no set has a channel, so it is not announced"
            }
            Capability::SourceDescription => {
                "no channel has a configured hub, so it is not announced"
            }
            _ if sets.is_empty() => "belongs to no set of resources",
            _ if has_channel => "its channel has no configured hub, so it is not announced",
            _ => "its set has no channel, so it is not announced",
        }
    }
}

/// Returns the state of a document by itself, whatever hubs are due of it.
pub fn state_alone(record: &Record, told: &ToldSets<'_>) -> DocumentState {
    let Version {
        capability, form, ..
    } = record.version;
    if record.is_missing() {
        DocumentState::Missing
    } else if matches!(record.hold, Hold::Waiting { .. }) {
        DocumentState::Held
    } else if capability.is_manifest() || form == Form::Index {
        DocumentState::Silent
    } else if record.relations.archived {
        DocumentState::Archived
    } else if told.has(record) {
        DocumentState::Announced
    } else {
        DocumentState::Unrouted
    }
}

/// Returns since when a document is missing, and if its deletion is accepted or suspended (R15).
fn absence(source: &Source, plan: &SourcePlan, record: &Record) -> String {
    let Presence::Missing { since, approved } = record.presence else {
        return String::new();
    };
    let belief = match (approved, source.tree.is_deletion_suspended(record)) {
        (true, _) => ", accepted as deleted".to_owned(),
        (false, true) => format!(", suspended until `rsnotify accept {}`", plan.name),
        (false, false) => String::new(),
    };
    format!("not found since {since:.0}{belief}")
}

//! What an operator may see: every document's state, every source's, and what is wrong.

use std::collections::{BTreeSet, HashSet};

use foldhash::fast::FixedState;

use crate::announce::engine::Engine;
use crate::announce::engine::source::{MountState, Source};
use crate::announce::event::Suspension;
use crate::announce::observation::{DocumentPath, Unreadable};
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Presence, Record, Version};
use crate::report::figures::Holdings;
use crate::report::status::Condition;
use crate::report::summary::Summary;
use crate::resourcesync::capability::Capability;
use crate::resourcesync::document::Form;
use crate::resourcesync::uri::{Topic, Uri};

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
    pub state: DocumentState,
    pub reason: Option<String>,
}

/// Where a document stands, as `scan` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DocumentState {
    Announced,
    Pending,
    Held,
    Missing,
    Broken,
    /// No hub is told of it: it belongs to no set, or to one without a channel or without a hub of ours.
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

/// A source and its mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceView {
    pub name: String,
    /// Whether every present mount was swept.
    pub settled: bool,
    /// Why deletions are not believed, while they are not (R15).
    pub suspension: Option<Suspension>,
    pub documents: usize,
    pub missing: usize,
    pub broken: usize,
    pub mounts: Vec<MountView>,
    pub holdings: Holdings,
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountView {
    pub directory: std::path::PathBuf,
    pub prefix: Uri,
    /// Nothing while nobody has looked.
    pub present: Option<bool>,
    /// The first directories in it that may not be read, and how many more.
    pub unreadable: Vec<Unreadable>,
    pub more_unreadable: usize,
    /// Why it is not.
    pub reason: Option<String>,
}

impl Engine {
    /// Every document of every source, in order of their URIs.
    pub fn documents(&self) -> Vec<DocumentView> {
        let mut documents = Vec::new();
        for (source, plan) in self.sources.iter().zip(&self.plan.sources) {
            let hearing = self.hearing(&plan.name);
            for (uri, record) in source.catalog.iter() {
                let trouble = source.troubles.get(uri);
                let (state, reason) = match trouble {
                    Some(trouble) => (DocumentState::Broken, Some(trouble.reason.clone())),
                    None if record.is_missing() => {
                        (DocumentState::Missing, Some(absence(source, plan, record)))
                    }
                    None => self.state_of(uri, record, &hearing),
                };
                documents.push(DocumentView {
                    source: plan.name.clone(),
                    uri: uri.clone(),
                    path: record.path.clone(),
                    kind: Some((record.version.capability, record.version.form)),
                    index: record.relations.index.clone(),
                    sets: record.relations.sets.iter().cloned().collect(),
                    channels: self.topics_of(plan.name.as_str(), record),
                    state,
                    reason,
                });
            }
            let unread = source
                .troubles
                .iter()
                .filter(|(uri, _)| source.catalog.get(uri).is_none());
            documents.extend(unread.map(|(uri, trouble)| DocumentView {
                source: plan.name.clone(),
                uri: uri.clone(),
                path: trouble.path.clone(),
                kind: None,
                index: None,
                sets: BTreeSet::new(),
                channels: BTreeSet::new(),
                state: DocumentState::Broken,
                reason: Some(trouble.reason.clone()),
            }));
        }
        documents.sort_by(|one, other| one.uri.cmp(&other.uri));
        documents
    }

    fn topics_of(&self, source: &str, record: &Record) -> BTreeSet<Topic> {
        self.channels
            .values()
            .filter(|channel| channel.is_live() && channel.row.source == source)
            .filter(|channel| {
                record.is_source_description() || record.relations.sets.contains(&channel.row.set)
            })
            .map(|channel| channel.row.topic.clone())
            .collect()
    }

    /// The sets of a source on whose channels some hub is told.
    fn hearing(&self, source: &str) -> Hearing<'_> {
        let channels = self.channels.values();
        let of_source = channels.filter(|own| own.is_live() && own.row.source == source);
        let mut hearing = Hearing::default();
        for channel in of_source {
            hearing.with_channel.insert(&channel.row.set);
            if !channel.ledgers.is_empty() {
                hearing.with_hub.insert(&channel.row.set);
            }
        }
        hearing
    }

    fn state_of(
        &self,
        uri: &Uri,
        record: &Record,
        hearing: &Hearing<'_>,
    ) -> (DocumentState, Option<String>) {
        let due: Vec<&str> = self
            .heard
            .get(uri)
            .into_iter()
            .flatten()
            .filter_map(|id| self.channels.get(id))
            .flat_map(|channel| &channel.ledgers)
            .filter(|(_, ledger)| ledger.due.contains(uri))
            .map(|(hub, _)| hub.as_str())
            .collect();
        if !due.is_empty() {
            let what = if record.is_gone() {
                "deletion"
            } else {
                "change"
            };
            let hubs = due.into_iter().collect::<BTreeSet<_>>();
            let hubs = hubs.into_iter().collect::<Vec<_>>().join(" ");
            return (
                DocumentState::Pending,
                Some(format!("its {what} is due to {hubs}")),
            );
        }
        let state = state_alone(record, hearing);
        let reason = match (state, record.hold) {
            (DocumentState::Held, Hold::Waiting { since }) => Some(format!(
                "waits since {since:.0} for a document that lists it"
            )),
            (DocumentState::Silent, _) => Some(match record.version.capability.is_manifest() {
                true => "manifests are not announced".to_owned(),
                false => "indexes are not announced".to_owned(),
            }),
            (DocumentState::Archived, _) => Some("listed by an archive only".to_owned()),
            (DocumentState::Unrouted, _) => Some(hearing.silence_of(record).to_owned()),
            _ => None,
        };
        (state, reason)
    }

    /// Every source, as the plan orders them.
    pub fn sources(&self) -> Vec<SourceView> {
        let views = self.sources.iter().zip(&self.plan.sources).enumerate().map(
            |(position, (source, plan))| {
                let mut holdings = holdings(source, &self.hearing(&plan.name));
                holdings.findings = self.finding_counts(position);
                let missing = |((_, state), count): (&(_, DocumentState), &usize)| match state {
                    DocumentState::Missing => *count,
                    _ => 0,
                };
                let mounts = source.mounts.values().map(|mount| MountView {
                    directory: mount.row.directory.clone(),
                    prefix: mount.row.prefix.clone(),
                    present: match mount.status {
                        MountState::Unknown => None,
                        MountState::Sweeping | MountState::Ready => Some(true),
                        MountState::Absent => Some(false),
                    },
                    unreadable: mount.unreadable.0.clone(),
                    more_unreadable: mount.unreadable.1,
                    reason: match mount.status {
                        MountState::Absent => mount.reason.clone(),
                        _ => None,
                    },
                });
                SourceView {
                    name: plan.name.clone(),
                    settled: source.is_settled(),
                    suspension: source.suspension(&plan.name),
                    documents: holdings.documents.values().sum(),
                    missing: holdings.documents.iter().map(missing).sum(),
                    broken: source.troubles.len(),
                    mounts: mounts.collect(),
                    holdings,
                }
            },
        );
        views.collect()
    }

    /// Whether every present mount of every source was swept.
    pub fn is_settled(&self) -> bool {
        self.sources.iter().all(|source| source.is_settled())
    }

    /// How everything stands, without a look at each document: it is asked for each second.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            muted: self.muted().count(),
            ..Summary::default()
        };
        for (id, channel) in &self.channels {
            summary.channels += usize::from(channel.is_live());
            for (hub, ledger) in &channel.ledgers {
                let view = self.hub_view(*id, hub, ledger);
                summary.pending += view.due;
                if view.state <= Condition::Unfetched {
                    let reason = view.last_failure;
                    let reason = reason
                        .unwrap_or_else(|| "it does not fetch what it is pinged about".to_owned());
                    summary.troubled.entry(view.hub).or_insert(reason);
                }
            }
        }
        for (source, plan) in self.sources.iter().zip(&self.plan.sources) {
            if source.suspended {
                summary.suspended.push(plan.name.clone());
            }
            let mounts = source.mounts.values();
            let absent = mounts.filter(|mount| mount.status == MountState::Absent);
            summary
                .absent
                .extend(absent.map(|mount| mount.row.directory.clone()));
        }
        summary
    }
}

/// The sets of a source that have a channel, and those of them that some hub is told of.
#[derive(Debug, Default)]
struct Hearing<'a> {
    with_channel: HashSet<&'a Uri, FixedState>,
    with_hub: HashSet<&'a Uri, FixedState>,
}

impl Hearing<'_> {
    /// Whether some hub is told of a document (R10).
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

    /// Why no hub is told of a document.
    fn silence_of(&self, record: &Record) -> &'static str {
        let sets = &record.relations.sets;
        let has_channel = sets.iter().any(|set| self.with_channel.contains(set));
        match record.version.capability {
            Capability::SourceDescription if self.with_channel.is_empty() => {
                "no set has a channel, so nobody is told"
            }
            Capability::SourceDescription => "no channel has a hub of ours, so nobody is told",
            _ if sets.is_empty() => "belongs to no set of resources",
            _ if has_channel => "its channel has no hub of ours, so nobody is told",
            _ => "its set has no channel, so nobody is told",
        }
    }
}

/// What a document is by itself, whatever hubs are due of it.
fn state_alone(record: &Record, hearing: &Hearing<'_>) -> DocumentState {
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
    } else if hearing.has(record) {
        DocumentState::Announced
    } else {
        DocumentState::Unrouted
    }
}

/// What a source has, found in one walk: a tree may hold a hundred thousand documents, and somebody may ask every few
/// seconds.
fn holdings(source: &Source, hearing: &Hearing<'_>) -> Holdings {
    let mut holdings = Holdings::default();
    let mut count = |record: &Record, state, by: isize| {
        let kind = (record.version.capability, state);
        let documents = holdings.documents.entry(kind).or_default();
        *documents = documents.saturating_add_signed(by);
    };
    for (_, record) in source.catalog.iter().filter(|(_, own)| !own.is_gone()) {
        count(record, state_alone(record, hearing), 1);
    }
    for uri in source.troubles.keys() {
        if let Some(record) = source
            .catalog
            .get(uri)
            .filter(|own| !own.is_gone() && !own.is_missing())
        {
            count(record, state_alone(record, hearing), -1);
            count(record, DocumentState::Broken, 1);
        }
    }
    holdings.broken_since = source.troubles.values().map(|trouble| trouble.since).min();
    holdings
}

/// Since when a missing document is not there, and whether that is believed (R15).
fn absence(source: &Source, plan: &SourcePlan, record: &Record) -> String {
    let Presence::Missing { since, approved } = record.presence else {
        return String::new();
    };
    let belief = match (approved, source.suspended) {
        (true, _) => ", accepted as deleted".to_owned(),
        (false, true) => format!(", suspended until `rsnotify accept {}`", plan.name),
        (false, false) => String::new(),
    };
    format!("not found since {since:.0}{belief}")
}

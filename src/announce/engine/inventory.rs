//! What an operator may see: every document's state, every source's, and what is wrong.

use std::collections::BTreeSet;

use crate::announce::engine::Engine;
use crate::announce::engine::outbox::hub_view;
use crate::announce::engine::source::{MountStatus, Source};
use crate::announce::event::Suspension;
use crate::announce::figures::Holdings;
use crate::announce::observation::DocumentPath;
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Presence, Record, Version};
use crate::announce::status::Condition;
use crate::announce::summary::Summary;
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
    Unrouted,
    Archived,
    Silent,
    New,
}

impl DocumentState {
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
}

impl Engine {
    /// Every document of every source, in order of their URIs.
    pub fn documents(&self) -> Vec<DocumentView> {
        let mut documents = Vec::new();
        for (source, plan) in self.sources.iter().zip(&self.plan.sources) {
            for (uri, record) in source.catalog.iter() {
                let trouble = source.troubles.get(uri);
                let (state, reason) = match trouble {
                    Some(trouble) => (DocumentState::Broken, Some(trouble.reason.clone())),
                    None if record.is_missing() => {
                        (DocumentState::Missing, Some(absence(source, plan, record)))
                    }
                    None => self.state_of(uri, record),
                };
                documents.push(DocumentView {
                    source: plan.name.clone(),
                    uri: uri.clone(),
                    path: record.path.clone(),
                    kind: Some((record.version.capability, record.version.form)),
                    index: record.relations.index.clone(),
                    sets: record.relations.sets.clone(),
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

    fn state_of(&self, uri: &Uri, record: &Record) -> (DocumentState, Option<String>) {
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
        let reason = match (state_alone(record), record.hold) {
            (DocumentState::Held, Hold::Waiting { since }) => Some(format!(
                "waits since {since:.0} for a document that lists it"
            )),
            (DocumentState::Silent, _) => Some(match record.version.capability.is_manifest() {
                true => "manifests are not announced".to_owned(),
                false => "indexes are not announced".to_owned(),
            }),
            (DocumentState::Archived, _) => Some("listed by an archive only".to_owned()),
            (DocumentState::Unrouted, _) => Some("belongs to no set of resources".to_owned()),
            _ => None,
        };
        (state_alone(record), reason)
    }

    /// Every source, as the plan orders them.
    pub fn sources(&self) -> Vec<SourceView> {
        let views = self
            .sources
            .iter()
            .zip(&self.plan.sources)
            .map(|(source, plan)| {
                let holdings = holdings(source);
                let missing = |((_, state), count): (&(_, DocumentState), &usize)| match state {
                    DocumentState::Missing => *count,
                    _ => 0,
                };
                let mounts = source.mounts.values().map(|mount| MountView {
                    directory: mount.row.directory.clone(),
                    prefix: mount.row.prefix.clone(),
                    present: match mount.status {
                        MountStatus::Unknown => None,
                        MountStatus::Sweeping | MountStatus::Ready => Some(true),
                        MountStatus::Absent => Some(false),
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
            });
        views.collect()
    }

    /// Whether every present mount of every source was swept.
    pub fn is_settled(&self) -> bool {
        self.sources.iter().all(|source| source.is_settled())
    }

    /// How everything stands, without a look at each document: it is asked for each second.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for channel in self.channels.values() {
            summary.channels += usize::from(channel.is_live());
            for (hub, ledger) in &channel.ledgers {
                let view = hub_view(hub, ledger);
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
            let absent = mounts.filter(|mount| mount.status == MountStatus::Absent);
            summary
                .absent
                .extend(absent.map(|mount| mount.row.directory.clone()));
        }
        summary
    }
}

/// What a document is by itself, whatever hubs are due of it.
fn state_alone(record: &Record) -> DocumentState {
    let Version {
        capability, form, ..
    } = record.version;
    let is_routed =
        capability == Capability::SourceDescription || !record.relations.sets.is_empty();
    if record.is_missing() {
        DocumentState::Missing
    } else if matches!(record.hold, Hold::Waiting { .. }) {
        DocumentState::Held
    } else if capability.is_manifest() || form == Form::Index {
        DocumentState::Silent
    } else if record.relations.archived {
        DocumentState::Archived
    } else if is_routed {
        DocumentState::Announced
    } else {
        DocumentState::Unrouted
    }
}

/// What a source has, found in one walk: a tree may hold a hundred thousand documents, and somebody may ask every few
/// seconds.
fn holdings(source: &Source) -> Holdings {
    let mut holdings = Holdings::default();
    let mut count = |record: &Record, state, by: isize| {
        let kind = (record.version.capability, state);
        let documents = holdings.documents.entry(kind).or_default();
        *documents = documents.saturating_add_signed(by);
    };
    for (_, record) in source.catalog.iter().filter(|(_, own)| !own.is_gone()) {
        count(record, state_alone(record), 1);
    }
    for uri in source.troubles.keys() {
        if let Some(record) = source
            .catalog
            .get(uri)
            .filter(|own| !own.is_gone() && !own.is_missing())
        {
            count(record, state_alone(record), -1);
            count(record, DocumentState::Broken, 1);
        }
    }
    holdings.broken_since = source.troubles.values().map(|trouble| trouble.since).min();
    for finding in source.findings.values().flatten() {
        *holdings.findings.entry(finding.kind()).or_default() += 1;
    }
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

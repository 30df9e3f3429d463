//! What an operator may see: every document's state, every source's, and what is wrong.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::announce::channel::later;
use crate::announce::engine::Engine;
use crate::announce::engine::source::{MountStatus, Source};
use crate::announce::event::Suspension;
use crate::announce::finding::Finding;
use crate::announce::observation::DocumentPath;
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Presence, Record};
use crate::announce::status::BrokenView;
use crate::resourcesync::capability::Capability;
use crate::resourcesync::document::Form;
use crate::resourcesync::uri::{Topic, Uri};

/// So many candidates that cannot be read are told of; of others, how many they are.
const MOST_BROKEN: usize = 100;

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
        let capability = record.version.capability;
        let is_description = capability == Capability::SourceDescription;
        if let Hold::Waiting { since } = record.hold {
            let reason = format!("waits since {since:.0} for a document that lists it");
            (DocumentState::Held, Some(reason))
        } else if capability.is_manifest() {
            (
                DocumentState::Silent,
                Some("manifests are not announced".to_owned()),
            )
        } else if record.version.form == Form::Index {
            (
                DocumentState::Silent,
                Some("indexes are not announced".to_owned()),
            )
        } else if record.relations.archived {
            (
                DocumentState::Archived,
                Some("listed by an archive only".to_owned()),
            )
        } else if record.relations.sets.is_empty() && !is_description {
            (
                DocumentState::Unrouted,
                Some("belongs to no set of resources".to_owned()),
            )
        } else {
            (DocumentState::Announced, None)
        }
    }

    /// Every source, as the plan orders them.
    pub fn sources(&self) -> Vec<SourceView> {
        let views = self
            .sources
            .iter()
            .zip(&self.plan.sources)
            .map(|(source, plan)| {
                let records = || {
                    source
                        .catalog
                        .iter()
                        .filter(|(_, record)| !record.is_gone())
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
                    documents: records().count(),
                    missing: records().filter(|(_, record)| record.is_missing()).count(),
                    broken: source.troubles.len(),
                    mounts: mounts.collect(),
                }
            });
        views.collect()
    }

    /// Whether every present mount of every source was swept.
    pub fn is_settled(&self) -> bool {
        self.sources.iter().all(|source| source.is_settled())
    }

    /// The candidates that cannot be read, those that cannot for longest first, and how many more.
    pub(super) fn broken(&self, now: Timestamp) -> (Vec<BrokenView>, usize) {
        let sources = self.sources.iter().zip(&self.plan.sources);
        let troubles = sources.flat_map(|(source, plan)| {
            let troubles = source.troubles.iter();
            troubles.map(move |(uri, trouble)| (source, plan, uri, trouble))
        });
        let mut all: Vec<_> = troubles.collect();
        all.sort_by_key(|(_, _, uri, trouble)| (trouble.since, *uri));
        let first = all
            .iter()
            .take(MOST_BROKEN)
            .map(|(source, plan, uri, trouble)| {
                let mut mounts = plan.mounts.iter();
                let mount = mounts.find(|own| own.id == trouble.path.mount);
                BrokenView {
                    source: plan.name.clone(),
                    path: match mount {
                        Some(mount) => format!("{}/{}", mount.directory.display(), trouble.path),
                        None => trouble.path.to_string(),
                    },
                    uri: (*uri).clone(),
                    reason: trouble.reason.clone(),
                    since: trouble.since,
                    known: source.catalog.is_there(uri),
                    lasting: later(trouble.since, plan.broken_after) <= now,
                }
            });
        (first.collect(), all.len().saturating_sub(MOST_BROKEN))
    }

    /// What is wrong with the trees (R8).
    pub fn findings(&self) -> BTreeSet<Finding> {
        self.sources
            .iter()
            .flat_map(|source| source.findings.values().flatten())
            .cloned()
            .collect()
    }
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

//! The sources and their mounts, with their contents.

use std::path::PathBuf;

use resourcesync::uri::Uri;

use crate::announce::engine::Engine;
use crate::announce::engine::source::Source;
use crate::announce::engine::source::mounts::known_mount::KnownMount;
use crate::announce::engine::source::mounts::root::MountState;
use crate::announce::event::Suspension;
use crate::announce::observation::UnreadableDirectory;
use crate::announce::state::Record;
use crate::report::documents::{DocumentState, ToldSets, state_alone};
use crate::report::figures::Holdings;
use crate::report::findings;
use crate::report::status::{MountStatus, SourceStatus};

/// A source and its mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceView {
    pub name: String,
    /// True if every present mount was swept.
    pub settled: bool,
    /// The reason why deletions are suspended, if they are (R15).
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
    pub directory: PathBuf,
    pub prefix: Uri,
    /// Nothing while nobody has looked.
    pub present: Option<bool>,
    /// The first directories in it that may not be read, and how many more.
    pub unreadable: Vec<UnreadableDirectory>,
    pub more_unreadable: usize,
    /// The reason why it is not.
    pub reason: Option<String>,
}

impl From<SourceView> for SourceStatus {
    fn from(source: SourceView) -> SourceStatus {
        let mounts = source.mounts.into_iter().map(|mount| MountStatus {
            directory: mount.directory.to_string_lossy().into_owned(),
            url: mount.prefix,
            present: mount.present,
            unreadable: mount.unreadable,
            more_unreadable: mount.more_unreadable,
            reason: mount.reason,
        });
        SourceStatus {
            name: source.name,
            settled: source.settled,
            suspended: source.suspension.is_some(),
            suspension: source.suspension.as_ref().map(ToString::to_string),
            documents: source.documents,
            missing: source.missing,
            missing_in: Vec::new(),
            more_missing_in: 0,
            broken: source.broken,
            mounts: mounts.collect(),
        }
    }
}

/// Returns every source, as the plan orders them.
pub fn all(engine: &Engine) -> Vec<SourceView> {
    let sources = engine.sources().iter().zip(&engine.plan().sources);
    let views = sources.enumerate().map(|(position, (source, plan))| {
        let mut holdings = holdings(source, &ToldSets::of(engine, &plan.name));
        holdings.findings = findings::counts(engine, position);
        let documents = holdings.documents.iter();
        let missing = documents.filter(|((_, state), _)| *state == DocumentState::Missing);
        SourceView {
            name: plan.name.clone(),
            settled: source.is_settled(),
            suspension: source.tree.suspension(),
            documents: holdings.documents.values().sum(),
            missing: missing.map(|(_, count)| *count).sum(),
            broken: source.tree.troubles().count(),
            mounts: source
                .tree
                .mounts()
                .iter()
                .map(|(_, mount)| mount_view(mount))
                .collect(),
            holdings,
        }
    });
    views.collect()
}

fn mount_view(mount: &KnownMount) -> MountView {
    MountView {
        directory: mount.directory.clone(),
        prefix: mount.prefix.clone(),
        present: match mount.root.state() {
            MountState::Unknown => None,
            MountState::Sweeping | MountState::Ready => Some(true),
            MountState::Absent => Some(false),
        },
        unreadable: mount.unreadable.first.clone(),
        more_unreadable: mount.unreadable.more,
        reason: mount.root.reason().map(str::to_owned),
    }
}

/// Returns what a source holds, found in one walk: a tree may hold a hundred thousand documents, and Prometheus asks
/// every few seconds.
fn holdings(source: &Source, told: &ToldSets<'_>) -> Holdings {
    let mut holdings = Holdings::default();
    let mut count = |record: &Record, state, by: isize| {
        let kind = (record.version.capability, state);
        let documents = holdings.documents.entry(kind).or_default();
        *documents = documents.saturating_add_signed(by);
    };
    let records = source.catalog().iter().map(|(_, record)| record);
    for record in records.filter(|record| !record.is_gone()) {
        count(record, state_alone(record, told), 1);
    }
    for (uri, _) in source.tree.troubles().iter() {
        let record = source.catalog().get(uri);
        if let Some(record) = record.filter(|record| !record.is_gone() && !record.is_missing()) {
            count(record, state_alone(record, told), -1);
            count(record, DocumentState::Broken, 1);
        }
    }
    let troubles = source.tree.troubles().iter();
    holdings.broken_since = troubles.map(|(_, trouble)| trouble.since).min();
    holdings
}

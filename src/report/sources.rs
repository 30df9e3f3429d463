//! The sources and their mounts, with what they hold, what is missing, and what cannot be read.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use announce::observation::DocumentPath;
use announce::plan::SourcePlan;
use announce::steps::engine::StateReader;
use announce::time::later;
use resourcesync::capability::Capability;
use resourcesync::document::Form;

use crate::report::documents::{DocumentState, state_ignoring_due};
use crate::report::figures::SourceContents;
use crate::report::status::{
    AcceptableDeletions, BrokenCandidateView, MissingInDirectory, MountStatus, SourceStatus,
};
use crate::report::{findings, limited};
use announce::state::Result;
use announce::steps::live::{LiveSource, MountPhase};
use announce::steps::{deletions, mounts};

/// Candidates that cannot be read and are reported; of others, their number.
const MAX_BROKEN: usize = 100;
/// Directories of a mount that cannot be read and are reported; of others, their number.
const MAX_UNREADABLE: usize = 20;
/// Directories with missing documents that are reported; of others, their number.
pub const MAX_DIRECTORIES: usize = 10;

/// SQL for whether some hub is told of the document `d` (R10). The sign keeps SQLite from going through all channels of the
/// source.
pub const IS_TOLD: &str = "(EXISTS (SELECT 1 FROM member m CROSS JOIN channel c ON c.set_id = m.set_id \
     CROSS JOIN account a ON a.channel = c.id \
     WHERE m.document = d.id AND c.kind = 0 AND c.retired IS NULL AND +c.source = d.source))";
/// SQL for whether some channel of a source has a hub.
pub const HAS_HUB: &str = "SELECT 1 FROM channel c CROSS JOIN account a ON a.channel = c.id \
     WHERE c.source = ?1 AND c.kind = 0 AND c.retired IS NULL";

/// Returns a source with its mounts.
pub fn source(
    reader: &StateReader<'_>,
    plan: &SourcePlan,
    live: &LiveSource,
    holdings: &SourceContents,
) -> Result<SourceStatus> {
    let suspension = deletions::suspension(reader.db, &plan.name, live)?;
    let documents = holdings.documents.iter();
    let missing = documents.filter(|((_, state), _)| *state == DocumentState::Missing);
    let without_document =
        mounts::no_document_reason(reader.db, live, |path| live.non_document_reason(path))?;
    let mounts = live.mounts.values().map(|mount| {
        let (first, more) = mount.unreadable.clone();
        let (unreadable, others) = limited(first, MAX_UNREADABLE);
        MountStatus {
            directory: mount.plan.directory.to_string_lossy().into_owned(),
            url: mount.plan.prefix.clone(),
            present: match mount.state {
                MountPhase::Unknown => None,
                MountPhase::Sweeping | MountPhase::Ready => Some(true),
                MountPhase::Absent => Some(false),
            },
            reason: mount.reason.clone(),
            unreadable,
            more_unreadable: more + others,
        }
    });
    Ok(SourceStatus {
        name: plan.name.clone(),
        settled: live.is_swept(),
        suspended: suspension.is_some(),
        suspension: suspension.as_ref().map(ToString::to_string),
        documents: holdings.documents.values().sum(),
        without_document,
        missing: missing.map(|(_, count)| *count).sum(),
        missing_in: Vec::new(),
        more_missing_in: 0,
        broken: holdings.broken,
        mounts: mounts.collect(),
    })
}

/// Returns what a source holds, by the census: Prometheus asks every few seconds, and a tree may hold a hundred thousand
/// documents.
pub fn holdings(
    reader: &StateReader<'_>,
    plan: &SourcePlan,
    live: &LiveSource,
) -> Result<SourceContents> {
    let db = reader.db;
    let mut holdings = SourceContents {
        findings: findings::unacknowledged_counts(reader, plan)?,
        ..SourceContents::default()
    };
    let mut count = |kind: (Capability, DocumentState), by: isize| {
        let documents: &mut usize = holdings.documents.entry(kind).or_default();
        *documents = documents.saturating_add_signed(by);
    };
    let are_descriptions_told = db.exists(HAS_HUB, live.id)?;
    let is_told = |kind: (Capability, Form), is_routed: bool| match kind.0 {
        Capability::SourceDescription => are_descriptions_told,
        _ => is_routed,
    };
    for mount in live.mounts.keys() {
        let counted = db.all::<Vec<(_, _, _, _, bool, i64)>>(
            "SELECT capability, form, presence, held, archived, orphan, count FROM census WHERE mount = ?1 AND count > 0",
            *mount,
        )?;
        for (kind, presence, held, archived, is_orphan, many) in counted {
            let state =
                state_ignoring_due(kind, presence, held, archived, is_told(kind, !is_orphan));
            count((kind.0, state), isize::try_from(many).unwrap_or(isize::MAX));
        }
    }
    // Of sets without a channel that a hub is told on, what the census takes for announced is not.
    let unrouted = db.all::<Vec<(Capability, i64)>>(
        &format!(
            "SELECT d.capability, count(DISTINCT d.id) FROM document s CROSS JOIN member m ON m.set_id = s.id \
             CROSS JOIN document d ON d.id = m.document WHERE s.source = ?1 \
             AND s.capability IN (0, 1) AND s.capability = 1 AND s.form = 0 AND s.presence BETWEEN 1 AND 3 \
             AND NOT EXISTS (SELECT 1 FROM channel c CROSS JOIN account a ON a.channel = c.id WHERE c.set_id = s.id AND c.kind = 0 AND c.retired IS NULL) \
             AND d.presence = 1 AND d.hold <> 1 AND d.form = 0 AND d.archived = 0 AND NOT {IS_TOLD} GROUP BY d.capability"
        ), live.id)?;
    for (capability, many) in unrouted {
        if !capability.is_manifest() {
            let many = isize::try_from(many).unwrap_or(isize::MAX);
            count((capability, DocumentState::Announced), -many);
            count((capability, DocumentState::Unrouted), many);
        }
    }
    let broken = db.all::<Vec<(_, _, _, _, _)>>(
        &format!(
            "SELECT d.capability, d.form, d.presence, d.hold = 1, d.archived, {IS_TOLD} FROM trouble t \
             CROSS JOIN document d ON d.uri = t.uri WHERE t.source = ?1 AND d.presence = 1"
        ), live.id)?;
    for (kind, presence, held, archived, is_routed) in broken {
        let is_told = is_told(kind, is_routed);
        let state = state_ignoring_due(kind, presence, held, archived, is_told);
        count((kind.0, state), -1);
        count((kind.0, DocumentState::Broken), 1);
    }
    holdings.documents.retain(|_, count| *count > 0);
    let sql = "SELECT count(*), min(since) FROM trouble WHERE source = ?1";
    (holdings.broken, holdings.broken_since) = db.value(sql, live.id)?;
    Ok(holdings)
}

/// Returns the first candidates that cannot be read (R3), and the number of the others: first those that lasted, each kind
/// by how long it cannot be read.
pub fn broken(reader: &StateReader<'_>) -> Result<(Vec<BrokenCandidateView>, usize)> {
    let mut all = Vec::new();
    let mut count = 0;
    for (plan, live) in reader.sources() {
        let mut troubles = reader.db.all::<Vec<(DocumentPath, _, _, _, _)>>(
            "SELECT t.mount, t.path, t.uri, t.reason, t.since, \
             EXISTS (SELECT 1 FROM document d WHERE d.uri = t.uri AND d.presence BETWEEN 1 AND 3) FROM trouble t \
             WHERE t.source = ?1 ORDER BY t.since, t.uri",
            live.id,
        )?;
        count += troubles.len();
        troubles.truncate(MAX_BROKEN);
        for (path, uri, reason, since, known) in troubles {
            let mount = live.mounts.get(&path.mount);
            all.push(BrokenCandidateView {
                source: plan.name.clone(),
                path: mount.map_or_else(String::new, |mount| mount.text_of(&path.below)),
                uri,
                reason,
                since,
                known,
                // Each source has its own `broken_after`: an older trouble may not have lasted where a later one has.
                lasting: later(since, plan.broken_after) <= reader.now,
            });
        }
    }
    all.sort_by_key(|view| (!view.lasting, view.since, view.uri.clone()));
    all.truncate(MAX_BROKEN);
    let more = count - all.len();
    Ok((all, more))
}

/// Returns what [`Event::Accept`](announce::event::Event::Accept) would accept of the source at this position in
/// the plan (R15).
pub fn acceptable(reader: &StateReader<'_>, position: usize) -> Result<AcceptableDeletions> {
    let plan = &reader.plan.sources[position];
    let live = &reader.live.sources[position];
    let directories = missing_by_directory(reader, live, |path, _| !live.is_absent(path.mount))?;
    let absent = absent_mounts(live).map(|directory| directory.to_string_lossy().into_owned());
    Ok(AcceptableDeletions {
        source: plan.name.clone(),
        documents: directories.iter().map(|directory| directory.missing).sum(),
        directories,
        sets: reader.db.all(
            "SELECT d.uri, s.missing, (SELECT count(*) FROM inventory WHERE set_id = s.id) FROM change_set s \
             CROSS JOIN document d ON d.id = s.id WHERE s.source = ?1 AND s.missing > 0 ORDER BY d.uri",
            live.id,
        )?,
        absent: absent.collect(),
    })
}

/// Returns the directories of the mounts that are not there.
pub fn absent_mounts(live: &LiveSource) -> impl Iterator<Item = &PathBuf> {
    let mounts = live.mounts.values();
    let absent = mounts.filter(|mount| mount.state == MountPhase::Absent);
    absent.map(|mount| &mount.plan.directory)
}

/// Returns the directories in which documents are missing and not yet accepted, if that suspends deletions.
pub fn suspending_directories(
    reader: &StateReader<'_>,
    live: &LiveSource,
) -> Result<Vec<MissingInDirectory>> {
    if !live.is_suspended() {
        return Ok(Vec::new());
    }
    missing_by_directory(reader, live, |path, is_accepted| {
        !is_accepted && (live.is_mass || live.is_nested_away(path))
    })
}

/// Returns the directories that documents are missing in, those with most first; all documents of the source are read.
fn missing_by_directory(
    reader: &StateReader<'_>,
    live: &LiveSource,
    counts: impl Fn(&DocumentPath, bool) -> bool,
) -> Result<Vec<MissingInDirectory>> {
    let mut directories = Vec::new();
    for (id, mount) in &live.mounts {
        let documents = reader.db.all::<Vec<(Arc<[u8]>, u8)>>(
            "SELECT path, presence FROM document WHERE mount = ?1 AND presence BETWEEN 1 AND 3",
            *id,
        )?;
        let mut found: BTreeMap<Vec<u8>, (usize, usize)> = BTreeMap::new();
        for (below, presence) in documents {
            let end = below.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            let of = found.entry(below[..end].to_vec()).or_default();
            let path = DocumentPath { mount: *id, below };
            of.0 += usize::from(presence != 1 && counts(&path, presence == 3));
            of.1 += 1;
        }
        let found = found.into_iter().filter(|(_, (missing, _))| *missing > 0);
        directories.extend(found.map(|(below, (missing, of))| MissingInDirectory {
            directory: mount.text_of(&below),
            missing,
            of,
        }));
    }
    // Stable: else in order of their names.
    directories.sort_by_key(|directory| Reverse(directory.missing));
    Ok(directories)
}

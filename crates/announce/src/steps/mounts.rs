//! Mounts as they were found: present, swept, or absent (R13); and the file systems below their roots: what is missing with
//! one that is not mounted was not deleted (R15).

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::event::Fact;
use crate::observation::{DocumentPath, FileId, MountId, NestedFileSystem, WhyAbsent};
use crate::plan::Plan;
use crate::state::{Db, DocId, Result, from_row};
use crate::steps::live::{LiveMount, LiveSource, MountPhase, SweepReach};
use crate::steps::{Step, change_sets, deletions};

/// Gives each mount of a plan the number that it has in the state, or a new one.
pub fn number_mounts(db: Db<'_>, plan: &mut Plan) -> Result<()> {
    let sql =
        "SELECT s.name, m.prefix, m.directory, m.id FROM mount m JOIN source s ON s.id = m.source";
    let known = db.all::<Vec<(String, Uri, Vec<u8>, MountId)>>(sql, ())?;
    let mut next = known.iter().map(|(.., id)| id.0 + 1).max().unwrap_or(0);
    let mut taken = BTreeSet::new();
    for source in &mut plan.sources {
        for mount in &mut source.mounts {
            let directory = mount.directory.as_os_str().as_bytes();
            let same = known.iter().filter(|(name, prefix, _, id)| {
                *name == source.name && *prefix == mount.prefix && !taken.contains(id)
            });
            let same = same.min_by_key(|(_, _, known, _)| *known != directory);
            mount.id = same.map_or(MountId(next), |(.., id)| *id);
            next = next.max(mount.id.0 + 1);
            taken.insert(mount.id);
        }
    }
    Ok(())
}

/// Begins the sweep of a mount that was found.
pub fn found(step: &mut Step<'_>, id: MountId, identity: FileId, start: Timestamp) -> Result<()> {
    let Some((position, mount)) = step.live.mount_mut(id) else {
        return Ok(());
    };
    let is_again = mount.state != MountPhase::Unknown;
    let is_other = mount.identity != Some(identity);
    (mount.state, mount.reason, mount.doubt) = (MountPhase::Sweeping, None, None);
    if is_other && mount.held_document {
        mount.doubt = Some((identity, BTreeSet::new()));
    } else if is_other {
        // R13: of two directories of which none held documents, the second is another tree.
        mount.identity = Some(identity);
        mount.baseline.is_complete = false;
        (mount.nested.are_noted, mount.nested.rows) = (false, BTreeMap::new());
    }
    (mount.baseline.started, mount.baseline.fresh) = (start, Some(Vec::new()));
    mount.baseline.has_other_clock = false;
    mount.save(step.db)?;
    if is_again {
        stop_graces(step, position, id)?;
    }
    Ok(())
}

/// Stops the graces of a mount that is away: its documents are not seen to be absent, and each grace begins anew.
fn stop_graces(step: &Step<'_>, position: usize, id: MountId) -> Result<()> {
    change_sets::clear_watched_since(step, step.live.sources[position].id, true)?;
    let sql = "UPDATE document SET grace_ends = NULL, look_at = NULL WHERE mount = ?1 AND presence IN (2, 3)";
    step.db.run(sql, id)
}

/// Returns what was read of a source that has no document, and why the first file is none, as far as `explain` knows.
pub fn no_document_reason(
    db: Db<'_>,
    live: &LiveSource,
    explain: impl FnOnce(&DocumentPath) -> Option<WhyAbsent>,
) -> Result<Option<String>> {
    if !live.is_whole() {
        return Ok(None);
    }
    let (mut files, mut first) = (0, None);
    for mount in live.mounts.keys() {
        let sql = "SELECT 1 FROM census WHERE mount = ?1 AND presence > 0 AND count > 0 \
                   UNION ALL SELECT 1 FROM trouble WHERE mount = ?1";
        if db.exists(sql, *mount)? {
            return Ok(None);
        }
        let sql = "SELECT count(*) FROM other_file WHERE mount = ?1";
        files += db.value::<usize>(sql, *mount)?;
        let sql = "SELECT mount, path FROM other_file WHERE mount = ?1 ORDER BY path LIMIT 1";
        first = first.or(db.first::<DocumentPath>(sql, *mount)?);
    }
    Ok(first.map(|first| {
        let why = explain(&first).map_or_else(String::new, |why| format!(": {why}"));
        let (plural, first) = (if files == 1 { "" } else { "s" }, first.text());
        format!("{files} XML file{plural} read, none is a ResourceSync document; {first}{why}")
    }))
}

/// Ends a complete sweep of a mount, which met so many candidates.
pub fn end_sweep(step: &mut Step<'_>, id: MountId, candidates: u64) -> Result<()> {
    let Some((position, mount)) = step.live.mount_mut(id) else {
        return Ok(());
    };
    // R15: another root than the known one replaced it if it holds something, else the mount is away.
    let plan = &step.plan.sources[position];
    if candidates == 0
        && let Some((_, unfound)) = &mut mount.doubt
    {
        unfound.clear();
        let reason = format!(
            "{}: it is empty, and not the directory that held documents: is its file system mounted?",
            mount.plan.directory.display()
        );
        mount.reason.get_or_insert_with(|| reason.clone());
        if std::mem::replace(&mut mount.state, MountPhase::Absent) != MountPhase::Absent {
            step.facts.push(Fact::MountLost {
                source: plan.name.clone(),
                reason,
            });
        }
        return Ok(());
    }
    accept_doubted_root(step, id, step.wall)?;
    // What was swept is not the mount if that is lost, or another directory that was not accepted.
    let is_it = |it: &LiveMount| it.doubt.is_none() && it.state != MountPhase::Absent;
    let Some((_, mount)) = step.live.mount_mut(id).filter(|(_, it)| is_it(it)) else {
        return Ok(());
    };
    mount.state = MountPhase::Ready;
    (mount.nested).decide(|top| documents_below(step.db, id, top))?;
    let unreadable = mount.unreadable.0.iter();
    let uri_of = |below: &[u8]| Uri::below(&mount.plan.prefix, &[below, b"/"].concat());
    let swept = SweepReach {
        candidates: plan.candidates.clone(),
        inside: plan.prefixes_inside(&mount.plan),
        are_configured: true,
        unread: unreadable.map(|it| uri_of(&it.below)).collect(),
    };
    let is_first = !mount.baseline.is_complete;
    let unclear = mount.baseline.end_sweep(swept, step.wall);
    mount.save(step.db)?;
    let source = &step.live.sources[position];
    if is_first {
        if !plan.announce_existing {
            let sql =
                "SELECT coalesce(sum(count), 0) FROM census WHERE mount = ?1 AND presence = 1";
            step.facts.push(Fact::Baselined {
                source: plan.name.clone(),
                documents: step.db.value(sql, id)?,
            });
        }
        if let Some(reason) =
            no_document_reason(step.db, source, |path| source.non_document_reason(path))?
        {
            let source = plan.name.clone();
            step.facts.push(Fact::WithoutDocument { source, reason });
        }
    }
    // Only the next round sees which resources are absent from Resource Lists.
    if source.is_whole() && !plan.changes_from_resource_lists {
        let sql =
            "UPDATE change_set SET watched_since = ?2 WHERE source = ?1 AND watched_since IS NULL";
        step.db.run(sql, (source.id, step.now))?;
    }
    for (uri, fingerprint) in unclear {
        let sql = "UPDATE document SET baseline = 1, was_fingerprint = ?2 WHERE uri = ?1 AND baseline = 2";
        step.db.run(sql, (&uri, fingerprint))?;
    }
    deletions::look_at_missing(step, position, Some(id))
}

/// Returns what is known of the documents below a directory of a mount.
fn documents_below(db: Db<'_>, id: MountId, top: &[u8]) -> Result<BelowSummary> {
    let [from, to] = [b'/', b'0'].map(|end| [top, &[end]].concat());
    let found = db.all::<Vec<(u8, bool)>>(
        "SELECT d.presence, EXISTS (SELECT 1 FROM trouble t WHERE t.uri = d.uri) FROM document d \
         WHERE d.mount = ?1 AND d.path >= ?2 AND d.path < ?3 AND d.presence BETWEEN 1 AND 3",
        (id, from, to),
    )?;
    Ok(BelowSummary {
        is_any_known: !found.is_empty(),
        is_any_seen: found.contains(&(1, false)),
        are_missing: found.iter().any(|(presence, _)| *presence == 2),
    })
}

/// R15: accepts a directory as the mount's root in place of the one that held documents, because it holds something.
pub fn accept_doubted_root(step: &mut Step<'_>, id: MountId, at: Timestamp) -> Result<()> {
    let Some((position, mount)) = step.live.mount_mut(id) else {
        return Ok(());
    };
    let Some((found, unfound)) = mount.doubt.take() else {
        return Ok(());
    };
    let was_absent = mount.state == MountPhase::Absent;
    mount.identity = Some(found);
    (mount.state, mount.reason) = (MountPhase::Ready, None);
    mount.save(step.db)?;
    for uri in unfound {
        if let Some(document) = step.db.document_at(&uri)? {
            deletions::mark_missing(step, position, &document, at, false)?;
        }
    }
    if was_absent {
        // While it was empty, missing documents were not noted, so each is looked at now.
        let sql = "SELECT mount, path FROM document WHERE mount = ?1 AND presence BETWEEN 1 AND 3";
        step.look.extend(step.db.all::<Vec<DocumentPath>>(sql, id)?);
    }
    Ok(())
}

/// Notes that a mount's root is not there, or cannot be read.
pub fn lost(step: &mut Step<'_>, id: MountId, reason: String) -> Result<()> {
    mark_absent(step, id)?;
    if let Some((position, mount)) = step.live.mount_mut(id) {
        mount.reason = Some(reason.clone());
        step.facts.push(Fact::MountLost {
            source: step.plan.sources[position].name.clone(),
            reason,
        });
    }
    Ok(())
}

/// Leaves a mount whose root is lost, or could not be swept to the end. R13: a baseline that was not finished is taken
/// again, so nothing of it is kept.
pub fn mark_absent(step: &mut Step<'_>, id: MountId) -> Result<()> {
    let Some((position, mount)) = step.live.mount_mut(id) else {
        return Ok(());
    };
    (mount.state, mount.doubt) = (MountPhase::Absent, None);
    mount.baseline.fresh = None;
    if !mount.baseline.is_complete {
        let sql = "SELECT id FROM document WHERE mount = ?1 AND baseline > 0";
        for document in step.db.all::<Vec<DocId>>(sql, id)? {
            deletions::reduce_to_mention(step.db, document)?;
        }
        step.db.run("DELETE FROM trouble WHERE mount = ?1", id)?;
    }
    stop_graces(step, position, id)
}

/// Notes the file systems that begin below a mount's root. R15: what is missing with one that went was not deleted, and
/// what is missing below one that came was not seen to be absent from it.
pub fn set_nested(step: &mut Step<'_>, id: MountId, found: Vec<NestedFileSystem>) -> Result<()> {
    let Some((position, mount)) = step.live.mount_mut(id) else {
        return Ok(());
    };
    let changed = mount.nested.update_found(found);
    if changed.is_empty() {
        return Ok(());
    }
    mount.save(step.db)?;
    for document in deletions::load_missing(step.db, step.live.sources[position].id)? {
        if document.path.mount == id
            && ancestors_of(&document.path.below).any(|top| changed.contains(top))
        {
            let columns = "grace_ends = NULL, look_at = NULL";
            step.db.update_document(document.id, columns, ())?;
        }
    }
    if step.live.sources[position].is_swept() {
        deletions::look_at_missing(step, position, Some(id))?;
    }
    Ok(())
}

// File systems below a root.

/// A directory below the root of a mount where another file system begins, or began when its documents were last seen
/// (R15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NestedRow {
    /// The file system that the documents were last seen on; nothing for that of the directory above, which another one
    /// hides now.
    pub device: Option<u64>,
    /// True if a link leads there.
    pub is_link: bool,
    /// True while another file system is there, or none, and documents are missing with it.
    pub is_away: bool,
}

from_row! { NestedRow { device, is_link, is_away } }

/// Directories below the root of one mount, by their paths from there.
pub type NestedRows = BTreeMap<Arc<[u8]>, NestedRow>;

/// The file systems below the root of one mount: those that held documents, and those that this run found.
#[derive(Debug, Clone, Default)]
pub struct NestedFileSystems {
    /// File systems that held documents.
    pub rows: NestedRows,
    /// True if a sweep noted them: those that are not among them came later.
    pub are_noted: bool,
    /// Nothing until the tree has told of them.
    pub found: Option<NestedRows>,
    /// Paths of file systems that differ from their rows since the last sweep. Until the next one has ended, they count
    /// as away.
    pub undecided: BTreeSet<Arc<[u8]>>,
}

/// State of the documents below one directory.
#[derive(Debug, Clone, Copy, Default)]
pub struct BelowSummary {
    pub is_any_known: bool,
    /// True if one of them is there, and can be read.
    pub is_any_seen: bool,
    /// True if some are missing, and not accepted as deleted.
    pub are_missing: bool,
}

impl NestedFileSystems {
    /// Takes the file systems that there are now. Returns the paths of those that went or came. Until a sweep noted them,
    /// none came.
    fn update_found(&mut self, told: Vec<NestedFileSystem>) -> BTreeSet<Arc<[u8]>> {
        let mut found = NestedRows::new();
        for it in told {
            let row = NestedRow {
                device: Some(it.device),
                is_link: it.is_link,
                is_away: false,
            };
            if it.is_gone {
                self.rows.entry(it.below).or_insert(row);
            } else {
                found.insert(it.below, row);
            }
        }
        // Another file system is there than the one of their row, or none.
        let device = |top| found.get(top).and_then(|found| found.device);
        let rows = &self.rows;
        let differ = rows.keys().filter(|top| rows[*top].device != device(*top));
        let mut undecided: BTreeSet<Arc<[u8]>> = differ.cloned().collect();
        if self.are_noted {
            // A link may lead elsewhere at any time: it hides nothing.
            let tops = found.keys().filter(|top| !self.rows.contains_key(*top));
            undecided.extend(tops.filter(|top| !found[*top].is_link).cloned());
        }
        let mut changed = &undecided ^ &self.undecided;
        for (top, row) in &mut self.rows {
            // One that was known to be away, and still is, did not change.
            if row.is_away && undecided.contains(top) {
                changed.remove(top);
            } else if std::mem::take(&mut row.is_away) {
                changed.insert(Arc::clone(top));
            }
        }
        self.found = Some(found);
        self.undecided = undecided;
        changed
    }

    /// Decides which are away, once everything below the root was looked at: `below` says what lies below a directory.
    /// Before the first time, the rows are not complete: nobody noted where file systems begin.
    fn decide<E>(&mut self, below: impl Fn(&[u8]) -> Result<BelowSummary, E>) -> Result<(), E> {
        let is_first = !std::mem::replace(&mut self.are_noted, true);
        let Some(found) = &self.found else {
            return Ok(());
        };
        for (top, there) in found {
            // Documents that are missing below a new one lay on the file system that it hides.
            if let btree_map::Entry::Vacant(new) = self.rows.entry(Arc::clone(top)) {
                let hides = !there.is_link && !is_first && below(top)?.are_missing;
                let device = there.device.filter(|_| !hides);
                new.insert(NestedRow { device, ..*there });
            }
        }
        for (top, row) in std::mem::take(&mut self.rows) {
            let there = found.get(&top).copied();
            let is_other = row.device != there.and_then(|there| there.device);
            let below = is_other.then(|| below(&top)).transpose()?;
            let decided = row_kept_after_sweep(row, there, below.unwrap_or_default());
            self.rows.extend(decided.map(|decided| (top, decided)));
        }
        self.undecided.clear();
        Ok(())
    }

    /// Returns true if a path lies where another file system was, or may have been, when documents were last seen there.
    pub fn is_away(&self, below: &[u8]) -> bool {
        let is_undecided = || ancestors_of(below).any(|top| self.undecided.contains(top));
        self.known_away(below).is_some() || !self.undecided.is_empty() && is_undecided()
    }

    /// Returns the path of a file system above a path that is known to be away.
    pub fn known_away<'a>(&self, below: &'a [u8]) -> Option<&'a [u8]> {
        if self.rows.is_empty() {
            return None;
        }
        ancestors_of(below).find(|top| self.rows.get(*top).is_some_and(|row| row.is_away))
    }
}

/// Returns the row of a directory after a sweep; nothing if there is nothing to keep of it.
fn row_kept_after_sweep(
    row: NestedRow,
    there: Option<NestedRow>,
    below: BelowSummary,
) -> Option<NestedRow> {
    let kept = |is_away| Some(NestedRow { is_away, ..row });
    match (row.device, there) {
        (None, None) => None,
        (before, Some(there)) if before == there.device => Some(there),
        (None, Some(_)) if below.are_missing => kept(true),
        (None, Some(there)) => Some(there),
        // The numbers of devices may differ each time that a file system is mounted: one that holds some of the documents
        // is the same, or took its place.
        (Some(_), Some(there)) if below.is_any_seen => Some(there),
        (Some(_), Some(_)) if below.are_missing => kept(true),
        // A link that leads to some of the documents was made to lead there.
        (Some(_), None) if row.is_link && below.is_any_seen => None,
        (Some(_), None) if below.are_missing => kept(true),
        (Some(_), None) if below.is_any_seen || !below.is_any_known => None,
        // Nobody can see its documents, nor that they are missing.
        (Some(_), _) => kept(false),
    }
}

/// Returns the directories above a path, from the root down.
fn ancestors_of(below: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = (0..below.len()).filter(|&end| below[end] == b'/');
    ends.map(|end| &below[..end])
}

//! Mounts as they were found: present, swept, or absent (R13, R15).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::candidates::CandidateGlobs;
use crate::event::Fact;
use crate::observation::{
    DocumentPath, Identity, MountId, NestedFileSystem, NoDocument, UnreadableDirectory,
};
use crate::plan::{MountPlan, Plan, SourcePlan};
use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::state::{Db, DocId, Result};
use crate::steps::baseline::{Baseline, SweepScope};
use crate::steps::live::LiveSource;
use crate::steps::nested::{DocumentsBelow, NestedFileSystems, tops_of};
use crate::steps::{Step, change_sets, deletions, documents};

/// A mount, with what this run knows of it.
///
/// Once its root held documents, another directory in its place is taken for the mount only if it holds something.
#[derive(Debug, Clone)]
pub struct LiveMount {
    pub plan: MountPlan,
    /// The number of its source's row.
    source: i64,
    /// The root that held documents, once one did; until then the last one that was found.
    identity: Option<Identity>,
    held_document: bool,
    pub state: MountState,
    /// Another directory that is there than the one that held documents, with the documents that were not found below it.
    doubt: Option<(Identity, BTreeSet<Uri>)>,
    /// The reason why the mount is absent.
    pub reason: Option<String>,
    pub baseline: Baseline,
    pub nested: NestedFileSystems,
    /// The first directories that may not be read, and how many more.
    pub unreadable: (Vec<UnreadableDirectory>, usize),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MountState {
    /// Neither found nor lost since the start.
    #[default]
    Unknown,
    Sweeping,
    Ready,
    /// It is not there, could not be swept to the end, or is an empty directory where another one held documents.
    Absent,
}

impl LiveMount {
    /// Returns true if a directory is there in its place, but is empty, so that the mount is absent.
    pub fn has_empty_root(&self) -> bool {
        self.doubt.is_some() && self.state == MountState::Absent
    }

    /// Returns the path of something below its root in the file system, as text.
    pub fn text_of(&self, below: &[u8]) -> String {
        let path = self.plan.directory.join(OsStr::from_bytes(below));
        path.to_string_lossy().into_owned()
    }

    pub fn save(&self, db: Db<'_>) -> Result<()> {
        let globs = self.baseline.candidates.as_ref().map(|swept| {
            let json = |texts: &[String]| serde_json::json!(texts).to_string();
            let candidates = &swept.candidates;
            let globs = (json(&candidates.include), json(&candidates.exclude));
            (
                globs,
                serde_json::json!((&swept.inside, &swept.unread)).to_string(),
            )
        });
        let (globs, unseen) = globs.unzip();
        db.run(
            "INSERT INTO mount VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (id) DO UPDATE SET \
             source = excluded.source, directory = excluded.directory, prefix = excluded.prefix, device = excluded.device, \
             inode = excluded.inode, baselined = excluded.baselined, held_document = excluded.held_document, \
             swept = excluded.swept, include = excluded.include, exclude = excluded.exclude, unseen = excluded.unseen",
            (
                (self.plan.id, self.source, self.plan.directory.as_os_str().as_bytes(), &self.plan.prefix),
                self.identity.map(|identity| (identity.device, identity.inode)),
                (self.baseline.is_complete, self.held_document, self.baseline.swept),
                (globs, unseen),
            ),
        )?;
        let sql = "DELETE FROM nested_file_system WHERE mount = ?1";
        db.run(sql, self.plan.id)?;
        for (below, row) in &self.nested.rows {
            db.run(
                "INSERT INTO nested_file_system VALUES (?1, ?2, ?3, ?4, ?5)",
                (self.plan.id, below, row.device, row.is_link, row.is_away),
            )?;
        }
        Ok(())
    }
}

/// Gives each mount of a plan the number that it has in the state, or a new one.
pub fn number(db: Db<'_>, plan: &mut Plan) -> Result<()> {
    let known = db.all::<Vec<(String, Uri, Vec<u8>, MountId)>>(
        "SELECT s.name, m.prefix, m.directory, m.id FROM mount m JOIN source s ON s.id = m.source",
        (),
    )?;
    let mut next = known.iter().map(|(.., id)| id.0 + 1).max().unwrap_or(0);
    let mut taken = BTreeSet::new();
    for source in &mut plan.sources {
        for mount in &mut source.mounts {
            let directory = mount.directory.as_os_str().as_bytes();
            let same = known.iter().filter(|(name, prefix, _, id)| {
                *name == source.name && *prefix == mount.prefix && !taken.contains(id)
            });
            let same = same.min_by_key(|(_, _, known, _)| *known != directory);
            mount.id = match same {
                Some((.., id)) => *id,
                None => {
                    next += 1;
                    MountId(next - 1)
                }
            };
            taken.insert(mount.id);
        }
    }
    Ok(())
}

/// Takes up what is stored of a source's mounts.
pub fn load(
    db: Db<'_>,
    source: &SourcePlan,
    source_id: i64,
    wall: Timestamp,
) -> Result<BTreeMap<MountId, Arc<LiveMount>>> {
    let mut mounts = BTreeMap::new();
    for plan in &source.mounts {
        let (identity, (baselined, held_document, swept), globs, unseen) =
            db.value::<(Option<(u64, u64)>, (bool, bool, Option<_>), _, _)>(
                "SELECT device, inode, baselined, held_document, swept, include, exclude, unseen FROM mount WHERE id = ?1",
                plan.id,
            )?;
        let identity = identity.map(|(device, inode)| Identity { device, inode });
        let configured = (&source.candidates, &source.prefixes_inside(plan));
        let candidates = swept_candidates(globs, unseen, configured);
        let nested = db.all(
            "SELECT below, device, is_link, is_away FROM nested_file_system WHERE mount = ?1",
            plan.id,
        )?;
        let mount = LiveMount {
            plan: plan.clone(),
            source: source_id,
            identity,
            held_document,
            state: MountState::Unknown,
            doubt: None,
            reason: None,
            baseline: Baseline {
                is_complete: baselined,
                swept,
                candidates,
                started: wall,
                ..Baseline::default()
            },
            nested: NestedFileSystems {
                rows: nested,
                are_noted: baselined,
                ..NestedFileSystems::default()
            },
            unreadable: Default::default(),
        };
        mounts.insert(plan.id, Arc::new(mount));
    }
    Ok(mounts)
}

/// Reads the candidates of a sweep, and where it saw nothing.
fn swept_candidates(
    globs: Option<(String, String)>,
    unseen: Option<String>,
    configured: (&CandidateGlobs, &Vec<Uri>),
) -> Option<SweepScope> {
    let (include, exclude) = globs?;
    let include = serde_json::from_str(&include).ok()?;
    let exclude = serde_json::from_str(&exclude).ok()?;
    let candidates = CandidateGlobs::new(include, exclude).ok()?;
    let (inside, unread) = serde_json::from_str(&unseen?).ok()?;
    Some(SweepScope {
        are_configured: (&candidates, &inside) == configured,
        candidates,
        inside,
        unread,
    })
}

impl LiveSource {
    /// Returns true if every present mount was swept to its end in this run.
    pub fn is_swept(&self) -> bool {
        let is_settled = |state| matches!(state, MountState::Ready | MountState::Absent);
        let mut mounts = self.mounts.values();
        mounts.all(|mount| is_settled(mount.state))
    }

    /// Returns true if every mount is there, was swept in this run, and has no directory that cannot be read.
    pub fn is_whole(&self) -> bool {
        let mut mounts = self.mounts.values();
        mounts.all(|it| it.state == MountState::Ready && it.unreadable.0.is_empty())
    }

    /// Returns why the first file that is no document is none, if it was read in this run.
    pub fn explain_other(&self, path: &DocumentPath) -> Option<NoDocument> {
        let (first, reason) = self.other_file.as_ref()?;
        (first == path).then(|| NoDocument::Other(reason.clone()))
    }

    pub fn is_absent(&self, id: MountId) -> bool {
        let mount = self.mounts.get(&id);
        mount.is_none_or(|mount| mount.state == MountState::Absent)
    }

    /// Returns true if a path was never looked at: what lies there was there before, as far as anybody knows (R13).
    pub fn is_new_ground(&self, path: &DocumentPath) -> bool {
        let mount = self.mounts.get(&path.mount);
        mount.is_some_and(|it| it.baseline.is_new_ground(&it.plan.prefix, &path.below))
    }

    /// Returns true if the deletions of some documents are suspended.
    pub fn is_suspended(&self) -> bool {
        self.is_mass || self.away_count > 0
    }

    /// Returns true if a path lies where another file system was when documents were last seen there (R15).
    pub fn is_away(&self, path: &DocumentPath) -> bool {
        let mount = self.mounts.get(&path.mount);
        mount.is_some_and(|mount| mount.nested.is_away(&path.below))
    }

    /// Notes whether a document was found in a mount whose root is in doubt. Returns false if it is not.
    pub fn record_doubtful_look(&mut self, id: MountId, uri: &Uri, is_found: bool) -> bool {
        let mount = self.mounts.get_mut(&id);
        let doubtful = mount.filter(|mount| mount.doubt.is_some());
        let Some((_, unfound)) = doubtful.and_then(|it| Arc::make_mut(it).doubt.as_mut()) else {
            return false;
        };
        if is_found {
            unfound.remove(uri);
        } else {
            unfound.insert(uri.clone());
        }
        true
    }

    pub fn hold_document(&mut self, db: Db<'_>, id: MountId) -> Result<()> {
        let mount = self.mounts.get_mut(&id);
        if let Some(mount) = mount.filter(|mount| !mount.held_document) {
            let mount = Arc::make_mut(mount);
            mount.held_document = true;
            mount.save(db)?;
        }
        Ok(())
    }
}

/// Begins the sweep of a mount that was found.
pub fn found(step: &mut Step<'_>, id: MountId, identity: Identity, start: Timestamp) -> Result<()> {
    let Some((position, mount)) = step.live.mount_mut(id) else {
        return Ok(());
    };
    let is_again = mount.state != MountState::Unknown;
    let is_other = mount.identity != Some(identity);
    (mount.state, mount.reason, mount.doubt) = (MountState::Sweeping, None, None);
    if is_other && mount.held_document {
        mount.doubt = Some((identity, BTreeSet::new()));
    } else if is_other {
        // R13: of two directories of which none held documents, the second is another tree.
        mount.identity = Some(identity);
        mount.baseline.is_complete = false;
        (mount.nested.are_noted, mount.nested.rows) = (false, BTreeMap::new());
    }
    mount.baseline.begin_sweep(start);
    mount.save(step.db)?;
    if is_again {
        reset_graces(step, position, id)?;
    }
    Ok(())
}

/// Stops the graces of a mount that is away: its documents are not seen to be absent, and each grace begins anew.
fn reset_graces(step: &Step<'_>, position: usize, id: MountId) -> Result<()> {
    change_sets::stop_watching(step, step.live.sources[position].id)?;
    step.db.run(
        "UPDATE document SET grace_ends = NULL, look_at = NULL WHERE mount = ?1 AND presence IN (2, 3)",
        id,
    )
}

/// Returns what was read of a source that has no document, and why the first file is none, as far as `explain` knows.
pub fn no_document_reason(
    db: Db<'_>,
    live: &LiveSource,
    explain: impl FnOnce(&DocumentPath) -> Option<NoDocument>,
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
pub fn swept(step: &mut Step<'_>, id: MountId, candidates: u64) -> Result<()> {
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
        if std::mem::replace(&mut mount.state, MountState::Absent) != MountState::Absent {
            step.facts.push(Fact::MountLost {
                source: plan.name.clone(),
                mount: id,
                reason,
            });
        }
        return Ok(());
    }
    accept_root(step, id, step.wall)?;
    let Some((_, mount)) = step.live.mount_mut(id) else {
        return Ok(());
    };
    // What was swept is not the mount if that is lost, or another directory that was not accepted.
    if mount.doubt.is_some() || mount.state == MountState::Absent {
        return Ok(());
    }
    mount.state = MountState::Ready;
    (mount.nested).decide(|top| below(step.db, id, top))?;
    let unreadable = mount.unreadable.0.iter();
    let uri_of = |below: &[u8]| Uri::below(&mount.plan.prefix, &[below, b"/"].concat());
    let swept = SweepScope {
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
                mount: id,
                documents: step.db.value(sql, id)?,
            });
        }
        if let Some(reason) =
            no_document_reason(step.db, source, |path| source.explain_other(path))?
        {
            let source = plan.name.clone();
            step.facts.push(Fact::WithoutDocument { source, reason });
        }
    }
    // Only the next round sees which resources are absent from Resource Lists.
    if source.is_whole() && !plan.changes_from_resource_lists {
        change_sets::start_watching(step, source.id)?;
    }
    for (uri, fingerprint) in unclear {
        step.db.run(
            "UPDATE document SET baseline = 1, was_fingerprint = ?2 WHERE uri = ?1 AND baseline = 2",
            (&uri, fingerprint),
        )?;
    }
    deletions::look_at_missing(step, position, Some(id))
}

/// Returns what is known of the documents below a directory of a mount.
fn below(db: Db<'_>, id: MountId, top: &[u8]) -> Result<DocumentsBelow> {
    let [from, to] = [b'/', b'0'].map(|end| [top, &[end]].concat());
    let found = db.all::<Vec<(u8, bool)>>(
        "SELECT d.presence, EXISTS (SELECT 1 FROM trouble t WHERE t.uri = d.uri) FROM document d \
         WHERE d.mount = ?1 AND d.path >= ?2 AND d.path < ?3 AND d.presence BETWEEN 1 AND 3",
        (id, from, to),
    )?;
    Ok(DocumentsBelow {
        is_any_known: !found.is_empty(),
        is_any_seen: found.contains(&(1, false)),
        are_missing: found.iter().any(|(presence, _)| *presence == 2),
    })
}

/// R15: accepts a directory as the mount's root in place of the one that held documents, because it holds something.
pub fn accept_root(step: &mut Step<'_>, id: MountId, at: Timestamp) -> Result<()> {
    let Some((position, mount)) = step.live.mount_mut(id) else {
        return Ok(());
    };
    let Some((found, unfound)) = mount.doubt.take() else {
        return Ok(());
    };
    let was_absent = mount.state == MountState::Absent;
    mount.identity = Some(found);
    (mount.state, mount.reason) = (MountState::Ready, None);
    mount.save(step.db)?;
    for uri in unfound {
        if let Some(document) = step.db.document_at(&uri)? {
            documents::mark_missing(step, position, &document, at, false)?;
        }
    }
    if was_absent {
        // While it was empty, missing documents were not noted, so each is looked at now.
        let sql = "SELECT mount, path FROM document WHERE mount = ?1 AND presence BETWEEN 1 AND 3";
        let paths = step.db.all::<Vec<DocumentPath>>(sql, id)?;
        step.look.extend(paths);
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
            mount: id,
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
    (mount.state, mount.doubt) = (MountState::Absent, None);
    mount.baseline.fresh = None;
    if !mount.baseline.is_complete {
        let sql = "SELECT id FROM document WHERE mount = ?1 AND baseline > 0";
        for document in step.db.all::<Vec<DocId>>(sql, id)? {
            documents::reduce_to_mention(step.db, document)?;
        }
        step.db.run("DELETE FROM trouble WHERE mount = ?1", id)?;
    }
    reset_graces(step, position, id)
}

/// Notes the file systems that begin below a mount's root. R15: what is missing with one that went was not deleted, and
/// what is missing below one that came was not seen to be absent from it.
pub fn set_nested(step: &mut Step<'_>, id: MountId, found: Vec<NestedFileSystem>) -> Result<()> {
    let Some((position, mount)) = step.live.mount_mut(id) else {
        return Ok(());
    };
    let changed = mount.nested.find(found);
    if changed.is_empty() {
        return Ok(());
    }
    mount.save(step.db)?;
    for document in deletions::missing(step.db, step.live.sources[position].id)? {
        if document.path.mount == id
            && tops_of(&document.path.below).any(|top| changed.contains(top))
        {
            step.db
                .set_document(document.id, "grace_ends = NULL, look_at = NULL", ())?;
        }
    }
    if step.live.sources[position].is_swept() {
        deletions::look_at_missing(step, position, Some(id))
    } else {
        Ok(())
    }
}

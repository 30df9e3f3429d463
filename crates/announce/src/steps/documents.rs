//! Documents as last seen complete: looks at them, their versions, and what is owed of a version before it changes
//! (R4, R13, R14, R19); and candidates that cannot be read (R3), or are no documents (R2).

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::document::{Document, Form, is_structural};
use resourcesync::uri::Uri;

use crate::event::Fact;
use crate::observation::{DocumentPath, Found, Incomplete, Observation, RACY, Stat};
use crate::state::{Columns, Db, DocId, FromRow, Parameters, Result, from_row, integers, nth};
use crate::steps::findings::{self, FindingPart};
use crate::steps::owed::{Version, is_deletion_announced};
use crate::steps::{Step, change_sets, deletions, mounts, owed, relations};
use crate::time::later;

/// The presence of a document in the tree (R15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Present = 1,
    /// Not found, and not yet counted as deleted.
    Missing = 2,
    /// Missing, and accepted as deleted by an operator.
    Accepted = 3,
    /// Deleted; kept until every hub has been told what there is to tell.
    Gone = 4,
}

/// A hold of a new document until it is listed (R17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    Free = 0,
    Waiting = 1,
    /// It was held to the end once, and is never held again.
    Expired = 2,
}

/// A document as last seen complete.
#[derive(Debug, Clone)]
pub struct SeenDocument {
    pub id: DocId,
    pub uri: Uri,
    pub source: i64,
    pub path: DocumentPath,
    pub stat: Stat,
    pub version: Version,
    pub up: Option<DocId>,
    pub names_index: Option<DocId>,
    pub named_form: Option<Form>,
    pub newly_indexed: bool,
    pub dated: Timestamp,
    pub looked: Timestamp,
    pub presence: Presence,
    pub absent_since: Option<Timestamp>,
    pub grace_ends: Option<Timestamp>,
    pub is_replaced: bool,
    pub hold: HoldState,
    /// R5: its index; kept when that is gone.
    pub index_parent: Option<DocId>,
    pub archived: bool,
    pub orphan: bool,
    pub is_new_set: bool,
    /// R13: whether its first version counts as told, and whether its content is known.
    pub baseline: u8,
    pub touched: ChangedPart,
    /// What was seen of it when its source last settled, if it has another version since; of a baseline, what counts as
    /// told.
    pub was: Option<Version>,
}

/// What changed in a document since its source last settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangedPart {
    Nothing = 0,
    Relations = 1,
    Presence = 2,
    Version = 3,
}

/// The columns of [`SeenDocument`], of the table by the name `d`.
pub const COLUMNS: &str = "d.id, d.uri, d.source, d.mount, d.path, d.size, d.modified, d.changed, d.inode, d.capability, \
     d.form, d.fingerprint, d.up, d.names_index, d.named_form, d.newly_indexed, d.dated, d.looked, d.presence, \
     d.absent_since, d.grace_ends, d.is_replaced, d.hold, d.index_parent, d.archived, d.orphan, d.is_new_set, d.baseline, d.touched, \
     d.was_capability, d.was_form, d.was_fingerprint";

from_row! { SeenDocument {
    id, uri, source, path, stat, version, up, names_index, named_form, newly_indexed, dated, looked, presence, absent_since,
    grace_ends, is_replaced, hold, index_parent, archived, orphan, is_new_set, baseline, touched, was
} }

integers! {
    Presence: |presence| *presence as i64,
        |number| nth(&[Presence::Present, Presence::Missing, Presence::Accepted, Presence::Gone], number - 1);
    HoldState: |hold| *hold as i64, |number| nth(&[HoldState::Free, HoldState::Waiting, HoldState::Expired], number);
    ChangedPart: |touched| *touched as i64,
        |number| nth(&[ChangedPart::Nothing, ChangedPart::Relations, ChangedPart::Presence, ChangedPart::Version], number);
}

impl SeenDocument {
    pub fn is_gone(&self) -> bool {
        self.presence == Presence::Gone
    }

    pub fn is_missing(&self) -> bool {
        matches!(self.presence, Presence::Missing | Presence::Accepted)
    }

    /// Returns the version that was seen when its source last settled.
    pub fn version_when_settled(&self) -> Option<Version> {
        if self.touched == ChangedPart::Version {
            self.was
        } else {
            self.seen_version()
        }
    }

    /// Returns the version that is seen; nothing of one that ended.
    pub fn seen_version(&self) -> Option<Version> {
        (!self.is_gone()).then_some(self.version)
    }
}

/// Nothing of a URI that is only mentioned, or not even that.
impl FromRow for Option<SeenDocument> {
    fn from_row(row: &mut Columns<'_>) -> rusqlite::Result<Option<SeenDocument>> {
        let is_seen = row.read::<Option<bool>>()?.unwrap_or_default();
        is_seen.then(|| row.read()).transpose()
    }
}

impl<'a> Db<'a> {
    /// Returns a document, if it was ever seen and is not forgotten.
    pub fn document(self, id: DocId) -> Result<Option<SeenDocument>> {
        let sql = format!("SELECT {COLUMNS} FROM document d WHERE d.id = ?1 AND d.presence > 0");
        self.first(&sql, id)
    }

    /// Returns the document with this URI, if it was ever seen and is not forgotten.
    pub fn document_at(self, uri: &Uri) -> Result<Option<SeenDocument>> {
        let sql = format!("SELECT {COLUMNS} FROM document d WHERE d.uri = ?1 AND d.presence > 0");
        self.first(&sql, uri)
    }

    /// Returns all that is known of a candidate.
    pub fn candidate(
        self,
        position: usize,
        uri: Uri,
        path: DocumentPath,
        at: Timestamp,
    ) -> Result<KnownCandidate> {
        let sql = format!(
            "SELECT EXISTS (SELECT 1 FROM finding WHERE about = ?1 AND part = 2), \
             EXISTS (SELECT 1 FROM other_file WHERE mount = ?2 AND path = ?3), \
             t.predates, t.reported, t.report_at, d.id, d.presence > 0, {COLUMNS} FROM (SELECT 1) \
             LEFT JOIN trouble t ON t.uri = ?1 LEFT JOIN document d ON d.uri = ?1"
        );
        let (has_findings, is_other_file, predates, is_reported, report_at, id, document) =
            self.one(&sql, (&uri, &path))?;
        Ok(KnownCandidate {
            position,
            uri,
            path,
            at,
            has_findings,
            is_other_file,
            predates,
            is_reported,
            report_at,
            id,
            document,
        })
    }

    /// Sets columns of a document to values, which are the parameters after its own.
    pub fn update_document(self, id: DocId, columns: &str, values: impl Parameters) -> Result<()> {
        let sql = format!("UPDATE document SET {columns} WHERE id = ?1");
        self.run(&sql, (id, values))
    }

    /// Returns the row of a URI, which is added unless it is there.
    pub fn ensure_row(self, uri: &Uri) -> Result<DocId> {
        let known = self.id_of(uri)?;
        known.map_or_else(|| self.add_row(uri), Ok)
    }

    fn add_row(self, uri: &Uri) -> Result<DocId> {
        self.run("INSERT INTO document (uri) VALUES (?1)", uri)?;
        Ok(DocId(self.0.last_insert_rowid()))
    }

    pub fn id_of(self, uri: &Uri) -> Result<Option<DocId>> {
        self.first("SELECT id FROM document WHERE uri = ?1", uri)
    }

    pub fn uri_of(self, id: DocId) -> Result<Uri> {
        self.one("SELECT uri FROM document WHERE id = ?1", id)
    }
}

/// A candidate that was looked at, and all that is known of it: a document that was seen, or a file that is none, or cannot
/// be read.
#[derive(Debug)]
pub struct KnownCandidate {
    /// Position of its source.
    pub position: usize,
    pub uri: Uri,
    pub path: DocumentPath,
    /// The end of the look.
    pub at: Timestamp,
    pub has_findings: bool,
    pub is_other_file: bool,
    /// If it could not be read: whether it predates its baseline, whether it was reported, and when it is to be.
    pub predates: Option<bool>,
    pub is_reported: Option<bool>,
    pub report_at: Option<Timestamp>,
    /// Its row, if its URI was ever mentioned.
    pub id: Option<DocId>,
    pub document: Option<SeenDocument>,
}

/// Takes looks at candidates (R3, R4).
pub fn observe(step: &mut Step<'_>, looks: impl IntoIterator<Item = Observation>) -> Result<()> {
    for observation in looks {
        observe_one(step, observation)?;
    }
    count_arrived(step)
}

/// Notes in the census the documents whose rows were added. It comes before any of them changes, since a trigger takes one
/// that changed from those that the census has. Not by a trigger: for each insertion with one, SQLite keeps a journal to take
/// it back.
fn count_arrived(step: &mut Step<'_>) -> Result<()> {
    for ((mount, capability, form), count) in take(&mut step.arrived) {
        step.db.run(
            "INSERT INTO census VALUES (?1, ?2, ?3, 1, 0, 0, 0, ?4) \
             ON CONFLICT (mount, capability, form, presence, held, archived, orphan) DO UPDATE SET count = count + ?4",
            (mount, capability, form, count),
        )?;
    }
    Ok(())
}

fn observe_one(step: &mut Step<'_>, observation: Observation) -> Result<()> {
    let Observation { path, at, look } = observation;
    let source = step.plan.source_of(path.mount);
    let place = source.and_then(|(position, plan)| Some((position, plan.uri_of(&path)?)));
    let Some((position, uri)) = place else {
        return Ok(());
    };
    if !matches!(
        look,
        Found::Missing | Found::Incomplete(Incomplete::Denied(_))
    ) {
        let source = &mut step.live.sources[position];
        let is_doubtful = source.record_doubtful_look(path.mount, &uri, true);
        if is_doubtful && source.is_absent(path.mount) {
            count_arrived(step)?;
            mounts::accept_doubted_root(step, path.mount, at)?;
        }
    }
    let known = step.db.candidate(position, uri, path, at)?;
    if known.document.is_some() {
        count_arrived(step)?;
    }
    let found = findings::of_look(&known.uri, &look);
    if let Some(found) = found.filter(|found| known.has_findings || !found.is_empty()) {
        findings::replace(step, position, &known.uri, FindingPart::File, found)?;
    }
    match look {
        Found::Document { parsed, stat } => note_document(step, known, parsed, stat)?,
        Found::Other { stat, reason } => {
            let first = &mut step.live.sources[position].other_file;
            let is_first = |(first, _): &(DocumentPath, _)| known.path <= *first;
            if first.as_ref().is_none_or(is_first) {
                *first = Some((known.path.clone(), reason));
            }
            if let Some(before) = &known.document {
                deletions::mark_missing(step, position, before, at, true)?;
            }
            forget_unreadable(step, &known)?;
            request_explanation(step, &known)?;
            // The row that it may have had is forgotten by now.
            let sql = "INSERT INTO other_file VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            step.db.run(sql, (&known.path, &stat, at))?;
        }
        // R15: what is missing or out of reach with its mount was not deleted, nor found again.
        Found::Incomplete(_) | Found::Missing
            if step.live.sources[position].is_absent(known.path.mount) => {}
        Found::Incomplete(reason) => {
            request_explanation(step, &known)?;
            note_unreadable(step, &known, &reason)?;
        }
        Found::Missing => {
            forget_unreadable(step, &known)?;
            request_explanation(step, &known)?;
            let source = &mut step.live.sources[position];
            let is_doubtful = source.record_doubtful_look(known.path.mount, &known.uri, false);
            if !is_doubtful && let Some(before) = &known.document {
                deletions::mark_missing(step, position, before, at, false)?;
            }
        }
    }
    Ok(())
}

/// Takes in a complete document.
fn note_document(
    step: &mut Step<'_>,
    known: KnownCandidate,
    parsed: Arc<Document>,
    stat: Stat,
) -> Result<()> {
    let version = Version::of(&parsed);
    let (position, mount) = (known.position, known.path.mount);
    forget_unreadable(step, &known)?;
    if known.is_reported == Some(true) {
        let (path, uri) = (known.path.clone(), known.uri.clone());
        step.facts.push(Fact::Mended { path, uri });
    }
    if let Some(before) = &known.document
        && replaces_announced(step, before, &version)
    {
        deletions::mark_missing(step, position, before, known.at, true)?;
        let (id, look) = (before.id, Found::Document { parsed, stat });
        let (path, at) = (known.path, known.at);
        let successor = Observation { path, at, look };
        step.successors.insert(id, Some(successor));
        return Ok(());
    }
    let mut baseline = 0;
    if let Some(before) = &known.document {
        step.successors.remove(&before.id);
        if !before.is_gone() && before.version == version {
            let is_racy = later(before.stat.changed, RACY) >= before.looked;
            let is_same = (before.stat, &before.path) == (stat, &known.path);
            if is_same && !is_racy && before.presence == Presence::Present {
                return Ok(());
            }
            return step.db.update_document(
                before.id,
                "mount = ?2, path = ?3, size = ?4, modified = ?5, changed = ?6, inode = ?7, looked = ?8, \
                 presence = 1, absent_since = NULL, grace_ends = NULL, look_at = NULL, is_replaced = 0, \
                 touched = max(touched, CASE WHEN presence IN (2, 3) THEN 2 ELSE 0 END)",
                (&known.path, &stat, known.at),
            );
        }
    } else {
        let source = &mut step.live.sources[position];
        if !step.plan.sources[position].announce_existing && source.is_never_looked_at(&known.path)
        {
            let mount = source.mounts.get_mut(&mount).map(Arc::make_mut);
            let is_known =
                mount.is_some_and(|it| it.baseline.counts_as_told(&known, &parsed, stat));
            baseline = if is_known { 1 } else { 2 };
        } else if known.predates == Some(true) {
            baseline = 2;
        }
    }
    take_new_version(step, known, &parsed, stat, baseline)?;
    step.live.sources[position].note_had_document(step.db, mount)
}

/// R14, R15: returns true if a version lies in the place of another document whose deletion is announced, so that that one
/// gets the grace of what is missing. An index of several Source Descriptions is no other document.
fn replaces_announced(step: &Step<'_>, before: &SeenDocument, found: &Version) -> bool {
    let mut ended = before.version;
    let was_description = ended.capability == Capability::SourceDescription;
    if was_description {
        // An index of Source Descriptions may be known to hubs as the Source Description that it was.
        ended.form = Form::List;
    }
    let is_same =
        found.capability == ended.capability && (was_description || found.form == ended.form);
    let is_announced = || {
        let all_deletions = step.announces_all_deletions(before.source);
        is_deletion_announced(&ended, before.archived, all_deletions)
    };
    !is_same && !before.is_gone() && !deletions::is_awaiting_look(before) && is_announced()
}

/// Takes in a document that is new or changed.
fn take_new_version(
    step: &mut Step<'_>,
    known: KnownCandidate,
    parsed: &Arc<Document>,
    stat: Stat,
    baseline: u8,
) -> Result<()> {
    let (db, version) = (step.db, Version::of(parsed));
    let (uri, path, at, before) = (&known.uri, known.path, known.at, known.document);
    let previous = before.as_ref().filter(|before| !before.is_gone());
    let live = &step.live.sources[known.position];
    let (source, plan) = (live.id, &step.plan.sources[known.position]);
    let (mut id, mut named) = (known.id, [None, None]);
    let links = [&parsed.up, &parsed.index].into_iter();
    for ((row, last), link) in named.iter_mut().zip(&mut step.named).zip(links) {
        let Some(named) = link.as_ref().map(|link| plan.canonical(link)) else {
            continue;
        };
        // Most documents of a set are read one after the other, and name the same.
        if last.as_ref().is_none_or(|(uri, _)| *uri != named) {
            *last = Some((named.clone(), db.ensure_row(&named)?));
        }
        *row = last.as_ref().map(|(_, id)| *id);
        // One that names itself has a row by now.
        id = id.or(row.filter(|_| named == *uri));
    }
    let [up, index] = named;
    let sql = "SELECT form FROM document WHERE id = ?1 AND presence BETWEEN 1 AND 3";
    let named_form = index
        .map(|index| db.first::<Form>(sql, index))
        .transpose()?
        .flatten();
    let newly_indexed = previous.is_some_and(|before| {
        let changed_form =
            before.named_form.is_some() && named_form.is_some() && before.named_form != named_form;
        // A generator may write a component several times before it writes the index.
        let still_waits = before.newly_indexed && before.hold == HoldState::Waiting;
        index.is_some() && (index != before.names_index || changed_form || still_waits)
    });
    let mount = live.mounts.get(&path.mount);
    let swept = mount.and_then(|mount| mount.baseline.swept);
    let last_look = swept.max(previous.map(|before| before.looked));
    let is_within = |last_look: Timestamp| last_look <= stat.modified && stat.modified <= at;
    let dated = if last_look.is_some_and(is_within) {
        stat.modified
    } else {
        at
    };
    let is_new_set = match previous.filter(|before| before.version.is_set()) {
        Some(before) => before.is_new_set,
        None => version.is_set() && baseline == 0,
    };
    // R13: what a baseline holds counts as told, but for content that may be newer.
    let was = match baseline {
        0 => before.as_ref().and_then(SeenDocument::version_when_settled),
        1 => Some(version),
        _ => Some(Version {
            fingerprint: None,
            ..version
        }),
    };
    if let Some(before) = &before {
        owed::see(db, source, before, Some(&version))?;
    }
    let hold = previous.map_or(HoldState::Free, |before| before.hold);
    let is_same_kind = previous.is_some_and(|before| before.version.is_same_document(&version));
    // What indexes are about is written only if it differs.
    let place = match &before {
        Some(before)
            if (before.source, before.version.capability) == (source, version.capability)
                && (&before.path, before.up, before.names_index) == (&path, up, index) =>
        {
            ""
        }
        _ => "source = ?2, mount = ?3, path = ?4, up = ?12, names_index = ?13, capability = ?9,",
    };
    let values = (
        (source, &path, &stat, &version),
        (up, index, named_form, newly_indexed, dated, at),
        (hold, is_new_set, baseline, was),
    );
    let id = if let Some(id) = id {
        let sql = format!(
            "UPDATE document SET {place} size = ?5, modified = ?6, changed = ?7, inode = ?8, form = ?10, fingerprint = ?11, \
             named_form = ?14, newly_indexed = ?15, dated = ?16, looked = ?17, presence = 1, absent_since = NULL, \
             grace_ends = NULL, look_at = NULL, is_replaced = 0, hold = ?18, \
             held_until = CASE WHEN ?18 = 1 THEN held_until END, is_new_set = ?19, baseline = max(baseline, ?20), touched = 3, \
             was_capability = ?21, was_form = ?22, was_fingerprint = ?23 WHERE id = ?1"
        );
        db.run(&sql, (id, values))?;
        id
    } else {
        db.run(
            "INSERT INTO document (uri, source, mount, path, size, modified, changed, inode, capability, form, fingerprint, \
             up, names_index, named_form, newly_indexed, dated, looked, hold, is_new_set, baseline, \
             was_capability, was_form, was_fingerprint, presence, touched) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, \
             ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, 1, 3)",
            (uri, values),
        )?;
        let id = DocId(db.0.last_insert_rowid());
        let of_kind = (path.mount, version.capability, version.form);
        *step.arrived.entry(of_kind).or_default() += 1;
        id
    };
    if before.is_some() {
        db.run("DELETE FROM seeing", ())?;
    }
    let is_structural = |version: &Version| is_structural(version.capability, version.form);
    let was = before.as_ref().map(|before| &before.version);
    if is_structural(&version) || was.is_some_and(is_structural) {
        let entries = is_structural(&version).then(|| Arc::clone(parsed));
        step.entries.push((known.position, id, entries));
    }
    if was.is_some_and(Version::is_set) {
        db.run("DELETE FROM advertised WHERE document = ?1", id)?;
    }
    let advertised = parsed.channels.iter().filter(|_| version.is_set());
    for (position, channel) in advertised.enumerate() {
        let hubs: Vec<&str> = channel.hubs.iter().map(|hub| hub.as_str()).collect();
        let hubs = serde_json::json!(hubs).to_string();
        let sql = "INSERT INTO advertised VALUES (?1, ?2, ?3, ?4, ?5)";
        db.run(sql, (id, position, channel.kind, &channel.topic, hubs))?;
    }
    if is_same_kind {
        Ok(())
    } else {
        touch_elsewhere(step, id)
    }
}

/// Touches the documents of other sources that depend on one, which may settle before its own does.
pub fn touch_elsewhere(step: &Step<'_>, id: DocId) -> Result<()> {
    if step.plan.sources.len() > 1 {
        relations::touch_dependents(step, "d.id = ?1", id.0)?;
    }
    Ok(())
}

/// Replaces the entries of structural documents, and touches the documents that only one of the old and the new name. It
/// comes after the looks of a step: a row that is added with all that is seen need not grow.
pub fn replace_entries(step: &mut Step<'_>) -> Result<()> {
    for (position, list, parsed) in take(&mut step.entries) {
        let plan = &step.plan.sources[position];
        let named = parsed.iter().flat_map(|parsed| &parsed.members);
        let sql = "SELECT d.uri, d.id FROM mention m CROSS JOIN document d ON d.id = m.document WHERE m.list = ?1";
        let mut gone: BTreeMap<Uri, DocId> = step.db.all(sql, list)?;
        let mut seen = BTreeSet::new();
        for member in named.map(|uri| plan.canonical(uri)) {
            if !seen.insert(member.clone()) || gone.remove(&member).is_some() {
                continue;
            }
            let sql = "SELECT id, presence > 0 AND touched = 0 FROM document WHERE uri = ?1";
            let known: Option<(DocId, bool)> = step.db.first(sql, &member)?;
            let id = known.map_or_else(|| step.db.add_row(&member), |(id, _)| Ok(id))?;
            let sql = "INSERT INTO mention VALUES (?1, ?2)";
            step.db.run(sql, (list, id))?;
            if known.is_some_and(|(_, is_untouched)| is_untouched) {
                touch(step, id)?;
            }
        }
        for id in gone.into_values() {
            let sql = "DELETE FROM mention WHERE list = ?1 AND document = ?2";
            step.db.run(sql, (list, id))?;
            touch(step, id)?;
        }
    }
    Ok(())
}

pub fn touch(step: &Step<'_>, id: DocId) -> Result<()> {
    let sql = "UPDATE document SET touched = 1 WHERE id = ?1 AND presence > 0 AND touched = 0";
    step.db.run(sql, id)
}

/// Asks again what lies at a path that holds no document, where a Capability List names it.
fn request_explanation(step: &mut Step<'_>, known: &KnownCandidate) -> Result<()> {
    let source = &step.live.sources[known.position];
    let is_named = source.is_swept()
        && step.db.exists(
            "SELECT 1 FROM document d JOIN mention m ON m.document = d.id JOIN document l ON l.id = m.list \
             WHERE d.uri = ?1 AND d.presence IN (0, 4) AND l.capability <> 0 AND l.source = ?2",
            (&known.uri, source.id),
        )?;
    if is_named {
        step.explain.insert(known.path.clone());
    }
    Ok(())
}

/// Notes that a document cannot be read; it keeps its last good state.
fn note_unreadable(step: &Step<'_>, known: &KnownCandidate, reason: &Incomplete) -> Result<()> {
    let (uri, path, document) = (&known.uri, &known.path, &known.document);
    let is_reachable = !matches!(reason, Incomplete::Denied(_));
    if is_reachable {
        // It is there, whether or not another mount had it before (R13).
        let sql = "UPDATE document SET looked = ?2 WHERE uri = ?1 AND looked = 0";
        step.db.run(sql, (uri, known.at))?;
    }
    if let Some(document) = document.as_ref().filter(|document| document.is_missing()) {
        // A file that cannot be reached may be there or not; one that can be is there, unless something else was.
        if is_reachable && !document.is_replaced {
            let columns = "presence = 1, absent_since = NULL, grace_ends = NULL, look_at = NULL, \
                       touched = max(touched, 2)";
            step.db.update_document(document.id, columns, ())?;
        } else {
            let columns = "grace_ends = NULL, look_at = NULL";
            step.db.update_document(document.id, columns, ())?;
        }
    }
    let source = &step.live.sources[known.position];
    let plan = &step.plan.sources[known.position];
    let predates = document.is_none() && source.is_never_looked_at(path);
    let report_at = later(step.now, plan.broken_after);
    let values = (known.at, reason.to_string(), predates, report_at);
    step.db.run(
        "INSERT INTO trouble VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8) \
         ON CONFLICT (uri) DO UPDATE SET reason = excluded.reason",
        (uri, source.id, path, values),
    )
}

/// Forgets that a candidate was no document, or could not be read. If it could not be read for long, entries that it has or
/// had count as seen from now on (C7).
fn forget_unreadable(step: &Step<'_>, known: &KnownCandidate) -> Result<()> {
    if known.is_other_file {
        let sql = "DELETE FROM other_file WHERE mount = ?1 AND path = ?2";
        step.db.run(sql, &known.path)?;
    }
    let Some(is_reported) = known.is_reported else {
        return Ok(());
    };
    let sql = "DELETE FROM trouble WHERE uri = ?1";
    step.db.run(sql, &known.uri)?;
    let source = &step.live.sources[known.position];
    let plan = &step.plan.sources[known.position];
    let graced = later(step.now, plan.broken_after);
    let is_graced = |at| later(at, plan.deletion_grace) <= graced;
    if is_reported || known.report_at.is_some_and(is_graced) {
        change_sets::clear_watched_since(step, source.id, false)?;
    }
    Ok(())
}

/// Reports the candidates that could not be read for long, once each.
pub fn report_unreadable(step: &mut Step<'_>) -> Result<()> {
    let lasting = step.db.all::<Vec<(Uri, i64, DocumentPath, String)>>(
        "UPDATE trouble SET reported = 1, report_at = NULL WHERE report_at <= ?1 RETURNING uri, source, mount, path, reason",
        step.now,
    )?;
    for (uri, source, path, reason) in lasting {
        let document = step.db.document_at(&uri)?;
        let is_known = document.is_some_and(|document| !document.is_gone());
        if let Some(position) = step.live.source_position(source) {
            step.broken.push((
                position,
                Fact::Broken {
                    path,
                    uri,
                    reason,
                    is_known,
                },
            ));
        }
    }
    Ok(())
}

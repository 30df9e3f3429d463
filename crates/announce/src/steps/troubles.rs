//! Candidates: what is known of each, and of those that cannot be read (R3), or are no documents (R2).

use crate::event::Fact;
use crate::observation::{DocumentPath, Incomplete};
use crate::time::later;
use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::state::{Db, DocId, Result};
use crate::steps::documents::{COLUMNS, SeenDocument};
use crate::steps::{Step, change_sets};

/// A candidate, and all that is known of it: a document that was seen, or a file that is none, or cannot be read.
#[derive(Debug)]
pub struct KnownCandidate {
    /// Position of its source.
    pub position: usize,
    pub uri: Uri,
    pub path: DocumentPath,
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

impl Db<'_> {
    /// Returns all that is known of a candidate.
    pub fn candidate(
        self,
        position: usize,
        uri: Uri,
        path: DocumentPath,
    ) -> Result<KnownCandidate> {
        let sql = format!(
            "SELECT EXISTS (SELECT 1 FROM finding WHERE about = ?1 AND part = 2), \
             EXISTS (SELECT 1 FROM other_file WHERE mount = ?2 AND path = ?3), \
             t.predates, t.reported, t.report_at, d.id, d.presence > 0, {COLUMNS} FROM (SELECT 1) \
             LEFT JOIN trouble t ON t.uri = ?1 LEFT JOIN document d ON d.uri = ?1"
        );
        let known = self.first(&sql, (&uri, &path))?;
        let (has_findings, is_other_file, predates, is_reported, report_at, id, document) =
            known.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        Ok(KnownCandidate {
            position,
            uri,
            path,
            has_findings,
            is_other_file,
            predates,
            is_reported,
            report_at,
            id,
            document,
        })
    }
}

/// Forgets that a candidate was no document.
pub fn forget_other_file(step: &Step<'_>, known: &KnownCandidate) -> Result<()> {
    if known.is_other_file {
        let sql = "DELETE FROM other_file WHERE mount = ?1 AND path = ?2";
        step.db.run(sql, &known.path)?;
    }
    Ok(())
}

/// Notes that a document cannot be read; it keeps its last good state.
pub fn note(
    step: &Step<'_>,
    known: &KnownCandidate,
    reason: &Incomplete,
    at: Timestamp,
) -> Result<()> {
    let (uri, path, document) = (&known.uri, &known.path, &known.document);
    let is_reachable = !matches!(reason, Incomplete::Denied(_));
    if is_reachable {
        // It is there, whether or not another mount had it before (R13).
        let sql = "UPDATE document SET looked = ?2 WHERE uri = ?1 AND looked = 0";
        step.db.run(sql, (uri, at))?;
    }
    if let Some(document) = document.as_ref().filter(|document| document.is_missing()) {
        // A file that cannot be reached may be there or not; one that can be is there, unless something else was.
        if is_reachable && !document.is_replaced {
            let columns = "presence = 1, absent_since = NULL, grace_ends = NULL, look_at = NULL, \
                       touched = max(touched, 2)";
            step.db.set_document(document.id, columns, ())?;
        } else {
            step.db
                .set_document(document.id, "grace_ends = NULL, look_at = NULL", ())?;
        }
    }
    let (source, plan) = step.source(known.position);
    let predates = document.is_none() && source.is_new_ground(path);
    let report_at = later(step.now, plan.broken_after);
    step.db.run(
        "INSERT INTO trouble VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8) \
         ON CONFLICT (uri) DO UPDATE SET reason = excluded.reason",
        (
            uri,
            source.id,
            path,
            at,
            reason.to_string(),
            predates,
            report_at,
        ),
    )
}

/// Forgets that a candidate could not be read. If that lasted, entries that it has or had count as seen from now on (C7).
pub fn forget(step: &Step<'_>, known: &KnownCandidate) -> Result<()> {
    let Some(is_reported) = known.is_reported else {
        return Ok(());
    };
    let sql = "DELETE FROM trouble WHERE uri = ?1";
    step.db.run(sql, &known.uri)?;
    let (source, plan) = step.source(known.position);
    let graced = later(step.now, plan.broken_after);
    let is_graced = |at| later(at, plan.deletion_grace) <= graced;
    if is_reported || known.report_at.is_some_and(is_graced) {
        change_sets::unwatch_change_lists(step, source.id)?;
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
        if let Some(position) = step.live.position(source) {
            let fact = Fact::Broken {
                path,
                uri,
                reason,
                is_known,
            };
            step.broken.push((position, fact));
        }
    }
    Ok(())
}

//! Candidates that cannot be read (R3).

use crate::announce::event::Fact;
use crate::announce::observation::{DocumentPath, Incomplete};
use crate::announce::time::later;
use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::steps::{Step, change_sets};
use crate::state::Result;

/// Notes that a document cannot be read; it keeps its last good state.
pub fn note(
    step: &mut Step<'_>,
    position: usize,
    uri: &Uri,
    path: &DocumentPath,
    reason: &Incomplete,
    at: Timestamp,
) -> Result<()> {
    let is_reachable = !matches!(reason, Incomplete::Denied(_));
    let document = step.db.document_at(uri)?;
    if is_reachable {
        // It is there, whether or not another mount had it before (R13).
        let sql = "UPDATE document SET looked = ?2 WHERE uri = ?1 AND looked = 0";
        step.db.run(sql, (uri, at))?;
    }
    if let Some(document) = document.as_ref().filter(|document| document.is_missing()) {
        // A file that cannot be reached may be there or not; one that can be is there, unless something else was.
        if is_reachable && !document.is_replaced {
            step.db.run(
                "UPDATE document SET presence = 1, absent_since = NULL, grace_ends = NULL, look_at = NULL, \
                 touched = max(touched, 2) WHERE id = ?1",
                document.id,
            )?;
        } else {
            let sql = "UPDATE document SET grace_ends = NULL, look_at = NULL WHERE id = ?1";
            step.db.run(sql, document.id)?;
        }
    }
    let predates = document.is_none() && step.live.sources[position].is_new_ground(path);
    let report_at = later(step.now, step.plan.sources[position].broken_after);
    step.db.run(
        "INSERT INTO trouble VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8) \
         ON CONFLICT (uri) DO UPDATE SET reason = excluded.reason",
        (
            uri,
            step.live.sources[position].id,
            path,
            at,
            reason.to_string(),
            predates,
            report_at,
        ),
    )
}

/// Forgets a candidate that can be read, or is gone. Returns whether it predates its baseline, and was reported. If it lasted,
/// entries that it has or had count as seen from now on (C7).
pub fn forget(step: &Step<'_>, position: usize, uri: &Uri) -> Result<Option<(bool, bool)>> {
    let sql = "SELECT predates, reported, report_at FROM trouble WHERE uri = ?1";
    let trouble: Option<(bool, bool, Option<Timestamp>)> = step.db.first(sql, uri)?;
    let Some((predates, reported, report_at)) = trouble else {
        return Ok(None);
    };
    step.db.run("DELETE FROM trouble WHERE uri = ?1", uri)?;
    let plan = &step.plan.sources[position];
    let graced = later(step.now, plan.broken_after);
    if reported || report_at.is_some_and(|at| later(at, plan.deletion_grace) <= graced) {
        change_sets::stop_watching_entries(step, step.live.sources[position].id)?;
    }
    Ok(Some((predates, reported)))
}

/// Reports the candidates that could not be read for long, once each.
pub fn report(step: &mut Step<'_>) -> Result<()> {
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

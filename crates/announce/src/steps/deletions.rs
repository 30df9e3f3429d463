//! Deletions: what is missing, when it counts as deleted, and when so much is missing that no deletion is believed (R15).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::capability::Capability;

use crate::event::{DropCause, Fact, SuspendedDeletions};
use crate::observation::MountId;
use crate::plan::{MassDeletionLimit, SourcePlan};
use crate::state::{AccountId, Db, DocId, Result};
use crate::steps::documents::{self, COLUMNS, Presence, SeenDocument};
use crate::steps::live::LiveSource;
use crate::steps::{Step, channels, owed, relations};
use crate::time::later;

/// The wait for the answer to a look at a missing document, before another look.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Returns the documents of a source that are missing, in order.
pub fn load_missing(db: Db<'_>, source: i64) -> Result<Vec<SeenDocument>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM document d WHERE d.source = ?1 AND d.presence IN (2, 3) ORDER BY d.uri"
    );
    db.all::<Vec<SeenDocument>>(&sql, source)
}

/// Asks for a look at each document whose grace may have ended.
pub fn request_due_looks(step: &mut Step<'_>) -> Result<()> {
    let sql = format!("SELECT {COLUMNS} FROM document d WHERE d.look_at <= ?1 ORDER BY d.look_at");
    for document in step.db.all::<Vec<SeenDocument>>(&sql, step.now)? {
        step.db.update_document(document.id, "look_at = NULL", ())?;
        request_look(step, &document)?;
    }
    Ok(())
}

/// Returns true if a missing document counts as deleted once it was looked at: its grace is over, and its deletion is not
/// suspended, or accepted.
fn may_be_deleted(step: &Step<'_>, document: &SeenDocument) -> bool {
    let is_believed = |source: &LiveSource| {
        document.presence == Presence::Accepted
            || !(source.is_mass || source.is_nested_away(&document.path))
    };
    let is_grace_over = document.grace_ends.is_some_and(|ends| ends <= step.now);
    let source = step.source_with_row(document.source);
    document.is_missing() && is_grace_over && source.is_some_and(|(it, _)| is_believed(it))
}

/// Asks for a look at a document whose grace is over: a deletion counts only after a look that follows the grace.
fn request_look(step: &mut Step<'_>, document: &SeenDocument) -> Result<()> {
    if !may_be_deleted(step, document) {
        return Ok(());
    }
    step.look.insert(document.path.clone());
    let again = later(step.now, LOOK_AGAIN);
    step.db.update_document(document.id, "look_at = ?2", again)
}

/// Asks for a look at what is missing, if its grace is over; and, below a mount that was swept just now, at what this run
/// has not seen to be absent.
pub fn look_at_missing(step: &mut Step<'_>, position: usize, swept: Option<MountId>) -> Result<()> {
    for document in load_missing(step.db, step.live.sources[position].id)? {
        if Some(document.path.mount) == swept && document.grace_ends.is_none() {
            step.look.insert(document.path);
        } else {
            request_look(step, &document)?;
        }
    }
    Ok(())
}

/// Accepts as deleted what is missing now, except below a mount that is away, where nobody can see what is missing.
pub fn accept(step: &mut Step<'_>, position: usize) -> Result<usize> {
    let mut accepted = 0;
    for document in load_missing(step.db, step.live.sources[position].id)? {
        if !step.live.sources[position].is_absent(document.path.mount) {
            step.db.update_document(document.id, "presence = 3", ())?;
            accepted += 1;
        }
    }
    look_at_missing(step, position, None)?;
    Ok(accepted)
}

/// Decides about the deletions that this step's looks found, all of them first counted: they are suspended if too many
/// documents are missing, or some are with the file system that held them.
pub fn judge_deletions(step: &mut Step<'_>, position: usize) -> Result<()> {
    let plan = &step.plan.sources[position];
    let source = &mut step.live.sources[position];
    let source_id = source.id;
    let (were_suspended, was_mass) = (source.is_suspended(), source.is_mass);
    let is_any_missing = "SELECT 1 FROM document WHERE source = ?1 AND presence IN (2, 3)";
    if !source.is_swept() || !were_suspended && !step.db.exists(is_any_missing, source_id)? {
        return Ok(());
    }
    let before = source.away.clone();
    judge_missing(step.db, plan, source)?;
    let (is_mass, is_less) = (source.is_mass, !before.is_subset(&source.away));
    let is_more = !source.away.is_subset(&before);
    match suspension(step.db, &plan.name, source)? {
        Some(suspension) if !were_suspended || is_more || is_mass && !was_mass => {
            step.facts.push(Fact::Suspended(suspension));
        }
        None if were_suspended => step.facts.push(Fact::Resumed {
            source: plan.name.clone(),
        }),
        _ => {}
    }
    if was_mass && !is_mass || is_less {
        look_at_missing(step, position, None)?;
    }
    let ids: Vec<_> = step.successors.keys().copied().collect();
    for id in ids {
        let document = step.db.document(id)?;
        let Some(document) = document.filter(|document| document.source == source_id) else {
            continue;
        };
        let successor = step.successors.remove(&id).flatten();
        if !may_be_deleted(step, &document) {
            continue;
        }
        delete(step, position, &document)?;
        documents::observe(step, successor)?;
    }
    Ok(())
}

/// Counts of one mount: present, missing, accepted; of all documents and of Capability Lists.
type MountCounts = BTreeMap<MountId, [[usize; 3]; 2]>;

fn census(db: Db<'_>, source: &LiveSource) -> Result<MountCounts> {
    let mut counts = MountCounts::new();
    for id in source.mounts.keys() {
        let sql =
            "SELECT capability = 1 AND form = 0, presence, count FROM census WHERE mount = ?1";
        let rows = db.all::<Vec<(bool, usize, usize)>>(sql, *id)?;
        for (is_set, presence, count) in rows {
            let of_mount = counts.entry(*id).or_default();
            for of_kind in &mut of_mount[..=usize::from(is_set)] {
                of_kind[presence - 1] += count;
            }
        }
    }
    Ok(counts)
}

/// Returns the numbers of documents, or of Capability Lists, that are missing, and of those that may be.
fn missing_counts(counts: &MountCounts, source: &LiveSource, kind: usize) -> (usize, usize) {
    counts.iter().fold((0, 0), |(missing, all), (id, counts)| {
        let [present, gone, accepted] = counts[kind];
        let visible = if source.is_absent(*id) { 0 } else { present };
        (missing + gone, all + gone + accepted + visible)
    })
}

/// Returns the suspension of deletions of a source as it was last judged.
pub fn suspension(db: Db<'_>, name: &str, live: &LiveSource) -> Result<Option<SuspendedDeletions>> {
    if !live.is_suspended() {
        return Ok(None);
    }
    let (missing, of) = missing_counts(&census(db, live)?, live, 0);
    let missing = Some(missing).filter(|_| live.is_mass);
    Ok(Some(SuspendedDeletions {
        source: name.to_owned(),
        missing: missing.unwrap_or(live.away_count),
        of,
        unmounted: live.away.iter().cloned().collect(),
    }))
}

/// Judges whether so much is missing that no deletion is believed, and what is missing with the file system that held it.
pub fn judge_missing(db: Db<'_>, plan: &SourcePlan, source: &mut LiveSource) -> Result<()> {
    let counts = census(db, source)?;
    let mut of_mounts = counts.values();
    let is_emptied = of_mounts.any(|[[present, missing, _], _]| *present == 0 && *missing > 0);
    let (missing_documents, documents) = missing_counts(&counts, source, 0);
    let (missing_lists, lists) = missing_counts(&counts, source, 1);
    let of_mounts = counts.values();
    let lists_before = of_mounts.map(|[_, [present, missing, _]]| present + missing);
    let had_several = lists_before.sum::<usize>() > 1;
    source.is_mass = plan.mass_deletion != MassDeletionLimit::Never
        && (is_emptied
            || plan.mass_deletion.is_exceeded(missing_documents, documents)
            || missing_lists > 0 && missing_lists == lists && had_several);
    source.away_count = 0;
    source.away.clear();
    let mut rows = (source.mounts.values()).flat_map(|mount| mount.nested.rows.values());
    if rows.any(|row| row.is_away) {
        for document in load_missing(db, source.id)? {
            let path = document.path;
            if document.presence == Presence::Missing
                && let Some(mount) = source.mounts.get(&path.mount)
                && let Some(top) = mount.nested.known_away(&path.below)
            {
                source.away_count += 1;
                source.away.insert(mount.text_of(top));
            }
        }
    }
    Ok(())
}

/// R15: takes a document that a look did not find to be missing, and begins its grace, unless it has begun.
pub fn mark_missing(
    step: &mut Step<'_>,
    position: usize,
    before: &SeenDocument,
    at: Timestamp,
    is_replaced: bool,
) -> Result<()> {
    if before.is_gone() {
        return Ok(());
    }
    if is_awaiting_look(before) {
        relations::touch_dependents(step, "d.id = ?1", before.id.0)?;
        if before.version.is_set() {
            step.sets.entry(position).or_default().insert(before.id);
        }
        return forget_and_report(step, &[before.id]);
    }
    let grace = step.plan.sources[position].deletion_grace;
    step.db.update_document(
        before.id,
        "presence = max(presence, 2), absent_since = CASE WHEN presence = 1 THEN ?4 ELSE absent_since END, \
         touched = CASE WHEN presence = 1 THEN max(touched, 2) ELSE touched END, is_replaced = max(is_replaced, ?2), \
         grace_ends = coalesce(grace_ends, ?3), look_at = CASE WHEN grace_ends IS NULL THEN ?3 ELSE look_at END",
        (is_replaced, later(step.now, grace), at),
    )?;
    step.successors.insert(before.id, None);
    Ok(())
}

/// Takes a document to be deleted.
fn delete(step: &mut Step<'_>, position: usize, before: &SeenDocument) -> Result<()> {
    owed::see(step.db, before.source, before, None)?;
    step.db.update_document(
        before.id,
        "presence = 4, grace_ends = NULL, look_at = NULL, is_replaced = 0, held_until = NULL, touched = 3, \
         was_capability = ?2, was_form = ?3, was_fingerprint = ?4",
        before.version_when_settled(),
    )?;
    step.db.run("DELETE FROM seeing", ())?;
    step.entries.push((position, before.id, None));
    step.db
        .run("DELETE FROM advertised WHERE document = ?1", before.id)?;
    documents::touch_elsewhere(step, before.id)
}

/// Forgets a deleted document of which nothing is owed to any hub; nor, where each deletion is announced, may be once its
/// set or the hub returns.
pub fn forget_if_unowed(step: &Step<'_>, id: DocId) -> Result<()> {
    let Some(document) = step.db.document(id)? else {
        return Ok(());
    };
    let is_told_later = !document.version.is_set() && step.announces_all_deletions(document.source);
    let is_done = step.db.exists(
        "SELECT 1 FROM document d WHERE d.id = ?1 AND d.presence = 4 \
         AND NOT EXISTS (SELECT 1 FROM owed o WHERE o.document = d.id AND (o.dormant = 0 OR ?2)) \
         AND NOT EXISTS (SELECT 1 FROM flight_entry f WHERE f.document = d.id)",
        (id, is_told_later),
    )?;
    if is_done {
        reduce_to_mention(step.db, id)?;
    }
    Ok(())
}

/// R13: returns true if a change of the configuration says that a document lies where nobody has looked for it yet. If it
/// does not, it is no longer configured, unless it was missing before.
pub fn is_awaiting_look(document: &SeenDocument) -> bool {
    !document.is_missing() && document.looked == Timestamp::UNIX_EPOCH
}

/// Forgets documents that are no longer configured, and reports the changes of them that were due; what is in flight is
/// still sent, unless its channel goes with its source.
pub fn forget_and_report(step: &mut Step<'_>, documents: &[DocId]) -> Result<()> {
    let mut dropped: BTreeMap<AccountId, usize> = BTreeMap::new();
    for id in documents {
        let due = step.db.all::<Vec<(AccountId, i64, bool)>>(
            "SELECT o.channel, o.hub, c.source, EXISTS (SELECT 1 FROM flight_entry f \
             WHERE f.channel = o.channel AND f.hub = o.hub AND f.document = d.id AND \
             CASE WHEN f.capability IS NULL THEN d.presence = 4 ELSE f.capability = d.capability AND f.form = d.form \
             AND f.fingerprint IS NOT DISTINCT FROM d.fingerprint END) FROM owed o \
             CROSS JOIN document d ON d.id = o.document CROSS JOIN channel c ON c.id = o.channel \
             WHERE o.document = ?1 AND o.due IS NOT NULL",
            *id,
        )?;
        for (account, source, is_flown) in due {
            if !is_flown || step.live.source_position(source).is_none() {
                *dropped.entry(account).or_insert(0) += 1;
            }
        }
        // C27: its resources are not deleted.
        let sets = "SELECT m.set_id FROM member m CROSS JOIN document d ON d.id = m.document \
                    WHERE d.id = ?1 AND d.capability = ?2 AND d.form = 0 AND d.archived = 0";
        let learned = "UPDATE change_set SET learned = 0, missing = 0, missing_until = NULL, accepted = NULL, round = NULL \
                       WHERE learned = 2 AND id";
        for rows in ["DELETE FROM inventory WHERE set_id", learned] {
            let of = (*id, Capability::ResourceList);
            step.db.run(&format!("{rows} IN ({sets})"), of)?;
        }
        reduce_to_mention(step.db, *id)?;
    }
    for ((channel, hub), changes) in dropped {
        step.db.end_intervals((channel, hub))?;
        if let Some(channel) = channels::channel(step, channel)? {
            step.report_dropped(&channel.topic, hub, changes, DropCause::DocumentsRemoved)?;
        }
    }
    Ok(())
}

/// Makes a document one that is only mentioned.
pub fn reduce_to_mention(db: Db<'_>, id: DocId) -> Result<()> {
    // What flies is told to nobody as its own any more: the next document with this URI is another one.
    for rows in [
        "owed WHERE document = ?1",
        "flight_entry WHERE document = ?1",
        "member WHERE document = ?1",
        "mention WHERE list = ?1",
        "advertised WHERE document = ?1",
        "finding WHERE about = (SELECT uri FROM document WHERE id = ?1) AND part <> 2",
    ] {
        db.run(&format!("DELETE FROM {rows}"), id)?;
    }
    db.run("INSERT INTO seeing VALUES (?1)", id)?;
    db.update_document(id, "source = NULL, mount = NULL, path = NULL, capability = NULL, form = NULL, fingerprint = NULL, \
         up = NULL, names_index = NULL, presence = 0, absent_since = NULL, grace_ends = NULL, look_at = NULL, hold = 0, \
         held_until = NULL, index_parent = NULL, archived = 0, orphan = 0, is_new_set = 0, baseline = 0, touched = 0, \
         newly_indexed = 0, was_capability = NULL, was_form = NULL, was_fingerprint = NULL", ())?;
    db.run("DELETE FROM seeing", ())
}

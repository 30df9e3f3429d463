//! The lists of a set: those that the next round compares, as which version each was taken, and when what was taken of it
//! is forgotten (C1, C2, C6 to C8, C11 to C13, C27).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::changes::round::{ListTally, ListToRead, ROUND, UntakenCount};
use crate::event::Fact;
use crate::finding::Finding;
use crate::observation::Stat;
use crate::time::{earlier, later};
use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::uri::Uri;

use crate::state::{Columns, DocId, FromRow, Result, from_row};
use crate::steps::Step;
use crate::steps::change_sets::{self, ChangesFrom, TrackedSet, retry_delay};
use crate::steps::documents::{Presence, SeenDocument};
use crate::steps::findings::{self, FindingPart};

/// Largest size of the lists that are learned in one round, in bytes; one list at least.
const LEARNED_SIZE: u64 = 32 << 20;
/// Time after which a closed Change List that did not change is not expected to (C7).
const CLOSED_FOR_GOOD: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Number of times that a list is asked for in vain before the others are read without it.
pub const STALE_ROUNDS: u32 = 2;
/// Number of times that a list is asked for in vain before the operator is told, after half a minute.
const STALE_ROUNDS_TO_REPORT: u32 = 5;

/// The lists of a set for its next round.
#[derive(Debug)]
pub enum NextLists {
    /// There is nothing to read.
    None,
    /// None can be read now, and the round was put off.
    Later,
    /// These, with the time from which on entries wait, because lists that are not read may have earlier ones.
    Read(Vec<ListToRead>, Option<Timestamp>),
}

from_row! { ListToRead {
    id, list, path, stat, fingerprint, is_learned, is_archived, closed_until, waits, left
} }

impl FromRow for Option<UntakenCount> {
    fn from_row(row: &mut Columns<'_>) -> rusqlite::Result<Option<UntakenCount>> {
        let left: Option<(_, _)> = row.read()?;
        Ok(left.map(|(first, count)| UntakenCount { first, count }))
    }
}

/// Returns which lists of a set the next round compares: Resource Lists if it has any and no Change List, and the source
/// wants it (C27). For a channel that retires, these are the lists that were compared before (C12).
pub fn next_list_kind(step: &Step<'_>, set: &TrackedSet) -> Result<ChangesFrom> {
    let source = step.source_with_row(set.source);
    if !source.is_some_and(|(_, plan)| plan.changes_from_resource_lists) {
        return Ok(ChangesFrom::ChangeLists);
    }
    if let (Some(_), Some(learned)) = (set.retiring, set.learned) {
        return Ok(learned);
    }
    let has = |capability: Capability, condition: &str| {
        let sql = format!(
            "SELECT 1 FROM member m CROSS JOIN document d ON d.id = m.document \
             WHERE m.set_id = ?1 AND d.capability = ?2 AND d.presence BETWEEN 1 AND 3 {condition}"
        );
        step.db.exists(&sql, (set.id, capability))
    };
    let current = "AND d.form = 0 AND d.archived = 0";
    let has_inventory =
        set.learned == Some(ChangesFrom::ResourceLists) || has(Capability::ResourceList, current)?;
    if has_inventory && !has(Capability::ChangeList, "")? {
        return Ok(ChangesFrom::ResourceLists);
    }
    Ok(ChangesFrom::ChangeLists)
}

/// Returns the lists of this kind that a set has, and that fulfil a condition, in order of their URIs. For a channel that
/// retires, it has those that it had before its Capability List went (C12).
fn lists_of_set(
    step: &Step<'_>,
    set: &TrackedSet,
    capability: Capability,
    condition: &str,
) -> Result<Vec<ListToRead>> {
    let mut lists = Vec::new();
    let members = "member m CROSS JOIN document d ON d.id = m.document \
                   LEFT JOIN change_list l ON l.set_id = m.set_id AND l.list = d.id WHERE m.set_id = ?1";
    let orphans = "change_list l CROSS JOIN document d ON d.id = l.list \
                   WHERE l.set_id = ?1 AND NOT EXISTS (SELECT 1 FROM member WHERE document = d.id)";
    let orphans = set.retiring.map(|_| orphans);
    for from in [members].into_iter().chain(orphans) {
        let sql = format!(
            "SELECT d.id, d.uri, d.mount, d.path, d.size, d.modified, d.changed, d.inode, d.fingerprint, \
             ?3 OR coalesce(l.to_learn, 0) = 1, d.archived, CASE WHEN l.closed <= ?4 THEN l.last END, \
             l.version IS DISTINCT FROM d.fingerprint OR coalesce(l.waits, 0) = 0 OR l.waits_until IS NOT NULL, \
             CASE WHEN l.version IS NOT DISTINCT FROM d.fingerprint THEN l.left_first END, l.left_count FROM {from} \
             AND d.capability = ?2 AND d.form = 0 AND {condition}"
        );
        let closed_for_good = earlier(step.now, CLOSED_FOR_GOOD);
        let values = (set.id, capability, set.learned.is_none(), closed_for_good);
        lists.extend(step.db.all::<Vec<ListToRead>>(&sql, values)?);
    }
    lists.sort_by(|one, other| one.list.cmp(&other.list));
    Ok(lists)
}

/// Returns the Change Lists of a set with a version that was not taken as a whole (C1), but for those of which the rest
/// waits for another list to have it.
fn untaken_change_lists(step: &Step<'_>, set: &TrackedSet) -> Result<Vec<ListToRead>> {
    let condition = "d.presence = 1 AND l.fingerprint IS DISTINCT FROM d.fingerprint AND NOT (coalesce(l.waits, 0) = 1 \
                     AND l.version IS NOT DISTINCT FROM d.fingerprint AND l.waits_until IS NOT NULL)";
    lists_of_set(step, set, Capability::ChangeList, condition)
}

/// Returns the Change Lists that the next round of a set reads: not the stale ones, and so many that memory is bounded.
pub fn next_change_lists(step: &Step<'_>, set: &mut TrackedSet) -> Result<NextLists> {
    let mut lists = untaken_change_lists(step, set)?;
    // While a set is learned, a round runs even without lists: it records that there are none.
    if lists.is_empty() && set.learned.is_some() {
        return Ok(NextLists::None);
    }
    let left_out = leave_out_stale(step, set, &mut lists)?;
    if set.learned.is_none() {
        // They are learned later.
        for list in left_out {
            mark_to_learn(step, set.id, list)?;
        }
    } else if lists.is_empty() {
        if let Some(next) = next_stale_retry(step, set.id)? {
            set.delay_until(next, step.now);
        }
        return Ok(NextLists::Later);
    }
    let mut beyond = None;
    if set.learned.is_some() {
        beyond = keep_earliest(&mut lists);
    } else {
        let (mut size, count) = (0, lists.len());
        lists.retain(|list| {
            let is_first = size == 0;
            size += list.stat.size;
            is_first || size <= LEARNED_SIZE
        });
        set.is_partial = lists.len() < count;
    }
    Ok(NextLists::Read(lists, beyond))
}

/// Keeps the lists with the earliest entries that were left. Entries from the time on that is returned wait, because lists
/// that are not read may have earlier ones.
fn keep_earliest(lists: &mut Vec<ListToRead>) -> Option<Timestamp> {
    // A silent entry is compared with all that may tell it (C1, C7).
    let is_silent = |it: &ListToRead| it.is_archived || it.closed_until.is_some();
    if lists.iter().any(is_silent) {
        return None;
    }
    let left = |listed: &ListToRead| listed.left.filter(|_| !listed.is_learned);
    let mut firsts: Vec<UntakenCount> = lists.iter().map(left).collect::<Option<_>>()?;
    firsts.sort_unstable_by_key(|left| left.first);
    let mut entries = 0;
    let beyond = firsts.iter().find(|left| {
        let is_enough = entries >= ROUND;
        entries += left.count;
        is_enough && left.first > firsts[0].first
    });
    let beyond = beyond?.first;
    lists.retain(|listed| left(listed).is_some_and(|left| left.first < beyond));
    Some(beyond)
}

/// Returns all Resource Lists of a set for its next round, if any has changed or missing resources are to be looked for.
pub fn next_resource_lists(step: &Step<'_>, set: &mut TrackedSet) -> Result<NextLists> {
    let Some(mut lists) = resource_lists(step, set)? else {
        set.delay(step.now);
        return Ok(NextLists::Later);
    };
    if !is_inventory_due(step, set, &lists)? {
        return Ok(NextLists::None);
    }
    for listed in &mut lists {
        listed.is_learned |= set.learned != Some(ChangesFrom::ResourceLists);
        (listed.closed_until, listed.waits) = (None, false);
    }
    // An inventory is compared as a whole.
    Ok(NextLists::Read(lists, None))
}

/// Returns the Resource Lists of a set; nothing while one is missing.
fn resource_lists(step: &Step<'_>, set: &TrackedSet) -> Result<Option<Vec<ListToRead>>> {
    let of_presence = |presence: &str| {
        let condition = format!("d.presence IN ({presence}) AND d.archived = 0");
        lists_of_set(step, set, Capability::ResourceList, &condition)
    };
    let is_complete = of_presence("2, 3")?.is_empty();
    is_complete.then(|| of_presence("1")).transpose()
}

fn is_inventory_due(step: &Step<'_>, set: &TrackedSet, lists: &[ListToRead]) -> Result<bool> {
    let is_deletion_due =
        set.accepted.is_some() || set.missing_until.is_some_and(|at| at <= step.now);
    if is_deletion_due || set.learned != Some(ChangesFrom::ResourceLists) {
        return Ok(true);
    }
    let ids: BTreeSet<DocId> = lists.iter().map(|listed| listed.id).collect();
    if known_resource_lists(step, set.id)? != ids {
        return Ok(true);
    }
    for listed in lists {
        if !has_taken(step, set.id, listed.id, Some(listed.fingerprint))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if something may be fresh in the lists of a set.
pub fn has_fresh(step: &Step<'_>, set: &TrackedSet) -> Result<bool> {
    match next_list_kind(step, set)? {
        ChangesFrom::ChangeLists => Ok(!untaken_change_lists(step, set)?.is_empty()),
        ChangesFrom::ResourceLists => {
            let lists = resource_lists(step, set)?;
            lists.map_or(Ok(false), |lists| is_inventory_due(step, set, &lists))
        }
    }
}

/// C10: returns true if a document that a set or one of its indexes lists was found, and cannot be read until its writer is
/// done.
pub fn has_unreadable_member(step: &Step<'_>, set: DocId) -> Result<bool> {
    step.db.exists(
        "SELECT 1 FROM trouble t CROSS JOIN document d ON d.uri = t.uri WHERE t.report_at IS NOT NULL \
         AND d.presence IN (0, 4) AND (d.id = ?1 OR EXISTS (SELECT 1 FROM mention m WHERE m.document = d.id \
         AND EXISTS (SELECT 1 FROM member i WHERE i.document = m.list AND i.set_id = ?1)))",
        set,
    )
}

// Lists as far as their entries were taken.

fn has_taken(step: &Step<'_>, set: DocId, list: DocId, seen: Option<Fingerprint>) -> Result<bool> {
    let sql = "SELECT 1 FROM change_list WHERE set_id = ?1 AND list = ?2 AND fingerprint = ?3";
    step.db.exists(sql, (set, list, seen))
}

/// Notes that what a list has when it is read next counts as taken (C10, R13).
pub fn mark_to_learn(step: &Step<'_>, set: DocId, list: DocId) -> Result<()> {
    step.db.run(
        "INSERT INTO change_list (set_id, list, to_learn) VALUES (?1, ?2, 1) ON CONFLICT (set_id, list) DO UPDATE SET \
         to_learn = 1, fingerprint = NULL, listed = 0, taken = 0, closed = NULL, last = NULL",
        (set, list),
    )
}

/// Notes what a round took of a list; of one that is still learned only that it is there, if it `is_partial`.
pub fn record_taken(
    step: &Step<'_>,
    set: &TrackedSet,
    taken: &ListTally,
    is_partial: bool,
) -> Result<()> {
    let list = taken.version.id;
    forget_stale(step, set.id, list)?;
    let (to_learn, closed, is_version, waits) = step.db.value::<(bool, Option<(_, _)>, bool, _)>(
        "SELECT to_learn, closed, last, version IS NOT DISTINCT FROM ?3, waits, waits_until FROM change_list \
         WHERE set_id = ?1 AND list = ?2",
        (set.id, list, taken.version.fingerprint),
    )?;
    if is_partial && (set.learned.is_none() || to_learn) {
        return mark_to_learn(step, set.id, list);
    }
    // C7: another version of a list that was closed for good has to stay for as long once it was taken as a whole; its last
    // entry counts as no earlier than before.
    let before = closed.filter(|(since, _)| later(*since, CLOSED_FOR_GOOD) <= step.now);
    let last = before.map(|(_, last)| last);
    let closed = (taken.closed_until).map(|until| (step.now, until.max(last.unwrap_or(until))));
    let closed = if taken.is_whole { closed } else { before };
    // While others are left, the next round goes on with the same version.
    let (waits, waits_until) = if taken.waiting > 0 && taken.taken + taken.waiting == taken.listed {
        let source = step.source_with_row(set.source);
        let grace = source.map(|(_, plan)| plan.deletion_grace);
        (true, Some(later(step.now, grace.unwrap_or_default())))
    } else if taken.is_whole || !is_version {
        (false, None)
    } else {
        waits
    };
    let fingerprint = taken.is_whole.then_some(taken.version.fingerprint);
    step.db.run(
        "INSERT INTO change_list (set_id, list, fingerprint, listed, taken, closed, last, left_first, left_count, \
         waits, waits_until) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (set_id, list) DO UPDATE \
         SET to_learn = 0, fingerprint = excluded.fingerprint, listed = excluded.listed, taken = excluded.taken, \
         closed = excluded.closed, last = excluded.last, left_first = excluded.left_first, left_count = excluded.left_count, \
         waits = excluded.waits, waits_until = excluded.waits_until",
        (
            (set.id, list, fingerprint, taken.listed, taken.taken, closed),
            (taken.left.map(|left| (left.first, left.count)), waits, waits_until),
        ),
    )
}

/// Notes what is wrong with the entries of a list that was read. What rounds find in one version of it adds up; entries that
/// do not count are reported as far as they are more than in the version before: most of them stand there in every version.
pub fn note_entry_findings(
    step: &mut Step<'_>,
    position: usize,
    set: DocId,
    taken: &ListTally,
) -> Result<()> {
    let list = taken.version.id;
    let sql = "SELECT skipped FROM change_list WHERE set_id = ?1 AND list = ?2";
    let skipped: usize = step.db.value(sql, (set, list))?;
    let (back_dated, ahead, rewritten) = step.db.value::<(usize, usize, usize)>(
        "UPDATE change_list SET version = ?3, skipped = ?4, \
         back_dated = ?5 + CASE WHEN version IS NOT DISTINCT FROM ?3 THEN back_dated ELSE 0 END, \
         ahead = ?6 + CASE WHEN version IS NOT DISTINCT FROM ?3 THEN ahead ELSE 0 END, \
         rewritten = CASE WHEN version IS DISTINCT FROM ?3 THEN ?7 ELSE coalesce(?7 + rewritten, ?7, rewritten) END \
         WHERE set_id = ?1 AND list = ?2 \
         RETURNING back_dated, ahead, coalesce(rewritten, 0)",
        (
            (set, list, taken.version.fingerprint, taken.skipped),
            (taken.undated.back_dated, taken.undated.ahead, taken.rewritten),
        ),
    )?;
    let uri = &taken.version.list;
    let mut findings = Vec::new();
    if let Some(first) = &taken.first_skipped {
        findings.push(Finding::UntellableEntries {
            list: uri.clone(),
            count: taken.skipped,
            line: first.line,
            reason: first.reason.to_string(),
        });
    }
    let mut add = |count: usize, finding: fn(Uri, usize) -> Finding| {
        findings.extend((count > 0).then(|| finding(uri.clone(), count)));
    };
    add(back_dated, |list, count| Finding::BackDated { list, count });
    add(ahead, |list, count| Finding::Ahead { list, count });
    add(rewritten, |list, untold| Finding::ClosedListRewritten {
        list,
        untold,
    });
    findings::replace(step, position, uri, FindingPart::Entries, findings)?;
    if taken.skipped > skipped {
        step.facts.push(Fact::SkippedEntries {
            source: step.plan.sources[position].name.clone(),
            list: uri.clone(),
            count: taken.skipped - skipped,
        });
    }
    Ok(())
}

/// Returns those of the known lists of a set that are not Change Lists, and were none until a moment ago: what was taken of
/// these still counts (C7).
pub fn known_resource_lists(step: &Step<'_>, set: DocId) -> Result<BTreeSet<DocId>> {
    step.db.all(
        "SELECT l.list FROM change_list l CROSS JOIN document d ON d.id = l.list WHERE l.set_id = ?1 AND l.ended IS NULL \
         AND NOT (d.presence BETWEEN 1 AND 3 AND d.capability = ?2 AND d.form = 0)",
        (set, Capability::ChangeList),
    )
}

// Lists that were seen to change, come or end (C6, C7, C11, C27).

/// The touched documents of a source that sets with changes have, or have taken entries of.
pub const TOUCHED: &str = "SELECT d.id FROM document d WHERE d.source = ?1 AND d.touched > 0 \
     AND (EXISTS (SELECT 1 FROM member m CROSS JOIN change_set s ON s.id = m.set_id WHERE m.document = d.id) \
     OR EXISTS (SELECT 1 FROM change_list l WHERE l.list = d.id))";

/// Notes what the settling of a source says of the lists of its sets; when it settles first, also of all that are known.
pub fn note_seen(step: &mut Step<'_>, position: usize, affected: &BTreeSet<DocId>) -> Result<()> {
    let source = step.live.sources[position].id;
    let sets = "SELECT id FROM change_set WHERE source = ?1";
    if !step.db.exists(sets, source)? {
        return Ok(());
    }
    let mut known = Vec::new();
    if !step.live.sources[position].has_settled {
        for id in step.db.all::<Vec<DocId>>(sets, source)? {
            make_round_due(step, position, id)?;
        }
        known = step.db.all::<Vec<DocId>>(
            "SELECT DISTINCT l.list FROM change_set s CROSS JOIN change_list l ON l.set_id = s.id WHERE s.source = ?1",
            source,
        )?;
    }
    for list in affected.iter().chain(&known) {
        note_seen_version(step, position, *list)?;
    }
    Ok(())
}

/// Makes a round of a set due when its source settles first.
fn make_round_due(step: &mut Step<'_>, position: usize, id: DocId) -> Result<()> {
    let Some(mut set) = change_sets::load(step, id)? else {
        return Ok(());
    };
    let compares = step.plan.sources[position].changes_from_resource_lists;
    if compares {
        set.missing_until = Some(step.now);
    } else if set.learned == Some(ChangesFrom::ResourceLists) {
        set.forget_inventory(step, position)?;
    }
    set.trigger(step.now);
    if !compares && set.learned.is_none() && !has_unreadable_member(step, id)? {
        // What its lists have was there before, and what comes now is told (C10).
        set.trigger_now(step.now);
    }
    set.save(step)
}

/// Notes what is seen of a list, for the sets of changes that have it, and those that have taken entries of it.
fn note_seen_version(step: &Step<'_>, position: usize, list: DocId) -> Result<()> {
    let having = "SELECT s.id FROM member m CROSS JOIN change_set s ON s.id = m.set_id WHERE m.document = ?1";
    let having: BTreeSet<DocId> = step.db.all(having, list)?;
    let knowing = "SELECT set_id FROM change_list WHERE list = ?1";
    let knowing: BTreeSet<DocId> = step.db.all(knowing, list)?;
    if having.is_empty() && knowing.is_empty() {
        return Ok(());
    }
    let plan = &step.plan.sources[position];
    let compares = plan.changes_from_resource_lists;
    let document = step.db.document(list)?;
    let of = |capability| {
        let is_it = |document: &&SeenDocument| document.version.is_list_of(capability);
        document.as_ref().filter(is_it)
    };
    let is_there = document.as_ref().is_some_and(|it| !it.is_gone());
    if let Some(document) = of(Capability::ResourceList).filter(|_| compares) {
        let is_present = document.presence == Presence::Present;
        for id in having.union(&knowing) {
            note_change(step, *id, document, !is_present)?;
        }
    } else if let Some(document) = of(Capability::ChangeList).filter(|_| is_there) {
        let sql = "UPDATE change_list SET ended = NULL WHERE list = ?1 AND ended IS NOT NULL";
        step.db.run(sql, list)?;
        for id in knowing.difference(&having).filter(|_| compares) {
            note_lost_list(step, *id)?;
        }
        for id in having {
            note_change(step, id, document, false)?;
        }
    } else {
        for id in knowing {
            if compares {
                note_lost_list(step, id)?;
            }
            // Its entries may stand in other lists now, as in the components of an index; a deletion had its grace.
            let grace = (!is_there).then_some(plan.deletion_grace);
            let ended = earlier(step.now, grace.unwrap_or_default());
            let sql = "UPDATE change_list SET ended = ?3 WHERE set_id = ?1 AND list = ?2 AND ended IS NULL";
            step.db.run(sql, (id, list, ended))?;
            let sql = "UPDATE change_set SET wake = ?2 WHERE id = ?1";
            step.db.run(sql, (id, step.now))?;
        }
    }
    Ok(())
}

/// Notes that a document joined a set, and counts as told there: what it has as a list of changes is learned.
pub fn learn_list(step: &Step<'_>, set: DocId, document: &SeenDocument) -> Result<()> {
    let source = step.source_with_row(document.source);
    let is_compared = source.is_some_and(|(_, plan)| plan.changes_from_resource_lists);
    let version = document.version;
    if version.is_list_of(Capability::ChangeList)
        || version.is_list_of(Capability::ResourceList) && is_compared
    {
        note_change(step, set, document, false)?;
    }
    Ok(())
}

/// Makes a round of a set due, unless this version of its list was taken. What came with a mount's baseline is learned.
fn note_change(step: &Step<'_>, id: DocId, list: &SeenDocument, is_unseen: bool) -> Result<()> {
    let Some(mut set) = change_sets::load(step, id)? else {
        return Ok(());
    };
    if is_unseen {
        set.watched_since = None;
    }
    // A round under way may take another version than the one that is back.
    if set.round.is_some()
        || list.is_gone()
        || !has_taken(step, id, list.id, list.version.fingerprint)?
    {
        if list.baseline > 0 {
            mark_to_learn(step, id, list.id)?;
            set.last_round = None;
        }
        set.trigger(step.now);
    }
    set.save(step)
}

/// Notes that a set lost a list: its Resource Lists may be compared from now on (C27), or lack what the list had (C29).
fn note_lost_list(step: &Step<'_>, id: DocId) -> Result<()> {
    if let Some(mut set) = change_sets::load(step, id)? {
        set.missing_until = Some(step.now);
        set.trigger(step.now);
        set.save(step)?;
    }
    Ok(())
}

// Lists that were not the version that was asked for (C8).

fn stat_text(of: &Stat) -> String {
    format!("{} {} {} {}", of.size, of.modified, of.changed, of.inode)
}

/// Notes lists that were not the version that was asked for, with its stat data. Returns those that the operator is to be
/// told of.
pub fn note_stale(
    step: &Step<'_>,
    set: &mut TrackedSet,
    lists: BTreeMap<Uri, Stat>,
) -> Result<Vec<Uri>> {
    set.must_take_others = true;
    let (mut reported, mut are_left_out) = (Vec::new(), true);
    for (uri, stat) in lists {
        let list = step.db.ensure_row(&uri)?;
        let key = (set.id, list);
        let sql = "SELECT times FROM stale_list WHERE set_id = ?1 AND list = ?2";
        let times = step.db.value::<u32>(sql, key)?.saturating_add(1);
        let until = later(step.now, retry_delay(times));
        let sql = "INSERT INTO stale_list VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (set_id, list) \
                   DO UPDATE SET stat = excluded.stat, times = excluded.times, until = excluded.until";
        step.db.run(sql, (key, stat_text(&stat), times, until))?;
        are_left_out &= times >= STALE_ROUNDS;
        if times == STALE_ROUNDS_TO_REPORT {
            reported.push(uri);
        }
    }
    // The others are read at once.
    if are_left_out {
        set.trigger_if_none(step.now);
    }
    Ok(reported)
}

/// Removes those of the lists to read that cannot be read now, and returns them. The entries of the others wait: it may be a
/// removed one that has them. Forgets lists that are not to be read.
fn leave_out_stale(
    step: &Step<'_>,
    set: &TrackedSet,
    lists: &mut Vec<ListToRead>,
) -> Result<BTreeSet<DocId>> {
    let sql = "SELECT list, stat, times, until FROM stale_list WHERE set_id = ?1";
    let stale: BTreeMap<DocId, (String, u32, Timestamp)> = step.db.all(sql, set.id)?;
    for list in stale.keys() {
        if !lists.iter().any(|listed| listed.id == *list) {
            forget_stale(step, set.id, *list)?;
        }
    }
    let is_stale = |listed: &&ListToRead| {
        let stale = stale.get(&listed.id);
        stale.is_some_and(|(_, times, _)| *times >= STALE_ROUNDS)
    };
    let is_read_later = |listed: &&ListToRead| {
        let (stat, _, until) = &stale[&listed.id];
        *until > step.now && *stat == stat_text(&listed.stat)
    };
    let all_versions = set.learned.is_none()
        || set.must_take_others && lists.iter().any(|listed| !is_stale(&listed));
    let stale = lists.iter().filter(is_stale);
    let left_out = stale.filter(|listed| all_versions || is_read_later(listed));
    let left_out: BTreeSet<DocId> = left_out.map(|listed| listed.id).collect();
    lists.retain(|listed| !left_out.contains(&listed.id));
    for listed in lists.iter_mut() {
        listed.waits |= !left_out.is_empty();
    }
    Ok(left_out)
}

pub fn forget_stale(step: &Step<'_>, set: DocId, list: DocId) -> Result<()> {
    let sql = "DELETE FROM stale_list WHERE set_id = ?1 AND list = ?2";
    step.db.run(sql, (set, list))
}

/// Returns the earliest time at which a stale list is asked for again; nothing if there is none.
pub fn next_stale_retry(step: &Step<'_>, set: DocId) -> Result<Option<Timestamp>> {
    let sql = "SELECT min(until) FROM stale_list WHERE set_id = ?1";
    step.db.value(sql, set)
}

//! Lists that were not the version that was asked for (C8).

use std::collections::{BTreeMap, BTreeSet};

use crate::announce::changes::round::ListToRead;
use crate::announce::observation::Stat;
use crate::announce::time::later;
use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::steps::Step;
use crate::announce::steps::change_sets::{ChangeSet, retry_delay};
use crate::state::{DocId, Result};

/// Number of times that a list is asked for in vain before the others are read without it.
pub const ROUNDS: u32 = 2;
/// Number of times that a list is asked for in vain before the operator is told, after half a minute.
const ROUNDS_TO_REPORT: u32 = 5;

fn stat_text(stat: &Stat) -> String {
    format!(
        "{} {} {} {}",
        stat.size, stat.modified, stat.changed, stat.inode
    )
}

/// Notes lists that were not the version that was asked for, with its stat data. Returns those that the operator is to be
/// told of.
pub fn note(step: &Step<'_>, set: &mut ChangeSet, lists: BTreeMap<Uri, Stat>) -> Result<Vec<Uri>> {
    set.must_take_others = true;
    let (mut reported, mut are_left_out) = (Vec::new(), true);
    for (uri, stat) in lists {
        let list = step.db.row_of(&uri)?;
        let key = (set.id, list);
        let sql = "SELECT times FROM stale_list WHERE set_id = ?1 AND list = ?2";
        let before = step.db.first::<u32>(sql, key)?;
        let times = before.unwrap_or_default().saturating_add(1);
        step.db.run(
            "INSERT INTO stale_list VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (set_id, list) DO UPDATE SET \
             stat = excluded.stat, times = excluded.times, until = excluded.until",
            (set.id, list, stat_text(&stat), times, later(step.now, retry_delay(times))),
        )?;
        are_left_out &= times >= ROUNDS;
        if times == ROUNDS_TO_REPORT {
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
pub fn leave_out(
    step: &Step<'_>,
    set: &ChangeSet,
    lists: &mut Vec<ListToRead>,
) -> Result<BTreeSet<DocId>> {
    let sql = "SELECT list, stat, times, until FROM stale_list WHERE set_id = ?1";
    let stale: BTreeMap<DocId, (String, u32, Timestamp)> = step.db.all(sql, set.id)?;
    for list in stale.keys() {
        if !lists.iter().any(|listed| listed.id == *list) {
            let sql = "DELETE FROM stale_list WHERE set_id = ?1 AND list = ?2";
            step.db.run(sql, (set.id, *list))?;
        }
    }
    let is_stale = |listed: &&ListToRead| {
        let stale = stale.get(&listed.id);
        stale.is_some_and(|(_, times, _)| *times >= ROUNDS)
    };
    let is_read_later = |listed: &&ListToRead| {
        let (stat, _, until) = &stale[&listed.id];
        *until > step.now && *stat == stat_text(&listed.stat)
    };
    let all_versions = set.learned.is_none()
        || set.must_take_others && lists.iter().any(|listed| !is_stale(&listed));
    let left_out = lists.iter().filter(is_stale);
    let left_out = left_out.filter(|listed| all_versions || is_read_later(listed));
    let left_out: BTreeSet<DocId> = left_out.map(|listed| listed.id).collect();
    if !left_out.is_empty() {
        lists.retain(|listed| !left_out.contains(&listed.id));
        for listed in lists.iter_mut() {
            listed.waits = true;
        }
    }
    Ok(left_out)
}

/// Returns the earliest time at which a stale list is asked for again; nothing if there is none.
pub fn next(step: &Step<'_>, set: DocId) -> Result<Option<Timestamp>> {
    let sql = "SELECT min(until) FROM stale_list WHERE set_id = ?1";
    Ok(step.db.first::<Option<_>>(sql, set)?.flatten())
}

//! Rounds: the lists of a set are compared with what was taken, and what is fresh goes to the log of its channel (C6 to C8,
//! C11, C20, C27). The reader of lists has what was taken from the database, on a connection of its own, while a step writes.

use std::time::Duration;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::resource_list::{ResourceKey, VersionDigest};
use resourcesync::uri::Uri;

use crate::changes::inventory::{DeletionRules, InventoryRow};
use crate::changes::round::{ROUND, RoundAnswer, RoundOutcome, RoundRequest, TakenNow, WatchTime};
use crate::changes::taken_keys::KeysRow;
use crate::event::Fact;
use crate::finding::Finding;
use crate::observation::MountId;
use crate::state::{Db, DocId, FromColumn, Result, StatementError, columns, from_row, read};
use crate::steps::change_sets::{self, AT_ONCE, ChangesFrom, TrackedSet};
use crate::steps::channels::Channel;
use crate::steps::findings::{self, FindingPart};
use crate::steps::lists::{self, NextLists};
use crate::steps::{Step, change_log};
use crate::time::{elapsed, later};

/// Time for which entries that vanished are remembered while there is something that cannot be read (C7).
const UNSEEN_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// Begins the rounds that are due, of the sets of sources that are settled.
pub fn begin_due(step: &mut Step<'_>) -> Result<()> {
    for position in 0..step.plan.sources.len() {
        let source = &step.live.sources[position];
        if !source.is_swept() {
            continue;
        }
        let sql = "SELECT id FROM change_set WHERE source = ?1 AND wake <= ?2";
        for id in step.db.all::<Vec<DocId>>(sql, (source.id, step.now))? {
            let Some(mut set) = change_sets::load(step, id)? else {
                continue;
            };
            let next_forgotten = forget_ended_lists(step, position, &mut set)?;
            // C7: entries that no other list had in time wait no more.
            let sql =
                "UPDATE change_list SET waits_until = NULL WHERE set_id = ?1 AND waits_until <= ?2";
            if step.db.run_and_count(sql, (id, step.now))? > 0 {
                set.trigger_if_none(step.now);
            }
            let next = begin(step, position, &mut set)?;
            let sql = "SELECT min(waits_until) FROM change_list WHERE set_id = ?1";
            let next_wait: Option<Timestamp> = step.db.value(sql, id)?;
            let next = next.into_iter().chain(next_forgotten).chain(next_wait);
            set.wake = next.min();
            set.save(step)?;
        }
    }
    Ok(())
}

/// Begins the next round of a set if it is due. Returns when to look again (C20).
fn begin(step: &mut Step<'_>, position: usize, set: &mut TrackedSet) -> Result<Option<Timestamp>> {
    let now = step.now;
    if set.round.is_some() {
        return Ok(None);
    }
    let is_deletion_due = set.accepted.is_some() || set.missing_until.is_some_and(|at| at <= now);
    if set.triggers.is_none() && !is_deletion_due {
        return Ok(set.missing_until);
    }
    let Some(channel) = set.announcing_channel(step)? else {
        set.skip_round(now);
        return Ok(set.triggers.map(|_| now));
    };
    let kind = lists::next_list_kind(step, set)?;
    let window = &step.plan.window;
    let due = set.due_at(kind, window).unwrap_or(now);
    if due > now {
        return Ok(Some(due));
    }
    let plan = &step.plan.sources[position];
    // It waits for documents that cannot be read, but not forever, and looks each second since the first trigger.
    if set.learned.is_none()
        && let Some((first, _)) = set.triggers
        && elapsed(first, now) < plan.broken_after
        && lists::has_unreadable_member(step, set.id)?
    {
        let next = Duration::from_secs(elapsed(first, now).as_secs() + 1);
        return Ok(Some(later(first, next.min(plan.broken_after))));
    }
    if kind == ChangesFrom::ChangeLists {
        set.forget_inventory(step, position)?;
    }
    set.is_partial = false;
    let next = match kind {
        ChangesFrom::ResourceLists => lists::next_resource_lists(step, set)?,
        ChangesFrom::ChangeLists => lists::next_change_lists(step, set)?,
    };
    let (lists, beyond) = match next {
        NextLists::None => {
            set.skip_round(now);
            // If a channel that retired had its last changes, the one after it may be told now.
            let again = set.triggers.map(|_| now);
            return Ok(again.or(set.missing_until));
        }
        NextLists::Later => return Ok(set.due_at(kind, window)),
        NextLists::Read(lists, beyond) => (lists, beyond),
    };
    if (set.learned, kind) == (Some(ChangesFrom::ChangeLists), ChangesFrom::ResourceLists) {
        // C27: their present contents count as taken.
        for list in &lists {
            lists::mark_to_learn(step, set.id, list.id)?;
        }
        set.learned = Some(ChangesFrom::ResourceLists);
    }
    step.live.last_round += 1;
    set.round = Some(step.live.last_round);
    (set.triggers, set.not_before) = (None, None);
    step.take.push(Box::new(RoundRequest {
        set: step.db.uri_of(set.id)?,
        round: step.live.last_round,
        after: set.last_round,
        at: step.wall,
        lists,
        watch: watch_time(step, position, set, kind)?,
        limit: ROUND,
        beyond,
        told_until: change_log::told_until(step, channel.id)?,
        inventory: (kind == ChangesFrom::ResourceLists).then_some(DeletionRules {
            mass_deletion: plan.mass_deletion,
            accepted: set.accepted,
        }),
    }));
    Ok(None)
}

/// Ends a round with what it found.
pub fn end(step: &mut Step<'_>, answer: RoundAnswer) -> Result<()> {
    let now = step.now;
    let id = step.db.id_of(&answer.set)?;
    let set = id.map(|id| change_sets::load(step, id)).transpose()?;
    let set = set
        .flatten()
        .and_then(|set| Some((step.live.source_position(set.source)?, set)));
    let Some((position, mut set)) = set else {
        return Ok(());
    };
    set.last_round = None;
    if set.round.take_if(|round| *round == answer.round).is_none() {
        return set.save(step);
    }
    set.wake = Some(now);
    let Some(channel) = set.announcing_channel(step)? else {
        set.skip_round(now);
        return set.save(step);
    };
    let reason = match answer.outcome {
        RoundOutcome::Taken(taken) => {
            (set.last_round, set.delays) = (Some(answer.round), 0);
            save_round(step, position, &mut set, &channel, &taken)?;
            return set.save(step);
        }
        RoundOutcome::Stale(stale) => {
            let reported = lists::note_stale(step, &mut set, stale)?;
            reported.first().map(|list| {
                format!("{list} changes whenever it is read, or is not the version that was seen")
            })
        }
        RoundOutcome::Unreadable(stale, reason) => {
            // Lists that could not be read were not seen either.
            set.watched_since = None;
            lists::note_stale(step, &mut set, stale)?;
            Some(reason)
        }
        RoundOutcome::Failed(reason) => {
            set.watched_since = None;
            Some(reason)
        }
    };
    // It is repeated for the version that was seen meanwhile, or else after a while.
    if set.triggers.is_none() {
        set.delay(now);
    }
    if reason.is_some() {
        let topic = channel.topic;
        step.facts.push(Fact::NotTaken { topic, reason });
    }
    set.save(step)
}

/// Saves what a round took, and cuts what is fresh into notifications on a channel.
fn save_round(
    step: &mut Step<'_>,
    position: usize,
    set: &mut TrackedSet,
    channel: &Channel,
    taken: &TakenNow,
) -> Result<()> {
    let now = step.now;
    let is_inventory = taken.missing.is_some();
    let mut is_learned = false;
    if set.learned.is_none() {
        let latest = taken.lists.iter().filter_map(|list| list.latest).max();
        set.learned_until = set.learned_until.max(latest);
        // Large inventories are learned in several rounds.
        is_learned = !(set.is_partial || is_inventory && taken.has_more);
        if is_learned {
            set.learned = Some(if is_inventory {
                ChangesFrom::ResourceLists
            } else {
                ChangesFrom::ChangeLists
            });
        }
    }
    let has_more = taken.has_more || set.learned.is_none();
    if is_inventory {
        // Those that the inventory does not have any more.
        let kept = taken.lists.iter().map(|list| list.version.id).collect();
        for list in lists::known_resource_lists(step, set.id)?.difference(&kept) {
            let sql = "DELETE FROM change_list WHERE set_id = ?1 AND list = ?2";
            step.db.run(sql, (set.id, *list))?;
        }
    }
    for list in &taken.lists {
        // Of one that is still learned only that it is there.
        lists::record_taken(step, set, list, is_inventory && has_more)?;
    }
    save_keys(step, set.id, taken)?;
    set.must_take_others = false;
    if has_more {
        set.trigger_now(now);
    } else if set.triggers.is_none()
        && let Some(next) = lists::next_stale_retry(step, set.id)?
    {
        set.delay_until(next, now);
    }
    if set.triggers.is_none_or(|(first, _)| first != AT_ONCE) {
        set.end_retirement(now);
    }
    for list in taken.lists.iter().filter(|list| list.untold > 0) {
        step.facts.push(Fact::ArchivedUntold {
            topic: channel.topic.clone(),
            list: list.version.list.clone(),
            count: list.untold,
        });
    }
    if let Some(missing) = taken.missing {
        (set.missing, set.missing_until) = (missing.missing, missing.next);
        set.accepted.take_if(|_| !taken.has_more);
        let uri = step.db.uri_of(set.id)?;
        let finding = missing.is_suspended.then(|| Finding::MissingResources {
            set: uri.clone(),
            source: step.plan.sources[position].name.clone(),
            missing: missing.missing,
            of: missing.of,
        });
        findings::replace(step, position, &uri, FindingPart::Entries, finding)?;
    }
    if is_learned {
        change_log::begin_interval(step, channel, set)?;
    }
    // A copy: if the step fails, it is repeated with what was taken.
    let mut lists = taken.lists.clone();
    if !taken.changes.is_empty() {
        change_log::cut(step, channel, &taken.changes, &mut lists)?;
    }
    for list in &lists {
        lists::note_entry_findings(step, position, set.id, list)?;
    }
    Ok(())
}

fn save_keys(step: &Step<'_>, set: DocId, taken: &TakenNow) -> Result<()> {
    for ((list, first), row) in &taken.keys {
        let id = step.db.ensure_row(list)?;
        let Some(row) = row else {
            let sql = "DELETE FROM change_key WHERE set_id = ?1 AND list = ?2 AND first = ?3";
            step.db.run(sql, (set, id, first))?;
            continue;
        };
        step.db.run(
            "INSERT INTO change_key VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (set_id, list, first) DO UPDATE SET \
             keys = excluded.keys, vanished = excluded.vanished",
            (set, id, first, &row.bytes[..], row.vanished),
        )?;
    }
    for (resource, row) in &taken.inventory {
        let Some(row) = row else {
            let sql = "DELETE FROM inventory WHERE set_id = ?1 AND resource = ?2";
            step.db.run(sql, (set, resource.0))?;
            continue;
        };
        step.db.run(
            "INSERT INTO inventory VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (set_id, resource) DO UPDATE SET \
             state = excluded.state, uri = excluded.uri, missing = excluded.missing",
            (set, resource.0, row.state.0, &*row.uri, row.missing),
        )?;
    }
    Ok(())
}

// Lists that ended, and entries that wait for another list to have them (C7).

/// Forgets what was taken of the lists of a set that ended a grace ago. Returns when the next one is forgotten.
fn forget_ended_lists(
    step: &Step<'_>,
    position: usize,
    set: &mut TrackedSet,
) -> Result<Option<Timestamp>> {
    let sql = "SELECT list, ended FROM change_list WHERE set_id = ?1 AND ended IS NOT NULL";
    let ended = step.db.all::<Vec<(DocId, Timestamp)>>(sql, set.id)?;
    if ended.is_empty() {
        return Ok(None);
    }
    let watch = watch_time(step, position, set, ChangesFrom::ChangeLists)?;
    let mut next = None;
    for (list, ended) in ended {
        let ends = watch.grace_end(ended);
        if ends > step.now {
            next = next.into_iter().chain([ends]).min();
            continue;
        }
        let sql = "DELETE FROM change_list WHERE set_id = ?1 AND list = ?2";
        step.db.run(sql, (set.id, list))?;
        lists::forget_stale(step, set.id, list)?;
        // A round under way compares with keys that are gone: another one follows.
        set.last_round = None;
        if set.round.take().is_some() {
            set.triggers = Some((step.now, step.now));
        }
    }
    Ok(next)
}

/// Returns the time for which the lists of a set were watched, with the grace of what they lost. C7: for entries of Change
/// Lists, none passes while one of these cannot be read, and the grace is longer while there may be an unknown one: a mount is
/// away, or a directory or a file cannot be read.
fn watch_time(
    step: &Step<'_>,
    position: usize,
    set: &mut TrackedSet,
    kind: ChangesFrom,
) -> Result<WatchTime> {
    let source = &step.live.sources[position];
    let is_entries = kind == ChangesFrom::ChangeLists;
    if is_entries {
        let lists = step.db.all::<Vec<(MountId, bool)>>(
            "SELECT DISTINCT d.mount, d.presence <> 1 OR EXISTS (SELECT 1 FROM trouble t WHERE t.uri = d.uri) \
             FROM member m CROSS JOIN document d ON d.id = m.document \
             WHERE m.set_id = ?1 AND d.capability = ?2 AND d.form = 0 AND d.presence BETWEEN 1 AND 3",
            (set.id, Capability::ChangeList),
        )?;
        let is_unread = |(mount, it): &(MountId, bool)| *it || source.is_absent(*mount);
        set.watched_since.take_if(|_| lists.iter().any(is_unread));
    }
    let is_seen = !is_entries
        || source.is_whole()
            && !step.db.exists(
                "SELECT 1 FROM trouble t WHERE t.source = ?1 AND NOT EXISTS (SELECT 1 FROM document d WHERE d.uri = t.uri \
                 AND d.presence BETWEEN 1 AND 3 AND (d.capability <> ?2 OR d.form <> 0))",
                (source.id, Capability::ChangeList),
            )?;
    let grace = step.plan.sources[position].deletion_grace;
    Ok(WatchTime {
        since: *set.watched_since.get_or_insert(step.now),
        now: step.now,
        grace: grace.max(if is_seen { grace } else { UNSEEN_GRACE }),
    })
}

// What was taken, for the reader of lists.

/// Rows of keys of a list of a set: the number of the first one, the keys, and when they vanished.
pub const KEYS: &str = "SELECT k.first, k.keys, k.vanished FROM document s CROSS JOIN document l ON l.uri = ?2 \
     CROSS JOIN change_key k ON k.set_id = s.id AND k.list = l.id WHERE s.uri = ?1";

impl Db<'_> {
    /// Returns the last row of keys of a list that have not vanished.
    pub fn last_key_row(self, set: &Uri, list: &Uri) -> Result<Option<(u32, KeysRow)>> {
        let sql = format!("{KEYS} AND k.vanished IS NULL ORDER BY k.first DESC LIMIT 1");
        self.first(&sql, (set, list))
    }

    /// Hands the rows of keys of all lists of a set to `pass`, list after list.
    pub fn each_key_row(self, set: &Uri, pass: &mut dyn FnMut(Uri, u32, KeysRow)) -> Result<()> {
        let mut statement = self.statement(
            "SELECT l.uri, k.first, k.keys, k.vanished FROM document s CROSS JOIN change_key k ON k.set_id = s.id \
             CROSS JOIN document l ON l.id = k.list WHERE s.uri = ?1 ORDER BY k.list, k.first",
            set,
        )?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            let (list, first, row) = read(row)?;
            pass(list, first, row);
        }
        Ok(())
    }

    /// Hands the resources of a set to `compare`, in order of their keys.
    pub fn read_inventory<T, E: From<StatementError>>(
        self,
        set: &Uri,
        compare: impl FnOnce(
            &mut dyn Iterator<Item = Result<(ResourceKey, InventoryRow), E>>,
        ) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut statement = self.statement(
            "SELECT i.resource, i.state, i.uri, i.missing FROM document s CROSS JOIN inventory i ON i.set_id = s.id \
             WHERE s.uri = ?1 ORDER BY i.resource",
            set,
        )?;
        let rows = statement.raw_query().mapped(read);
        compare(&mut rows.map(|row| row.map_err(|error| StatementError::from(error).into())))
    }
}

from_row! { KeysRow { bytes, vanished } }
from_row! { InventoryRow { state, uri, missing } }

columns! {
    ResourceKey: |value| FromColumn::from_column(value).map(ResourceKey);
    VersionDigest: |value| FromColumn::from_column(value).map(VersionDigest);
}

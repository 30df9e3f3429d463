//! Sets with a change channel: what makes their next rounds due, and when (C6, C10, C12, C20).

use std::time::Duration;

use crate::changes::inventory::INVENTORY_QUIET;
use crate::plan::WindowPlan;
use crate::time::later;
use jiff::Timestamp;
use resourcesync::capability::{Capability, ChannelKind};

use crate::state::{ChannelId, Db, DocId, Result, from_row, integers, nth};
use crate::steps::channels::{Channel, channel, live_of_set};
use crate::steps::findings::{self, FindingPart};
use crate::steps::{Step, change_log, lists};

/// Half of the first delay before something that could not be read is read again; the delay doubles each time.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum of these delays.
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(60);
/// First trigger of a round that is due at once.
pub const AT_ONCE: Timestamp = Timestamp::UNIX_EPOCH;

/// The lists from which the changes of a set are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangesFrom {
    ChangeLists = 1,
    /// Compared with those before (C27).
    ResourceLists = 2,
}

/// A set with a change channel, and its rounds.
#[derive(Debug)]
pub struct TrackedSet {
    /// Its Capability List.
    pub id: DocId,
    pub source: i64,
    /// The kind of the lists whose first contents were learned last; nothing until all entries that were there when the
    /// channel opened have been learned.
    pub learned: Option<ChangesFrom>,
    pub learned_until: Option<Timestamp>,
    /// C12: the channel that is still to be told what was fresh when it retired.
    pub retiring: Option<ChannelId>,
    pub told_until: Option<Timestamp>,
    pub wake: Option<Timestamp>,
    /// The first trigger since the last round began, and the last.
    pub triggers: Option<(Timestamp, Timestamp)>,
    /// The time before which no round begins.
    pub not_before: Option<Timestamp>,
    pub delays: u32,
    pub round: Option<u64>,
    pub is_partial: bool,
    pub last_round: Option<u64>,
    pub must_take_others: bool,
    pub watched_since: Option<Timestamp>,
    pub missing: usize,
    pub missing_until: Option<Timestamp>,
    pub accepted: Option<Timestamp>,
}

pub fn load(step: &Step<'_>, id: DocId) -> Result<Option<TrackedSet>> {
    step.db.first(
        "SELECT id, source, nullif(learned, 0), learned_until, retiring, told_until, wake, first_trigger, last_trigger, not_before, \
         delays, round, is_partial, last_round, must_take_others, watched_since, missing, missing_until, accepted \
         FROM change_set WHERE id = ?1",
        id,
    )
}

from_row! { TrackedSet {
    id, source, learned, learned_until, retiring, told_until, wake, triggers, not_before, delays, round, is_partial, last_round,
    must_take_others, watched_since, missing, missing_until, accepted
} }

integers! {
    ChangesFrom: |kind| *kind as i64,
        |number| nth(&[ChangesFrom::ChangeLists, ChangesFrom::ResourceLists], number - 1);
}

impl TrackedSet {
    pub fn save(&self, step: &Step<'_>) -> Result<()> {
        step.db.run(
            "UPDATE change_set SET learned = coalesce(?2, 0), learned_until = ?3, retiring = ?4, told_until = ?5, wake = ?6, \
             first_trigger = ?7, last_trigger = ?8, not_before = ?9, delays = ?10, round = ?11, is_partial = ?12, \
             last_round = ?13, must_take_others = ?14, watched_since = ?15, missing = ?16, missing_until = ?17, \
             accepted = ?18 WHERE id = ?1",
            (
                (self.id, self.learned, self.learned_until, self.retiring, self.told_until, self.wake),
                (self.triggers, self.not_before, self.delays, self.round, self.is_partial, self.last_round, self.must_take_others),
                (self.watched_since, self.missing, self.missing_until, self.accepted),
            ),
        )
    }

    // What makes a round due. A change of it has the set looked at, at the end of the step.

    /// Notes a change of a list, which also ends the delay of a round that is repeated without one.
    pub fn trigger(&mut self, now: Timestamp) {
        let (first, _) = self.triggers.unwrap_or((now, now));
        self.triggers = Some((first, now));
        (self.not_before, self.wake) = (None, Some(now));
    }

    pub fn trigger_if_none(&mut self, now: Timestamp) {
        self.triggers.get_or_insert((now, now));
        self.wake = Some(now);
    }

    /// Makes a round due at once.
    pub fn trigger_now(&mut self, now: Timestamp) {
        self.triggers = Some((AT_ONCE, AT_ONCE));
        (self.not_before, self.wake) = (None, Some(now));
    }

    /// Puts a round off, longer each time until something is taken. It begins after that, or once another version is seen.
    pub fn delay(&mut self, now: Timestamp) {
        self.delays = self.delays.saturating_add(1);
        self.delay_until(later(now, retry_delay(self.delays)), now);
    }

    pub fn delay_until(&mut self, at: Timestamp, now: Timestamp) {
        self.triggers = Some((now, now));
        (self.not_before, self.wake) = (Some(at), Some(now));
    }

    /// Ends a round without reading anything: there is nothing to read.
    pub fn skip_round(&mut self, now: Timestamp) {
        self.triggers = None;
        self.end_retirement(now);
    }

    pub fn end_retirement(&mut self, now: Timestamp) {
        if self.retiring.take().is_some() {
            // Another channel may be told from other lists than this one was.
            self.trigger_if_none(now);
        }
    }

    /// Returns when a round is due for the triggers that there were, which compares lists of this kind. Resource Lists count
    /// once none has changed for a while (C27).
    pub fn due_at(&self, kind: ChangesFrom, window: &WindowPlan) -> Option<Timestamp> {
        let (first, last) = self.triggers?;
        let due = match kind {
            ChangesFrom::ChangeLists => {
                later(last, window.change_quiet).min(later(first, window.change_max_wait))
            }
            ChangesFrom::ResourceLists => later(last, INVENTORY_QUIET),
        };
        Some(self.not_before.map_or(due, |at| due.max(at)))
    }

    // Missing resources (C29).

    /// Forgets the resources that were listed, because Resource Lists are not compared any more: entries that Change Lists
    /// gained meanwhile are told (C11).
    pub fn forget_inventory(&mut self, step: &Step<'_>, position: usize) -> Result<()> {
        (self.missing, self.missing_until, self.accepted) = (0, None, None);
        if self.learned == Some(ChangesFrom::ChangeLists) {
            return Ok(());
        }
        // Where nothing has been learned as a whole, some may have been.
        self.learned = self.learned.map(|_| ChangesFrom::ChangeLists);
        let sql = "DELETE FROM inventory WHERE set_id = ?1";
        step.db.run(sql, self.id)?;
        let uri = step.db.uri_of(self.id)?;
        findings::replace(step, position, &uri, FindingPart::Entries, None)
    }

    /// Returns the channel on which the next changes are told: one that retires first (C12).
    pub fn announcing_channel(&self, step: &Step<'_>) -> Result<Option<Channel>> {
        match self.retiring {
            Some(retiring) => channel(step, retiring),
            None => live_of_set(step, self.id, ChannelKind::Change),
        }
    }
}

/// Returns how long something is not read again that could not be read so many times (C8).
pub fn retry_delay(times: u32) -> Duration {
    let delay = RETRY_DELAY.saturating_mul(1 << times.min(6));
    delay.min(LONGEST_RETRY_DELAY)
}

// Channels that come and go.

/// Adds the set of a change channel that opened, revived or has other hubs. Its interval goes on from the last one that the
/// set was told (C12); what its lists gained meanwhile is announced.
pub fn track_set(step: &mut Step<'_>, channel: &Channel) -> Result<()> {
    step.db.run(
        "INSERT INTO change_set (id, source) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET source = excluded.source",
        (channel.set, channel.source),
    )?;
    let Some(mut set) = load(step, channel.set)? else {
        return Ok(());
    };
    let sql = "SELECT id FROM channel WHERE set_id = ?1 AND kind = ?2 AND id <> ?3";
    let others: Vec<ChannelId> = step.db.all(sql, (channel.set, channel.kind, channel.id))?;
    let mut untils: Vec<Timestamp> = set.told_until.into_iter().collect();
    for other in others {
        untils.extend(change_log::told_until(step, other)?);
    }
    for until in untils {
        change_log::set_next_from(step, channel.id, until)?;
    }
    set.trigger(step.now);
    set.save(step)
}

/// Lets a channel that retires be told of what is fresh, if there may be anything, and makes a round due at once (C12).
pub fn retire(step: &mut Step<'_>, channel: &Channel) -> Result<()> {
    let Some(mut set) = load(step, channel.set)? else {
        return Ok(());
    };
    let before = set.retiring.replace(channel.id);
    // Changes of this step are noted later in it.
    if lists::has_fresh(step, &set)? {
        set.trigger(step.now);
    }
    if set.learned.is_none() || set.triggers.is_none() && set.round.is_none() {
        set.retiring = before;
    } else if set.triggers.is_some() {
        set.trigger_now(step.now);
    }
    set.save(step)
}

/// Notes that a channel of a set ends. Fresh changes are told on another one, if the set has one at the end of the step.
pub fn end_channel(step: &mut Step<'_>, channel: &Channel) -> Result<()> {
    let until = change_log::told_until(step, channel.id)?;
    if let Some(mut set) = load(step, channel.set)? {
        (set.told_until).take_if(|until| change_log::is_far_ahead(step, *until));
        set.told_until = set.told_until.max(until);
        set.retiring.take_if(|id| *id == channel.id);
        set.save(step)?;
        step.lost_channels.insert(channel.set);
    }
    Ok(())
}

/// Forgets what was taken of sets that have lost their last change channel.
pub fn forget_without_channel(step: &mut Step<'_>) -> Result<()> {
    for set in std::mem::take(&mut step.lost_channels) {
        let sql = "DELETE FROM change_set WHERE id = ?1 \
                   AND NOT EXISTS (SELECT 1 FROM channel WHERE set_id = ?1 AND kind = ?2)";
        step.db.run(sql, (set, ChannelKind::Change))?;
    }
    Ok(())
}

// Sets of a source.

/// Returns true if what lists have counts as taken because it was there before, and was not read yet (C10, R13). Neither a
/// Change List that the others do not wait for (C8) counts nor a set without Change Lists whose rounds were put off: what keeps
/// it may last.
pub fn is_learning(db: Db<'_>) -> Result<bool> {
    let is_due = "(s.round IS NOT NULL OR s.first_trigger IS NOT NULL) AND (s.delays < ?1 OR EXISTS (SELECT 1 FROM member m \
                  CROSS JOIN document d ON d.id = m.document WHERE m.set_id = s.id AND d.capability = ?2 \
                  AND d.presence BETWEEN 1 AND 3))";
    let sql = format!(
        "SELECT 1 FROM change_set s WHERE s.learned = 0 AND {is_due} UNION ALL \
         SELECT 1 FROM change_list l CROSS JOIN change_set s ON s.id = l.set_id WHERE l.to_learn = 1 AND {is_due} \
         AND NOT EXISTS (SELECT 1 FROM stale_list t WHERE t.set_id = l.set_id AND t.list = l.list AND t.times >= ?1)"
    );
    db.exists(&sql, (lists::STALE_ROUNDS, Capability::ChangeList))
}

/// Takes what is missing of a source's resources as deleted, as an operator wants it (C29). Returns their number. A round under
/// way may find more of them missing, and does not count.
pub fn accept_missing(step: &Step<'_>, source: i64) -> Result<usize> {
    let sql = "UPDATE change_set SET accepted = ?2, wake = ?2, round = NULL WHERE source = ?1 AND missing > 0 RETURNING missing";
    let missing = step.db.all::<Vec<usize>>(sql, (source, step.now))?;
    Ok(missing.iter().sum())
}

/// Notes that there may be lists of a source that are not seen now: of any kind where a mount is away, or else Change Lists
/// (C7). Each round sees all Resource Lists of its set.
pub fn clear_watched_since(step: &Step<'_>, source: i64, is_mount_away: bool) -> Result<()> {
    step.db.run(
        "UPDATE change_set SET watched_since = NULL WHERE source = ?1 AND watched_since IS NOT NULL AND (?2 OR learned <> 2)",
        (source, is_mount_away),
    )
}

/// Begins a run, or the time of another plan: rounds under way do not count any more, and what was seen only by the run
/// before is seen anew.
pub fn restart_rounds(step: &Step<'_>, is_start: bool) -> Result<()> {
    step.db.run(
        "UPDATE change_set SET wake = CASE WHEN retiring IS NOT NULL OR accepted IS NOT NULL THEN ?1 END, not_before = NULL, \
         first_trigger = CASE WHEN retiring IS NOT NULL THEN 0 END, last_trigger = CASE WHEN retiring IS NOT NULL THEN 0 END, \
         delays = 0, round = NULL, last_round = NULL, must_take_others = 0, missing_until = NULL, \
         watched_since = CASE WHEN ?2 = 0 THEN watched_since END",
        (step.now, is_start),
    )?;
    step.db.run("DELETE FROM stale_list", ())?;
    let sql = "UPDATE change_list SET waits = 0, waits_until = NULL, ended = NULL WHERE waits = 1 OR ended IS NOT NULL";
    step.db.run(sql, ())?;
    // What was dropped while it was submitted may have held up what came after.
    step.db.run(
        "UPDATE channel SET deadline = ?1 WHERE kind = ?2 AND EXISTS (SELECT 1 FROM log_position p CROSS JOIN account a \
         ON a.channel = p.channel AND a.hub = p.hub WHERE p.channel = channel.id AND p.heard < channel.seq AND a.seq IS NULL)",
        (step.now, ChannelKind::Change),
    )
}

#[cfg(test)]
mod tests {
    use super::retry_delay;

    #[test]
    fn what_could_not_be_read_is_read_ever_less_often() {
        let delays = [1, 2, 5, 6, 7, u32::MAX].map(|times| retry_delay(times).as_secs());
        assert_eq!(delays, [2, 4, 32, 60, 60, 60]);
    }
}

//! The log of a change channel: taken changes become notifications, the same for each hub, and each hub is sent those that
//! it was not told (C10, C12 to C23, C25, C26).

use std::sync::Arc;

use crate::changes::round::{
    AHEAD, FreshChange, IntervalChanges, ListTally, NotificationLimits, UndatedByReason, intervals,
};
use crate::event::{DropCause, Fact};
use crate::time::{earlier, later};
use jiff::Timestamp;
use resourcesync::change_payload::{ChangePayload, merge_latest, part};
use resourcesync::datetime::Datetime;
use resourcesync::payload::ChangeKind;
use serde::{Deserialize, Serialize};

use crate::state::{AccountId, ChannelId, Db, Result, from_row};
use crate::steps::change_sets::TrackedSet;
use crate::steps::channels::{Channel, active_hubs, live_of_set};
use crate::steps::delivery::{self, Flight};
use crate::steps::{Step, cut, served};

/// A notification without its body.
#[derive(Debug)]
struct NotificationSummary {
    seq: i64,
    since: Timestamp,
    until: Timestamp,
    entries: usize,
    /// Entries of all notifications up to this one, forgotten ones included.
    total: usize,
    bytes: usize,
    cut: Timestamp,
}

impl NotificationSummary {
    fn entries_before(&self) -> usize {
        self.total - self.entries
    }
}

/// The part of the log that a hub was told.
#[derive(Debug)]
struct LogPosition {
    account: AccountId,
    /// The number of the last notification that the hub accepted in full, or that counts as told.
    heard: i64,
    /// Entries of the next one that it accepted, where it takes it in parts (C23).
    entries: usize,
    /// The number up to which all counts as told once what is in flight is answered: the hub fell behind (C22).
    skipped_to: Option<i64>,
    /// The number of the last notification for it, if the hub is advertised no more, else the largest number (C26).
    last: i64,
}

impl LogPosition {
    /// Returns the first number after the next one that does not count as told.
    fn first_after_next(&self) -> i64 {
        self.skipped_to.unwrap_or_default().max(self.heard + 1) + 1
    }

    /// Counts everything up to a notification as told.
    fn skip(&mut self, seq: i64) {
        if seq > self.heard {
            (self.heard, self.entries) = (seq, 0);
        }
        self.skipped_to = self.skipped_to.filter(|to| *to > self.heard);
    }
}

fn position(db: Db<'_>, account: AccountId) -> Result<Option<LogPosition>> {
    db.first(
        "SELECT channel, hub, heard, entries, skipped_to, coalesce(last, ?3) FROM log_position WHERE channel = ?1 AND hub = ?2",
        (account, i64::MAX),
    )
}

/// Returns the positions of the hubs of a channel, each with the number of what is in flight to it.
fn positions(step: &Step<'_>, id: ChannelId) -> Result<Vec<(LogPosition, Option<i64>)>> {
    step.db.all(
        "SELECT a.channel, a.hub, p.heard, p.entries, p.skipped_to, coalesce(p.last, ?2), a.seq FROM account a \
         CROSS JOIN log_position p ON p.channel = a.channel AND p.hub = a.hub WHERE a.channel = ?1",
        (id, i64::MAX),
    )
}

from_row! { LogPosition { account, heard, entries, skipped_to, last } }

fn save(step: &Step<'_>, position: &LogPosition) -> Result<()> {
    let sql = "UPDATE log_position SET heard = ?3, entries = ?4, skipped_to = ?5 WHERE channel = ?1 AND hub = ?2";
    let told = (position.heard, position.entries, position.skipped_to);
    step.db.run(sql, (position.account, told))
}

const COLUMNS: &str =
    "SELECT seq, since, until, entries, total, bytes, cut FROM change_log WHERE channel = ?1";

from_row! { NotificationSummary { seq, since, until, entries, total, bytes, cut } }

/// Returns the first notification of the log with a number in this range.
fn first(db: Db<'_>, id: ChannelId, from: i64, to: i64) -> Result<Option<NotificationSummary>> {
    let sql = format!("{COLUMNS} AND seq BETWEEN ?2 AND ?3 ORDER BY seq LIMIT 1");
    db.first(&sql, (id, from, to))
}

/// Returns the last notification of the log with a number up to this one.
fn last(db: Db<'_>, id: ChannelId, to: i64) -> Result<Option<NotificationSummary>> {
    let sql = format!("{COLUMNS} AND seq <= ?2 ORDER BY seq DESC LIMIT 1");
    db.first(&sql, (id, to))
}

/// Returns the notification after the last one that a hub at this position was told, if it is there.
fn next(db: Db<'_>, position: &LogPosition) -> Result<Option<NotificationSummary>> {
    let next = position.heard + 1;
    first(db, position.account.0, next, next.min(position.last))
}

/// Returns the first notification that a hub at this position was not told.
fn first_untold(db: Db<'_>, position: &LogPosition) -> Result<Option<NotificationSummary>> {
    let (id, from) = (position.account.0, position.first_after_next());
    let later = || first(db, id, from, position.last);
    next(db, position)?.map_or_else(later, |next| Ok(Some(next)))
}

/// Returns the number of changes that the hub of an account was not told.
pub fn backlog(db: Db<'_>, account: AccountId) -> Result<usize> {
    position(db, account)?.map_or(Ok(0), |position| backlog_at(db, &position))
}

/// The notifications of a change channel that a hub has not accepted (C21).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BacklogView {
    pub notifications: usize,
    pub changes: usize,
    /// Interval of all of them together; nothing if there is none.
    pub from: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// The time when the first of them was cut.
    pub since: Option<Timestamp>,
    /// Reason why they wait, if none is in flight.
    pub waits: Option<String>,
}

/// Returns what the hub of an account was not told; nothing if the channel has no log.
pub fn backlog_view(db: Db<'_>, account: AccountId) -> Result<Option<BacklogView>> {
    let Some(position) = position(db, account)? else {
        return Ok(None);
    };
    let sql = "SELECT count(*) FROM change_log WHERE channel = ?1 AND seq BETWEEN ?2 AND ?3";
    let values = (account.0, position.first_after_next(), position.last);
    let later: usize = db.value(sql, values)?;
    let newest = last(db, account.0, position.last)?.filter(|_| later > 0);
    let until = newest.map(|newest| newest.until);
    let oldest = first_untold(db, &position)?;
    let oldest = oldest.as_ref();
    Ok(Some(BacklogView {
        notifications: usize::from(next(db, &position)?.is_some()) + later,
        changes: backlog_at(db, &position)?,
        from: oldest.map(|oldest| oldest.since),
        until: oldest.map(|oldest| until.unwrap_or(oldest.until)),
        since: oldest.map(|oldest| oldest.cut),
        waits: None,
    }))
}

fn backlog_at(db: Db<'_>, position: &LogPosition) -> Result<usize> {
    let (id, to) = (position.account.0, position.last);
    let next = next(db, position)?.map_or(0, |next| next.entries);
    let later = match first(db, id, position.first_after_next(), to)? {
        Some(first) => last(db, id, to)?.map_or(0, |last| last.total - first.entries_before()),
        None => 0,
    };
    Ok((next + later).saturating_sub(position.entries))
}

// Intervals.

/// Returns the end of the last interval that was told on a channel; nothing if that lies ahead, because the clock was wrong
/// then (C14).
pub fn told_until(step: &Step<'_>, id: ChannelId) -> Result<Option<Timestamp>> {
    Ok(last_until(step.db, id)?.filter(|until| !is_far_ahead(step, *until)))
}

fn last_until(db: Db<'_>, id: ChannelId) -> Result<Option<Timestamp>> {
    let sql = "SELECT untils FROM channel WHERE id = ?1";
    Ok(cut::decode_times(&db.value::<Vec<u8>>(sql, id)?).pop())
}

/// Returns true if a time lies further ahead of the wall clock than any clock is wrong.
pub fn is_far_ahead(step: &Step<'_>, time: Timestamp) -> bool {
    time > later(step.wall, AHEAD)
}

/// C12: begins the next interval of a channel where its set was told of last, on another topic.
pub fn set_next_from(step: &Step<'_>, id: ChannelId, until: Timestamp) -> Result<()> {
    if !is_far_ahead(step, until) && told_until(step, id)? < Some(until) {
        step.db
            .set_channel(id, "untils = ?2", cut::encode_times(&[until]))?;
    }
    Ok(())
}

/// C10: begins the first interval of a channel with the latest datetime that was learned; the first one of a set that took
/// the topic over not before that either.
pub fn begin_interval(step: &mut Step<'_>, channel: &Channel, set: &TrackedSet) -> Result<()> {
    let latest = (set.learned_until).filter(|latest| !is_far_ahead(step, *latest));
    set_next_from(step, channel.id, latest.unwrap_or(step.wall))?;
    let sql = "SELECT count(*), coalesce(sum(taken), 0) FROM change_list WHERE set_id = ?1 AND to_learn = 0";
    let (lists, changes) = step.db.value::<(usize, usize)>(sql, set.id)?;
    step.facts.push(Fact::Learned {
        topic: channel.topic.clone(),
        changes,
        lists,
    });
    Ok(())
}

// Notifications.

/// Cuts the changes that a round found in some lists into notifications (C13 to C19). Hubs that are too far behind for them
/// fall behind (C22). Counts the entries that are told without their datetime (C15).
pub fn cut(
    step: &mut Step<'_>,
    channel: &Channel,
    changes: &[FreshChange],
    lists: &mut [ListTally],
) -> Result<()> {
    let kinds = || changes.iter().map(|fresh| fresh.change.kind);
    let of_kind = |kind| kinds().filter(|it| *it == kind).count();
    let of_kinds = ChangeKind::ALL.map(of_kind);
    let last = last_until(step.db, channel.id)?;
    let ahead = last.filter(|until| is_far_ahead(step, *until));
    let first = changes.first().map(|first| first.time.min(step.wall));
    let believed = last.filter(|_| ahead.is_none());
    let from = believed.or(first).unwrap_or(step.wall);
    if let Some(until) = ahead {
        let topic = channel.topic.clone();
        step.facts.push(Fact::BeganAnew { topic, until, from });
    }
    let empty = ChangePayload {
        up: Some(channel.set_uri.clone()),
        from,
        until: from,
        entries: Vec::new(),
    };
    let window = &step.plan.window;
    let limits = NotificationLimits {
        entries: window.max_entries,
        // Room for the fractions of its times.
        bytes: window.max_bytes.saturating_sub(empty.render().len() + 32),
    };
    let mut notifications = Vec::new();
    for interval in intervals(changes, empty, limits) {
        for (list, count) in &interval.back_dated {
            lists[*list].undated.back_dated += count;
        }
        notifications.push(append_or_extend(step, channel, interval)?);
    }
    let mut undated = UndatedByReason::default();
    for list in lists.iter() {
        undated.missing += list.undated.missing;
        undated.invalid += list.undated.invalid;
        undated.ahead += list.undated.ahead;
        undated.back_dated += list.undated.back_dated;
    }
    let source = step.source_with_row(channel.source);
    step.facts.push(Fact::Took {
        source: source.map_or_else(String::new, |(_, plan)| plan.name.clone()),
        topic: channel.topic.clone(),
        changes: of_kinds,
        lists: lists.iter().filter(|list| list.told > 0).count(),
        notifications,
        undated,
    });
    fall_behind(step, channel)?;
    forget_told(step, channel.id)?;
    if channel.is_retired
        && let Some(until) = told_until(step, channel.id)?
        && let Some(live) = live_of_set(step, channel.set, channel.kind)?
    {
        set_next_from(step, live.id, until)?;
    }
    step.serve.insert(channel.id);
    step.ready.insert(channel.id);
    Ok(())
}

/// Adds a notification to the log of a channel, or to the last one while no hub was sent that (C20). Returns its number.
fn append_or_extend(
    step: &mut Step<'_>,
    channel: &Channel,
    interval: IntervalChanges,
) -> Result<(u64, Arc<[u8]>)> {
    let payload = interval.payload;
    let fresh: Arc<[u8]> = payload.render().into();
    let mut body = Arc::clone(&fresh);
    let (mut since, mut entries, mut number) = (payload.from, payload.entries.len(), 1_i64);
    let last = last(step.db, channel.id, i64::MAX)?;
    let total = last.as_ref().map_or(0, |last| last.total) + entries;
    let mut left_out: Vec<(usize, Datetime)> = interval.outside;
    let window = &step.plan.window;
    if let Some(last) = last
        && last.until == since
        && last.entries + entries <= window.max_entries
        && last.bytes + body.len() <= window.max_bytes
        && let Some(grown) = extended(step, channel.id, last.seq, &body)?
    {
        body = grown;
        for (position, _) in &mut left_out {
            *position += last.entries;
        }
        let before = omitted_datetimes(step.db, channel.id, last.seq.cast_unsigned())?;
        left_out.extend(before);
        (since, entries, number) = (last.since, last.entries + entries, 0);
        let sql = "DELETE FROM change_log WHERE channel = ?1 AND seq = ?2";
        step.db.run(sql, (channel.id, last.seq))?;
    }
    let sql = "UPDATE channel SET seq = seq + ?3, untils = ?2 WHERE id = ?1 RETURNING seq";
    let until = cut::encode_times(&[payload.until]);
    let seq: u64 = step.db.value(sql, (channel.id, until, number))?;
    let of = (channel.id, seq, since, payload.until);
    let sizes = (entries, total, body.len());
    let lines = left_out.iter().map(|(at, time)| format!("{at} {time}\n"));
    let outside = (!left_out.is_empty()).then(|| lines.collect::<String>());
    let sql = "INSERT INTO change_log VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    step.db.run(sql, (of, sizes, (step.now, &body), outside))?;
    let hubs = active_hubs(step.db, channel.id)?;
    step.note_made(channel, seq, entries, &body, hubs)?;
    Ok((seq, fresh))
}

/// Returns the last notification of a log with the next one in it, if there are hubs and none was sent it, nor counts as
/// told, and both fit into one.
fn extended(
    step: &Step<'_>,
    id: ChannelId,
    last: i64,
    next: &Arc<[u8]>,
) -> Result<Option<Arc<[u8]>>> {
    let sql = "SELECT l.body FROM change_log l WHERE l.channel = ?1 AND l.seq = ?2 \
               AND EXISTS (SELECT 1 FROM account WHERE channel = ?1 AND left_at IS NULL) \
               AND NOT EXISTS (SELECT 1 FROM account WHERE channel = ?1 AND (seq = ?2 OR sending = ?2)) \
               AND NOT EXISTS (SELECT 1 FROM log_position WHERE channel = ?1 AND (heard >= ?2 OR skipped_to >= ?2 \
               OR last >= ?2 OR heard = ?2 - 1 AND entries > 0))";
    let unsent: Option<Arc<[u8]>> = step.db.first(sql, (id, last))?;
    let both = unsent.map(|unsent| [unsent, next.clone()]);
    let window = &step.plan.window;
    let merged = both.and_then(|it| merge_latest(it.iter(), window.max_entries, window.max_bytes));
    Ok(merged.map(Arc::from))
}

/// C22: lets the oldest changes count as told to hubs that are too far behind, except what is in flight.
fn fall_behind(step: &mut Step<'_>, channel: &Channel) -> Result<()> {
    let max = step.plan.window.change_backlog;
    for (mut position, flying) in positions(step, channel.id)? {
        if backlog_at(step.db, &position)? <= max {
            continue;
        }
        let to = position.last;
        let (mut kept, mut dropped, mut skipped_to) = (0, 0, None);
        if let Some(next) = next(step.db, &position)? {
            let entries = next.entries.saturating_sub(position.entries);
            if Some(next.seq) == flying {
                kept = entries
            } else {
                (dropped, skipped_to) = (entries, Some(next.seq))
            }
        }
        let end = last(step.db, channel.id, to)?.map_or(0, |last| last.total);
        let mut from = position.first_after_next();
        while let Some(logged) = first(step.db, channel.id, from, to)? {
            if kept + end - logged.entries_before() <= max {
                break;
            }
            dropped += logged.entries;
            skipped_to = Some(logged.seq);
            from = logged.seq + 1;
        }
        match (skipped_to, flying) {
            (None, _) => {}
            (Some(_), Some(_)) => position.skipped_to = skipped_to,
            (Some(seq), None) => position.skip(position.skipped_to.map_or(seq, |to| to.max(seq))),
        }
        save(step, &position)?;
        let hub = position.account.1;
        step.report_dropped(&channel.topic, hub, dropped, DropCause::FellBehind)?;
    }
    Ok(())
}

/// Forgets logged notifications that no hub is due, except those that the topic serves, and the last one (C22). For a hub
/// that left, later ones are kept while they have no more entries than a backlog, because it continues there if it returns
/// (C26).
pub fn forget_told(step: &Step<'_>, id: ChannelId) -> Result<()> {
    let max = step.plan.window.change_backlog;
    let end = last(step.db, id, i64::MAX)?;
    let total = end.as_ref().map_or(0, |end| end.total);
    let mut wanted: Vec<(i64, i64)> = end.iter().map(|end| (end.seq, i64::MAX)).collect();
    for (position, flying) in positions(step, id)? {
        let next = position.heard + 1;
        if position.heard >= position.last && flying.is_none() {
            continue;
        }
        let flying = flying.unwrap_or(next);
        let from = position.last.checked_add(1);
        let after = from
            .map(|from| first(step.db, id, from, i64::MAX))
            .transpose()?;
        let is_beyond = after
            .flatten()
            .is_some_and(|after| total - after.entries_before() > max);
        let to = if is_beyond { position.last } else { i64::MAX };
        let after_next = position.first_after_next();
        wanted.extend([(next, next), (flying, flying), (after_next, to)]);
    }
    wanted.extend(served_range(step, id)?);
    wanted.retain(|(first, last)| first <= last);
    wanted.sort_unstable();
    let mut begin = 0;
    for (first, last) in wanted {
        if begin < first {
            let sql = "DELETE FROM change_log WHERE channel = ?1 AND seq >= ?2 AND seq < ?3";
            step.db.run(sql, (id, begin, first))?;
        }
        begin = begin.max(last.saturating_add(1));
    }
    Ok(())
}

// Hubs.

/// C26: gives a new account the notifications that are cut from now on; one that left continues where it was.
pub fn add_position(step: &Step<'_>, account: AccountId) -> Result<()> {
    step.db.run(
        "INSERT INTO log_position (channel, hub, heard) SELECT id, ?2, seq FROM channel WHERE id = ?1 \
         ON CONFLICT (channel, hub) DO UPDATE SET last = NULL",
        account,
    )
}

/// C26: lets a hub that is advertised no more have what was cut until now, or nothing more unless it `is_told`.
pub fn set_last_due(step: &Step<'_>, account: AccountId, is_told: bool) -> Result<()> {
    let sql = "UPDATE log_position SET last = CASE WHEN ?3 THEN (SELECT seq FROM channel WHERE id = ?1) ELSE heard END \
               WHERE channel = ?1 AND hub = ?2";
    step.db.run(sql, (account, is_told))
}

/// Puts the next notification of the log in flight to each hub that is free.
pub fn launch(step: &mut Step<'_>, channel: &Channel) -> Result<()> {
    let id = channel.id;
    for (hub, _, limit, _) in cut::free_accounts(step, channel)? {
        let account = (id, hub);
        let Some(mut position) = position(step.db, account)? else {
            continue;
        };
        let Some(logged) = first_untold(step.db, &position)? else {
            continue;
        };
        // The hub fell behind on what was before it (C22).
        position.skip(logged.seq - 1);
        position.entries = position.entries.min(logged.entries.saturating_sub(1));
        save(step, &position)?;
        let entries = (logged.entries - position.entries).min(limit.entries.max(1));
        let flight = Flight {
            seq: logged.seq.cast_unsigned(),
            entries,
            cut: logged.cut,
            ..Flight::default()
        };
        delivery::launch(step, account, &flight, None)?;
    }
    Ok(())
}

/// Returns what a hub is sent of a logged notification: the part that follows what it has of it, of so many entries (C23).
pub fn remaining_body(db: Db<'_>, account: AccountId, seq: u64, count: usize) -> Result<Arc<[u8]>> {
    let logged = db.first::<(Arc<[u8]>, usize, usize)>(
        "SELECT l.body, l.entries, p.entries FROM change_log l CROSS JOIN log_position p ON p.channel = l.channel \
         WHERE l.channel = ?1 AND p.hub = ?2 AND l.seq = ?3",
        (account, seq),
    )?;
    let Some((body, of, start)) = logged else {
        return Ok(Arc::from([]));
    };
    if count == of {
        return Ok(body);
    }
    Ok(part(&body, start..start + count).map_or(body, Arc::from))
}

/// Returns the datetimes that were left out of a logged notification, with the positions of their entries (C15).
pub fn omitted_datetimes(db: Db<'_>, id: ChannelId, seq: u64) -> Result<Vec<(usize, Datetime)>> {
    let sql = "SELECT outside FROM change_log WHERE channel = ?1 AND seq = ?2";
    let outside: Option<String> = db.value(sql, (id, seq))?;
    let lines = outside.iter().flat_map(|outside| outside.lines());
    let outside = lines.filter_map(|line| {
        let (position, datetime) = line.split_once(' ')?;
        Some((position.parse().ok()?, Datetime::parse(datetime)?))
    });
    Ok(outside.collect())
}

/// Notes that a hub accepted entries of a notification. Returns true if it has the whole of it now.
pub fn record_accepted(step: &Step<'_>, account: AccountId, flight: &Flight) -> Result<bool> {
    let Some(mut position) = position(step.db, account)? else {
        return Ok(true);
    };
    let seq = flight.seq.cast_signed();
    if seq == position.heard + 1 {
        position.entries += flight.entries;
    }
    let of = first(step.db, account.0, seq, seq)?.map_or(0, |logged| logged.entries);
    let is_whole = seq <= position.heard || position.entries >= of;
    if is_whole {
        position.skip(seq.max(position.skipped_to.unwrap_or_default()));
    }
    save(step, &position)?;
    Ok(is_whole)
}

/// Counts everything that was logged as told to a hub. Returns the number of changes.
pub fn drop_due(step: &Step<'_>, account: AccountId) -> Result<usize> {
    let Some(mut position) = position(step.db, account)? else {
        return Ok(0);
    };
    let changes = backlog_at(step.db, &position)?;
    let sql = "SELECT seq FROM channel WHERE id = ?1";
    position.skip(position.last.min(step.db.value(sql, account.0)?));
    save(step, &position)?;
    Ok(changes)
}

// Topics (C25).

/// Returns the first and the last notification that a topic serves as one, because a hub fetches it: those cut within the
/// topic's window, and those that such a hub is due. They are consecutive, and have no more entries than a notification.
fn served_range(step: &Step<'_>, id: ChannelId) -> Result<Option<(i64, i64)>> {
    let mut heard: Option<i64> = None;
    for hub in served::fetching_hubs(step, id)? {
        let position = position(step.db, (id, hub))?.map(|position| position.heard);
        heard = heard.into_iter().chain(position).min();
    }
    let (Some(heard), Some(newest)) = (heard, last(step.db, id, i64::MAX)?) else {
        return Ok(None);
    };
    let since = earlier(step.now, step.plan.topic_window);
    let (end, mut first, mut from) = (newest.seq, newest.seq, newest.since);
    let mut entries = newest.entries;
    while let Some(logged) = last(step.db, id, first - 1)? {
        entries += logged.entries;
        let is_served = logged.seq > heard || logged.cut >= since;
        let is_next = logged.seq + 1 == first && logged.until == from;
        if !(is_served && is_next && entries <= step.plan.window.max_entries) {
            break;
        }
        (first, from) = (logged.seq, logged.since);
    }
    Ok((first < end).then_some((first, end)))
}

/// Returns what the topic of a change channel serves.
pub fn topic_body(step: &Step<'_>, id: ChannelId) -> Result<Arc<[u8]>> {
    let newest = last(step.db, id, i64::MAX)?.map_or(0, |newest| newest.seq);
    let (from, to) = served_range(step, id)?.unwrap_or((newest, newest));
    let sql =
        "SELECT body FROM change_log WHERE channel = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq";
    let mut bodies = step.db.all::<Vec<Arc<[u8]>>>(sql, (id, from, to))?;
    let window = &step.plan.window;
    if bodies.len() > 1
        && let Some(merged) = merge_latest(bodies.iter(), window.max_entries, window.max_bytes)
    {
        return Ok(merged.into());
    }
    Ok(bodies.pop().unwrap_or_else(|| Arc::from([])))
}

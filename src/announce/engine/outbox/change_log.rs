//! The log of a change channel: taken changes become notifications, and each hub is sent those that it was not told
//! (C10, C12 to C23).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::change_payload::ChangePayload;
use resourcesync::payload::ChangeKind;
use resourcesync::uri::{Hub, Uri};

use crate::announce::changes::interval::{FreshChange, Interval, IntervalLimits, intervals};
use crate::announce::changes::log::{LogPart, Logged};
use crate::announce::changes::round::{AHEAD, TakenList, UndatedChanges};
use crate::announce::channel::Channel;
use crate::announce::delivery::hub_queue::SizeLimit;
use crate::announce::engine::change_sets::learning::Learned;
use crate::announce::engine::channels::Channels;
use crate::announce::engine::step::Step;
use crate::announce::event::Fact;
use crate::announce::history::{Fate, PastNotification};
use crate::announce::ids::ChannelId;
use crate::announce::plan::{Mode, Plan, WindowPlan};
use crate::announce::state::{Flight, LogRow, Ping};
use crate::announce::time::{earlier, later};

/// Notifications that were cut from the changes of one round.
#[derive(Debug)]
pub struct CutNotifications {
    /// In order, for the history.
    pub notifications: Vec<PastNotification>,
    /// Numbers of entries that are told without their datetime, by the position of the list (C15).
    pub back_dated: BTreeMap<usize, usize>,
}

/// Cuts the changes that a round found in some lists into notifications (C13 to C19), adds them to the log of a channel, and
/// saves them. The outbox handles the consequences for the hubs.
pub(super) fn cut_changes(
    channel: &mut Channel,
    id: ChannelId,
    changes: Vec<FreshChange>,
    lists: &[TakenList],
    window: &WindowPlan,
    step: &mut Step,
) -> CutNotifications {
    let counted = count(&changes);
    let from = channel.told_until().unwrap_or(step.wall());
    let mut cut = CutNotifications {
        notifications: Vec::new(),
        back_dated: BTreeMap::new(),
    };
    let limits = interval_limits(window, &channel.row.set, from);
    for interval in intervals(changes, from, limits) {
        for (list, count) in &interval.back_dated {
            *cut.back_dated.entry(*list).or_insert(0) += count;
        }
        cut.notifications.push(push(channel, id, interval, step));
    }
    step.tell(took(channel, counted, lists, &cut));
    cut
}

/// Puts the next notification of the log in flight to a hub. Returns false if the hub is not free, or was told all.
pub fn launch_next(
    channel: &mut Channel,
    hub: &Hub,
    max: usize,
    size: Option<SizeLimit>,
    now: Timestamp,
) -> bool {
    let Some(ledger) = channel.ledgers.get_mut(hub) else {
        return false;
    };
    if ledger.free_from().is_none_or(|at| at > now) {
        return false;
    }
    let limit = ledger.entry_limit(max, size);
    let Some((seq, part)) = channel.log.next(&ledger.row.position, limit) else {
        return false;
    };
    let Some(logged) = channel.log.get(seq) else {
        return false;
    };
    let flight = Flight {
        seq,
        body: Arc::from([]),
        part: Some(part),
        entries: part.range.entries(),
        covers: Vec::new(),
        until: Some(logged.until),
        cut: logged.cut,
        attempts: 0,
        next_try: now,
    };
    // The hub fell behind on what was before it (C22).
    ledger.row.position.skip(seq - 1);
    ledger.launch(flight, size);
    true
}

/// Notes that a hub accepted what was in flight of the log.
pub fn accept(
    channel: &mut Channel,
    id: ChannelId,
    hub: &Hub,
    seq: u64,
    part: LogPart,
    step: &mut Step,
) {
    let Some(ledger) = channel.ledgers.get_mut(hub) else {
        return;
    };
    ledger.row.flight = None;
    ledger.row.accepted = Some(step.now());
    ledger.is_answer_old = false;
    let of = channel.log.get(seq).map_or(0, |logged| logged.entries);
    if ledger.row.position.accept(seq, part.range.entries(), of) {
        ledger.row.limit = None;
    }
    if ledger.mode == Mode::Ping {
        ledger.row.ping = Some(Ping::accepted(ledger.row.ping, step.now()));
    }
    step.save_ledger(id, hub.clone());
}

/// C10: begins the first interval of a channel with the latest datetime that was learned; the first one of a set that took
/// the topic over not before that either.
pub fn begin_interval(channel: &mut Channel, id: ChannelId, learned: Learned, step: &mut Step) {
    let wall = step.wall();
    let latest = learned
        .latest
        .filter(|latest| *latest <= later(wall, AHEAD));
    let from = latest.unwrap_or(wall);
    if channel.told_until() < Some(from) {
        channel.row.untils = vec![from];
        step.save_channel(id);
    }
    step.tell(Fact::Learned {
        topic: channel.row.topic.clone(),
        changes: learned.entries,
        lists: learned.lists,
    });
}

/// C12: begins the next interval of a channel where its set was told of last, on another topic.
pub fn go_on_from(channels: &mut Channels, id: ChannelId, until: Timestamp, step: &mut Step) {
    if let Some(channel) = channels.get_mut(id)
        && channel.told_until() < Some(until)
    {
        channel.row.untils = vec![until];
        step.save_channel(id);
    }
}

/// C22: lets the oldest changes count as told to hubs that are too far behind.
pub fn fall_behind(channel: &mut Channel, id: ChannelId, max: usize, step: &mut Step) {
    for (hub, ledger) in &mut channel.ledgers {
        let flying = ledger.row.flight.as_ref().map(|flight| flight.seq);
        let position = &mut ledger.row.position;
        let changes = channel.log.fall_behind(position, flying, max);
        if changes > 0 {
            step.save_ledger(id, hub.clone());
            step.tell(Fact::FellBehind {
                topic: channel.row.topic.clone(),
                hub: hub.clone(),
                changes,
            });
        }
    }
}

/// Forgets logged notifications that no hub is due (C22).
pub fn trim_log(channel: &mut Channel, id: ChannelId, plan: &Plan, step: &mut Step) {
    let since = earlier(step.now(), plan.topic_window);
    for seq in channel.forget_heard(since, &plan.window) {
        step.rows().change_log.insert((id, seq), None);
    }
}

/// Returns what one notification of the log may hold.
fn interval_limits(window: &WindowPlan, set: &Uri, from: Timestamp) -> IntervalLimits {
    let empty = ChangePayload {
        up: Some(set.clone()),
        from,
        until: from,
        entries: Vec::new(),
    };
    // Room for the fractions of its times.
    let overhead = empty.overhead() + 32;
    IntervalLimits {
        entries: window.max_entries,
        bytes: window.max_bytes.saturating_sub(overhead),
    }
}

/// Adds a notification to the log of a channel, and saves it.
fn push(
    channel: &mut Channel,
    id: ChannelId,
    interval: Interval,
    step: &mut Step,
) -> PastNotification {
    let (logged, body) = logged(&channel.row.set, interval, step.now());
    channel.row.seq += 1;
    let seq = channel.row.seq;
    channel.log.push(seq, logged);
    channel.row.body = Arc::clone(&body);
    channel.row.untils = vec![logged.until];
    let row = LogRow { logged, body };
    let notification = logged_notification(channel, id, seq, &row);
    step.rows().change_log.insert((id, seq), Some(row));
    notification
}

/// Returns a notification of the log of a channel, for the history.
fn logged_notification(
    channel: &Channel,
    id: ChannelId,
    seq: u64,
    row: &LogRow,
) -> PastNotification {
    let hubs = channel.listening();
    PastNotification {
        channel: id,
        topic: channel.row.topic.clone(),
        seq,
        cut: row.logged.cut,
        changes: Some(row.logged.entries),
        bytes: Some(row.logged.bytes),
        body: Some(Arc::clone(&row.body)),
        hubs: hubs.map(|(hub, _)| (hub.clone(), Fate::Open)).collect(),
    }
}

/// Returns what is told of the changes that a channel took from some lists: numbers of created, updated and deleted
/// resources, and what was cut from them.
fn took(
    channel: &Channel,
    counted: [usize; 3],
    lists: &[TakenList],
    cut: &CutNotifications,
) -> Fact {
    let [created, updated, deleted] = counted;
    Fact::Took {
        source: channel.row.source.clone(),
        topic: channel.row.topic.clone(),
        seq: channel.row.seq,
        created,
        updated,
        deleted,
        lists: lists.iter().filter(|list| list.told > 0).count(),
        notifications: cut.notifications.len(),
        undated: undated(lists),
        back_dated: cut.back_dated.values().sum(),
    }
}

/// Returns the numbers of entries without a usable datetime in some lists.
fn undated(lists: &[TakenList]) -> UndatedChanges {
    lists
        .iter()
        .fold(UndatedChanges::default(), |sum, list| UndatedChanges {
            missing: sum.missing + list.undated.missing,
            invalid: sum.invalid + list.undated.invalid,
            ahead: sum.ahead + list.undated.ahead,
        })
}

/// Renders a notification.
fn logged(set: &Uri, interval: Interval, now: Timestamp) -> (Logged, Arc<[u8]>) {
    let payload = ChangePayload {
        up: Some(set.clone()),
        from: interval.from,
        until: interval.until,
        entries: interval.entries,
    };
    let body: Arc<[u8]> = payload.render().into();
    let logged = Logged {
        from: payload.from,
        until: payload.until,
        entries: payload.entries.len(),
        bytes: body.len(),
        cut: now,
    };
    (logged, body)
}

/// Returns the numbers of created, updated and deleted resources.
fn count(changes: &[FreshChange]) -> [usize; 3] {
    let mut counted = BTreeMap::new();
    for fresh in changes {
        *counted.entry(fresh.change.kind).or_insert(0) += 1;
    }
    [
        ChangeKind::Created,
        ChangeKind::Updated,
        ChangeKind::Deleted,
    ]
    .map(|kind| counted.get(&kind).copied().unwrap_or_default())
}

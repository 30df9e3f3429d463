//! Channels of sets: opened, changed, revived, retired and ended (R8, R9, R11, R13).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::event::{DropCause, Fact};
use crate::plan::{Plan, PublishMode};
use crate::steps::routing::default_topics;
use crate::time::later;
use resourcesync::capability::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri};

use crate::state::{AccountId, ChannelId, Db, DocId, HubId, Parameters, Result, from_row};
use crate::steps::cut::CHANNELS_PER_STEP;
use crate::steps::live::LiveState;
use crate::steps::{Step, change_log, change_sets, deletions, delivery, owed};

/// A channel of a set.
#[derive(Debug, Clone)]
pub struct Channel {
    pub id: ChannelId,
    pub source: i64,
    pub kind: ChannelKind,
    pub set: DocId,
    pub set_uri: Uri,
    /// The Source Description above the set: the one that lists it, else the one that its list names (R20).
    pub description: Option<Uri>,
    pub topic: Topic,
    pub is_retired: bool,
    /// True while changes are collected.
    pub is_open: bool,
}

const COLUMNS: &str = "SELECT c.id, c.source, c.kind, c.set_id, s.uri, \
     coalesce((SELECT l.uri FROM mention m CROSS JOIN document l ON l.id = m.list WHERE m.document = s.id \
     AND l.capability = 0 AND l.form = 0 AND l.presence BETWEEN 1 AND 3 ORDER BY l.uri LIMIT 1), \
     (SELECT u.uri FROM document u WHERE u.id = s.up)), c.topic, c.retired IS NOT NULL, c.deadline IS NOT NULL \
     FROM channel c CROSS JOIN document s ON s.id = c.set_id";

from_row! { Channel { id, source, kind, set, set_uri, description, topic, is_retired, is_open } }

impl Db<'_> {
    /// Sets columns of a channel to values, which are the parameters after its own.
    pub fn set_channel(self, id: ChannelId, columns: &str, values: impl Parameters) -> Result<()> {
        let sql = format!("UPDATE channel SET {columns} WHERE id = ?1");
        self.run(&sql, (id, values))
    }

    /// Sets columns of an account to values, which are the parameters after its own.
    pub fn set_account(self, id: AccountId, columns: &str, values: impl Parameters) -> Result<()> {
        let sql = format!("UPDATE account SET {columns} WHERE channel = ?1 AND hub = ?2");
        self.run(&sql, (id, values))
    }

    /// R20: has the next notification or page begin without a `from`, because changes were dropped.
    pub fn end_intervals(self, account: AccountId) -> Result<()> {
        self.set_account(account, "until = NULL, flight_until = NULL", ())?;
        self.set_channel(account.0, "page_until = NULL", ())
    }
}

pub fn channel(step: &Step<'_>, id: ChannelId) -> Result<Option<Channel>> {
    step.db.first(&format!("{COLUMNS} WHERE c.id = ?1"), id)
}

pub fn of_topic(db: Db<'_>, topic: &Topic) -> Result<Option<Channel>> {
    db.first(&format!("{COLUMNS} WHERE c.topic = ?1"), topic)
}

pub fn live_of_set(step: &Step<'_>, set: DocId, kind: ChannelKind) -> Result<Option<Channel>> {
    let sql = format!("{COLUMNS} WHERE c.set_id = ?1 AND c.kind = ?2 AND c.retired IS NULL");
    step.db.first(&sql, (set, kind))
}

/// Returns the hubs that are told of all changes of a channel.
pub fn active_hubs(db: Db<'_>, id: ChannelId) -> Result<BTreeSet<HubId>> {
    let sql = "SELECT hub FROM account WHERE channel = ?1 AND left_at IS NULL";
    db.all(sql, id)
}

/// Retires the channels of sets that have ended, before their documents leave them (R11). Returns the sets whose channels may
/// change: those that began, ended or changed, `more`, and all when a plan first settles.
pub fn retire_ended(
    step: &mut Step<'_>,
    position: usize,
    more: BTreeSet<DocId>,
) -> Result<BTreeSet<DocId>> {
    let source = &step.live.sources[position];
    let id = source.id;
    let touched = "SELECT id FROM document WHERE source = ?1 AND touched > 0 AND touched = 3 \
         AND (capability = 1 AND form = 0 OR was_capability = 1 AND was_form = 0)";
    let about =
        "SELECT d.id FROM finding f CROSS JOIN document d ON d.uri = about WHERE f.source = ?1";
    let sql = match (source.has_settled, source.was_routed) {
        (true, _) => touched.to_owned(),
        // Another source may have settled before, and left a topic.
        (false, true) => format!("{touched} UNION {about} AND f.kind = 'shared_topic'"),
        (false, false) => format!(
            "SELECT id FROM document WHERE source = ?1 AND capability IN (0, 1) AND capability = 1 AND form = 0 \
             AND presence BETWEEN 1 AND 3 UNION SELECT set_id FROM channel WHERE source = ?1 \
             UNION {about} AND f.part = 1"
        ),
    };
    let mut sets = step.db.all::<BTreeSet<DocId>>(&sql, id)?;
    if !source.has_settled {
        sets.extend(source.configured.iter());
    }
    sets.extend(more);
    for set in &sets {
        if owed::set_exists(step, id, *set)? {
            continue;
        }
        for kind in ChannelKind::ALL {
            if let Some(channel) = live_of_set(step, *set, kind)? {
                retire(step, &channel)?;
            }
        }
    }
    Ok(sets)
}

/// Returns the number of documents with a change that a hub is due, or of changes of resources; those in flight included.
pub fn pending_count(step: &Step<'_>, channel: &Channel, hub: HubId) -> Result<usize> {
    if channel.kind == ChannelKind::Change {
        return change_log::backlog(step.db, (channel.id, hub));
    }
    step.db.value(
        "SELECT count(*) FROM (SELECT document FROM owed WHERE channel = ?1 AND hub = ?2 AND due IS NOT NULL \
         UNION SELECT document FROM flight_entry WHERE channel = ?1 AND hub = ?2)",
        (channel.id, hub),
    )
}

/// Reports what a hub is due on a channel, and is not told any more.
pub fn report_due(step: &mut Step<'_>, (id, hub): AccountId, cause: DropCause) -> Result<()> {
    let Some(channel) = channel(step, id)? else {
        return Ok(());
    };
    let changes = pending_count(step, &channel, hub)?;
    step.report_dropped(&channel.topic, hub, changes, cause)
}

/// R11: retires a channel, which outlives its advertisement to announce what is due: what its hubs were told of all else is
/// written down, for the day on which the set comes back to it.
pub fn retire(step: &mut Step<'_>, channel: &Channel) -> Result<()> {
    match channel.kind {
        ChannelKind::Framework => {
            for hub in active_hubs(step.db, channel.id)? {
                save_dormant(step, channel, hub)?;
            }
        }
        ChannelKind::Change => change_sets::retire(step, channel)?,
    }
    let times = (step.now, later(step.now, step.plan.retired_topic));
    step.db
        .set_channel(channel.id, "retired = ?2, ends = ?3", times)?;
    step.freed.insert(channel.topic.clone());
    let (topic, set) = (channel.topic.clone(), channel.set_uri.clone());
    step.facts.push(Fact::ChannelRetired { topic, set });
    step.serve.insert(channel.id);
    Ok(())
}

/// Writes what a hub was told of the documents of a set, where it was told what is seen, or will be by what is in flight.
fn save_dormant(step: &Step<'_>, channel: &Channel, hub: HubId) -> Result<()> {
    owed::owe_nothing_after_flight(step, (channel.id, hub))?;
    step.db.run(
        "INSERT INTO owed (channel, hub, document, told_capability, told_form, told_fingerprint, dormant) \
         SELECT ?1, ?2, d.id, d.capability, d.form, d.fingerprint, 1 FROM member m CROSS JOIN document d ON d.id = m.document \
         WHERE m.set_id = ?3 AND d.presence BETWEEN 1 AND 3 ON CONFLICT (channel, hub, document) DO NOTHING",
        (channel.id, hub, channel.set),
    )
}

/// Wakes what was written down: what is owed of the documents of the set is what differs from what is seen now.
fn wake_dormant(step: &mut Step<'_>, account: AccountId, set: DocId) -> Result<()> {
    let sql = "UPDATE owed SET dormant = 0 WHERE channel = ?1 AND hub = ?2 AND dormant = 1";
    step.db.run(sql, account)?;
    step.db.run(
        "INSERT INTO owed (channel, hub, document, told_capability, told_form, told_fingerprint) \
         SELECT ?1, ?2, d.id, CASE WHEN d.baseline > 0 THEN d.was_capability END, \
         CASE WHEN d.baseline > 0 THEN d.was_form END, \
         CASE WHEN d.baseline > 0 THEN d.was_fingerprint END FROM member m CROSS JOIN document d ON d.id = m.document \
         WHERE m.set_id = ?3 AND d.presence BETWEEN 1 AND 3 ON CONFLICT (channel, hub, document) DO NOTHING",
        (account, set),
    )?;
    weigh_later(step, account)
}

/// Has all that is owed on an account weighed at the end of the settling.
fn weigh_later(step: &mut Step<'_>, account: AccountId) -> Result<()> {
    let sql = "SELECT document FROM owed WHERE channel = ?1 AND hub = ?2 AND dormant = 0";
    step.weigh.extend(step.db.all::<Vec<DocId>>(sql, account)?);
    Ok(())
}

/// Opens or revives the channel of a topic for a set, or changes its hubs.
pub fn open(
    step: &mut Step<'_>,
    position: usize,
    (set, uri): (DocId, &Uri),
    kind: ChannelKind,
    (topic, hubs): &(Topic, Vec<Hub>),
) -> Result<()> {
    let source = step.live.sources[position].id;
    let existing = of_topic(step.db, topic)?;
    let is_ours = |it: &Channel| (it.set, it.kind, it.source) == (set, kind, source);
    let mut is_changed = true;
    let id = match existing {
        Some(channel) if is_ours(&channel) && !channel.is_retired => {
            is_changed = false;
            channel.id
        }
        Some(channel) if is_ours(&channel) => {
            let columns = "retired = NULL, ends = NULL";
            step.db.set_channel(channel.id, columns, ())?;
            if kind == ChannelKind::Framework {
                for hub in active_hubs(step.db, channel.id)? {
                    wake_dormant(step, (channel.id, hub), set)?;
                }
            }
            let (topic, set) = (topic.clone(), uri.clone());
            step.facts.push(Fact::ChannelRevived { topic, set });
            channel.id
        }
        other => {
            let id = if let Some(channel) = other {
                end(step, &channel)?;
                step.db.set_channel(
                    channel.id,
                    "source = ?2, kind = ?3, set_id = ?4, retired = NULL, ends = NULL, body = x'', \
                     untils = CASE WHEN kind = ?3 THEN untils ELSE x'' END",
                    (source, kind, set),
                )?;
                if !channel.is_retired {
                    let (topic, set) = (topic.clone(), channel.set_uri);
                    step.facts.push(Fact::ChannelRetired { topic, set });
                }
                channel.id
            } else {
                let sql = "INSERT INTO channel (source, kind, set_id, topic) VALUES (?1, ?2, ?3, ?4) RETURNING id";
                step.db.value(sql, (source, kind, set, topic))?
            };
            step.facts.push(Fact::ChannelOpened {
                topic: topic.clone(),
                set: uri.clone(),
                hubs: hubs.len(),
            });
            id
        }
    };
    let hubs = hubs.iter().filter_map(|hub| step.live.hub_named(hub));
    let hubs: BTreeSet<HubId> = hubs.collect();
    let before = active_hubs(step.db, id)?;
    let Some(channel) = channel(step, id)? else {
        return Ok(());
    };
    for hub in before.difference(&hubs) {
        leave(step, position, &channel, *hub)?;
    }
    for hub in hubs.difference(&before) {
        join(step, position, &channel, *hub)?;
    }
    is_changed |= hubs != before;
    if !hubs.is_empty() {
        end_left_accounts(step, id)?;
    }
    if kind == ChannelKind::Change && is_changed {
        change_sets::track_set(step, &channel)?;
        step.ready.insert(id);
    }
    if kind == ChannelKind::Framework && !hubs.is_empty() {
        let sql = "UPDATE document SET is_new_set = 0 WHERE id = ?1 AND is_new_set = 1";
        step.db.run(sql, set)?;
    }
    if is_changed {
        step.serve.insert(id);
    }
    Ok(())
}

/// R11: begins to remove a hub that is advertised no more. It is sent what is due until now.
fn leave(step: &mut Step<'_>, position: usize, channel: &Channel, hub: HubId) -> Result<()> {
    // R13: a list that still advertises the hub that this one replaced is to be corrected first.
    let account = (channel.id, hub);
    let is_first = !step.live.sources[position].has_settled;
    let is_told = !(is_first && step.live.hubs.get(&hub).is_some_and(|hub| hub.is_inherited));
    if channel.kind == ChannelKind::Change {
        change_log::set_last_due(step, account, is_told)?;
    }
    if !is_told {
        let sql = "UPDATE owed SET dormant = 1, due = NULL WHERE channel = ?1 AND hub = ?2";
        step.db.run(sql, account)?;
        discard_flight(step, account)?;
    }
    if channel.kind == ChannelKind::Framework {
        save_dormant(step, channel, hub)?;
    }
    let times = (step.now, later(step.now, step.plan.retired_topic));
    step.db
        .set_account(account, "left_at = ?3, ends = ?4", times)?;
    weigh_later(step, account)
}

/// Adds a hub to a channel, or resumes its account. A new account begins with what the others were told, or else the last
/// one that left; on a channel without accounts, with what was seen before this step, and of a set that nobody was told of
/// with nothing (R11, R13).
fn join(step: &mut Step<'_>, position: usize, channel: &Channel, hub: HubId) -> Result<()> {
    let account = (channel.id, hub);
    let sql = "SELECT 1 FROM account WHERE channel = ?1 AND hub = ?2";
    let left = step.db.exists(sql, account)?;
    step.db.run(
        "INSERT INTO account (channel, hub) VALUES (?1, ?2) \
         ON CONFLICT (channel, hub) DO UPDATE SET left_at = NULL, ends = NULL",
        account,
    )?;
    if channel.kind == ChannelKind::Change {
        return change_log::add_position(step, account);
    }
    if left {
        return wake_dormant(step, account, channel.set);
    }
    let is_first = !step.live.sources[position].has_settled;
    let is_added = step.live.hubs.get(&hub).is_some_and(|hub| hub.is_added);
    let sql = "SELECT hub FROM account WHERE channel = ?1 AND hub <> ?2 AND left_at IS NULL";
    let mut others = step.db.all::<Vec<HubId>>(sql, account)?;
    if others.is_empty() {
        others = step.db.all::<Vec<HubId>>(
            "SELECT hub FROM account WHERE channel = ?1 AND hub <> ?2 \
             AND left_at = (SELECT max(left_at) FROM account WHERE channel = ?1 AND hub <> ?2)",
            account,
        )?;
    }
    // R13: a hub that the configuration adds starts at now.
    if others.is_empty() || (is_first && is_added) {
        owe_from_now(step, position, channel, hub)?;
        return weigh_later(step, account);
    }
    // Where the others were not told the same, the content that was told is unclear.
    for other in &others {
        step.db.run(
            "INSERT INTO owed (channel, hub, document, told_capability, told_form, told_fingerprint) \
             SELECT channel, ?2, document, told_capability, told_form, \
             CASE WHEN ?4 = 1 THEN told_fingerprint END FROM owed WHERE channel = ?1 AND hub = ?3 \
             ON CONFLICT (channel, hub, document) DO UPDATE SET told_fingerprint = \
             CASE WHEN told_fingerprint IS NOT DISTINCT FROM excluded.told_fingerprint THEN told_fingerprint END",
            (account, *other, others.len()),
        )?;
    }
    weigh_later(step, account)
}

/// R13: notes what counts as told to a hub that is told of a channel from now on.
fn owe_from_now(step: &mut Step<'_>, position: usize, channel: &Channel, hub: HubId) -> Result<()> {
    let set = step.db.document(channel.set)?;
    let is_new_set = set.is_some_and(|set| set.is_new_set);
    let account = (channel.id, hub);
    step.db.run(
        "INSERT INTO owed (channel, hub, document, told_capability, told_form, told_fingerprint) \
         SELECT ?1, ?2, d.id, CASE WHEN NOT (?4 OR d.hold = 1) THEN d.was_capability END, \
         CASE WHEN NOT (?4 OR d.hold = 1) THEN d.was_form END, \
         CASE WHEN NOT (?4 OR d.hold = 1) THEN d.was_fingerprint END \
         FROM member m CROSS JOIN document d ON d.id = m.document \
         WHERE m.set_id = ?3 AND (?4 OR d.hold = 1 OR d.touched = 3 AND (d.was_capability, d.was_form, d.was_fingerprint) \
         IS NOT (CASE WHEN d.presence <> 4 THEN d.capability END, CASE WHEN d.presence <> 4 THEN d.form END, \
         CASE WHEN d.presence <> 4 THEN d.fingerprint END)) ON CONFLICT (channel, hub, document) DO NOTHING",
        (account, channel.set, is_new_set),
    )?;
    for (description, (before, _)) in &step.live.sources[position].descriptions {
        // One that ended before anybody was told of it may be forgotten.
        if step.db.document(*description)?.is_some() {
            owed::set_told(step.db, account, *description, *before)?;
        }
    }
    Ok(())
}

/// Withdraws what is in flight on an account, without following it up.
fn discard_flight(step: &mut Step<'_>, account: AccountId) -> Result<()> {
    let (channel, hub) = account;
    delivery::clear_flight(step, account)?;
    if let Some(live) = step.live.hubs.get_mut(&hub)
        && live.queue.waiting.contains(&channel)
    {
        Arc::make_mut(&mut live.queue).remove(channel);
    }
    Ok(())
}

/// Ends the accounts of hubs that left a channel and were told all that was due, if another one goes on.
pub fn end_left_accounts(step: &mut Step<'_>, id: ChannelId) -> Result<()> {
    let ended = step.db.all::<Vec<HubId>>(
        "SELECT hub FROM account a WHERE a.channel = ?1 AND a.left_at IS NOT NULL AND a.seq IS NULL \
         AND NOT EXISTS (SELECT 1 FROM owed o WHERE o.channel = a.channel AND o.hub = a.hub AND o.dormant = 0) \
         AND NOT EXISTS (SELECT 1 FROM log_position p WHERE p.channel = a.channel AND p.hub = a.hub AND p.heard < p.last) \
         AND EXISTS (SELECT 1 FROM account b WHERE b.channel = ?1 AND b.left_at IS NULL)",
        id,
    )?;
    for hub in ended {
        remove_account(step, (id, hub))?;
        step.serve.insert(id);
    }
    Ok(())
}

fn remove_account(step: &mut Step<'_>, account: AccountId) -> Result<()> {
    let gone = step.db.all::<Vec<DocId>>(
        "SELECT o.document FROM owed o CROSS JOIN document d ON d.id = o.document \
         WHERE o.channel = ?1 AND o.hub = ?2 AND d.presence = 4",
        account,
    )?;
    discard_flight(step, account)?;
    let sql = "DELETE FROM account WHERE channel = ?1 AND hub = ?2";
    step.db.run(sql, account)?;
    gone.into_iter()
        .try_for_each(|id| deletions::forget_if_unowed(step, id))
}

/// Ends a channel: what is still due on it is dropped, and reported (R11, C9).
fn end(step: &mut Step<'_>, channel: &Channel) -> Result<()> {
    let sql = "SELECT hub FROM account WHERE channel = ?1";
    for hub in step.db.all::<Vec<HubId>>(sql, channel.id)? {
        report_due(step, (channel.id, hub), DropCause::ChannelRemoved)?;
        remove_account(step, (channel.id, hub))?;
    }
    if channel.kind == ChannelKind::Change {
        change_sets::end_channel(step, channel)?;
    }
    for table in ["said", "change_log"] {
        let sql = format!("DELETE FROM {table} WHERE channel = ?1");
        step.db.run(&sql, channel.id)?;
    }
    let columns = "window_first = NULL, deadline = NULL, page_until = NULL";
    step.db.set_channel(channel.id, columns, ())
}

/// Removes the channels of sources that are not configured.
pub fn remove_orphaned(step: &mut Step<'_>) -> Result<()> {
    let mut sources = step.db.all::<Vec<i64>>("SELECT id FROM source", ())?;
    sources.retain(|source| step.live.source_position(*source).is_none());
    let sql = format!("{COLUMNS} WHERE c.source = ?1");
    for source in sources {
        let orphaned: Vec<Channel> = step.db.all(&sql, source)?;
        orphaned.iter().try_for_each(|it| remove(step, it))?;
    }
    Ok(())
}

/// Removes a channel with all that is due on it.
fn remove(step: &mut Step<'_>, channel: &Channel) -> Result<()> {
    end(step, channel)?;
    step.db
        .run("DELETE FROM channel WHERE id = ?1", channel.id)?;
    step.withdraw.insert(channel.topic.clone());
    Ok(())
}

/// Removes the channels that retired for long enough, and ends the accounts of hubs that left so long ago (R11).
pub fn expire(step: &mut Step<'_>) -> Result<()> {
    let sql = format!("{COLUMNS} WHERE c.ends <= ?1 ORDER BY c.ends LIMIT ?2");
    let values = (step.now, CHANNELS_PER_STEP);
    for channel in step.db.all::<Vec<_>>(&sql, values)? {
        remove(step, &channel)?;
    }
    let sql = "SELECT channel, hub FROM account WHERE ends <= ?1 ORDER BY ends LIMIT ?2";
    let ended = step.db.all::<Vec<AccountId>>(sql, values)?;
    for account in ended {
        report_due(step, account, DropCause::HubRemoved)?;
        change_log::drop_due(step, account)?;
        step.db.set_account(account, "ends = NULL", ())?;
        step.db.end_intervals(account)?;
        // What is dropped counts as told, should the hub return.
        let gone = step.db.all::<Vec<DocId>>(
            "DELETE FROM owed WHERE channel = ?1 AND hub = ?2 AND (SELECT presence FROM document WHERE id = owed.document) = 4 \
             RETURNING document",
            account,
        )?;
        step.db.run(
            "UPDATE owed SET dormant = 1, due = NULL, (told_capability, told_form, told_fingerprint) = \
             (SELECT d.capability, d.form, d.fingerprint FROM document d WHERE d.id = owed.document) \
             WHERE channel = ?1 AND hub = ?2 AND (dormant = 0 OR document IN \
             (SELECT document FROM flight_entry WHERE channel = ?1 AND hub = ?2))",
            account,
        )?;
        discard_flight(step, account)?;
        change_log::forget_told(step, account.0)?;
        for document in gone {
            deletions::forget_if_unowed(step, document)?;
        }
        end_left_accounts(step, account.0)?;
    }
    Ok(())
}

/// Returns true if the topic of a channel is only a name for brokers: it can neither be fetched nor subscribed to.
pub fn is_broker_only(db: Db<'_>, plan: &Plan, live: &LiveState, on: &Channel) -> Result<bool> {
    let hubs = active_hubs(db, on.id)?;
    let mut modes = hubs.iter().map(|hub| Some(live.hubs.get(hub)?.mode));
    let is_for_brokers = !hubs.is_empty() && modes.all(|mode| mode == Some(PublishMode::Broker));
    let position = live.source_position(on.source);
    let Some(position) = position.filter(|_| is_for_brokers) else {
        return Ok(false);
    };
    let sql = "SELECT 1 FROM advertised WHERE document = ?1 AND kind = ?2 AND topic = ?3";
    let is_advertised = db.exists(sql, (on.set, on.kind, &on.topic))?;
    let mut entries = plan.channels.iter();
    let is_configured = entries.any(|it| it.capability_list == on.set_uri && it.kind == on.kind);
    let source = &plan.sources[position];
    let topics = default_topics(plan, source, &on.set_uri, on.kind);
    Ok(topics.is_some_and(|topics| topics.contains(&on.topic)) && !is_advertised && !is_configured)
}

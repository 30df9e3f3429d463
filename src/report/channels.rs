//! The channels, the state of each hub on them, and the changes that wait there.

use std::collections::{BTreeMap, BTreeSet};

use announce::delivery::KeptAnswer;
use announce::plan::PublishMode;
use announce::steps::engine::StateReader;
use jiff::Timestamp;
use resourcesync::capability::{Capability, ChannelKind};
use resourcesync::uri::{Hub, Topic, Uri};

use crate::report::limited;
use crate::report::status::{AccountCondition, ChannelView, FailingHub, HubView, WaitingDocument};
use announce::state::{AccountId, ChannelId, Db, HubId, Result};
use announce::steps::change_log;
use announce::steps::channels::{is_broker_only, of_topic};
use announce::steps::served::next_ping_at;

/// Documents of each channel that are reported; of others, their number.
const MAX_REPORTED: usize = 10;

/// Returns every channel, retired ones too, in the order they were opened.
pub fn all(reader: &StateReader<'_>) -> Result<Vec<ChannelView>> {
    let mut channels = all_in_outline(reader)?;
    add_longest_waiting(reader, &mut channels)?;
    let mut held = held_by_channel(reader, None)?;
    for channel in &mut channels {
        let held = held.remove(&channel.id).unwrap_or_default();
        (channel.held, channel.more_held) = limited(held, MAX_REPORTED);
    }
    Ok(channels)
}

/// Returns every channel without what waits on it, in the order they were opened.
pub fn all_in_outline(reader: &StateReader<'_>) -> Result<Vec<ChannelView>> {
    let due = pending_by_account(reader.db)?;
    let mut hubs: BTreeMap<ChannelId, Vec<HubView>> = BTreeMap::new();
    for (channel, hub) in accounts_where(reader, "ORDER BY a.channel, a.hub", &due)? {
        // R11: a hub that left, and was told what was due, is not shown.
        if !hub.has_left || hub.in_flight.is_some() || hub.due > 0 {
            hubs.entry(channel).or_default().push(hub);
        }
    }
    let sql = "SELECT c.source, c.id, c.kind, d.uri, c.topic, c.retired, c.seq FROM channel c \
               CROSS JOIN document d ON d.id = c.set_id ORDER BY c.id";
    let mut channels = Vec::new();
    for (source, id, kind, set, topic, retired, seq) in reader.db.all::<Vec<_>>(sql, ())? {
        let Some(position) = reader.live.source_position(source) else {
            continue;
        };
        channels.push(ChannelView {
            id,
            source: reader.plan.sources[position].name.clone(),
            kind,
            set,
            topic,
            retired,
            seq,
            hubs: hubs.remove(&id).unwrap_or_default(),
            pending: Vec::new(),
            more_pending: 0,
            held: Vec::new(),
            more_held: 0,
        });
    }
    let of_changes = channels.iter_mut();
    // C21.
    for channel in of_changes.filter(|channel| channel.kind == ChannelKind::Change) {
        for hub in &mut channel.hubs {
            hub.backlog = change_log::backlog_view(reader.db, (channel.id, hub.id))?;
            if let Some(backlog) = &mut hub.backlog {
                channel.more_pending = channel.more_pending.max(backlog.changes);
                backlog.waits = hub.waits.clone().filter(|_| backlog.since.is_some());
            }
        }
    }
    Ok(channels)
}

/// Returns every channel whose topic is more than a name, as in [`all_in_outline`].
pub fn with_served_topics(reader: &StateReader<'_>) -> Result<Vec<ChannelView>> {
    let mut channels = Vec::new();
    for channel in all_in_outline(reader)? {
        if !has_broker_only_topic(reader, &channel.topic)? {
            channels.push(channel);
        }
    }
    Ok(channels)
}

/// Returns the accounts of configured hubs that meet a condition in SQL; `due` has the numbers of changes that are due.
fn accounts_where(
    reader: &StateReader<'_>,
    condition: &str,
    due: &BTreeMap<AccountId, usize>,
) -> Result<Vec<(ChannelId, HubView)>> {
    let sql = format!(
        "SELECT a.channel, a.hub, h.uri, a.seq, a.cut, a.attempts, a.retry_at, a.last, a.accepted, a.left_at IS NOT NULL, \
         a.pinged, a.fetched, a.unfetched_reported, a.sending IS NOT NULL, c.source, c.deadline FROM account a \
         CROSS JOIN hub h ON h.id = a.hub CROSS JOIN channel c ON c.id = a.channel {condition}"
    );
    let mut views = Vec::new();
    for (names, tries, answers, fetches, waits) in
        reader.db.all::<Vec<(_, _, _, _, _)>>(&sql, ())?
    {
        let (channel, id, hub): (_, _, Hub) = names;
        let Some(mode) = reader.plan.mode_of(&hub) else {
            continue;
        };
        let (in_flight, since, attempts, retry_at): (Option<_>, _, Option<_>, Option<_>) = tries;
        let (last, accepted, has_left): (Option<KeptAnswer>, _, _) = answers;
        let (pinged, was_fetched, was_reported): (Option<Timestamp>, bool, bool) = fetches;
        let (is_sending, source, deadline): (bool, _, Option<Timestamp>) = waits;
        let sending = is_sending && !reader.live.is_at_rest;
        let position = reader.live.source_position(source);
        let of_hub = reader.live.hubs.get(&id).map(|live| &live.queue);
        let queue = of_hub.filter(|queue| in_flight.is_some() && queue.waiting.contains(&channel));
        let outage = queue.and_then(|queue| queue.outage.as_ref());
        // R26.
        let pinged = pinged.filter(|_| mode == PublishMode::Ping);
        let is_known = pinged.is_some() && (was_fetched || was_reported);
        let fetch_confirmed = is_known.then_some(was_fetched);
        let free_from = pinged.map(|at| next_ping_at(at, was_fetched));
        let is_settled = position.is_none_or(|at| reader.live.sources[at].is_swept());
        let waits = if in_flight.is_some() {
            None
        } else if !is_settled {
            Some("until the tree was looked at".to_owned())
        } else if let Some(closes) = deadline {
            Some(format!("for further changes, until {closes:.0}"))
        } else if sending {
            Some("for the answer to what was dropped".to_owned())
        } else {
            let free = free_from.filter(|at| *at > reader.now);
            free.map(|at| format!("for the topic to be fetched, or until {at:.0}"))
        };
        let due = due.get(&(channel, id)).copied().unwrap_or_default();
        // What is to be tried now, or is being tried, has no time any more.
        let own_try = retry_at.filter(|_| !reader.live.is_at_rest);
        let own_try = in_flight.map(|_| own_try.unwrap_or(reader.now));
        let mut view = HubView {
            id,
            waits,
            has_left,
            hub,
            mode,
            state: AccountCondition::Fine,
            due,
            backlog: None,
            in_flight,
            since,
            attempts: attempts.unwrap_or_default(),
            sending,
            next_try: outage.map(|outage| outage.next_probe).or(own_try),
            last_failure: None,
            hub_failure: outage.map(|outage| outage.refusal.clone()),
            last,
            accepted,
            fetch_confirmed,
        };
        view.state = AccountCondition::of(&view);
        view.last_failure = view.failure().map(|refusal| refusal.reason.clone());
        views.push((channel, view));
    }
    Ok(views)
}

/// Returns the number of documents of which each account is due a change, or has one in flight, where there are any.
pub fn pending_by_account(db: Db<'_>) -> Result<BTreeMap<AccountId, usize>> {
    let counts = db.all::<Vec<((_, _), usize)>>(
        "SELECT channel, hub, count(*) FROM owed WHERE due IS NOT NULL GROUP BY channel, hub UNION ALL \
         SELECT f.channel, f.hub, count(*) FROM flight_entry f WHERE NOT EXISTS (SELECT 1 FROM owed o \
         WHERE o.channel = f.channel AND o.hub = f.hub AND o.document = f.document AND o.due IS NOT NULL) \
         GROUP BY f.channel, f.hub",
        (),
    )?;
    let mut due = BTreeMap::new();
    for (account, count) in counts {
        *due.entry(account).or_default() += count;
    }
    // Accounts that were not told all of the log of their change channel.
    let behind = "SELECT p.channel, p.hub FROM channel c CROSS JOIN log_position p ON p.channel = c.id \
                  WHERE c.kind = 1 AND p.heard < c.seq";
    for account in db.all::<Vec<AccountId>>(behind, ())? {
        due.insert(account, change_log::backlog(db, account)?);
    }
    Ok(due)
}

/// Returns the hubs that fail on some channel, with the reason. Reads the accounts with something in flight, but not those
/// that wait for a hub to accept anything.
pub fn troubled_hubs(reader: &StateReader<'_>) -> Result<BTreeMap<Hub, String>> {
    let mut troubled = BTreeMap::new();
    for (id, live) in &reader.live.hubs {
        if let Some(outage) = &live.queue.outage
            && !live.queue.waiting.is_empty()
        {
            troubled.insert(live.hub.clone(), outage.refusal.reason.clone());
            continue;
        }
        let open = format!(
            "WHERE a.hub = {} AND (a.seq IS NOT NULL OR a.unfetched_reported = 1)",
            id.0
        );
        let mut views = accounts_where(reader, &open, &BTreeMap::new())?.into_iter();
        if let Some((_, view)) = views.find(|(_, view)| view.state.is_trouble()) {
            let unfetched = || "it does not fetch topics after pings".to_owned();
            troubled.insert(view.hub, view.last_failure.unwrap_or_else(unfetched));
        }
    }
    Ok(troubled)
}

/// Returns the hubs that accept nothing at the moment (R23).
pub fn failing_hubs(reader: &StateReader<'_>) -> Result<Vec<FailingHub>> {
    let mut failing = Vec::new();
    let sql = "SELECT 1 FROM account WHERE hub = ?1 AND seq IS NOT NULL";
    for (id, live) in &reader.live.hubs {
        let Some(outage) = &live.queue.outage else {
            continue;
        };
        if reader.db.exists(sql, *id)? {
            failing.push(FailingHub {
                hub: live.hub.clone(),
                since: outage.since,
                attempts: outage.attempts,
                refusal: outage.refusal.clone(),
                next_try: outage.next_probe,
                waiting: live.queue.waiting.len(),
            });
        }
    }
    failing.sort_by(|one, other| one.hub.cmp(&other.hub));
    Ok(failing)
}

/// Returns true if only message brokers are told on a channel and nothing advertises it, so that its topic is only a
/// name.
fn has_broker_only_topic(reader: &StateReader<'_>, topic: &Topic) -> Result<bool> {
    match of_topic(reader.db, topic)? {
        Some(channel) => is_broker_only(reader.db, reader.plan, reader.live, &channel),
        None => Ok(false),
    }
}

/// SQL for whether the set `s` has a Change List.
const HAS_CHANGE_LIST: &str = "(EXISTS (SELECT 1 FROM member m CROSS JOIN document d ON d.id = m.document \
     WHERE m.set_id = s.id AND d.capability = ?1 AND d.form = 0 AND d.presence = 1))";

/// Returns the sets that have Change Lists and no change channel, by their Capability Lists.
pub fn sets_without_change_channel(reader: &StateReader<'_>) -> Result<Vec<Uri>> {
    reader.db.all(
        &format!(
            "SELECT s.uri FROM document s WHERE s.capability IN (0, 1) AND s.capability = 1 AND s.form = 0 \
             AND s.presence = 1 AND {HAS_CHANGE_LIST} AND NOT EXISTS (SELECT 1 FROM channel c WHERE c.set_id = s.id AND c.kind = 1 AND c.retired IS NULL) \
             ORDER BY s.uri"
        ), Capability::ChangeList)
}

/// Returns the change channels of sets that have no Change List, with these sets.
pub fn channels_without_change_list(reader: &StateReader<'_>) -> Result<Vec<(Topic, Uri)>> {
    let channels = reader.db.all::<Vec<(i64, _, _)>>(
        &format!(
            "SELECT c.source, c.topic, s.uri FROM channel c CROSS JOIN document s ON s.id = c.set_id \
             WHERE c.kind = 1 AND c.retired IS NULL AND NOT {HAS_CHANGE_LIST} ORDER BY c.topic"
        ), Capability::ChangeList)?;
    let mut without = Vec::new();
    for (source, topic, set) in channels {
        // C27: these have changes without.
        let position = reader.live.source_position(source);
        let plan = position.map(|position| &reader.plan.sources[position]);
        let needs_list = plan.is_some_and(|plan| !plan.changes_from_resource_lists);
        if needs_list && !has_broker_only_topic(reader, &topic)? {
            without.push((topic, set));
        }
    }
    Ok(without)
}

/// Returns what a hub that is due a document waits for.
fn pending_reason(hub: &HubView, is_flying: bool) -> String {
    let name = &hub.hub;
    match (hub.in_flight, &hub.waits) {
        (Some(seq), _) if !is_flying => {
            format!("it follows notification {seq}, which {name} has not accepted yet")
        }
        (Some(seq), _) if hub.attempts > 0 => {
            format!("{name} has not accepted notification {seq} yet")
        }
        (Some(seq), _) => format!("notification {seq} is on its way to {name}"),
        (None, Some(waits)) => format!("it waits {waits}"),
        (None, None) => format!("it is told to {name} next"),
    }
}

/// Notes the documents of which some hub of each channel is due something for longest, and the number of the others.
fn add_longest_waiting(reader: &StateReader<'_>, channels: &mut [ChannelView]) -> Result<()> {
    type Row = (ChannelId, HubId, bool, (Uri, Capability, Timestamp));
    let rows: Vec<Row> = reader.db.all(
        "SELECT w.channel, w.hub, max(w.flies), d.uri, d.capability, \
         CASE d.presence WHEN 4 THEN d.absent_since ELSE d.dated END AS at \
         FROM (SELECT channel, hub, document, 0 AS flies FROM owed WHERE due IS NOT NULL \
         UNION ALL SELECT channel, hub, document, 1 FROM flight_entry) w CROSS JOIN document d ON d.id = w.document \
         WHERE d.presence > 0 GROUP BY w.channel, w.document, w.hub ORDER BY w.channel, at, d.uri",
        (),
    )?;
    for of_document in rows.chunk_by(|one, other| (one.0, &one.3) == (other.0, &other.3)) {
        let (id, _, _, (uri, capability, since)) = &of_document[0];
        // A source may not be configured any more.
        let Ok(at) = channels.binary_search_by_key(id, |channel| channel.id) else {
            continue;
        };
        let channel = &mut channels[at];
        if channel.pending.len() == MAX_REPORTED {
            channel.more_pending += 1;
            continue;
        }
        let reasons = of_document.iter().filter_map(|(_, hub, is_flying, _)| {
            let hub = channel.hubs.iter().find(|view| view.id == *hub)?;
            Some(pending_reason(hub, *is_flying))
        });
        let reasons: BTreeSet<String> = reasons.collect();
        channel.pending.push(WaitingDocument {
            uri: uri.clone(),
            capability: *capability,
            since: *since,
            reason: reasons.into_iter().collect::<Vec<_>>().join("; "),
        });
    }
    Ok(())
}

/// Returns what will be announced on each channel once something else happens, and what that is (R15, R17): to some hub,
/// or to one of one channel. What is held for longest comes first.
pub fn held_by_channel(
    reader: &StateReader<'_>,
    only: Option<AccountId>,
) -> Result<BTreeMap<ChannelId, Vec<WaitingDocument>>> {
    let condition = match only {
        Some((channel, hub)) => format!("AND o.channel = {} AND o.hub = {}", channel.0, hub.0),
        None => String::new(),
    };
    let hold = i64::try_from(reader.plan.window.hold.as_nanos()).unwrap_or(i64::MAX);
    let mut held: BTreeMap<ChannelId, Vec<WaitingDocument>> = BTreeMap::new();
    let rows = reader.db.all::<Vec<(_, _, _, _, Timestamp)>>(
        &format!(
            "SELECT DISTINCT o.channel, d.uri, d.capability, d.presence > 1 AND d.absent_since IS NOT NULL, \
             CASE WHEN d.presence > 1 AND d.absent_since IS NOT NULL THEN d.absent_since \
             ELSE coalesce(d.held_until - ?1, ?2) END AS since FROM \
             (SELECT id FROM document WHERE presence IN (2, 3) \
             UNION SELECT id FROM document WHERE held_until IS NOT NULL AND hold = 1) w \
             CROSS JOIN document d ON d.id = w.id CROSS JOIN owed o ON o.document = d.id \
             WHERE o.due IS NULL AND o.dormant = 0 {condition} ORDER BY o.channel, since, d.uri"
        ),
        (hold, reader.now),
    )?;
    for (channel, uri, capability, is_missing, since) in rows {
        let reason = if is_missing {
            format!("it has been missing since {since:.0}: it may return, or count as deleted")
        } else {
            format!("it has waited since {since:.0} for a document that lists it")
        };
        held.entry(channel).or_default().push(WaitingDocument {
            uri,
            capability,
            since,
            reason,
        });
    }
    Ok(held)
}

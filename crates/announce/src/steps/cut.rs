//! Notifications, cut from what hubs are due (R18 to R21).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::delivery::SizeLimit;
use crate::event::Fact;
use crate::plan::PublishMode;
use crate::steps::owed::{self, DueDecision, Version, is_deletion_announced};
use crate::time::{MILLISECOND, later, span};
use jiff::Timestamp;
use resourcesync::capability::{Capability, ChannelKind};
use resourcesync::payload::{ChangeKind, Entry, Payload, entry_len};
use resourcesync::uri::Uri;

use crate::state::{ChannelId, DocId, HubId, Result};
use crate::steps::channels::{Channel, channel};
use crate::steps::delivery::{self, Flight};
use crate::steps::documents::{COLUMNS, SeenDocument};
use crate::steps::{Step, change_log, served};

/// Number of `until` values remembered per topic, so that none is repeated (R20).
const UNTILS: usize = 64;
/// Number of channels whose deadlines one step handles, so that no transaction is long. The next step is due at once then.
pub const CHANNELS_PER_STEP: usize = 64;

/// Entries that are announced together: those of one document, of a notification, or of a topic.
#[derive(Debug, Default, PartialEq)]
pub struct AnnouncedEntries {
    /// The entries, and what follows from all of them together. Its `from` is the `until` of the notification before, as long
    /// as [`set_interval`] did not decide on it.
    pub payload: Payload,
    /// The version that each document counts as told in once they are accepted; nothing for one that ended.
    pub covers: Vec<(DocId, Option<Version>)>,
    /// The time of the earliest change: of those that a notification leaves for the one after it, or that are held.
    pub open: Option<Timestamp>,
}

/// Opens the windows of channels with new changes, or keeps them open (R16).
pub fn open_windows(step: &mut Step<'_>) -> Result<()> {
    for id in std::mem::take(&mut step.touched_channels) {
        let window = &step.plan.window;
        let max_wait = i64::try_from(window.max_wait.as_nanos()).unwrap_or(i64::MAX);
        let (quiet, max_wait) = (later(step.now, window.quiet), max_wait.min(i64::MAX / 4));
        let closes = step.db.first::<Timestamp>(
            "UPDATE channel SET window_first = coalesce(window_first, ?2), \
             deadline = min(?3, coalesce(window_first, ?2) + ?4) WHERE id = ?1 RETURNING deadline",
            (id, step.now, quiet, max_wait),
        )?;
        if closes.is_some_and(|at| at <= step.now) && step.ready.len() < CHANNELS_PER_STEP {
            let columns = "window_first = NULL, deadline = NULL";
            step.db.set_channel(id, columns, ())?;
            step.ready.insert(id);
        }
    }
    Ok(())
}

/// Closes the windows that end now, but for those of too many channels for one step: these are still due after it.
pub fn close_windows(step: &mut Step<'_>) -> Result<()> {
    for source in step.live.sources.iter().filter(|it| it.is_swept()) {
        let room = CHANNELS_PER_STEP.saturating_sub(step.ready.len());
        let closed = step.db.all::<Vec<ChannelId>>(
            "UPDATE channel SET window_first = NULL, deadline = NULL WHERE id IN (SELECT id FROM channel \
             WHERE source = ?1 AND deadline <= ?2 ORDER BY deadline LIMIT ?3) RETURNING id",
            (source.id, step.now, room),
        )?;
        step.ready.extend(closed);
    }
    Ok(())
}

/// Cuts the next notifications of all channels that are ready: each of their hubs that is free and due something gets one,
/// and hubs that are due the same get the same one.
pub fn cut_ready(step: &mut Step<'_>) -> Result<()> {
    for id in std::mem::take(&mut step.ready) {
        let Some(channel) = channel(step, id)? else {
            continue;
        };
        if channel.kind == ChannelKind::Change {
            change_log::launch(step, &channel)?;
            continue;
        }
        let source = step.source_with_row(channel.source);
        let Some((source, _)) = source.filter(|_| !channel.is_open) else {
            continue;
        };
        if !source.is_swept() {
            // Its window closes as soon as the source is settled.
            let columns = "window_first = ?2, deadline = ?2";
            step.db.set_channel(id, columns, step.now)?;
            continue;
        }
        let mut cuts: Vec<(AnnouncedEntries, Vec<(HubId, bool)>)> = Vec::new();
        for (hub, has_left, limit, before) in free_accounts(step, &channel)? {
            let Some(mut next) = next_entries(step, &channel, hub, limit)? else {
                continue;
            };
            next.payload.from = before;
            match cuts.iter_mut().find(|(cut, _)| *cut == next) {
                Some((_, hubs)) => hubs.push((hub, has_left)),
                None => cuts.push((next, vec![(hub, has_left)])),
            }
        }
        if cuts.is_empty() {
            served::serve_due_entries(step, &channel)?;
        }
        for (next, hubs) in cuts {
            launch(step, &channel, next, &hubs)?;
        }
    }
    Ok(())
}

/// The hub of an account, whether it left, the limits of what it may be sent, and the `until` of the notification before.
type FreeAccount = (HubId, bool, SizeLimit, Option<Timestamp>);

/// Returns the accounts of a channel whose next notification may be cut now (R22, R24), of documents those that are due one.
pub fn free_accounts(step: &Step<'_>, channel: &Channel) -> Result<Vec<FreeAccount>> {
    let accounts = step.db.all::<Vec<(HubId, bool, Option<usize>, _, Option<_>, bool)>>(
        "SELECT a.hub, a.left_at IS NOT NULL, a.max_entries, a.until, a.pinged, a.fetched FROM account a WHERE a.channel = ?1 \
         AND a.seq IS NULL AND a.sending IS NULL AND (?2 OR EXISTS (SELECT 1 FROM owed o WHERE o.channel = a.channel \
         AND o.hub = a.hub AND o.due IS NOT NULL))",
        (channel.id, channel.kind == ChannelKind::Change),
    )?;
    let mut free = Vec::new();
    for (hub, has_left, own, until, pinged, fetched) in accounts {
        let pinged = pinged.filter(|_| step.mode(hub) == Some(PublishMode::Ping));
        if pinged.is_none_or(|at| served::next_ping_at(at, fetched) <= step.now) {
            free.push((hub, has_left, size_limit(step, hub, own), until));
        }
    }
    Ok(free)
}

/// Returns the limits of the next notification to a hub: it may have no more entries than its account may have, and be no
/// larger than what the hub refused, while that is remembered (R23).
pub fn size_limit(step: &Step<'_>, hub: HubId, max_entries: Option<usize>) -> SizeLimit {
    let live = step.live.hubs.get(&hub);
    let refused = live
        .and_then(|live| live.queue.size)
        .filter(|size| step.now < size.until);
    let mut limit = refused.unwrap_or(SizeLimit {
        entries: usize::MAX,
        bytes: usize::MAX,
        until: step.now,
    });
    limit.entries = limit.entries.min(max_entries.unwrap_or(usize::MAX));
    limit
}

/// Returns the next notification of an account within its limits.
fn next_entries(
    step: &Step<'_>,
    channel: &Channel,
    hub: HubId,
    limit: SizeLimit,
) -> Result<Option<AnnouncedEntries>> {
    let window = &step.plan.window;
    let max = limit.entries.min(window.max_entries);
    let max_bytes = limit.bytes.min(window.max_bytes);
    let (announced, beyond) = due_entries(step, channel, hub, Some(max))?;
    let mut bytes = overhead(channel);
    let mut next = AnnouncedEntries {
        open: beyond,
        ..AnnouncedEntries::default()
    };
    let mut is_full = false;
    for one in announced {
        let (entries, more) = (&mut next.payload.entries, one.payload.entries);
        let count = entries.len() + more.len();
        let size = more.iter().map(entry_len).sum::<usize>();
        is_full |= !entries.is_empty() && (count > max || bytes + size > max_bytes);
        if is_full {
            next.open = next.open.into_iter().chain(one.open).min();
            continue;
        }
        bytes += size;
        entries.extend(more);
        next.covers.extend(one.covers);
    }
    if next.payload.entries.is_empty() {
        return Ok(None);
    }
    let waiting = first_deferred(step, channel, hub)?;
    next.open = next.open.into_iter().chain(waiting).min();
    Ok(Some(next))
}

/// Returns what an account is due, the earliest first, as far as some notifications of so many entries hold, and the time of
/// the earliest change beyond; without a maximum all that it is due besides what is in flight.
pub fn due_entries(
    step: &Step<'_>,
    channel: &Channel,
    hub: HubId,
    max: Option<usize>,
) -> Result<(Vec<AnnouncedEntries>, Option<Timestamp>)> {
    let rows = max.map_or(usize::MAX, |max| max.saturating_mul(4).saturating_add(1));
    let (told, flown) = match max {
        Some(_) => ("o.told_capability, o.told_form, o.told_fingerprint", ""),
        None => (
            "CASE WHEN f.hub IS NULL THEN o.told_capability ELSE f.capability END, \
             CASE WHEN f.hub IS NULL THEN o.told_form ELSE f.form END, \
             CASE WHEN f.hub IS NULL THEN o.told_fingerprint ELSE f.fingerprint END",
            "LEFT JOIN flight_entry f ON f.channel = o.channel AND f.hub = o.hub AND f.document = o.document",
        ),
    };
    // R5: an index that is missing from the tree is that of a component only if the component still names it.
    let sql = format!(
        "SELECT {told}, EXISTS (SELECT 1 FROM member m WHERE m.document = d.id AND m.set_id = ?4), \
         (SELECT i.uri FROM document i WHERE i.id = d.index_parent AND (i.presence = 1 OR i.id = d.names_index)), {COLUMNS} \
         FROM owed o CROSS JOIN document d ON d.id = o.document {flown} \
         WHERE o.channel = ?1 AND o.hub = ?2 AND o.due IS NOT NULL \
         ORDER BY CASE d.presence WHEN 4 THEN d.absent_since ELSE d.dated END, d.uri LIMIT ?3"
    );
    let values = (channel.id, hub, rows, channel.set);
    let due: Vec<(_, _, Option<Uri>, SeenDocument)> = step.db.all(&sql, values)?;
    let mut beyond = None;
    let mut announced = Vec::new();
    for (number, (told, is_member, index, document)) in due.into_iter().enumerate() {
        // R19: a deletion happened when a look found the file gone.
        let deleted = document.absent_since.filter(|_| document.is_gone());
        let time = Some(deleted.unwrap_or(document.dated));
        if number + 1 == rows {
            beyond = time;
            break;
        }
        let of = (channel.set, is_member);
        if let DueDecision::Announce(changes, becomes) =
            owed::decide_due(step, of, &document, told)?
        {
            let mut one = AnnouncedEntries {
                covers: vec![(document.id, becomes)],
                open: time,
                ..AnnouncedEntries::default()
            };
            let entries = changes.into_iter().map(|(change, capability)| Entry {
                uri: document.uri.clone(),
                change,
                capability,
                datetime: time,
                index: index.clone(),
            });
            one.payload.entries.extend(entries);
            announced.push(one);
        }
    }
    let source = step.source_with_row(channel.source);
    if !source.is_some_and(|(_, plan)| plan.announce_all_components) {
        announced = merge_repeated_components(announced);
    }
    Ok((announced, beyond))
}

// R18, Framework Notification 1.0.1 section 2: of several components of one index, one is announced.
fn merge_repeated_components(announced: Vec<AnnouncedEntries>) -> Vec<AnnouncedEntries> {
    let mut known: BTreeMap<(Uri, Capability, ChangeKind), usize> = BTreeMap::new();
    let mut kept: Vec<AnnouncedEntries> = Vec::with_capacity(announced.len());
    // Newest first, so that the first of its kind is the one to keep.
    for one in announced.into_iter().rev() {
        let kind = match &one.payload.entries[..] {
            [entry] if entry.change != ChangeKind::Deleted => {
                (entry.index.clone()).map(|index| (index, entry.capability, entry.change))
            }
            _ => None,
        };
        match kind.map(|kind| *known.entry(kind).or_insert(kept.len())) {
            Some(place) if place < kept.len() => {
                kept[place].covers.extend(one.covers);
                kept[place].open = kept[place].open.min(one.open);
            }
            _ => kept.push(one),
        }
    }
    kept.reverse();
    kept
}

/// Returns the time of the earliest change that may have to be announced later: held, or missing (R20).
pub fn first_deferred(step: &Step<'_>, channel: &Channel, hub: HubId) -> Result<Option<Timestamp>> {
    let held = step.db.first::<Option<Timestamp>>(
        "SELECT min(d.dated) FROM owed o CROSS JOIN document d ON d.id = o.document WHERE o.channel = ?1 AND o.hub = ?2 \
         AND o.due IS NULL AND o.dormant = 0 AND NOT (d.capability = 0 AND d.form = 1) \
         AND (o.told_capability IS DISTINCT FROM d.capability OR o.told_form IS DISTINCT FROM d.form \
         OR o.told_fingerprint IS DISTINCT FROM d.fingerprint)",
        (channel.id, hub),
    )?;
    // R15: what is missing may be deleted.
    let missing = step.db.all::<Vec<(Option<Version>, bool, Option<Timestamp>)>>(
        "SELECT CASE WHEN o.hub IS NULL THEN d.capability ELSE o.told_capability END, \
         CASE WHEN o.hub IS NULL THEN d.form ELSE o.told_form END, \
         CASE WHEN o.hub IS NULL THEN d.fingerprint ELSE o.told_fingerprint END, d.archived, d.absent_since \
         FROM account a CROSS JOIN document d LEFT JOIN owed o ON o.channel = a.channel AND o.hub = a.hub AND o.document = d.id \
         WHERE a.channel = ?1 AND a.hub = ?2 AND a.left_at IS NULL AND d.source = ?3 AND d.presence IN (2, 3) \
         AND (d.capability = 0 OR EXISTS (SELECT 1 FROM member m WHERE m.document = d.id AND m.set_id = ?4) \
         AND NOT ?5)",
        (channel.id, hub, channel.source, channel.set, channel.is_retired),
    )?;
    let all_deletions = step.announces_all_deletions(channel.source);
    let ended = missing.into_iter().filter(|(told, is_archived, _)| {
        told.is_some_and(|told| is_deletion_announced(&told, *is_archived, all_deletions))
    });
    let times = ended.filter_map(|(.., since)| since);
    Ok(times.chain(held.flatten()).min())
}

/// Puts a notification in flight to the hubs that get it.
fn launch(
    step: &mut Step<'_>,
    channel: &Channel,
    next: AnnouncedEntries,
    hubs: &[(HubId, bool)],
) -> Result<()> {
    let mut payload = next.payload;
    payload.up = up(channel, &payload.entries);
    let pinged = served::fetching_hubs(step, channel.id)?;
    let untils = if hubs.iter().all(|(hub, _)| pinged.contains(hub)) {
        // For hubs that fetch, the `from` and `until` of the topic count, not those of a notification.
        payload.from = None;
        None
    } else {
        Some(set_interval(step, channel.id, &mut payload, next.open)?)
    };
    if let Some(from) = payload.from {
        // What was found late happened just after the time that the notification before spoke for.
        let earliest = later(from, MILLISECOND);
        for entry in &mut payload.entries {
            entry.datetime = entry.datetime.map(|time| time.max(earliest));
        }
    }
    let body: Arc<[u8]> = payload.render().into();
    let served = pinged.is_empty().then_some(&body);
    let sql = "UPDATE channel SET seq = seq + 1, untils = coalesce(?2, untils), body = coalesce(?3, body), \
               page_until = CASE WHEN ?3 IS NULL THEN page_until END WHERE id = ?1 RETURNING seq";
    let seq = step.db.value(sql, (channel.id, untils, served))?;
    let flight = Flight {
        seq,
        entries: payload.entries.len(),
        until: payload.until,
        cut: step.now,
        ..Flight::default()
    };
    for (hub, has_left) in hubs {
        for (document, told) in &next.covers {
            let sql = "INSERT INTO flight_entry VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            step.db.run(sql, (channel.id, hub, document, *told))?;
        }
        if channel.is_retired || *has_left {
            owed::owe_nothing_after_flight(step, (channel.id, *hub))?;
        }
    }
    step.facts.push(Fact::Cut {
        topic: channel.topic.clone(),
        seq: flight.seq,
        changes: flight.entries,
        hubs: hubs.len(),
        body: Arc::clone(&body),
    });
    let told = hubs.iter().map(|(hub, _)| *hub);
    step.note_made(channel, flight.seq, flight.entries, &body, told)?;
    if pinged.is_empty() {
        step.db
            .run("DELETE FROM said WHERE channel = ?1", channel.id)?;
    } else {
        if hubs.iter().any(|(hub, _)| pinged.contains(hub)) {
            served::add_recent_entries(step, channel.id, &payload.entries)?;
        }
        served::forget_old_entries(step, channel.id)?;
        served::write_topic_body(step, channel)?;
    }
    step.serve.insert(channel.id);
    for (hub, _) in hubs {
        delivery::launch(step, (channel.id, *hub), &flight, Some(&body))?;
    }
    Ok(())
}

/// R20: gives the next notification its interval, which begins where the one before ended if that is true, and whose `until`
/// differs from all others of this topic. Returns the column of these.
pub fn set_interval(
    step: &Step<'_>,
    id: ChannelId,
    payload: &mut Payload,
    open: Option<Timestamp>,
) -> Result<Vec<u8>> {
    let sql = "SELECT untils FROM channel WHERE id = ?1";
    let mut used = decode_times(&step.db.value::<Vec<u8>>(sql, id)?);
    (payload.from, payload.until) = span(step.wall, payload.from, open, &used);
    used.extend(payload.until);
    Ok(encode_times(&used[used.len().saturating_sub(UNTILS)..]))
}

/// Returns the times in a column with several.
pub fn decode_times(bytes: &[u8]) -> Vec<Timestamp> {
    let numbers = bytes.as_chunks::<8>().0.iter();
    let times = numbers.map(|bytes| Timestamp::from_nanosecond(i64::from_be_bytes(*bytes).into()));
    times.flatten().collect()
}

/// Returns several times for one column.
pub fn encode_times(times: &[Timestamp]) -> Vec<u8> {
    let nanoseconds = times.iter().map(|time| time.as_nanosecond());
    let numbers = nanoseconds.map(|number| i64::try_from(number).unwrap_or_default());
    numbers.flat_map(i64::to_be_bytes).collect()
}

/// Returns the most bytes that a payload of a channel has besides its entries.
pub fn overhead(channel: &Channel) -> usize {
    let time = Some(Timestamp::UNIX_EPOCH);
    let [of_list, of_description] =
        [Some(&channel.set_uri), channel.description.as_ref()].map(|up| {
            let empty = Payload {
                up: up.cloned(),
                from: time,
                until: time,
                entries: Vec::new(),
            };
            empty.render().len()
        });
    of_list.max(of_description)
}

/// R20: returns the Capability List if all entries are its documents, the Source Description if all are Capability Lists,
/// else none.
pub fn up(channel: &Channel, entries: &[Entry]) -> Option<Uri> {
    let mut above = entries.iter().map(|entry| match entry.capability {
        Capability::SourceDescription => None,
        Capability::CapabilityList => channel.description.as_ref(),
        _ => Some(&channel.set_uri),
    });
    let first = above.next().flatten()?;
    above
        .all(|other| other == Some(first))
        .then(|| first.clone())
}

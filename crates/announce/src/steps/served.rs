//! Contents of topics: for hubs that fetch, all that they may lack (R25); and the fetches of hubs that are pinged (R24, R26).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::capability::{Capability, ChannelKind};
use resourcesync::payload::{ChangeKind, Entry, Payload, entry_len};
use resourcesync::uri::{Topic, Uri};
use websub::topics::TopicPage;

use crate::event::Fact;
use crate::plan::PublishMode;
use crate::state::{AccountId, ChannelId, HubId, Result, from_row, integers, nth};
use crate::steps::channels::{Channel, channel, is_broker_only};
use crate::steps::cut::{
    CHANNELS_PER_STEP, due_entries, first_deferred, overhead, set_interval, up,
};
use crate::steps::{Step, change_log, channels, delivery};
use crate::time::{earlier, later};

/// Least time between two pings of a hub about one topic.
pub const PING_APART: Duration = Duration::from_secs(1);
/// Time within which a hub that was pinged fetches the topic.
const FETCHED_WITHIN: Duration = Duration::from_secs(60);

/// Returns the hubs of a channel that fetch its topic.
pub fn fetching_hubs(step: &Step<'_>, id: ChannelId) -> Result<Vec<HubId>> {
    let sql = "SELECT hub FROM account WHERE channel = ?1";
    let mut hubs: Vec<HubId> = step.db.all(sql, id)?;
    hubs.retain(|hub| step.mode(*hub) == Some(PublishMode::Ping));
    Ok(hubs)
}

pub fn add_recent_entries(step: &Step<'_>, id: ChannelId, entries: &[Entry]) -> Result<()> {
    for entry in entries {
        step.db.run(
            "INSERT INTO said VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (channel, uri, change, capability) DO UPDATE SET \
             at = excluded.at, datetime = excluded.datetime, index_uri = excluded.index_uri",
            (id, &entry.uri, entry.change, entry.capability, step.now, entry.datetime, entry.index.as_ref()),
        )?;
    }
    Ok(())
}

fn recent_entries(step: &Step<'_>, id: ChannelId) -> Result<Vec<(Timestamp, Entry)>> {
    let columns = "at, uri, change, capability, datetime, index_uri";
    let sql = format!("SELECT {columns} FROM said WHERE channel = ?1 ORDER BY datetime, uri");
    step.db.all(&sql, id)
}

from_row! { Entry { uri, change, capability, datetime, index } }

integers! {
    ChangeKind: |change| *change as i64, |number| nth(&ChangeKind::ALL, number);
}

/// Returns the documents in flight to hubs that fetch the topic, and those of accepted pings which they have not fetched.
fn unfetched_documents(step: &Step<'_>, id: ChannelId) -> Result<BTreeSet<Uri>> {
    let mut flying = BTreeSet::new();
    for hub in fetching_hubs(step, id)? {
        flying.extend(step.db.all::<Vec<Uri>>(
            "SELECT d.uri FROM flight_entry f CROSS JOIN document d ON d.id = f.document WHERE f.channel = ?1 AND f.hub = ?2 \
             UNION SELECT d.uri FROM unfetched u CROSS JOIN document d ON d.id = u.document WHERE u.channel = ?1 AND u.hub = ?2",
            (id, hub),
        )?);
    }
    Ok(flying)
}

/// Forgets entries that were announced before the topic's window, and those beyond the limit, unless they are on their way.
pub fn forget_old_entries(step: &Step<'_>, id: ChannelId) -> Result<()> {
    let owed = unfetched_documents(step, id)?;
    let oldest = earlier(step.now, step.plan.topic_window);
    let all = recent_entries(step, id)?;
    let is_kept = |(at, entry): &&(_, Entry)| *at >= oldest || owed.contains(&entry.uri);
    let kept = all.iter().filter(is_kept).count();
    let mut beyond = kept.saturating_sub(step.plan.window.max_entries);
    for (at, entry) in &all {
        let (is_old, is_owed) = (*at < oldest, owed.contains(&entry.uri));
        let is_beyond = (!is_old || is_owed) && beyond > 0;
        beyond = beyond.saturating_sub(usize::from(is_beyond));
        if (is_old || is_beyond) && !is_owed {
            let sql = "DELETE FROM said WHERE channel = ?1 AND uri = ?2 AND change = ?3 AND capability = ?4";
            step.db
                .run(sql, (id, &entry.uri, entry.change, entry.capability))?;
        }
    }
    Ok(())
}

fn key(entry: &Entry) -> (Uri, ChangeKind, Capability) {
    (entry.uri.clone(), entry.change, entry.capability)
}

/// Returns the content of a topic that is fetched, with the time until which the hubs that fetch it have all as `from`, and
/// the time of the earliest change that it is without.
fn topic_content(step: &Step<'_>, channel: &Channel) -> Result<(Payload, Option<Timestamp>)> {
    let window = &step.plan.window;
    let hubs = fetching_hubs(step, channel.id)?;
    let max = window.max_entries;
    let mut open: Option<Timestamp> = None;
    let mut foretold: BTreeMap<(Uri, ChangeKind, Capability), Entry> = BTreeMap::new();
    let mut untils = Vec::new();
    for hub in &hubs {
        let (announced, beyond) = due_entries(step, channel, *hub, Some(max))?;
        let left = announced.iter().skip(max).filter_map(|one| one.open);
        let waiting = first_deferred(step, channel, *hub)?;
        open = left.chain(beyond).chain(open).chain(waiting).min();
        let entries = announced
            .into_iter()
            .take(max)
            .flat_map(|one| one.payload.entries);
        foretold.extend(entries.map(|entry| (key(&entry), entry)));
        let sql = "SELECT until FROM account WHERE channel = ?1 AND hub = ?2";
        untils.push(step.db.value::<Option<_>>(sql, (channel.id, hub))?);
    }
    let mut foretold: Vec<Entry> = foretold.into_values().collect();
    foretold.sort_by_key(|entry| entry.datetime);
    let flying = unfetched_documents(step, channel.id)?;
    let said = recent_entries(step, channel.id)?;
    let newest_first = said.iter().rev().map(|(_, entry)| entry);
    let (on_their_way, before): (Vec<&Entry>, Vec<&Entry>) =
        newest_first.partition(|entry| flying.contains(&entry.uri));
    let room = window.max_bytes.saturating_sub(overhead(channel));
    let by_weight = on_their_way.into_iter().chain(&foretold).chain(before);
    let entries = entries_that_fit(by_weight, window.max_entries, room);
    let shown: BTreeSet<_> = entries.iter().map(key).collect();
    let left_out = foretold.iter().filter(|entry| !shown.contains(&key(entry)));
    let times = left_out.filter_map(|entry| entry.datetime);
    let open = times.chain(open).min();
    let has_all_said = said.len() < window.max_entries
        && said.iter().all(|(_, entry)| shown.contains(&key(entry)));
    let remembered = earlier(step.now, step.plan.topic_window);
    let all: Option<Vec<Timestamp>> = untils.into_iter().collect();
    let fetched = all.and_then(|untils| untils.into_iter().min());
    let payload = Payload {
        up: up(channel, &entries),
        from: fetched.filter(|before| has_all_said && *before >= remembered),
        until: None,
        entries,
    };
    Ok((payload, open))
}

/// Returns as many entries as a payload may have, the most important first: what is in flight, what is due, and then what
/// was told, the newest first. In order of their datetimes.
fn entries_that_fit<'e>(
    by_weight: impl Iterator<Item = &'e Entry>,
    max: usize,
    max_bytes: usize,
) -> Vec<Entry> {
    let mut entries: BTreeMap<(Uri, ChangeKind, Capability), Entry> = BTreeMap::new();
    let mut bytes = 0;
    for entry in by_weight {
        let known = entries.get(&key(entry));
        let is_news = known.is_none_or(|known| known.datetime < entry.datetime);
        let size = bytes + entry_len(entry) - known.map_or(0, entry_len);
        let fits = size <= max_bytes && (known.is_some() || entries.len() < max);
        if is_news && fits {
            bytes = size;
            entries.insert(key(entry), entry.clone());
        }
    }
    let mut entries: Vec<Entry> = entries.into_values().collect();
    entries.sort_by(|one, other| (one.datetime, &one.uri).cmp(&(other.datetime, &other.uri)));
    entries
}

/// Makes the body of a topic that is fetched anew.
pub fn write_topic_body(step: &mut Step<'_>, channel: &Channel) -> Result<()> {
    let (mut payload, open) = topic_content(step, channel)?;
    let untils = set_interval(step, channel.id, &mut payload, open)?;
    let sql = "UPDATE channel SET body = ?2, page_until = ?3, untils = ?4 WHERE id = ?1";
    let values = (channel.id, payload.render(), payload.until, untils);
    step.db.run(sql, values)
}

/// Serves what a hub that fetches is due and cannot be told yet, if its topic does not have it.
pub fn serve_due_entries(step: &mut Step<'_>, channel: &Channel) -> Result<()> {
    let mut is_due = false;
    for hub in fetching_hubs(step, channel.id)? {
        let sql = "SELECT 1 FROM owed WHERE channel = ?1 AND hub = ?2 AND due IS NOT NULL";
        is_due |= step.db.exists(sql, (channel.id, hub))?;
    }
    if !is_due {
        return Ok(());
    }
    let (Payload { entries, .. }, _) = topic_content(step, channel)?;
    let sql = "SELECT body FROM channel WHERE id = ?1";
    let body: Vec<u8> = step.db.value(sql, channel.id)?;
    let served = Payload::parse(&body).unwrap_or_default().entries;
    let moment = |entry: &Entry| entry.datetime.map(|at| at.as_millisecond());
    let alike = |(one, other): (&Entry, &Entry)| {
        key(one) == key(other) && moment(one) == moment(other) && one.index == other.index
    };
    if entries.len() != served.len() || !entries.iter().zip(&served).all(alike) {
        write_topic_body(step, channel)?;
        step.serve.insert(channel.id);
    }
    Ok(())
}

/// R25: withdraws what is in flight to hubs that are pinged from now on, and not on the topic: they would be pinged about
/// what they cannot fetch.
pub fn withdraw_unserved_pings(step: &mut Step<'_>) -> Result<()> {
    let sql = "SELECT a.channel, a.hub, a.body, c.body FROM account a CROSS JOIN channel c ON c.id = a.channel \
               WHERE a.seq IS NOT NULL AND c.kind = 0";
    let flying = step.db.all::<Vec<(AccountId, Vec<u8>, Vec<u8>)>>(sql, ())?;
    let keys = |body: Vec<u8>| -> BTreeSet<_> {
        let payload = Payload::parse(&body).unwrap_or_default();
        payload.entries.iter().map(key).collect()
    };
    for (account, flying, served) in flying {
        let is_pinged = step.mode(account.1) == Some(PublishMode::Ping);
        if is_pinged && !keys(flying).is_subset(&keys(served)) {
            delivery::withdraw_flight(step, account)?;
        }
    }
    Ok(())
}

/// Returns what a topic serves; nothing if it is only a name for brokers.
pub fn topic_page(step: &Step<'_>, id: ChannelId) -> Result<Option<TopicPage>> {
    let sql = "SELECT c.kind, c.topic, s.uri, c.body FROM channel c CROSS JOIN document s ON s.id = c.set_id WHERE c.id = ?1";
    let found = step.db.first::<(_, _, _, Arc<[u8]>)>(sql, id)?;
    let Some((kind, topic, capability_list, body)) = found else {
        return Ok(None);
    };
    let sql = "SELECT hub, left_at IS NULL FROM account WHERE channel = ?1";
    let (mut hubs, mut is_pinged) = (Vec::new(), false);
    for (hub, is_active) in step.db.all::<Vec<(HubId, bool)>>(sql, id)? {
        is_pinged |= step.mode(hub) == Some(PublishMode::Ping);
        if is_active && step.mode(hub) != Some(PublishMode::Broker) {
            hubs.push(step.hub_uri(hub)?);
        }
    }
    hubs.sort();
    if hubs.is_empty()
        && let Some(channel) = channel(step, id)?
        && is_broker_only(step.db, step.plan, step.live, &channel)?
    {
        return Ok(None);
    }
    let body = match kind {
        ChannelKind::Change => change_log::topic_body(step, id)?,
        // R25: some hubs never fetch an empty topic again.
        ChannelKind::Framework if is_pinged && body.is_empty() => {
            Payload::default().render().into()
        }
        ChannelKind::Framework => body,
    };
    Ok(Some(TopicPage {
        topic,
        capability_list,
        hubs,
        body,
        report_fetches: is_pinged,
    }))
}

// Fetches (R24, R26).

/// Returns when the next ping may follow one, after which the topic was fetched or not yet.
pub fn next_ping_at(pinged: Timestamp, fetched: bool) -> Timestamp {
    let wait = if fetched { PING_APART } else { FETCHED_WITHIN };
    later(pinged, wait)
}

pub fn forget_unfetched(step: &Step<'_>, account: AccountId) -> Result<()> {
    let sql = "DELETE FROM unfetched WHERE channel = ?1 AND hub = ?2";
    step.db.run(sql, account)
}

/// Records a fetch of a topic. It counts for all hubs of the channel that are pinged.
pub fn fetched(step: &mut Step<'_>, topic: &Topic) -> Result<()> {
    let Some(channel) = channels::of_topic(step.db, topic)? else {
        return Ok(());
    };
    let accounts = step.db.all::<Vec<(HubId, Option<_>, bool, bool, u64, Option<u64>)>>(
        "SELECT a.hub, a.pinged, a.fetched, a.unfetched_reported, coalesce(a.sending, a.last ->> 'seq', c.seq), a.sending \
         FROM account a CROSS JOIN channel c ON c.id = a.channel WHERE a.channel = ?1",
        channel.id,
    )?;
    for (hub, at, was_fetched, was_reported, seq, sending) in accounts {
        if step.mode(hub) != Some(PublishMode::Ping) {
            continue;
        }
        let account = (channel.id, hub);
        let columns = "until = (SELECT page_until FROM channel WHERE id = ?1)";
        step.db.set_account(account, columns, ())?;
        forget_unfetched(step, account)?;
        if sending.is_none() && (at.is_none() || was_fetched) {
            continue;
        }
        let pinged = at.unwrap_or(step.now);
        let columns = "pinged = ?3, fetched = 1, unfetched_reported = 0, ping_due = ?4";
        step.db
            .set_account(account, columns, (pinged, later(pinged, PING_APART)))?;
        step.facts.push(Fact::Fetched {
            topic: topic.clone(),
            hub: step.hub_uri(hub)?,
            seq,
            was_reported: at.is_some() && was_reported,
        });
    }
    Ok(())
}

/// Handles the end of the least time between two pings, and of that within which the topic should have been fetched.
pub fn end_ping_waits(step: &mut Step<'_>) -> Result<()> {
    let due = step.db.all::<Vec<(AccountId, Option<_>, bool, bool, Option<u64>)>>(
        "UPDATE account SET ping_due = NULL WHERE (channel, hub) IN (SELECT channel, hub FROM account \
         WHERE ping_due <= ?1 ORDER BY ping_due LIMIT ?2) \
         RETURNING channel, hub, pinged, fetched, unfetched_reported OR seq IS NOT NULL, last ->> 'seq'",
        (step.now, CHANNELS_PER_STEP),
    )?;
    for (account, pinged, fetched, is_said_or_flying, last) in due {
        step.ready.insert(account.0);
        let Some(pinged) = pinged.filter(|_| !fetched) else {
            continue;
        };
        let ends = later(pinged, FETCHED_WITHIN);
        if ends > step.now {
            step.db.set_account(account, "ping_due = ?3", ends)?;
            continue;
        }
        forget_unfetched(step, account)?;
        // While the next one flies, `fetched` is about that one.
        if is_said_or_flying {
            continue;
        }
        step.db.set_account(account, "unfetched_reported = 1", ())?;
        if let Some(channel) = channels::channel(step, account.0)? {
            step.facts.push(Fact::Unfetched {
                topic: channel.topic,
                hub: step.hub_uri(account.1)?,
                seq: last.unwrap_or_default(),
                after: FETCHED_WITHIN,
            });
        }
    }
    Ok(())
}

//! The content of topics with a ping hub: all that was announced lately, and all that such hubs are due (R25).
//! It never waits for them: a hub that fetches late, or again, finds everything.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::payload::{ChangeKind, Entry, Payload, entry_len};
use resourcesync::uri::Uri;

use crate::announce::catalog::Catalog;
use crate::announce::channel::Channel;
use crate::announce::due::{Due, due};
use crate::announce::notification::{NotificationLimits, overhead, spoken, up};
use crate::announce::plan::Plan;
use crate::announce::state::Flight;
use crate::announce::time::earlier;

/// Returns true if a ping hub is due what its topic does not have.
pub fn is_outdated(channel: &Channel, plan: &Plan, catalog: &Catalog, now: Timestamp) -> bool {
    let is_due = channel.pinged().any(|(_, ledger)| !ledger.due.is_empty());
    is_due && !says_the_same(&content(channel, plan, catalog, now).entries, &channel.page)
}

/// Returns true if what a topic serves lacks an entry of the notification in flight.
pub fn lacks(body: &[u8], flight: &Flight) -> bool {
    let entries = |body| Payload::parse(body).unwrap_or_default().entries;
    let served: BTreeSet<_> = entries(body).iter().map(key).collect();
    let mut flying = entries(&flight.body).into_iter();
    flying.any(|entry| !served.contains(&key(&entry)))
}

/// Makes the body of a topic with a ping hub anew.
pub fn write(channel: &mut Channel, plan: &Plan, catalog: &Catalog, now: Timestamp) {
    let TopicContent {
        entries,
        before,
        open,
    } = content(channel, plan, catalog, now);
    let span = channel.next_span(now, before, open);
    let payload = Payload {
        up: up(&entries, &channel.row.set, catalog),
        from: span.from,
        until: span.until,
        entries,
    };
    channel.row.body = payload.render().into();
    channel.page = payload.entries;
    channel.page_until = span.until;
}

/// Returns what a topic with a ping hub is to serve, in order of the datetimes.
fn content(channel: &Channel, plan: &Plan, catalog: &Catalog, now: Timestamp) -> TopicContent {
    let (foretold, beyond) = foretold(channel, plan, catalog);
    let flying = channel.flying();
    let said = channel.row.said.iter().rev().map(|said| &said.entry);
    let (flying, said_before): (Vec<_>, Vec<_>) =
        said.partition(|entry| flying.contains(&entry.uri));
    let by_weight = flying.into_iter().chain(&foretold).chain(said_before);
    let window = &plan.window;
    let room = window
        .max_bytes
        .saturating_sub(overhead(&channel.row.set, catalog));
    let entries = as_many_as_fit(by_weight, window.max_entries, room);

    let ledgers = channel.pinged().map(|(_, ledger)| ledger);
    let waiting = ledgers.filter_map(|ledger| ledger.waiting_since(catalog));
    let shown: BTreeSet<_> = entries.iter().map(key).collect();
    let left_out = foretold.iter().filter(|entry| !shown.contains(&key(entry)));
    let left_out = left_out.filter_map(|entry| entry.datetime);
    let open = waiting.chain(beyond).chain(left_out).min();

    let mut said = channel.row.said.iter();
    let has_all_said = channel.row.said.len() < window.max_entries
        && said.all(|said| shown.contains(&key(&said.entry)));
    let remembered = earlier(now, plan.topic_window);
    let before = fetched_until(channel).filter(|before| has_all_said && *before >= remembered);
    TopicContent {
        entries,
        before,
        open,
    }
}

/// Returns what ping hubs are due, in order; of several entries with the same key the last. With the time of the earliest
/// change that is not among them.
fn foretold(channel: &Channel, plan: &Plan, catalog: &Catalog) -> (Vec<Entry>, Option<Timestamp>) {
    let source = &plan.sources[channel.source];
    let limits = NotificationLimits {
        entries: plan.window.max_entries,
        bytes: plan.window.max_bytes,
        all_components: source.announce_all_components,
    };
    let mut beyond: Option<Timestamp> = None;
    let mut entries = BTreeMap::new();
    for (hub, ledger) in channel.pinged() {
        let uris = ledger.due.iter();
        let announcements = uris.filter_map(|uri| match due(source, catalog, channel, hub, uri) {
            Due::Announce(announcement) => Some(announcement),
            _ => None,
        });
        let mut spoken = spoken(announcements.collect(), catalog, limits);
        let max = limits.entries.min(spoken.len());
        let others = spoken.drain(max..).map(|spoken| spoken.since);
        beyond = others.chain(beyond).min();
        let spoken = spoken.into_iter().flat_map(|spoken| spoken.entries);
        entries.extend(spoken.map(|entry| (key(&entry), entry)));
    }
    let mut entries: Vec<Entry> = entries.into_values().collect();
    entries.sort_by_key(|entry| entry.datetime);
    (entries, beyond)
}

/// The content of a topic that ping hubs read.
struct TopicContent {
    entries: Vec<Entry>,
    /// The time until which the hubs that fetch it have all.
    before: Option<Timestamp>,
    /// The earliest change that it does not have.
    open: Option<Timestamp>,
}

/// Returns the time until which all hubs that fetch a topic have what changed, if all have fetched it.
fn fetched_until(channel: &Channel) -> Option<Timestamp> {
    let untils = channel.pinged().map(|(_, ledger)| ledger.row.until);
    let fetched: Option<Vec<Timestamp>> = untils.collect();
    fetched?.into_iter().min()
}

/// Returns true if two lists of entries would be rendered alike: with milliseconds (R19).
fn says_the_same(one: &[Entry], other: &[Entry]) -> bool {
    let moment = |entry: &Entry| entry.datetime.map(|at| at.as_millisecond());
    let alike = |(one, other): (&Entry, &Entry)| {
        key(one) == key(other) && moment(one) == moment(other) && one.index == other.index
    };
    one.len() == other.len() && one.iter().zip(other).all(alike)
}

fn key(entry: &Entry) -> (Uri, ChangeKind, Capability) {
    (entry.uri.clone(), entry.change, entry.capability)
}

/// Returns as many entries as a payload may have, the most important first: what is in flight, what is due, and then
/// what was told, the newest first. In order of their datetimes.
fn as_many_as_fit<'a>(
    by_weight: impl Iterator<Item = &'a Entry>,
    max: usize,
    max_bytes: usize,
) -> Vec<Entry> {
    let mut entries = BTreeMap::new();
    let mut bytes = 0;
    for entry in by_weight {
        let known: Option<&Entry> = entries.get(&key(entry));
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

//! Changes that wait on each channel, and for what: those that some hub is due, and those that may not be announced yet.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use resourcesync::uri::{Hub, Uri};

use crate::announce::channel::Channel;
use crate::announce::due::{Due, due};
use crate::announce::engine::Engine;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::state::{Hold, Presence, Record};
use crate::report::status::WaitingView;

/// Documents of each channel that are reported; of others, their number.
const MAX_REPORTED: usize = 10;

/// The documents of one channel that are held.
#[derive(Default)]
pub struct HeldDocuments<'a> {
    /// Documents that have waited longest.
    first: BTreeMap<(Timestamp, &'a Uri), &'a Record>,
    count: usize,
}

impl<'a> HeldDocuments<'a> {
    fn add(&mut self, uri: &'a Uri, record: &'a Record) {
        self.count += 1;
        self.first.insert((held_since(record), uri), record);
        if self.first.len() > MAX_REPORTED {
            self.first.pop_last();
        }
    }

    /// Returns the first, and the number of the others.
    pub fn views(&self) -> (Vec<WaitingView>, usize) {
        let first = self
            .first
            .iter()
            .map(|((_, uri), record)| hold_view(uri, record));
        (first.collect(), self.count - self.first.len())
    }
}

/// Returns why what is due to a hub of a channel is not in flight at `now`.
pub fn reason(engine: &Engine, id: ChannelId, ledger: &Ledger, now: Timestamp) -> Option<String> {
    let channel = engine.channels().get(id)?;
    if ledger.row.flight.is_some() {
        return None;
    }
    if !engine.sources()[channel.source].is_settled() {
        return Some("until the tree was looked at".to_owned());
    }
    if let Some(window) = engine.channels().cuts.window(id) {
        let closes = window.closes(&engine.plan().window);
        return Some(format!("for further changes, until {closes:.0}"));
    }
    match ledger.free_from() {
        None => Some("for the answer to what was dropped".to_owned()),
        Some(at) if at > now => Some(format!("for the topic to be fetched, or until {at:.0}")),
        Some(_) => None,
    }
}

/// Returns the documents of which some hub of a channel is due something for longest, and the number of the others.
pub fn pending(engine: &Engine, id: ChannelId) -> (Vec<WaitingView>, usize) {
    let Some(channel) = engine.channels().get(id) else {
        return Default::default();
    };
    let catalog = engine.sources()[channel.source].catalog();
    let owed: BTreeSet<&Uri> = channel
        .ledgers
        .values()
        .flat_map(|ledger| ledger.owed())
        .collect();
    let owed = owed
        .into_iter()
        .filter_map(|uri| Some((uri, catalog.get(uri)?)));
    let mut owed: Vec<(&Uri, &Record)> = owed.collect();
    owed.sort_by_key(|(_, record)| changed(record));
    let first = owed
        .iter()
        .take(MAX_REPORTED)
        .map(|(uri, record)| WaitingView {
            uri: (*uri).clone(),
            capability: record.version.capability,
            since: changed(record),
            reason: pending_reason(engine, id, channel, uri),
        });
    (first.collect(), owed.len().saturating_sub(MAX_REPORTED))
}

/// Returns what each hub that is due a document waits for; once if it is the same.
fn pending_reason(engine: &Engine, id: ChannelId, channel: &Channel, uri: &Uri) -> String {
    let owing = channel
        .ledgers
        .iter()
        .filter(|(_, ledger)| ledger.owes(uri));
    let reasons = owing.map(|(hub, ledger)| match &ledger.row.flight {
        Some(flight) if !flight.covers.iter().any(|(covered, _)| covered == uri) => {
            let seq = flight.seq;
            format!("it follows notification {seq}, which {hub} has not accepted yet")
        }
        Some(flight) if flight.attempts > 0 => {
            format!("{hub} has not accepted notification {} yet", flight.seq)
        }
        Some(flight) => format!("notification {} is on its way to {hub}", flight.seq),
        None => match reason(engine, id, ledger, engine.now()) {
            Some(waits) => format!("it waits {waits}"),
            None => format!("it is told to {hub} next"),
        },
    });
    let reasons: BTreeSet<String> = reasons.collect();
    reasons.into_iter().collect::<Vec<_>>().join("; ")
}

/// Returns what will be announced to a hub once something else happens, and what that is (R15, R17).
pub fn held(engine: &Engine, channel: &Channel, hub: &Hub) -> Vec<WaitingView> {
    let all = may_be_held(engine, channel.source);
    let held = all.filter(|(uri, _)| is_held(engine, channel, hub, uri));
    let mut held: Vec<WaitingView> = held.map(|(uri, record)| hold_view(uri, record)).collect();
    held.sort_by(|one, other| one.uri.cmp(&other.uri));
    held
}

/// Returns the same over all hubs of each channel, for channels where there is any.
pub fn held_by_channel(engine: &Engine) -> BTreeMap<ChannelId, HeldDocuments<'_>> {
    let mut held: BTreeMap<ChannelId, HeldDocuments<'_>> = BTreeMap::new();
    for position in 0..engine.sources().len() {
        for (uri, record) in may_be_held(engine, position) {
            for id in engine.channels().concerned(position, uri, record) {
                let Some(channel) = engine.channels().get(id) else {
                    continue;
                };
                let mut hubs = channel.ledgers.keys();
                if hubs.any(|hub| is_held(engine, channel, hub, uri)) {
                    held.entry(id).or_default().add(uri, record);
                }
            }
        }
    }
    held
}

/// Returns the documents of a source that are missing or wait to be listed.
fn may_be_held(engine: &Engine, position: usize) -> impl Iterator<Item = (&Uri, &Record)> {
    let records = engine.sources()[position].catalog().iter();
    records.filter(|(_, record)| record.is_missing() || matches!(record.hold, Hold::Waiting { .. }))
}

fn is_held(engine: &Engine, channel: &Channel, hub: &Hub, uri: &Uri) -> bool {
    let plan = &engine.plan().sources[channel.source];
    let catalog = engine.sources()[channel.source].catalog();
    let due = due(plan, catalog, channel, hub, uri);
    matches!(due, Due::Held | Due::Missing)
}

/// Returns when the change of a document that is to be announced came to be.
fn changed(record: &Record) -> Timestamp {
    match record.presence {
        Presence::Gone { since } => since,
        Presence::Present | Presence::Missing { .. } => record.changed,
    }
}

/// Returns since when the change of a document is held.
fn held_since(record: &Record) -> Timestamp {
    match (record.presence, record.hold) {
        (Presence::Missing { since, .. }, _) | (_, Hold::Waiting { since }) => since,
        _ => record.changed,
    }
}

fn hold_view(uri: &Uri, record: &Record) -> WaitingView {
    let reason = match (record.presence, record.hold) {
        (Presence::Missing { since, .. }, _) => {
            format!("it has been missing since {since:.0}: it may return, or count as deleted")
        }
        (_, Hold::Waiting { since }) => {
            format!("it has waited since {since:.0} for a document that lists it")
        }
        _ => "it waits for a document that lists it".to_owned(),
    };
    WaitingView {
        uri: uri.clone(),
        capability: record.version.capability,
        since: held_since(record),
        reason,
    }
}

//! What waits on each channel, and for what: changes that some hub is due, and those that may not be said yet.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::announce::channel::Channel;
use crate::announce::due::{Due, due};
use crate::announce::engine::Engine;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::state::{Hold, Presence, Record};
use crate::report::status::WaitingView;
use crate::resourcesync::uri::{Hub, Uri};

/// So many documents of each channel are told of; of others, how many they are.
const MOST_TOLD: usize = 10;

/// The documents of one channel that are held, as far as they are told of.
#[derive(Default)]
pub(super) struct Held<'a> {
    /// Those that wait for longest.
    first: BTreeMap<(Timestamp, &'a Uri), &'a Record>,
    count: usize,
}

impl<'a> Held<'a> {
    fn add(&mut self, uri: &'a Uri, record: &'a Record) {
        self.count += 1;
        self.first.insert((held_since(record), uri), record);
        if self.first.len() > MOST_TOLD {
            self.first.pop_last();
        }
    }

    /// The first, and how many more there are.
    pub fn tell(&self) -> (Vec<WaitingView>, usize) {
        let first = self
            .first
            .iter()
            .map(|((_, uri), record)| hold_view(uri, record));
        (first.collect(), self.count - self.first.len())
    }
}

impl Engine {
    /// Why what is due is not in flight.
    pub(super) fn waits(
        &self,
        channel: &Channel,
        ledger: &Ledger,
        now: Timestamp,
    ) -> Option<String> {
        if ledger.row.flight.is_some() {
            return None;
        }
        if !self.sources[channel.source].is_settled() {
            return Some("until the tree was looked at".to_owned());
        }
        if let Some(window) = channel.window {
            let closes = window.closes(&self.plan.window);
            return Some(format!("for further changes, until {closes:.0}"));
        }
        match ledger.free_from() {
            None => Some("for the answer to what was dropped".to_owned()),
            Some(at) if at > now => Some(format!("for the topic to be fetched, or until {at:.0}")),
            Some(_) => None,
        }
    }

    /// The documents of which some hub of a channel is due something for longest, and how many more.
    pub(super) fn pending(&self, channel: &Channel, now: Timestamp) -> (Vec<WaitingView>, usize) {
        let catalog = &self.sources[channel.source].catalog;
        let owed: BTreeSet<&Uri> = channel
            .ledgers
            .values()
            .flat_map(|own| own.owed())
            .collect();
        let owed = owed
            .into_iter()
            .filter_map(|uri| Some((uri, catalog.get(uri)?)));
        let mut owed: Vec<(&Uri, &Record)> = owed.collect();
        owed.sort_by_key(|(_, record)| changed(record));
        let first = owed
            .iter()
            .take(MOST_TOLD)
            .map(|(uri, record)| WaitingView {
                uri: (*uri).clone(),
                capability: record.version.capability,
                since: changed(record),
                reason: self.pending_reason(channel, uri, now),
            });
        (first.collect(), owed.len().saturating_sub(MOST_TOLD))
    }

    /// What each hub that is due a document waits for; said once if it is the same.
    fn pending_reason(&self, channel: &Channel, uri: &Uri, now: Timestamp) -> String {
        let owing = channel.ledgers.iter().filter(|(_, own)| own.owes(uri));
        let reasons = owing.map(|(hub, ledger)| match &ledger.row.flight {
            Some(flight) if !flight.covers.iter().any(|(own, _)| own == uri) => {
                let seq = flight.seq;
                format!("it follows notification {seq}, which {hub} has not accepted yet")
            }
            Some(flight) if flight.attempts > 0 => {
                format!("{hub} has not accepted notification {} yet", flight.seq)
            }
            Some(flight) => format!("notification {} is on its way to {hub}", flight.seq),
            None => match self.waits(channel, ledger, now) {
                Some(waits) => format!("it waits {waits}"),
                None => format!("it is told to {hub} next"),
            },
        });
        let reasons: BTreeSet<String> = reasons.collect();
        reasons.into_iter().collect::<Vec<_>>().join("; ")
    }

    /// What will be said to a hub once something else happens, and what that is (R15, R17).
    pub(super) fn held(&self, channel: &Channel, hub: &Hub) -> Vec<WaitingView> {
        let mut held = Vec::new();
        for (uri, record) in self.not_yet(channel.source) {
            if self.is_held(channel, hub, uri) {
                held.push(hold_view(uri, record));
            }
        }
        held.sort_by(|one, other| one.uri.cmp(&other.uri));
        held
    }

    /// The same over all hubs of each channel, for channels where there is any.
    pub(super) fn held_by_channel(&self) -> BTreeMap<ChannelId, Held<'_>> {
        let mut held: BTreeMap<ChannelId, Held<'_>> = BTreeMap::new();
        for source in 0..self.sources.len() {
            for (uri, record) in self.not_yet(source) {
                for id in self.concerned(source, uri, record) {
                    let Some(channel) = self.channels.get(&id) else {
                        continue;
                    };
                    let mut hubs = channel.ledgers.keys();
                    if hubs.any(|hub| self.is_held(channel, hub, uri)) {
                        held.entry(id).or_default().add(uri, record);
                    }
                }
            }
        }
        held
    }

    /// Documents that are missing or wait to be listed.
    fn not_yet(&self, source: usize) -> impl Iterator<Item = (&Uri, &Record)> {
        self.sources[source].catalog.iter().filter(|(_, record)| {
            record.is_missing() || matches!(record.hold, Hold::Waiting { .. })
        })
    }

    fn is_held(&self, channel: &Channel, hub: &Hub, uri: &Uri) -> bool {
        let plan = &self.plan.sources[channel.source];
        let catalog = &self.sources[channel.source].catalog;
        let due = due(plan, catalog, channel, hub, uri);
        matches!(due, Due::Held | Due::Missing)
    }
}

/// When what is to be said of a document came to be.
fn changed(record: &Record) -> Timestamp {
    match record.presence {
        Presence::Gone { since } => since,
        Presence::Present | Presence::Missing { .. } => record.changed,
    }
}

/// Since when what is to be said of a document is held.
fn held_since(record: &Record) -> Timestamp {
    match (record.presence, record.hold) {
        (Presence::Missing { since, .. }, _) | (_, Hold::Waiting { since }) => since,
        _ => record.changed,
    }
}

fn hold_view(uri: &Uri, record: &Record) -> WaitingView {
    let reason = match (record.presence, record.hold) {
        (Presence::Missing { since, .. }, _) => {
            format!("it is missing since {since:.0}: it may return, or turn out to be deleted")
        }
        (_, Hold::Waiting { since }) => {
            format!("it waits since {since:.0} for a document that lists it")
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

//! What topics with a ping hub serve: all that was said lately, and what such hubs are still to be told (R25).
//! It never waits for them: a hub that fetches late, or again, finds everything.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::announce::channel::Channel;
use crate::announce::delivery::ChannelId;
use crate::announce::engine::Engine;
use crate::announce::ledger::Ledger;
use crate::announce::notification::{Limits, overhead, spoken, up};
use crate::announce::plan::Mode;
use crate::announce::standing::{Standing, standing};
use crate::resourcesync::capability::Capability;
use crate::resourcesync::payload::{ChangeKind, Entry, Payload, entry_len};
use crate::resourcesync::uri::Uri;

impl Engine {
    /// Serves what a ping hub is due and cannot be told yet, if its topic does not have it.
    pub(super) fn serve_what_waits(&mut self, id: ChannelId, now: Timestamp) {
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        let waits = |own: &Ledger| own.mode == Mode::Ping && !own.due.is_empty();
        if !channel.ledgers.values().any(waits)
            || says_the_same(&self.entries(channel), &channel.page)
        {
            return;
        }
        if let Some(channel) = self.channels.get_mut(&id) {
            let until = channel.next_until(now);
            self.write_page(id, until);
            self.turn.serve.insert(id);
        }
    }

    /// Makes the body of a topic with a ping hub anew.
    pub(super) fn write_page(&mut self, id: ChannelId, until: Timestamp) {
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        let entries = self.entries(channel);
        let catalog = &self.sources[channel.source].catalog;
        let payload = Payload {
            up: up(&entries, &channel.row.set, catalog),
            until: Some(until),
            entries,
        };
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.row.body = payload.render().into();
            channel.page = payload.entries;
        }
    }

    /// What a topic with a ping hub is to serve, in order of the datetimes.
    fn entries(&self, channel: &Channel) -> Vec<Entry> {
        let foretold = self.foretold(channel);
        let flying = channel.flying();
        let said = channel.row.said.iter().rev().map(|said| &said.entry);
        let (flying, before): (Vec<_>, Vec<_>) =
            said.partition(|entry| flying.contains(&entry.uri));
        let by_weight = flying.into_iter().chain(&foretold).chain(before);
        let window = &self.plan.window;
        let catalog = &self.sources[channel.source].catalog;
        let room = window
            .max_bytes
            .saturating_sub(overhead(&channel.row.set, catalog));
        as_many_as_fit(by_weight, window.max_entries, room)
    }

    /// What ping hubs are due, in order; of several entries with the same key the last.
    fn foretold(&self, channel: &Channel) -> Vec<Entry> {
        let plan = &self.plan.sources[channel.source];
        let catalog = &self.sources[channel.source].catalog;
        let limits = Limits {
            entries: self.plan.window.max_entries,
            bytes: self.plan.window.max_bytes,
            all_components: plan.announce_all_components,
        };
        let mut entries = BTreeMap::new();
        let pinged = channel.ledgers.iter();
        for (hub, ledger) in pinged.filter(|(_, ledger)| ledger.mode == Mode::Ping) {
            let due = ledger.due.iter().filter_map(|uri| {
                match standing(plan, catalog, channel, hub, uri) {
                    Standing::Due(due) => Some(due),
                    _ => None,
                }
            });
            let spoken = spoken(due.collect(), catalog, limits).into_iter();
            let spoken = spoken
                .take(limits.entries)
                .flat_map(|spoken| spoken.entries);
            entries.extend(spoken.map(|entry| (key(&entry), entry)));
        }
        let mut entries: Vec<Entry> = entries.into_values().collect();
        entries.sort_by_key(|entry| entry.datetime);
        entries
    }
}

/// Whether two lists of entries would be rendered alike: with milliseconds (R19).
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

/// As many as a payload may have, the weightiest first: what a hub is being told, what it will be told, and then what it
/// was told, the newest first. In order of their datetimes.
fn as_many_as_fit<'a>(
    by_weight: impl Iterator<Item = &'a Entry>,
    most: usize,
    most_bytes: usize,
) -> Vec<Entry> {
    let mut entries = BTreeMap::new();
    let mut bytes = 0;
    for entry in by_weight {
        let known: Option<&Entry> = entries.get(&key(entry));
        let is_news = known.is_none_or(|known| known.datetime < entry.datetime);
        let size = bytes + entry_len(entry) - known.map_or(0, entry_len);
        let fits = size <= most_bytes && (known.is_some() || entries.len() < most);
        if is_news && fits {
            bytes = size;
            entries.insert(key(entry), entry.clone());
        }
    }
    let mut entries: Vec<Entry> = entries.into_values().collect();
    entries.sort_by(|one, other| (one.datetime, &one.uri).cmp(&(other.datetime, &other.uri)));
    entries
}

//! What topics with a ping hub serve: all that was said lately, and what such hubs are still to be told (R25).
//! It never waits for them: a hub that fetches late, or again, finds everything.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::announce::channel::Channel;
use crate::announce::due::{Due, due};
use crate::announce::engine::Engine;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::notification::{Limits, overhead, spoken, up};
use crate::announce::plan::Mode;
use crate::announce::time::earlier;
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
        if !channel.ledgers.values().any(|own| waits(own))
            || says_the_same(&self.content(channel, now).entries, &channel.page)
        {
            return;
        }
        self.write_page(id, now);
        self.turn.serve.insert(id);
    }

    /// Makes the body of a topic with a ping hub anew.
    pub(super) fn write_page(&mut self, id: ChannelId, now: Timestamp) {
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        let Content {
            entries,
            before,
            open,
        } = self.content(channel, now);
        let catalog = &self.sources[channel.source].catalog;
        let up = up(&entries, &channel.row.set, catalog);
        if let Some(channel) = self.channels.get_mut(&id) {
            let span = channel.next_span(now, before, open);
            let payload = Payload {
                up,
                from: span.from,
                until: span.until,
                entries,
            };
            channel.row.body = payload.render().into();
            channel.page = payload.entries;
            channel.page_until = span.until;
        }
    }

    /// What a topic with a ping hub is to serve, in order of the datetimes.
    fn content(&self, channel: &Channel, now: Timestamp) -> Content {
        let (foretold, beyond) = self.foretold(channel);
        let flying = channel.flying();
        let said = channel.row.said.iter().rev().map(|said| &said.entry);
        let (flying, said_before): (Vec<_>, Vec<_>) =
            said.partition(|entry| flying.contains(&entry.uri));
        let by_weight = flying.into_iter().chain(&foretold).chain(said_before);
        let window = &self.plan.window;
        let catalog = &self.sources[channel.source].catalog;
        let room = window
            .max_bytes
            .saturating_sub(overhead(&channel.row.set, catalog));
        let entries = as_many_as_fit(by_weight, window.max_entries, room);
        let pinged = channel
            .ledgers
            .values()
            .filter(|own| own.mode == Mode::Ping);
        let waiting = pinged.filter_map(|ledger| self.waiting_since(channel, ledger));
        let shown: BTreeSet<_> = entries.iter().map(key).collect();
        let left_out = foretold.iter().filter(|entry| !shown.contains(&key(entry)));
        let left_out = left_out.filter_map(|entry| entry.datetime);
        let open = waiting.chain(beyond).chain(left_out).min();
        let has_all_said = channel.row.said.len() < window.max_entries
            && channel
                .row
                .said
                .iter()
                .all(|said| shown.contains(&key(&said.entry)));
        let remembered = earlier(now, self.plan.topic_window);
        let before = fetched_until(channel).filter(|before| has_all_said && *before >= remembered);
        Content {
            entries,
            before,
            open,
        }
    }

    /// What ping hubs are due, in order; of several entries with the same key the last. With the time of the earliest
    /// change that is not among them.
    fn foretold(&self, channel: &Channel) -> (Vec<Entry>, Option<Timestamp>) {
        let plan = &self.plan.sources[channel.source];
        let catalog = &self.sources[channel.source].catalog;
        let limits = Limits {
            entries: self.plan.window.max_entries,
            bytes: self.plan.window.max_bytes,
            all_components: plan.announce_all_components,
        };
        let mut beyond: Option<Timestamp> = None;
        let mut entries = BTreeMap::new();
        let pinged = channel.ledgers.iter();
        for (hub, ledger) in pinged.filter(|(_, ledger)| ledger.mode == Mode::Ping) {
            let due =
                ledger
                    .due
                    .iter()
                    .filter_map(|uri| match due(plan, catalog, channel, hub, uri) {
                        Due::Announce(announcement) => Some(announcement),
                        _ => None,
                    });
            let mut spoken = spoken(due.collect(), catalog, limits);
            let most = limits.entries.min(spoken.len());
            let others = spoken.drain(most..).map(|spoken| spoken.since);
            beyond = others.chain(beyond).min();
            let spoken = spoken.into_iter().flat_map(|spoken| spoken.entries);
            entries.extend(spoken.map(|entry| (key(&entry), entry)));
        }
        let mut entries: Vec<Entry> = entries.into_values().collect();
        entries.sort_by_key(|entry| entry.datetime);
        (entries, beyond)
    }
}

/// What a topic that ping hubs read is to say.
struct Content {
    entries: Vec<Entry>,
    /// Until when the hubs that fetch it have all.
    before: Option<Timestamp>,
    /// The earliest change that it does not have.
    open: Option<Timestamp>,
}

/// Until when all hubs that fetch a topic have what changed, if all have fetched it.
fn fetched_until(channel: &Channel) -> Option<Timestamp> {
    let pinged = channel
        .ledgers
        .values()
        .filter(|own| own.mode == Mode::Ping);
    let fetched: Option<Vec<Timestamp>> = pinged.map(|own| own.row.until).collect();
    fetched?.into_iter().min()
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

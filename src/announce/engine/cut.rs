//! Cuts notifications from what hubs are due, and what topics serve with them (R21, R22, R25).

use std::sync::Arc;

use jiff::Timestamp;

use crate::announce::channel::Channel;
use crate::announce::due::{Due, due};
use crate::announce::engine::Engine;
use crate::announce::event::Fact;
use crate::announce::history::{Fate, Notification};
use crate::announce::ids::ChannelId;
use crate::announce::ledger::{Ledger, Prepared};
use crate::announce::notification::{Cut, Limits, cut, overhead, spoken, up};
use crate::announce::span::Span;
use crate::announce::state::{Flight, Presence, Said, Told};
use crate::announce::time::earlier;
use crate::resourcesync::payload::Payload;
use crate::resourcesync::uri::Hub;

/// So many full notifications are prepared at once, which bounds the memory that it takes.
const PREPARED: usize = 16;

/// What a hub is told next.
#[derive(Debug, PartialEq, Eq)]
struct Next {
    cut: Cut,
    /// The `until` of the notification before.
    before: Option<Timestamp>,
    /// The earliest change that is held or left for the one after.
    open: Option<Timestamp>,
}

impl Engine {
    pub(super) fn cut_ready(&mut self, now: Timestamp) {
        for id in std::mem::take(&mut self.turn.ready) {
            self.cut_channel(id, now);
        }
    }

    /// Gives every hub of a channel that is free and due something its next notification; hubs that are due
    /// the same get the same one.
    pub(super) fn cut_channel(&mut self, id: ChannelId, now: Timestamp) {
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        if channel.window.is_some() {
            return;
        }
        let source = channel.source;
        if !self.sources[source].is_settled() {
            self.sources[source].parked.insert(id);
            return;
        }
        let hubs: Vec<Hub> = channel.ledgers.keys().cloned().collect();
        let mut cuts: Vec<(Next, Vec<Hub>)> = Vec::new();
        for hub in hubs {
            let Some(next) = self.next_cut(id, &hub, now) else {
                continue;
            };
            match cuts.iter_mut().find(|(cut, _)| *cut == next) {
                Some((_, hubs)) => hubs.push(hub),
                None => cuts.push((next, vec![hub])),
            }
        }
        if cuts.is_empty() {
            self.serve_what_waits(id, now);
        }
        for (next, hubs) in cuts {
            self.launch(id, next, hubs, now);
        }
    }

    fn next_cut(&mut self, id: ChannelId, hub: &Hub, now: Timestamp) -> Option<Next> {
        let channel = self.channels.get(&id)?;
        let ledger = channel.ledgers.get(hub)?;
        if ledger.due.is_empty() || ledger.free_from()? > now {
            return None;
        }
        let plan = &self.plan.sources[channel.source];
        let source = &self.sources[channel.source];
        let window = &self.plan.window;
        let size = self.queues.get(hub).and_then(|queue| queue.size_limit(now));
        let entries = ledger
            .row
            .limit
            .into_iter()
            .chain(size.map(|size| size.entries));
        let limits = Limits {
            entries: entries.fold(window.max_entries, usize::min),
            bytes: size.map_or(window.max_bytes, |size| window.max_bytes.min(size.bytes)),
            all_components: plan.announce_all_components,
        };
        let overhead = overhead(&channel.row.set, &source.catalog);
        let is_prepared =
            ledger.prepared.settled == source.settled && !ledger.prepared.spoken.is_empty();
        let prepared = (!is_prepared).then(|| {
            let announcements = ledger.due.iter().filter_map(|uri| {
                match due(plan, &source.catalog, channel, hub, uri) {
                    Due::Announce(announcement) => Some(announcement),
                    _ => None,
                }
            });
            let announcements = announcements.collect();
            let mut spoken = spoken(announcements, &source.catalog, limits);
            let most = limits.entries.saturating_mul(PREPARED).min(spoken.len());
            let beyond = spoken.drain(most..).map(|spoken| spoken.since).min();
            Prepared {
                settled: source.settled,
                spoken: spoken.into(),
                beyond,
            }
        });
        let waiting = self.waiting_since(channel, ledger);
        let ledger = self.channels.get_mut(&id)?.ledgers.get_mut(hub)?;
        if let Some(prepared) = prepared {
            ledger.prepared = prepared;
        }
        let cut = cut(&mut ledger.prepared.spoken, limits, overhead);
        let left = ledger.prepared.spoken.iter().map(|spoken| spoken.since);
        let open = left.chain(ledger.prepared.beyond).chain(waiting).min();
        (!cut.entries.is_empty()).then_some(Next {
            cut,
            before: ledger.row.until,
            open,
        })
    }

    /// When the earliest of the changes came to be of which there may be something to say to a hub later (R20).
    pub(super) fn waiting_since(&self, channel: &Channel, ledger: &Ledger) -> Option<Timestamp> {
        let catalog = &self.sources[channel.source].catalog;
        let waiting = ledger.waiting.iter().filter_map(|uri| {
            let record = catalog.get(uri)?;
            let told = ledger.told.get(uri);
            let is_changed = told.copied() != Some(Told::from(record.version));
            let changed = is_changed.then_some(record.changed);
            let missing = match record.presence {
                Presence::Missing { since, .. } => Some(since),
                Presence::Present | Presence::Gone { .. } => None,
            };
            changed.into_iter().chain(missing).min()
        });
        waiting.min()
    }

    fn launch(&mut self, id: ChannelId, next: Next, hubs: Vec<Hub>, now: Timestamp) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let Next {
            mut cut,
            before,
            open,
        } = next;
        // Hubs that fetch the topic are told what that speaks for.
        let span = match hubs.iter().all(|hub| channel.is_pinged(hub)) {
            true => Span::default(),
            false => channel.next_span(now, before, open),
        };
        span.fit(&mut cut.entries);
        let catalog = &self.sources[channel.source].catalog;
        channel.row.seq += 1;
        let payload = Payload {
            up: up(&cut.entries, &channel.row.set, catalog),
            from: span.from,
            until: span.until,
            entries: cut.entries,
        };
        let flight = Flight {
            seq: channel.row.seq,
            body: payload.render().into(),
            entries: payload.entries.len(),
            covers: cut.covers,
            until: span.until,
            cut: now,
            attempts: 0,
            next_try: now,
        };
        if hubs.iter().any(|hub| channel.is_pinged(hub)) {
            let said = payload.entries.iter().cloned();
            let said = said.map(|entry| Said { at: now, entry });
            channel.row.said.extend(said);
        }
        let fact = Fact::Cut {
            topic: channel.row.topic.clone(),
            seq: flight.seq,
            changes: flight.entries,
            hubs: hubs.len(),
        };
        self.history.push(Notification {
            channel: id,
            topic: channel.row.topic.clone(),
            seq: flight.seq,
            cut: now,
            changes: Some(flight.entries),
            bytes: Some(flight.body.len()),
            body: Some(Arc::clone(&flight.body)),
            hubs: hubs.iter().map(|hub| (hub.clone(), Fate::Open)).collect(),
        });
        for hub in &hubs {
            if let Some(ledger) = channel.ledgers.get_mut(hub) {
                ledger.row.flight = Some(flight.clone());
                ledger.cut_for = self.queues.get(hub).and_then(|queue| queue.size_limit(now));
                ledger.in_doubt = false;
                if let Some(ping) = &mut ledger.row.ping {
                    ping.fetched = false;
                }
            }
        }
        match channel.ledgers.keys().any(|hub| channel.is_pinged(hub)) {
            true => {
                let oldest = earlier(now, self.plan.topic_window);
                channel.forget_said(oldest, self.plan.window.max_entries);
                self.write_page(id, now);
            }
            false => {
                channel.row.said.clear();
                channel.row.body = flight.body;
            }
        }
        self.tell(fact);
        self.turn.serve.insert(id);
        for hub in hubs {
            self.turn.ledgers.insert((id, hub.clone()));
            self.enqueue(id, &hub);
        }
    }
}

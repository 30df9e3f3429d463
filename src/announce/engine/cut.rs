//! Cuts notifications from what hubs are due, and what topics serve with them (R21, R22, R25).

use std::sync::Arc;

use jiff::Timestamp;

use crate::announce::channel::earlier;
use crate::announce::delivery::ChannelId;
use crate::announce::engine::Engine;
use crate::announce::event::Fact;
use crate::announce::history::{Fate, Notification};
use crate::announce::ledger::Prepared;
use crate::announce::notification::{Cut, Limits, cut, overhead, spoken, up};
use crate::announce::standing::{Standing, standing};
use crate::announce::state::{Flight, Said};
use crate::resourcesync::payload::Payload;
use crate::resourcesync::uri::Hub;

/// So many full notifications are prepared at once, which bounds the memory that it takes.
const PREPARED: usize = 16;

impl Engine {
    pub(super) fn cut_ripe(&mut self, now: Timestamp) {
        for id in std::mem::take(&mut self.turn.ripe) {
            self.cut_channel(id, now);
        }
    }

    /// Gives every hub of a channel that is free and due something its next notification; hubs that are due
    /// the same get the same one.
    fn cut_channel(&mut self, id: ChannelId, now: Timestamp) {
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
        let mut cuts: Vec<(Cut, Vec<Hub>)> = Vec::new();
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
        for (cut, hubs) in cuts {
            self.launch(id, cut, hubs, now);
        }
    }

    fn next_cut(&mut self, id: ChannelId, hub: &Hub, now: Timestamp) -> Option<Cut> {
        let channel = self.channels.get(&id)?;
        let ledger = channel.ledgers.get(hub)?;
        if ledger.due.is_empty() || ledger.free_from()? > now {
            return None;
        }
        let plan = &self.plan.sources[channel.source];
        let source = &self.sources[channel.source];
        let window = &self.plan.window;
        let limits = Limits {
            entries: ledger.row.limit.unwrap_or(window.max_entries),
            bytes: window.max_bytes,
            all_components: plan.announce_all_components,
        };
        let overhead = overhead(&channel.row.set, &source.catalog);
        let is_prepared =
            ledger.prepared.settled == source.settled && !ledger.prepared.spoken.is_empty();
        let prepared = (!is_prepared).then(|| {
            let standings = ledger.due.iter().map(|uri| {
                let standing = standing(plan, &source.catalog, channel, hub, uri);
                match standing {
                    Standing::Due(due) => Some(due),
                    _ => None,
                }
            });
            let due = standings.flatten().collect();
            let mut spoken = spoken(due, &source.catalog, limits);
            spoken.truncate(limits.entries.saturating_mul(PREPARED));
            Prepared {
                settled: source.settled,
                spoken: spoken.into(),
            }
        });
        let ledger = self.channels.get_mut(&id)?.ledgers.get_mut(hub)?;
        if let Some(prepared) = prepared {
            ledger.prepared = prepared;
        }
        let next = cut(&mut ledger.prepared.spoken, limits, overhead);
        (!next.entries.is_empty()).then_some(next)
    }

    fn launch(&mut self, id: ChannelId, cut: Cut, hubs: Vec<Hub>, now: Timestamp) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let catalog = &self.sources[channel.source].catalog;
        let until = channel.next_until(now);
        channel.row.seq += 1;
        let payload = Payload {
            up: up(&cut.entries, &channel.row.set, catalog),
            until: Some(until),
            entries: cut.entries,
        };
        let flight = Flight {
            seq: channel.row.seq,
            body: payload.render().into(),
            entries: payload.entries.len(),
            covers: cut.covers,
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
                self.write_page(id, until);
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
            self.submit(id, &hub);
        }
    }
}

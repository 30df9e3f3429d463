//! Cutting notifications and hearing what hubs answered.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::channel::{earlier, later};
use crate::announce::delivery::verdict::{Verdict, verdict};
use crate::announce::delivery::{Answer, ChannelId, Submission};
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::ledger::{PING_APART, PING_FETCHED_WITHIN};
use crate::announce::notification::{Cut, Limits, cut, overhead, up};
use crate::announce::plan::Mode;
use crate::announce::standing::{Standing, standing};
use crate::announce::state::{Flight, Ping, Said, Told};
use crate::resourcesync::payload::{Entry, Payload, entry_len};
use crate::resourcesync::uri::{Hub, Topic, Uri};

const MILLISECOND: Duration = Duration::from_millis(1);
/// How long a notification waits that cannot be made smaller (R23).
const TOO_LARGE_WAIT: Duration = Duration::from_secs(15 * 60);

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
        let mut cuts: Vec<(Cut, Vec<Hub>)> = Vec::new();
        for hub in channel.ledgers.keys() {
            let Some(next) = self.next_cut(id, hub, now) else {
                continue;
            };
            match cuts.iter_mut().find(|(cut, _)| *cut == next) {
                Some((_, hubs)) => hubs.push(hub.clone()),
                None => cuts.push((next, vec![hub.clone()])),
            }
        }
        for (cut, hubs) in cuts {
            self.launch(id, cut, hubs, now);
        }
    }

    fn next_cut(&self, id: ChannelId, hub: &Hub, now: Timestamp) -> Option<Cut> {
        let channel = self.channels.get(&id)?;
        let ledger = channel.ledgers.get(hub)?;
        if ledger.due.is_empty() || ledger.free_from()? > now {
            return None;
        }
        let plan = &self.plan.sources[channel.source];
        let catalog = &self.sources[channel.source].catalog;
        let due = ledger
            .due
            .iter()
            .filter_map(|uri| match standing(plan, catalog, channel, hub, uri) {
                Standing::Due(due) => Some(due),
                Standing::Told | Standing::Absorbed(_) | Standing::Held => None,
            })
            .collect();
        let window = &self.plan.window;
        let limits = Limits {
            entries: ledger.row.limit.unwrap_or(window.max_entries),
            bytes: window.max_bytes,
            all_components: plan.announce_all_components,
        };
        let overhead = overhead(&channel.row.set, catalog);
        let next = cut(due, catalog, limits, overhead);
        (!next.entries.is_empty()).then_some(next)
    }

    fn launch(&mut self, id: ChannelId, cut: Cut, hubs: Vec<Hub>, now: Timestamp) {
        let topic_window = self.plan.topic_window;
        let max_entries = self.plan.window.max_entries;
        let max_bytes = self.plan.window.max_bytes;
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let catalog = &self.sources[channel.source].catalog;
        // R20: with milliseconds, and different in each notification of a topic.
        let earliest = channel.row.until.map(|until| later(until, MILLISECOND));
        let now_in_milliseconds = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        let until = earliest.map_or(now_in_milliseconds, |earliest| {
            earliest.max(now_in_milliseconds)
        });
        channel.row.until = Some(until);
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
            last_failure: None,
        };
        let is_pinged = |hub: &Hub| {
            channel
                .ledgers
                .get(hub)
                .is_some_and(|ledger| ledger.mode == Mode::Ping)
        };
        if channel
            .ledgers
            .values()
            .any(|ledger| ledger.mode == Mode::Ping)
        {
            if hubs.iter().any(is_pinged) {
                let said = payload
                    .entries
                    .into_iter()
                    .map(|entry| Said { at: now, entry });
                channel.row.said.extend(said);
            }
            let owed: Vec<Uri> = channel
                .ledgers
                .values()
                .filter(|ledger| ledger.mode == Mode::Ping)
                .filter_map(|ledger| ledger.row.flight.as_ref())
                .flat_map(|flight| flight.covers.iter().map(|(uri, _)| uri.clone()))
                .chain(flight.covers.iter().map(|(uri, _)| uri.clone()))
                .collect();
            let oldest = earlier(now, topic_window);
            channel
                .row
                .said
                .retain(|said| said.at >= oldest || owed.contains(&said.entry.uri));
            let room = max_bytes.saturating_sub(overhead(&channel.row.set, catalog));
            let entries = newest(&channel.row.said, max_entries, room);
            let page = Payload {
                up: up(&entries, &channel.row.set, catalog),
                until: Some(until),
                entries,
            };
            channel.row.body = page.render().into();
        } else {
            channel.row.said.clear();
            channel.row.body = flight.body.clone();
        }
        let fact = Fact::Cut {
            topic: channel.row.topic.clone(),
            seq: flight.seq,
            changes: flight.entries,
            hubs: hubs.len(),
        };
        for hub in &hubs {
            if let Some(ledger) = channel.ledgers.get_mut(hub) {
                ledger.row.flight = Some(flight.clone());
                if let Some(ping) = &mut ledger.row.ping {
                    ping.fetched = false;
                }
            }
        }
        self.tell(fact);
        self.turn.serve.insert(id);
        for hub in hubs {
            self.turn.ledgers.insert((id, hub.clone()));
            self.submit(id, &hub);
        }
    }

    fn submit(&mut self, id: ChannelId, hub: &Hub) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let Some(flight) = &ledger.row.flight else {
            return;
        };
        ledger.sending = true;
        self.turn.submit.push(Submission {
            channel: id,
            hub: hub.clone(),
            mode: ledger.mode,
            seq: flight.seq,
            topic: channel.row.topic.clone(),
            capability_list: channel.row.set.clone(),
            body: flight.body.clone(),
        });
    }

    pub(super) fn try_again(&mut self, id: ChannelId, hub: &Hub) {
        let Some(ledger) = self.ledger_mut(id, hub) else {
            return;
        };
        if ledger.sending || ledger.row.flight.is_none() {
            return;
        }
        self.submit(id, hub);
    }

    pub(super) fn answered(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        seq: u64,
        answer: &Answer,
        jitter: f64,
        now: Timestamp,
    ) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let topic = channel.row.topic.clone();
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let Some(flight) = ledger
            .row
            .flight
            .as_mut()
            .filter(|flight| flight.seq == seq)
        else {
            return;
        };
        ledger.sending = false;
        flight.attempts += 1;
        let attempts = flight.attempts;
        let entries = flight.entries;
        self.turn.ledgers.insert((id, hub.clone()));
        let (at, reason, needs_person) = match verdict(answer, attempts, now, jitter) {
            Verdict::Accepted => {
                let fact = Fact::Delivered {
                    topic,
                    hub: hub.clone(),
                    seq,
                    changes: entries,
                    attempts,
                };
                self.tell(fact);
                self.accepted(id, hub, now);
                return;
            }
            Verdict::TooLarge if entries > 1 => {
                let limit = entries / 2;
                ledger.row.flight = None;
                ledger.row.limit = Some(limit);
                self.turn.ripe.insert(id);
                self.tell(Fact::Halved {
                    topic,
                    hub: hub.clone(),
                    seq,
                    limit,
                });
                return;
            }
            Verdict::TooLarge => {
                let reason = "a notification of one change is too large for it".to_owned();
                (later(now, TOO_LARGE_WAIT), reason, true)
            }
            Verdict::Retry { at, reason } => (at, reason.to_string(), false),
            Verdict::NeedsPerson { at, reason } => (at, reason.to_string(), true),
        };
        flight.next_try = at;
        flight.last_failure = Some(reason.clone());
        self.wake_at(at, Timer::Try(id, hub.clone()));
        self.tell(Fact::Refused {
            topic,
            hub: hub.clone(),
            seq,
            attempts,
            reason,
            next_try: at,
            needs_person,
        });
    }

    /// R22: what was in flight is told, and the next notification is cut from what is due now.
    fn accepted(&mut self, id: ChannelId, hub: &Hub, now: Timestamp) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let source = channel.source;
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let Some(flight) = ledger.row.flight.take() else {
            return;
        };
        ledger.row.limit = None;
        ledger.row.accepted = Some(now);
        if ledger.mode == Mode::Ping {
            // A hub may fetch the topic before it answers the ping.
            let fetched = ledger.row.ping.is_some_and(|ping| ping.fetched);
            ledger.row.ping = Some(Ping {
                at: now,
                fetched,
                reported: false,
            });
            self.timers
                .insert((later(now, PING_APART), Timer::Ping(id, hub.clone())));
            let silent_at = later(now, PING_FETCHED_WITHIN);
            self.timers
                .insert((silent_at, Timer::Ping(id, hub.clone())));
        }
        let covers: BTreeMap<Uri, Option<Told>> = flight.covers.into_iter().collect();
        for (uri, told) in &covers {
            match told {
                Some(told) => ledger.told.insert(uri.clone(), *told),
                None => ledger.told.remove(uri),
            };
            self.turn.told.insert((id, hub.clone(), uri.clone()));
            self.heard.entry(uri.clone()).or_default().insert(id);
        }
        if channel.row.retired.is_some() {
            self.last_words_said(id, hub, covers.keys());
        }
        for uri in covers.keys() {
            self.reassess(source, id, hub, uri, false, now);
            self.forget_if_done(source, uri);
        }
        self.turn.ripe.insert(id);
    }

    /// A ping hub's next notification may be due, or its silence to be reported (R26).
    pub(super) fn ping_due(&mut self, id: ChannelId, hub: &Hub, now: Timestamp) {
        self.turn.ripe.insert(id);
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        // While the next one flies, `fetched` is about that one.
        if ledger.row.flight.is_none()
            && let Some(ping) = &mut ledger.row.ping
            && !ping.fetched
            && !ping.reported
            && later(ping.at, PING_FETCHED_WITHIN) <= now
        {
            ping.reported = true;
            let topic = channel.row.topic.clone();
            self.turn.ledgers.insert((id, hub.clone()));
            let after = PING_FETCHED_WITHIN;
            self.tell(Fact::Unfetched {
                topic,
                hub: hub.clone(),
                after,
            });
        }
    }

    pub(super) fn fetched(&mut self, topic: &Topic, now: Timestamp) {
        let ids: Vec<ChannelId> = self
            .channels
            .iter()
            .filter(|(_, channel)| channel.row.topic == *topic)
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(channel) = self.channels.get_mut(&id) else {
                continue;
            };
            for (hub, ledger) in &mut channel.ledgers {
                let is_awaited =
                    ledger.sending || ledger.row.ping.is_some_and(|ping| !ping.fetched);
                if ledger.mode != Mode::Ping || !is_awaited {
                    continue;
                }
                let at = ledger.row.ping.map_or(now, |ping| ping.at);
                ledger.row.ping = Some(Ping {
                    at,
                    fetched: true,
                    reported: false,
                });
                self.turn.ledgers.insert((id, hub.clone()));
                self.timers
                    .insert((later(at, PING_APART), Timer::Ping(id, hub.clone())));
            }
        }
    }
}

/// The newest entries, one per document and kind of change, as many as a payload may have, in order of
/// their datetimes (R25).
fn newest(said: &[Said], max_entries: usize, max_bytes: usize) -> Vec<Entry> {
    let mut kept: BTreeMap<_, &Entry> = BTreeMap::new();
    for said in said {
        kept.insert(
            (&said.entry.uri, said.entry.change, said.entry.capability),
            &said.entry,
        );
    }
    let mut entries: Vec<&Entry> = kept.into_values().collect();
    entries.sort_by(|one, other| (one.datetime, &one.uri).cmp(&(other.datetime, &other.uri)));
    let mut bytes = 0;
    let mut first = entries.len();
    while first > 0 && entries.len() - first < max_entries {
        bytes += entry_len(entries[first - 1]);
        if bytes > max_bytes {
            break;
        }
        first -= 1;
    }
    entries[first..].iter().copied().cloned().collect()
}

//! The last notifications as an operator sees them, and what a stored state still holds of them.

use std::sync::Arc;

use jiff::Timestamp;

use crate::announce::channel::Channel;
use crate::announce::engine::Engine;
use crate::announce::history::{Fate, MOST, Notification};
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::plan::Mode;
use crate::announce::state::LedgerRow;
use crate::report::status::notification::{Body, NotificationView, Outcome, OutcomeView};
use crate::resourcesync::payload::Payload;
use crate::resourcesync::uri::Hub;

impl Engine {
    /// The last notifications, the newest first.
    pub(super) fn notifications(&self) -> Vec<NotificationView> {
        let views = self.history.iter().map(|own| {
            // The id of a channel that was removed may be another's by now.
            let channel = self.channels.get(&own.channel);
            let channel = channel.filter(|channel| channel.row.topic == own.topic);
            let hubs = own.hubs.iter().map(|(hub, fate)| {
                let ledger = channel.and_then(|channel| channel.ledgers.get(hub));
                outcome(hub, own.seq, *fate, ledger.map(Box::as_ref))
            });
            NotificationView {
                topic: own.topic.clone(),
                seq: own.seq,
                cut: own.cut,
                changes: own.changes,
                hubs: hubs.collect(),
                bytes: own.bytes,
                payload: own.body.clone().map(Body),
            }
        });
        views.collect()
    }

    /// Goes on with what the engine before remembers.
    pub fn inherit(&mut self, before: &mut Engine) {
        for (hub, queue) in &mut before.queues {
            if let Some(own) = self.queues.get_mut(hub) {
                own.inherit(queue);
            }
        }
        self.history = std::mem::take(&mut before.history);
        self.inherit_graces(before);
    }

    /// Begins the history with what a stored state holds: what is in flight, and the last notification of each
    /// channel.
    pub(super) fn recall(&mut self) {
        let channels = self.channels.iter();
        let mut known: Vec<Notification> = channels
            .flat_map(|(id, channel)| remembered(*id, channel))
            .collect();
        known.sort_by_key(|own| (own.cut, own.channel, own.seq));
        let last = known.split_off(known.len().saturating_sub(MOST));
        for mut notification in last {
            let body = notification.body.as_deref();
            let payload = body.and_then(|body| Payload::parse(body).ok());
            notification.changes = payload.map(|payload| payload.entries.len());
            self.history.push(notification);
        }
    }
}

/// What the rows of a channel say of its last notifications; changes are not counted yet.
fn remembered(id: ChannelId, channel: &Channel) -> Vec<Notification> {
    let row = &channel.row;
    let mut known: Vec<Notification> = Vec::new();
    let mut add = |seq, cut: Timestamp, body: Option<Arc<[u8]>>, hub: &Hub, fate| {
        let told = (hub.clone(), fate);
        match known.iter_mut().find(|own| own.seq == seq) {
            Some(own) => own.hubs.push(told),
            None => known.push(Notification {
                channel: id,
                topic: row.topic.clone(),
                seq,
                cut,
                changes: None,
                bytes: body.as_ref().map(|body| body.len()),
                body,
                hubs: vec![told],
            }),
        }
    };
    for (hub, ledger) in &channel.ledgers {
        if let Some(flight) = &ledger.row.flight {
            let body = Arc::clone(&flight.body);
            add(flight.seq, flight.cut, Some(body), hub, Fate::Open);
        }
    }
    // A topic that ping hubs read holds more than the last notification.
    let is_page =
        !row.said.is_empty() || channel.ledgers.values().any(|own| own.mode == Mode::Ping);
    let body = (!is_page && !row.body.is_empty()).then(|| Arc::clone(&row.body));
    for (hub, ledger) in &channel.ledgers {
        if let Some(at) = accepted_at(&ledger.row, row.seq) {
            let fate = Fate::Accepted { at, attempts: None };
            let cut = row.untils.last().copied().unwrap_or(at);
            add(row.seq, cut, body.clone(), hub, fate);
        }
    }
    known
}

/// When this notification was accepted, if it was the last that the hub was asked to take.
fn accepted_at(row: &LedgerRow, seq: u64) -> Option<Timestamp> {
    let last = row.last.as_ref()?;
    (last.seq == seq && last.refusal.is_none()).then_some(last.at)
}

fn outcome(hub: &Hub, seq: u64, fate: Fate, ledger: Option<&Ledger>) -> OutcomeView {
    let view = |outcome, at, attempts, reason| OutcomeView {
        hub: hub.clone(),
        outcome,
        at,
        attempts,
        reason,
    };
    let row = ledger.map(|ledger| &ledger.row);
    let flight = row.and_then(|row| row.flight.as_ref());
    match (fate, flight) {
        (Fate::Accepted { at, attempts }, _) => view(Outcome::Accepted, Some(at), attempts, None),
        (Fate::Withdrawn, _) => view(Outcome::Withdrawn, None, None, None),
        (Fate::Open, Some(flight)) if flight.seq == seq => {
            let last = row.and_then(|row| row.last.as_ref());
            let last = last.filter(|last| last.seq == seq);
            let refusal = last.and_then(|last| last.refusal.as_ref());
            let outcome = match refusal {
                Some(_) => Outcome::Refused,
                None => Outcome::InFlight,
            };
            let reason = refusal.map(|refusal| refusal.reason.clone());
            view(
                outcome,
                last.map(|last| last.at),
                Some(flight.attempts),
                reason,
            )
        }
        // Its channel or its hub is not there any more (R13).
        (Fate::Open | Fate::Dropped, _) => view(Outcome::Dropped, None, None, None),
    }
}

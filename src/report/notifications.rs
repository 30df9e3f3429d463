//! The last notifications, and their outcomes at each hub.

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::Hub;

use crate::announce::channel::Channel;
use crate::announce::engine::Engine;
use crate::announce::history::Fate;
use crate::announce::ledger::Ledger;
use crate::report::status::notification::{NotificationView, Outcome, OutcomeView, PayloadText};

/// Returns the last notifications, the newest first.
pub fn latest(engine: &Engine) -> Vec<NotificationView> {
    let views = engine.history().iter().map(|notification| {
        // The id of a channel that was removed may be another's by now.
        let channel = engine.channels().get(notification.channel);
        let channel = channel.filter(|channel| channel.row.topic == notification.topic);
        let hubs = notification.hubs.iter().map(|(hub, fate)| {
            let ledger = channel.and_then(|channel| channel.ledgers.get(hub));
            let is_logged = channel.is_some_and(Channel::is_of_changes);
            outcome(
                hub,
                notification.seq,
                *fate,
                ledger.map(Box::as_ref),
                is_logged,
            )
        });
        NotificationView {
            kind: channel.map_or_else(ChannelKind::default, |channel| channel.row.kind),
            topic: notification.topic.clone(),
            seq: notification.seq,
            cut: notification.cut,
            changes: notification.changes,
            hubs: hubs.collect(),
            bytes: notification.bytes,
            payload: notification.body.clone().map(PayloadText),
        }
    });
    views.collect()
}

fn outcome(
    hub: &Hub,
    seq: u64,
    fate: Fate,
    ledger: Option<&Ledger>,
    is_logged: bool,
) -> OutcomeView {
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
        (Fate::Open, _) if is_logged && row.is_some_and(|row| row.position.heard < seq) => {
            view(Outcome::Due, None, None, None)
        }
        // Its channel or its hub is not there any more (R13).
        (Fate::Open | Fate::Dropped, _) => view(Outcome::Dropped, None, None, None),
    }
}

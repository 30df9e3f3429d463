//! The last notifications and their outcomes, for the report. Nothing is decided by it, and it is not saved:
//! after a restart it begins with what the state still holds.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::payload::Payload;
use resourcesync::uri::{Hub, Topic};

use crate::announce::channel::Channel;
use crate::announce::ids::ChannelId;
use crate::announce::state::LedgerRow;

/// Notifications that are kept.
pub const MAX_NOTIFICATIONS: usize = 50;
/// Bytes of payloads that are kept with them: of the oldest notifications, only that there was one.
const MAX_BYTES: usize = 4 << 20;

/// The last notifications, over all channels.
#[derive(Debug, Default)]
pub struct History {
    /// In the order in which they were made.
    notifications: VecDeque<PastNotification>,
    /// The size of the bodies that are kept.
    bytes: usize,
}

/// One notification.
pub struct PastNotification {
    pub channel: ChannelId,
    pub topic: Topic,
    pub seq: u64,
    pub cut: Timestamp,
    pub changes: Option<usize>,
    pub bytes: Option<usize>,
    /// Shared with what is in flight and served.
    pub body: Option<Arc<[u8]>>,
    pub hubs: Vec<(Hub, Fate)>,
}

/// The outcome of a notification at a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The hub's account says more, if it still has it in flight.
    Open,
    Accepted {
        at: Timestamp,
        /// Number of attempts; nothing if it was accepted before a restart.
        attempts: Option<u32>,
    },
    /// Too large for the hub (R23).
    Withdrawn,
    Dropped,
}

impl fmt::Debug for PastNotification {
    /// Leaves out the body, which would drown everything else.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PastNotification")
            .field("topic", &self.topic)
            .field("seq", &self.seq)
            .field("hubs", &self.hubs)
            .finish_non_exhaustive()
    }
}

impl History {
    /// Adds a notification, and forgets the oldest beyond the limits.
    pub fn push(&mut self, notification: PastNotification) {
        self.bytes += notification.body.as_ref().map_or(0, |body| body.len());
        self.notifications.push_back(notification);
        if self.notifications.len() > MAX_NOTIFICATIONS
            && let Some(oldest) = self.notifications.pop_front()
        {
            self.bytes -= oldest.body.map_or(0, |body| body.len());
        }
        for old in &mut self.notifications {
            if self.bytes <= MAX_BYTES {
                break;
            }
            self.bytes -= old.body.take().map_or(0, |body| body.len());
        }
    }

    /// Notes the outcome of a notification, if it is still among the last.
    pub fn note(&mut self, channel: ChannelId, seq: u64, hub: &Hub, fate: Fate) {
        let is_meant = |known: &&mut PastNotification| (known.channel, known.seq) == (channel, seq);
        let notification = self.notifications.iter_mut().rev().find(is_meant);
        let mut hubs = notification
            .into_iter()
            .flat_map(|notification| &mut notification.hubs);
        if let Some((_, known)) = hubs.find(|(name, _)| name == hub) {
            *known = fate;
        }
    }

    /// Returns the notifications, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &PastNotification> {
        self.notifications.iter().rev()
    }
}

/// Returns what a stored state holds: what is in flight, and the last notification of each channel.
pub fn recalled<'a>(channels: impl Iterator<Item = (ChannelId, &'a Channel)>) -> History {
    let mut known: Vec<PastNotification> = channels
        .flat_map(|(id, channel)| remembered(id, channel))
        .collect();
    known.sort_by_key(|known| (known.cut, known.channel, known.seq));
    let last = known.split_off(known.len().saturating_sub(MAX_NOTIFICATIONS));
    let mut history = History::default();
    for mut notification in last {
        let body = notification.body.as_deref();
        let payload = body.and_then(|body| Payload::parse(body).ok());
        let entries = payload.map(|payload| payload.entries.len());
        notification.changes = entries.or(notification.changes);
        history.push(notification);
    }
    history
}

/// Returns the last notifications of a channel as its rows have them; changes are not counted yet.
fn remembered(id: ChannelId, channel: &Channel) -> Vec<PastNotification> {
    let row = &channel.row;
    if channel.is_of_changes() {
        return logged(id, channel);
    }
    let mut known: Vec<PastNotification> = Vec::new();
    let mut add = |seq, cut: Timestamp, body: Option<Arc<[u8]>>, hub: &Hub, fate| {
        let told = (hub.clone(), fate);
        match known.iter_mut().find(|known| known.seq == seq) {
            Some(known) => known.hubs.push(told),
            None => known.push(PastNotification {
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
    let is_page = !row.said.is_empty() || channel.has_pinged();
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

/// Returns the notifications of a log, with the body of the last.
fn logged(id: ChannelId, channel: &Channel) -> Vec<PastNotification> {
    let row = &channel.row;
    let notifications = channel.log.iter().map(|(seq, logged)| {
        let hubs = channel.ledgers.iter().map(|(hub, ledger)| {
            let fate = match accepted_at(&ledger.row, seq) {
                Some(at) => Fate::Accepted { at, attempts: None },
                None => Fate::Open,
            };
            (hub.clone(), fate)
        });
        PastNotification {
            channel: id,
            topic: row.topic.clone(),
            seq,
            cut: logged.cut,
            changes: Some(logged.entries),
            bytes: Some(logged.bytes),
            body: (seq == row.seq && !row.body.is_empty()).then(|| Arc::clone(&row.body)),
            hubs: hubs.collect(),
        }
    });
    let before = channel.log.iter().count().saturating_sub(MAX_NOTIFICATIONS);
    notifications.skip(before).collect()
}

/// Returns when this notification was accepted, if it was the last that the hub was asked to take.
fn accepted_at(row: &LedgerRow, seq: u64) -> Option<Timestamp> {
    let last = row.last.as_ref()?;
    (last.seq == seq && last.refusal.is_none()).then_some(last.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notification(seq: u64, bytes: usize) -> PastNotification {
        PastNotification {
            channel: ChannelId(1),
            topic: Topic::new("https://e.org/topic/".to_owned()),
            seq,
            cut: Timestamp::UNIX_EPOCH,
            changes: Some(1),
            bytes: Some(bytes),
            body: Some(vec![b'x'; bytes].into()),
            hubs: vec![(Hub::new("https://h.example/".to_owned()), Fate::Open)],
        }
    }

    #[test]
    fn the_last_fifty_are_kept_and_of_what_they_said_four_mebibytes() {
        let mut history = History::default();
        for seq in 0..200 {
            history.push(notification(seq, if seq < 100 { 10 } else { 1 << 20 }));
            let kept: usize = history
                .iter()
                .flat_map(|notification| &notification.body)
                .map(|body| body.len())
                .sum();
            assert!(kept <= MAX_BYTES);
            assert_eq!(kept, history.bytes);
        }
        let seqs: Vec<u64> = history
            .iter()
            .map(|notification| notification.seq)
            .collect();
        assert_eq!(seqs, (150..200).rev().collect::<Vec<_>>());
        let whole = history
            .iter()
            .take_while(|notification| notification.body.is_some());
        assert_eq!(whole.count(), 4);
        assert!(
            history
                .iter()
                .skip(4)
                .all(|notification| notification.body.is_none())
        );
    }

    #[test]
    fn what_became_of_a_notification_is_noted_for_the_hub_and_forgotten_with_it() {
        let mut history = History::default();
        let hub = Hub::new("https://h.example/".to_owned());
        let other = Hub::new("https://other.example/".to_owned());
        for seq in 1..=2 {
            history.push(notification(seq, 1));
        }
        history.note(ChannelId(1), 1, &hub, Fate::Dropped);
        history.note(ChannelId(1), 2, &other, Fate::Dropped);
        history.note(ChannelId(2), 2, &hub, Fate::Dropped);
        history.note(ChannelId(1), 3, &hub, Fate::Dropped);
        let fates: Vec<Fate> = history
            .iter()
            .map(|notification| notification.hubs[0].1)
            .collect();
        assert_eq!(fates, [Fate::Open, Fate::Dropped]);
    }
}

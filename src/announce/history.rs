//! The last notifications and what became of them, for whoever looks. Nothing is decided by it, and it is not saved:
//! after a restart it begins with what the state still holds.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::announce::ids::ChannelId;
use crate::resourcesync::uri::{Hub, Topic};

/// So many are kept.
pub const MOST: usize = 50;
/// So many bytes of payloads are kept with them: of the oldest, only that there was one.
const MOST_BYTES: usize = 4 << 20;

/// The last notifications, over all channels.
#[derive(Debug, Default)]
pub struct History {
    /// In the order in which they were made.
    kept: VecDeque<Notification>,
    /// How large the bodies are that are kept.
    bytes: usize,
}

/// One notification.
pub struct Notification {
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

/// What became of a notification at a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The hub's account says more, if it still has it in flight.
    Open,
    Accepted {
        at: Timestamp,
        /// Nothing of one that was accepted before a restart.
        attempts: Option<u32>,
    },
    /// Too large for the hub (R23).
    Withdrawn,
    Dropped,
}

impl fmt::Debug for Notification {
    /// Without what it says, which would drown everything else.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notification")
            .field("topic", &self.topic)
            .field("seq", &self.seq)
            .field("hubs", &self.hubs)
            .finish_non_exhaustive()
    }
}

impl History {
    pub fn push(&mut self, notification: Notification) {
        self.bytes += notification.body.as_ref().map_or(0, |body| body.len());
        self.kept.push_back(notification);
        if self.kept.len() > MOST
            && let Some(oldest) = self.kept.pop_front()
        {
            self.bytes -= oldest.body.map_or(0, |body| body.len());
        }
        for old in &mut self.kept {
            if self.bytes <= MOST_BYTES {
                break;
            }
            self.bytes -= old.body.take().map_or(0, |body| body.len());
        }
    }

    /// Notes what became of a notification, if it is still among the last.
    pub fn note(&mut self, channel: ChannelId, seq: u64, hub: &Hub, fate: Fate) {
        let is_meant = |own: &&mut Notification| (own.channel, own.seq) == (channel, seq);
        let notification = self.kept.iter_mut().rev().find(is_meant);
        let mut hubs = notification.into_iter().flat_map(|own| &mut own.hubs);
        if let Some((_, known)) = hubs.find(|(own, _)| own == hub) {
            *known = fate;
        }
    }

    /// The newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Notification> {
        self.kept.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notification(seq: u64, bytes: usize) -> Notification {
        Notification {
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
                .flat_map(|own| &own.body)
                .map(|body| body.len())
                .sum();
            assert!(kept <= MOST_BYTES);
            assert_eq!(kept, history.bytes);
        }
        let seqs: Vec<u64> = history.iter().map(|own| own.seq).collect();
        assert_eq!(seqs, (150..200).rev().collect::<Vec<_>>());
        let whole = history.iter().take_while(|own| own.body.is_some());
        assert_eq!(whole.count(), 4);
        assert!(history.iter().skip(4).all(|own| own.body.is_none()));
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
        let fates: Vec<Fate> = history.iter().map(|own| own.hubs[0].1).collect();
        assert_eq!(fates, [Fate::Open, Fate::Dropped]);
    }
}

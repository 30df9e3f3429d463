//! Channels that outlive their advertisement to say what they still have to say (R11).

use jiff::Timestamp;

use crate::announce::channel::later;
use crate::announce::delivery::ChannelId;
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::finding::Finding;
use crate::announce::state::Retirement;
use crate::resourcesync::uri::Uri;

impl Engine {
    /// R11: a channel outlives its advertisement to say what it still has to say.
    pub(super) fn retire(&mut self, id: ChannelId, now: Timestamp) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let last_words = channel
            .ledgers
            .values()
            .flat_map(|ledger| {
                let flying = ledger.row.flight.iter().flat_map(|flight| &flight.covers);
                ledger.due.iter().chain(flying.map(|(uri, _)| uri)).cloned()
            })
            .collect();
        channel.row.retired = Some(Retirement {
            since: now,
            last_words,
        });
        let topic = channel.row.topic.clone();
        let set = channel.row.set.clone();
        // R8: its topic is free for the set that went without.
        for source in &mut self.sources {
            let without = source
                .findings
                .values()
                .flatten()
                .filter_map(|finding| match finding {
                    Finding::SharedTopic { set, topic: own } if *own == topic => Some(set.clone()),
                    _ => None,
                });
            source.stale.sets.extend(without);
        }
        self.turn.channels.insert(id);
        self.tell(Fact::ChannelRetired { topic, set });
        let ends = later(now, self.plan.retired_topic);
        self.wake_at(ends, Timer::Retired(id));
    }

    /// What was due when a channel retired is said once to each hub, and then done with.
    pub(super) fn last_words_said<'a>(
        &mut self,
        id: ChannelId,
        said: impl Iterator<Item = &'a Uri>,
    ) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let Some(retirement) = &mut channel.row.retired else {
            return;
        };
        for uri in said {
            if !channel.ledgers.values().any(|ledger| ledger.owes(uri)) {
                retirement.last_words.remove(uri);
                self.turn.channels.insert(id);
            }
        }
    }

    pub(super) fn retirement_ends(&mut self, id: ChannelId, now: Timestamp) {
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        let Some(retirement) = &channel.row.retired else {
            return;
        };
        if later(retirement.since, self.plan.retired_topic) > now {
            return;
        }
        let topic = channel.row.topic.clone();
        if let Some(ids) = self.by_set.get_mut(&channel.row.set) {
            ids.remove(&id);
        }
        if let Some(channel) = self.channels.remove(&id) {
            for ledger in channel.ledgers.into_values() {
                self.settle_account(channel.source, ledger);
            }
        }
        self.turn.channels.insert(id);
        match self
            .channels
            .iter()
            .find(|(_, other)| other.row.topic == topic)
        {
            Some((other, _)) => self.turn.serve.insert(*other),
            None => self.turn.withdraw.insert(topic),
        };
    }
}

//! Channels that outlive their advertisement to say what they still have to say (R11).

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::finding::Finding;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::{Ledger, Prepared};
use crate::announce::state::Retirement;
use crate::announce::time::later;
use crate::resourcesync::uri::{Hub, Uri};

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
        self.turn.freed.insert(topic.clone());
        self.turn.channels.insert(id);
        self.tell(Fact::ChannelRetired { topic, set });
        let ends = later(now, self.plan.retired_topic);
        self.wake_at(ends, Timer::Retired(id));
    }

    /// R8: a topic that is free is the set's that went without.
    pub(super) fn offer_freed_topics(&mut self) {
        let freed = std::mem::take(&mut self.turn.freed);
        if freed.is_empty() {
            return;
        }
        for source in &mut self.sources {
            let findings = source.findings.values().flatten();
            let without = findings.filter_map(|finding| match finding {
                Finding::SharedTopic { set, topic } if freed.contains(topic) => Some(set.clone()),
                _ => None,
            });
            source.stale.sets.extend(without);
        }
    }

    /// R11: a hub that is advertised no more hears what it was due until now, if it `is_told`; what it has told it
    /// is kept for the next one.
    pub(super) fn leave(&mut self, id: ChannelId, hub: &Hub, is_told: bool, now: Timestamp) {
        let Some(ledger) = self.ledger_mut(id, hub) else {
            return;
        };
        let mut doubtful = Vec::new();
        let last_words: BTreeSet<Uri> = match is_told {
            true => ledger.owed().cloned().collect(),
            false => {
                doubtful = ledger.withdraw();
                BTreeSet::new()
            }
        };
        ledger.due.retain(|uri| last_words.contains(uri));
        ledger.waiting.clear();
        ledger.prepared = Prepared::default();
        ledger.row.left = Some(Retirement {
            since: now,
            last_words,
        });
        let doubtful = doubtful.into_iter().map(|uri| (id, hub.clone(), uri));
        self.turn.told.extend(doubtful);
        self.turn.ledgers.insert((id, hub.clone()));
        let ends = later(now, self.plan.retired_topic);
        self.wake_at(ends, Timer::Left(id, hub.clone()));
    }

    /// A hub that had left hears everything again.
    pub(super) fn resume(&mut self, id: ChannelId, hub: &Hub) {
        if let Some(ledger) = self.ledger_mut(id, hub)
            && ledger.row.left.take().is_some()
        {
            self.turn.ledgers.insert((id, hub.clone()));
        }
    }

    /// Ends the accounts of hubs that have left and heard their last, if another one goes on.
    pub(super) fn end_accounts(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        if channel.listening().next().is_none() {
            return;
        }
        let has_ended = |ledger: &Ledger| {
            ledger.row.left.is_some() && ledger.row.flight.is_none() && ledger.due.is_empty()
        };
        let ended = channel
            .ledgers
            .extract_if(.., |_, ledger| has_ended(ledger));
        let ended: Vec<(Hub, Box<Ledger>)> = ended.collect();
        let source = channel.source;
        for (hub, ledger) in ended {
            self.turn.ledgers.insert((id, hub));
            self.turn.serve.insert(id);
            self.settle_account(source, *ledger);
        }
    }

    /// R11: what a hub that left could not be told for so long is dropped.
    pub(super) fn leaving_ends(&mut self, id: ChannelId, hub: &Hub, now: Timestamp) {
        let kept = self.plan.retired_topic;
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let topic = channel.row.topic.clone();
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let Some(left) = &mut ledger.row.left else {
            return;
        };
        if later(left.since, kept) > now {
            return;
        }
        left.last_words.clear();
        let owed: Vec<Uri> = ledger.owed().cloned().collect();
        let changes = owed.len();
        if changes > 0 {
            let source = channel.source;
            let doubtful = ledger.withdraw();
            ledger.due.clear();
            ledger.prepared = Prepared::default();
            self.turn.ledgers.insert((id, hub.clone()));
            let doubtful = doubtful.into_iter().map(|uri| (id, hub.clone(), uri));
            self.turn.told.extend(doubtful);
            self.sources[source].stale.relations.extend(owed);
            self.tell(Fact::Dropped {
                topic,
                hub: hub.clone(),
                changes,
            });
        }
        self.end_accounts(id);
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
                self.settle_account(channel.source, *ledger);
            }
        }
        self.turn.channels.insert(id);
        self.by_topic.remove(&topic);
        self.turn.withdraw.insert(topic);
    }
}

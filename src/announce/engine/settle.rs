//! What follows from what changed: relations, what each hub is due, windows.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::channel::{Channel, Window};
use crate::announce::due::{Due, due, may_become_due};
use crate::announce::engine::source::Stale;
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::state::{Hold, Record};
use crate::announce::time::later;
use crate::resourcesync::uri::{Hub, Uri};

/// A list of more entries is not gone through again each time that one of them comes or goes, but a little later, once
/// for all of them.
const LARGE: usize = 1_000;

impl Engine {
    pub(super) fn settle(&mut self, now: Timestamp) {
        for source in 0..self.sources.len() {
            self.judge_deletions(source);
        }
        // A channel that retires may leave its topic to a set of another source, and that is all.
        for _ in 0..2 {
            for source in 0..self.sources.len() {
                if self.sources[source].is_settled() {
                    self.settle_source(source, now);
                }
            }
            self.offer_freed_topics();
        }
    }

    fn settle_source(&mut self, source: usize, now: Timestamp) {
        let state = &mut self.sources[source];
        let parked = std::mem::take(&mut state.parked);
        self.turn.ready.extend(parked);
        let is_first = state.settled == 0;
        if !is_first && state.stale.is_empty() {
            return;
        }
        state.settled += 1;
        let Stale {
            mut relations,
            changed,
            previous,
            mut sets,
            baseline,
        } = std::mem::take(&mut state.stale);
        if is_first {
            relations = state.catalog.iter().map(|(uri, _)| uri.clone()).collect();
            sets.extend(state.catalog.sets());
            sets.extend(
                self.channels
                    .values()
                    .filter(|channel| channel.source == source)
                    .map(|channel| channel.row.set.clone()),
            );
        }
        let mut rerouted = state.catalog.resolve(&relations);
        self.turn
            .documents
            .extend(rerouted.iter().map(|uri| (source, uri.clone())));
        // Sets are joined by `append`, which merges: they may hold every document of the source.
        let mut affected = relations;
        affected.append(&mut rerouted);
        affected.append(&mut changed.clone());
        for uri in &affected {
            self.refresh(source, uri, changed.contains(uri), now);
        }
        self.remember_descriptions(source, &previous, &baseline, now);
        let mut affected_sets = sets.clone();
        let mut again = self.reconcile(source, sets, &previous, is_first, now);
        again.append(&mut self.fill_baseline(source, &baseline));
        if is_first {
            self.try_inherited(source, now);
        }
        for uri in &again {
            self.refresh(source, uri, changed.contains(uri), now);
        }
        affected.append(&mut again);
        affected.append(&mut affected_sets);
        // Who lists a document that came or went may have been wrong to, or not any more (R8).
        let catalog = &self.sources[source].catalog;
        let came_or_went = previous
            .iter()
            .filter(|(uri, before)| before.is_some() != catalog.is_there(uri));
        let listers = came_or_went.flat_map(|(uri, _)| catalog.listers(uri));
        let (large, small): (Vec<_>, Vec<_>) =
            listers.partition(|(_, structure)| structure.members.len() > LARGE);
        let large: BTreeSet<Uri> = large.iter().map(|(uri, _)| (*uri).clone()).collect();
        affected.extend(small.into_iter().map(|(uri, _)| uri.clone()));
        self.find_later(source, large, &affected, now);
        self.find(source, &affected, &changed, now);
        for uri in &affected {
            self.forget_if_done(source, uri);
        }
    }

    /// Compares what is seen of a document with what every hub was told of it, on every channel that must
    /// hear of it or did (R10, R22).
    pub(super) fn refresh(&mut self, source: usize, uri: &Uri, is_new: bool, now: Timestamp) {
        let Some(record) = self.sources[source].catalog.get(uri) else {
            return;
        };
        let mut is_held = false;
        for id in self.concerned(source, uri, record) {
            let hubs: Vec<Hub> = self
                .channels
                .get(&id)
                .map(|channel| channel.ledgers.keys().cloned().collect())
                .unwrap_or_default();
            for hub in hubs {
                is_held |= self.reassess(source, id, &hub, uri, is_new, now);
            }
        }
        let Some(record) = self.sources[source].catalog.get_mut(uri) else {
            return;
        };
        match (is_held, record.hold) {
            (true, Hold::Free) => {
                record.hold = Hold::Waiting { since: now };
                self.turn.documents.insert((source, uri.clone()));
                let until = later(now, self.plan.window.hold);
                self.wake_at(until, Timer::Hold(source, uri.clone()));
            }
            (false, Hold::Waiting { .. }) => {
                record.hold = Hold::Free;
                self.turn.documents.insert((source, uri.clone()));
            }
            _ => {}
        }
    }

    /// The channels that must hear of a document, or did (R10).
    pub(super) fn concerned(
        &self,
        source: usize,
        uri: &Uri,
        record: &Record,
    ) -> BTreeSet<ChannelId> {
        let heard = self.heard.get(uri).into_iter().flatten();
        let mut concerned: BTreeSet<ChannelId> = heard.copied().collect();
        for set in &record.relations.sets {
            concerned.extend(self.by_set.get(set).into_iter().flatten());
        }
        if record.is_source_description() {
            let of_source = |(_, channel): &(&ChannelId, &Channel)| channel.source == source;
            concerned.extend(self.channels.iter().filter(of_source).map(|(id, _)| *id));
        }
        concerned
    }

    /// Brings one account up to date; tells whether the change is held.
    pub(super) fn reassess(
        &mut self,
        source: usize,
        id: ChannelId,
        hub: &Hub,
        uri: &Uri,
        is_new: bool,
        now: Timestamp,
    ) -> bool {
        let Some(channel) = self.channels.get_mut(&id) else {
            return false;
        };
        let due = due(
            &self.plan.sources[source],
            &self.sources[source].catalog,
            channel,
            hub,
            uri,
        );
        let is_held = matches!(due, Due::Held);
        let is_open = may_become_due(
            &self.plan.sources[source],
            &self.sources[source].catalog,
            channel,
            hub,
            uri,
            &due,
        );
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return false;
        };
        match is_open {
            true => ledger.waiting.insert(uri.clone()),
            false => ledger.waiting.remove(uri),
        };
        match due {
            Due::Acknowledged | Due::Held | Due::Missing => {
                ledger.due.remove(uri);
            }
            Due::Absorbed(told) => {
                ledger.due.remove(uri);
                match told {
                    Some(told) => ledger.told.insert(uri.clone(), told),
                    None => ledger.told.remove(uri),
                };
                self.turn.told.insert((id, hub.clone(), uri.clone()));
                self.heard.entry(uri.clone()).or_default().insert(id);
            }
            Due::Announce(_) => {
                self.heard.entry(uri.clone()).or_default().insert(id);
                if ledger.due.insert(uri.clone()) || is_new {
                    self.touch(id, now);
                }
            }
        }
        is_held
    }

    /// R16: a change on a channel opens its window, or keeps it open.
    fn touch(&mut self, id: ChannelId, now: Timestamp) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let first = channel.window.map_or(now, |window| window.first);
        let window = Window { first, last: now };
        let closes = window.closes(&self.plan.window);
        if closes <= now {
            channel.window = None;
            self.turn.ready.insert(id);
        } else {
            let is_open = channel.window.replace(window).is_some();
            if !is_open {
                self.wake_at(closes, Timer::Window(id));
            }
        }
    }

    pub(super) fn window_closes(&mut self, id: ChannelId, now: Timestamp) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let Some(window) = channel.window else {
            return;
        };
        let closes = window.closes(&self.plan.window);
        if closes > now {
            self.wake_at(closes, Timer::Window(id));
        } else {
            channel.window = None;
            self.turn.ready.insert(id);
        }
    }

    pub(super) fn hold_expires(&mut self, source: usize, uri: &Uri, now: Timestamp) {
        let hold = self.plan.window.hold;
        let state = &mut self.sources[source];
        let Some(record) = state.catalog.get_mut(uri) else {
            return;
        };
        let Hold::Waiting { since } = record.hold else {
            return;
        };
        if later(since, hold) > now {
            return;
        }
        if record.is_missing() {
            // What is gone is not announced; if it comes back, it may be listed by then.
            let again = later(now, hold.max(Duration::from_secs(1)));
            self.wake_at(again, Timer::Hold(source, uri.clone()));
            return;
        }
        record.hold = Hold::Expired;
        let set = record.relations.sets.first().cloned();
        state.stale.changed.insert(uri.clone());
        self.turn.documents.insert((source, uri.clone()));
        self.tell(Fact::HoldExpired {
            uri: uri.clone(),
            set,
        });
    }

    /// A hub's account ended: what was deleted may be owed to nobody any more.
    pub(super) fn settle_account(&mut self, source: usize, ledger: Ledger) {
        let state = &mut self.sources[source];
        let flying = ledger
            .row
            .flight
            .into_iter()
            .flat_map(|flight| flight.covers);
        let concerned = ledger.told.into_keys().chain(ledger.due);
        let concerned = concerned.chain(flying.map(|(uri, _)| uri));
        let gone = concerned.filter(|uri| state.catalog.get(uri).is_some_and(Record::is_gone));
        state.stale.relations.extend(gone);
    }

    /// Forgets a deleted document once every hub knows.
    pub(super) fn forget_if_done(&mut self, source: usize, uri: &Uri) {
        let state = &mut self.sources[source];
        if !state.catalog.get(uri).is_some_and(Record::is_gone) {
            return;
        }
        let heard = self.heard.get(uri).cloned().unwrap_or_default();
        let is_owed = heard
            .iter()
            .filter_map(|id| self.channels.get(id))
            .any(|channel| {
                channel
                    .ledgers
                    .values()
                    .any(|ledger| ledger.told.contains_key(uri) || ledger.owes(uri))
            });
        if !is_owed {
            state.catalog.remove(uri);
            self.heard.remove(uri);
            self.turn.documents.insert((source, uri.clone()));
        }
    }
}

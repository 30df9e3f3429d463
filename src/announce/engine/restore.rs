//! Takes up where a stored state ends, as far as the plan still has a place for it (R13).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::catalog::Catalog;
use crate::announce::channel::Channel;
use crate::announce::delivery::attempt::Scope;
use crate::announce::delivery::hub_queue::{HubQueue, Outage};
use crate::announce::engine::replacement::Accounts;
use crate::announce::engine::source::{Mount, MountState, Source, Stale};
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::{Ledger, PING_APART, PING_FETCHED_WITHIN};
use crate::announce::observation::DocumentPath;
use crate::announce::plan::Mode;
use crate::announce::state::{ChannelRow, Hold, LedgerRow, MountRow, Record, State, Told};
use crate::announce::time::later;
use crate::resourcesync::payload::Payload;
use crate::resourcesync::uri::{Hub, Topic, Uri, UriMap};

/// The longest that a retry ever waits (R23).
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

impl Engine {
    /// Puts stored rows back, as far as the plan still has a place for them (R13).
    pub(super) fn restore(&mut self, state: State, now: Timestamp) {
        let State {
            mut mounts,
            documents,
            others,
            troubles,
            channels,
            ledgers,
            told,
            hubs,
        } = state;
        let mut accounts = Accounts { ledgers, told };
        self.hand_over(&mut accounts, &hubs, now);
        let Accounts { ledgers, mut told } = accounts;
        for source in &self.plan.sources {
            let configured = self
                .plan
                .channels
                .iter()
                .map(|own| own.capability_list.clone());
            let configured = configured
                .filter(|set| self.plan.may_hold(source, set))
                .collect();
            let mounts = source.mounts.iter().map(|mount| {
                let row = mounts.remove(&mount.id).unwrap_or_else(|| MountRow {
                    source: source.name.clone(),
                    directory: mount.directory.clone(),
                    prefix: mount.prefix.clone(),
                    identity: None,
                    baselined: false,
                    held_document: false,
                    swept: None,
                    candidates: None,
                });
                let looked_at = row.candidates.clone();
                let mounted = Mount {
                    status: MountState::Unknown,
                    found: None,
                    unfound: BTreeSet::new(),
                    reason: None,
                    looked_at: looked_at.filter(|before| *before != source.candidates),
                    started: now,
                    unreadable: (Vec::new(), 0),
                    fresh: Vec::new(),
                    has_other_clock: false,
                    row,
                };
                (mount.id, mounted)
            });
            self.sources.push(Source {
                catalog: Catalog::new(configured),
                mounts: mounts.collect(),
                troubles: BTreeMap::new(),
                stale: Stale::default(),
                away: UriMap::default(),
                parked: BTreeSet::new(),
                described: BTreeMap::new(),
                explained: UriMap::default(),
                told_findings: BTreeSet::new(),
                told_kinds: BTreeMap::new(),
                stale_findings: BTreeSet::new(),
                suspended: false,
                findings: BTreeMap::new(),
                settled: 0,
            });
        }
        let rows = mounts.into_keys().map(|id| (id, None));
        self.turn.save.mounts.extend(rows);
        let excluded = others.into_keys().filter(|path| !self.is_candidate(path));
        let rows: Vec<_> = excluded.map(|path| (path, None)).collect();
        self.turn.save.others.extend(rows);
        for (uri, mut record) in documents {
            // A baseline that was not finished is taken again.
            match self.baselined_source(&uri, &record) {
                Some(source) => {
                    if let Hold::Waiting { since } = &mut Arc::make_mut(&mut record).hold {
                        // The clock may have gone back since.
                        *since = (*since).min(now);
                        let until = later(*since, self.plan.window.hold);
                        self.wake_at(until, Timer::Hold(source, uri.clone()));
                    }
                    self.sources[source].catalog.restore(uri, record);
                }
                None => {
                    self.turn.save.documents.insert(uri, None);
                }
            }
        }
        for (uri, trouble) in troubles {
            let source = self.source_of(trouble.path.mount);
            match source.filter(|_| self.is_candidate(&trouble.path)) {
                Some(source) => {
                    let broken_after = self.plan.sources[source].broken_after;
                    // It may have been mended meanwhile: the first look tells.
                    self.wake_at(later(now, broken_after), Timer::Broken(source, uri.clone()));
                    self.sources[source].troubles.insert(uri, trouble);
                }
                None => {
                    self.turn.save.troubles.insert(uri, None);
                }
            }
        }
        if let Some(last) = channels.keys().next_back() {
            self.next_channel = ChannelId(last.0 + 1);
        }
        let mut rows: BTreeMap<ChannelId, BTreeMap<Hub, LedgerRow>> = BTreeMap::new();
        for ((id, hub), ledger) in ledgers {
            rows.entry(id).or_default().insert(hub, ledger);
        }
        let channels = self.with_one_for_each_topic(channels, &mut told);
        for (id, row) in channels {
            let ledgers = rows.remove(&id).unwrap_or_default();
            self.restore_channel(id, row, ledgers, &mut told, now);
        }
        let hubs: Vec<Hub> = self.plan.hubs.iter().map(|own| own.hub.clone()).collect();
        for hub in hubs {
            self.restore_queue(hub);
        }
    }

    /// A hub that failed when the state was saved is taken to fail still, until it is asked (R23).
    fn restore_queue(&mut self, hub: Hub) {
        let ledgers = self
            .channels
            .values()
            .filter_map(|own| own.ledgers.get(&hub));
        let rows: Vec<&LedgerRow> = ledgers.map(|ledger| &ledger.row).collect();
        let accepted = rows.iter().filter_map(|row| row.accepted).max();
        let failing = rows.iter().filter_map(|row| {
            let last = row.last.as_ref()?;
            let flight = row
                .flight
                .as_ref()
                .filter(|flight| flight.seq == last.seq)?;
            let is_later = accepted.is_none_or(|accepted| accepted < last.at);
            (is_later && last.scope() == Some(Scope::Hub)).then_some((flight, last))
        });
        let failing: Vec<_> = failing.collect();
        let attempts = failing.iter().map(|(flight, _)| flight.attempts).sum();
        let since = failing.iter().map(|(flight, _)| flight.cut).min();
        let latest = failing.iter().max_by_key(|(_, last)| last.at);
        let outage = latest.zip(since).and_then(|((flight, last), since)| {
            let refusal = last.refusal.clone()?;
            Some(Outage::resumed(since, attempts, refusal, flight.next_try))
        });
        let mut queue = HubQueue::default();
        if let Some(accepted) = accepted {
            queue.resume_accepted(accepted);
        }
        if let Some(outage) = outage {
            queue.resume(outage);
        }
        self.queues.insert(hub, queue);
    }

    /// Earlier versions kept several channels of one topic: the live one, else the one that retired last, says what
    /// the others still had to say.
    fn with_one_for_each_topic(
        &mut self,
        mut channels: BTreeMap<ChannelId, ChannelRow>,
        told: &mut BTreeMap<(ChannelId, Hub), BTreeMap<Uri, Told>>,
    ) -> BTreeMap<ChannelId, ChannelRow> {
        let mut by_topic: BTreeMap<Topic, Vec<ChannelId>> = BTreeMap::new();
        for (id, row) in &channels {
            by_topic.entry(row.topic.clone()).or_default().push(*id);
        }
        for mut ids in by_topic.into_values().filter(|ids| ids.len() > 1) {
            ids.sort_by_key(|id| {
                let retired = channels[id].retired.as_ref().map(|retired| retired.since);
                (retired.is_none(), retired, std::cmp::Reverse(*id))
            });
            let Some(kept) = ids.pop() else {
                continue;
            };
            for id in ids {
                let Some(row) = channels.remove(&id) else {
                    continue;
                };
                self.turn.save.channels.insert(id, None);
                let last_words = row
                    .retired
                    .map(|retired| retired.last_words)
                    .unwrap_or_default();
                let hubs: Vec<Hub> = self.plan.hubs.iter().map(|own| own.hub.clone()).collect();
                for hub in hubs {
                    let theirs = told.remove(&(id, hub.clone())).unwrap_or_default();
                    let ours = told.entry((kept, hub.clone())).or_default();
                    for (uri, version) in theirs {
                        if last_words.contains(&uri) && !ours.contains_key(&uri) {
                            self.turn.told.insert((kept, hub.clone(), uri.clone()));
                            ours.insert(uri, version);
                        }
                    }
                }
                if let Some(kept) = channels.get_mut(&kept) {
                    kept.seq = kept.seq.max(row.seq);
                    kept.untils.splice(..0, row.untils);
                }
                self.turn.channels.insert(kept);
            }
        }
        channels
    }

    fn baselined_source(&self, uri: &Uri, record: &Record) -> Option<usize> {
        let source = self.source_of(record.path.mount)?;
        let mount = self.sources[source].mounts.get(&record.path.mount)?;
        let is_ours = self.plan.uri_of(&record.path).as_ref() == Some(uri);
        let is_baselined = !mount.is_new_ground(&record.path.below);
        (is_baselined && is_ours && self.is_candidate(&record.path)).then_some(source)
    }

    /// Whether the plan still wants this path looked at.
    fn is_candidate(&self, path: &DocumentPath) -> bool {
        let source = self.plan.source_of(path.mount);
        source.is_some_and(|(_, source)| source.accepts(path))
    }

    fn restore_channel(
        &mut self,
        id: ChannelId,
        mut row: ChannelRow,
        rows: BTreeMap<Hub, LedgerRow>,
        told: &mut BTreeMap<(ChannelId, Hub), BTreeMap<Uri, Told>>,
        now: Timestamp,
    ) {
        let source = self.plan.sources.iter().position(|source| {
            source.name == row.source
                && (self.plan.may_hold(source, &row.set) || row.retired.is_some())
        });
        let Some(source) = source else {
            self.turn.save.channels.insert(id, None);
            return;
        };
        if let Some(retirement) = &mut row.retired {
            retirement.since = retirement.since.min(now);
            let ends = later(retirement.since, self.plan.retired_topic);
            self.wake_at(ends, Timer::Retired(id));
        }
        for said in &mut row.said {
            said.at = said.at.min(now);
        }
        let set = row.set.clone();
        let mut channel = Channel {
            row,
            source,
            ledgers: BTreeMap::new(),
            window: None,
            page: Vec::new(),
            page_until: None,
        };
        self.by_topic.insert(channel.row.topic.clone(), id);
        for (hub, mut row) in rows {
            let Some(mode) = self.mode_of(&hub) else {
                let flying = row.flight.as_ref().map_or(0, |flight| flight.entries);
                let told = told.remove(&(id, hub.clone())).unwrap_or_default();
                let is_changed =
                    |(uri, told): &(&Uri, &Told)| self.is_behind(source, uri, Some(told));
                let changes = flying.max(told.iter().filter(is_changed).count());
                if changes > 0 {
                    let topic = channel.row.topic.clone();
                    let hub = hub.clone();
                    self.tell(Fact::Dropped {
                        topic,
                        hub,
                        changes,
                    });
                }
                self.turn.ledgers.insert((id, hub));
                continue;
            };
            let mut ledger = Ledger::new(mode);
            ledger.told = told.remove(&(id, hub.clone())).unwrap_or_default();
            let catalog = &self.sources[source].catalog;
            ledger.told.retain(|uri, _| {
                let is_known = catalog.get(uri).is_some();
                if !is_known {
                    self.turn.told.insert((id, hub.clone(), uri.clone()));
                }
                is_known
            });
            let last_words = match (&row.left, &channel.row.retired) {
                (Some(left), _) => {
                    let ends = later(left.since, self.plan.retired_topic);
                    self.timers.insert((ends, Timer::Left(id, hub.clone())));
                    Some(&left.last_words)
                }
                (None, Some(retirement)) => Some(&retirement.last_words),
                (None, None) => None,
            };
            let last_words = last_words.into_iter().flatten();
            for uri in last_words {
                if self.is_behind(source, uri, ledger.told.get(uri)) {
                    ledger.due.insert(uri.clone());
                    self.sources[source].parked.insert(id);
                }
            }
            for uri in ledger.told.keys().chain(&ledger.due) {
                self.heard.entry(uri.clone()).or_default().insert(id);
            }
            if let Some(flight) = &mut row.flight {
                // A clock that went back must not silence a hub.
                if flight.cut > now {
                    (flight.cut, flight.next_try) = (now, now);
                }
                let latest = later(now, LONGEST_WAIT);
                flight.next_try = flight.next_try.min(latest);
                if !self.inherited.contains(&hub) {
                    self.timers
                        .insert((flight.next_try, Timer::Try(id, hub.clone())));
                }
                for (uri, _) in &flight.covers {
                    self.heard.entry(uri.clone()).or_default().insert(id);
                }
            }
            if let Some(ping) = &mut row.ping {
                ping.at = ping.at.min(now);
                for wait in [PING_APART, PING_FETCHED_WITHIN] {
                    let at = later(ping.at, wait);
                    self.timers.insert((at, Timer::Ping(id, hub.clone())));
                }
            }
            ledger.in_doubt = row.flight.is_some();
            ledger.row = row;
            channel.ledgers.insert(hub, Box::new(ledger));
        }
        if channel.ledgers.keys().any(|hub| channel.is_pinged(hub)) {
            let served = Payload::parse(&channel.row.body).unwrap_or_default();
            channel.page = served.entries;
            channel.page_until = served.until;
        }
        self.by_set.entry(set).or_default().insert(id);
        self.channels.insert(id, channel);
        self.turn.serve.insert(id);
    }

    /// Whether a stored document differs from what was told of it.
    fn is_behind(&self, source: usize, uri: &Uri, told: Option<&Told>) -> bool {
        let record = self.sources[source].catalog.get(uri);
        let seen = record.filter(|record| !record.is_gone());
        told.copied() != seen.map(|record| Told::from(record.version))
    }

    pub(super) fn mode_of(&self, hub: &Hub) -> Option<Mode> {
        self.plan
            .hubs
            .iter()
            .find(|own| own.hub == *hub)
            .map(|own| own.mode)
    }
}

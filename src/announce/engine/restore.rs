//! Restoration of a stored state, as far as the plan still has its sources, channels and hubs (R13).

use std::collections::BTreeMap;
use std::sync::Arc;

use resourcesync::channel_kind::ChannelKind;
use resourcesync::payload::Payload;
use resourcesync::uri::{Hub, Topic, Uri};

use crate::announce::changes::log::{ChangeLog, Logged};
use crate::announce::channel::Channel;
use crate::announce::difference::{Difference, Permission, difference};
use crate::announce::engine::change_sets::ChangeSets;
use crate::announce::engine::channels::Channels;
use crate::announce::engine::outbox::page;
use crate::announce::engine::replacement::{Accounts, HubChanges};
use crate::announce::engine::source_list::Sources;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::{Ledger, PING_APART, PING_FETCHED_WITHIN};
use crate::announce::plan::{Mode, Plan};
use crate::announce::state::{
    ChangeListRow, ChangeSetRow, ChannelRow, LedgerRow, Record, State, Told,
};
use crate::announce::time::later;

/// The versions that hubs were told of, by channel.
type AllTold = BTreeMap<(ChannelId, Hub), BTreeMap<Uri, Told>>;

/// The parts of the engine that a stored state has.
pub struct Restored {
    pub sources: Sources,
    pub channels: Channels,
    pub change_sets: ChangeSets,
    pub hub_changes: HubChanges,
}

/// Restores stored rows, as far as the plan still has what they belong to.
pub fn restore(state: State, plan: &Plan, step: &mut Step) -> Restored {
    let State {
        mounts,
        documents,
        other_files,
        troubles,
        channels,
        ledgers,
        told,
        hubs,
        change_sets,
        change_lists,
        change_log,
        clock: _,
    } = state;
    let mut accounts = Accounts { ledgers, told };
    let hub_changes = HubChanges::new(plan, &hubs, &mut accounts, step);
    let Accounts { ledgers, told } = accounts;

    let mut sources = Sources::new(plan, mounts, step);
    sources.forget_other_files(other_files.into_keys(), step);
    let forgotten = sources.restore_documents(documents, plan.window.hold, step);
    sources.restore_troubles(troubles, step);
    let mut restorer = ChannelRestorer {
        plan,
        sources: &sources,
        forgotten: ForgottenDocuments::new(&forgotten),
        hub_changes: &hub_changes,
        channels: Channels::default(),
        step,
    };
    restorer.channels(channels, ledgers, told, change_log);
    let channels = restorer.channels;
    let change_sets = restore_change_sets(&channels, change_sets, change_lists, step);
    Restored {
        sources,
        channels,
        change_sets,
        hub_changes,
    }
}

/// Puts the sets with a change channel back, and forgets the others.
fn restore_change_sets(
    channels: &Channels,
    sets: BTreeMap<Uri, ChangeSetRow>,
    mut lists: BTreeMap<Uri, BTreeMap<Uri, ChangeListRow>>,
    step: &mut Step,
) -> ChangeSets {
    let mut change_sets = ChangeSets::default();
    for (set, row) in sets {
        let channel = channels.of_set(&set, ChannelKind::Change).next();
        let lists = lists.remove(&set).unwrap_or_default();
        match channel {
            Some((_, channel)) => change_sets.restore(set, channel.source, row, lists, step),
            None => {
                step.rows().change_sets.insert(set, None);
            }
        }
    }
    let channels = channels.iter().map(|(_, channel)| channel);
    for channel in channels.filter(|channel| channel.is_of_changes()) {
        change_sets.open(&channel.row.set, channel.source);
    }
    change_sets
}

/// Documents that are no longer configured, as they were last seen.
struct ForgottenDocuments<'a> {
    records: &'a BTreeMap<Uri, Arc<Record>>,
    of_sets: BTreeMap<&'a Uri, Vec<&'a Uri>>,
}

impl<'a> ForgottenDocuments<'a> {
    fn new(records: &'a BTreeMap<Uri, Arc<Record>>) -> Self {
        let mut of_sets: BTreeMap<&Uri, Vec<&Uri>> = BTreeMap::new();
        for (uri, record) in records {
            for set in record.relations.sets.iter() {
                of_sets.entry(set).or_default().push(uri);
            }
        }
        ForgottenDocuments { records, of_sets }
    }

    /// Returns the number of these documents with a change that was due to a hub on a channel, and is not in flight.
    fn due(&self, channel: &ChannelRow, ledger: &LedgerRow, told: &BTreeMap<Uri, Told>) -> usize {
        if self.records.is_empty() {
            return 0;
        }
        let known = told.keys().filter(|uri| self.records.contains_key(*uri));
        let of_set = self.of_sets.get(&channel.set).into_iter().flatten();
        let unknown = of_set.copied().filter(|uri| !told.contains_key(*uri));
        let still_due = ledger.still_due.as_ref();
        let concerned = known
            .chain(unknown)
            .filter(|uri| still_due.is_none_or(|still_due| still_due.contains(*uri)));
        let due = concerned.filter(|uri| self.is_due(&channel.set, ledger, uri, told.get(*uri)));
        due.count()
    }

    fn is_due(&self, set: &Uri, ledger: &LedgerRow, uri: &Uri, told: Option<&Told>) -> bool {
        let Some(record) = self.records.get(uri) else {
            return false;
        };
        let seen = Some(&record.version).filter(|_| !record.is_gone());
        let is_heard = record.relations.sets.contains(set) || record.is_source_description();
        let permission = Permission {
            archived: record.relations.archived,
            all_deletions: false,
        };
        let covers = ledger.flight.iter().flat_map(|flight| &flight.covers);
        let becomes = seen.copied().map(Told::from);
        let mut flying = covers.filter(|(covered, told)| covered == uri && *told == becomes);
        (is_heard || seen.is_none())
            && matches!(difference(told, seen, permission), Difference::Say(_))
            && flying.next().is_none()
    }
}

/// Puts stored channels back, with the accounts of their hubs.
struct ChannelRestorer<'a> {
    plan: &'a Plan,
    sources: &'a Sources,
    forgotten: ForgottenDocuments<'a>,
    hub_changes: &'a HubChanges,
    channels: Channels,
    step: &'a mut Step,
}

impl ChannelRestorer<'_> {
    fn channels(
        &mut self,
        channels: BTreeMap<ChannelId, ChannelRow>,
        ledgers: BTreeMap<(ChannelId, Hub), LedgerRow>,
        mut told: AllTold,
        mut logs: BTreeMap<ChannelId, BTreeMap<u64, Logged>>,
    ) {
        if let Some(last) = channels.keys().next_back() {
            self.channels.reserve(*last);
        }
        // Both are in order of channels.
        let mut ledgers = ledgers.into_iter().peekable();
        for (id, row) in channels {
            while ledgers.next_if(|((of, _), _)| *of < id).is_some() {}
            let own = || ledgers.next_if(|((of, _), _)| *of == id);
            let rows = std::iter::from_fn(own).map(|((_, hub), row)| (hub, row));
            match self.source_of_channel(&row) {
                Some(position) => {
                    let log = logs.remove(&id).unwrap_or_default();
                    self.channel(id, position, row, rows, &mut told, log);
                }
                None => {
                    let log = ChangeLog::new(logs.remove(&id).unwrap_or_default());
                    for (hub, ledger) in rows {
                        let told = told.remove(&(id, hub.clone())).unwrap_or_default();
                        let flying = ledger.flight.as_ref().map_or(0, |flight| flight.entries);
                        let logged = match row.kind {
                            ChannelKind::Framework => 0,
                            ChannelKind::Change => log.backlog(&ledger.position).entries,
                        };
                        let changes = self.forgotten.due(&row, &ledger, &told);
                        self.tell_forgotten(&row.topic, &hub, logged.max(flying + changes));
                    }
                    self.step.rows().channels.insert(id, None);
                }
            }
        }
    }

    fn tell_forgotten(&mut self, topic: &Topic, hub: &Hub, changes: usize) {
        if changes > 0 {
            self.step.tell(Fact::Forgotten {
                topic: topic.clone(),
                hub: hub.clone(),
                changes,
            });
        }
    }

    /// Returns the source that a stored channel belongs to, if it still may.
    fn source_of_channel(&self, row: &ChannelRow) -> Option<usize> {
        self.plan.sources.iter().position(|source| {
            source.name == row.source
                && (self.plan.may_hold(source, &row.set) || row.retired.is_some())
        })
    }

    fn channel(
        &mut self,
        id: ChannelId,
        position: usize,
        row: ChannelRow,
        rows: impl Iterator<Item = (Hub, LedgerRow)>,
        told: &mut AllTold,
        log: BTreeMap<u64, Logged>,
    ) {
        let now = self.step.now();
        if row.retired.is_some() {
            self.step.wake_at(now, Timer::Retired(id));
        }
        let mut channel = Channel::new(position, row);
        channel.log = ChangeLog::new(log);
        for (hub, row) in rows {
            let told = told.remove(&(id, hub.clone())).unwrap_or_default();
            match self.plan.mode_of(&hub) {
                Some(mode) => {
                    let ledger = self.ledger(id, &channel, &hub, mode, row, told);
                    channel.ledgers.insert(hub, Box::new(ledger));
                }
                None => self.drop_account(id, &channel, hub, &row, &told),
            }
        }
        if channel.is_of_changes() {
            self.channels.cuts.set_ready(id);
        } else if channel.has_pinged() {
            let served = Payload::parse(&channel.row.body).unwrap_or_default();
            channel.page = served.entries;
            channel.page_until = served.until;
            let ledgers = channel.ledgers.values_mut();
            for ledger in ledgers.filter(|ledger| ledger.awaits_fetch(now)) {
                let served = channel.page.iter().map(|entry| entry.uri.clone());
                ledger.unfetched = served.collect();
            }
        }
        self.channels.restore(id, channel);
        self.step.serve_restored(id);
    }

    /// Drops the account of a hub that is no longer configured.
    fn drop_account(
        &mut self,
        id: ChannelId,
        channel: &Channel,
        hub: Hub,
        row: &LedgerRow,
        told: &BTreeMap<Uri, Told>,
    ) {
        let flying = row.flight.as_ref().map_or(0, |flight| flight.entries);
        let is_behind =
            |(uri, told): &(&Uri, &Told)| self.is_behind(channel.source, uri, Some(told));
        let logged = channel.log.backlog(&row.position).entries;
        let logged = if channel.is_of_changes() { logged } else { 0 };
        let changes = flying.max(told.iter().filter(is_behind).count());
        let changes = changes.max(logged);
        if changes > 0 {
            self.step.tell(Fact::Dropped {
                topic: channel.row.topic.clone(),
                hub: hub.clone(),
                changes,
            });
        }
        self.step.save_ledger(id, hub);
    }

    fn ledger(
        &mut self,
        id: ChannelId,
        channel: &Channel,
        hub: &Hub,
        mode: Mode,
        row: LedgerRow,
        told: BTreeMap<Uri, Told>,
    ) -> Ledger {
        let position = channel.source;
        let changes = self.forgotten.due(&channel.row, &row, &told);
        self.tell_forgotten(&channel.row.topic, hub, changes);
        let mut ledger = Ledger::new(mode);
        ledger.told = told;
        let catalog = self.sources[position].catalog();
        ledger.told.retain(|uri, _| {
            let is_known = catalog.get(uri).is_some();
            if !is_known {
                self.step.save_told(id, hub.clone(), uri.clone());
            }
            is_known
        });
        if row.left.is_some() {
            let now = self.step.now();
            self.step.wake_at(now, Timer::Left(id, hub.clone()));
        }
        ledger.in_doubt = row.flight.is_some();
        ledger.row = row;
        // R25: the hub would be pinged about what it cannot fetch; it was not pinged before.
        let flight = ledger.row.flight.as_ref();
        if mode == Mode::Ping && flight.is_some_and(|flight| page::lacks(&channel.row.body, flight))
        {
            let catalog = self.sources[position].catalog();
            for uri in ledger.withdraw(|uri| catalog.is_away(uri)).doubtful {
                self.step.save_told(id, hub.clone(), uri);
            }
            self.step.save_ledger(id, hub.clone());
        }
        if let Some(still_due) = &mut ledger.row.still_due {
            still_due.retain(|uri| catalog.get(uri).is_some());
            let covers = ledger.row.flight.iter().flat_map(|flight| &flight.covers);
            for uri in still_due.iter().chain(covers.map(|(uri, _)| uri)) {
                if catalog.seen(uri) != ledger.told.get(uri).copied() {
                    ledger.due.insert(uri.clone());
                }
            }
            self.channels.cuts.park(id);
        }
        self.set_timers(id, hub, &mut ledger.row);
        ledger
    }

    /// Sets the timers of an account. What is in flight is retried at once (R23).
    fn set_timers(&mut self, id: ChannelId, hub: &Hub, row: &mut LedgerRow) {
        let now = self.step.now();
        if let Some(flight) = &mut row.flight {
            flight.next_try = now;
            if !self.hub_changes.is_inherited(hub) {
                self.step.wake_at(now, Timer::Try(id, hub.clone()));
            }
        }
        if let Some(ping) = row.ping {
            for wait in [PING_APART, PING_FETCHED_WITHIN] {
                let at = later(ping.at, wait);
                self.step.wake_at(at, Timer::Ping(id, hub.clone()));
            }
        }
    }

    /// Returns true if a stored document differs from what was told of it.
    fn is_behind(&self, position: usize, uri: &Uri, told: Option<&Told>) -> bool {
        let record = self.sources[position].catalog().get(uri);
        let seen = record.filter(|record| !record.is_gone());
        told.copied() != seen.map(|record| Told::from(record.version))
    }
}

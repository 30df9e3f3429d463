//! Change channels: opens and retires them, takes what is fresh in the Change Lists of their sets, and sends each hub what
//! it has not heard of the log (C1 to C26).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::changes::interval::{FreshChange, Interval, IntervalLimits, intervals};
use crate::announce::changes::inventory::{DeletionRules, INVENTORY_QUIET, MissingResources};
use crate::announce::changes::log::{Backlog, LogPart, Logged};
use crate::announce::changes::round::{
    AHEAD, ListToRead, ROUND, TakeOutcome, TakeRequest, Taken, TakenList, TakenRound,
    UndatedChanges,
};
use crate::announce::desired_channel::Desired;
use crate::announce::engine::Engine;
use crate::announce::engine::change_sets::ChangeSet;
use crate::announce::engine::source::changes::Changes;
use crate::announce::event::Fact;
use crate::announce::finding::Finding;
use crate::announce::history::{Fate, Notification};
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::plan::{ChangeWindowPlan, Mode};
use crate::announce::state::{ChannelRow, Flight, LogRow, Ping, Presence, Record};
use crate::announce::time::{earlier, later};
use crate::resourcesync::capability::Capability;
use crate::resourcesync::change_payload::ChangePayload;
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::document::Form;
use crate::resourcesync::payload::ChangeKind;
use crate::resourcesync::uri::{Hub, Topic, Uri};

impl Engine {
    // Channels that come and go (C9, C10, C12).

    /// Brings the change channels of sets in line with what is wanted.
    pub(super) fn route_changes(
        &mut self,
        position: usize,
        wanted: Vec<(Uri, Desired)>,
        is_first: bool,
    ) {
        for (set, desired) in wanted {
            let live = self.channels.live(&set, ChannelKind::Change);
            let (topic, hubs) = match (desired, live) {
                (Desired::AsItIs, _) | (Desired::Nothing, None) => continue,
                (Desired::Nothing, Some(live)) => {
                    self.retire_changes(live);
                    continue;
                }
                (Desired::Channel { topic, hubs }, _) => (topic, hubs),
            };
            let channel = live.and_then(|id| Some((id, self.channels.get(id)?)));
            let mut moved_from = None;
            if let Some((id, channel)) = channel {
                if channel.is_as(&topic, &hubs) {
                    continue;
                }
                if channel.row.topic != topic {
                    self.retire_changes(id);
                    moved_from = Some(id);
                }
            }
            let hubs = hubs.into_iter().collect();
            self.open_changes(position, &set, topic, &hubs, moved_from, is_first);
        }
    }

    /// Retires a change channel, which hears first what is fresh now (C12).
    fn retire_changes(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get(id) else {
            return;
        };
        let (set, source) = (channel.row.set.clone(), channel.source);
        // What changed in this step is noted later in it.
        if !self.lists_to_read(source, &set, true).is_empty() {
            let window = &self.plan.window.changes;
            self.change_sets.sign(&set, window, &mut self.step);
        }
        self.change_sets.give_last_words(&set, id, &mut self.step);
        self.channels
            .retire(id, self.plan.retired_topic, &mut self.step);
    }

    fn open_changes(
        &mut self,
        position: usize,
        set: &Uri,
        topic: Topic,
        hubs: &BTreeSet<Hub>,
        moved_from: Option<ChannelId>,
        is_first: bool,
    ) {
        let fact = Fact::ChannelOpened {
            topic: topic.clone(),
            set: set.clone(),
            hubs: hubs.len(),
        };
        let existing = self.channels.of_topic(&topic);
        let existing = existing.and_then(|id| Some((id, self.channels.get(id)?)));
        let found = existing.map(|(id, channel)| {
            let is_own = channel.row.set == *set;
            (id, channel.is_of_changes(), is_own, channel.row.set.clone())
        });
        let mut is_changed = true;
        let id = match found {
            Some((id, true, true, _)) => {
                is_changed = self.channels.revive(id, &mut self.step);
                id
            }
            Some((id, true, false, before)) => {
                let source = &self.plan.sources[position].name;
                self.channels
                    .take_over(id, position, source, set, &mut self.step);
                self.forget_set_without_channel(&before);
                self.step.tell(fact);
                id
            }
            other => {
                if let Some((id, ..)) = other {
                    self.remove_channel(id);
                }
                let row = ChannelRow {
                    source: self.plan.sources[position].name.clone(),
                    kind: ChannelKind::Change,
                    set: set.clone(),
                    topic,
                    retired: None,
                    seq: 0,
                    untils: Vec::new(),
                    body: Arc::from([]),
                    said: Vec::new(),
                };
                self.step.tell(fact);
                self.channels.open(position, row, &mut self.step)
            }
        };
        let before = moved_from.and_then(|id| self.channels.get(id));
        let until = before.and_then(|channel| channel.row.untils.last().copied());
        if let Some(until) = until {
            self.go_on_from(id, until);
        }
        is_changed |= self.change_hubs(id, hubs, is_first);
        if is_changed {
            self.step.serve(id);
        }
        self.change_sets.open(set, position);
        // A channel that revives tells what came meanwhile.
        let window = &self.plan.window.changes;
        self.change_sets.sign(set, window, &mut self.step);
    }

    /// C12: begins the next interval of a channel where its set was told of last, on another topic.
    fn go_on_from(&mut self, id: ChannelId, until: Timestamp) {
        if let Some(channel) = self.channels.get_mut(id)
            && channel.row.untils.last() < Some(&until)
        {
            channel.row.untils = vec![until];
            self.step.save_channel(id);
        }
    }

    /// Lets hubs that are advertised no more leave, and others join. Returns true if any did.
    fn change_hubs(&mut self, id: ChannelId, hubs: &BTreeSet<Hub>, is_first: bool) -> bool {
        let Some(channel) = self.channels.get(id) else {
            return false;
        };
        let listening: BTreeSet<Hub> = channel.listening().map(|(hub, _)| hub.clone()).collect();
        let known: BTreeSet<Hub> = channel.ledgers.keys().cloned().collect();
        for hub in listening.difference(hubs) {
            let is_inherited = is_first && self.hub_changes.is_inherited(hub);
            let kept = self.plan.retired_topic;
            self.channels
                .leave(id, hub, !is_inherited, kept, &mut self.step);
        }
        for hub in hubs.difference(&listening) {
            self.join(id, hub, None, known.contains(hub));
        }
        if listening == *hubs {
            return false;
        }
        self.end_accounts(id);
        self.channels.set_ready(id);
        true
    }

    /// Removes a channel whose topic another one has now, with all that was due on it.
    pub(super) fn remove_channel(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.remove(id, &mut self.step) {
            for ledger in channel.ledgers.values() {
                self.sources[channel.source].account_ended(ledger);
            }
            if channel.is_of_changes() {
                self.forget_set_without_channel(&channel.row.set);
            }
        }
    }

    fn forget_set_without_channel(&mut self, set: &Uri) {
        let mut channels = self.channels.of_set(set, ChannelKind::Change);
        if channels.next().is_none() {
            self.change_sets.remove(set, &mut self.step);
        }
    }

    // Change Lists.

    /// Notes which Change Lists changed, came or ended (C6, C7, C11).
    pub(super) fn note_change_lists(
        &mut self,
        position: usize,
        affected: &BTreeSet<Uri>,
        changes: &Changes,
        is_first: bool,
    ) {
        let window = self.plan.window.changes.clone();
        let plan = &self.plan.sources[position];
        let (grace, compares_lists) = (plan.deletion_grace, plan.changes_from_resource_lists);
        let mut known_lists = Vec::new();
        if is_first {
            let sets: Vec<Uri> = self.change_sets.of_source(position).cloned().collect();
            for set in sets {
                if compares_lists {
                    self.change_sets.look_for_missing(&set, &mut self.step);
                }
                self.change_sets.sign(&set, &window, &mut self.step);
                let known = self.change_sets.get(&set).into_iter();
                known_lists.extend(known.flat_map(ChangeSet::known_lists).cloned());
            }
        }
        for uri in affected.iter().chain(&known_lists) {
            let catalog = self.sources[position].catalog();
            let record = catalog.get(uri);
            let is_resource_list = record.is_some_and(is_resource_list);
            if compares_lists && is_resource_list {
                self.note_resource_list(position, uri, changes);
                continue;
            }
            let Some(record) = record.filter(|record| !record.is_gone()) else {
                self.change_sets.forget_list(uri, &mut self.step);
                continue;
            };
            // What it had may stand in other lists now, as in the components of an index.
            if !is_change_list(record) {
                self.change_sets.end_list(uri, grace, &mut self.step);
                continue;
            }
            self.change_sets.revive_list(uri);
            for set in &record.relations.sets {
                let Some(known) = self.change_sets.get(set) else {
                    continue;
                };
                if known.has_taken(uri, record.version.fingerprint) {
                    continue;
                }
                if changes.baseline.contains_key(uri) {
                    self.change_sets.learn(set, uri, &mut self.step);
                }
                self.change_sets.sign(set, &window, &mut self.step);
            }
        }
    }

    /// Notes that a Resource List changed or ended, of a set of which these are compared (C27).
    fn note_resource_list(&mut self, position: usize, uri: &Uri, changes: &Changes) {
        let catalog = self.sources[position].catalog();
        let Some(record) = catalog.get(uri) else {
            return;
        };
        let window = inventory_window();
        let listed = self.change_sets.of_list(uri);
        for set in record.relations.sets.iter().chain(&listed) {
            let Some(known) = self.change_sets.get(set) else {
                continue;
            };
            if !record.is_gone() && known.has_taken(uri, record.version.fingerprint) {
                continue;
            }
            if changes.baseline.contains_key(uri) {
                self.change_sets.learn(set, uri, &mut self.step);
            }
            self.change_sets.sign(set, &window, &mut self.step);
        }
    }

    /// Returns the rules for an inventory, if a set has Resource Lists and no Change List, and the source wants it (C27).
    fn inventory_rules(&self, position: usize, set: &Uri) -> Option<DeletionRules> {
        let plan = &self.plan.sources[position];
        let known = self.change_sets.get(set)?;
        if !plan.changes_from_resource_lists {
            return None;
        }
        let catalog = self.sources[position].catalog();
        let members = catalog.members(set);
        let mut records = members.iter().filter_map(|uri| catalog.get(uri));
        let has_change_list = records
            .any(|record| !record.is_gone() && record.version.capability == Capability::ChangeList);
        (!has_change_list).then_some(DeletionRules {
            grace: plan.deletion_grace,
            mass_deletion: plan.mass_deletion,
            is_accepted: known.is_accepted(),
        })
    }

    /// Returns all Resource Lists of a set, if any has changed or missing resources are to be looked for; `None` while one
    /// of them is not there, so that the inventory is not complete (C27).
    fn inventory_lists(&self, position: usize, set: &Uri) -> Option<Vec<ListToRead>> {
        let catalog = self.sources[position].catalog();
        let known = self.change_sets.get(set)?;
        let members = catalog.members(set);
        let lists = members.into_iter().filter_map(|list| {
            let record = catalog.get(&list)?;
            let is_wanted = is_resource_list(record) && !record.is_gone();
            (is_wanted && !record.relations.archived).then_some((list, record))
        });
        let lists: Vec<(Uri, &Record)> = lists.collect();
        let is_complete = lists
            .iter()
            .all(|(_, record)| record.presence == Presence::Present);
        let has_changed = lists.len() != known.lists()
            || lists
                .iter()
                .any(|(list, record)| !known.has_taken(list, record.version.fingerprint));
        if !is_complete {
            return None;
        }
        if !(has_changed || known.is_deletion_due(self.step.now())) {
            return Some(Vec::new());
        }
        let lists = lists.into_iter().map(|(list, record)| ListToRead {
            path: record.path.clone(),
            stat: record.stat,
            fingerprint: record.version.fingerprint,
            is_learned: known.learns(&list),
            list,
        });
        Some(lists.collect())
    }

    /// Begins the next round of a set, if it is due (C20).
    pub(super) fn take_if_ready(&mut self, set: &Uri) {
        self.change_sets.forget_ended(set, &mut self.step);
        let Some(known) = self.change_sets.get(set) else {
            return;
        };
        let position = known.source();
        if !self.sources[position].is_settled() {
            self.change_sets.park(set);
            return;
        }
        let last_words_on = known.last_words_on();
        let channel = last_words_on.or_else(|| self.channels.live(set, ChannelKind::Change));
        let Some(channel) = channel.and_then(|id| self.channels.get(id)) else {
            self.change_sets.skip(set);
            return;
        };
        let mut listening = channel.listening();
        let has_heard_all = |(_, ledger): (&Hub, &Ledger)| {
            channel.log.backlog(&ledger.row.position) == Backlog::default()
        };
        let has_hubs = channel.listening().next().is_some();
        let is_free = last_words_on.is_some() || !has_hubs || listening.any(has_heard_all);
        let inventory = self.inventory_rules(position, set);
        let window = match inventory {
            Some(_) => inventory_window(),
            None => self.plan.window.changes.clone(),
        };
        let step = &mut self.step;
        if !self.change_sets.is_ready(set, is_free, &window, step) {
            return;
        }
        let lists = match inventory {
            Some(_) => match self.inventory_lists(position, set) {
                Some(lists) => lists,
                None => {
                    self.change_sets.repeat(set, &mut self.step);
                    return;
                }
            },
            None => {
                self.change_sets.forget_inventory(set, &mut self.step);
                self.lists_to_read(position, set, last_words_on.is_some())
            }
        };
        let Some(known) = self.change_sets.get(set) else {
            return;
        };
        if lists.is_empty() && known.is_learned() {
            self.change_sets.skip(set);
            return;
        }
        let count = lists.len();
        let (lists, beyond) = match inventory {
            // It is compared as a whole.
            Some(_) => (lists, None),
            None => known.next_lists(lists),
        };
        let is_partial = lists.len() < count;
        let Some(round) = self.change_sets.begin(set, is_partial) else {
            return;
        };
        let now = self.step.now();
        self.step.take_changes(TakeRequest {
            set: set.clone(),
            round,
            at: now,
            lists,
            vanished_before: earlier(now, self.plan.sources[position].deletion_grace),
            limit: ROUND,
            beyond,
            inventory,
        });
    }

    /// Returns the Change Lists of a set with a version that was not taken as a whole (C1). For its last words, the set has
    /// the lists that it had before its Capability List went.
    fn lists_to_read(&self, position: usize, set: &Uri, is_last: bool) -> Vec<ListToRead> {
        let catalog = self.sources[position].catalog();
        let Some(known) = self.change_sets.get(set) else {
            return Vec::new();
        };
        let mut members: BTreeSet<Uri> = catalog.members(set).into_iter().collect();
        if is_last {
            let is_orphan = |list: &&Uri| {
                let record = catalog.get(list);
                record.is_some_and(|record| record.relations.sets.is_empty())
            };
            members.extend(known.known_lists().filter(is_orphan).cloned());
        }
        let lists = members.into_iter().filter_map(|list| {
            let record = catalog.get(&list)?;
            let is_there = record.presence == Presence::Present && is_change_list(record);
            let fingerprint = record.version.fingerprint;
            (is_there && !known.has_taken(&list, fingerprint)).then(|| ListToRead {
                path: record.path.clone(),
                stat: record.stat,
                fingerprint,
                is_learned: record.relations.archived || known.learns(&list),
                list,
            })
        });
        lists.collect()
    }

    /// Takes what a round found.
    pub(super) fn taken(&mut self, answer: TakenRound) {
        let TakenRound {
            set,
            round,
            outcome,
        } = answer;
        if !self.change_sets.end(&set, round) {
            return;
        }
        let Some(known) = self.change_sets.get(&set) else {
            return;
        };
        let last_words_on = known.last_words_on();
        let channel = last_words_on.or_else(|| self.channels.live(&set, ChannelKind::Change));
        let Some(id) = channel else {
            self.change_sets.skip(&set);
            return;
        };
        let reason = match outcome {
            TakeOutcome::Taken(taken) => {
                self.take_round(id, &set, *taken);
                return;
            }
            TakeOutcome::Stale => None,
            TakeOutcome::Failed(reason) => Some(reason),
        };
        self.change_sets.repeat(&set, &mut self.step);
        if let (Some(_), Some(channel)) = (&reason, self.channels.get(id)) {
            let topic = channel.row.topic.clone();
            self.step.tell(Fact::NotTaken { topic, reason });
        }
    }

    fn take_round(&mut self, id: ChannelId, set: &Uri, taken: Taken) {
        let Taken {
            changes,
            has_more,
            lists,
            keys,
            inventory,
            missing,
        } = taken;
        let was_learned = self
            .change_sets
            .get(set)
            .is_some_and(|known| known.is_learned());
        let step = &mut self.step;
        self.change_sets
            .taken(set, &lists, has_more, missing.is_some(), step);
        if let Some(missing) = missing {
            self.take_missing(set, missing);
        }
        let rows = inventory.into_iter();
        let rows = rows.map(|(resource, row)| ((set.clone(), resource), row));
        self.step.rows().inventory.extend(rows);
        let is_learned = self
            .change_sets
            .get(set)
            .is_some_and(|known| known.is_learned());
        let rows = keys.into_iter();
        let rows = rows.map(|((list, number), row)| ((set.clone(), list, number), row));
        self.step.rows().change_keys.extend(rows);
        if !was_learned && is_learned {
            self.begin_interval(id, set);
        }
        self.log_changes(id, set, changes, &lists);
    }

    /// Notes which resources are missing, and that their deletions are suspended (C29).
    fn take_missing(&mut self, set: &Uri, missing: MissingResources) {
        self.change_sets.note_missing(set, missing, &mut self.step);
        let Some(position) = self.change_sets.get(set).map(|known| known.source()) else {
            return;
        };
        let finding = missing.is_suspended.then(|| Finding::MissingResources {
            set: set.clone(),
            source: self.plan.sources[position].name.clone(),
            missing: missing.missing,
            of: missing.of,
        });
        let plan = &self.plan.sources[position];
        let source = &mut self.sources[position];
        let findings = finding.into_iter().collect();
        source.find_about_entries(set, findings, plan, &mut self.step);
    }

    /// C10: begins the first interval of a channel with the latest datetime that was learned.
    fn begin_interval(&mut self, id: ChannelId, set: &Uri) {
        let now = self.step.now();
        let Some(learned) = self.change_sets.get(set).map(ChangeSet::learned) else {
            return;
        };
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        if channel.row.untils.is_empty() {
            let latest = learned.latest.filter(|latest| *latest <= later(now, AHEAD));
            channel.row.untils = vec![latest.unwrap_or(now)];
            self.step.save_channel(id);
        }
        self.step.tell(Fact::Learned {
            topic: channel.row.topic.clone(),
            changes: learned.entries,
            lists: learned.lists,
        });
    }

    /// Cuts changes into notifications, and adds them to the log (C13 to C19).
    fn log_changes(
        &mut self,
        id: ChannelId,
        set: &Uri,
        changes: Vec<FreshChange>,
        lists: &[TakenList],
    ) {
        let now = self.step.now();
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        if changes.is_empty() {
            self.find_in_lists(set, lists, &BTreeMap::new());
            return;
        }
        let from = channel.row.untils.last().copied().unwrap_or(now);
        let empty = ChangePayload {
            up: Some(set.clone()),
            from,
            until: from,
            entries: Vec::new(),
        };
        // Room for the fractions of its times.
        let overhead = empty.overhead() + 32;
        let window = &self.plan.window;
        let limits = IntervalLimits {
            entries: window.max_entries,
            bytes: window.max_bytes.saturating_sub(overhead),
        };
        let counted = count(&changes);
        let mut back_dated = BTreeMap::new();
        let mut notifications = 0;
        let hubs: Vec<Hub> = channel.listening().map(|(hub, _)| hub.clone()).collect();
        for interval in intervals(changes, from, limits) {
            for (list, count) in &interval.back_dated {
                *back_dated.entry(*list).or_insert(0) += count;
            }
            notifications += 1;
            channel.row.seq += 1;
            let seq = channel.row.seq;
            let (logged, body) = logged(set, interval, now);
            channel.log.push(seq, logged);
            channel.row.body = Arc::clone(&body);
            channel.row.untils = vec![logged.until];
            self.history.push(Notification {
                channel: id,
                topic: channel.row.topic.clone(),
                seq,
                cut: now,
                changes: Some(logged.entries),
                bytes: Some(logged.bytes),
                body: Some(Arc::clone(&body)),
                hubs: hubs.iter().map(|hub| (hub.clone(), Fate::Open)).collect(),
            });
            let row = LogRow { logged, body };
            self.step.rows().change_log.insert((id, seq), Some(row));
        }
        let undated = lists
            .iter()
            .fold(UndatedChanges::default(), |sum, list| UndatedChanges {
                missing: sum.missing + list.undated.missing,
                invalid: sum.invalid + list.undated.invalid,
                ahead: sum.ahead + list.undated.ahead,
            });
        let [created, updated, deleted] = counted;
        self.step.tell(Fact::Took {
            source: channel.row.source.clone(),
            topic: channel.row.topic.clone(),
            seq: channel.row.seq,
            created,
            updated,
            deleted,
            lists: lists.iter().filter(|list| list.told > 0).count(),
            notifications,
            undated,
            back_dated: back_dated.values().sum(),
        });
        let until = channel.row.untils.last().copied();
        let was_live = channel.is_live();
        self.find_in_lists(set, lists, &back_dated);
        if let (false, Some(until)) = (was_live, until)
            && let Some(live) = self.channels.live(set, ChannelKind::Change)
        {
            self.go_on_from(live, until);
        }
        self.change_sets.note_cut(set, now);
        self.fall_behind(id);
        self.trim_log(id);
        self.step.serve(id);
        self.channels.set_ready(id);
    }

    /// C22: lets the oldest changes count as heard by hubs that are too far behind.
    fn fall_behind(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let most = self.plan.window.changes.backlog;
        for (hub, ledger) in &mut channel.ledgers {
            let flying = ledger.row.flight.as_ref().map(|flight| flight.seq);
            let position = &mut ledger.row.position;
            let changes = channel.log.fall_behind(position, flying, most);
            if changes > 0 {
                self.step.save_ledger(id, hub.clone());
                self.step.tell(Fact::FellBehind {
                    topic: channel.row.topic.clone(),
                    hub: hub.clone(),
                    changes,
                });
            }
        }
    }

    /// Forgets logged notifications that every hub has heard (C22).
    pub(super) fn trim_log(&mut self, id: ChannelId) {
        let since = earlier(self.step.now(), self.plan.topic_window);
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        for seq in channel.forget_heard(since) {
            self.step.rows().change_log.insert((id, seq), None);
        }
    }

    /// Notes what is wrong with the entries of the lists that were read. `back_dated` are numbers of entries, by list.
    fn find_in_lists(
        &mut self,
        set: &Uri,
        lists: &[TakenList],
        back_dated: &BTreeMap<usize, usize>,
    ) {
        let Some(position) = self.change_sets.get(set).map(|known| known.source()) else {
            return;
        };
        let plan = &self.plan.sources[position];
        for (number, list) in lists.iter().enumerate() {
            let mut findings = Vec::new();
            if let Some(first) = &list.first_skipped {
                findings.push(Finding::UntellableEntries {
                    list: list.list.clone(),
                    count: list.skipped,
                    line: first.line,
                    reason: first.reason.to_string(),
                });
            }
            if let Some(count) = back_dated.get(&number) {
                findings.push(Finding::BackDated {
                    list: list.list.clone(),
                    count: *count,
                });
            }
            if list.undated.ahead > 0 {
                findings.push(Finding::Ahead {
                    list: list.list.clone(),
                    count: list.undated.ahead,
                });
            }
            let source = &mut self.sources[position];
            source.find_about_entries(&list.list, findings, plan, &mut self.step);
            if list.skipped > 0 {
                self.step.tell(Fact::SkippedEntries {
                    source: plan.name.clone(),
                    list: list.list.clone(),
                    count: list.skipped,
                });
            }
        }
    }

    // Delivery (C21, C23).

    /// Puts the next notification of the log in flight to each hub that is free.
    pub(super) fn cut_log(&mut self, id: ChannelId) {
        let now = self.step.now();
        for hub in self.channels.hubs(id) {
            let size = self.hubs.size_limit(&hub, now);
            let most = self.plan.window.max_entries;
            let Some(channel) = self.channels.get_mut(id) else {
                return;
            };
            let Some(ledger) = channel.ledgers.get_mut(&hub) else {
                continue;
            };
            if ledger.free_from().is_none_or(|at| at > now) {
                continue;
            }
            let limits = ledger.row.limit.into_iter();
            let limit = limits
                .chain(size.map(|size| size.entries))
                .fold(most, usize::min);
            let Some((seq, part)) = channel.log.next(&ledger.row.position, limit) else {
                continue;
            };
            let Some(logged) = channel.log.get(seq) else {
                continue;
            };
            let flight = Flight {
                seq,
                body: Arc::from([]),
                part: Some(part),
                entries: part.entries,
                covers: Vec::new(),
                until: Some(logged.until),
                cut: logged.cut.min(now),
                attempts: 0,
                next_try: now,
            };
            ledger.launch(flight, size);
            self.step.save_ledger(id, hub.clone());
            self.enqueue(id, &hub);
        }
    }

    /// Notes that a hub accepted what was in flight of the log.
    pub(super) fn heard(&mut self, id: ChannelId, hub: &Hub, seq: u64, part: LogPart) {
        let now = self.step.now();
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        ledger.row.flight = None;
        ledger.row.accepted = Some(now);
        ledger.is_answer_old = false;
        let of = channel.log.get(seq).map_or(0, |logged| logged.entries);
        if ledger.row.position.accept(seq, part.entries, of) {
            ledger.row.limit = None;
        }
        if ledger.mode == Mode::Ping {
            ledger.row.ping = Some(Ping::accepted(ledger.row.ping, now));
        }
        let set = channel.row.set.clone();
        self.step.save_ledger(id, hub.clone());
        self.trim_log(id);
        self.end_accounts(id);
        self.channels.set_ready(id);
        self.take_if_ready(&set);
    }

    /// Lets everything that was logged count as heard by a hub. Returns the number of changes.
    pub(super) fn drop_logged(&mut self, id: ChannelId, hub: &Hub) -> usize {
        let Some(channel) = self.channels.get_mut(id) else {
            return 0;
        };
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return 0;
        };
        let changes = channel.log.backlog(&ledger.row.position).entries;
        let last = ledger.row.position.last.unwrap_or(channel.row.seq);
        ledger.row.position.skip(last);
        if let Some(flight) = ledger.drop_due(Vec::new()) {
            self.history.note(id, flight.seq, hub, Fate::Dropped);
        }
        let set = channel.row.set.clone();
        self.step.save_ledger(id, hub.clone());
        self.trim_log(id);
        // C20: it has heard all now.
        self.take_if_ready(&set);
        changes
    }
}

/// Returns true for a Change List that is no index (C1).
fn is_change_list(record: &Record) -> bool {
    (record.version.capability, record.version.form) == (Capability::ChangeList, Form::List)
}

fn is_resource_list(record: &Record) -> bool {
    (record.version.capability, record.version.form) == (Capability::ResourceList, Form::List)
}

/// Returns the window of a set whose Resource Lists are compared: they count once none has changed for a while (C27).
fn inventory_window() -> ChangeWindowPlan {
    ChangeWindowPlan {
        quiet: INVENTORY_QUIET,
        max_wait: Duration::MAX,
        ..ChangeWindowPlan::default()
    }
}

/// Renders a notification.
fn logged(set: &Uri, interval: Interval, now: Timestamp) -> (Logged, Arc<[u8]>) {
    let payload = ChangePayload {
        up: Some(set.clone()),
        from: interval.from,
        until: interval.until,
        entries: interval.entries,
    };
    let body: Arc<[u8]> = payload.render().into();
    let logged = Logged {
        from: payload.from,
        until: payload.until,
        entries: payload.entries.len(),
        bytes: body.len(),
        cut: now,
    };
    (logged, body)
}

/// Returns the numbers of created, updated and deleted resources.
fn count(changes: &[FreshChange]) -> [usize; 3] {
    let mut counted = BTreeMap::new();
    for fresh in changes {
        *counted.entry(fresh.change.kind).or_insert(0) += 1;
    }
    [
        ChangeKind::Created,
        ChangeKind::Updated,
        ChangeKind::Deleted,
    ]
    .map(|kind| counted.get(&kind).copied().unwrap_or_default())
}

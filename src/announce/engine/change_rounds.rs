//! Rounds: which Change Lists and Resource Lists of a set are compared with what was taken, and when (C6 to C8, C11, C20,
//! C27).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::announce::catalog::Catalog;
use crate::announce::changes::inventory::{DeletionRules, INVENTORY_QUIET, MissingResources};
use crate::announce::changes::round::{
    ListToRead, ROUND, TakeOutcome, TakeRequest, Taken, TakenList, TakenRound, WatchedTime,
};
use crate::announce::engine::Engine;
use crate::announce::engine::change_log::begin_interval;
use crate::announce::engine::change_sets::{ChangeSet, ChangeSets};
use crate::announce::engine::source::Source;
use crate::announce::engine::source::changes::Changes;
use crate::announce::engine::step::Step;
use crate::announce::event::Fact;
use crate::announce::finding::Finding;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::plan::ChangeWindowPlan;
use crate::announce::state::{Presence, Record};
use crate::resourcesync::capability::Capability;
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::document::Form;
use crate::resourcesync::uri::{Hub, Uri};

impl Engine {
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
        if !(has_changed || known.is_deletion_due(self.step.steady())) {
            return Some(Vec::new());
        }
        let lists = lists.into_iter().map(|(list, record)| ListToRead {
            path: record.path.clone(),
            stat: record.stat,
            fingerprint: record.version.fingerprint,
            is_learned: known.learns(&list),
            is_archived: false,
            closed_until: None,
            waits: false,
            list,
        });
        Some(lists.collect())
    }

    /// Returns the channel that hears the next changes of a set, and whether they are its last words (C12). A retiring
    /// channel that another set has taken over hears no more of this one.
    fn hearing_channel(&self, set: &Uri) -> Option<(ChannelId, bool)> {
        let last_words_on = self.change_sets.get(set)?.last_words_on();
        let is_of_set = |id: &ChannelId| {
            let channel = self.channels.get(*id);
            channel.is_some_and(|channel| channel.row.set == *set)
        };
        match last_words_on.filter(is_of_set) {
            Some(id) => Some((id, true)),
            None => Some((self.channels.live(set, ChannelKind::Change)?, false)),
        }
    }

    /// Begins the next round of a set, if it is due (C20).
    pub(super) fn take_if_ready(&mut self, set: &Uri) {
        self.change_sets.forget_ended(set, &mut self.step);
        self.change_sets.end_waiting(set, &mut self.step);
        let Some(known) = self.change_sets.get(set) else {
            return;
        };
        if !known.may_be_due() {
            return;
        }
        let position = known.source();
        if !self.sources[position].is_settled() {
            self.change_sets.park(set);
            return;
        }
        let hearing = self.hearing_channel(set);
        let hearing = hearing.and_then(|(id, is_last)| Some((self.channels.get(id)?, is_last)));
        let Some((channel, is_last)) = hearing else {
            self.change_sets.skip(set, &mut self.step);
            return;
        };
        let told_until = channel.row.untils.last().copied();
        let mut listening = channel.listening();
        let has_heard_all =
            |(_, ledger): (&Hub, &Ledger)| channel.log.after(&ledger.row.position).next().is_none();
        let has_hubs = channel.listening().next().is_some();
        let is_free = is_last || !has_hubs || listening.any(has_heard_all);
        let inventory = self.inventory_rules(position, set);
        let window = match inventory {
            Some(_) => inventory_window(),
            None => self.plan.window.changes.clone(),
        };
        let step = &mut self.step;
        if !self.change_sets.is_ready(set, is_free, &window, step) {
            return;
        }
        let mut lists = match inventory {
            Some(_) => match self.inventory_lists(position, set) {
                Some(lists) => lists,
                None => {
                    self.change_sets.wait(set, &mut self.step);
                    return;
                }
            },
            None => {
                self.change_sets.forget_inventory(set, &mut self.step);
                self.lists_to_read(position, set, is_last)
            }
        };
        let Some(known) = self.change_sets.get(set) else {
            return;
        };
        if lists.is_empty() && known.is_learned() {
            self.change_sets.skip(set, &mut self.step);
            return;
        }
        // An inventory is compared as a whole.
        let step = &mut self.step;
        if inventory.is_none() && !self.change_sets.leave_stale_out(set, &mut lists, step) {
            return;
        }
        let Some(known) = self.change_sets.get(set) else {
            return;
        };
        let count = lists.len();
        let (lists, beyond) = match inventory {
            Some(_) => (lists, None),
            None => known.next_lists(lists),
        };
        let is_partial = lists.len() < count;
        let after = known.last_taken();
        let now = self.step.steady();
        let Some((round, since)) = self.change_sets.begin(set, is_partial, now) else {
            return;
        };
        let watch = WatchedTime {
            since,
            now,
            grace: self.plan.sources[position].deletion_grace,
        };
        let now = self.step.now();
        self.step.take_changes(TakeRequest {
            set: set.clone(),
            round,
            after,
            at: now,
            lists,
            watch,
            limit: ROUND,
            beyond,
            told_until,
            inventory,
        });
    }

    /// Returns the Change Lists of a set with a version that was not taken as a whole (C1). For its last words, the set has
    /// the lists that it had before its Capability List went.
    pub(super) fn lists_to_read(
        &self,
        position: usize,
        set: &Uri,
        is_last: bool,
    ) -> Vec<ListToRead> {
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
            let is_done =
                known.has_taken(&list, fingerprint) || known.is_waiting(&list, fingerprint);
            (is_there && !is_done).then(|| ListToRead {
                path: record.path.clone(),
                stat: record.stat,
                fingerprint,
                is_learned: known.learns(&list),
                is_archived: record.relations.archived,
                closed_until: known.closed_until(&list, &self.step),
                waits: known.waits(&list, fingerprint),
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
        let Some((id, _)) = self.hearing_channel(&set) else {
            self.change_sets.skip(&set, &mut self.step);
            return;
        };
        let (window, step) = (&self.plan.window.changes, &mut self.step);
        let reason = match outcome {
            TakeOutcome::Taken(taken) => {
                self.take_round(id, (&set, round), *taken);
                return;
            }
            TakeOutcome::Stale(lists) => {
                let reported = self.change_sets.note_stale(&set, lists, window, step);
                let Some(list) = reported.first() else {
                    return;
                };
                format!("{list} changes whenever it is read, or is not the version that was seen")
            }
            TakeOutcome::Failed(reason) => {
                // What could not be read was not seen either.
                self.change_sets.overlook(&set);
                self.change_sets.repeat(&set, window, step);
                reason
            }
        };
        if let Some(channel) = self.channels.get(id) {
            let topic = channel.row.topic.clone();
            let reason = Some(reason);
            self.step.tell(Fact::NotTaken { topic, reason });
        }
    }

    fn take_round(&mut self, id: ChannelId, (set, round): (&Uri, u64), taken: Taken) {
        let Taken {
            changes,
            has_more,
            lists,
            keys,
            inventory,
            missing,
        } = taken;
        let Some(known) = self.change_sets.get(set) else {
            return;
        };
        let was_learned = known.is_learned();
        let grace = self.plan.sources[known.source()].deletion_grace;
        let step = &mut self.step;
        let is_inventory = missing.is_some();
        self.change_sets
            .taken((set, round), &lists, has_more, is_inventory, grace, step);
        self.tell_untold(id, &lists);
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
            let known = self.change_sets.get(set).map(ChangeSet::learned);
            if let (Some(learned), Some(channel)) = (known, self.channels.get_mut(id)) {
                begin_interval(channel, id, learned, &mut self.step);
            }
        }
        self.log_changes(id, set, changes, &lists);
    }

    /// Tells which archived lists have changes that were never told (C1).
    fn tell_untold(&mut self, id: ChannelId, lists: &[TakenList]) {
        let Some(channel) = self.channels.get(id) else {
            return;
        };
        for list in lists.iter().filter(|list| list.untold > 0) {
            self.step.tell(Fact::ArchivedUntold {
                topic: channel.row.topic.clone(),
                list: list.list.clone(),
                count: list.untold,
            });
        }
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
        let source = &mut self.sources[position];
        let findings = finding.into_iter().collect();
        source.find_about_entries(set, findings, &mut self.step);
    }

    /// Notes what is wrong with the entries of the lists that were read. `back_dated` are numbers of entries, by list.
    pub(super) fn find_in_lists(
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
            let back_dated = back_dated.get(&number).copied().unwrap_or_default();
            let (odd, count) = self.change_sets.note_odd(set, list, back_dated);
            let list = &list.list;
            if odd.back_dated > 0 {
                findings.push(Finding::BackDated {
                    list: list.clone(),
                    count: odd.back_dated,
                });
            }
            if odd.ahead > 0 {
                findings.push(Finding::Ahead {
                    list: list.clone(),
                    count: odd.ahead,
                });
            }
            if let Some(untold) = odd.rewritten {
                findings.push(Finding::ClosedListRewritten {
                    list: list.clone(),
                    untold,
                });
            }
            let source = &mut self.sources[position];
            source.find_about_entries(list, findings, &mut self.step);
            if count > 0 {
                self.step.tell(Fact::SkippedEntries {
                    source: plan.name.clone(),
                    list: list.clone(),
                    count,
                });
            }
        }
    }
}

/// Notes which Change Lists changed, came or ended (C6, C7, C11).
pub fn note_change_lists(
    change_sets: &mut ChangeSets,
    source: &Source,
    window: &ChangeWindowPlan,
    affected: &BTreeSet<Uri>,
    changes: &Changes,
    step: &mut Step,
) {
    let (plan, catalog) = (source.plan(), source.catalog());
    let (grace, compares_lists) = (plan.deletion_grace, plan.changes_from_resource_lists);
    let mut known_lists = Vec::new();
    if source.documents().times_settled() == 1 {
        let sets: Vec<Uri> = change_sets
            .of_source(source.documents().source())
            .cloned()
            .collect();
        for set in sets {
            if compares_lists {
                change_sets.look_for_missing(&set, step);
            }
            change_sets.sign(&set, window, step);
            if !compares_lists {
                change_sets.learn_at_once(&set, step);
            }
            let known = change_sets.get(&set).into_iter();
            known_lists.extend(known.flat_map(ChangeSet::known_lists).cloned());
        }
    }
    for uri in affected.iter().chain(&known_lists) {
        let record = catalog.get(uri);
        let is_resource_list = record.is_some_and(is_resource_list);
        if compares_lists && is_resource_list {
            note_resource_list(change_sets, catalog, uri, changes, step);
            continue;
        }
        let Some(record) = record.filter(|record| !record.is_gone()) else {
            change_sets.forget_list(uri, step);
            continue;
        };
        // What it had may stand in other lists now, as in the components of an index.
        if !is_change_list(record) {
            change_sets.end_list(uri, grace, step);
            continue;
        }
        change_sets.revive_list(uri);
        for set in &record.relations.sets {
            let Some(known) = change_sets.get(set) else {
                continue;
            };
            if known.has_taken(uri, record.version.fingerprint) {
                continue;
            }
            if changes.baseline.contains_key(uri) {
                change_sets.learn(set, uri, step);
            }
            change_sets.sign(set, window, step);
        }
    }
}

/// Notes that a Resource List changed or ended, of a set of which these are compared (C27).
fn note_resource_list(
    change_sets: &mut ChangeSets,
    catalog: &Catalog,
    uri: &Uri,
    changes: &Changes,
    step: &mut Step,
) {
    let Some(record) = catalog.get(uri) else {
        return;
    };
    let window = inventory_window();
    let listed = change_sets.of_list(uri);
    for set in record.relations.sets.iter().chain(&listed) {
        let Some(known) = change_sets.get(set) else {
            continue;
        };
        let is_taken = known.has_taken(uri, record.version.fingerprint);
        if record.presence != Presence::Present {
            change_sets.overlook(set);
        }
        if !record.is_gone() && is_taken {
            continue;
        }
        if changes.baseline.contains_key(uri) {
            change_sets.learn(set, uri, step);
        }
        change_sets.sign(set, &window, step);
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

//! The lists that the next round of a set compares with what was taken: its Change Lists, or else its Resource Lists (C1,
//! C12, C27).

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::announce::catalog::Catalog;
use crate::announce::changes::inventory::DeletionRules;
use crate::announce::changes::round::ListToRead;
use crate::announce::engine::change_sets::change_set::ChangeSet;
use crate::announce::engine::source::Source;
use crate::announce::engine::step::Step;
use crate::announce::state::{Presence, Record};
use crate::resourcesync::capability::Capability;
use crate::resourcesync::document::Form;
use crate::resourcesync::uri::Uri;

/// The lists that a round reads.
#[derive(Debug)]
pub struct ReadLists {
    pub lists: Vec<ListToRead>,
    /// True if others are left to a later round.
    pub is_partial: bool,
    /// Time from which on entries wait, because lists that are not read may have earlier ones.
    pub beyond: Option<Timestamp>,
}

/// Returns the rules for an inventory, if a set has Resource Lists and no Change List, and the source wants it (C27).
pub fn inventory_rules(set: &ChangeSet, source: &Source) -> Option<DeletionRules> {
    let (plan, catalog) = (source.plan(), source.catalog());
    if !plan.changes_from_resource_lists {
        return None;
    }
    let members = catalog.members(set.uri());
    let mut records = members.iter().filter_map(|uri| catalog.get(uri));
    let has_change_list = records
        .any(|record| !record.is_gone() && record.version.capability == Capability::ChangeList);
    (!has_change_list).then_some(DeletionRules {
        mass_deletion: plan.mass_deletion,
        is_accepted: set.deletions().is_accepted(),
    })
}

/// Returns all Resource Lists of a set for its next round. Returns nothing if there is no reason to read them, or they are
/// not complete: then the round is put off (C27).
pub fn next_resource_lists(
    set: &mut ChangeSet,
    catalog: &Catalog,
    step: &mut Step,
) -> Option<ReadLists> {
    let Some(lists) = resource_lists(set, catalog, step.steady()) else {
        set.schedule_mut().delay(step);
        return None;
    };
    if is_skipped(set, &lists, step) {
        return None;
    }
    // An inventory is compared as a whole.
    Some(ReadLists {
        lists,
        is_partial: false,
        beyond: None,
    })
}

/// Returns the Change Lists that the next round of a set reads; nothing if there are none to read now. For its last words,
/// see [`change_lists`].
pub fn next_change_lists(
    set: &mut ChangeSet,
    catalog: &Catalog,
    is_last: bool,
    step: &mut Step,
) -> Option<ReadLists> {
    set.deletions_mut().forget(step);
    let lists = change_lists(set, catalog, is_last, step);
    if is_skipped(set, &lists, step) {
        return None;
    }
    set.next_lists(lists, step)
}

/// Ends the round of a set that has nothing to read. While a set is learned, there is more than the lists: that they are
/// none.
fn is_skipped(set: &mut ChangeSet, lists: &[ListToRead], step: &mut Step) -> bool {
    let is_skipped = lists.is_empty() && set.learning().is_complete();
    if is_skipped {
        set.skip(step);
    }
    is_skipped
}

/// Returns all Resource Lists of a set, if any has changed or missing resources are to be looked for; `None` while one of
/// them is not there, so that the inventory is not complete (C27). `steady` is the moment by the steady clock.
fn resource_lists(
    set: &ChangeSet,
    catalog: &Catalog,
    steady: Timestamp,
) -> Option<Vec<ListToRead>> {
    let members = catalog.members(set.uri());
    let lists = members.into_iter().filter_map(|list| {
        let record = catalog.get(&list)?;
        let is_wanted = is_resource_list(record) && !record.is_gone();
        (is_wanted && !record.relations.archived).then_some((list, record))
    });
    let lists: Vec<(Uri, &Record)> = lists.collect();
    let is_complete = lists
        .iter()
        .all(|(_, record)| record.presence == Presence::Present);
    let known = set.lists();
    let has_changed = lists.len() != known.count()
        || lists
            .iter()
            .any(|(list, record)| !known.has_taken(list, record.version.fingerprint));
    if !is_complete {
        return None;
    }
    if !(has_changed || set.deletions().is_due(steady)) {
        return Some(Vec::new());
    }
    let lists = lists.into_iter().map(|(list, record)| ListToRead {
        path: record.path.clone(),
        stat: record.stat,
        fingerprint: record.version.fingerprint,
        is_learned: set.learning().learns(&list),
        is_archived: false,
        closed_until: None,
        waits: false,
        list,
    });
    Some(lists.collect())
}

/// Returns the Change Lists of a set with a version that was not taken as a whole (C1). For its last words, the set has the
/// lists that it had before its Capability List went.
pub fn change_lists(
    set: &ChangeSet,
    catalog: &Catalog,
    is_last: bool,
    step: &Step,
) -> Vec<ListToRead> {
    let known = set.lists();
    let mut members: BTreeSet<Uri> = catalog.members(set.uri()).into_iter().collect();
    if is_last {
        let is_orphan = |list: &&Uri| {
            let record = catalog.get(list);
            record.is_some_and(|record| record.relations.sets.is_empty())
        };
        members.extend(known.uris().filter(is_orphan).cloned());
    }
    let lists = members.into_iter().filter_map(|list| {
        let record = catalog.get(&list)?;
        let is_there = record.presence == Presence::Present && is_change_list(record);
        let fingerprint = record.version.fingerprint;
        let is_done = known.has_taken(&list, fingerprint) || known.is_waiting(&list, fingerprint);
        let closed = known.closed_for_good(&list, step);
        (is_there && !is_done).then(|| ListToRead {
            path: record.path.clone(),
            stat: record.stat,
            fingerprint,
            is_learned: set.learning().learns(&list),
            is_archived: record.relations.archived,
            closed_until: closed.map(|closed| closed.last),
            waits: known.waits(&list, fingerprint),
            list,
        })
    });
    lists.collect()
}

/// Returns true for a Change List that is no index (C1).
pub fn is_change_list(record: &Record) -> bool {
    (record.version.capability, record.version.form) == (Capability::ChangeList, Form::List)
}

/// Returns true for a Resource List that is no index (C27).
pub fn is_resource_list(record: &Record) -> bool {
    (record.version.capability, record.version.form) == (Capability::ResourceList, Form::List)
}

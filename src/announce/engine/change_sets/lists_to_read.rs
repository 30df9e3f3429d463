//! The lists that the next round of a set compares with what was taken: its Change Lists, or else its Resource Lists (C1,
//! C12, C27).

use std::collections::BTreeSet;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::uri::Uri;

use crate::announce::catalog::Catalog;
use crate::announce::changes::round::ListToRead;
use crate::announce::engine::change_sets::change_set::ChangeSet;
use crate::announce::engine::change_sets::known_lists::KnownLists;
use crate::announce::engine::source::Source;
use crate::announce::engine::step::Step;
use crate::announce::state::{ListKind, Presence, Record};

/// The lists that a round reads.
#[derive(Debug)]
pub struct ReadLists {
    pub lists: Vec<ListToRead>,
    /// True if others are left to a later round.
    pub is_partial: bool,
    /// Time from which on entries wait, because lists that are not read may have earlier ones.
    pub beyond: Option<Timestamp>,
}

/// The Resource Lists of a set for its next round.
#[derive(Debug)]
enum NextInventory {
    /// One of them is not there, so that they are no inventory (C27).
    Incomplete,
    /// There is no reason to read them.
    Unchanged,
    /// All of them; none if the last one is gone.
    Changed(Vec<ListToRead>),
}

/// Returns which lists of a set the next round compares: Resource Lists if it has any and no Change List, and the source
/// wants it (C27). For a channel that retires, these are the lists that were compared before (C12).
pub fn compared_lists(set: &ChangeSet, source: &Source, is_last: bool) -> ListKind {
    let (catalog, learned) = (source.catalog(), set.learning().kind());
    if !source.plan().changes_from_resource_lists {
        return ListKind::ChangeLists;
    }
    if let (true, Some(learned)) = (is_last, learned) {
        return learned;
    }
    let members = catalog.members(set.uri());
    let records = members.iter().filter_map(|uri| catalog.get(uri));
    let there: Vec<&Record> = records.filter(|record| !record.is_gone()).collect();
    let is_any_change_list = |record: &&Record| record.version.capability == Capability::ChangeList;
    let has_change_list = there.iter().any(is_any_change_list);
    let has_inventory = learned == Some(ListKind::ResourceLists)
        || there.iter().any(|record| is_of_inventory(record));
    match has_inventory && !has_change_list {
        true => ListKind::ResourceLists,
        false => ListKind::ChangeLists,
    }
}

/// Returns all Resource Lists of a set for its next round. Returns nothing if there is no reason to read them, or they are
/// not complete: then the round is put off (C27). For a channel that retires, see [`change_lists`].
pub fn next_resource_lists(
    set: &mut ChangeSet,
    catalog: &Catalog,
    is_last: bool,
    step: &mut Step,
) -> Option<ReadLists> {
    match resource_lists(set, catalog, is_last, step.now()) {
        NextInventory::Incomplete => {
            set.schedule_mut().delay(step);
            None
        }
        NextInventory::Unchanged => {
            set.skip(step);
            None
        }
        // An inventory is compared as a whole.
        NextInventory::Changed(lists) => Some(ReadLists {
            lists,
            is_partial: false,
            beyond: None,
        }),
    }
}

/// Returns the Change Lists that the next round of a set reads; nothing if there are none to read now. For a channel that retires,
/// see [`change_lists`].
pub fn next_change_lists(
    set: &mut ChangeSet,
    catalog: &Catalog,
    is_last: bool,
    step: &mut Step,
) -> Option<ReadLists> {
    let lists = change_lists(set, catalog, is_last, step);
    // While a set is learned, a round runs even without lists: it records that there are none.
    if lists.is_empty() && set.learning().is_complete() {
        set.skip(step);
        return None;
    }
    set.next_lists(lists, step)
}

/// Returns true if something may be fresh in the lists that a set had until now (C12).
pub fn has_fresh_lists(set: &ChangeSet, source: &Source, step: &Step) -> bool {
    let catalog = source.catalog();
    match compared_lists(set, source, true) {
        ListKind::ChangeLists => !change_lists(set, catalog, true, step).is_empty(),
        ListKind::ResourceLists => {
            let next = resource_lists(set, catalog, true, step.now());
            matches!(next, NextInventory::Changed(_))
        }
    }
}

/// Returns all Resource Lists of a set, if any has changed or missing resources are to be looked for.
fn resource_lists(
    set: &ChangeSet,
    catalog: &Catalog,
    is_last: bool,
    now: Timestamp,
) -> NextInventory {
    let members = members(set, catalog, is_last);
    let lists = members.into_iter().filter_map(|list| {
        let record = catalog.get(&list)?;
        (is_of_inventory(record) && !record.is_gone()).then_some((list, record))
    });
    let lists: Vec<(Uri, &Record)> = lists.collect();
    let is_complete = lists
        .iter()
        .all(|(_, record)| record.presence == Presence::Present);
    if !is_complete {
        return NextInventory::Incomplete;
    }
    let known = set.lists();
    let learning = set.learning();
    let is_first = learning.kind() != Some(ListKind::ResourceLists);
    let has_changed = is_first
        || !known_inventory(known, catalog).eq(lists.iter().map(|(list, _)| list))
        || lists
            .iter()
            .any(|(list, record)| !known.has_taken(list, record.version.fingerprint));
    if !(has_changed || set.deletions().is_due(now)) {
        return NextInventory::Unchanged;
    }
    let lists = lists.into_iter().map(|(list, record)| ListToRead {
        path: record.path.clone(),
        stat: record.stat,
        fingerprint: record.version.fingerprint,
        is_learned: is_first || learning.learns(&list),
        is_archived: false,
        closed_until: None,
        waits: false,
        list,
    });
    NextInventory::Changed(lists.collect())
}

/// Returns those of the known lists of a set that are not Change Lists, and were none until a moment ago: what was taken of
/// these still counts (C7).
pub fn known_inventory<'a>(
    known: &'a KnownLists,
    catalog: &'a Catalog,
) -> impl Iterator<Item = &'a Uri> {
    known.uris().filter(|list| {
        let record = catalog.get(list).filter(|record| !record.is_gone());
        !known.has_ended(list) && !record.is_some_and(is_change_list)
    })
}

/// Returns the documents of a set. For a channel that retires, it has the lists that it had before its Capability List went.
fn members(set: &ChangeSet, catalog: &Catalog, is_last: bool) -> BTreeSet<Uri> {
    let mut members = catalog.members(set.uri());
    if is_last {
        let is_orphan = |list: &&Uri| {
            let record = catalog.get(list);
            record.is_some_and(|record| record.relations.sets.is_empty())
        };
        members.extend(set.lists().uris().filter(is_orphan).cloned());
    }
    members
}

/// Returns the Change Lists of a set with a version that was not taken as a whole (C1). For a channel that retires, the set has the
/// lists that it had before its Capability List went.
pub fn change_lists(
    set: &ChangeSet,
    catalog: &Catalog,
    is_last: bool,
    step: &Step,
) -> Vec<ListToRead> {
    let known = set.lists();
    let members = members(set, catalog, is_last);
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

/// Returns true for a Resource List that is compared with the one before (C27).
fn is_of_inventory(record: &Record) -> bool {
    is_resource_list(record) && !record.relations.archived
}

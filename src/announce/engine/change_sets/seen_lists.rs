//! Lists that were seen to change, come or end: a round becomes due, and what a list has is learned, or forgotten (C6, C7,
//! C11, C27).

use std::collections::BTreeSet;

use resourcesync::uri::Uri;

use crate::announce::catalog::Catalog;
use crate::announce::engine::change_sets::ChangeSets;
use crate::announce::engine::change_sets::lists_to_read::{is_change_list, is_resource_list};
use crate::announce::engine::change_sets::round_schedule::inventory_window;
use crate::announce::engine::source::Source;
use crate::announce::engine::source::changes::Changes;
use crate::announce::engine::step::Step;
use crate::announce::plan::ChangeWindowPlan;
use crate::announce::state::{ListKind, Presence};

/// Notes which Change Lists changed, came or ended (C6, C7, C11).
pub fn note_lists(
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
    if source.documents().revision() == 1 {
        for known in change_sets.of_source_mut(source.documents().source()) {
            if compares_lists {
                known.deletions_mut().look(step);
            } else if known.learning().kind() == Some(ListKind::ResourceLists) {
                known.forget_inventory(step);
            }
            known.schedule_mut().sign(window, step);
            if !compares_lists
                && !known.learning().is_complete()
                && !source.tree.has_unreadable_member(known.uri())
            {
                // What its lists have was there before, and what comes now is told (C10).
                known.schedule_mut().hurry(step);
            }
            known_lists.extend(known.lists().uris().cloned());
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
            if compares_lists {
                let sets = change_sets.of_list(uri);
                sign_inventories(change_sets, sets, step);
            }
            change_sets.forget_list(uri, step);
            continue;
        };
        // Its entries may stand in other lists now, as in the components of an index.
        if !is_change_list(record) {
            if compares_lists {
                let sets = change_sets.of_list(uri);
                sign_inventories(change_sets, sets, step);
            }
            change_sets.end_list(uri, grace, step);
            continue;
        }
        change_sets.revive_list(uri);
        if compares_lists {
            let mut others = change_sets.of_list(uri);
            others.retain(|set| !record.relations.sets.contains(set));
            sign_inventories(change_sets, others, step);
        }
        for set in &record.relations.sets {
            let Some(known) = change_sets.get(set) else {
                continue;
            };
            if known.lists().has_taken(uri, record.version.fingerprint) {
                continue;
            }
            if changes.baseline.contains_key(uri) {
                change_sets.learn(set, uri, step);
            }
            if let Some(known) = change_sets.get_mut(set) {
                known.schedule_mut().sign(window, step);
            }
        }
    }
}

/// Notes that sets lost a list: their Resource Lists may be compared from now on (C27), or lack what the list had (C29).
fn sign_inventories(change_sets: &mut ChangeSets, sets: Vec<Uri>, step: &mut Step) {
    for set in sets {
        if let Some(known) = change_sets.get_mut(&set) {
            known.deletions_mut().look(step);
            known.schedule_mut().sign(&inventory_window(), step);
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
        let Some(known) = change_sets.get_mut(set) else {
            continue;
        };
        if record.presence != Presence::Present {
            known.overlook();
        }
        let is_taken = known.lists().has_taken(uri, record.version.fingerprint);
        if !record.is_gone() && is_taken {
            continue;
        }
        if changes.baseline.contains_key(uri) {
            change_sets.learn(set, uri, step);
        }
        if let Some(known) = change_sets.get_mut(set) {
            known.schedule_mut().sign(&window, step);
        }
    }
}

//! Findings about the entries of the lists that a round read (C1, C2, C7, C15, C29).

use std::collections::BTreeMap;

use crate::announce::changes::inventory::MissingResources;
use crate::announce::changes::round::TakenList;
use crate::announce::channel::Channel;
use crate::announce::engine::change_sets::change_set::ChangeSet;
use crate::announce::engine::source::Source;
use crate::announce::engine::step::Step;
use crate::announce::event::Fact;
use crate::announce::finding::Finding;

/// Tells which archived lists have changes that were never told (C1).
pub fn tell_untold(channel: &Channel, lists: &[TakenList], step: &mut Step) {
    for list in lists.iter().filter(|list| list.untold > 0) {
        step.tell(Fact::ArchivedUntold {
            topic: channel.row.topic.clone(),
            list: list.list.clone(),
            count: list.untold,
        });
    }
}

/// Notes that the deletions of resources that are missing are suspended, or are not any more (C29).
pub fn find_missing(
    set: &ChangeSet,
    source: &mut Source,
    missing: MissingResources,
    step: &mut Step,
) {
    let finding = missing.is_suspended.then(|| Finding::MissingResources {
        set: set.uri().clone(),
        source: source.plan().name.clone(),
        missing: missing.missing,
        of: missing.of,
    });
    let findings = finding.into_iter().collect();
    source
        .findings_mut()
        .replace_about_entries(set.uri(), findings, step);
}

/// Notes what is wrong with the entries of the lists that were read. `back_dated` are numbers of entries, by the position
/// of the list.
pub fn find_in_lists(
    set: &mut ChangeSet,
    source: &mut Source,
    lists: &[TakenList],
    back_dated: &BTreeMap<usize, usize>,
    step: &mut Step,
) {
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
        let (odd, count) = set.lists_mut().note_odd(list, back_dated);
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
        if let Some(untold) = odd.rewritten.filter(|untold| *untold > 0) {
            findings.push(Finding::ClosedListRewritten {
                list: list.clone(),
                untold,
            });
        }
        source
            .findings_mut()
            .replace_about_entries(list, findings, step);
        if count > 0 {
            step.tell(Fact::SkippedEntries {
                source: source.plan().name.clone(),
                list: list.clone(),
                count,
            });
        }
    }
}

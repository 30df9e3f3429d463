//! Metrics of Change Lists: the changes of resources that were taken from them, by source.

use resourcesync::payload::ChangeKind;

use crate::admin::metrics::exposition::{Exposition, Label};
use crate::report::figures::ChangeCounts;
use crate::report::status::Status;

pub fn expose(exposition: &mut Exposition, status: &Status) {
    let counts = &status.figures.counts;
    let uncounted = ChangeCounts::default();
    let sources = || {
        status.sources.iter().map(|source| {
            let counts = counts.changes.get(&source.name).unwrap_or(&uncounted);
            (&source.name, counts)
        })
    };
    exposition.counters(
        "rsnotify_changes_taken_total",
        "Changes of resources that were taken from Change Lists to be told",
        sources().flat_map(|(source, counts)| {
            let kinds = [
                ChangeKind::Created,
                ChangeKind::Updated,
                ChangeKind::Deleted,
            ];
            kinds.map(|kind| {
                let many = counts.taken.get(&kind).copied().unwrap_or_default();
                (of_source(source, "change", kind.as_str()), many)
            })
        }),
    );
    exposition.counters(
        "rsnotify_changes_undated_total",
        "Changes that are told without a datetime, by reason",
        sources().flat_map(|(source, counts)| {
            let undated = &counts.undated;
            let reasons = [
                ("missing", undated.missing),
                ("invalid", undated.invalid),
                ("back_dated", undated.back_dated),
                ("ahead", undated.ahead),
            ];
            reasons.map(|(reason, many)| (of_source(source, "reason", reason), many))
        }),
    );
    exposition.counters(
        "rsnotify_change_entries_skipped_total",
        "Entries of Change Lists that cannot be told, because they have no URI or no change",
        sources().map(|(source, counts)| ([("source", source.clone())], counts.skipped)),
    );
    exposition.counters(
        "rsnotify_change_reads_total",
        "Change Lists that were read, by outcome: learned (its entries are not told), taken, stale (it is read again)",
        sources().flat_map(|(source, counts): (&String, &ChangeCounts)| {
            let reads = &counts.reads;
            let outcomes = [
                ("learned", reads.learned),
                ("taken", reads.taken),
                ("stale", reads.stale),
            ];
            outcomes.map(|(how, many)| (of_source(source, "how", how), many))
        }),
    );
    exposition.histogram(
        "rsnotify_change_round_seconds",
        "Time to read the changed Change Lists of a set and to compare them with what was taken",
        &counts.rounds,
    );
}

fn of_source(source: &str, label: &'static str, value: &str) -> [Label; 2] {
    [("source", source.to_owned()), (label, value.to_owned())]
}

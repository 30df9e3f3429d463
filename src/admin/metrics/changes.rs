//! Metrics of Change Lists: the changes of resources that were taken from them, by source.

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
            let kinds = ["created", "updated", "deleted"];
            by(source, "change", kinds, counts.taken)
        }),
    );
    exposition.counters(
        "rsnotify_changes_undated_total",
        "Changes that are told without a datetime, by reason",
        sources().flat_map(|(source, counts)| {
            let reasons = ["missing", "invalid", "back_dated", "ahead"];
            by(source, "reason", reasons, counts.undated)
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
        sources().flat_map(|(source, counts)| {
            by(source, "how", ["learned", "taken", "stale"], counts.reads)
        }),
    );
    exposition.histogram(
        "rsnotify_change_round_seconds",
        "Time to read the changed Change Lists of a set and to compare them with what was taken",
        &counts.rounds,
    );
}

fn by<const N: usize>(
    source: &str,
    label: &'static str,
    values: [&str; N],
    counts: [u64; N],
) -> impl Iterator<Item = ([Label; 2], u64)> {
    let values = values.map(|value| [("source", source.to_owned()), (label, value.to_owned())]);
    values.into_iter().zip(counts)
}

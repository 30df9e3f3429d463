//! Metrics of the trees and of their sweeps.

use crate::admin::metrics::count;
use crate::admin::metrics::exposition::{Exposition, Label, seconds};
use crate::report::status::{SourceStatus, Status};

pub fn expose(exposition: &mut Exposition, status: &Status) {
    let sources = || status.sources.iter();
    let each = |figure: fn(&SourceStatus) -> i64| {
        sources().map(move |source| ([of_source(&source.name)], figure(source)))
    };
    let holdings = || status.figures.holdings.iter();
    exposition.gauges(
        "rsnotify_documents",
        "Known documents by capability and state, independent of what hubs are due",
        holdings().flat_map(|(source, holdings)| {
            let documents = holdings.documents.iter().filter(|(_, many)| **many > 0);
            documents.map(|((capability, state), many)| {
                let labels = [
                    of_source(source),
                    ("capability", capability.as_str().to_owned()),
                    ("state", state.as_str().to_owned()),
                ];
                (labels, count(*many))
            })
        }),
    );
    exposition.gauges(
        "rsnotify_missing_documents",
        "Documents that are missing and not confirmed as deleted yet",
        each(|source| count(source.missing)),
    );
    exposition.gauges(
        "rsnotify_broken_documents",
        "Candidates that cannot be read",
        each(|source| count(source.broken)),
    );
    exposition.gauges(
        "rsnotify_oldest_broken_seconds",
        "Age of the oldest broken candidate, 0 if none",
        holdings().map(|(source, holdings)| {
            let since = holdings.broken_since.unwrap_or(status.at);
            let age = status.at.duration_since(since).as_secs().max(0);
            ([of_source(source)], age)
        }),
    );
    exposition.gauges(
        "rsnotify_suspended",
        "1 while deletions are suspended because too much is missing; `rsnotify accept SOURCE` confirms them",
        each(|source| i64::from(source.suspended)),
    );
    exposition.gauges(
        "rsnotify_muted_sets",
        "Sets of which nothing is sent, because of what their Capability Lists advertise",
        holdings().map(|(source, holdings)| ([of_source(source)], count(holdings.muted))),
    );
    exposition.gauges(
        "rsnotify_findings",
        "Problems in the published tree by kind; `rsnotify check` prints them",
        holdings().flat_map(|(source, holdings)| {
            let findings = holdings.findings.iter();
            findings.map(|(kind, many)| {
                let labels = [of_source(source), ("kind", (*kind).to_owned())];
                (labels, count(*many))
            })
        }),
    );
    let channels = [("live", false), ("retired", true)];
    exposition.gauges(
        "rsnotify_channels",
        "Channels by state; a retired one outlives its set for a while",
        channels.map(|(state, is_retired)| {
            let channels = status.channels.iter();
            let many = channels.filter(|channel| channel.retired.is_some() == is_retired);
            ([("state", state.to_owned())], count(many.count()))
        }),
    );
    expose_mounts(exposition, status);
}

fn expose_mounts(exposition: &mut Exposition, status: &Status) {
    let mounts = status.sources.iter().flat_map(|source| {
        let mounts = source.mounts.iter();
        mounts.filter_map(|mount| {
            let labels = of_mount(&source.name, &mount.directory);
            Some((labels, i64::from(mount.present?)))
        })
    });
    exposition.gauges(
        "rsnotify_mount_present",
        "1 if the mount is present; while it is absent, nothing in it counts as deleted",
        mounts,
    );
    let unreadable = status.sources.iter().flat_map(|source| {
        let mounts = source.mounts.iter().filter(|mount| mount.present.is_some());
        mounts.map(|mount| {
            let labels = of_mount(&source.name, &mount.directory);
            (labels, count(mount.unreadable_count()))
        })
    });
    exposition.gauges(
        "rsnotify_unreadable_directories",
        "Unreadable directories of a mount, in which nothing is known and nothing counts as deleted",
        unreadable,
    );
    let swept = || {
        let mounts = status.figures.counts.mounts.iter();
        mounts.map(|((source, directory), sweeps)| (of_mount(source, directory), sweeps))
    };
    exposition.gauges(
        "rsnotify_mount_unwatched",
        "1 while a mount that should be watched by events is partly swept instead",
        swept().map(|(labels, sweeps)| (labels, i64::from(sweeps.unwatched))),
    );
    exposition.histograms(
        "rsnotify_sweep_seconds",
        "Duration of complete sweeps of a mount",
        swept().map(|(labels, sweeps)| (labels, &sweeps.took)),
    );
    exposition.gauges(
        "rsnotify_last_sweep_timestamp_seconds",
        "Time when the last complete sweep of a mount ended",
        swept().map(|(labels, sweeps)| (labels, seconds(sweeps.last))),
    );
    exposition.gauges(
        "rsnotify_last_sweep_files",
        "Candidates found by the last complete sweep of a mount",
        swept().map(|(labels, sweeps)| (labels, i64::try_from(sweeps.files).unwrap_or(i64::MAX))),
    );
    let hints = || status.figures.hints.iter();
    exposition.counters(
        "rsnotify_hints_total",
        "File system events that may concern a document or a directory",
        hints().map(|(source, hints)| ([of_source(source)], hints.taken)),
    );
    exposition.counters(
        "rsnotify_hint_overflows_total",
        "Overflows of the kernel's event queue, each followed by a sweep",
        hints().map(|(source, hints)| ([of_source(source)], hints.overflows)),
    );
}

fn of_source(name: &str) -> Label {
    ("source", name.to_owned())
}

fn of_mount(source: &str, directory: &str) -> [Label; 2] {
    [of_source(source), ("mount", directory.to_owned())]
}

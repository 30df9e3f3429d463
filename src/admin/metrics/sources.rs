//! What the trees hold, and how they are looked at.

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
        "Documents that are known, by what each is by itself, whatever a hub is due of it",
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
        "Documents not found, and not yet believed deleted",
        each(|source| count(source.missing)),
    );
    exposition.gauges(
        "rsnotify_broken_documents",
        "Candidates that cannot be read now",
        each(|source| count(source.broken)),
    );
    exposition.gauges(
        "rsnotify_oldest_broken_seconds",
        "How long the candidate cannot be read that could not be for longest; 0 without one",
        holdings().map(|(source, holdings)| {
            let since = holdings.broken_since.unwrap_or(status.at);
            let age = status.at.duration_since(since).as_secs().max(0);
            ([of_source(source)], age)
        }),
    );
    exposition.gauges(
        "rsnotify_suspended",
        "1 while too much is missing for deletions to be believed; `rsnotify accept SOURCE` believes them",
        each(|source| i64::from(source.suspended)),
    );
    exposition.gauges(
        "rsnotify_muted_sets",
        "Sets of which no change is sent to any hub, because of what their Capability Lists advertise",
        sources().map(|source| {
            let own = status.muted.iter().filter(|own| own.source == source.name);
            ([of_source(&source.name)], count(own.count()))
        }),
    );
    exposition.gauges(
        "rsnotify_findings",
        "What is wrong with the tree although it can be read, by kind; `rsnotify check` says it in words",
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
        "Channels; a retired one outlives its set for a while",
        channels.map(|(state, is_retired)| {
            let channels = status.channels.iter();
            let many = channels.filter(|channel| channel.retired.is_some() == is_retired);
            ([("state", state.to_owned())], count(many.count()))
        }),
    );
    expose_looks(exposition, status);
}

fn expose_looks(exposition: &mut Exposition, status: &Status) {
    let mounts = status.sources.iter().flat_map(|source| {
        let mounts = source.mounts.iter();
        mounts.filter_map(|mount| {
            let labels = of_mount(&source.name, &mount.directory);
            Some((labels, i64::from(mount.present?)))
        })
    });
    exposition.gauges(
        "rsnotify_mount_present",
        "Whether a mount is there; while it is not, nothing in it counts as deleted",
        mounts,
    );
    let unreadable = status.sources.iter().flat_map(|source| {
        let mounts = source.mounts.iter().filter(|own| own.present.is_some());
        mounts.map(|mount| {
            let labels = of_mount(&source.name, &mount.directory);
            (labels, count(mount.unreadable_count()))
        })
    });
    exposition.gauges(
        "rsnotify_unreadable_directories",
        "Directories of a mount that may not be read: nothing in them is known, and nothing counts as deleted",
        unreadable,
    );
    let swept = || {
        let mounts = status.figures.counts.mounts.iter();
        mounts.map(|((source, directory), sweeps)| (of_mount(source, directory), sweeps))
    };
    exposition.gauges(
        "rsnotify_mount_unwatched",
        "1 while events should tell of a mount's changes and do not everywhere, so that sweeps find them later",
        swept().map(|(labels, sweeps)| (labels, i64::from(sweeps.unwatched))),
    );
    exposition.histograms(
        "rsnotify_sweep_seconds",
        "How long complete sweeps of a mount took",
        swept().map(|(labels, sweeps)| (labels, &sweeps.took)),
    );
    exposition.gauges(
        "rsnotify_last_sweep_timestamp_seconds",
        "When the last complete sweep of a mount ended",
        swept().map(|(labels, sweeps)| (labels, seconds(sweeps.last))),
    );
    exposition.gauges(
        "rsnotify_last_sweep_files",
        "Candidates that the last complete sweep of a mount met",
        swept().map(|(labels, sweeps)| (labels, i64::try_from(sweeps.files).unwrap_or(i64::MAX))),
    );
    let hints = || status.figures.hints.iter();
    exposition.counters(
        "rsnotify_hints_total",
        "Events of the file system that may be about a document or a directory",
        hints().map(|(source, hints)| ([of_source(source)], hints.taken)),
    );
    exposition.counters(
        "rsnotify_hint_overflows_total",
        "How often the kernel lost events, so that everything was swept",
        hints().map(|(source, hints)| ([of_source(source)], hints.overflows)),
    );
}

fn of_source(name: &str) -> Label {
    ("source", name.to_owned())
}

fn of_mount(source: &str, directory: &str) -> [Label; 2] {
    [of_source(source), ("mount", directory.to_owned())]
}

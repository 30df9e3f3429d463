//! Metrics of the trees, of their sweeps, and of the changes of resources that were taken from their Change Lists.

use crate::admin::metrics::age;
use crate::admin::metrics::exposition::Exposition;
use crate::report::figures::ChangeListCounts;
use crate::report::status::{SourceStatus, Status};

const METRICS: &str = "\
rsnotify_documents gauge Known documents by capability and state, independent of what hubs are due
rsnotify_missing_documents gauge Documents that are missing and not confirmed as deleted yet
rsnotify_broken_documents gauge Candidates that cannot be read
rsnotify_oldest_broken_seconds gauge Age of the oldest broken candidate, 0 if none
rsnotify_suspended gauge 1 while deletions are suspended because too much is missing; `rsnotify accept SOURCE` confirms \
    them
rsnotify_muted_sets gauge Sets of which nothing is sent, because of what their Capability Lists advertise
rsnotify_findings gauge Problems in the published tree by kind; `rsnotify check` prints them
rsnotify_channels gauge Channels by state; a retired one outlives its set for a while
rsnotify_mount_present gauge 1 if the mount is present; while it is absent, nothing in it counts as deleted
rsnotify_unreadable_directories gauge Unreadable directories of a mount, in which nothing is known and nothing counts as \
    deleted
rsnotify_mount_unwatched gauge 1 while a mount that should be watched by events is partly swept instead
rsnotify_sweep_seconds histogram Duration of complete sweeps of a mount
rsnotify_last_sweep_timestamp_seconds gauge Time when the last complete sweep of a mount ended
rsnotify_last_sweep_files gauge Candidates found by the last complete sweep of a mount
rsnotify_hints_total counter File system events that may concern a document or a directory
rsnotify_hint_overflows_total counter Overflows of the kernel's event queue, each followed by a sweep
rsnotify_changes_taken_total counter Changes of resources that were taken from Change Lists to be told
rsnotify_changes_undated_total counter Changes that are told without a datetime, by reason
rsnotify_change_entries_skipped_total counter Entries of Change Lists that cannot be told, because they have no URI or \
    no change
rsnotify_change_reads_total counter Change Lists that were read, by outcome: learned (its entries are not told), taken, \
    stale (it is read again)
rsnotify_change_round_seconds histogram Time to read the changed Change Lists of a set and to compare them with what was \
    taken";

pub fn expose(exposition: &mut Exposition, status: &Status) {
    exposition.define(METRICS);
    let (figures, counts) = (&status.figures, &status.figures.counts);
    for source in &status.sources {
        expose_source(exposition, source);
        let uncounted = ChangeListCounts::default();
        let counts = counts.changes.get(&source.name).unwrap_or(&uncounted);
        expose_changes(exposition, &source.name, counts);
    }
    for (source, holdings) in &figures.holdings {
        let of_source = [("source", source.as_str())];
        for ((capability, state), many) in &holdings.documents {
            let labels = [
                ("source", source.as_str()),
                ("capability", capability.as_str()),
                ("state", state.as_str()),
            ];
            if *many > 0 {
                exposition.add("documents", &labels, *many);
            }
        }
        let since = holdings.broken_since.unwrap_or(status.at);
        exposition.add("oldest_broken_seconds", &of_source, age(since, status));
        exposition.add("muted_sets", &of_source, holdings.muted);
        for (kind, many) in &holdings.findings {
            let labels = [("source", source.as_str()), ("kind", kind)];
            exposition.add("findings", &labels, *many);
        }
    }
    for (state, is_retired) in [("live", false), ("retired", true)] {
        let channels = status.channels.iter();
        let many = channels.filter(|channel| channel.retired.is_some() == is_retired);
        exposition.add("channels", &[("state", state)], many.count());
    }
    for ((source, directory), sweeps) in &counts.mounts {
        let mount = [("source", source.as_str()), ("mount", directory)];
        exposition.add("mount_unwatched", &mount, sweeps.unwatched);
        exposition.add("sweep_seconds", &mount, &sweeps.took);
        exposition.add("last_sweep_timestamp_seconds", &mount, sweeps.last);
        exposition.add("last_sweep_files", &mount, sweeps.files);
    }
    for (source, hints) in &figures.hints {
        let of_source = [("source", source.as_str())];
        exposition.add("hints_total", &of_source, hints.taken);
        exposition.add("hint_overflows_total", &of_source, hints.overflows);
    }
    exposition.add("change_round_seconds", &[], &counts.rounds);
}

fn expose_source(exposition: &mut Exposition, source: &SourceStatus) {
    let name = source.name.as_str();
    let of_source = [("source", name)];
    exposition.add("missing_documents", &of_source, source.missing);
    exposition.add("broken_documents", &of_source, source.broken);
    exposition.add("suspended", &of_source, source.suspended);
    for mount in &source.mounts {
        let Some(is_present) = mount.present else {
            continue;
        };
        let labels = [("source", name), ("mount", &mount.directory)];
        exposition.add("mount_present", &labels, is_present);
        let unreadable = mount.unreadable_directory_count();
        exposition.add("unreadable_directories", &labels, unreadable);
    }
}

fn expose_changes(exposition: &mut Exposition, source: &str, counts: &ChangeListCounts) {
    let mut add = |name, label, values: &[&str], counts: &[u64]| {
        for (value, count) in values.iter().zip(counts) {
            let labels = [("source", source), (label, value)];
            exposition.add(name, &labels, *count);
        }
    };
    let kinds = ["created", "updated", "deleted"];
    add("changes_taken_total", "change", &kinds, &counts.taken);
    let reasons = ["missing", "invalid", "back_dated", "ahead"];
    add("changes_undated_total", "reason", &reasons, &counts.undated);
    let outcomes = ["learned", "taken", "stale"];
    add("change_reads_total", "how", &outcomes, &counts.reads);
    let of_source = [("source", source)];
    exposition.add("change_entries_skipped_total", &of_source, counts.skipped);
}

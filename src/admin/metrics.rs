//! The daemon's status as metrics for Prometheus.

mod exposition;

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use announce::plan::PublishMode;
use jiff::Timestamp;
use resourcesync::capability::ChannelKind;
use resourcesync::uri::Hub;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use websub::hub::subscriptions::view::HubStatus;
use websub::publisher::reason::RefusalKind;

use crate::admin::metrics::exposition::{Exposition, MetricValue};
use crate::report::figures::{ChangeListCounts, HubCounts};
use crate::report::status::{AccountCondition, Status};

pub use crate::admin::metrics::exposition::ExpositionFormat;

const OF_DAEMON: &str = "\
rsnotify_build_info gauge Always 1, labelled with the version
rsnotify_ready gauge 1 if `/readyz` answers 200: every present mount was swept, its Change Lists were read, and the state \
    can be saved
rsnotify_unsaved gauge 1 while the state cannot be saved, so that nothing is sent
rsnotify_save_seconds histogram Time to save the changes of one iteration of the event loop
rsnotify_save_failures_total counter Failed attempts to save the state";

/// Metrics of requests for topics, of the trees and their sweeps, of the changes of resources that were taken from
/// Change Lists, and of hubs.
const METRICS: &str = "\
rsnotify_topic_requests_total counter Requests for topics, by status class of the answer
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
    taken
rsnotify_due_changes gauge Changes due to a hub
rsnotify_oldest_due_seconds gauge Age of the oldest notification that a hub has not accepted, 0 if none; refusals that \
    probably mean that there are no subscribers are not counted
rsnotify_hub_failing gauge 1 while a hub accepts nothing and is retried with one notification at a time
rsnotify_in_flight_notifications gauge Notifications that a hub has not accepted yet
rsnotify_refused_notifications gauge Notifications refused at the last attempt, or waiting for a hub that accepts \
    nothing, by reason; no_subscribers_likely requires no action
rsnotify_needs_person gauge Notifications that a hub refuses for a reason that retries do not solve
rsnotify_last_accepted_timestamp_seconds gauge Time when a hub last accepted a notification
rsnotify_hub_fetch_confirmed gauge 0 while there is a topic that a hub did not fetch within a minute after accepting a \
    ping
rsnotify_unfetched_topics gauge Topics that a hub did not fetch within a minute after accepting a ping
rsnotify_change_backlog_entries gauge Changes of resources that a hub was not told, over all change channels; beyond \
    `window.change_backlog` on one, the oldest count as told
rsnotify_change_entries_dropped_total counter Changes of resources that count as told because a hub fell behind
rsnotify_attempts_total counter Submissions of notifications, retries included, by outcome: accepted, or the reason of \
    the refusal
rsnotify_retries_total counter Repeated submissions of notifications
rsnotify_attempt_seconds histogram Time until a hub answered a submission, or until the timeout
rsnotify_notification_seconds histogram Time from cutting a notification until a hub accepted it, retries included
rsnotify_accepted_changes_total counter Changes in the notifications that a hub accepted";

const OF_EMBEDDED_HUB: &str = "\
rsnotify_subscriptions gauge Subscriptions at the embedded hub
rsnotify_failing_subscriptions gauge Subscriptions whose last delivery attempt failed
rsnotify_owed_deliveries gauge Pending deliveries over all subscriptions
rsnotify_backlog_bytes gauge Bytes of the notifications that are pending for some subscription
rsnotify_topic_subscriptions gauge Subscriptions to a topic, for the hundred topics with the most
rsnotify_subscription_requests_total counter Requests to subscribe and unsubscribe, by answer; excess: a limit was \
    exceeded
rsnotify_verifications_total counter Verifications of callbacks, by outcome; failed: no answer after all retries
rsnotify_deliveries_total counter Delivery attempts, by outcome; refused and failed (no answer) are retried, given_up \
    are not
rsnotify_cut_off_subscriptions_total counter Subscriptions that ended because more than max_backlog was pending
rsnotify_delivery_seconds histogram Time from relaying a notification until a subscriber accepted it, retries included";

const OF_PUBLISHERS: &str = "\
rsnotify_unknown_token_requests_total counter Publications that were refused because no publisher has their token, by \
    its beginning
rsnotify_publications_total counter Publications by publisher and outcome; repeated: accepted and not delivered again; \
    excess: a limit was exceeded
rsnotify_failed_fetches_total counter Attempts to fetch a pinged topic that failed
rsnotify_published_topics gauge Topics that a publisher has published
rsnotify_last_publication_timestamp_seconds gauge Time of the last publication of a publisher that was no repeat";

const OF_PROCESS: &str = "\
process_start_time_seconds gauge Start time of the process
process_cpu_seconds_total counter Processor time used by the process
process_resident_memory_bytes gauge Resident memory of the process
process_open_fds gauge Open file descriptors
process_max_fds gauge Limit of open file descriptors";

/// Returns the metrics, built from the status at each scrape. docs/reference.md describes each.
pub fn expose(status: &Status, is_ready: bool, format: ExpositionFormat) -> String {
    let mut exposition = Exposition::default();
    expose_daemon(&mut exposition, status, is_ready);
    expose_sources(&mut exposition, status);
    expose_hubs(&mut exposition, status);
    // Their counters start at zero with the daemon.
    if let Some(hub) = &status.embedded_hub {
        expose_embedded_hub(&mut exposition, hub);
    }
    if status.is_of_hub() {
        expose_publishers(&mut exposition, status);
    }
    expose_process(&mut exposition, status.figures.counts.began);
    exposition.encode(format)
}

/// Returns the seconds since then, 0 if it is later.
fn age(since: Timestamp, status: &Status) -> u64 {
    let age = status.at.duration_since(since).as_secs();
    u64::try_from(age).unwrap_or_default()
}

/// Metrics of the daemon: readiness, saves, reloads, topic requests.
fn expose_daemon(exposition: &mut Exposition, status: &Status, is_ready: bool) {
    let (counts, topics) = (&status.figures.counts, &status.figures.topics);
    exposition.define(OF_DAEMON);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    exposition.add("build_info", &version, true);
    exposition.add("ready", &[], is_ready);
    exposition.add("unsaved", &[], status.unsaved.is_some());
    exposition.add("save_seconds", &[], &counts.saves);
    exposition.add("save_failures_total", &[], counts.save_failures);
    if let Some(configuration) = &status.configuration {
        exposition.add_single(
            "rsnotify_config_last_reload_successful gauge 0 if the last reload failed and the previous configuration is kept",
            configuration.refused.is_none(),
        );
        exposition.add_single(
            "rsnotify_config_last_reload_success_timestamp_seconds gauge Time of the last successful reload",
            configuration.loaded,
        );
    }
    exposition.define(METRICS);
    for (code, count) in [
        ("2xx", topics.answered),
        ("3xx", topics.not_modified),
        ("4xx", topics.refused),
    ] {
        exposition.add("topic_requests_total", &[("code", code)], count);
    }
}

fn expose_sources(exposition: &mut Exposition, status: &Status) {
    let (figures, counts) = (&status.figures, &status.figures.counts);
    for source in &status.sources {
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
        let uncounted = ChangeListCounts::default();
        let counts = counts.changes.get(name).unwrap_or(&uncounted);
        exposition.add("change_entries_skipped_total", &of_source, counts.skipped);
        let mut add = |metric, label, values: &[&str], counts: &[u64]| {
            for (value, count) in values.iter().zip(counts) {
                let labels = [("source", name), (label, value)];
                exposition.add(metric, &labels, *count);
            }
        };
        let kinds = ["created", "updated", "deleted"];
        add("changes_taken_total", "change", &kinds, &counts.taken);
        let reasons = ["missing", "invalid", "back_dated", "ahead"];
        add("changes_undated_total", "reason", &reasons, &counts.undated);
        let outcomes = ["learned", "taken", "stale"];
        add("change_reads_total", "how", &outcomes, &counts.reads);
    }
    for (source, holdings) in &figures.holdings {
        let of_source = [("source", source.as_str())];
        for ((capability, state), many) in &holdings.documents {
            let (capability, state) = (capability.as_str(), state.as_str());
            let labels = [of_source[0], ("capability", capability), ("state", state)];
            exposition.add("documents", &labels, *many);
        }
        let since = holdings.broken_since.unwrap_or(status.at);
        exposition.add("oldest_broken_seconds", &of_source, age(since, status));
        exposition.add("muted_sets", &of_source, holdings.muted);
        for (kind, many) in &holdings.findings {
            let labels = [of_source[0], ("kind", *kind)];
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

/// Metrics of hubs, summed over channels: there may be thousands of those, and `rsnotify outbox list` prints them.
fn expose_hubs(exposition: &mut Exposition, status: &Status) {
    let hubs = status.sum_hubs_by(|channel, hub| (&hub.hub, channel.kind));
    let uncounted = HubCounts::default();
    for ((hub, kind), sum) in &hubs {
        // Escaped, as everywhere.
        let name = hub.to_string();
        let (of_hub, of_kind) = (("hub", name.as_str()), ("kind", kind.as_str()));
        let account = [of_hub, of_kind];
        exposition.add("due_changes", &account, sum.due);
        let since = sum.oldest.unwrap_or(status.at);
        exposition.add("oldest_due_seconds", &account, age(since, status));
        exposition.add("in_flight_notifications", &account, sum.in_flight);
        for (reason, many) in &sum.refused {
            let labels = [of_hub, of_kind, ("reason", reason.as_str())];
            exposition.add("refused_notifications", &labels, *many);
        }
        let stuck = sum.states.get(&AccountCondition::NeedsOperator);
        exposition.add("needs_person", &account, stuck.copied().unwrap_or(0));
        if let Some(at) = sum.accepted {
            exposition.add("last_accepted_timestamp_seconds", &account, at);
        }
        if sum.mode == PublishMode::Ping {
            let is_confirmed = sum.unfetched == 0;
            exposition.add("hub_fetch_confirmed", &account, is_confirmed);
            exposition.add("unfetched_topics", &account, sum.unfetched);
        }
        let of_hubs = &status.figures.counts.hubs;
        let counts = of_hubs.get(&((*hub).clone(), *kind)).unwrap_or(&uncounted);
        if *kind == ChannelKind::Change {
            exposition.add("change_backlog_entries", &[of_hub], sum.due);
            exposition.add("change_entries_dropped_total", &[of_hub], counts.dropped);
        }
        let mut attempts = |outcome, count| {
            let labels = [of_hub, of_kind, ("outcome", outcome)];
            exposition.add("attempts_total", &labels, count);
        };
        attempts("accepted", counts.accepted);
        for (kind, name) in RefusalKind::ALL {
            attempts(name, counts.refused.get(&kind).copied().unwrap_or(0));
        }
        exposition.add("retries_total", &account, counts.retries);
        exposition.add("notification_seconds", &account, &counts.took);
        exposition.add("accepted_changes_total", &account, counts.changes);
    }
    let names: BTreeSet<&Hub> = hubs.keys().map(|(hub, _)| *hub).collect();
    for hub in names {
        let mut failing = status.failing_hubs.iter();
        let is_failing = failing.any(|failing| failing.hub == *hub);
        exposition.add("hub_failing", &[("hub", &*hub.to_string())], is_failing);
    }
    for (hub, took) in &status.figures.attempts {
        exposition.add("attempt_seconds", &[("hub", &*hub.to_string())], took);
    }
}

fn expose_embedded_hub(exposition: &mut Exposition, hub: &HubStatus) {
    exposition.define(OF_EMBEDDED_HUB);
    let (requests, verifications) = (&hub.counts.requests, &hub.counts.verifications);
    let deliveries = &hub.counts.deliveries;
    exposition.add("subscriptions", &[], hub.subscriptions);
    exposition.add("failing_subscriptions", &[], hub.failing);
    exposition.add("owed_deliveries", &[], hub.owed);
    exposition.add("backlog_bytes", &[], hub.backlog_bytes);
    for (topic, many) in &hub.topics {
        let topic = topic.to_string();
        exposition.add("topic_subscriptions", &[("topic", topic.as_str())], *many);
    }
    for (answer, count) in [
        ("accepted", requests.answered),
        ("refused", requests.refused),
        ("excess", requests.limited),
    ] {
        exposition.add("subscription_requests_total", &[("answer", answer)], count);
    }
    for (name, outcome, count) in [
        ("verifications_total", "confirmed", verifications.confirmed),
        ("verifications_total", "refused", verifications.refused),
        ("verifications_total", "failed", verifications.failed),
        ("deliveries_total", "delivered", deliveries.delivered),
        ("deliveries_total", "refused", deliveries.refused),
        ("deliveries_total", "failed", deliveries.failed),
        ("deliveries_total", "given_up", deliveries.abandoned),
        ("deliveries_total", "gone", deliveries.gone),
    ] {
        exposition.add(name, &[("outcome", outcome)], count);
    }
    exposition.add("cut_off_subscriptions_total", &[], deliveries.cut_off);
    exposition.add("delivery_seconds", &[], &hub.counts.latency);
}

fn expose_publishers(exposition: &mut Exposition, status: &Status) {
    exposition.define(OF_PUBLISHERS);
    for unknown in &status.unknown_tokens {
        let token = [("token", unknown.token.as_str())];
        exposition.add("unknown_token_requests_total", &token, unknown.times);
    }
    for publisher in &status.publishers {
        let (label, counts) = (("publisher", publisher.name.as_str()), &publisher.counts);
        for (outcome, count) in [
            ("accepted", counts.accepted - counts.repeated),
            ("repeated", counts.repeated),
            ("refused", counts.refused),
            ("excess", counts.limited),
        ] {
            let labels = [label, ("outcome", outcome)];
            exposition.add("publications_total", &labels, count);
        }
        let label = [label];
        exposition.add("failed_fetches_total", &label, counts.failed_fetches);
        exposition.add("published_topics", &label, publisher.published_topics);
        if let Some(at) = publisher.published {
            let seconds = at.as_second().unsigned_abs();
            exposition.add("last_publication_timestamp_seconds", &label, seconds);
        }
    }
}

/// Metrics of the process, named as in Prometheus' client libraries. Values that the system does not provide are
/// left out.
fn expose_process(exposition: &mut Exposition, began: Timestamp) {
    let spent = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok();
    let open = fs::read_dir("/proc/self/fd").ok();
    let limit = getrlimit(Resource::Nofile).current;
    let values = [
        Some(began.into()),
        spent.map(|spent| MetricValue::Seconds(spent.as_secs_f64())),
        resident().map(MetricValue::from),
        open.map(|open| open.count().into()),
        limit.map(MetricValue::from),
    ];
    for (metric, value) in OF_PROCESS.lines().zip(values) {
        if let Some(value) = value {
            exposition.add_single(metric, value);
        }
    }
}

fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::status::HubView;
    use crate::report::status::alerts::HubSummary;
    use crate::report::tests::{channel_view, hub_view};

    /// Returns a view of a hub whose notification waits since that second, refused for this reason.
    fn refused(kind: RefusalKind, since: i64) -> HubView {
        HubView {
            state: AccountCondition::Due,
            since: Some(Timestamp::from_second(since).unwrap()),
            ..hub_view(kind, "words")
        }
    }

    #[test]
    fn a_topic_without_subscribers_is_not_the_oldest_and_hides_no_other() {
        let idle = refused(RefusalKind::NoSubscribersLikely, 0);
        let silent = refused(RefusalKind::NoAnswer, 40);
        let sum = HubSummary::of(&[&idle]);
        assert_eq!((sum.oldest, sum.due), (None, 1));
        let sum = HubSummary::of(&[&idle, &silent]);
        assert_eq!(sum.oldest, silent.since);
    }

    #[test]
    fn a_hub_cannot_command_a_terminal_by_its_name() {
        let mut channel = channel_view(0, "words");
        channel.hubs = vec![hub_view(RefusalKind::NotAllowed, "\u{1b}[2J")];
        let hub = channel.hubs[0].hub.clone();
        let mut status = Status {
            channels: vec![channel],
            ..Status::default()
        };
        status.figures.attempts.insert(hub, Default::default());
        let text = expose(&status, true, ExpositionFormat::Text);
        assert!(
            text.contains("hub=\"https://h.example/") && !text.contains('\u{1b}'),
            "{text}"
        );
    }
}

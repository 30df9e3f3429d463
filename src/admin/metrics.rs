//! The daemon's status as metrics for Prometheus.

mod embedded;
mod exposition;
mod hubs;
mod sources;

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::admin::metrics::exposition::{Exposition, MetricValue};
use crate::report::status::Status;

pub use crate::admin::metrics::exposition::ExpositionFormat;

const METRICS: &str = "\
rsnotify_build_info gauge Always 1, labelled with the version
rsnotify_ready gauge 1 if `/readyz` answers 200: every present mount was swept, its Change Lists were read, and the state \
    can be saved
rsnotify_unsaved gauge 1 while the state cannot be saved, so that nothing is sent
rsnotify_save_seconds histogram Time to save the changes of one iteration of the event loop
rsnotify_save_failures_total counter Failed attempts to save the state";

/// Returns the metrics, built from the status at each scrape. docs/reference.md describes each.
pub fn expose(status: &Status, is_ready: bool, format: ExpositionFormat) -> String {
    let mut exposition = Exposition::default();
    expose_daemon(&mut exposition, status, is_ready);
    sources::expose(&mut exposition, status);
    hubs::expose(&mut exposition, status);
    if let Some(hub) = &status.embedded_hub {
        embedded::expose(&mut exposition, hub);
    }
    if status.is_of_hub() {
        embedded::expose_publishers(&mut exposition, status);
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
    exposition.define(METRICS);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    exposition.add("build_info", &version, true);
    exposition.add("ready", &[], is_ready);
    exposition.add("unsaved", &[], status.unsaved.is_some());
    exposition.add("save_seconds", &[], &counts.saves);
    exposition.add("save_failures_total", &[], counts.save_failures);
    if let Some(configuration) = &status.configuration {
        exposition.single(
            "rsnotify_config_last_reload_successful gauge 0 if the last reload failed and the previous configuration is kept",
            configuration.refused.is_none(),
        );
        exposition.single(
            "rsnotify_config_last_reload_success_timestamp_seconds gauge Time of the last successful reload",
            configuration.loaded,
        );
    }
    exposition.define(
        "rsnotify_topic_requests_total counter Requests for topics, by status class of the answer",
    );
    for (code, count) in [
        ("2xx", topics.answered),
        ("3xx", topics.not_modified),
        ("4xx", topics.refused),
    ] {
        exposition.add("topic_requests_total", &[("code", code)], count);
    }
}

/// Metrics of the process, named as in Prometheus' client libraries. Values that the system does not provide are
/// left out.
fn expose_process(exposition: &mut Exposition, began: Timestamp) {
    exposition.single(
        "process_start_time_seconds gauge Start time of the process",
        began,
    );
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    if let Ok(spent) = Duration::try_from(spent) {
        exposition.single(
            "process_cpu_seconds_total counter Processor time used by the process",
            MetricValue::Seconds(spent.as_secs_f64()),
        );
    }
    if let Some(bytes) = resident() {
        exposition.single(
            "process_resident_memory_bytes gauge Resident memory of the process",
            bytes,
        );
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        exposition.single("process_open_fds gauge Open file descriptors", open.count());
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        exposition.single(
            "process_max_fds gauge Limit of open file descriptors",
            limit,
        );
    }
}

fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

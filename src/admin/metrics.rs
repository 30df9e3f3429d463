//! The daemon's status as metrics for Prometheus.

mod changes;
mod embedded;
mod exposition;
mod hubs;
mod publishers;
mod sources;

use std::fs;

use jiff::Timestamp;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::admin::metrics::exposition::{Exposition, seconds};
use crate::report::status::Status;

pub use crate::admin::metrics::exposition::ExpositionFormat;

/// Returns the metrics, built from the status at each scrape. docs/reference.md describes each.
pub fn expose(status: &Status, is_ready: bool, format: ExpositionFormat) -> String {
    let mut exposition = Exposition::default();
    expose_daemon(&mut exposition, status, is_ready);
    sources::expose(&mut exposition, status);
    changes::expose(&mut exposition, status);
    hubs::expose(&mut exposition, status);
    if let Some(hub) = &status.embedded_hub {
        embedded::expose(&mut exposition, hub);
    }
    if status.is_of_hub() {
        publishers::expose(&mut exposition, &status.publishers, &status.unknown_tokens);
    }
    expose_process(&mut exposition, status.figures.counts.began);
    exposition.encode(format)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Metrics of the daemon: readiness, saves, reloads, topic requests.
fn expose_daemon(exposition: &mut Exposition, status: &Status, is_ready: bool) {
    let figures = &status.figures;
    exposition.gauges(
        "rsnotify_build_info",
        "Always 1, labelled with the version",
        [([("version", env!("CARGO_PKG_VERSION").to_owned())], 1)],
    );
    exposition.gauge(
        "rsnotify_ready",
        "1 if `/readyz` answers 200: every present mount was swept, its Change Lists were read, and the state can be saved",
        i64::from(is_ready),
    );
    exposition.gauge(
        "rsnotify_unsaved",
        "1 while the state cannot be saved, so that nothing is sent",
        i64::from(status.unsaved.is_some()),
    );
    exposition.histogram(
        "rsnotify_save_seconds",
        "Time to save the changes of one iteration of the event loop",
        &figures.counts.saves,
    );
    exposition.counter(
        "rsnotify_save_failures_total",
        "Failed attempts to save the state",
        figures.counts.save_failures,
    );
    if let Some(configuration) = &status.configuration {
        exposition.gauge(
            "rsnotify_config_last_reload_successful",
            "0 if the last reload failed and the previous configuration is kept",
            i64::from(configuration.refused.is_none()),
        );
        exposition.gauge(
            "rsnotify_config_last_reload_success_timestamp_seconds",
            "Time of the last successful reload",
            seconds(configuration.loaded),
        );
    }
    let topics = &figures.topics;
    let requests = [
        ("2xx", topics.answered),
        ("3xx", topics.not_modified),
        ("4xx", topics.refused),
    ];
    exposition.counters(
        "rsnotify_topic_requests_total",
        "Requests for topics, by status class of the answer",
        requests.map(|(code, count)| ([("code", code.to_owned())], count)),
    );
}

/// Metrics of the process, named as in Prometheus' client libraries. Values that the system does not provide are
/// left out.
fn expose_process(exposition: &mut Exposition, began: Timestamp) {
    exposition.gauge(
        "process_start_time_seconds",
        "Start time of the process",
        seconds(began),
    );
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    if let Ok(spent) = std::time::Duration::try_from(spent) {
        exposition.counter(
            "process_cpu_seconds_total",
            "Processor time used by the process",
            spent.as_secs_f64(),
        );
    }
    if let Some(bytes) = resident() {
        exposition.gauge(
            "process_resident_memory_bytes",
            "Resident memory of the process",
            bytes,
        );
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        exposition.gauge(
            "process_open_fds",
            "Open file descriptors",
            count(open.count()),
        );
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        exposition.gauge("process_max_fds", "Limit of open file descriptors", limit);
    }
}

fn resident() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

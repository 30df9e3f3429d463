//! Metrics of the daemon: readiness, saves, reloads, topic requests.

use crate::admin::metrics::exposition::{Exposition, seconds};
use crate::report::status::Status;

pub fn expose(exposition: &mut Exposition, status: &Status, is_ready: bool) {
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

//! How the daemon itself does: whether it is ready, what it saves, what it is asked.

use crate::admin::metrics::exposition::{Exposition, seconds};
use crate::report::status::Status;

pub fn expose(exposition: &mut Exposition, status: &Status, is_ready: bool) {
    let figures = &status.figures;
    exposition.gauges(
        "rsnotify_build_info",
        "Always 1; which version this is",
        [([("version", env!("CARGO_PKG_VERSION").to_owned())], 1)],
    );
    exposition.gauge(
        "rsnotify_ready",
        "Whether `/readyz` says so: every present mount was swept, and the state can be saved",
        i64::from(is_ready),
    );
    exposition.gauge(
        "rsnotify_unsaved",
        "1 while the state cannot be saved, and so nothing is sent",
        i64::from(status.unsaved.is_some()),
    );
    exposition.histogram(
        "rsnotify_save_seconds",
        "How long it took to save what one turn of the loop changed",
        &figures.counts.saves,
    );
    exposition.counter(
        "rsnotify_save_failures_total",
        "How often the state could not be saved",
        figures.counts.save_failures,
    );
    if let Some(configuration) = &status.configuration {
        exposition.gauge(
            "rsnotify_config_last_reload_successful",
            "0 while the configuration that was last asked for was refused, and the one before it goes on",
            i64::from(configuration.refused.is_none()),
        );
        exposition.gauge(
            "rsnotify_config_last_reload_success_timestamp_seconds",
            "Since when the configuration in force is",
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
        "Requests for topics, by the class of the status that answered them",
        requests.map(|(code, count)| ([("code", code.to_owned())], count)),
    );
}

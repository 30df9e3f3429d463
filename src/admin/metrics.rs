//! The daemon's status as metrics for Prometheus.

mod changes;
mod daemon;
mod embedded;
mod exposition;
mod hubs;
mod process;
mod publishers;
mod sources;

use crate::admin::metrics::exposition::Exposition;
use crate::report::status::Status;

pub use crate::admin::metrics::exposition::ExpositionFormat;

/// Returns the metrics, built from the status at each scrape. docs/reference.md describes each.
pub fn expose(status: &Status, is_ready: bool, format: ExpositionFormat) -> String {
    let mut exposition = Exposition::default();
    daemon::expose(&mut exposition, status, is_ready);
    sources::expose(&mut exposition, status);
    changes::expose(&mut exposition, status);
    hubs::expose(&mut exposition, status);
    if let Some(hub) = &status.embedded_hub {
        embedded::expose(&mut exposition, hub);
    }
    if status.is_of_hub() {
        publishers::expose(&mut exposition, &status.publishers, &status.unknown_tokens);
    }
    process::expose(&mut exposition, status.figures.counts.began);
    exposition.encode(format)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

//! The same figures for Prometheus.

mod daemon;
mod embedded;
mod hubs;
mod page;
mod process;
mod sources;

use crate::admin::metrics::page::Page;
use crate::announce::status::Status;

pub use crate::admin::metrics::page::Format;

/// The metrics, made anew for each scrape from how things stand. docs/metrics.md tells what each means.
pub fn expose(status: &Status, is_ready: bool, format: Format) -> String {
    let mut page = Page::default();
    daemon::expose(&mut page, status, is_ready);
    sources::expose(&mut page, status);
    hubs::expose(&mut page, status);
    if let Some(hub) = &status.embedded_hub {
        embedded::expose(&mut page, hub);
    }
    process::expose(&mut page, status.figures.counts.began);
    page.written(format)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

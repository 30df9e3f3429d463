//! The same figures for Prometheus.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::admin::status::Status;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfSource {
    source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfHub {
    hub: String,
}

/// The metrics in the OpenMetrics text format, made anew for each scrape from how things stand.
pub fn expose(status: &Status) -> String {
    let mut registry = Registry::with_prefix("rsnotify");
    let documents = Family::<OfSource, Gauge>::default();
    let missing = Family::<OfSource, Gauge>::default();
    let broken = Family::<OfSource, Gauge>::default();
    let suspended = Family::<OfSource, Gauge>::default();
    let due = Family::<OfHub, Gauge>::default();
    let in_flight = Family::<OfHub, Gauge>::default();
    for source in &status.sources {
        let label = OfSource {
            source: source.name.clone(),
        };
        documents.get_or_create(&label).set(count(source.documents));
        missing.get_or_create(&label).set(count(source.missing));
        broken.get_or_create(&label).set(count(source.broken));
        suspended
            .get_or_create(&label)
            .set(i64::from(source.suspension.is_some()));
    }
    for hub in status.channels.iter().flat_map(|channel| &channel.hubs) {
        let label = OfHub {
            hub: hub.hub.to_string(),
        };
        due.get_or_create(&label).inc_by(count(hub.due));
        in_flight
            .get_or_create(&label)
            .inc_by(i64::from(hub.in_flight.is_some()));
    }
    registry.register(
        "documents",
        "Documents seen complete and not deleted",
        documents,
    );
    registry.register(
        "missing_documents",
        "Documents not found, and not yet believed deleted",
        missing,
    );
    registry.register(
        "broken_documents",
        "Candidates that cannot be read now",
        broken,
    );
    registry.register(
        "suspended",
        "1 while too much is missing for deletions to be believed; `rsnotify accept SOURCE` believes them",
        suspended,
    );
    registry.register(
        "due_changes",
        "Documents of which there is something to tell a hub",
        due,
    );
    registry.register(
        "in_flight_notifications",
        "Notifications a hub has not accepted yet",
        in_flight,
    );
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

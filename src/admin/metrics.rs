//! The same figures for Prometheus.

mod embedded;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::announce::status::{Condition, HubView, SourceStatus, Status};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfSource {
    source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfHub {
    hub: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRefusal {
    hub: String,
    reason: &'static str,
}

/// The metrics in the OpenMetrics text format, made anew for each scrape from how things stand.
pub fn expose(status: &Status) -> String {
    let mut registry = Registry::with_prefix("rsnotify");
    expose_sources(&mut registry, &status.sources);
    let hubs = status.channels.iter().flat_map(|channel| &channel.hubs);
    expose_hubs(&mut registry, hubs, status.at);
    if let Some(hub) = &status.embedded_hub {
        embedded::expose(&mut registry, hub);
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

fn expose_sources(registry: &mut Registry, sources: &[SourceStatus]) {
    let documents = Family::<OfSource, Gauge>::default();
    let missing = Family::<OfSource, Gauge>::default();
    let broken = Family::<OfSource, Gauge>::default();
    let suspended = Family::<OfSource, Gauge>::default();
    for source in sources {
        let label = OfSource {
            source: source.name.clone(),
        };
        documents.get_or_create(&label).set(count(source.documents));
        missing.get_or_create(&label).set(count(source.missing));
        broken.get_or_create(&label).set(count(source.broken));
        suspended
            .get_or_create(&label)
            .set(i64::from(source.suspended));
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
}

/// By hub, and not by channel: there may be thousands of those, and `rsnotify outbox list` has them.
fn expose_hubs<'a>(
    registry: &mut Registry,
    hubs: impl Iterator<Item = &'a HubView>,
    now: Timestamp,
) {
    let due = Family::<OfHub, Gauge>::default();
    let oldest = Family::<OfHub, Gauge>::default();
    let in_flight = Family::<OfHub, Gauge>::default();
    let refused = Family::<OfRefusal, Gauge>::default();
    let needs_person = Family::<OfHub, Gauge>::default();
    let confirmed = Family::<OfHub, Gauge>::default();
    let unfetched = Family::<OfHub, Gauge>::default();
    for hub in hubs {
        let label = OfHub {
            hub: hub.hub.to_string(),
        };
        due.get_or_create(&label).inc_by(count(hub.due));
        in_flight
            .get_or_create(&label)
            .inc_by(i64::from(hub.in_flight.is_some()));
        let age = hub
            .since
            .map_or(0, |since| now.duration_since(since).as_secs());
        let oldest = oldest.get_or_create(&label);
        oldest.set(oldest.get().max(age));
        if let Some(refusal) = hub.failure() {
            let label = OfRefusal {
                hub: hub.hub.to_string(),
                reason: refusal.kind.as_str(),
            };
            refused.get_or_create(&label).inc();
        }
        needs_person
            .get_or_create(&label)
            .inc_by(i64::from(hub.state == Condition::NeedsPerson));
        if hub.mode.is_pinged() {
            let silent = unfetched.get_or_create(&label);
            silent.inc_by(i64::from(hub.fetch_confirmed == Some(false)));
            confirmed
                .get_or_create(&label)
                .set(i64::from(silent.get() == 0));
        }
    }
    registry.register(
        "due_changes",
        "Documents of which there is something to tell a hub",
        due,
    );
    registry.register(
        "oldest_due_seconds",
        "How long the notification waits that a hub has not accepted for longest; 0 without one",
        oldest,
    );
    registry.register(
        "in_flight_notifications",
        "Notifications a hub has not accepted yet",
        in_flight,
    );
    registry.register(
        "refused_notifications",
        "Notifications that a hub did not accept when they were last tried, by reason; \
         no_subscribers_likely is no reason to call anybody",
        refused,
    );
    registry.register(
        "needs_person",
        "Notifications that a hub refuses for a reason that waiting alone will not help",
        needs_person,
    );
    registry.register(
        "hub_fetch_confirmed",
        "0 while a hub has accepted a ping and not fetched the topic within a minute, for any topic",
        confirmed,
    );
    registry.register(
        "unfetched_topics",
        "Topics that a hub accepted a ping about and has not fetched within a minute",
        unfetched,
    );
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

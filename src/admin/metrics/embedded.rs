//! The embedded hub's figures for Prometheus. What is counted begins at zero with the daemon.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::admin::metrics::count;
use crate::announce::subscription::audience::view::HubStatus;
use crate::announce::subscription::counts::{Counts, Latency};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTopic {
    topic: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOutcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAnswer {
    answer: &'static str,
}

pub fn expose(registry: &mut Registry, hub: &HubStatus) {
    let gauge = |value: usize| -> Gauge {
        let gauge = Gauge::default();
        gauge.set(count(value));
        gauge
    };
    registry.register(
        "subscriptions",
        "Subscriptions at the embedded hub",
        gauge(hub.subscriptions),
    );
    registry.register(
        "failing_subscriptions",
        "Subscriptions that did not take what was last tried",
        gauge(hub.failing),
    );
    registry.register(
        "owed_deliveries",
        "Deliveries that are still to be made, over all subscriptions",
        gauge(hub.owed),
    );
    let topics = Family::<OfTopic, Gauge>::default();
    for (topic, subscriptions) in &hub.topics {
        let label = OfTopic {
            topic: topic.to_string(),
        };
        topics.get_or_create(&label).set(count(*subscriptions));
    }
    registry.register(
        "topic_subscriptions",
        "Subscriptions to a topic, for the hundred topics that have most",
        topics,
    );
    expose_counts(registry, &hub.counts);
}

fn expose_counts(registry: &mut Registry, counts: &Counts) {
    let Counts {
        requests,
        verifications,
        deliveries,
        latency,
    } = counts;
    let answers = [
        ("accepted", requests.accepted),
        ("refused", requests.refused),
        ("excess", requests.excess),
    ];
    let requests = family(answers.map(|(answer, count)| (OfAnswer { answer }, count)));
    registry.register(
        "subscription_requests",
        "Requests to subscribe and unsubscribe, by what was answered; excess: more than a limit allows",
        requests,
    );
    let outcomes = [
        ("confirmed", verifications.confirmed),
        ("refused", verifications.refused),
        ("failed", verifications.failed),
    ];
    registry.register(
        "verifications",
        "Verifications, by what came of them; failed: not answered, however often it was tried",
        family(outcomes.map(|(outcome, count)| (OfOutcome { outcome }, count))),
    );
    let outcomes = [
        ("delivered", deliveries.delivered),
        ("refused", deliveries.refused),
        ("failed", deliveries.failed),
        ("given_up", deliveries.given_up),
        ("gone", deliveries.gone),
    ];
    registry.register(
        "deliveries",
        "Tries to deliver, by what came of them; refused and failed (no answer) are tried again, given_up are not",
        family(outcomes.map(|(outcome, count)| (OfOutcome { outcome }, count))),
    );
    registry.register(
        "delivery_seconds",
        "How long it took from when a notification was relayed until a subscriber accepted it, retries included",
        Observed(latency.clone()),
    );
}

fn family<L, const N: usize>(counts: [(L, u64); N]) -> Family<L, Counter>
where
    L: Clone + std::hash::Hash + Eq,
{
    let family = Family::<L, Counter>::default();
    for (label, count) in counts {
        family.get_or_create(&label).inc_by(count);
    }
    family
}

/// A histogram that was filled elsewhere.
#[derive(Debug)]
struct Observed(Latency);

impl EncodeMetric for Observed {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Observed(latency) = self;
        let buckets: Vec<(f64, u64)> = latency.buckets().collect();
        encoder.encode_histogram::<NoLabelSet>(latency.sum, latency.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

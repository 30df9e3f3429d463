//! The embedded hub's figures for Prometheus. What is counted begins at zero with the daemon.

use crate::admin::metrics::count;
use crate::admin::metrics::exposition::{Exposition, Label};
use crate::hub::audience::view::HubStatus;
use crate::hub::counts::Counts;

pub fn expose(exposition: &mut Exposition, hub: &HubStatus) {
    exposition.gauge(
        "rsnotify_subscriptions",
        "Subscriptions at the embedded hub",
        count(hub.subscriptions),
    );
    exposition.gauge(
        "rsnotify_failing_subscriptions",
        "Subscriptions that did not take what was last tried",
        count(hub.failing),
    );
    exposition.gauge(
        "rsnotify_owed_deliveries",
        "Deliveries that are still to be made, over all subscriptions",
        count(hub.owed),
    );
    let topics = hub.topics.iter();
    exposition.gauges(
        "rsnotify_topic_subscriptions",
        "Subscriptions to a topic, for the hundred topics that have most",
        topics.map(|(topic, many)| ([("topic", topic.to_string())], count(*many))),
    );
    expose_counts(exposition, &hub.counts);
}

fn expose_counts(exposition: &mut Exposition, counts: &Counts) {
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
    exposition.counters(
        "rsnotify_subscription_requests_total",
        "Requests to subscribe and unsubscribe, by what was answered; excess: more than a limit allows",
        by("answer", answers),
    );
    let outcomes = [
        ("confirmed", verifications.confirmed),
        ("refused", verifications.refused),
        ("failed", verifications.failed),
    ];
    exposition.counters(
        "rsnotify_verifications_total",
        "Verifications, by what came of them; failed: not answered, however often it was tried",
        by("outcome", outcomes),
    );
    let outcomes = [
        ("delivered", deliveries.delivered),
        ("refused", deliveries.refused),
        ("failed", deliveries.failed),
        ("given_up", deliveries.given_up),
        ("gone", deliveries.gone),
    ];
    exposition.counters(
        "rsnotify_deliveries_total",
        "Tries to deliver, by what came of them; refused and failed (no answer) are tried again, given_up are not",
        by("outcome", outcomes),
    );
    exposition.histogram(
        "rsnotify_delivery_seconds",
        "How long it took from when a notification was relayed until a subscriber accepted it, retries included",
        latency,
    );
}

fn by<const N: usize>(
    label: &'static str,
    counts: [(&'static str, u64); N],
) -> [([Label; 1], u64); N] {
    counts.map(|(value, count)| ([(label, value.to_owned())], count))
}

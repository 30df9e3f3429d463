//! Metrics of the embedded hub. Counters start at zero with the daemon.

use websub::counts::EmbeddedHubCounts;
use websub::hub::subscriptions::view::HubStatus;

use crate::admin::metrics::count;
use crate::admin::metrics::exposition::{Exposition, Label};

pub fn expose(exposition: &mut Exposition, hub: &HubStatus) {
    exposition.gauge(
        "rsnotify_subscriptions",
        "Subscriptions at the embedded hub",
        count(hub.subscriptions),
    );
    exposition.gauge(
        "rsnotify_failing_subscriptions",
        "Subscriptions whose last delivery attempt failed",
        count(hub.failing),
    );
    exposition.gauge(
        "rsnotify_owed_deliveries",
        "Pending deliveries over all subscriptions",
        count(hub.owed),
    );
    exposition.gauge(
        "rsnotify_backlog_bytes",
        "Bytes of the notifications that are pending for some subscription",
        hub.backlog_bytes,
    );
    let topics = hub.topics.iter();
    exposition.gauges(
        "rsnotify_topic_subscriptions",
        "Subscriptions to a topic, for the hundred topics with the most",
        topics.map(|(topic, many)| ([("topic", topic.to_string())], count(*many))),
    );
    expose_counts(exposition, &hub.counts);
}

fn expose_counts(exposition: &mut Exposition, counts: &EmbeddedHubCounts) {
    let EmbeddedHubCounts {
        requests,
        verifications,
        deliveries,
        latency,
    } = counts;
    let answers = [
        ("accepted", requests.accepted),
        ("refused", requests.refused),
        ("excess", requests.limited),
    ];
    exposition.counters(
        "rsnotify_subscription_requests_total",
        "Requests to subscribe and unsubscribe, by answer; excess: a limit was exceeded",
        by("answer", answers),
    );
    let outcomes = [
        ("confirmed", verifications.confirmed),
        ("refused", verifications.refused),
        ("failed", verifications.failed),
    ];
    exposition.counters(
        "rsnotify_verifications_total",
        "Verifications of callbacks, by outcome; failed: no answer after all retries",
        by("outcome", outcomes),
    );
    let outcomes = [
        ("delivered", deliveries.delivered),
        ("refused", deliveries.refused),
        ("failed", deliveries.failed),
        ("given_up", deliveries.abandoned),
        ("gone", deliveries.gone),
    ];
    exposition.counters(
        "rsnotify_deliveries_total",
        "Delivery attempts, by outcome; refused and failed (no answer) are retried, given_up are not",
        by("outcome", outcomes),
    );
    exposition.counter(
        "rsnotify_cut_off_subscriptions_total",
        "Subscriptions that ended because more than max_backlog was pending",
        deliveries.cut_off,
    );
    exposition.histogram(
        "rsnotify_delivery_seconds",
        "Time from relaying a notification until a subscriber accepted it, retries included",
        latency,
    );
}

fn by<const N: usize>(
    label: &'static str,
    counts: [(&'static str, u64); N],
) -> [([Label; 1], u64); N] {
    counts.map(|(value, count)| ([(label, value.to_owned())], count))
}

//! Metrics of the embedded hub, and of the publishers of `rsnotify hub`. Counters start at zero with the daemon.

use websub::hub::subscriptions::view::HubStatus;

use crate::admin::metrics::exposition::Exposition;
use crate::report::status::Status;

const METRICS: &str = "\
rsnotify_subscriptions gauge Subscriptions at the embedded hub
rsnotify_failing_subscriptions gauge Subscriptions whose last delivery attempt failed
rsnotify_owed_deliveries gauge Pending deliveries over all subscriptions
rsnotify_backlog_bytes gauge Bytes of the notifications that are pending for some subscription
rsnotify_topic_subscriptions gauge Subscriptions to a topic, for the hundred topics with the most
rsnotify_subscription_requests_total counter Requests to subscribe and unsubscribe, by answer; excess: a limit was \
    exceeded
rsnotify_verifications_total counter Verifications of callbacks, by outcome; failed: no answer after all retries
rsnotify_deliveries_total counter Delivery attempts, by outcome; refused and failed (no answer) are retried, given_up \
    are not
rsnotify_cut_off_subscriptions_total counter Subscriptions that ended because more than max_backlog was pending
rsnotify_delivery_seconds histogram Time from relaying a notification until a subscriber accepted it, retries included";

const OF_PUBLISHERS: &str = "\
rsnotify_unknown_token_requests_total counter Publications that were refused because no publisher has their token, by \
    its beginning
rsnotify_publications_total counter Publications by publisher and outcome; repeated: accepted and not delivered again; \
    excess: a limit was exceeded
rsnotify_failed_fetches_total counter Attempts to fetch a pinged topic that failed
rsnotify_published_topics gauge Topics that a publisher has published
rsnotify_last_publication_timestamp_seconds gauge Time of the last publication of a publisher that was no repeat";

pub fn expose(exposition: &mut Exposition, hub: &HubStatus) {
    exposition.define(METRICS);
    let (requests, verifications) = (&hub.counts.requests, &hub.counts.verifications);
    let deliveries = &hub.counts.deliveries;
    exposition.add("subscriptions", &[], hub.subscriptions);
    exposition.add("failing_subscriptions", &[], hub.failing);
    exposition.add("owed_deliveries", &[], hub.owed);
    exposition.add("backlog_bytes", &[], hub.backlog_bytes);
    for (topic, many) in &hub.topics {
        let topic = topic.to_string();
        exposition.add("topic_subscriptions", &[("topic", topic.as_str())], *many);
    }
    for (answer, count) in [
        ("accepted", requests.accepted),
        ("refused", requests.refused),
        ("excess", requests.limited),
    ] {
        exposition.add("subscription_requests_total", &[("answer", answer)], count);
    }
    for (name, outcome, count) in [
        ("verifications_total", "confirmed", verifications.confirmed),
        ("verifications_total", "refused", verifications.refused),
        ("verifications_total", "failed", verifications.failed),
        ("deliveries_total", "delivered", deliveries.delivered),
        ("deliveries_total", "refused", deliveries.refused),
        ("deliveries_total", "failed", deliveries.failed),
        ("deliveries_total", "given_up", deliveries.abandoned),
        ("deliveries_total", "gone", deliveries.gone),
    ] {
        exposition.add(name, &[("outcome", outcome)], count);
    }
    exposition.add("cut_off_subscriptions_total", &[], deliveries.cut_off);
    exposition.add("delivery_seconds", &[], &hub.counts.latency);
}

pub fn expose_publishers(exposition: &mut Exposition, status: &Status) {
    exposition.define(OF_PUBLISHERS);
    for unknown in &status.unknown_tokens {
        let token = [("token", unknown.token.as_str())];
        exposition.add("unknown_token_requests_total", &token, unknown.times);
    }
    for publisher in &status.publishers {
        let (label, counts) = (("publisher", publisher.name.as_str()), &publisher.counts);
        for (outcome, count) in [
            ("accepted", counts.accepted - counts.repeated),
            ("repeated", counts.repeated),
            ("refused", counts.refused),
            ("excess", counts.limited),
        ] {
            let labels = [label, ("outcome", outcome)];
            exposition.add("publications_total", &labels, count);
        }
        let label = [label];
        exposition.add("failed_fetches_total", &label, counts.failed_fetches);
        exposition.add("published_topics", &label, publisher.published_topics);
        if let Some(at) = publisher.published {
            let seconds = at.as_second().unsigned_abs();
            exposition.add("last_publication_timestamp_seconds", &label, seconds);
        }
    }
}

//! Metrics of the publishers of `rsnotify hub`. Counters start at zero with the daemon.

use websub::hub::publisher_counts::{PublisherView, UnknownToken};

use crate::admin::metrics::count;
use crate::admin::metrics::exposition::Exposition;

pub fn expose(
    exposition: &mut Exposition,
    publishers: &[PublisherView],
    unknown_tokens: &[UnknownToken],
) {
    exposition.counters(
        "rsnotify_unknown_token_requests_total",
        "Publications that were refused because no publisher has their token, by its beginning",
        unknown_tokens
            .iter()
            .map(|unknown| ([("token", unknown.token.clone())], unknown.times)),
    );
    let of = |publisher: &PublisherView| ("publisher", publisher.name.clone());
    let publications = publishers.iter().flat_map(|publisher| {
        [
            (
                "accepted",
                publisher.counts.accepted - publisher.counts.repeated,
            ),
            ("repeated", publisher.counts.repeated),
            ("refused", publisher.counts.refused),
            ("excess", publisher.counts.limited),
        ]
        .map(|(outcome, times)| ([of(publisher), ("outcome", outcome.to_owned())], times))
    });
    exposition.counters(
        "rsnotify_publications_total",
        "Publications by publisher and outcome; repeated: accepted and not delivered again; excess: a limit was exceeded",
        publications,
    );
    exposition.counters(
        "rsnotify_failed_fetches_total",
        "Attempts to fetch a pinged topic that failed",
        publishers
            .iter()
            .map(|publisher| ([of(publisher)], publisher.counts.failed_fetches)),
    );
    exposition.gauges(
        "rsnotify_published_topics",
        "Topics that a publisher has published",
        publishers
            .iter()
            .map(|publisher| ([of(publisher)], count(publisher.published_topics))),
    );
    let published = publishers.iter().filter_map(|publisher| {
        let published = publisher.published?;
        Some(([of(publisher)], published.as_second()))
    });
    exposition.gauges(
        "rsnotify_last_publication_timestamp_seconds",
        "Time of the last publication of a publisher that was no repeat",
        published,
    );
}

//! Metrics of hubs, summed over channels: there may be thousands of those, and `rsnotify outbox list` prints them.

use std::collections::{BTreeMap, BTreeSet};

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::Hub;
use websub::publisher::reason::RefusalKind;

use crate::admin::metrics::count;
use crate::admin::metrics::exposition::{Exposition, Label, seconds};
use crate::announce::plan::Mode;
use crate::report::figures::{Figures, HubCounts};
use crate::report::status::hubs::HubSummary;
use crate::report::status::{Condition, Status};

/// A hub on the channels of one kind.
type HubOfKind<'a> = (&'a Hub, ChannelKind);

pub fn expose(exposition: &mut Exposition, status: &Status) {
    let hubs = status.hubs_by(|channel, hub| (&hub.hub, channel.kind));
    let each = |figure: fn(&HubSummary<'_>) -> usize| {
        let hubs = hubs.iter();
        hubs.map(move |(account, sum)| (of_account(*account), count(figure(sum))))
    };
    let names: BTreeSet<&Hub> = hubs.keys().map(|(hub, _)| *hub).collect();
    exposition.gauges(
        "rsnotify_due_changes",
        "Changes due to a hub",
        each(|sum| sum.due),
    );
    exposition.gauges(
        "rsnotify_oldest_due_seconds",
        "Age of the oldest notification that a hub has not accepted, 0 if none; refusals that probably mean that \
         there are no subscribers are not counted",
        hubs.iter().map(|(account, sum)| {
            let since = sum.oldest.unwrap_or(status.at);
            let age = status.at.duration_since(since).as_secs().max(0);
            (of_account(*account), age)
        }),
    );
    let is_failing = |hub: &Hub| {
        status
            .failing_hubs
            .iter()
            .any(|failing| failing.hub == *hub)
    };
    exposition.gauges(
        "rsnotify_hub_failing",
        "1 while a hub accepts nothing and is retried with one notification at a time",
        names
            .iter()
            .map(|hub| ([of_hub(hub)], i64::from(is_failing(hub)))),
    );
    exposition.gauges(
        "rsnotify_in_flight_notifications",
        "Notifications that a hub has not accepted yet",
        each(|sum| sum.in_flight),
    );
    exposition.gauges(
        "rsnotify_refused_notifications",
        "Notifications refused at the last attempt, or waiting for a hub that accepts nothing, by reason; \
         no_subscribers_likely requires no action",
        hubs.iter().flat_map(|(account, sum)| {
            let refused = sum.refused.iter();
            refused.map(|(reason, many)| {
                let [hub, kind] = of_account(*account);
                ([hub, kind, ("reason", reason.as_str().to_owned())], count(*many))
            })
        }),
    );
    exposition.gauges(
        "rsnotify_needs_person",
        "Notifications that a hub refuses for a reason that retries do not solve",
        each(|sum| {
            let states = &sum.states;
            states
                .get(&Condition::NeedsOperator)
                .copied()
                .unwrap_or_default()
        }),
    );
    exposition.gauges(
        "rsnotify_last_accepted_timestamp_seconds",
        "Time when a hub last accepted a notification",
        hubs.iter()
            .filter_map(|(account, sum)| Some((of_account(*account), seconds(sum.accepted?)))),
    );
    let pinged = || {
        let pinged = hubs.iter().filter(|(_, sum)| sum.mode == Mode::Ping);
        pinged.map(|(account, sum)| (of_account(*account), count(sum.unfetched)))
    };
    exposition.gauges(
        "rsnotify_hub_fetch_confirmed",
        "0 while there is a topic that a hub did not fetch within a minute after accepting a ping",
        pinged().map(|(labels, unfetched)| (labels, i64::from(unfetched == 0))),
    );
    exposition.gauges(
        "rsnotify_unfetched_topics",
        "Topics that a hub did not fetch within a minute after accepting a ping",
        pinged(),
    );
    expose_counts(exposition, &hubs, &status.figures);
}

fn expose_counts(
    exposition: &mut Exposition,
    hubs: &BTreeMap<HubOfKind<'_>, HubSummary<'_>>,
    figures: &Figures,
) {
    let uncounted = HubCounts::default();
    let counts = || {
        hubs.keys().map(|(hub, kind)| {
            let account = ((*hub).clone(), *kind);
            let counts = figures.counts.hubs.get(&account).unwrap_or(&uncounted);
            ((*hub, *kind), counts)
        })
    };
    let of_changes = || counts().filter(|((_, kind), _)| *kind == ChannelKind::Change);
    exposition.gauges(
        "rsnotify_change_backlog_entries",
        "Changes of resources that a hub was not told, over all change channels; beyond `window.change_backlog` on one, \
         the oldest count as told",
        hubs.iter()
            .filter(|((_, kind), _)| *kind == ChannelKind::Change)
            .map(|((hub, _), sum)| ([of_hub(hub)], count(sum.due))),
    );
    exposition.counters(
        "rsnotify_change_entries_dropped_total",
        "Changes of resources that count as told because a hub fell behind",
        of_changes().map(|((hub, _), counts)| ([of_hub(hub)], counts.dropped)),
    );
    exposition.counters(
        "rsnotify_attempts_total",
        "Submissions of notifications, retries included, by outcome: accepted, or the reason of the refusal",
        counts().flat_map(|(account, counts)| {
            let refused = RefusalKind::ALL.map(|(kind, name)| {
                let many = counts.refused.get(&kind).copied().unwrap_or_default();
                (name, many)
            });
            let outcomes = [("accepted", counts.accepted)].into_iter().chain(refused);
            outcomes.map(move |(outcome, many)| {
                let [hub, kind] = of_account(account);
                ([hub, kind, ("outcome", outcome.to_owned())], many)
            })
        }),
    );
    exposition.counters(
        "rsnotify_retries_total",
        "Repeated submissions of notifications",
        counts().map(|(account, counts)| (of_account(account), counts.retries)),
    );
    exposition.histograms(
        "rsnotify_attempt_seconds",
        "Time until a hub answered a submission, or until the timeout",
        figures
            .attempts
            .iter()
            .map(|(hub, took)| ([of_hub(hub)], took)),
    );
    exposition.histograms(
        "rsnotify_notification_seconds",
        "Time from cutting a notification until a hub accepted it, retries included",
        counts().map(|(account, counts)| (of_account(account), &counts.took)),
    );
    exposition.counters(
        "rsnotify_accepted_changes_total",
        "Changes in the notifications that a hub accepted",
        counts().map(|(account, counts)| (of_account(account), counts.changes)),
    );
}

fn of_account((hub, kind): HubOfKind<'_>) -> [Label; 2] {
    [of_hub(hub), ("kind", kind.to_string())]
}

fn of_hub(hub: &Hub) -> Label {
    ("hub", hub.to_string())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use websub::publisher::reason::Refusal;

    use super::*;
    use crate::announce::delivery::attempt::Attempt;
    use crate::report::status::HubView;

    /// Returns a view of a hub whose notification waits since that second, refused for this reason.
    fn refused(kind: RefusalKind, since: i64) -> HubView {
        HubView {
            id: Default::default(),
            waits: None,
            has_left: false,
            hub: Hub::new("https://h.example/".to_owned()),
            mode: Mode::Content,
            state: Condition::Due,
            due: 1,
            backlog: None,
            in_flight: Some(1),
            since: Some(Timestamp::from_second(since).unwrap()),
            attempts: 1,
            sending: false,
            next_try: None,
            last_failure: None,
            hub_failure: None,
            last: Some(Attempt {
                at: Timestamp::UNIX_EPOCH,
                seq: 1,
                status: None,
                excerpt: String::new(),
                refusal: Some(Refusal::new(kind, "words", false)),
            }),
            accepted: None,
            fetch_confirmed: None,
        }
    }

    #[test]
    fn a_topic_without_subscribers_is_not_the_oldest_and_hides_no_other() {
        let idle = refused(RefusalKind::NoSubscribersLikely, 0);
        let silent = refused(RefusalKind::NoAnswer, 40);
        let mut sum = HubSummary::new(&idle);
        sum.add(&idle);
        assert_eq!((sum.oldest, sum.due), (None, 1));
        sum.add(&silent);
        assert_eq!(sum.oldest, silent.since);
    }
}

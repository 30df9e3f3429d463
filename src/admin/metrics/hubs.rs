//! Metrics of hubs, summed over channels: there may be thousands of those, and `rsnotify outbox list` prints them.

use std::collections::BTreeSet;

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::Hub;
use websub::publisher::reason::RefusalKind;

use crate::admin::metrics::age;
use crate::admin::metrics::exposition::Exposition;
use crate::report::figures::HubCounts;
use crate::report::status::{HubCondition, Status};
use announce::plan::PublishMode;

const METRICS: &str = "\
rsnotify_due_changes gauge Changes due to a hub
rsnotify_oldest_due_seconds gauge Age of the oldest notification that a hub has not accepted, 0 if none; refusals that \
    probably mean that there are no subscribers are not counted
rsnotify_hub_failing gauge 1 while a hub accepts nothing and is retried with one notification at a time
rsnotify_in_flight_notifications gauge Notifications that a hub has not accepted yet
rsnotify_refused_notifications gauge Notifications refused at the last attempt, or waiting for a hub that accepts \
    nothing, by reason; no_subscribers_likely requires no action
rsnotify_needs_person gauge Notifications that a hub refuses for a reason that retries do not solve
rsnotify_last_accepted_timestamp_seconds gauge Time when a hub last accepted a notification
rsnotify_hub_fetch_confirmed gauge 0 while there is a topic that a hub did not fetch within a minute after accepting a \
    ping
rsnotify_unfetched_topics gauge Topics that a hub did not fetch within a minute after accepting a ping
rsnotify_change_backlog_entries gauge Changes of resources that a hub was not told, over all change channels; beyond \
    `window.change_backlog` on one, the oldest count as told
rsnotify_change_entries_dropped_total counter Changes of resources that count as told because a hub fell behind
rsnotify_attempts_total counter Submissions of notifications, retries included, by outcome: accepted, or the reason of \
    the refusal
rsnotify_retries_total counter Repeated submissions of notifications
rsnotify_attempt_seconds histogram Time until a hub answered a submission, or until the timeout
rsnotify_notification_seconds histogram Time from cutting a notification until a hub accepted it, retries included
rsnotify_accepted_changes_total counter Changes in the notifications that a hub accepted";

pub fn expose(exposition: &mut Exposition, status: &Status) {
    exposition.define(METRICS);
    let hubs = status.hubs_by(|channel, hub| (&hub.hub, channel.kind));
    let uncounted = HubCounts::default();
    for ((hub, kind), sum) in &hubs {
        // Escaped, as everywhere.
        let name = hub.to_string();
        let (of_hub, of_kind) = (("hub", name.as_str()), ("kind", kind.as_str()));
        let account = [of_hub, of_kind];
        exposition.add("due_changes", &account, sum.due);
        let since = sum.oldest.unwrap_or(status.at);
        exposition.add("oldest_due_seconds", &account, age(since, status));
        exposition.add("in_flight_notifications", &account, sum.in_flight);
        for (reason, many) in &sum.refused {
            let labels = [of_hub, of_kind, ("reason", reason.as_str())];
            exposition.add("refused_notifications", &labels, *many);
        }
        let stuck = sum.states.get(&HubCondition::NeedsOperator);
        exposition.add("needs_person", &account, stuck.copied().unwrap_or(0));
        if let Some(at) = sum.accepted {
            exposition.add("last_accepted_timestamp_seconds", &account, at);
        }
        if sum.mode == PublishMode::Ping {
            let is_confirmed = sum.unfetched == 0;
            exposition.add("hub_fetch_confirmed", &account, is_confirmed);
            exposition.add("unfetched_topics", &account, sum.unfetched);
        }
        let counts = &status.figures.counts.hubs;
        let counts = counts.get(&((*hub).clone(), *kind)).unwrap_or(&uncounted);
        if *kind == ChannelKind::Change {
            exposition.add("change_backlog_entries", &[of_hub], sum.due);
            exposition.add("change_entries_dropped_total", &[of_hub], counts.dropped);
        }
        let mut attempts = |outcome, count| {
            let labels = [of_hub, of_kind, ("outcome", outcome)];
            exposition.add("attempts_total", &labels, count);
        };
        attempts("accepted", counts.accepted);
        for (kind, name) in RefusalKind::ALL {
            attempts(name, counts.refused.get(&kind).copied().unwrap_or(0));
        }
        exposition.add("retries_total", &account, counts.retries);
        exposition.add("notification_seconds", &account, &counts.took);
        exposition.add("accepted_changes_total", &account, counts.changes);
    }
    let names: BTreeSet<&Hub> = hubs.keys().map(|(hub, _)| *hub).collect();
    for hub in names {
        let is_failing = status
            .failing_hubs
            .iter()
            .any(|failing| failing.hub == *hub);
        exposition.add("hub_failing", &[("hub", &*hub.to_string())], is_failing);
    }
    for (hub, took) in &status.figures.attempts {
        exposition.add("attempt_seconds", &[("hub", &*hub.to_string())], took);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::admin::metrics::exposition::ExpositionFormat;
    use crate::report::status::HubView;
    use crate::report::status::hubs::HubSummary;
    use crate::report::tests::{channel_view, hub_view};

    /// Returns a view of a hub whose notification waits since that second, refused for this reason.
    fn refused(kind: RefusalKind, since: i64) -> HubView {
        HubView {
            state: HubCondition::Due,
            since: Some(Timestamp::from_second(since).unwrap()),
            ..hub_view(kind, "words")
        }
    }

    #[test]
    fn a_topic_without_subscribers_is_not_the_oldest_and_hides_no_other() {
        let idle = refused(RefusalKind::NoSubscribersLikely, 0);
        let silent = refused(RefusalKind::NoAnswer, 40);
        let sum = HubSummary::of(&[&idle]);
        assert_eq!((sum.oldest, sum.due), (None, 1));
        let sum = HubSummary::of(&[&idle, &silent]);
        assert_eq!(sum.oldest, silent.since);
    }

    #[test]
    fn a_hub_cannot_command_a_terminal_by_its_name() {
        let mut channel = channel_view(0, "words");
        channel.hubs = vec![hub_view(RefusalKind::NotAllowed, "\u{1b}[2J")];
        let hub = channel.hubs[0].hub.clone();
        let mut status = Status {
            channels: vec![channel],
            ..Status::default()
        };
        status.figures.attempts.insert(hub, Default::default());
        let mut exposition = Exposition::default();
        expose(&mut exposition, &status);
        let text = exposition.encode(ExpositionFormat::Text);
        assert!(
            text.contains("hub=\"https://h.example/") && !text.contains('\u{1b}'),
            "{text}"
        );
    }
}

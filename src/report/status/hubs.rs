//! The status of each hub over all channels.

use std::collections::BTreeMap;

use jiff::Timestamp;
use resourcesync::uri::Hub;
use websub::publisher::reason::RefusalKind;

use crate::report::status::{ChannelView, HubCondition, HubView, Status};
use announce::delivery::Attempt;
use announce::plan::PublishMode;

/// One hub over all channels.
#[derive(Debug, Clone, PartialEq)]
pub struct HubSummary<'a> {
    pub hub: &'a Hub,
    pub mode: PublishMode,
    /// The number of channels in each condition; the worst comes first.
    pub states: BTreeMap<HubCondition, usize>,
    pub due: usize,
    pub in_flight: usize,
    /// The time since when the oldest notification is in flight. A topic without subscribers pages no operator, and does
    /// not hide another topic of the hub.
    pub oldest: Option<Timestamp>,
    /// The number of notifications in flight that failed, by reason.
    pub refused: BTreeMap<RefusalKind, usize>,
    /// The number of topics that it did not fetch after a ping.
    pub unfetched: usize,
    /// The time of the last accepted notification.
    pub accepted: Option<Timestamp>,
    /// The latest attempt on any channel.
    pub last: Option<&'a Attempt>,
    pub troubles: Vec<HubTrouble<'a>>,
}

/// A failure of a hub on some channels, with the reason on one of them.
#[derive(Debug, Clone, PartialEq)]
pub struct HubTrouble<'a> {
    pub state: HubCondition,
    /// Nothing where it accepts.
    pub kind: Option<RefusalKind>,
    pub reason: &'a str,
    /// The reason in the hub's own words, if it gave any.
    pub own_reason: Option<&'a str>,
    pub channels: usize,
    /// The time since when it fails on the first of them.
    pub since: Option<Timestamp>,
}

impl HubSummary<'_> {
    pub fn channels(&self) -> usize {
        self.states.values().sum()
    }

    /// Returns its worst condition.
    pub fn worst(&self) -> HubCondition {
        let worst = self.states.keys().next();
        worst.copied().unwrap_or(HubCondition::Fine)
    }

    /// Returns the number of channels in each condition, such as "2 failing, 40 fine".
    pub fn states_in_words(&self) -> String {
        let states = self.states.iter();
        let states = states.map(|(state, count)| format!("{count} {}", state.in_words()));
        states.collect::<Vec<_>>().join(", ")
    }
}

impl<'a> HubSummary<'a> {
    /// Sums up the views of one hub on some channels, one at least.
    pub fn of(views: &[&'a HubView]) -> HubSummary<'a> {
        let all = || views.iter().copied();
        let refusal = |view: &HubView| view.failure().map(|refusal| refusal.kind);
        let idle = Some(RefusalKind::NoSubscribersLikely);
        let awaited = all().filter(|view| refusal(view) != idle);
        let unfetched = all().filter(|view| view.fetch_confirmed == Some(false));
        let last = all().filter_map(|view| view.last.as_ref());
        HubSummary {
            hub: &views[0].hub,
            mode: views[0].mode,
            states: counts(all().map(|view| view.state)),
            due: all().map(|view| view.due).sum(),
            in_flight: all().filter(|view| view.in_flight.is_some()).count(),
            oldest: awaited.filter_map(|view| view.since).min(),
            refused: counts(all().filter_map(refusal)),
            unfetched: unfetched.count(),
            accepted: all().filter_map(|view| view.accepted).max(),
            last: last.max_by_key(|last| last.at),
            troubles: grouped_failures(all()),
        }
    }
}

/// Returns how often each item occurs.
fn counts<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    items.for_each(|item| *counts.entry(item).or_default() += 1);
    counts
}

impl Status {
    /// Returns every hub, those that fail first.
    pub fn hubs(&self) -> Vec<HubSummary<'_>> {
        let hubs = self.hubs_by(|_, hub| &hub.hub);
        let mut hubs: Vec<HubSummary<'_>> = hubs.into_values().collect();
        hubs.sort_by_key(HubSummary::worst);
        hubs
    }

    /// Returns the sums of hubs by a key.
    pub fn hubs_by<'a, K: Ord>(
        &'a self,
        key: impl Fn(&'a ChannelView, &'a HubView) -> K,
    ) -> BTreeMap<K, HubSummary<'a>> {
        let mut views: BTreeMap<K, Vec<&HubView>> = BTreeMap::new();
        for channel in &self.channels {
            for view in &channel.hubs {
                views.entry(key(channel, view)).or_default().push(view);
            }
        }
        let views = views.into_iter();
        views
            .map(|(key, views)| (key, HubSummary::of(&views)))
            .collect()
    }
}

/// Returns the failures, those of one hub for one reason together.
fn grouped_failures<'a>(views: impl Iterator<Item = &'a HubView>) -> Vec<HubTrouble<'a>> {
    let mut troubles: Vec<HubTrouble<'a>> = Vec::new();
    for view in views.filter(|view| view.state.is_trouble()) {
        let Some(reason) = view.trouble() else {
            continue;
        };
        let kind = view.failure().map(|refusal| refusal.kind);
        // Where the hub fails as a whole, other channels were not tried.
        let is_it = |last: &&Attempt| last.refusal.as_ref().map(|refusal| refusal.kind) == kind;
        let last = view.last.as_ref().filter(is_it);
        let own_reason = last.and_then(Attempt::reason_in_body);
        let mut known = troubles.iter_mut();
        match known.find(|trouble| (trouble.state, trouble.kind) == (view.state, kind)) {
            Some(trouble) => {
                trouble.own_reason = trouble.own_reason.or(own_reason);
                trouble.channels += 1;
                trouble.since = trouble.since.into_iter().chain(view.since).min();
            }
            None => troubles.push(HubTrouble {
                state: view.state,
                kind,
                reason,
                own_reason,
                channels: 1,
                since: view.since,
            }),
        }
    }
    troubles
}

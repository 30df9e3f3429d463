//! The status of each hub over all channels.

use std::collections::BTreeMap;

use jiff::Timestamp;
use resourcesync::uri::Hub;
use websub::publisher::reason::RefusalKind;

use crate::announce::delivery::attempt::Attempt;
use crate::announce::plan::Mode;
use crate::report::status::{Condition, HubView, Status};

/// One hub over all channels.
#[derive(Debug, Clone, PartialEq)]
pub struct HubSummary<'a> {
    pub hub: &'a Hub,
    pub mode: Mode,
    /// The number of channels in each condition; the worst comes first.
    pub states: BTreeMap<Condition, usize>,
    pub due: usize,
    /// The time since when the oldest notification is in flight.
    pub oldest: Option<Timestamp>,
    /// The time of the last accepted notification.
    pub accepted: Option<Timestamp>,
    /// The latest attempt on any channel.
    pub last: Option<&'a Attempt>,
    pub troubles: Vec<HubTrouble<'a>>,
}

/// A failure of a hub on some channels, with the reason on one of them.
#[derive(Debug, Clone, PartialEq)]
pub struct HubTrouble<'a> {
    pub state: Condition,
    /// Nothing where it accepts.
    pub kind: Option<RefusalKind>,
    pub reason: &'a str,
    pub channels: usize,
    /// The time since when it fails on the first of them.
    pub since: Option<Timestamp>,
}

impl HubSummary<'_> {
    pub fn channels(&self) -> usize {
        self.states.values().sum()
    }

    /// Returns its worst condition.
    pub fn worst(&self) -> Condition {
        let worst = self.states.keys().next();
        worst.copied().unwrap_or(Condition::Fine)
    }

    /// Returns the number of channels in each condition, such as "2 failing, 40 fine".
    pub fn states_in_words(&self) -> String {
        let states = self.states.iter();
        let states = states.map(|(state, count)| format!("{count} {}", state.in_words()));
        states.collect::<Vec<_>>().join(", ")
    }
}

impl Status {
    /// Returns every hub, those that fail first.
    pub fn hubs(&self) -> Vec<HubSummary<'_>> {
        let mut hubs: BTreeMap<&Hub, HubSummary<'_>> = BTreeMap::new();
        for view in self.channels.iter().flat_map(|channel| &channel.hubs) {
            let summary = hubs.entry(&view.hub).or_insert_with(|| HubSummary {
                hub: &view.hub,
                mode: view.mode,
                states: BTreeMap::new(),
                due: 0,
                oldest: None,
                accepted: None,
                last: None,
                troubles: Vec::new(),
            });
            *summary.states.entry(view.state).or_default() += 1;
            summary.due += view.due;
            summary.oldest = earliest(summary.oldest, view.since);
            summary.accepted = summary.accepted.max(view.accepted);
            summary.last = summary
                .last
                .into_iter()
                .chain(view.last.as_ref())
                .max_by_key(|last| last.at);
            note_trouble(&mut summary.troubles, view);
        }
        let mut hubs: Vec<HubSummary<'_>> = hubs.into_values().collect();
        hubs.sort_by_key(HubSummary::worst);
        hubs
    }
}

fn note_trouble<'a>(troubles: &mut Vec<HubTrouble<'a>>, view: &'a HubView) {
    let Some(reason) = view.trouble().filter(|_| view.state.is_trouble()) else {
        return;
    };
    let kind = view.failure().map(|refusal| refusal.kind);
    let mut known = troubles.iter_mut();
    match known.find(|trouble| (trouble.state, trouble.kind) == (view.state, kind)) {
        Some(trouble) => {
            trouble.channels += 1;
            trouble.since = earliest(trouble.since, view.since);
        }
        None => troubles.push(HubTrouble {
            state: view.state,
            kind,
            reason,
            channels: 1,
            since: view.since,
        }),
    }
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

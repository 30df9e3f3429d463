//! A set's channel: which topic and hubs it should have, and its window.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::announce::catalog::Catalog;
use crate::announce::finding::{Finding, TopicProblem};
use crate::announce::ledger::Ledger;
use crate::announce::plan::{Mode, Plan, SourcePlan, WindowPlan};
use crate::announce::span::{Span, span};
use crate::announce::state::{ChannelRow, Said};
use crate::announce::time::later;
use crate::announce::topic::{default_topics, problem};
use crate::resourcesync::payload::Entry;
use crate::resourcesync::uri::{Hub, Topic, Uri, UriMap};

/// A channel with what every hub was told on it.
#[derive(Debug)]
pub struct Channel {
    pub row: ChannelRow,
    /// The position of its source in the plan.
    pub source: usize,
    // A node of the map has room for eleven, and most channels have one hub.
    pub ledgers: BTreeMap<Hub, Box<Ledger>>,
    /// Open while changes gather (R16).
    pub window: Option<Window>,
    /// What its topic serves, if a ping hub reads it (R25); derived.
    pub page: Vec<Entry>,
    /// Until when that has all changes (R20); derived.
    pub page_until: Option<Timestamp>,
}

/// So many notifications' `until` are remembered, so that none comes again.
const UNTILS: usize = 64;

impl Channel {
    pub fn is_live(&self) -> bool {
        self.row.retired.is_none()
    }

    /// R20: what the next notification speaks for, which no other of this topic does. See [`span`].
    pub fn next_span(
        &mut self,
        now: Timestamp,
        before: Option<Timestamp>,
        open: Option<Timestamp>,
    ) -> Span {
        let untils = &mut self.row.untils;
        let span = span(now, before, open, untils);
        untils.extend(span.until);
        untils.drain(..untils.len().saturating_sub(UNTILS));
        span
    }

    /// The accounts of hubs that are to hear all that changes.
    pub fn listening(&self) -> impl Iterator<Item = (&Hub, &Ledger)> {
        let ledgers = self.ledgers.iter().map(|(hub, ledger)| (hub, &**ledger));
        ledgers.filter(|(_, ledger)| ledger.row.left.is_none())
    }

    /// Whether a hub of this channel fetches its topic.
    pub fn is_pinged(&self, hub: &Hub) -> bool {
        let ledger = self.ledgers.get(hub);
        ledger.is_some_and(|ledger| ledger.mode == Mode::Ping)
    }

    /// What is on its way to hubs that fetch it.
    pub fn flying(&self) -> BTreeSet<Uri> {
        let pinged = self.ledgers.values().filter(|own| own.mode == Mode::Ping);
        let flying = pinged.filter_map(|ledger| ledger.row.flight.as_ref());
        let covers = flying.flat_map(|flight| &flight.covers);
        covers.map(|(uri, _)| uri.clone()).collect()
    }

    /// Keeps the last that was said of each document and kind of change, since `oldest` and no more than
    /// `most`, and what is still on its way to a hub that fetches it (R25).
    pub fn forget_said(&mut self, oldest: Timestamp, most: usize) {
        let owed = self.flying();
        let mut last = BTreeMap::new();
        for said in std::mem::take(&mut self.row.said) {
            let entry = &said.entry;
            if said.at >= oldest || owed.contains(&entry.uri) {
                let key = (entry.uri.clone(), entry.change, entry.capability);
                last.insert(key, said);
            }
        }
        let mut kept: Vec<Said> = last.into_values().collect();
        kept.sort_by_key(|said| said.entry.datetime);
        let mut beyond = kept.len().saturating_sub(most);
        kept.retain(|said| {
            let is_newest = beyond == 0;
            beyond = beyond.saturating_sub(1);
            is_newest || owed.contains(&said.entry.uri)
        });
        self.row.said = kept;
    }

    /// Whether it has this topic and these hubs, no more and no less.
    pub fn is_as(&self, topic: &Topic, hubs: &[Hub]) -> bool {
        let listening: BTreeSet<&Hub> = self.listening().map(|(hub, _)| hub).collect();
        self.row.topic == *topic && listening == hubs.iter().collect()
    }
}

/// Changes gather from the first until none came for a while (R16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub first: Timestamp,
    pub last: Timestamp,
}

impl Window {
    /// When the channel speaks.
    pub fn closes(&self, plan: &WindowPlan) -> Timestamp {
        later(self.last, plan.quiet).min(later(self.first, plan.max_wait))
    }
}

/// What a set's channel should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Desired {
    /// None, for want of an advertisement or because it cannot be served.
    Nothing,
    /// As it is: its Capability List was not read yet.
    AsItIs,
    Channel {
        topic: Topic,
        hubs: Vec<Hub>,
    },
}

/// The `[[channel]]` entries, to be asked by set and by topic.
#[derive(Debug, Default)]
pub struct Configured {
    by_set: UriMap<usize>,
    topics: BTreeSet<Topic>,
}

impl Configured {
    pub fn new(plan: &Plan) -> Configured {
        let lists = plan.channels.iter().map(|own| own.capability_list.clone());
        Configured {
            by_set: lists.zip(0..).collect(),
            topics: plan.channels.iter().map(|own| own.topic.clone()).collect(),
        }
    }

    /// The position in the plan of the entry for a set.
    fn position(&self, set: &Uri) -> Option<usize> {
        self.by_set.get(set).copied()
    }

    /// Whether there is an entry for a set.
    pub fn has(&self, set: &Uri) -> bool {
        self.by_set.contains_key(set)
    }
}

/// R9: what the configuration, the Capability List and the default make of a set's channel, and what is
/// wrong with it. `had` are the topics that the set has or had.
pub fn desired(
    plan: &Plan,
    configured: &Configured,
    source: &SourcePlan,
    catalog: &Catalog,
    set: &Uri,
    had: &BTreeSet<Topic>,
) -> (Desired, Vec<Finding>) {
    let mut findings = Vec::new();
    let all = || {
        plan.hubs
            .iter()
            .map(|hub| hub.hub.clone())
            .collect::<Vec<_>>()
    };
    let entry = configured
        .position(set)
        .and_then(|at| plan.channels.get(at));
    if let Some(entry) = entry {
        let hubs = match &entry.hubs[..] {
            [] => all(),
            named => named.to_vec(),
        };
        let topic = entry.topic.clone();
        let problem = problem(plan, source, &topic).filter(TopicProblem::is_usable);
        findings.extend(problem.map(|problem| Finding::topic(set, &topic, problem)));
        return (Desired::Channel { topic, hubs }, findings);
    }
    if catalog.is_unread(set) {
        return (Desired::AsItIs, findings);
    }
    let advertised = catalog
        .structure(set)
        .map_or(&[][..], |structure| &structure.channels);
    if advertised.len() > 1 {
        findings.push(Finding::SeveralChannels { set: set.clone() });
    }
    let (topic, hubs) = match advertised.first() {
        Some(channel) => {
            let topic = channel.topic.clone();
            if let Some(problem) = problem(plan, source, &topic) {
                let is_usable = problem.is_usable();
                findings.push(Finding::topic(set, &topic, problem));
                if !is_usable {
                    return (Desired::Nothing, findings);
                }
            }
            let (known, foreign): (Vec<Hub>, Vec<Hub>) = channel
                .hubs
                .iter()
                .cloned()
                .partition(|hub| plan.hubs.iter().any(|own| own.hub == *hub));
            if channel.hubs.is_empty() {
                (topic, all())
            } else {
                if known.is_empty() {
                    findings.push(Finding::ForeignHubs {
                        set: set.clone(),
                        hubs: foreign,
                    });
                } else {
                    findings.extend(foreign.into_iter().map(|hub| Finding::ForeignHub {
                        set: set.clone(),
                        hub,
                    }));
                }
                (topic, known)
            }
        }
        None if source.unadvertised_channels => {
            let Some([topic, other]) = default_topics(plan, source, set) else {
                return (Desired::Nothing, findings);
            };
            let keeps_other = had.contains(&other) && !had.contains(&topic);
            let topic = if keeps_other { other } else { topic };
            findings.push(Finding::Unadvertised {
                set: set.clone(),
                topic: topic.clone(),
            });
            (topic, all())
        }
        None => return (Desired::Nothing, findings),
    };
    if configured.topics.contains(&topic) {
        findings.push(Finding::SharedTopic {
            set: set.clone(),
            topic,
        });
        return (Desired::Nothing, findings);
    }
    (Desired::Channel { topic, hubs }, findings)
}

//! The channel that a set should have: by configuration, by its Capability List, or by default (R9).

use std::collections::BTreeSet;

use resourcesync::channel_kind::ChannelKind;
use resourcesync::document::Advertisement;
use resourcesync::uri::{Hub, Topic, Uri, UriMap};

use crate::announce::catalog::Catalog;
use crate::announce::channel::Channel;
use crate::announce::finding::{Finding, TopicAddressProblem};
use crate::announce::plan::{ChannelPlan, Mode, Plan, SourcePlan};
use crate::announce::topic::{default_topics, problem};

/// The channel that a set should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Desired {
    /// None, because it has no advertisement or cannot be served.
    Nothing,
    /// The one it has: its Capability List was not read yet.
    AsItIs,
    Channel {
        topic: Topic,
        hubs: Vec<Hub>,
    },
}

/// The `[[channel]]` entries, to be asked by set and by topic.
#[derive(Debug, Default)]
pub struct Configured {
    /// Their positions in the plan, by kind.
    by_set: UriMap<[Option<usize>; ChannelKind::ALL.len()]>,
    topics: BTreeSet<Topic>,
}

impl Configured {
    pub fn new(plan: &Plan) -> Configured {
        let mut by_set: UriMap<[Option<usize>; ChannelKind::ALL.len()]> = UriMap::default();
        for (position, entry) in plan.channels.iter().enumerate() {
            let entries = by_set.entry(entry.capability_list.clone()).or_default();
            entries[entry.kind as usize] = Some(position);
        }
        Configured {
            by_set,
            topics: plan
                .channels
                .iter()
                .map(|entry| entry.topic.clone())
                .collect(),
        }
    }

    fn entry<'a>(&self, plan: &'a Plan, set: &Uri, kind: ChannelKind) -> Option<&'a ChannelPlan> {
        plan.channels.get(self.by_set.get(set)?[kind as usize]?)
    }

    /// Returns true if there is an entry of this kind for a set.
    pub fn has(&self, set: &Uri, kind: ChannelKind) -> bool {
        let entries = self.by_set.get(set);
        entries.is_some_and(|entries| entries[kind as usize].is_some())
    }
}

/// The channel of one kind of one set.
#[derive(Debug, Clone, Copy)]
pub struct SetChannel<'a> {
    pub plan: &'a Plan,
    pub source: &'a SourcePlan,
    pub set: &'a Uri,
    pub kind: ChannelKind,
}

impl SetChannel<'_> {
    /// Returns the channel that the set should have, and adds the findings about it. `had` are the topics that the set has or
    /// had for such channels.
    pub fn desired(
        self,
        configured: &Configured,
        catalog: &Catalog,
        had: &BTreeSet<Topic>,
    ) -> (Desired, Vec<Finding>) {
        let SetChannel {
            plan,
            source,
            set,
            kind,
        } = self;
        let mut findings = Vec::new();
        if let Some(entry) = configured.entry(plan, set, kind) {
            let desired = by_configuration(plan, source, set, entry, &mut findings);
            return (with_brokers(plan, source, kind, desired), findings);
        }
        if catalog.is_unread(set) {
            return (Desired::AsItIs, findings);
        }
        let structure = catalog.structure(set);
        let advertised = structure.map_or(&[][..], |structure| &structure.channels);
        let mut advertised = advertised.iter().filter(|channel| channel.kind == kind);
        let first = advertised.next();
        if advertised.next().is_some() {
            findings.push(Finding::SeveralChannels { set: set.clone() });
        }
        let desired = match first {
            Some(advertised) => by_advertisement(plan, source, set, advertised, &mut findings),
            None => self.by_default(had, &mut findings),
        };
        match desired {
            Desired::Channel { topic, .. } if configured.topics.contains(&topic) => {
                findings.push(Finding::SharedTopic {
                    set: set.clone(),
                    topic,
                });
                (self.for_brokers(had), findings)
            }
            Desired::Nothing => (self.for_brokers(had), findings),
            desired => (with_brokers(plan, source, kind, desired), findings),
        }
    }

    /// Returns the channel that only brokers are told on, if there are any: its topic is only a name (F1).
    pub fn for_brokers(self, had: &BTreeSet<Topic>) -> Desired {
        let brokers = self.plan.brokers_of(&self.source.name, self.kind);
        let hubs: Vec<Hub> = brokers.cloned().collect();
        match self.default_topic(had) {
            Some(topic) if !hubs.is_empty() => Desired::Channel { topic, hubs },
            _ => Desired::Nothing,
        }
    }

    /// Returns the channel of a set that advertises none, if it gets one.
    fn by_default(self, had: &BTreeSet<Topic>, findings: &mut Vec<Finding>) -> Desired {
        let is_wanted = self.kind == ChannelKind::Framework || self.source.change_notifications;
        let is_for_hubs = self.source.unadvertised_channels && is_wanted;
        if !is_for_hubs {
            return Desired::Nothing;
        }
        let Some(topic) = self.default_topic(had) else {
            return Desired::Nothing;
        };
        findings.push(Finding::Unadvertised {
            set: self.set.clone(),
            topic: topic.clone(),
        });
        let hubs = all_hubs(self.plan);
        Desired::Channel { topic, hubs }
    }

    /// Returns the default topic of a set, or the other one that it had before.
    fn default_topic(self, had: &BTreeSet<Topic>) -> Option<Topic> {
        let [topic, other] = default_topics(self.plan, self.source, self.set, self.kind)?;
        let keeps_other = had.contains(&other) && !had.contains(&topic);
        Some(if keeps_other { other } else { topic })
    }
}

/// Returns true if the topic of a channel is only a name for brokers: it can neither be fetched nor subscribed to.
pub fn is_name_only(
    plan: &Plan,
    source: &SourcePlan,
    catalog: &Catalog,
    channel: &Channel,
) -> bool {
    let (set, kind) = (&channel.row.set, channel.row.kind);
    let mut modes = channel.listening().map(|(_, ledger)| ledger.mode);
    let is_heard_by_brokers = modes.next() == Some(Mode::Broker);
    let is_heard_by_hubs = modes.any(|mode| mode != Mode::Broker);
    let advertised = catalog.structure(set).map(|structure| &structure.channels);
    let mut advertised = advertised.into_iter().flatten();
    let is_advertised = advertised.any(|one| one.kind == kind && one.topic == channel.row.topic);
    let mut configured = plan.channels.iter();
    let is_configured = configured.any(|one| one.capability_list == *set && one.kind == kind);
    let is_default = default_topics(plan, source, set, kind)
        .is_some_and(|topics| topics.contains(&channel.row.topic));
    let is_only_of_brokers = is_heard_by_brokers && !is_heard_by_hubs;
    is_only_of_brokers && is_default && !is_advertised && !is_configured
}

/// Adds the brokers that are told on such channels, whatever is advertised (F1).
fn with_brokers(plan: &Plan, source: &SourcePlan, kind: ChannelKind, desired: Desired) -> Desired {
    match desired {
        Desired::Channel { topic, mut hubs } => {
            hubs.extend(plan.brokers_of(&source.name, kind).cloned());
            Desired::Channel { topic, hubs }
        }
        desired => desired,
    }
}

/// Returns the channel of a `[[channel]]` entry.
fn by_configuration(
    plan: &Plan,
    source: &SourcePlan,
    set: &Uri,
    entry: &ChannelPlan,
    findings: &mut Vec<Finding>,
) -> Desired {
    let topic = entry.topic.clone();
    let problem = problem(plan, source, &topic).filter(TopicAddressProblem::is_usable);
    findings.extend(problem.map(|problem| Finding::topic(set, &topic, problem)));
    Desired::Channel {
        topic,
        hubs: match &entry.hubs[..] {
            [] => all_hubs(plan),
            named => named.to_vec(),
        },
    }
}

/// Returns the channel that a Capability List advertises, with those of its hubs that are configured.
fn by_advertisement(
    plan: &Plan,
    source: &SourcePlan,
    set: &Uri,
    advertised: &Advertisement,
    findings: &mut Vec<Finding>,
) -> Desired {
    let topic = advertised.topic.clone();
    if let Some(problem) = problem(plan, source, &topic) {
        let is_usable = problem.is_usable();
        findings.push(Finding::topic(set, &topic, problem));
        if !is_usable {
            return Desired::Nothing;
        }
    }
    if advertised.hubs.is_empty() {
        let hubs = all_hubs(plan);
        return Desired::Channel { topic, hubs };
    }
    let hubs = advertised.hubs.iter().cloned();
    let (hubs, foreign): (Vec<Hub>, Vec<Hub>) = hubs.partition(|hub| plan.has_hub(hub));
    if hubs.is_empty() {
        findings.push(Finding::ForeignHubs {
            set: set.clone(),
            kind: advertised.kind,
            hubs: foreign,
        });
    } else {
        findings.extend(foreign.into_iter().map(|hub| Finding::ForeignHub {
            set: set.clone(),
            hub,
        }));
    }
    Desired::Channel { topic, hubs }
}

fn all_hubs(plan: &Plan) -> Vec<Hub> {
    plan.hubs.iter().map(|hub| hub.hub.clone()).collect()
}

//! A set's channel: which topic and hubs it should have, and its window.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::catalog::Catalog;
use crate::announce::finding::Finding;
use crate::announce::ledger::Ledger;
use crate::announce::plan::{Mode, Plan, SourcePlan, WindowPlan};
use crate::announce::state::{ChannelRow, Said};
use crate::resourcesync::payload::Entry;
use crate::resourcesync::uri::{Hub, Topic, Uri, is_clean};

/// A channel with what every hub was told on it.
#[derive(Debug)]
pub struct Channel {
    pub row: ChannelRow,
    /// The position of its source in the plan.
    pub source: usize,
    pub ledgers: BTreeMap<Hub, Ledger>,
    /// Open while changes gather (R16).
    pub window: Option<Window>,
    /// What its topic serves, if a ping hub reads it (R25); derived.
    pub page: Vec<Entry>,
}

const MILLISECOND: Duration = Duration::from_millis(1);

impl Channel {
    pub fn is_live(&self) -> bool {
        self.row.retired.is_none()
    }

    /// R20: the time of the next notification, with milliseconds, and different in each of a topic.
    pub fn next_until(&mut self, now: Timestamp) -> Timestamp {
        let earliest = self.row.until.map(|until| later(until, MILLISECOND));
        let now = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        let until = earliest.map_or(now, |earliest| earliest.max(now));
        self.row.until = Some(until);
        until
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
        self.row.topic == *topic
            && hubs.iter().all(|hub| self.ledgers.contains_key(hub))
            && self.ledgers.keys().all(|hub| hubs.contains(hub))
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

/// `time` plus `duration`, or the end of time.
pub fn later(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// `time` less `duration`, or the beginning of time.
pub fn earlier(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_sub(duration).unwrap_or(Timestamp::MIN)
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

/// R9: what the configuration, the Capability List and the default make of a set's channel, and what is
/// wrong with it.
pub fn desired(
    plan: &Plan,
    source: &SourcePlan,
    catalog: &Catalog,
    set: &Uri,
) -> (Desired, Vec<Finding>) {
    let mut findings = Vec::new();
    let all = || {
        plan.hubs
            .iter()
            .map(|hub| hub.hub.clone())
            .collect::<Vec<_>>()
    };
    if let Some(configured) = plan.channels.iter().find(|own| own.capability_list == *set) {
        let hubs = match &configured.hubs[..] {
            [] => all(),
            named => named.to_vec(),
        };
        let topic = configured.topic.clone();
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
            if !is_ours(plan, source, &topic) {
                findings.push(Finding::ForeignTopic {
                    set: set.clone(),
                    topic,
                });
                return (Desired::Nothing, findings);
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
            let Some(topic) = default_topic(plan, source, set) else {
                return (Desired::Nothing, findings);
            };
            findings.push(Finding::Unadvertised {
                set: set.clone(),
                topic: topic.clone(),
            });
            (topic, all())
        }
        None => return (Desired::Nothing, findings),
    };
    if plan
        .channels
        .iter()
        .any(|configured| configured.topic == topic)
    {
        findings.push(Finding::SharedTopic {
            set: set.clone(),
            topic,
        });
        return (Desired::Nothing, findings);
    }
    (Desired::Channel { topic, hubs }, findings)
}

// Topic URIs must lie under `public_url` or a mount, or nobody could fetch them from us (R9).
fn is_ours(plan: &Plan, source: &SourcePlan, topic: &Topic) -> bool {
    is_clean(topic.as_str())
        && Uri::parse(topic.as_str()).is_ok_and(|uri| {
            let uri = source.canonical(&uri);
            uri.is_below(&plan.public_url) || source.mount_of(&uri).is_some()
        })
}

fn default_topic(plan: &Plan, source: &SourcePlan, set: &Uri) -> Option<Topic> {
    let mount = source.mount_of(set)?;
    let path = set.as_str().strip_prefix(mount.prefix.as_str())?;
    let path = path.strip_suffix(".xml").unwrap_or(path);
    let name = Uri::below(&plan.public_url, b"topics/");
    let name = Uri::below(&name, source.name.as_bytes());
    Some(Topic::new(format!("{name}/{path}/")))
}

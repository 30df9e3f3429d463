//! The channels that sets should have: what is configured, what they advertise, and what is left of it (R8, R9).

use std::collections::BTreeSet;

use crate::announce::finding::Finding;
use crate::announce::topic::{default_topics, problem};
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri};

use crate::announce::steps::channels::{live_of_set, of_topic, open, retire};
use crate::announce::steps::findings::{self, FindingPart};
use crate::announce::steps::owed;
use crate::announce::steps::step::Step;
use crate::state::{DocId, Result};

/// Brings the channels of sets in line with what is advertised.
pub fn route(step: &mut Step<'_>, position: usize, sets: &BTreeSet<DocId>) -> Result<()> {
    let mut taken = BTreeSet::new();
    let mut all_desired = Vec::new();
    for set in sets {
        let uri = step.db.uri_of(*set)?;
        let mut findings = Vec::new();
        for kind in ChannelKind::ALL {
            let desired = available(step, position, *set, &uri, kind, &taken, &mut findings)?;
            if let Some((topic, _)) = &desired {
                taken.insert(topic.clone());
            }
            all_desired.push((*set, kind, desired));
        }
        findings::replace(step, position, &uri, FindingPart::Channel, findings)?;
    }
    for kind in ChannelKind::ALL {
        let mut openings = Vec::new();
        for (set, _, desired) in all_desired.iter().filter(|(_, of, _)| *of == kind) {
            let live = live_of_set(step, *set, kind)?;
            let topic = desired.as_ref().map(|(topic, _)| topic);
            if let Some(channel) = live.filter(|channel| Some(&channel.topic) != topic) {
                retire(step, &channel)?;
            }
            openings.extend(desired.as_ref().map(|(topic, hubs)| (*set, topic, hubs)));
        }
        for (set, topic, hubs) in openings {
            open(step, position, set, kind, topic, hubs)?;
        }
    }
    Ok(())
}

/// Returns the topic and the hubs of the channel that a set should have, if its topic is not taken (R8, R9).
fn available(
    step: &Step<'_>,
    position: usize,
    set: DocId,
    uri: &Uri,
    kind: ChannelKind,
    taken: &BTreeSet<Topic>,
    findings: &mut Vec<Finding>,
) -> Result<Option<(Topic, Vec<Hub>)>> {
    if !owed::is_a_set(step, position, set)? {
        return Ok(None);
    }
    let (plan, source) = (step.plan, &step.plan.sources[position]);
    let brokers: Vec<Hub> = plan.brokers_of(&source.name, kind).cloned().collect();
    let configured = plan
        .channels
        .iter()
        .rev()
        .find(|entry| entry.capability_list == *uri && entry.kind == kind);
    let sql = "SELECT topic FROM channel WHERE set_id = ?1 AND kind = ?2";
    let had: Vec<Topic> = step.db.all(sql, (set, kind))?;
    let default = default_topics(plan, source, uri, kind).map(|[topic, other]| {
        let keeps_other = had.contains(&other) && !had.contains(&topic);
        if keeps_other { other } else { topic }
    });
    // F1: the topic of a channel that only brokers are told on is only a name.
    let for_brokers = || {
        default
            .clone()
            .filter(|_| !brokers.is_empty())
            .map(|topic| (topic, brokers.clone()))
    };
    let mut desired = if let Some(entry) = configured {
        let problem = problem(plan, source, uri, &entry.topic);
        findings.extend(problem.filter(|problem| !problem.mutes()));
        Some((
            entry.topic.clone(),
            if entry.hubs.is_empty() {
                plan.all_hubs()
            } else {
                entry.hubs.clone()
            },
        ))
    } else {
        let advertised = step.db.all::<Vec<(Topic, String)>>(
            "SELECT topic, hubs FROM advertised WHERE document = ?1 AND kind = ?2 ORDER BY position",
            (set, kind),
        )?;
        if advertised.len() > 1 {
            findings.push(Finding::SeveralChannels { set: uri.clone() });
        }
        let desired = match advertised.into_iter().next() {
            Some((topic, hubs)) => {
                let hubs: Vec<String> = serde_json::from_str(&hubs).unwrap_or_default();
                let hubs = hubs.into_iter().map(Hub::new).collect();
                by_advertisement(step, position, uri, kind, topic, hubs, findings)
            }
            None => {
                let is_wanted = kind == ChannelKind::Framework || source.change_notifications;
                default
                    .clone()
                    .filter(|_| source.unadvertised_channels && is_wanted)
                    .map(|topic| {
                        findings.push(Finding::Unadvertised {
                            set: uri.clone(),
                            topic: topic.clone(),
                        });
                        (topic, plan.all_hubs())
                    })
            }
        };
        let is_configured = |topic: &Topic| plan.channels.iter().any(|entry| entry.topic == *topic);
        match desired {
            Some((topic, _)) if is_configured(&topic) => {
                findings.push(Finding::SharedTopic {
                    set: uri.clone(),
                    topic,
                });
                return Ok(for_brokers());
            }
            None => return taken_or(step, set, kind, taken, for_brokers()),
            desired => desired,
        }
    };
    if let Some((_, hubs)) = &mut desired {
        hubs.extend(brokers.iter().cloned());
    }
    // A configured channel takes its topic from any other.
    if let Some((topic, _)) = &desired {
        let has_other = configured.is_none() && has_other(step, topic, set, kind)?;
        if has_other || taken.contains(topic) {
            findings.push(Finding::SharedTopic {
                set: uri.clone(),
                topic: topic.clone(),
            });
            return taken_or(step, set, kind, taken, for_brokers());
        }
    }
    Ok(desired)
}

/// Returns a channel, unless its topic is taken.
fn taken_or(
    step: &Step<'_>,
    set: DocId,
    kind: ChannelKind,
    taken: &BTreeSet<Topic>,
    desired: Option<(Topic, Vec<Hub>)>,
) -> Result<Option<(Topic, Vec<Hub>)>> {
    match desired {
        Some((topic, _)) if taken.contains(&topic) || has_other(step, &topic, set, kind)? => {
            Ok(None)
        }
        desired => Ok(desired),
    }
}

/// Returns true if another live channel has this topic: of another set, or of another kind (R8, C9).
fn has_other(step: &Step<'_>, topic: &Topic, set: DocId, kind: ChannelKind) -> Result<bool> {
    let holder = of_topic(step.db, topic)?;
    Ok(holder
        .is_some_and(|channel| !channel.is_retired && (channel.set, channel.kind) != (set, kind)))
}

/// Returns the channel that a Capability List advertises, with those of its hubs that are configured.
fn by_advertisement(
    step: &Step<'_>,
    position: usize,
    set: &Uri,
    kind: ChannelKind,
    topic: Topic,
    advertised: Vec<Hub>,
    findings: &mut Vec<Finding>,
) -> Option<(Topic, Vec<Hub>)> {
    let (plan, source) = (step.plan, &step.plan.sources[position]);
    if let Some(problem) = problem(plan, source, set, &topic) {
        let mutes = problem.mutes();
        findings.push(problem);
        if mutes {
            return None;
        }
    }
    if advertised.is_empty() {
        return Some((topic, plan.all_hubs()));
    }
    let (hubs, foreign): (Vec<Hub>, Vec<Hub>) =
        advertised.into_iter().partition(|hub| plan.has_hub(hub));
    if hubs.is_empty() {
        findings.push(Finding::ForeignHubs {
            set: set.clone(),
            kind,
            hubs: foreign,
        });
    } else {
        findings.extend(foreign.into_iter().map(|hub| Finding::ForeignHub {
            set: set.clone(),
            hub,
        }));
    }
    Some((topic, hubs))
}

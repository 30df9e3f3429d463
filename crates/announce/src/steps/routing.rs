//! The channels that sets should have: what is configured, what they advertise, and what is left of it (R8, R9); and their
//! topics.

use std::collections::BTreeSet;

use resourcesync::capability::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri, has_valid_chars};
use url::{Position, Url};

use crate::finding::Finding;
use crate::plan::{MountPlan, Plan, SourcePlan};
use crate::state::{DocId, Result};
use crate::steps::findings::{self, FindingPart};
use crate::steps::{Step, channels, owed};

/// Brings the channels of sets in line with what is advertised.
pub fn update_channels(step: &mut Step<'_>, position: usize, sets: &BTreeSet<DocId>) -> Result<()> {
    let mut taken = BTreeSet::new();
    let mut all_desired = Vec::new();
    for set in sets {
        let uri = step.db.uri_of(*set)?;
        let mut findings = Vec::new();
        for kind in ChannelKind::ALL {
            let of = (*set, &uri);
            let desired = topic_and_hubs(step, position, of, kind, &taken, &mut findings)?;
            taken.extend(desired.as_ref().map(|(topic, _)| topic.clone()));
            all_desired.push((*set, uri.clone(), kind, desired));
        }
        findings::replace(step, position, &uri, FindingPart::Channel, findings)?;
    }
    for kind in ChannelKind::ALL {
        let of_kind = || all_desired.iter().filter(|(.., of, _)| *of == kind);
        for (set, .., desired) in of_kind() {
            let live = channels::live_of_set(step, *set, kind)?;
            let topic = desired.as_ref().map(|(topic, _)| topic);
            if let Some(channel) = live.filter(|channel| Some(&channel.topic) != topic) {
                channels::retire(step, &channel)?;
            }
        }
        for (set, uri, _, desired) in of_kind() {
            if let Some(desired) = desired {
                channels::open(step, position, (*set, uri), kind, desired)?;
            }
        }
    }
    Ok(())
}

/// Returns the topic and the hubs of the channel that a set should have, if its topic is not taken (R8, R9).
fn topic_and_hubs(
    step: &Step<'_>,
    position: usize,
    (set, uri): (DocId, &Uri),
    kind: ChannelKind,
    taken: &BTreeSet<Topic>,
    findings: &mut Vec<Finding>,
) -> Result<Option<(Topic, Vec<Hub>)>> {
    if !owed::set_exists(step, step.live.sources[position].id, set)? {
        return Ok(None);
    }
    let (plan, source) = (step.plan, &step.plan.sources[position]);
    let mut entries = plan.channels.iter().rev();
    let configured = entries.find(|it| it.capability_list == *uri && it.kind == kind);
    let sql = "SELECT topic FROM channel WHERE set_id = ?1 AND kind = ?2";
    let had: Vec<Topic> = step.db.all(sql, (set, kind))?;
    let default = default_topics(plan, source, uri, kind).map(|[topic, other]| {
        let keeps_other = had.contains(&other) && !had.contains(&topic);
        if keeps_other { other } else { topic }
    });
    let sql =
        "SELECT topic, hubs FROM advertised WHERE document = ?1 AND kind = ?2 ORDER BY position";
    let advertised: Vec<(Topic, String)> = step.db.all(sql, (set, kind))?;
    if advertised.len() > 1 && configured.is_none() {
        findings.push(Finding::SeveralChannels { set: uri.clone() });
    }
    let desired = if let Some(entry) = configured {
        let problem = topic_problem(plan, source, uri, &entry.topic);
        findings.extend(problem.filter(|problem| !problem.mutes_channel()));
        Some((entry.topic.clone(), entry.hubs.clone()))
    } else if let Some((topic, hubs)) = advertised.into_iter().next() {
        let problem = topic_problem(plan, source, uri, &topic);
        let is_mute = problem.as_ref().is_some_and(Finding::mutes_channel);
        findings.extend(problem);
        let hubs: Vec<Hub> = serde_json::from_str(&hubs).unwrap_or_default();
        (!is_mute).then_some((topic, hubs))
    } else {
        let is_wanted = kind == ChannelKind::Framework || source.change_notifications;
        let is_wanted = is_wanted && source.unadvertised_channels;
        let topic = default.clone().filter(|_| is_wanted);
        let set = uri.clone();
        findings.extend(
            topic
                .clone()
                .map(|topic| Finding::Unadvertised { set, topic }),
        );
        topic.map(|topic| (topic, Vec::new()))
    };
    let brokers: Vec<Hub> = plan.brokers_of(&source.name, kind).cloned().collect();
    if let Some((topic, named)) = desired {
        let mut hubs = if named.is_empty() {
            plan.hubs.iter().map(|hub| hub.hub.clone()).collect()
        } else if configured.is_some() {
            named
        } else {
            configured_hubs(plan, (uri, kind), named, findings)
        };
        hubs.extend(brokers.iter().cloned());
        // A configured channel takes its topic from any other.
        let is_configured = plan.channels.iter().any(|entry| entry.topic == topic);
        let has_other =
            configured.is_none() && (is_configured || is_topic_taken(step, &topic, set, kind)?);
        if !has_other && !taken.contains(&topic) {
            return Ok(Some((topic, hubs)));
        }
        let set = uri.clone();
        findings.push(Finding::SharedTopic { set, topic });
    }
    // F1: the topic of a channel that only brokers are told on is only a name.
    match default.filter(|topic| !brokers.is_empty() && !taken.contains(topic)) {
        Some(topic) if !is_topic_taken(step, &topic, set, kind)? => Ok(Some((topic, brokers))),
        _ => Ok(None),
    }
}

/// Returns true if another live channel has this topic: of another set, or of another kind (R8, C9).
fn is_topic_taken(step: &Step<'_>, topic: &Topic, set: DocId, kind: ChannelKind) -> Result<bool> {
    let holder = channels::of_topic(step.db, topic)?;
    Ok(holder
        .is_some_and(|channel| !channel.is_retired && (channel.set, channel.kind) != (set, kind)))
}

/// Returns those of the hubs that a Capability List advertises for a channel that are configured.
fn configured_hubs(
    plan: &Plan,
    (set, kind): (&Uri, ChannelKind),
    advertised: Vec<Hub>,
    findings: &mut Vec<Finding>,
) -> Vec<Hub> {
    // A broker is no hub.
    let is_ours = |hub: &Hub| plan.hubs.iter().any(|ours| ours.hub == *hub);
    let (hubs, foreign): (Vec<Hub>, Vec<Hub>) = advertised.into_iter().partition(is_ours);
    let set = set.clone();
    if hubs.is_empty() {
        let hubs = foreign;
        findings.push(Finding::ForeignHubs { set, kind, hubs });
    } else {
        findings.extend(foreign.into_iter().map(|hub| Finding::ForeignHub {
            set: set.clone(),
            hub,
        }));
    }
    hubs
}

// Topics (R9).

/// Returns what is wrong with the topic of a set of a source, if anything is.
fn topic_problem(plan: &Plan, source: &SourcePlan, set: &Uri, topic: &Topic) -> Option<Finding> {
    let (set, topic) = (set.clone(), topic.clone());
    let text = topic.as_str();
    let forbidden = text
        .chars()
        .find(|c| !has_valid_chars(c.encode_utf8(&mut [0; 4])));
    let is_served = |uri: &Uri| uri.is_below(&plan.public_url) || source.mount_of(uri).is_some();
    Some(match Uri::parse(text) {
        Ok(uri) if !is_served(&source.canonical(&uri)) => Finding::ForeignTopic { set, topic },
        Ok(_) if forbidden.is_none() => Finding::UnrequestableTopic {
            requested: requested_uri(text)?,
            set,
            topic,
        },
        _ => Finding::InvalidTopic {
            set,
            topic,
            forbidden,
        },
    })
}

/// Returns what clients request instead of a URI: they escape what is not ASCII, resolve `..`, and drop fragments.
fn requested_uri(text: &str) -> Option<String> {
    let mut url = Url::parse(text).ok()?;
    url.set_fragment(None);
    let (_, rest) = text.split_once("://")?;
    let start = rest.find(['/', '?', '#']);
    let written = start.map_or("", |start| &rest[start..]);
    // Without a path, they request `/`.
    let is_same =
        written == &url[Position::BeforePath..] || (written.is_empty() && url.path() == "/");
    (!is_same).then(|| url.into())
}

/// Returns the topics that a set without an advertisement may have: the one that a new channel gets comes first, then
/// the one that it keeps if it has it already.
///
/// With several mounts in a source, the prefix of the list's mount is part of it, so that it depends on no other
/// mount and on no order; a channel that was opened when there was one mount stays as it was.
pub fn default_topics(
    plan: &Plan,
    source: &SourcePlan,
    set: &Uri,
    kind: ChannelKind,
) -> Option<[Topic; 2]> {
    let mount = source.mount_of(set)?;
    let below = set.as_str().strip_prefix(mount.prefix.as_str())?;
    let path = below.strip_suffix(".xml").unwrap_or(below);
    let name = match kind {
        ChannelKind::Framework => Uri::below(&plan.public_url, b"topics/"),
        ChannelKind::Change => Uri::below(&plan.public_url, b"changes/"),
    };
    let name = Uri::below(&name, source.name.as_bytes());
    let mount_name = mount_name(mount);
    let plain = Topic::new(format!("{name}/{path}/"));
    let named = Topic::new(format!("{name}/{mount_name}{path}/"));
    Some(match source.mounts.len() {
        1 => [plain, named],
        _ => [named, plain],
    })
}

/// Returns the name of a mount, which is where it is published, without the usual scheme.
fn mount_name(mount: &MountPlan) -> String {
    let prefix = mount.prefix.as_str();
    let name = match prefix.split_once("://") {
        Some(("https", name)) => name.to_owned(),
        Some((scheme, name)) => format!("{scheme}:{name}"),
        None => prefix.to_owned(),
    };
    // They stand in an authority, and in no path.
    name.replace('[', "%5B").replace(']', "%5D")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::requested_uri;

    #[rstest]
    #[case("https://e.org/t/", None)]
    #[case("https://e.org", None)]
    #[case("https://e.org/t?a=1&b=/../", None)]
    #[case("https://e.org/t/%C3%A9/~x/(1)/", None)]
    #[case("https://e.org:443/T/", None)]
    #[case("https://e.org/t/é/", Some("https://e.org/t/%C3%A9/"))]
    #[case("https://e.org/t/../dots/", Some("https://e.org/dots/"))]
    #[case("https://e.org/t/./dots/", Some("https://e.org/t/dots/"))]
    #[case("https://e.org/t/%2e%2e/dots/", Some("https://e.org/dots/"))]
    #[case("https://e.org/t/#part", Some("https://e.org/t/"))]
    #[case("https://e.org/t\\x", Some("https://e.org/t/x"))]
    #[case("https://e.org/t/{x}", Some("https://e.org/t/%7Bx%7D"))]
    #[case("https://e.org/t?é", Some("https://e.org/t?%C3%A9"))]
    fn what_clients_request_is_what_is_served(
        #[case] topic: &str,
        #[case] requested: Option<&str>,
    ) {
        assert_eq!(requested_uri(topic).as_deref(), requested);
    }
}

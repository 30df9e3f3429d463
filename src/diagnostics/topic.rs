//! Diagnostics of topics, by their replies at their public addresses through the web server in front, and notes about
//! change channels: how to have one, and why one announces nothing.

mod problem;

use std::collections::BTreeMap;

use resourcesync::payload::PAYLOAD_TYPE;
use resourcesync::uri::{Hub, Topic, Uri, is_clean};
use url::Url;
use websub::probe::{BodySummary, ProbeReply, TopicReplies};
use websub::topics::NO_SUCH_TOPIC;

use crate::diagnostics::topic::problem::{RedirectTarget, TopicReplyProblem};
use crate::diagnostics::{Diagnostic, is_local, is_private, origin};
use announce::plan::{HubPlan, PublishMode};

/// Number of topics that a diagnostic names; others are counted.
const NAMED: usize = 3;

/// A topic with its expected headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedTopic {
    pub topic: Topic,
    pub hubs: Vec<Hub>,
    pub capability_list: Uri,
}

/// Diagnoses the replies of topics; `None` for those that there was no time to request.
pub fn diagnostics(topics: &[(ExpectedTopic, Option<TopicReplies>)]) -> Vec<Diagnostic> {
    let mut by_problem: BTreeMap<TopicReplyProblem, Vec<&Topic>> = BTreeMap::new();
    let mut unasked = 0;
    for (expected, replies) in topics {
        let Some(replies) = replies else {
            unasked += 1;
            continue;
        };
        for problem in problems(expected, replies) {
            by_problem.entry(problem).or_default().push(&expected.topic);
        }
    }
    let mut diagnostics: Vec<Diagnostic> = by_problem
        .iter()
        .map(|(problem, topics)| {
            Diagnostic::finding(format!("{}: {problem}", names(topics)), problem.remedy())
        })
        .collect();
    if unasked > 0 {
        diagnostics.push(Diagnostic::note(
            format!(
                "{unasked} of {} topics were not checked: timeout",
                topics.len()
            ),
            "",
        ));
    }
    diagnostics
}

/// Diagnoses whether hubs and subscribers elsewhere can reach the topics.
pub fn reachability<'a>(
    topics: impl IntoIterator<Item = &'a Topic>,
    hubs: &[HubPlan],
    mounts: &[&Uri],
) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let topics: Vec<&Topic> = topics.into_iter().collect();
    let those = |is_it: fn(&str) -> bool| -> Vec<&Topic> {
        let those = topics.iter().filter(|topic| is_it(topic.as_str()));
        those.copied().collect()
    };
    let private = those(is_private);
    let are_public = !topics.is_empty() && private.is_empty();
    for plan in hubs {
        let (hub, is_embedded) = (&plan.hub, plan.mode == PublishMode::Embedded);
        if !private.is_empty() && !is_embedded && !is_private(hub.as_str()) {
            let message = format!(
                "{} can be reached from this machine or network only, and hub {hub} is elsewhere",
                names(&private)
            );
            let remedy = "set public_url to their address at the web server in front";
            diagnostics.push(match plan.mode {
                PublishMode::Ping => {
                    Diagnostic::finding(format!("{message} and fetches them"), remedy)
                }
                _ => Diagnostic::note(message, remedy),
            });
        } else if are_public && is_local(hub.as_str()) {
            let remedy = if is_embedded {
                "set server.public_url to an address that subscribers can reach"
            } else {
                "set url to an address that subscribers can reach, as the Capability Lists advertise it; publish_url \
                 may be the address on this machine"
            };
            let message =
                format!("the hub {hub} is on localhost; subscribers elsewhere cannot reach it");
            diagnostics.push(Diagnostic::note(message, remedy));
        }
    }
    let plain = those(|url| url.starts_with("http://") && !is_private(url));
    let is_secured = |mount: &&Uri| mount.as_str().starts_with("https://");
    if let (false, Some(mount)) = (plain.is_empty(), mounts.iter().copied().find(is_secured)) {
        diagnostics.push(Diagnostic::note(
            format!("{} is reached by http, and {mount} by https", names(&plain)),
            "if the web server in front speaks TLS, set public_url to its https address",
        ));
    }
    diagnostics
}

fn names(topics: &[&Topic]) -> String {
    let first: Vec<&str> = topics
        .iter()
        .take(NAMED)
        .map(|topic| topic.as_str())
        .collect();
    match topics.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        others => format!("{} and {others} others", first.join(", ")),
    }
}

fn problems(expected: &ExpectedTopic, replies: &TopicReplies) -> Vec<TopicReplyProblem> {
    let (head, get) = match (&replies.head, &replies.get) {
        (Err(error), _) => return vec![TopicReplyProblem::NoAnswer("HEAD", error.clone())],
        (_, Some(Err(error))) => return vec![TopicReplyProblem::NoAnswer("GET", error.clone())],
        (Ok(head), None) => (head, head),
        (Ok(head), Some(Ok(get))) => (head, get),
    };
    let mut problems = match status(expected, get) {
        Some(problem) => vec![problem],
        None => content(expected, get),
    };
    if head.status != get.status {
        problems.push(TopicReplyProblem::HeadStatus(head.status));
    } else if problems.is_empty() {
        let differs = [
            (head.content_type != get.content_type, "Content-Type"),
            (head.links != get.links, "Link"),
        ];
        let differing = differs.iter().filter(|(differs, _)| *differs);
        problems.extend(differing.map(|(_, name)| TopicReplyProblem::HeadHeader(name)));
    }
    problems
}

fn status(expected: &ExpectedTopic, reply: &ProbeReply) -> Option<TopicReplyProblem> {
    match reply.status {
        200 => None,
        status @ (301..=303 | 307 | 308) => Some(TopicReplyProblem::Redirected(
            status,
            target(&expected.topic, reply.location.as_deref()),
        )),
        404 if reply.body.is(NO_SUCH_TOPIC) => Some(TopicReplyProblem::Unknown),
        status @ (404 | 410) => Some(TopicReplyProblem::NotPassedOn(status, kind(reply))),
        status @ (401 | 403) => Some(TopicReplyProblem::NotAllowed(status)),
        status @ 502..=504 => Some(TopicReplyProblem::NoUpstream(status)),
        status => Some(TopicReplyProblem::Status(status)),
    }
}

fn content(expected: &ExpectedTopic, reply: &ProbeReply) -> Vec<TopicReplyProblem> {
    let links = &reply.links;
    let has_links = !(links.self_links.is_empty() && links.hubs.is_empty());
    let is_payload = reply.content_type.as_deref() == Some(PAYLOAD_TYPE);
    if !is_payload && !has_links {
        return vec![TopicReplyProblem::Foreign(kind(reply))];
    }
    let mut problems = Vec::new();
    if !is_payload {
        let parts = reply
            .content_type
            .as_deref()
            .and_then(|value| value.split_once(';'));
        let is_bare = |bare: &str| bare.trim().eq_ignore_ascii_case(PAYLOAD_TYPE);
        problems.push(match parts {
            Some((bare, more)) if is_bare(bare) => {
                TopicReplyProblem::Parameters(more.trim().to_owned())
            }
            _ => TopicReplyProblem::Type(kind(reply)),
        });
    }
    if !has_links {
        problems.push(TopicReplyProblem::NoLinks);
    } else {
        problems.extend(link_problems(expected, reply));
    }
    match (&reply.content_encoding, &reply.body) {
        (Some(encoding), _) => problems.push(TopicReplyProblem::Encoded(encoding.clone())),
        (None, BodySummary::Other { reason, .. }) => {
            problems.push(TopicReplyProblem::NoPayload(reason.clone()))
        }
        (None, BodySummary::Empty | BodySummary::Payload) => {}
    }
    problems
}

fn link_problems(expected: &ExpectedTopic, reply: &ProbeReply) -> Vec<TopicReplyProblem> {
    let links = &reply.links;
    let mut problems = Vec::new();
    if is_clean(expected.topic.as_str()) && links.self_links != [expected.topic.as_str()] {
        problems.push(TopicReplyProblem::OwnLink(links.self_links.clone()));
    }
    let hubs = expected.hubs.iter().map(Hub::as_str);
    let hubs: Vec<&str> = hubs.filter(|hub| is_clean(hub)).collect();
    let missing = hubs
        .iter()
        .filter(|hub| !links.hubs.iter().any(|link| link == *hub));
    let missing: Vec<String> = missing.map(ToString::to_string).collect();
    let foreign = links
        .hubs
        .iter()
        .filter(|link| !hubs.contains(&link.as_str()));
    let foreign: Vec<String> = foreign.cloned().collect();
    if !missing.is_empty() || !foreign.is_empty() {
        problems.push(TopicReplyProblem::HubLinks { missing, foreign });
    }
    let list = expected.capability_list.as_str();
    if is_clean(list) && !links.capability_lists.iter().any(|link| link == list) {
        problems.push(TopicReplyProblem::NoListLink);
    }
    problems
}

fn kind(reply: &ProbeReply) -> String {
    match &reply.content_type {
        Some(content_type) => format!("Content-Type {content_type}"),
        None => "no Content-Type".to_owned(),
    }
}

fn target(topic: &Topic, location: Option<&str>) -> RedirectTarget {
    let from = Url::parse(topic.as_str()).ok();
    let to = from.as_ref().zip(location);
    let to = to.and_then(|(from, location)| from.join(location.trim()).ok());
    let (Some(from), Some(to)) = (from, to) else {
        return RedirectTarget::Nowhere;
    };
    let moved = |change: &dyn Fn(&mut Url)| {
        let mut moved = from.clone();
        change(&mut moved);
        moved == to
    };
    // A URL whose scheme cannot be changed stays as it is, and so differs from the target.
    let secured = |url: &mut Url| {
        let _ = url.set_scheme("https");
    };
    let slashed = |url: &mut Url| url.set_path(&format!("{}/", from.path()));
    let unslashed = |url: &mut Url| url.set_path(from.path().trim_end_matches('/'));
    if moved(&secured) {
        RedirectTarget::Https
    } else if moved(&slashed) {
        RedirectTarget::WithSlash
    } else if moved(&unslashed) {
        RedirectTarget::WithoutSlash
    } else if (from.path(), from.query()) == (to.path(), to.query()) {
        RedirectTarget::SamePath(origin(to.as_str()))
    } else {
        // Without a query, which may repeat the topic: a login is one problem for all topics.
        let query = if to.query().is_some() { "?…" } else { "" };
        RedirectTarget::Elsewhere(format!("{}{}{query}", origin(to.as_str()), to.path()))
    }
}

/// Notes that sets have Change Lists and no change channel (C9).
pub fn changes_not_enabled(sets: &[Uri]) -> Option<Diagnostic> {
    let message = match sets {
        [] => return None,
        [set] => format!("{set} has a Change List, and its changes are not announced one by one"),
        [set, ..] => format!(
            "{count} sets such as {set} have Change Lists, and their changes are not announced one by one",
            count = sets.len()
        ),
    };
    Some(Diagnostic::note(
        message,
        "change_notifications = true in the [[source]] gives each set a channel for changes of resources",
    ))
}

/// Notes that sets with a change channel have no Change List (C1).
pub fn no_change_list(channels: &[(Topic, Uri)]) -> Option<Diagnostic> {
    let message = match channels {
        [] => return None,
        [(topic, set)] => format!("{set} has the change channel {topic} and no Change List"),
        [(topic, set), ..] => format!(
            "{count} sets have a change channel and no Change List, such as {set} with {topic}",
            count = channels.len()
        ),
    };
    let remedy = "nothing is announced there until the generator writes one";
    Some(Diagnostic::note(message, remedy))
}

#[cfg(test)]
mod tests;

//! Diagnostics of topics, by their replies at their public addresses through the web server in front, and notes about
//! change channels: how to have one, and why one announces nothing.

use std::collections::BTreeMap;

use resourcesync::payload::PAYLOAD_TYPE;
use resourcesync::uri::{Hub, Topic, Uri, has_valid_chars};
use url::Url;
use websub::probe::{BodyKind, FailureCause, ProbeError, ProbeReply, TopicReplies};
use websub::topics::NO_SUCH_TOPIC;

use crate::diagnostics::{Diagnostic, is_local, is_private, origin};
use crate::report::status::ChannelView;
use announce::plan::{HubPlan, PublishMode};

/// Number of topics that a diagnostic names; others are counted.
const NAMED: usize = 3;

/// A problem with the replies of a topic: the place of its kind in the order of the report, the message, and the remedy in
/// the web server in front.
type ReplyProblem = (u8, String, &'static str);

const ANSWERS_ITSELF: &str = "the web server in front answers itself; let it pass the topic on to server.listen, path and \
    query unchanged: `rsnotify snippet nginx`, `apache` or `caddy` prints the lines that do";
const DROPS_LINKS: &str =
    "let the web server in front pass the Link header on; without it clients cannot find the hub";
const SEE_LOG: &str = "the log of the web server in front should have the reason";

/// Returns the hubs that the topic of a channel should advertise.
pub fn hubs_to_advertise(channel: &ChannelView) -> impl Iterator<Item = &Hub> {
    let views = channel.hubs.iter();
    let hubs = views.filter(|view| view.mode != PublishMode::Broker);
    hubs.map(|view| &view.hub)
}

/// Diagnoses the replies of topics; `None` for those that there was no time to request.
pub fn diagnostics(topics: &[(&ChannelView, Option<TopicReplies>)]) -> Vec<Diagnostic> {
    let mut by_problem: BTreeMap<ReplyProblem, Vec<&Topic>> = BTreeMap::new();
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
    let found = by_problem
        .into_iter()
        .map(|((_, problem, remedy), topics)| {
            Diagnostic::finding(format!("{}: {problem}", names(&topics)), remedy)
        });
    let mut diagnostics: Vec<Diagnostic> = found.collect();
    if unasked > 0 {
        let all = topics.len();
        let message = format!("{unasked} of {all} topics were not checked: timeout");
        diagnostics.push(Diagnostic::note(message, ""));
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
            let those = names(&private);
            let message = format!(
                "{those} can be reached from this machine or network only, and hub {hub} is elsewhere"
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
    let names = topics.iter().take(NAMED).map(|topic| topic.as_str());
    let first = names.collect::<Vec<_>>().join(", ");
    match topics.len().saturating_sub(NAMED) {
        0 => first,
        others => format!("{first} and {others} others"),
    }
}

fn problems(expected: &ChannelView, replies: &TopicReplies) -> Vec<ReplyProblem> {
    let no_answer = |method, error: &ProbeError| {
        let message = format!("no answer to {method} ({error})");
        (0, message, no_answer_remedy(error.cause))
    };
    let (head, get) = match (&replies.head, &replies.get) {
        (Err(error), _) => return vec![no_answer("HEAD", error)],
        (_, Some(Err(error))) => return vec![no_answer("GET", error)],
        (Ok(head), None) => (head, head),
        (Ok(head), Some(Ok(get))) => (head, get),
    };
    let mut problems = match status_problem(expected, get) {
        Some(problem) => vec![problem],
        None => content_problems(expected, get),
    };
    let alike =
        "hubs and Destinations may use either; let the web server in front pass on both alike";
    if head.status != get.status {
        let message = format!("HEAD answers {}, and GET does not", head.status);
        problems.push((16, message, alike));
    } else if problems.is_empty() {
        let differs = [
            (head.content_type != get.content_type, "Content-Type"),
            (head.links != get.links, "Link"),
        ];
        let differing = differs.iter().filter(|(differs, _)| *differs);
        let message = |name| format!("HEAD answers with another {name} than GET");
        problems.extend(differing.map(|(_, name)| (17, message(name), alike)));
    }
    problems
}

fn status_problem(expected: &ChannelView, reply: &ProbeReply) -> Option<ReplyProblem> {
    let status = reply.status;
    Some(match status {
        200 => return None,
        301..=303 | 307 | 308 => {
            let (target, remedy) = describe_redirect(&expected.topic, reply.location.as_deref());
            (1, format!("{status}, a redirection to {target}"), remedy)
        }
        404 if reply.body.is_exactly(NO_SUCH_TOPIC) => (
            2,
            "404 from rsnotify itself, which serves no such topic".to_owned(),
            "the web server in front changes path, query or Host on the way: let it pass them on unchanged; \
             or rsnotify has not swept the whole tree yet: retry; or the configuration was edited since the \
             start: restart it",
        ),
        404 | 410 => (
            3,
            format!("{status} with {}, which is not from rsnotify", kind(reply)),
            ANSWERS_ITSELF,
        ),
        401 | 403 => (
            4,
            format!("{status}, credentials are required"),
            "hubs and Destinations have none; let the web server in front serve topics without authentication",
        ),
        502..=504 => (
            5,
            format!("{status} from the web server in front"),
            "it cannot reach rsnotify; let it pass the topic on to server.listen of the machine \
             where rsnotify runs: `rsnotify snippet nginx`, `apache` or `caddy` prints the lines that do",
        ),
        _ => (6, format!("{status} instead of 200"), SEE_LOG),
    })
}

fn content_problems(expected: &ChannelView, reply: &ProbeReply) -> Vec<ReplyProblem> {
    let mut problems = Vec::new();
    let mut add = |rank, message, remedy| problems.push((rank, message, remedy));
    let links = &reply.links;
    let has_links = !(links.self_links.is_empty() && links.hubs.is_empty());
    let content_type = reply.content_type.as_deref();
    let is_payload = content_type == Some(PAYLOAD_TYPE);
    if !is_payload && !has_links {
        // Another server answers with content of its own.
        let message = format!("200 with {}, which is not from rsnotify", kind(reply));
        add(7, message, ANSWERS_ITSELF);
        return problems;
    }
    let is_bare = |bare: &str| bare.trim().eq_ignore_ascii_case(PAYLOAD_TYPE);
    match content_type.and_then(|value| value.split_once(';')) {
        _ if is_payload => {}
        Some((bare, more)) if is_bare(bare) => add(
            9,
            format!("Content-Type {PAYLOAD_TYPE} with {} after it", more.trim()),
            "some hubs refuse that; let the web server in front add no charset (nginx: charset off, \
             Apache: AddDefaultCharset Off)",
        ),
        _ => add(
            8,
            format!("{} instead of {PAYLOAD_TYPE}", kind(reply)),
            "some Destinations refuse that; let the web server in front pass Content-Type on as it is",
        ),
    }
    if has_links {
        if has_valid_chars(expected.topic.as_str()) && links.self_links != [expected.topic.as_str()]
        {
            let said = match links.self_links.as_slice() {
                [] => "has no rel=\"self\"".to_owned(),
                links => format!("calls it {} (rel=\"self\")", links.join(", ")),
            };
            add(
                12,
                format!("the Link header {said}"),
                "the web server in front changes path, query or Host on the way: let it pass them on unchanged",
            );
        }
        let hubs = hubs_to_advertise(expected).map(Hub::as_str);
        let hubs: Vec<&str> = hubs.filter(|hub| has_valid_chars(hub)).collect();
        let linked: Vec<&str> = links.hubs.iter().map(String::as_str).collect();
        let beyond = |all: &[&str], others: &[&str]| {
            let beyond = all.iter().filter(|hub| !others.contains(hub));
            beyond.copied().map(str::to_owned).collect::<Vec<_>>()
        };
        let differences = [
            ("lacks", beyond(&hubs, &linked)),
            ("should not have", beyond(&linked, &hubs)),
        ];
        let differing = differences.iter().filter(|(_, hubs)| !hubs.is_empty());
        let parts = differing.map(|(verb, hubs)| format!("{verb} {}", hubs.join(", ")));
        let parts: Vec<String> = parts.collect();
        if !parts.is_empty() {
            add(
                13,
                format!("the Link header {} (rel=\"hub\")", parts.join(", and ")),
                "if the configuration was edited since rsnotify was started, restart it; else the web server in \
                 front changes the header",
            );
        }
        let list = expected.set.as_str();
        if has_valid_chars(list) && !links.capability_lists.iter().any(|link| link == list) {
            let message =
                "the Link header does not name the Capability List (rel=\"resourcesync\")";
            add(14, message.to_owned(), DROPS_LINKS);
        }
    } else {
        let message = "there is no Link header with the topic and its hubs";
        add(11, message.to_owned(), DROPS_LINKS);
    }
    match (&reply.content_encoding, &reply.body) {
        (Some(encoding), _) => add(
            10,
            format!("Content-Encoding {encoding}, which was not requested"),
            "let the web server in front compress only for clients that send Accept-Encoding",
        ),
        (None, BodyKind::Other { reason, .. }) => add(
            15,
            format!("the body is no payload: {reason}"),
            "the web server in front changes what rsnotify sends; let it pass bodies on as they are",
        ),
        (None, BodyKind::Empty | BodyKind::Payload) => {}
    }
    problems
}

fn kind(reply: &ProbeReply) -> String {
    match &reply.content_type {
        Some(content_type) => format!("Content-Type {content_type}"),
        None => "no Content-Type".to_owned(),
    }
}

/// Describes the target of a redirection, compared with the topic, and returns the remedy.
fn describe_redirect(topic: &Topic, location: Option<&str>) -> (String, &'static str) {
    let pass_on = "topic URIs are compared exactly, so they must answer at their own address; let the \
                   web server in front pass them on to server.listen before any rule that redirects, or set \
                   public_url to where this leads";
    let from = Url::parse(topic.as_str()).ok();
    let both = from.as_ref().zip(location);
    let to = both.and_then(|(from, location)| from.join(location.trim()).ok());
    let (Some(from), Some(to)) = (from, to) else {
        let nowhere = "nowhere: the Location is missing or invalid".to_owned();
        return (nowhere, pass_on);
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
    let as_its_own = "the web server in front treats it as its own directory or file; let it pass the topic on \
                      to server.listen as it is, before any rule that redirects: `rsnotify snippet nginx`, `apache` or \
                      `caddy` prints the lines that do";
    if moved(&secured) {
        (
            "the same address by https".to_owned(),
            "the web server in front requires https; set public_url, or what the Capability List advertises, \
             to the https address",
        )
    } else if moved(&slashed) {
        let slashed = "the same address with a slash at its end";
        (slashed.to_owned(), as_its_own)
    } else if moved(&unslashed) {
        let unslashed = "the same address without the slash at its end";
        (unslashed.to_owned(), as_its_own)
    } else if (from.path(), from.query()) == (to.path(), to.query()) {
        (format!("the same path at {}", origin(to.as_str())), pass_on)
    } else {
        // Without a query, which may repeat the topic: a login is one problem for all topics.
        let query = if to.query().is_some() { "?…" } else { "" };
        let target = format!("{}{}{query}", origin(to.as_str()), to.path());
        (target, pass_on)
    }
}

fn no_answer_remedy(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::Name => {
            "the host name cannot be resolved; correct public_url, or this machine's name server"
        }
        FailureCause::Refused => {
            "nothing listens there; start the web server in front, or correct public_url"
        }
        FailureCause::Timeout => {
            "a firewall or the web server in front drops the connection; if a machine cannot reach its own \
             public address, try `curl -I` from another one"
        }
        FailureCause::UnknownIssuer | FailureCause::SelfSignedAuthority => {
            "Destinations will not trust that certificate either; let the web server in front send the whole \
             chain, or make the system trust your own authority"
        }
        FailureCause::Expired => "renew the certificate of the web server in front",
        FailureCause::NotYetValid => "its certificate is not valid yet; compare the clocks",
        FailureCause::OtherName => {
            "the web server in front has a certificate for other names; correct it, or public_url"
        }
        FailureCause::NoTls => {
            "there seems to be no TLS at that port; correct public_url, or the web server in front"
        }
        FailureCause::Unknown => SEE_LOG,
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

//! What a topic answers by its public address, where a web server stands between: whether it is what we
//! serve.

mod fault;

use std::collections::BTreeMap;

use url::Url;

use crate::announce::delivery::PAYLOAD_TYPE;
use crate::announce::plan::{HubPlan, Mode};
use crate::diagnostics::topic::fault::{Fault, Target};
use crate::diagnostics::{
    Answered, Body, NO_SUCH_TOPIC, Remark, Reply, is_local, is_private, origin,
};
use crate::resourcesync::uri::{Hub, Topic, Uri, is_clean};

/// How many topics a remark names; the rest is counted.
const NAMED: usize = 3;

/// A topic as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub topic: Topic,
    pub hubs: Vec<Hub>,
    pub capability_list: Uri,
}

/// What a topic answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    pub head: Answered,
    /// Not asked for where `HEAD` was not answered at all.
    pub get: Option<Answered>,
}

/// Judges what topics answer; nothing for one that there was no time to ask.
pub fn remarks(topics: &[(Wanted, Option<Served>)]) -> Vec<Remark> {
    let mut faulty: BTreeMap<Fault, Vec<&Topic>> = BTreeMap::new();
    let mut unasked = 0;
    for (wanted, served) in topics {
        let Some(served) = served else {
            unasked += 1;
            continue;
        };
        for fault in faults(wanted, served) {
            faulty.entry(fault).or_default().push(&wanted.topic);
        }
    }
    let mut remarks: Vec<Remark> = faulty
        .iter()
        .map(|(fault, topics)| {
            Remark::finding(format!("{}: {fault}", names(topics)), fault.remedy())
        })
        .collect();
    if unasked > 0 {
        remarks.push(Remark::note(
            format!(
                "{unasked} of {} topics were not tried: the others took too long",
                topics.len()
            ),
            "",
        ));
    }
    remarks
}

/// Judges where topics lie, for hubs that lie elsewhere.
pub fn reach<'a>(
    topics: impl IntoIterator<Item = &'a Topic>,
    hubs: &[HubPlan],
    mounts: &[&Uri],
) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let topics: Vec<&Topic> = topics.into_iter().collect();
    let private: Vec<&Topic> = topics
        .iter()
        .copied()
        .filter(|topic| is_private(topic.as_str()))
        .collect();
    let outside = hubs
        .iter()
        .filter(|hub| hub.mode != Mode::Embedded && !is_private(hub.hub.as_str()));
    for hub in outside.filter(|_| !private.is_empty()) {
        let seen = format!(
            "{} can be reached from this machine or network only, and hub {} lies elsewhere",
            names(&private),
            hub.hub
        );
        let remedy = "set public_url to what the web server in front makes of them";
        remarks.push(match hub.mode {
            Mode::Ping => Remark::finding(format!("{seen} and fetches them"), remedy),
            _ => Remark::note(seen, remedy),
        });
    }
    let are_public = !topics.is_empty() && private.is_empty();
    for hub in hubs
        .iter()
        .filter(|hub| are_public && is_local(hub.hub.as_str()))
    {
        remarks.push(Remark::note(
            format!("the hub {} is on localhost; subscribers elsewhere cannot reach it", hub.hub),
            match hub.mode {
                Mode::Embedded => "set server.public_url to what subscribers reach",
                _ => {
                    "set url to what subscribers reach, as the Capability Lists advertise it; publish_url may be the \
                     address on this machine"
                }
            },
        ));
    }
    let is_plain = |url: &str| url.starts_with("http://") && !is_private(url);
    let plain: Vec<&Topic> = topics
        .into_iter()
        .filter(|topic| is_plain(topic.as_str()))
        .collect();
    let is_secured = |mount: &&Uri| mount.as_str().starts_with("https://");
    if let (false, Some(mount)) = (plain.is_empty(), mounts.iter().copied().find(is_secured)) {
        remarks.push(Remark::note(
            format!("{} is reached by http, and {mount} by https", names(&plain)),
            "if the web server in front speaks TLS, set public_url to its https address",
        ));
    }
    remarks
}

fn names(topics: &[&Topic]) -> String {
    let first: Vec<&str> = topics.iter().take(NAMED).map(|own| own.as_str()).collect();
    match topics.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        others => format!("{} and {others} others", first.join(", ")),
    }
}

fn faults(wanted: &Wanted, served: &Served) -> Vec<Fault> {
    let (head, get) = match (&served.head, &served.get) {
        (Err(words), _) => return vec![Fault::NoAnswer("HEAD", words.clone())],
        (_, Some(Err(words))) => return vec![Fault::NoAnswer("GET", words.clone())],
        (Ok(head), None) => (head, head),
        (Ok(head), Some(Ok(get))) => (head, get),
    };
    let mut faults = match status(wanted, get) {
        Some(fault) => vec![fault],
        None => content(wanted, get),
    };
    if head.status != get.status {
        faults.push(Fault::HeadStatus(head.status));
    } else if faults.is_empty() {
        let differs = [
            (head.content_type != get.content_type, "Content-Type"),
            (head.links != get.links, "Link"),
        ];
        let differing = differs.iter().filter(|(differs, _)| *differs);
        faults.extend(differing.map(|(_, name)| Fault::HeadHeader(name)));
    }
    faults
}

fn status(wanted: &Wanted, reply: &Reply) -> Option<Fault> {
    match reply.status {
        200 => None,
        status @ (301..=303 | 307 | 308) => Some(Fault::Redirected(
            status,
            target(&wanted.topic, reply.location.as_deref()),
        )),
        404 if reply.body.is(NO_SUCH_TOPIC) => Some(Fault::Unknown),
        status @ (404 | 410) => Some(Fault::NotPassedOn(status, kind(reply))),
        status @ (401 | 403) => Some(Fault::NotAllowed(status)),
        status @ 502..=504 => Some(Fault::NoUpstream(status)),
        status => Some(Fault::Status(status)),
    }
}

fn content(wanted: &Wanted, reply: &Reply) -> Vec<Fault> {
    let links = &reply.links;
    let has_links = !(links.own.is_empty() && links.hubs.is_empty());
    let is_payload = reply.content_type.as_deref() == Some(PAYLOAD_TYPE);
    if !is_payload && !has_links {
        return vec![Fault::Foreign(kind(reply))];
    }
    let mut faults = Vec::new();
    if !is_payload {
        let parts = reply
            .content_type
            .as_deref()
            .and_then(|own| own.split_once(';'));
        let is_bare = |bare: &str| bare.trim().eq_ignore_ascii_case(PAYLOAD_TYPE);
        faults.push(match parts {
            Some((bare, more)) if is_bare(bare) => Fault::Parameters(more.trim().to_owned()),
            _ => Fault::Type(kind(reply)),
        });
    }
    if !has_links {
        faults.push(Fault::NoLinks);
    } else {
        faults.extend(link_faults(wanted, reply));
    }
    match (&reply.content_encoding, &reply.body) {
        (Some(encoding), _) => faults.push(Fault::Encoded(encoding.clone())),
        (None, Body::Other { reason, .. }) => faults.push(Fault::Body(reason.clone())),
        (None, Body::Empty | Body::Payload) => {}
    }
    faults
}

fn link_faults(wanted: &Wanted, reply: &Reply) -> Vec<Fault> {
    let links = &reply.links;
    let mut faults = Vec::new();
    if is_clean(wanted.topic.as_str()) && links.own != [wanted.topic.as_str()] {
        faults.push(Fault::OwnLink(links.own.clone()));
    }
    let hubs = wanted.hubs.iter().map(Hub::as_str);
    let hubs: Vec<&str> = hubs.filter(|hub| is_clean(hub)).collect();
    let missing = hubs
        .iter()
        .filter(|hub| !links.hubs.iter().any(|own| own == *hub));
    let missing: Vec<String> = missing.map(ToString::to_string).collect();
    let foreign = links
        .hubs
        .iter()
        .filter(|own| !hubs.contains(&own.as_str()));
    let foreign: Vec<String> = foreign.cloned().collect();
    if !missing.is_empty() || !foreign.is_empty() {
        faults.push(Fault::HubLinks { missing, foreign });
    }
    let list = wanted.capability_list.as_str();
    if is_clean(list) && !links.capability_lists.iter().any(|own| own == list) {
        faults.push(Fault::NoListLink);
    }
    faults
}

fn kind(reply: &Reply) -> String {
    match &reply.content_type {
        Some(content_type) => format!("Content-Type {content_type}"),
        None => "no Content-Type".to_owned(),
    }
}

fn target(topic: &Topic, location: Option<&str>) -> Target {
    let from = Url::parse(topic.as_str()).ok();
    let to = from.as_ref().zip(location);
    let to = to.and_then(|(from, location)| from.join(location.trim()).ok());
    let (Some(from), Some(to)) = (from, to) else {
        return Target::Nowhere;
    };
    let moved = |change: &dyn Fn(&mut Url)| {
        let mut moved = from.clone();
        change(&mut moved);
        moved == to
    };
    // What cannot be changed so stays as it is, and differs.
    let secured = |url: &mut Url| {
        let _ = url.set_scheme("https");
    };
    let slashed = |url: &mut Url| url.set_path(&format!("{}/", from.path()));
    let unslashed = |url: &mut Url| url.set_path(from.path().trim_end_matches('/'));
    if moved(&secured) {
        Target::Https
    } else if moved(&slashed) {
        Target::WithSlash
    } else if moved(&unslashed) {
        Target::WithoutSlash
    } else if (from.path(), from.query()) == (to.path(), to.query()) {
        Target::SamePath(origin(to.as_str()))
    } else {
        // Without a query, which may repeat the topic: a login is one fault of all topics.
        let query = if to.query().is_some() { "?…" } else { "" };
        Target::Elsewhere(format!("{}{}{query}", origin(to.as_str()), to.path()))
    }
}

#[cfg(test)]
mod tests;

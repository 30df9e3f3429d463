//! Tests of topic diagnostics.

use rstest::rstest;
use websub::headers::Links;
use websub::probe::ProbeResult;
use websub::publisher::reason::RefusalKind;

use crate::diagnostics::Severity;
use crate::diagnostics::tests::{failure, reply};
use crate::report::status::HubView;
use crate::report::tests::{channel_view, hub_view};
use announce::plan::ReplacedHub;

use super::*;

const TOPIC: &str = "https://e.org/a/framework?set=a";
const HUBS: [&str; 2] = ["https://hub.example/one", "https://hub.example/two"];
const LIST: &str = "https://e.org/a/capabilitylist.xml";

fn expected(topic: &str) -> ChannelView {
    let hub = |uri| HubView {
        hub: Hub::new(uri),
        ..hub_view(RefusalKind::NotAllowed, "")
    };
    ChannelView {
        topic: Topic::new(topic),
        hubs: HUBS.map(hub).into(),
        set: Uri::parse(LIST).unwrap(),
        ..channel_view(0, "")
    }
}

/// Returns the reply of our own server.
fn ours() -> ProbeReply {
    ProbeReply {
        content_type: Some(PAYLOAD_TYPE.to_owned()),
        links: Links {
            self_links: vec![TOPIC.to_owned()],
            hubs: HUBS.map(str::to_owned).into(),
            capability_lists: vec![LIST.to_owned()],
        },
        body: BodyKind::Payload,
        ..reply(200)
    }
}

fn changed(change: impl FnOnce(&mut ProbeReply)) -> ProbeReply {
    let mut reply = ours();
    change(&mut reply);
    reply
}

/// Returns the diagnostics of a topic with this reply to `GET`, and the like to `HEAD`.
fn said(get: ProbeReply) -> Vec<String> {
    let head = ProbeReply {
        body: BodyKind::Empty,
        ..get.clone()
    };
    judged(Ok(head), Some(Ok(get)))
}

fn judged(head: ProbeResult, get: Option<ProbeResult>) -> Vec<String> {
    let expected = expected(TOPIC);
    let found = diagnostics(&[(&expected, Some(TopicReplies { head, get }))]);
    let is_finding = |found: &Diagnostic| found.severity == Severity::Finding;
    assert!(found.iter().all(is_finding));
    found.iter().map(Diagnostic::line).collect()
}

#[test]
fn a_topic_that_is_passed_on_has_no_problem() {
    assert_eq!(said(ours()), [""; 0]);
    assert_eq!(said(changed(|it| it.body = BodyKind::Empty)), [""; 0]);
    assert_eq!(said(changed(|it| it.links.hubs.reverse())), [""; 0]);
}

fn html(status: u16) -> ProbeReply {
    ProbeReply {
        content_type: Some("text/html".to_owned()),
        body: BodyKind::read(b"<!DOCTYPE html>"),
        ..reply(status)
    }
}

fn redirects(status: u16, location: &str) -> ProbeReply {
    ProbeReply {
        location: Some(location.to_owned()),
        ..html(status)
    }
}

#[test]
fn a_web_server_that_answers_itself_is_recognised() {
    let from_us = ProbeReply {
        body: BodyKind::read(NO_SUCH_TOPIC.as_bytes()),
        ..reply(404)
    };
    for (reply, want) in [
        (
            html(404),
            "404 with Content-Type text/html, which is not from rsnotify: the web server in front",
        ),
        (
            html(410),
            "410 with Content-Type text/html, which is not from rsnotify",
        ),
        (
            reply(404),
            "404 with no Content-Type, which is not from rsnotify",
        ),
        (
            html(200),
            "200 with Content-Type text/html, which is not from rsnotify: the web server in front",
        ),
        (
            from_us,
            "404 from rsnotify itself, which serves no such topic: the web server in front changes path, query or Host",
        ),
        (html(401), "401, credentials are required"),
        (html(403), "403, credentials are required"),
        (
            html(502),
            "502 from the web server in front: it cannot reach rsnotify",
        ),
        (html(504), "504 from the web server in front"),
        (html(304), "304 instead of 200"),
        (html(405), "405 instead of 200"),
        (html(204), "204 instead of 200"),
        (html(500), "500 instead of 200"),
        (
            redirects(301, "/a/framework/?set=a"),
            "301, a redirection to the same address with a slash at its end",
        ),
        (
            redirects(301, "/a/framework/"),
            "301, a redirection to https://e.org/a/framework/: topic URIs are",
        ),
        (
            redirects(302, "https://e.org/login?to=/a"),
            "302, a redirection to https://e.org/login?…: topic URIs",
        ),
        (redirects(302, "http://["), "302, a redirection to nowhere"),
        (reply(302), "302, a redirection to nowhere"),
    ] {
        assert_said(&said(reply), &[want]);
    }
}

/// Compares what is said of the topic with the beginnings of what is wanted.
#[track_caller]
fn assert_said(said: &[String], want: &[&str]) {
    assert_eq!(said.len(), want.len(), "{said:#?}");
    for (said, want) in said.iter().zip(want) {
        assert!(said.starts_with(&format!("{TOPIC}: {want}")), "{said}");
    }
}

#[rstest]
#[case("http://e.org/t", "https://e.org/t", "the same address by https")]
#[case("http://e.org/t", "https://e.org:443/t", "the same address by https")]
#[case("https://e.org/t", "/t/", "the same address with a slash at its end")]
#[case(
    "https://e.org/t/",
    "/t",
    "the same address without the slash at its end"
)]
#[case(
    "http://e.org/t?a",
    "https://www.e.org/t?a",
    "the same path at https://www.e.org"
)]
#[case("https://e.org/t?a", "https://e.org/t?b", "https://e.org/t?…")]
#[case("https://e.org/t?a", "/t", "https://e.org/t")]
fn the_target_of_a_redirection_is_described_in_words(
    #[case] topic: &str,
    #[case] location: &str,
    #[case] want: &str,
) {
    assert_eq!(
        describe_redirect(&Topic::new(topic), Some(location)).0,
        want
    );
}

#[rstest]
#[case(
    changed(|it| it.content_type = Some("text/xml".into())),
    &["Content-Type text/xml instead of application/xml"]
)]
#[case(changed(|it| it.content_type = None), &["no Content-Type instead of application/xml"])]
#[case(
    changed(|it| it.content_type = Some("application/xml; charset=utf-8".into())),
    &["Content-Type application/xml with charset=utf-8 after it: some hubs refuse that"]
)]
#[case(changed(|it| it.links = Links::default()), &["there is no Link header"])]
#[case(changed(|it| it.links.self_links.clear()), &["the Link header has no rel=\"self\""])]
#[case(
    changed(|it| it.links.self_links[0] = "https://e.org/a/framework".into()),
    &["the Link header calls it https://e.org/a/framework (rel=\"self\")"]
)]
#[case(
    changed(|it| it.links.self_links.push(TOPIC.into())),
    &["the Link header calls it https://e.org/a/framework?set=a, https://e.org/a/framework?set=a (rel=\"self\")"]
)]
#[case(
    changed(|it| it.links.hubs.truncate(1)),
    &["the Link header lacks https://hub.example/two (rel=\"hub\")"]
)]
#[case(
    changed(|it| it.links.hubs[0] = "https://x.example/".into()),
    &["the Link header lacks https://hub.example/one, and should not have https://x.example/ (rel=\"hub\")"]
)]
#[case(
    changed(|it| it.links.capability_lists.clear()),
    &["the Link header does not name the Capability List (rel=\"resourcesync\")"]
)]
#[case(changed(|it| it.content_encoding = Some("gzip".into())), &["Content-Encoding gzip"])]
#[case(changed(|it| it.body = BodyKind::read(b"<html/>")), &["the body is no payload"])]
#[case(
    changed(|it| {
        it.content_type = Some("text/plain".into());
        it.links.capability_lists.clear();
    }),
    &["Content-Type text/plain", "the Link header does not name the Capability List"]
)]
fn a_web_server_that_changes_replies_is_noticed(#[case] reply: ProbeReply, #[case] want: &[&str]) {
    assert_said(&said(reply), want);
}

#[rstest]
#[case(FailureCause::Name, "host name cannot be resolved")]
#[case(FailureCause::Refused, "nothing listens there")]
#[case(FailureCause::Timeout, "curl")]
#[case(FailureCause::UnknownIssuer, "whole chain")]
#[case(FailureCause::SelfSignedAuthority, "whole chain")]
#[case(FailureCause::Expired, "renew")]
#[case(FailureCause::NotYetValid, "clocks")]
#[case(FailureCause::OtherName, "for other names")]
#[case(FailureCause::NoTls, "no TLS")]
#[case(FailureCause::Unknown, "log")]
fn a_topic_that_gives_no_answer_is_found_with_its_remedy(
    #[case] cause: FailureCause,
    #[case] want: &str,
) {
    let error = failure(cause, "words");
    let by_head = judged(Err(error.clone()), None);
    let by_get = judged(Ok(reply(200)), Some(Err(error)));
    let [by_head] = &by_head[..] else {
        panic!("{by_head:?}");
    };
    assert_eq!(by_get, [by_head.replace("to HEAD", "to GET")]);
    assert!(
        by_head.contains("words") && by_head.contains(want),
        "{by_head}"
    );
}

#[test]
fn head_and_get_should_agree() {
    let other_link = changed(|it| it.links.self_links.clear());
    let other_type = changed(|it| it.content_type = None);
    for (head, want) in [
        (reply(405), "HEAD answers 405, and GET does not"),
        (other_link, "HEAD answers with another Link than GET"),
        (
            other_type,
            "HEAD answers with another Content-Type than GET",
        ),
    ] {
        assert_said(&judged(Ok(head), Some(Ok(ours()))), &[want]);
    }
}

#[test]
fn the_same_problem_of_many_topics_is_one_diagnostic() {
    let channels = (0..=1001).map(|n| expected(&format!("https://e.org/{n}/")));
    let channels: Vec<_> = channels.collect();
    let replies = |status| {
        let (head, get) = (Ok(html(status)), Some(Ok(html(status))));
        Some(TopicReplies { head, get })
    };
    let topics = channels.iter().enumerate().map(|(n, channel)| match n {
        ..1000 => (channel, replies(404)),
        1000 => (channel, replies(403)),
        _ => (channel, None),
    });
    let topics: Vec<_> = topics.collect();
    let found: Vec<_> = diagnostics(&topics).iter().map(Diagnostic::line).collect();
    assert_eq!(found.len(), 3, "{found:#?}");
    let all = "https://e.org/0/, https://e.org/1/, https://e.org/2/ and 997 others: 404 with Content-Type text/html";
    assert!(found[0].starts_with(all), "{}", found[0]);
    assert!(
        found[1].starts_with("https://e.org/1000/: 403"),
        "{}",
        found[1]
    );
    assert_eq!(found[2], "1 of 1002 topics were not checked: timeout");
}

/// Diagnoses whether one hub reaches topics of one mount.
fn reached(topics: &[&str], hub: &str, mode: PublishMode, mount: &str) -> Vec<Diagnostic> {
    let topics: Vec<Topic> = topics.iter().copied().map(Topic::new).collect();
    let hub = HubPlan {
        hub: Hub::new(hub),
        mode,
        replaces: ReplacedHub::Automatic,
    };
    reachability(&topics, &[hub], &[&Uri::parse(mount).unwrap()])
}

#[rstest]
#[case(&["http://127.0.0.1:8400/t/"], "https://hub.example/", PublishMode::Ping, "https://e.org/", Some("Finding"))]
#[case(&["http://127.0.0.1:8400/t/"], "https://hub.example/", PublishMode::Content, "https://e.org/", Some("Note"))]
#[case(&["http://127.0.0.1:8400/t/"], "http://127.0.0.1:9/", PublishMode::Ping, "https://e.org/", None)]
#[case(&["http://127.0.0.1:8400/t/"], "http://127.0.0.1:8400/hub", PublishMode::Embedded, "https://e.org/", None)]
#[case(&["https://e.org/t/"], "https://hub.example/", PublishMode::Ping, "https://e.org/", None)]
#[case(&["http://e.org/t/"], "https://hub.example/", PublishMode::Ping, "https://e.org/", Some("Note"))]
#[case(&["http://e.org/t/"], "https://hub.example/", PublishMode::Ping, "http://e.org/", None)]
#[case(&[], "https://hub.example/", PublishMode::Ping, "https://e.org/", None)]
fn topics_that_hubs_cannot_reach_are_reported(
    #[case] topics: &[&str],
    #[case] hub: &str,
    #[case] mode: PublishMode,
    #[case] mount: &str,
    #[case] want: Option<&str>,
) {
    let found = reached(topics, hub, mode, mount);
    let severities = found.iter().map(|found| format!("{:?}", found.severity));
    assert_eq!(
        Vec::from_iter(severities).join(" "),
        want.unwrap_or_default()
    );
}

#[rstest]
#[case(
    PublishMode::Embedded,
    "set server.public_url to an address that subscribers can reach"
)]
#[case(
    PublishMode::Content,
    "set url to an address that subscribers can reach"
)]
fn a_hub_on_localhost_by_public_topics_is_named(#[case] mode: PublishMode, #[case] remedy: &str) {
    let (topics, hub) = (&["https://e.org/t/"], "http://localhost:8400/hub");
    let found = reached(topics, hub, mode, "https://e.org/");
    let [found] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!(found.severity, Severity::Note);
    assert_eq!(
        found.message,
        "the hub http://localhost:8400/hub is on localhost; subscribers elsewhere cannot reach it"
    );
    assert!(found.remedy.starts_with(remedy), "{found:?}");
}

#[test]
fn sets_are_counted_and_one_is_named() {
    let set = Uri::parse("https://e.org/a/capabilitylist.xml").unwrap();
    let topic = Topic::new("https://e.org/changes/a/");
    assert_eq!(changes_not_enabled(&[]), None);
    assert_eq!(no_change_list(&[]), None);
    let one = changes_not_enabled(std::slice::from_ref(&set)).unwrap();
    assert_eq!(
        one.message,
        "https://e.org/a/capabilitylist.xml has a Change List, and its changes are not announced one by one"
    );
    let two = changes_not_enabled(&[set.clone(), set.clone()]).unwrap();
    assert!(two.message.starts_with("2 sets such as https://e.org/a/"));
    let channels = [(topic.clone(), set.clone()), (topic, set)];
    let two = no_change_list(&channels).unwrap();
    assert!(two.message.starts_with("2 sets have a change channel"));
}

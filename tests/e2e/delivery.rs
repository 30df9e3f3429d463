//! Hubs that fail and recover, and hubs with different modes on one channel (R24).

use std::time::Duration;

use resourcesync::payload::Payload;
use serde_json::Value;

use crate::support::daemon::{Daemon, Setup, TOPICS, assert_contains, body_of};
use crate::support::documents::Site;
use crate::support::hub::{FakeHub, Manner, Request};

const CHANGELIST: &str = "updated changelist a/changelist.xml";
const RESOURCELIST: &str = "updated resourcelist a/resourcelist.xml";
const TOPIC_IN_FORM: &str = "https%3A%2F%2Ftopics.example%2Ftopics%2Fmain%2Fa%2Fcapabilitylist%2F";

#[test]
fn forty_channels_of_a_failing_hub_are_one_trouble_and_all_are_told_when_it_is_back() {
    const SETS: usize = 40;
    let site = Site::empty();
    let sets: Vec<String> = (0..SETS).map(|number| format!("s{number:02}")).collect();
    for set in &sets {
        site.add_set(set);
    }
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    let daemon = setup.start();
    hub.behave(Manner::Refuse(503));
    for set in &sets {
        site.write_list(set, "changelist", "2");
    }
    // At most 15 in 30 s (R23), but for the two of the beginning.
    let attempts = 5;
    let first = (0..attempts).map(|_| hub.request().at).min().unwrap();
    assert!(first.elapsed() > Duration::from_secs(5));
    assert_eq!(daemon.status()["failing_hubs"][0]["hub"], hub.url());
    let (_, metrics) = daemon.get_admin("/metrics");
    let gauge = format!("rsnotify_hub_failing{{hub=\"{}\"}} 1", hub.url());
    assert_contains(&metrics, &gauge);

    hub.behave(Manner::Accept);
    (0..SETS).for_each(|_| drop(hub.notification()));
    daemon.await_log("recovered");
    let count = |status: &Value, what: &str| -> u64 {
        let intervals = status["last_day"].as_array().unwrap().iter();
        intervals.map(|one| one[what].as_u64().unwrap()).sum()
    };
    let status = daemon.await_status(|status| count(status, "delivered") == SETS as u64);
    assert!(count(&status, "failed") >= attempts, "{status}");
    let (_, log) = daemon.stop_and_tell();
    let refused = |line: &&String| line.contains("did not accept") && !line.contains("\"DEBUG\"");
    // A line for the hub, not for each channel.
    assert!(log.iter().filter(refused).count() <= 2, "{log:#?}");
}

#[test]
fn slow_answers_are_waited_for_side_by_side() {
    let site = Site::empty();
    let sets: Vec<String> = (0..40).map(|set| format!("s{set}")).collect();
    for set in &sets {
        site.add_set(set);
    }
    let hub = FakeHub::start();
    hub.behave(Manner::AcceptAfter(Duration::from_millis(500)));
    let setup = Setup::new(&site, &[hub.url()], "");
    let _daemon = setup.start();
    for set in &sets {
        site.write_list(set, "changelist", "2");
    }
    let first = hub.notification().at;
    let last = (1..sets.len())
        .map(|_| hub.notification().at)
        .max()
        .unwrap();
    // One after the other, they would take 20 seconds.
    assert!(last - first < Duration::from_secs(10));
}

fn links(hub: &str) -> String {
    format!(
        "<{TOPICS}topics/main/a/capabilitylist/>; rel=\"self\", <{hub}>; rel=\"hub\", \
         <https://source.example/a/capabilitylist.xml>; rel=\"resourcesync\""
    )
}

fn is_ping(request: &Request) -> bool {
    let form = format!("hub.mode=publish&hub.url={TOPIC_IN_FORM}&hub.topic={TOPIC_IN_FORM}");
    request.body == form.into_bytes()
        && request.headers["content-type"] == "application/x-www-form-urlencoded"
        && !request.headers.contains_key("link")
}

/// Returns the paths in a topic that a hub fetches.
fn topic(daemon: &Daemon) -> Vec<String> {
    let body = body_of(daemon.get("/topics/main/a/capabilitylist/"));
    let payload = Payload::parse(body.as_bytes()).unwrap();
    let paths = payload
        .entries
        .iter()
        .map(|entry| entry.uri.as_str().rsplit('/').next().unwrap().to_owned());
    let mut paths: Vec<_> = paths.collect();
    paths.sort();
    paths
}

/// A port of this machine where nobody listens.
fn dead() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/publish", listener.local_addr().unwrap())
}

#[test]
fn each_hub_of_a_channel_is_told_in_its_own_mode_and_waits_for_no_other() {
    let site = Site::new();
    let [content, query, pinged, hanging, strict] = [(); 5].map(|()| FakeHub::start());
    hanging.behave(Manner::Hang);
    strict.behave(Manner::Refuse(415));
    let query_url = "https://advertised.example/hub?of=all";
    let keys = format!("publish_url = \"{}?key=%41\"", query.url());
    let hub = |url: &str, rest: &str| format!("[[hub]]\nurl = \"{url}\"\n{rest}\n");
    let hubs = [
        hub(&dead(), ""),
        hub("http://hub.invalid/publish", ""),
        hub(&hanging.url(), "timeout = \"500ms\""),
        hub(&strict.url(), ""),
        hub(&content.url(), "mode = \"content\""),
        hub(query_url, &format!("mode = \"content-query\"\n{keys}")),
        hub(&pinged.url(), "mode = \"ping\""),
    ];
    let setup = Setup::with_source(&site, "", &hubs.concat());
    let daemon = setup.start();
    assert!(topic(&daemon).is_empty());

    site.write_list("a", "changelist", "2");
    let first = content.notification();
    assert_eq!(first.changes(), [CHANGELIST]);
    assert_eq!(
        (first.target.as_str(), &first.headers["link"]),
        ("/publish", &links(&content.url()))
    );
    let queried = query.notification();
    let target = format!("/publish?key=%41&hub.mode=publish&hub.topic={TOPIC_IN_FORM}");
    assert_eq!(
        (queried.target, &queried.headers["link"]),
        (target, &links(query_url))
    );
    assert_eq!(queried.body, first.body);
    assert_eq!(queried.headers["content-type"], "application/xml");
    assert!(is_ping(&pinged.notification()));
    assert_eq!(topic(&daemon), ["changelist.xml"]);
    let refused = hanging.request();
    assert_eq!(refused.changes(), [CHANGELIST]);

    site.write_list("a", "resourcelist", "2");
    content.assert_told([RESOURCELIST]);
    query.assert_told([RESOURCELIST]);
    assert!(is_ping(&pinged.notification()));
    assert_eq!(topic(&daemon), ["changelist.xml", "resourcelist.xml"]);

    // Each of the others has its own due: what was in flight, then the difference.
    let again = hanging.request();
    assert_eq!(again.body, refused.body);
    hanging.behave(Manner::Accept);
    let again = hanging.notification();
    assert_eq!(again.body, refused.body);
    hanging.assert_told([RESOURCELIST]);
    // No mode is guessed: the hub is asked once in its own, and the operator is told.
    assert_eq!(strict.heard().len(), 1);
    let (_, log) = daemon.stop_and_tell();
    let told = log.iter().find(|line| {
        line.contains("it wants the notification in another form (415): try another mode")
    });
    assert!(
        told.is_some_and(|line| line.contains("\"kind\":\"wrong_mode\"") && line.contains("ERROR")),
        "{told:?}"
    );
    for hub in [&content, &query, &pinged, &hanging] {
        assert!(hub.heard().is_empty());
    }
}

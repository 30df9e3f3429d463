//! Hubs with different modes on one channel (R24).

use resourcesync::payload::Payload;

use crate::support::daemon::{Daemon, Setup, TOPICS, body_of};
use crate::support::documents::Site;
use crate::support::hub::{FakeHub, Manner, Request};

const CHANGELIST: &str = "updated changelist a/changelist.xml";
const RESOURCELIST: &str = "updated resourcelist a/resourcelist.xml";
const TOPIC_IN_FORM: &str = "https%3A%2F%2Ftopics.example%2Ftopics%2Fmain%2Fa%2Fcapabilitylist%2F";

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
    let hub = |url: &str, rest: &str| format!("[[hub]]\nurl = \"{url}\"\n{rest}\n");
    let hubs = [
        hub(&dead(), ""),
        hub("http://hub.invalid/publish", ""),
        hub(&hanging.url(), "timeout = \"500ms\""),
        hub(&strict.url(), ""),
        hub(&content.url(), "mode = \"content\""),
        hub(
            query_url,
            &format!(
                "mode = \"content-query\"\npublish_url = \"{}?key=%41\"",
                query.url()
            ),
        ),
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

//! The contract of topic URIs, and resistance to slow clients.

mod load;
mod wire;

use std::sync::Arc;

use resourcesync::uri::Topic;
use tokio::sync::mpsc;
use websub::topics::http::Topics;

use crate::support::{BODY, ask, exchange, page, public, soon, status};

const TOPIC: &str = "https://e.org/set%201/a/./b/?x=1&y=%41";
const TARGET: &str = "/set%201/a/./b/?x=1&y=%41";

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (header, value) = line.split_once(": ")?;
        header.eq_ignore_ascii_case(name).then_some(value)
    })
}

fn unreported() -> Arc<Topics> {
    Topics::new(|topic| panic!("{topic} is not read by a ping hub"))
}

/// WebSub 4; Framework Notification 4.2.
#[tokio::test]
async fn only_the_exact_raw_target_is_the_topic() {
    let topics = unreported();
    topics.serve(page(TOPIC, BODY));
    topics.serve(page("https://e.org?q", b"at the root"));
    let address = public(&topics, None).await;
    for target in [
        "/set%201/a/./b/?x=1&y=A",
        "/set%201/a/b/?x=1&y=%41",
        "/set%201/a/./b/",
        "/set%201/a/./b?x=1&y=%41",
        "/set%201/a/./b/?x=1&y=%41&z",
        "/SET%201/a/./b/?x=1&y=%41",
        "//set%201/a/./b/?x=1&y=%41",
        "/",
        "*",
    ] {
        let (head, _) = ask(address, "GET", target, "").await;
        assert_eq!(status(&head), 404, "{target}");
    }
    assert_eq!(ask(address, "GET", "/?q", "").await.1, b"at the root");
    let (head, body) = ask(address, "GET", TARGET, "").await;
    let link = header(&head, "Link").unwrap();
    assert!(
        link.starts_with(&format!("<{TOPIC}>; rel=\"self\", ")),
        "{link}"
    );
    assert_eq!(body, BODY);
    topics.withdraw(&Topic::new(TOPIC));
    assert_eq!(status(&ask(address, "GET", TARGET, "").await.0), 404);
}

#[tokio::test]
async fn an_etag_is_strong_and_known_until_body_or_links_change() {
    let topics = unreported();
    topics.serve(page(TOPIC, BODY));
    let address = public(&topics, None).await;
    let (head, _) = ask(address, "GET", TARGET, "").await;
    let etag = header(&head, "ETag").unwrap();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    let asked = format!("If-None-Match: {etag}\r\n");
    assert_eq!(status(&ask(address, "GET", TARGET, &asked).await.0), 304);
    let mut changed = page(TOPIC, BODY);
    changed.hubs.pop();
    for other in [page(TOPIC, b"<urlset/>"), changed] {
        topics.serve(other);
        assert_eq!(status(&ask(address, "GET", TARGET, &asked).await.0), 200);
    }
}

#[tokio::test]
async fn the_host_decides_only_between_topics_of_one_path() {
    let topics = unreported();
    topics.serve(page("https://one.org/t", b"one"));
    let address = public(&topics, None).await;
    // Whatever the host.
    assert_eq!(ask(address, "GET", "/t", "").await.1, b"one");
    topics.serve(page("https://two.org:443/t", b"two"));
    for (host, want) in [
        ("one.org", Some("one")),
        ("ONE.org:443", Some("one")),
        ("two.org", Some("two")),
        ("two.org:8443", None),
        ("e.org", None),
    ] {
        let request = format!("GET /t HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let (head, body) = exchange(address, &request).await;
        let (code, text) = want.map_or((404, "no such topic\n"), |want| (200, want));
        assert_eq!((status(&head), &*body), (code, text.as_bytes()), "{host}");
    }
    let (head, _) = exchange(address, "GET /t HTTP/1.0\r\n\r\n").await;
    assert_eq!(status(&head), 404, "without a host");
    let absolute = "GET http://two.org/t HTTP/1.1\r\nHost: one.org\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(address, absolute).await.1, b"two");
    topics.withdraw(&Topic::new("https://two.org:443/t"));
    assert_eq!(ask(address, "GET", "/t", "").await.1, b"one");
}

#[tokio::test]
async fn a_get_is_reported_where_a_ping_hub_reads() {
    let (sender, mut fetched) = mpsc::unbounded_channel();
    let topics = Topics::new(move |topic| sender.send(topic).unwrap());
    let mut reported = page("https://e.org/ping", BODY);
    reported.report_fetches = true;
    topics.serve(reported);
    topics.serve(page("https://e.org/content", BODY));
    let address = public(&topics, None).await;
    for (method, target) in [("HEAD", "/ping"), ("GET", "/content"), ("POST", "/ping")] {
        ask(address, method, target, "").await;
    }
    assert!(fetched.try_recv().is_err());
    ask(address, "GET", "/ping", "If-None-Match: *\r\n").await;
    let reported = soon(fetched.recv()).await;
    assert_eq!(reported, Some(Topic::new("https://e.org/ping")));
}

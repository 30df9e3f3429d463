//! The contract of topic URIs, and resistance to slow clients.

mod load;
mod wire;

use std::sync::Arc;

use resourcesync::uri::Topic;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use websub::http::server::{Listener, ServerLimits};
use websub::hub::http::public::serve_public;
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

#[tokio::test]
async fn head_and_get_answer_as_the_specification_says() {
    let topics = unreported();
    topics.serve(page(TOPIC, BODY));
    let address = public(&topics, None).await;
    for (method, body) in [("GET", BODY), ("HEAD", b"".as_slice())] {
        let (head, answered) = ask(address, method, TARGET, "").await;
        assert_eq!(status(&head), 200);
        assert_eq!(header(&head, "Content-Type"), Some("application/xml"));
        assert_eq!(
            header(&head, "Content-Length"),
            Some(&*BODY.len().to_string())
        );
        assert_eq!(
            header(&head, "Link"),
            Some(
                "<https://e.org/set%201/a/./b/?x=1&y=%41>; rel=\"self\", \
                 <https://hub1.org/>; rel=\"hub\", <https://hub2.org/?k=1>; rel=\"hub\", \
                 <https://e.org/set1/cl.xml>; rel=\"resourcesync\""
            )
        );
        assert_eq!(answered, body);
    }
}

#[tokio::test]
async fn a_topic_without_content_says_so() {
    let topics = unreported();
    topics.serve(page("https://e.org/t", b""));
    let address = public(&topics, None).await;
    for method in ["GET", "HEAD"] {
        let (head, body) = ask(address, method, "/t", "").await;
        assert_eq!(
            (status(&head), header(&head, "Content-Length")),
            (200, Some("0"))
        );
        assert!(body.is_empty());
    }
}

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
    topics.withdraw(&Topic::new(TOPIC));
    assert_eq!(status(&ask(address, "GET", TARGET, "").await.0), 404);
}

#[tokio::test]
async fn a_known_etag_is_answered_with_304_until_body_or_links_change() {
    let topics = unreported();
    topics.serve(page(TOPIC, BODY));
    let address = public(&topics, None).await;
    let (head, _) = ask(address, "GET", TARGET, "").await;
    let etag = header(&head, "ETag").unwrap().to_owned();
    assert!(
        etag.starts_with('"') && etag.ends_with('"'),
        "strong: {etag}"
    );
    for (asked, want) in [
        (etag.clone(), 304),
        (format!("W/{etag}"), 304),
        (format!("\"other\",{etag} , \"more\""), 304),
        ("*".to_owned(), 304),
        ("\"other\"".to_owned(), 200),
        (etag.replace('"', ""), 200),
    ] {
        for method in ["GET", "HEAD"] {
            let asked = format!("If-None-Match: {asked}\r\n");
            let (head, _) = ask(address, method, TARGET, &asked).await;
            assert_eq!(status(&head), want, "{asked}");
            assert_eq!(header(&head, "ETag"), Some(&*etag));
            assert!(header(&head, "Link").is_some());
        }
    }
    let asked = format!("If-None-Match: {etag}\r\n");
    let mut changed = page(TOPIC, BODY);
    changed.hubs.pop();
    for other in [page(TOPIC, b"<urlset/>"), changed] {
        topics.serve(other);
        assert_eq!(status(&ask(address, "GET", TARGET, &asked).await.0), 200);
    }
    let since = "If-Modified-Since: Fri, 20 Nov 2099 12:00:00 GMT\r\n";
    assert_eq!(status(&ask(address, "GET", TARGET, since).await.0), 200);
}

#[tokio::test]
async fn a_topic_is_only_read() {
    let topics = unreported();
    topics.serve(page(TOPIC, BODY));
    let address = public(&topics, None).await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let (head, _) = ask(address, method, TARGET, "").await;
        assert_eq!(
            (status(&head), header(&head, "Allow")),
            (405, Some("GET, HEAD"))
        );
        assert_eq!(status(&ask(address, method, "/elsewhere", "").await.0), 404);
    }
}

#[tokio::test]
async fn the_host_decides_only_between_topics_of_one_path() {
    let topics = unreported();
    topics.serve(page("https://one.org/t", b"one"));
    let address = public(&topics, None).await;
    assert_eq!(
        ask(address, "GET", "/t", "").await.1,
        b"one",
        "whatever the host"
    );
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
        assert_eq!(
            status(&head),
            if want.is_some() { 200 } else { 404 },
            "{host}"
        );
        if let Some(want) = want {
            assert_eq!(body, want.as_bytes(), "{host}");
        }
    }
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
    assert_eq!(
        soon(fetched.recv()).await,
        Some(Topic::new("https://e.org/ping"))
    );
}

#[tokio::test]
async fn a_unix_socket_serves_and_shutdown_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http.sock");
    let listener = Listener::Unix(UnixListener::bind(&path).unwrap());
    let topics = unreported();
    topics.serve(page("https://e.org/t", BODY));
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move { stopped.await.unwrap() };
    let server = tokio::spawn(serve_public(
        listener,
        topics,
        watch::channel(None).1,
        ServerLimits::default(),
        shutdown,
    ));
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream
        .write_all(b"GET /t HTTP/1.1\r\nHost: e.org\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 15];
    soon(stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    stop.send(()).unwrap();
    // The idle connection does not hold it up.
    soon(server).await.unwrap();
}

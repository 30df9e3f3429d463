//! The contract of topic URIs, the answers to every kind of request byte by byte, and resistance to slow clients.

mod load;

use std::net::SocketAddr;
use std::sync::Arc;

use resourcesync::uri::Topic;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
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

fn one_topic() -> Arc<Topics> {
    let topics = unreported();
    topics.serve_page(page("https://e.org/t", BODY));
    topics
}

/// WebSub 4; Framework Notification 4.2.
#[tokio::test]
async fn only_the_exact_raw_target_is_the_topic() {
    let topics = unreported();
    topics.serve_page(page(TOPIC, BODY));
    topics.serve_page(page("https://e.org?q", b"at the root"));
    let address = public(&topics, None).await;
    let others = "/set%201/a/./b/?x=1&y=A /set%201/a/b/?x=1&y=%41 /set%201/a/./b/ /set%201/a/./b?x=1&y=%41 \
        /set%201/a/./b/?x=1&y=%41&z /SET%201/a/./b/?x=1&y=%41 //set%201/a/./b/?x=1&y=%41 / *";
    for target in others.split(' ') {
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
async fn the_host_decides_only_between_topics_of_one_path() {
    let topics = unreported();
    topics.serve_page(page("https://one.org/t", b"one"));
    let address = public(&topics, None).await;
    // Whatever the host.
    assert_eq!(ask(address, "GET", "/t", "").await.1, b"one");
    topics.serve_page(page("https://two.org:443/t", b"two"));
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
    topics.serve_page(reported);
    topics.serve_page(page("https://e.org/content", BODY));
    let address = public(&topics, None).await;
    for (method, target) in [("HEAD", "/ping"), ("GET", "/content"), ("POST", "/ping")] {
        ask(address, method, target, "").await;
    }
    assert!(fetched.try_recv().is_err());
    ask(address, "GET", "/ping", "If-None-Match: *\r\n").await;
    let reported = soon(fetched.recv()).await;
    assert_eq!(reported, Some(Topic::new("https://e.org/ping")));
}

const PAGE: &str = "HTTP/1.1 200 OK\r\n\
    link: <https://e.org/t>; rel=\"self\", <https://hub1.org/>; rel=\"hub\", \
    <https://hub2.org/?k=1>; rel=\"hub\", <https://e.org/set1/cl.xml>; rel=\"resourcesync\"\r\n\
    etag: \"ETAG\"\r\ncontent-type: application/xml\r\ncontent-length: 25\r\n\r\n";
const BODY_TEXT: &str = "<urlset>\n  \u{e9}\r\n</urlset>\n";
const UNCHANGED: &str = "HTTP/1.1 304 Not Modified\r\n\
    link: <https://e.org/t>; rel=\"self\", <https://hub1.org/>; rel=\"hub\", \
    <https://hub2.org/?k=1>; rel=\"hub\", <https://e.org/set1/cl.xml>; rel=\"resourcesync\"\r\n\
    etag: \"ETAG\"\r\n\r\n";
const UNKNOWN: &str = "HTTP/1.1 404 Not Found\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 14\r\n\r\n";
const UNKNOWN_TEXT: &str = "no such topic\n";
const READ_ONLY: &str = "HTTP/1.1 405 Method Not Allowed\r\n\
    content-type: text/plain; charset=utf-8\r\nallow: GET, HEAD\r\ncontent-length: 34\r\n\r\n";
const READ_ONLY_TEXT: &str = "a topic is only read: GET or HEAD\n";

/// All that comes back for these bytes until the server closes: without the lines that say when and whether it
/// does, and with `ETAG` for the tag.
async fn transcript(address: SocketAddr, sent: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    until_closed(&mut stream).await
}

async fn until_closed(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    soon(stream.read_to_end(&mut bytes)).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let is_kept = |line: &&str| !line.starts_with("date: ") && !line.starts_with("connection: ");
    let text: String = text.split_inclusive("\r\n").filter(is_kept).collect();
    match text.split_once("etag: \"") {
        Some((_, rest)) => text.replace(&rest[..32], "ETAG"),
        None => text,
    }
}

fn closing(line: &str, header: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: e.org\r\n{header}Connection: close\r\n\r\n")
}

#[tokio::test]
async fn an_answer_is_this_and_nothing_else() {
    let address = public(&one_topic(), None).await;
    let (unknown, read_only) = ([UNKNOWN, UNKNOWN_TEXT], [READ_ONLY, READ_ONLY_TEXT]);
    for (line, header, answer) in [
        ("GET /t", "", &[PAGE, BODY_TEXT][..]),
        ("HEAD /t", "", &[PAGE]),
        ("GET /t", "If-None-Match: *\r\n", &[UNCHANGED]),
        ("HEAD /t", "If-None-Match: *\r\n", &[UNCHANGED]),
        ("GET /T", "", &unknown),
        ("HEAD /T", "", &[UNKNOWN]),
        ("DELETE /T", "", &unknown),
        ("OPTIONS *", "", &unknown),
        ("CONNECT e.org:443", "", &unknown),
        ("PUT /t", "", &read_only),
        ("OPTIONS /t", "", &read_only),
        ("BREW /t", "", &read_only),
        ("get /t", "", &read_only),
        ("POST /t", "Content-Length: 0\r\n", &read_only),
        ("GET http://e.org/t", "", &[PAGE, BODY_TEXT]),
        ("GET https://another.org:8443/t", "", &[PAGE, BODY_TEXT]),
        ("GET http://e.org", "", &unknown),
        ("GET /t#part", "", &[PAGE, BODY_TEXT]),
    ] {
        let said = transcript(address, &closing(line, header)).await;
        assert_eq!(said, answer.concat(), "{line} {header}");
    }
}

#[tokio::test]
async fn only_if_none_match_changes_an_answer_until_body_or_links_change() {
    let topics = one_topic();
    let address = public(&topics, None).await;
    let (head, _) = ask(address, "HEAD", "/t", "").await;
    let etag = header(&head, "ETag").unwrap();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    for (header, is_known) in [
        ("If-None-Match: ETAG", true),
        (
            "If-None-Match: \"a\", W/\"b\"\r\nIf-None-Match: W/ETAG",
            true,
        ),
        ("If-None-Match:\t \"a\" ,, \t ETAG ,", true),
        ("IF-NONE-MATCH: ETAG", true),
        // Stronger than a date, which alone is nothing.
        (
            "If-None-Match: \"a\"\r\nIf-Modified-Since: Fri, 20 Nov 2099 12:00:00 GMT",
            false,
        ),
        ("If-Modified-Since: Fri, 20 Nov 2099 12:00:00 GMT", false),
        ("If-None-Match:", false),
        ("If-None-Match: BARE", false),
        ("If-None-Match: \"BARE", false),
        ("If-None-Match: UPPER", false),
        ("If-None-Match: w/ETAG", false),
        ("If-None-Match: \"*\"", false),
        (
            "If-Match: \"a\"\r\nIf-Range: ETAG\r\nRange: bytes=0-4",
            false,
        ),
        ("Accept: text/html\r\nAccept-Encoding: gzip, br", false),
    ] {
        let header = header
            .replace("ETAG", etag)
            .replace("BARE", etag.trim_matches('"'))
            .replace("UPPER", &etag.to_uppercase());
        for (method, page) in [
            ("GET", [PAGE, BODY_TEXT].concat()),
            ("HEAD", PAGE.to_owned()),
        ] {
            let asked = closing(&format!("{method} /t"), &format!("{header}\r\n"));
            let wanted = if is_known { UNCHANGED } else { &page };
            assert_eq!(transcript(address, &asked).await, wanted, "{header}");
        }
    }
    let asked = format!("If-None-Match: {etag}\r\n");
    let mut changed = page("https://e.org/t", BODY);
    changed.hubs.pop();
    for other in [page("https://e.org/t", b"<urlset/>"), changed] {
        topics.serve_page(other);
        assert_eq!(status(&ask(address, "GET", "/t", &asked).await.0), 200);
    }
}

#[tokio::test]
async fn a_topic_without_content_says_so() {
    let topics = unreported();
    topics.serve_page(page("https://e.org/t", b""));
    let address = public(&topics, None).await;
    for method in ["GET", "HEAD"] {
        let said = transcript(address, &closing(&format!("{method} /t"), "")).await;
        assert_eq!(said, PAGE.replace("length: 25", "length: 0"));
    }
}

#[tokio::test]
async fn requests_are_answered_in_order_and_in_kind_however_they_are_sent() {
    let address = public(&one_topic(), None).await;
    let page = [PAGE, BODY_TEXT].concat();
    let read_only = [READ_ONLY, READ_ONLY_TEXT].concat();
    let asked =
        |line: &str, header: &str| format!("{line} HTTP/1.1\r\nHost: e.org\r\n{header}\r\n");
    let rounds = 300;
    let round = [
        asked("GET /t", ""),
        asked("HEAD /t", ""),
        asked("GET /t", "If-None-Match: *\r\n"),
        "\r\n".to_owned() + &asked("GET /u", ""),
        asked("PUT /t", "Content-Length: 0\r\n"),
    ];
    let answers = [&page, PAGE, UNCHANGED, UNKNOWN, UNKNOWN_TEXT, &read_only].concat();
    // A body is never taken for a request.
    let within = asked("GET /u", "");
    let length = within.len();
    let plain = asked("GET /t", &format!("Content-Length: {length}\r\n")) + &within;
    let chunked = asked("GET /t", "Transfer-Encoding: chunked\r\n");
    let chunked = format!("{chunked}{length:x}\r\n{within}\r\n0\r\n\r\n");
    // One that is only offered is not asked for.
    let offered = "Content-Length: 5\r\nExpect: 100-continue\r\n";
    // Without any header, and closed afterwards.
    let old = "GET /t HTTP/1.0\r\n\r\n".to_owned();
    let kept = "HEAD /t HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned();
    let ten = |answer: &str| answer.replace("HTTP/1.1", "HTTP/1.0");
    let last = closing("GET /t", "");
    for (sent, wanted) in [
        (
            round.concat().repeat(rounds) + &last,
            answers.repeat(rounds) + &page,
        ),
        (plain.repeat(2) + &last, page.repeat(3)),
        (chunked.repeat(2) + &last, page.repeat(3)),
        (asked("GET /t", offered), page.clone()),
        (asked("PUT /t", offered), read_only),
        (closing("GET /t", "Expect: 100-continue\r\n"), page.clone()),
        (old.clone(), ten(&page)),
        (kept + &old, ten(PAGE) + &ten(&page)),
    ] {
        assert_eq!(transcript(address, &sent).await, wanted, "{sent}");
    }
}

#[tokio::test]
async fn a_client_that_has_closed_its_side_is_answered() {
    let address = public(&one_topic(), None).await;
    for requests in [1, 3] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let asked = "GET /t HTTP/1.1\r\nHost: e.org\r\n\r\n".repeat(requests);
        stream.write_all(asked.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let wanted = [PAGE, BODY_TEXT].concat().repeat(requests);
        assert_eq!(until_closed(&mut stream).await, wanted);
    }
}

#[tokio::test]
async fn what_is_no_request_ends_the_connection() {
    let address = public(&one_topic(), None).await;
    for sent in [
        "hello\r\n\r\n",
        "GET /t /u HTTP/1.1\r\nHost: e.org\r\n\r\n",
        "GET HTTP/1.1\r\nHost: e.org\r\n\r\n",
        "GET /t HTTP/1.1\r\nHost: e\0.org\r\n\r\n",
        "GET /t HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET /t HTTP/3.0\r\nHost: e.org\r\n\r\n",
    ] {
        let said = transcript(address, sent).await;
        assert!(said.starts_with("HTTP/1.1 400 "), "{sent}: {said}");
        assert!(!said.contains("etag"), "{sent}: {said}");
    }
}

//! The answers of topics to every kind of request, byte by byte.

use std::net::SocketAddr;

use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{BODY, ask, page, public, soon};
use crate::topics::unreported;

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

async fn one_topic() -> SocketAddr {
    let topics = unreported();
    topics.serve(page("https://e.org/t", BODY));
    public(&topics, None).await
}

fn closing(line: &str, header: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: e.org\r\n{header}Connection: close\r\n\r\n")
}

#[rstest]
#[case::get("GET /t", "", &[PAGE, BODY_TEXT])]
#[case::head("HEAD /t", "", &[PAGE])]
#[case::known("GET /t", "If-None-Match: *\r\n", &[UNCHANGED])]
#[case::known_head("HEAD /t", "If-None-Match: *\r\n", &[UNCHANGED])]
#[case::unknown("GET /T", "", &[UNKNOWN, UNKNOWN_TEXT])]
#[case::unknown_head("HEAD /T", "", &[UNKNOWN])]
#[case::unknown_for_any_method("DELETE /T", "", &[UNKNOWN, UNKNOWN_TEXT])]
#[case::options_of_the_server("OPTIONS *", "", &[UNKNOWN, UNKNOWN_TEXT])]
#[case::tunnel("CONNECT e.org:443", "", &[UNKNOWN, UNKNOWN_TEXT])]
#[case::written("PUT /t", "", &[READ_ONLY, READ_ONLY_TEXT])]
#[case::unheard_of("BREW /t", "", &[READ_ONLY, READ_ONLY_TEXT])]
#[case::methods_have_a_case("get /t", "", &[READ_ONLY, READ_ONLY_TEXT])]
#[case::empty_body("POST /t", "Content-Length: 0\r\n", &[READ_ONLY, READ_ONLY_TEXT])]
#[case::absolute("GET http://e.org/t", "", &[PAGE, BODY_TEXT])]
#[case::absolute_elsewhere("GET https://another.org:8443/t", "", &[PAGE, BODY_TEXT])]
#[case::absolute_without_path("GET http://e.org", "", &[UNKNOWN, UNKNOWN_TEXT])]
#[case::fragment("GET /t#part", "", &[PAGE, BODY_TEXT])]
#[tokio::test]
async fn an_answer_is_this_and_nothing_else(
    #[case] line: &str,
    #[case] header: &str,
    #[case] answer: &[&str],
) {
    let address = one_topic().await;
    let said = transcript(address, &closing(line, header)).await;
    assert_eq!(said, answer.concat());
}

#[rstest]
#[case::weak_and_split("If-None-Match: \"a\", W/\"b\"\r\nIf-None-Match: W/ETAG\r\n", true)]
#[case::padded("If-None-Match:\t \"a\" ,, \t ETAG ,\r\n", true)]
#[case::name_in_capitals("IF-NONE-MATCH: ETAG\r\n", true)]
#[case::stronger_than_a_date(
    "If-None-Match: \"a\"\r\nIf-Modified-Since: Fri, 20 Nov 2099 12:00:00 GMT\r\n",
    false
)]
#[case::date_alone("If-Modified-Since: Fri, 20 Nov 2099 12:00:00 GMT\r\n", false)]
#[case::empty("If-None-Match:\r\n", false)]
#[case::without_quotes("If-None-Match: BARE\r\n", false)]
#[case::half("If-None-Match: \"BARE\r\n", false)]
#[case::of_another_case("If-None-Match: UPPER\r\n", false)]
#[case::weak_in_lower_case("If-None-Match: w/ETAG\r\n", false)]
#[case::star_in_quotes("If-None-Match: \"*\"\r\n", false)]
#[case::other_conditions("If-Match: \"a\"\r\nIf-Range: ETAG\r\nRange: bytes=0-4\r\n", false)]
#[case::accepted_forms("Accept: text/html\r\nAccept-Encoding: gzip, br\r\n", false)]
#[tokio::test]
async fn only_if_none_match_changes_an_answer(#[case] header: &str, #[case] is_known: bool) {
    let address = one_topic().await;
    let (head, _) = ask(address, "HEAD", "/t", "").await;
    let (_, etag) = head.split_once("etag: ").unwrap();
    let etag = etag.lines().next().unwrap();
    let bare = etag.trim_matches('"');
    let header = header
        .replace("ETAG", etag)
        .replace("BARE", bare)
        .replace("UPPER", &etag.to_uppercase());
    for method in ["GET", "HEAD"] {
        let said = transcript(address, &closing(&format!("{method} /t"), &header)).await;
        let wanted = match (is_known, method) {
            (true, _) => UNCHANGED.to_owned(),
            (false, "GET") => PAGE.to_owned() + BODY_TEXT,
            (false, _) => PAGE.to_owned(),
        };
        assert_eq!(said, wanted);
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let address = one_topic().await;
    let asked = "GET /t HTTP/1.1\r\nHost: e.org\r\n\r\n\
        HEAD /t HTTP/1.1\r\nHost: e.org\r\n\r\n\
        GET /t HTTP/1.1\r\nHost: e.org\r\nIf-None-Match: *\r\n\r\n\
        \r\nGET /u HTTP/1.1\r\nHost: e.org\r\n\r\n\
        PUT /t HTTP/1.1\r\nHost: e.org\r\nContent-Length: 0\r\n\r\n";
    let rounds = 300;
    let asked = asked.repeat(rounds) + &closing("GET /t", "");
    let answered = [
        PAGE,
        BODY_TEXT,
        PAGE,
        UNCHANGED,
        UNKNOWN,
        UNKNOWN_TEXT,
        READ_ONLY,
        READ_ONLY_TEXT,
    ];
    let wanted = answered.concat().repeat(rounds) + PAGE + BODY_TEXT;
    assert_eq!(transcript(address, &asked).await, wanted);
}

#[tokio::test]
async fn a_body_is_never_taken_for_a_request() {
    let address = one_topic().await;
    let within = "GET /u HTTP/1.1\r\nHost: e.org\r\n\r\n";
    for (line, header) in [
        ("GET /t", format!("Content-Length: {}\r\n", within.len())),
        ("GET /t", "Transfer-Encoding: chunked\r\n".to_owned()),
    ] {
        let body = if header.starts_with("Content") {
            within.to_owned()
        } else {
            format!("{:x}\r\n{within}\r\n0\r\n\r\n", within.len())
        };
        let asked = format!("{line} HTTP/1.1\r\nHost: e.org\r\n{header}\r\n{body}");
        let asked = asked.repeat(2) + &closing("HEAD /t", "");
        let said = transcript(address, &asked).await;
        assert_eq!(
            said,
            [PAGE, BODY_TEXT, PAGE, BODY_TEXT, PAGE].concat(),
            "{header}"
        );
    }
}

#[tokio::test]
async fn a_body_that_is_only_offered_is_not_asked_for() {
    let address = one_topic().await;
    let offered = "Content-Length: 5\r\nExpect: 100-continue\r\n";
    for (line, wanted) in [
        ("GET /t", [PAGE, BODY_TEXT]),
        ("PUT /t", [READ_ONLY, READ_ONLY_TEXT]),
    ] {
        let asked = format!("{line} HTTP/1.1\r\nHost: e.org\r\n{offered}\r\n");
        assert_eq!(transcript(address, &asked).await, wanted.concat());
    }
    let nothing = closing("GET /t", "Expect: 100-continue\r\n");
    assert_eq!(
        transcript(address, &nothing).await,
        [PAGE, BODY_TEXT].concat()
    );
}

#[tokio::test]
async fn http_1_0_is_answered_in_kind() {
    let address = one_topic().await;
    let ten = |answer: &str| answer.replace("HTTP/1.1", "HTTP/1.0");
    let page = ten(PAGE) + BODY_TEXT;
    // Without any header, and closed afterwards.
    assert_eq!(transcript(address, "GET /t HTTP/1.0\r\n\r\n").await, page);
    let kept = "HEAD /t HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let asked = kept.to_owned() + "GET /t HTTP/1.0\r\n\r\n";
    assert_eq!(transcript(address, &asked).await, ten(PAGE) + &page);
}

#[tokio::test]
async fn a_client_that_has_closed_its_side_is_answered() {
    let address = one_topic().await;
    for requests in [1, 3] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let asked = "GET /t HTTP/1.1\r\nHost: e.org\r\n\r\n".repeat(requests);
        stream.write_all(asked.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let wanted = [PAGE, BODY_TEXT].concat().repeat(requests);
        assert_eq!(until_closed(&mut stream).await, wanted);
    }
}

#[rstest]
#[case::no_http("hello\r\n\r\n")]
#[case::space_in_the_target("GET /t /u HTTP/1.1\r\nHost: e.org\r\n\r\n")]
#[case::no_target("GET HTTP/1.1\r\nHost: e.org\r\n\r\n")]
#[case::nul("GET /t HTTP/1.1\r\nHost: e\0.org\r\n\r\n")]
#[case::two_lengths("GET /t HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")]
#[case::another_version("GET /t HTTP/3.0\r\nHost: e.org\r\n\r\n")]
#[tokio::test]
async fn what_is_no_request_ends_the_connection(#[case] sent: &str) {
    let address = one_topic().await;
    let said = transcript(address, sent).await;
    assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
    assert!(!said.contains("etag"), "{said}");
}

#[tokio::test]
async fn without_a_host_no_topic_of_a_shared_path_is_meant() {
    let topics = unreported();
    topics.serve(page("https://e.org/t", BODY));
    topics.serve(page("https://another.org/t", b"another"));
    let address = public(&topics, None).await;
    let said = transcript(address, "GET /t HTTP/1.0\r\n\r\n").await;
    assert!(said.starts_with("HTTP/1.0 404 "), "{said}");
    assert_eq!(
        transcript(address, &closing("GET /t", "")).await,
        [PAGE, BODY_TEXT].concat()
    );
}

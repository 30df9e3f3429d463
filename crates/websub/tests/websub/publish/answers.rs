//! Every row of R23, for each possible answer of a hub.

use std::time::Duration;

use rstest::rstest;
use tokio::net::TcpListener;
use websub::answer::Answer;
use websub::publisher::http::Submitter;

use crate::publish::{judged, name, settings};
use crate::support::{Peer, Say, notification, say, soon};

/// Submits once to a peer that answers so.
async fn submit_to(answer: impl Fn() -> Say + Send + Sync + 'static) -> Answer {
    let peer = Peer::start(move |_| answer()).await;
    let url = peer.url("/");
    let mut settings = settings(&url);
    settings.timeout = Duration::from_millis(500);
    let publisher = Submitter::new(vec![settings]).unwrap();
    soon(publisher.submit(&notification(&url))).await
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// Returns a verdict as it is judged, of which the cases have the beginning in short.
fn spelled(want: &str) -> String {
    want.replace("operator: ", "in 900 s, by an operator: ")
}

/// Status, header, body, and verdict.
const ANSWERS: &str = "
    200 OK |  |  | accepted
    202 Accepted |  |  | accepted
    204 No Content |  |  | accepted
    207 Multi-Status |  | denied | accepted
    200 OK | Content-Type: application/x-www-form-urlencoded | hub.mode=denied | operator: it denies the publication: no reason given
    200 OK | Content-Type: application/x-www-form-urlencoded | hub.mode=accepted | accepted
    400 Bad Request |  | no subscribers | in 900 s: probably nobody has subscribed (400)
    400 Bad Request |  | what? | operator: it wants the notification in another form (400): try another mode
    401 Unauthorized |  |  | operator: it wants credentials, or the topic to be registered first (401)
    403 Forbidden |  |  | operator: it wants credentials, or the topic to be registered first (403)
    404 Not Found |  |  | operator: it takes no notifications at this address (404): correct url or publish_url
    410 Gone |  |  | operator: it takes no notifications at this address (410): correct url or publish_url
    405 Method Not Allowed | Allow: GET |  | operator: it wants the notification in another form (405): try another mode
    406 Not Acceptable |  |  | operator: it wants the notification in another form (406): try another mode
    407 Proxy Authentication Required |  |  | operator: the proxy wants credentials (407): put them into the variable that names it, such as HTTPS_PROXY
    408 Request Timeout |  |  | in 8 s: it cannot take it now (408)
    413 Content Too Large |  |  | too large
    415 Unsupported Media Type |  |  | operator: it wants the notification in another form (415): try another mode
    418 I'm a teapot |  |  | operator: it refuses (418)
    425 Too Early |  |  | in 8 s: it cannot take it now (425)
    429 Too Many | Retry-After: 7 |  | in 7 s: it cannot take it now (429)
    500 Error |  |  | in 8 s: probably nobody has subscribed (500)
    500 Error |  | disk full | in 8 s: it cannot take it now (500)
    502 Bad Gateway |  |  | in 8 s: it cannot take it now (502)
    503 Unavailable |  |  | in 8 s: it cannot take it now (503)
    503 Unavailable | Retry-After: 0 |  | in 1 s: it cannot take it now (503)
    503 Unavailable | Retry-After: 999999999999999999999 |  | in 3600 s: it cannot take it now (503)
    503 Unavailable | Retry-After: Fri, 20 Nov 2026 12:02:00 GMT |  | in 120 s: it cannot take it now (503)
    503 Unavailable | Retry-After: Sun, 20 Nov 3026 12:02:00 GMT |  | in 3600 s: it cannot take it now (503)
    503 Unavailable | Retry-After: Fri, 20 Nov 2026 11:00:00 GMT |  | in 8 s: it cannot take it now (503)
    503 Unavailable | Retry-After: -5 |  | in 8 s: it cannot take it now (503)
    503 Unavailable | Retry-After: soon |  | in 8 s: it cannot take it now (503)
    503 Unavailable | Retry-After: é |  | in 8 s: it cannot take it now (503)
    504 Gateway Timeout |  |  | in 8 s: it cannot take it now (504)
";

#[tokio::test]
async fn every_answer_of_a_hub_has_its_verdict() {
    for answered in ANSWERS.trim().lines() {
        let cells: Vec<&str> = answered.split('|').map(str::trim).collect();
        let [status, header, body, want] = cells[..] else {
            panic!("{answered}");
        };
        let header = match header {
            "" => String::new(),
            header => format!("{header}\r\n"),
        };
        let answer = submit_to(move || say(status, &header, body)).await;
        assert_eq!(judged(&answer), spelled(want), "{answered}");
    }
}

const DENIED: &str = "operator: it denies the publication: not registered";
const BODY: &str = "hub.mode=denied&hub.reason=not+registered";
const CHUNKED: &str = "Transfer-Encoding: chunked\r\n\r\n";

/// Returns the end of a header, and a body as two chunks.
fn chunks(body: &str) -> String {
    let (first, second) = body.split_at(7);
    let (one, two) = (first.len(), second.len());
    format!("{CHUNKED}{one:x}\r\n{first}\r\n{two:x}\r\n{second}\r\n0\r\n\r\n")
}

#[rstest]
#[case::chunked(FORM, chunks(BODY), DENIED)]
#[case::charset(
    "Content-Type: application/x-www-form-urlencoded; charset=UTF-8\r\n",
    chunks(BODY),
    DENIED
)]
#[case::capitals(
    "CONTENT-TYPE: APPLICATION/X-WWW-FORM-URLENCODED\r\n",
    chunks(BODY),
    DENIED
)]
#[case::until_it_closes(FORM, format!("Connection: close\r\n\r\n{BODY}\r\n"), DENIED)]
#[case::after_much_else(FORM, chunks(&format!("hub.topic={}&{BODY}", "x".repeat(3_000))), DENIED)]
#[case::no_form("Content-Type: text/plain\r\n", chunks(BODY), "accepted")]
// Nobody asked for another coding, and what is in it cannot be known.
#[case::coded(FORM, format!("Content-Encoding: gzip\r\n{}", chunks("\u{1f}\u{8b}....")), "accepted")]
#[tokio::test]
async fn a_form_denies_however_it_is_sent(
    #[case] form: &str,
    #[case] rest: String,
    #[case] want: &str,
) {
    let answer = format!("HTTP/1.1 200 OK\r\n{form}{rest}");
    let answer = submit_to(move || Say::Last(answer.clone())).await;
    assert_eq!(judged(&answer), spelled(want));
}

#[tokio::test]
async fn what_comes_before_an_answer_is_not_the_answer() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
    let answer =
        submit_to(move || Say::Last(format!("{early}HTTP/1.1 204 No Content\r\n\r\n"))).await;
    assert_eq!(judged(&answer), "accepted");
    let upgrade = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: ws\r\n\r\n";
    let answer = submit_to(move || Say::Last(upgrade.to_owned())).await;
    assert_ne!(judged(&answer), "accepted");
    let answer =
        submit_to(|| Say::Endless(String::new(), "HTTP/1.1 100 Continue\r\n\r\n".into())).await;
    assert_eq!(judged(&answer), "in 8 s: no answer: timed out");
}

#[tokio::test]
async fn no_answer_says_what_failed_and_a_status_stands_whatever_becomes_of_the_body() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n";
    let unavailable = head.replace("200 OK", "503 No");
    let form = "Content-Type: application/x-www-form-urlencoded\r\n\r\nhub.mo";
    type Answering = Box<dyn Fn() -> Say + Send + Sync>;
    let cases: Vec<(&str, Answering, &str)> = vec![
        (
            "silence",
            Box::new(|| Say::Hang(String::new())),
            "retry no_answer",
        ),
        (
            "half a header",
            Box::new(|| Say::Hang("HTTP/1.1 200 O".into())),
            "retry no_answer",
        ),
        (
            "nothing",
            Box::new(|| Say::Last(String::new())),
            "retry no_answer",
        ),
        (
            "no HTTP",
            Box::new(|| Say::Last("SSH-2.0\r\n\r\n".into())),
            "retry no_answer",
        ),
        (
            "cut body",
            Box::new(move || Say::Last(format!("{head}\r\nabc"))),
            "accepted",
        ),
        (
            "endless body",
            Box::new(move || Say::Hang(format!("{head}\r\nabc"))),
            "accepted",
        ),
        (
            "cut form",
            Box::new(move || Say::Last(format!("{head}{form}"))),
            "retry no_answer",
        ),
        (
            "cut form of a refusal",
            Box::new(move || Say::Last(format!("{unavailable}{form}"))),
            "retry unavailable",
        ),
        (
            "endless form",
            Box::new(move || Say::Hang(format!("{head}{form}"))),
            "retry no_answer",
        ),
    ];
    for (case, answering, want) in cases {
        let answer = submit_to(answering).await;
        assert_eq!(name(&answer), want, "{case}: {answer:?}");
    }
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{free}/?token=hidden");
    let publisher = Submitter::new(vec![settings(&url)]).unwrap();
    let answer = publisher.submit(&notification(&url)).await;
    let Answer::Failed(what) = &answer else {
        panic!("{answer:?}")
    };
    assert!(
        what.contains("refused") && !what.contains("hidden"),
        "{what}"
    );
}

#[tokio::test]
async fn the_excerpt_is_short_and_printable() {
    let body = "a\r\n\u{1b}[31m".to_owned() + &"x".repeat(20_000);
    let answer = submit_to(move || say("400 Bad Request", "", &body)).await;
    let Answer::Status { excerpt, .. } = answer else {
        panic!("{answer:?}")
    };
    assert!(excerpt.starts_with("a   [31mxxx"), "{excerpt}");
    assert_eq!(excerpt.chars().count(), 500);
}

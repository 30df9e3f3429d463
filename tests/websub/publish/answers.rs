//! Every row of R23, as a hub may answer.

use std::time::Duration;

use rsnotify::announce::delivery::Answer;
use rsnotify::announce::plan::Mode;
use rsnotify::websub::publish::Publisher;
use tokio::net::TcpListener;

use crate::publish::{name, settings};
use crate::support::{Peer, Say, say, soon, submission};

/// Submits once to a peer that answers so.
async fn submit_to(answer: impl Fn() -> Say + Send + Sync + 'static) -> Answer {
    let peer = Peer::start(move |_| answer()).await;
    let url = peer.url("/");
    let mut settings = settings(&url);
    settings.timeout = Duration::from_millis(500);
    let publisher = Publisher::new(vec![settings]).unwrap();
    soon(publisher.submit(&submission(&url, Mode::Content, 1))).await
}

#[tokio::test]
async fn every_answer_of_a_hub_has_its_verdict() {
    for (status, header, body, want) in [
        ("204 No Content", "", "", "accepted"),
        (
            "200 OK",
            "Content-Type: application/x-www-form-urlencoded\r\n",
            "hub.mode=denied",
            "person denied",
        ),
        (
            "400 Bad Request",
            "",
            "no subscribers",
            "retry no_subscribers_likely",
        ),
        ("406 Not Acceptable", "", "", "person wrong_mode"),
        ("413 Content Too Large", "", "", "too_large"),
        (
            "429 Too Many Requests",
            "Retry-After: 7\r\n",
            "",
            "retry unavailable",
        ),
        (
            "500 Internal Server Error",
            "",
            "",
            "retry no_subscribers_likely",
        ),
        ("503 Service Unavailable", "", "", "retry unavailable"),
    ] {
        let answer = submit_to(move || say(status, header, body)).await;
        assert_eq!(name(&answer), want, "{status}");
        let Answer::Status { retry_after, .. } = answer else {
            panic!("{status}")
        };
        assert_eq!(
            retry_after.as_deref(),
            header.strip_prefix("Retry-After: ").map(str::trim)
        );
    }
}

#[tokio::test]
async fn no_answer_says_what_failed_and_a_status_stands_whatever_becomes_of_the_body() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n";
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
    let publisher = Publisher::new(vec![settings(&url)]).unwrap();
    let answer = publisher.submit(&submission(&url, Mode::Content, 1)).await;
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

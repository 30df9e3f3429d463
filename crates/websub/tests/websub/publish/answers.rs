//! What an answer says reaches the verdict, however it is sent (R23).

use std::time::Duration;

use websub::answer::Answer;
use websub::publisher::http::Submitter;

use crate::publish::{judged, settings};
use crate::support::{Peer, Say, notification, say, soon};

/// Submits once to a peer that answers so.
async fn submit_to(answer: Say) -> Answer {
    let peer = Peer::start(move |_| answer.clone()).await;
    let url = peer.url("/");
    let mut settings = settings(&url);
    settings.timeout = Duration::from_millis(500);
    let publisher = Submitter::new(vec![settings]).unwrap();
    soon(publisher.submit(&notification(&url))).await
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

#[tokio::test]
async fn status_header_and_body_are_judged() {
    let denied = "in 900 s, by an operator: it denies the publication: no reason given";
    let nobody = "in 8 s: probably nobody has subscribed (500)";
    let busy = |wait: u64, status: u16| format!("in {wait} s: it cannot take it now ({status})");
    for (status, header, body, want) in [
        ("204 No Content", "", "", "accepted"),
        ("413 Content Too Large", "", "", "too large"),
        ("200 OK", FORM, "hub.mode=denied", denied),
        ("500 Error", "", "", nobody),
        ("500 Error", "", "disk full", &busy(8, 500)),
        ("503 Busy", "Retry-After: 7\r\n", "", &busy(7, 503)),
        ("429 Too Many", "Retry-After: 7\r\n", "", &busy(7, 429)),
        ("503 Busy", "Retry-After: é\r\n", "", &busy(8, 503)),
    ] {
        let answer = submit_to(say(status, header, body)).await;
        assert_eq!(judged(&answer), want, "{status} {header}");
    }
}

/// Returns the end of a header, and a body as two chunks.
fn chunks(body: &str) -> String {
    let (first, second) = body.split_at(7);
    let (one, two) = (first.len(), second.len());
    format!(
        "Transfer-Encoding: chunked\r\n\r\n{one:x}\r\n{first}\r\n{two:x}\r\n{second}\r\n0\r\n\r\n"
    )
}

#[tokio::test]
async fn a_form_denies_however_it_is_sent() {
    let denial = "hub.mode=denied&hub.reason=not+registered";
    let after_much_else = format!("hub.topic={}&{denial}", "x".repeat(3_000));
    let denied = "in 900 s, by an operator: it denies the publication: not registered";
    let coded = format!("Content-Encoding: gzip\r\n{}", chunks("\u{1f}\u{8b}...."));
    for (rest, want) in [
        (chunks(denial), denied),
        (chunks(&after_much_else), denied),
        (format!("Connection: close\r\n\r\n{denial}\r\n"), denied),
        // Nobody asked for another coding, and what is in it cannot be known.
        (coded, "accepted"),
    ] {
        let answer = submit_to(Say::Last(format!("HTTP/1.1 200 OK\r\n{FORM}{rest}"))).await;
        assert_eq!(judged(&answer), want, "{rest}");
    }
}

#[tokio::test]
async fn what_comes_before_an_answer_is_not_the_answer() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
    let upgrade = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: ws\r\n\r\n";
    let forever = Say::Endless(String::new(), "HTTP/1.1 100 Continue\r\n\r\n".into());
    for (said, want) in [
        (
            Say::Last(format!("{early}HTTP/1.1 204 No Content\r\n\r\n")),
            "accepted",
        ),
        (
            Say::Last(upgrade.to_owned()),
            "in 900 s, by an operator: it refuses (101)",
        ),
        (forever, "in 8 s: no answer: timed out"),
    ] {
        let judged = judged(&submit_to(said).await);
        assert!(judged.starts_with(want), "{judged}");
    }
}

#[tokio::test]
async fn the_excerpt_is_short_and_printable() {
    let body = "a\r\n\u{1b}[31m".to_owned() + &"x".repeat(20_000);
    let answer = submit_to(say("400 Bad Request", "", &body)).await;
    let Answer::Status { excerpt, .. } = answer else {
        panic!("{answer:?}")
    };
    assert!(excerpt.starts_with("a   [31mxxx"), "{excerpt}");
    assert_eq!(excerpt.chars().count(), 500);
}

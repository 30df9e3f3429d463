//! R23 and R24 on the wire.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use resourcesync::uri::Hub;
use websub::answer::Answer;
use websub::publisher::HubRequest;
use websub::publisher::http::Submitter;
use websub::publisher::settings::{HubCredentials, HubHeader, PublishSettings};
use websub::publisher::verdict::{Verdict, verdict};
use websub::secret::Secret;

use crate::support::{BODY, Peer, Say, notification, ping, say, topic};

mod answers;
mod broken;
mod proxy;
mod redirects;
mod secrets;
mod tls;

fn settings(url: &str) -> PublishSettings {
    let mut settings = PublishSettings::new(Hub::new(url)).unwrap();
    settings.timeout = Duration::from_secs(5);
    settings
}

fn with_token(url: &str, token: &str) -> PublishSettings {
    let mut settings = settings(url);
    settings.credentials = Some(HubCredentials::Bearer(Secret::new(token)));
    settings
}

/// Returns the verdict on an answer to a third attempt, with the seconds until the retry, if chance makes
/// that the longest, and why.
fn judged(answer: &Answer) -> String {
    let now = "2026-11-20T12:00:00Z".parse().unwrap();
    let seconds = |at: Timestamp| at.duration_since(now).as_secs();
    match verdict(answer, 3, now, 1.0) {
        Verdict::Accepted => "accepted".into(),
        Verdict::TooLarge => "too large".into(),
        Verdict::Refused { at, refusal } => {
            let who = if refusal.needs_operator {
                ", by an operator"
            } else {
                ""
            };
            format!("in {} s{who}: {}", seconds(at), refusal.reason)
        }
    }
}

#[tokio::test]
async fn content_arrives_as_the_specification_says() {
    let mut peer = Peer::start(|_| say("200 OK", "", "")).await;
    let hub = "https://hub.example.net/websub/";
    let mut settings = settings(hub);
    settings.publish_url = peer.url("/in?key=%41").parse().unwrap();
    let publisher = Submitter::new(vec![settings]).unwrap();
    let answer = publisher.submit(&notification(hub)).await;
    assert_eq!(judged(&answer), "accepted");
    let seen = peer.next().await;
    assert_eq!(seen.line(), "POST /in?key=%41 HTTP/1.1");
    assert_eq!(seen.header("Content-Type"), ["application/xml"]);
    assert_eq!(
        seen.header("Link"),
        ["<https://e.org/set1/framework/>; rel=\"self\", \
          <https://hub.example.net/websub/>; rel=\"hub\", \
          <https://e.org/set1/cl.xml>; rel=\"resourcesync\""]
    );
    assert_eq!(seen.header("Content-Length"), [BODY.len().to_string()]);
    assert_eq!(seen.header("Transfer-Encoding"), [""; 0]);
    let agent = format!("rsnotify/{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(seen.header("User-Agent"), [agent]);
    assert_eq!(seen.body, BODY);
}

#[tokio::test]
async fn a_ping_and_a_content_query_arrive_as_their_hubs_want_them() {
    let mut peer = Peer::start(|_| say("202 Accepted", "", "")).await;
    let url = peer.url("/p?k=1");
    let publisher = Submitter::new(vec![settings(&url)]).unwrap();
    let encoded = "https%3A%2F%2Fe.org%2Fset1%2Fframework%2F";

    publisher.submit(&ping(&url)).await;
    let seen = peer.next().await;
    assert_eq!(seen.line(), "POST /p?k=1 HTTP/1.1");
    assert_eq!(
        seen.header("Content-Type"),
        ["application/x-www-form-urlencoded"]
    );
    assert_eq!(seen.header("Link"), [""; 0]);
    let form = format!("hub.mode=publish&hub.url={encoded}&hub.topic={encoded}");
    assert_eq!(seen.body, form.as_bytes());

    publisher
        .submit(&HubRequest {
            in_query: Some(topic()),
            ..notification(&url)
        })
        .await;
    let seen = peer.next().await;
    let line = format!("POST /p?k=1&hub.mode=publish&hub.topic={encoded} HTTP/1.1");
    assert_eq!(seen.line(), line);
    assert_eq!(seen.header("Content-Type"), ["application/xml"]);
    assert_eq!(seen.body, BODY);
    assert_eq!(seen.connection, 0, "the connection is kept open");
}

#[tokio::test]
async fn credentials_and_headers_go_along_and_are_never_printed() {
    let mut peer = Peer::start(|_| say("200 OK", "", "")).await;
    let url = peer.url("/");
    let mut hub = with_token(&url, "hidden2");
    hub.headers = vec![HubHeader {
        name: "x-key".parse().unwrap(),
        value: Secret::new("hidden1"),
        is_public: false,
    }];
    assert!(!format!("{hub:?}").contains("hidden"));
    let publisher = Submitter::new(vec![hub.clone()]).unwrap();
    assert!(!format!("{publisher:?}").contains("hidden"));
    publisher.submit(&notification(&url)).await;
    let seen = peer.next().await;
    assert_eq!(seen.header("X-Key"), ["hidden1"]);
    assert_eq!(seen.header("Authorization"), ["Bearer hidden2"]);

    let password = Secret::new("pass");
    hub.credentials = Some(HubCredentials::Basic {
        username: "user".into(),
        password,
    });
    let publisher = Submitter::new(vec![hub]).unwrap();
    publisher.submit(&ping(&url)).await;
    assert_eq!(
        peer.next().await.header("Authorization"),
        ["Basic dXNlcjpwYXNz"]
    );
}

#[tokio::test]
async fn a_hanging_hub_delays_no_other() {
    let hanging = Peer::start(|_| Say::Hang(String::new())).await;
    let quick = Peer::start(|_| say("200 OK", "", "")).await;
    let (slow_url, quick_url) = (hanging.url("/"), quick.url("/"));
    let hubs = vec![settings(&slow_url), settings(&quick_url)];
    let publisher = std::sync::Arc::new(Submitter::new(hubs).unwrap());
    let waiting: Vec<_> = (0..200)
        .map(|_| {
            let (publisher, url) = (publisher.clone(), slow_url.clone());
            tokio::spawn(async move { publisher.submit(&notification(&url)).await })
        })
        .collect();
    let begun = Instant::now();
    for _ in 0..20 {
        let answer = publisher.submit(&notification(&quick_url)).await;
        assert_eq!(judged(&answer), "accepted");
    }
    let taken = begun.elapsed();
    assert!(taken < Duration::from_secs(3), "{taken:?}");
    for waiting in waiting {
        waiting.abort();
    }
}

#[tokio::test]
async fn a_hub_that_is_not_configured_is_sent_nothing() {
    let publisher = Submitter::new(Vec::new()).unwrap();
    let answer = publisher.submit(&notification("http://127.0.0.1:1/")).await;
    let want = "http://127.0.0.1:1/ is not configured";
    assert_eq!(answer, Answer::Failed(want.into()));
}

#[tokio::test]
async fn an_ipv6_literal_is_an_address_like_any_other() {
    if let Err(error) = std::net::TcpListener::bind("[::1]:0") {
        eprintln!("not tried: this machine has no ::1 ({error})");
        return;
    }
    let target = Peer::start_at("[::1]:0", |_| say("200 OK", "", "")).await;
    let location = format!("Location: {}\r\n", target.url("/in"));
    let mut peer = Peer::start_at("[::1]:0", move |_| {
        say("307 Temporary Redirect", &location, "")
    })
    .await;
    let url = peer.url("/hub");
    assert!(url.starts_with("http://[::1]:"), "{url}");
    let mut other = settings("https://[2001:db8::1]/hub");
    other.publish_url = target.url("/in").parse().unwrap();
    let publisher = Submitter::new(vec![settings(&url), other]).unwrap();
    let answer = publisher.submit(&notification(&url)).await;
    assert_eq!(judged(&answer), "accepted");
    let seen = peer.next().await;
    assert_eq!(seen.header("Host"), [peer.address.to_string()]);
    let link = seen.header("Link")[0].to_owned();
    assert!(link.contains(&format!("<{url}>; rel=\"hub\"")), "{link}");
    let mut target = target;
    let seen = target.next().await;
    assert_eq!(
        (seen.line(), seen.body.as_slice()),
        ("POST /in HTTP/1.1", BODY)
    );

    publisher
        .submit(&notification("https://[2001:db8::1]/hub"))
        .await;
    let link = target.next().await.header("Link")[0].to_owned();
    assert!(
        link.contains("<https://[2001:db8::1]/hub>; rel=\"hub\""),
        "{link}"
    );
}

//! R23 and R24 on the wire.

use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::Hub;
use websub::answer::Answer;
use websub::publisher::http::Submitter;
use websub::publisher::settings::{HubCredentials, HubHeader, PublishSettings};
use websub::publisher::verdict::{Verdict, verdict};
use websub::secret::Secret;

use crate::support::{BODY, Peer, Say, notification, ping, say, soon, topic};

mod answers;
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
            let is_alert = refusal.needs_operator;
            let who = if is_alert { ", by an operator" } else { "" };
            format!("in {} s{who}: {}", seconds(at), refusal.reason)
        }
    }
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
    let agent = format!("rsnotify/{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(seen.header("User-Agent"), [agent]);
    let form = format!("hub.mode=publish&hub.url={encoded}&hub.topic={encoded}");
    assert_eq!(seen.body, form.as_bytes());

    let mut in_query = notification(&url);
    in_query.in_query = Some(topic());
    publisher.submit(&in_query).await;
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

    hub.credentials = Some(HubCredentials::Basic {
        username: "user".into(),
        password: Secret::new("pass"),
    });
    let publisher = Submitter::new(vec![hub]).unwrap();
    publisher.submit(&ping(&url)).await;
    let seen = peer.next().await;
    assert_eq!(seen.header("Authorization"), ["Basic dXNlcjpwYXNz"]);
}

#[tokio::test]
async fn a_hanging_hub_delays_no_other() {
    let hanging = Peer::start(|_| Say::Hang(String::new())).await;
    let quick = Peer::start(|_| say("200 OK", "", "")).await;
    let (slow_url, quick_url) = (hanging.url("/"), quick.url("/"));
    // Far longer than anything here may take.
    let mut slow = settings(&slow_url);
    slow.timeout = Duration::from_secs(120);
    let publisher = Submitter::new(vec![slow, settings(&quick_url)]).unwrap();
    let publisher = std::sync::Arc::new(publisher);
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (publisher, url) = (publisher.clone(), slow_url.clone());
        waiting.spawn(async move { publisher.submit(&notification(&url)).await });
    }
    for _ in 0..20 {
        let answer = soon(publisher.submit(&notification(&quick_url))).await;
        assert_eq!(judged(&answer), "accepted");
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
    let mut target = Peer::start_at("[::1]:0", |_| say("200 OK", "", "")).await;
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
    let link = seen.header("Link")[0];
    assert!(link.contains(&format!("<{url}>; rel=\"hub\"")), "{link}");
    let seen = target.next().await;
    assert_eq!((seen.line(), &*seen.body), ("POST /in HTTP/1.1", BODY));

    let other = "https://[2001:db8::1]/hub";
    publisher.submit(&notification(other)).await;
    let seen = target.next().await;
    let link = seen.header("Link")[0];
    assert!(link.contains(&format!("<{other}>; rel=\"hub\"")), "{link}");
}

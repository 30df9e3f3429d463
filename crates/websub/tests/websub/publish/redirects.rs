//! Redirections of hubs: which are followed, and with which credentials (R23).

use std::sync::{Arc, OnceLock};

use rstest::rstest;
use websub::publisher::http::Submitter;

use crate::publish::{judged, with_token};
use crate::support::{BODY, Peer, notification, say};

/// The redirecting hub is at `HUB`, a configured one, with a token of its own, at `OTHER/publish`, and an unknown server at
/// `OTHER`. Which targets are followed is tried in full beside `next_hop`.
#[rstest]
#[case("307 Temporary Redirect", "HUB/b", 2, "accepted")]
#[case("308 Permanent Redirect", "/b?x=1#part", 2, "accepted")]
#[case("308 Permanent Redirect", "OTHER/publish?topic=1", 1, "accepted")]
// By way of the first hub.
#[case("307 Temporary Redirect", "/c", 2, "accepted")]
#[case(
    "308 Permanent Redirect",
    "OTHER/elsewhere",
    1,
    "redirects (308) to OTHER/elsewhere, where nothing is sent"
)]
#[case(
    "307 Temporary Redirect",
    "http://[",
    1,
    "redirects (307) to http://[, where"
)]
#[case("307 Temporary Redirect", "", 4, "redirects (307) to nowhere")]
#[case("302 Found", "/b", 1, "redirects (302) to /b, where")]
#[case("307 Temporary Redirect", "NONE", 1, "redirects (307) to nowhere")]
#[tokio::test]
async fn every_redirection_leads_to_a_hub_or_nowhere(
    #[case] status: &'static str,
    #[case] location: &str,
    #[case] requests: usize,
    #[case] want: &str,
) {
    let mut other = Peer::start(|_| say("200 OK", "", "")).await;
    let other_at = other.url("");
    let to_other = format!("Location: {other_at}/publish\r\n");
    let place = Arc::new(OnceLock::new());
    let told = Arc::clone(&place);
    let mut hub = Peer::start(move |seen| match (seen.line(), told.get()) {
        ("POST /b HTTP/1.1" | "POST /b?x=1 HTTP/1.1", _) => say("200 OK", "", ""),
        ("POST /c HTTP/1.1", _) => say("308 Permanent Redirect", &to_other, ""),
        (_, Some(location)) => say(status, &format!("Location: {location}\r\n"), ""),
        (_, None) => say(status, "", ""),
    })
    .await;
    let filled = |text: &str| {
        text.replace("HUB", &hub.url(""))
            .replace("OTHER", &other_at)
    };
    if location != "NONE" {
        place.set(filled(location)).unwrap();
    }
    let url = hub.url("/a");
    let hubs = vec![
        with_token(&url, "own"),
        with_token(&format!("{other_at}/publish"), "other's"),
    ];
    let publisher = Submitter::new(hubs).unwrap();

    let answer = publisher.submit(&notification(&url)).await;
    let judged = judged(&answer);
    assert!(judged.contains(&filled(want)), "{judged}");
    assert_eq!(
        judged.starts_with("in 900 s, by an operator: it redirects"),
        want != "accepted"
    );
    for _ in 0..requests {
        let seen = hub.next().await;
        assert_eq!(seen.header("Authorization"), ["Bearer own"]);
        assert_eq!(seen.body, BODY);
        assert!(seen.line().starts_with("POST "), "{}", seen.line());
    }
    if location == "/c" || location.starts_with("OTHER/publish") {
        let seen = other.next().await;
        assert_eq!(seen.header("Authorization"), ["Bearer other's"]);
        assert_eq!(
            (seen.header("Content-Type"), seen.body.as_slice()),
            (vec!["application/xml"], BODY)
        );
    }
    assert!(hub.seen.try_recv().is_err() && other.seen.try_recv().is_err());
}

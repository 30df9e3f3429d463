//! Redirections of hubs: which are followed, and with which credentials (R23).

use std::sync::{Arc, OnceLock};

use websub::publisher::http::Submitter;

use crate::publish::{judged, with_token};
use crate::support::{BODY, Peer, notification, say};

/// The redirecting hub is at `HUB`, a configured one, with a token of its own, at `OTHER/publish`, and an unknown server at
/// `OTHER`. Which targets are followed is tried in full beside `next_hop`.
#[tokio::test]
async fn every_redirection_leads_to_a_hub_or_nowhere() {
    const TEMPORARY: &str = "307 Temporary Redirect";
    const PERMANENT: &str = "308 Permanent Redirect";
    let elsewhere = "redirects (308) to OTHER/elsewhere, where nothing is sent";
    for (status, location, requests, want) in [
        (TEMPORARY, "HUB/b", 2, "accepted"),
        (PERMANENT, "/b?x=1#part", 2, "accepted"),
        (PERMANENT, "OTHER/publish?topic=1", 1, "accepted"),
        // By way of the first hub.
        (TEMPORARY, "/c", 2, "accepted"),
        (PERMANENT, "OTHER/elsewhere", 1, elsewhere),
        (
            TEMPORARY,
            "http://[",
            1,
            "redirects (307) to http://[, where",
        ),
        (TEMPORARY, "", 4, "redirects (307) to nowhere"),
        ("302 Found", "/b", 1, "redirects (302) to /b, where"),
        (TEMPORARY, "NONE", 1, "redirects (307) to nowhere"),
    ] {
        redirected(status, location, requests, want).await;
    }
}

/// Submits once to a hub that redirects so.
async fn redirected(status: &'static str, location: &str, requests: usize, want: &str) {
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
    let hub_at = hub.url("");
    let filled = |text: &str| text.replace("HUB", &hub_at).replace("OTHER", &other_at);
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
    let is_last = judged.starts_with("in 900 s, by an operator: it redirects");
    assert_eq!(is_last, want != "accepted", "{judged}");
    for _ in 0..requests {
        let seen = hub.next().await;
        assert_eq!(seen.header("Authorization"), ["Bearer own"]);
        assert_eq!(seen.body, BODY);
        assert!(seen.line().starts_with("POST "), "{}", seen.line());
    }
    if location == "/c" || location.starts_with("OTHER/publish") {
        let seen = other.next().await;
        assert_eq!(seen.header("Authorization"), ["Bearer other's"]);
        assert_eq!(seen.header("Content-Type"), ["application/xml"]);
        assert_eq!(seen.body, BODY);
    }
    assert!(hub.seen.try_recv().is_err() && other.seen.try_recv().is_err());
}

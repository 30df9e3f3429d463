//! Redirections of hubs: which are followed, and with which credentials (R23).

use rstest::rstest;
use websub::publisher::http::Submitter;
use websub::publisher::settings::{HubCredentials, PublishSettings};
use websub::secret::Secret;

use crate::publish::{judged, name, settings};
use crate::support::{BODY, Peer, notification, say};

fn with_token(url: &str, token: &str) -> PublishSettings {
    let mut settings = settings(url);
    settings.credentials = Some(HubCredentials::Bearer(Secret::new(token)));
    settings
}

#[tokio::test]
async fn a_redirection_keeps_method_and_body_and_leads_to_configured_hubs_only() {
    let mut other = Peer::start(|_| say("200 OK", "", "")).await;
    let elsewhere = other.url("/publish");
    let foreign = other.url("/foreign");
    let mut peer = Peer::start(move |seen| match seen.line() {
        "POST /a HTTP/1.1" => say("307 Temporary Redirect", "Location: /b\r\n", ""),
        "POST /b HTTP/1.1" => say(
            "308 Permanent Redirect",
            &format!("Location: {elsewhere}\r\n"),
            "",
        ),
        "POST /found HTTP/1.1" => say("302 Found", "Location: /b\r\n", ""),
        "POST /loop HTTP/1.1" => say("307 Temporary Redirect", "Location: /loop\r\n", ""),
        _ => say(
            "307 Temporary Redirect",
            &format!("Location: {foreign}\r\n"),
            "",
        ),
    })
    .await;
    let mut first = settings(&peer.url("/a"));
    first.credentials = Some(HubCredentials::Bearer(Secret::new("of the first")));
    let mut second = settings(&other.url("/publish"));
    second.credentials = Some(HubCredentials::Bearer(Secret::new("of the second")));
    let rest = ["/found", "/loop", "/foreign"].map(|path| settings(&peer.url(path)));
    let publisher = Submitter::new([first, second].into_iter().chain(rest).collect()).unwrap();

    let answer = publisher.submit(&notification(&peer.url("/a"))).await;
    assert_eq!(name(&answer), "accepted");
    assert_eq!(
        peer.next().await.header("Authorization"),
        ["Bearer of the first"]
    );
    assert_eq!(peer.next().await.line(), "POST /b HTTP/1.1");
    let seen = other.next().await;
    assert_eq!(seen.line(), "POST /publish HTTP/1.1");
    assert_eq!(seen.header("Content-Type"), ["application/xml"]);
    assert_eq!(seen.header("Authorization"), ["Bearer of the second"]);
    assert_eq!(seen.body, BODY);

    for (path, requests) in [("/found", 1), ("/loop", 4), ("/foreign", 1)] {
        let answer = publisher.submit(&notification(&peer.url(path))).await;
        assert_eq!(name(&answer), "operator redirected", "{path}");
        for _ in 0..requests {
            peer.next().await;
        }
        assert!(peer.seen.try_recv().is_err(), "{path}");
    }
    assert!(other.seen.try_recv().is_err());
}

/// The redirecting hub is at `HUB`, a configured one, with a token of its own, at `OTHER/publish`, and an unknown server at
/// `OTHER`.
#[rstest]
#[case("307 Temporary Redirect", "HUB/b", 2, "accepted")]
#[case("308 Permanent Redirect", "/b?x=1#part", 2, "accepted")]
#[case("307 Temporary Redirect", "OTHER/publish", 1, "accepted")]
#[case("308 Permanent Redirect", "OTHER/publish?topic=1", 1, "accepted")]
#[case(
    "308 Permanent Redirect",
    "OTHER/elsewhere",
    1,
    "redirects (308) to OTHER/elsewhere, where nothing is sent"
)]
#[case(
    "307 Temporary Redirect",
    "http://u:p@HUB_HOST/b",
    1,
    "redirects (307) to http://u:p@HUB_HOST/b, where"
)]
#[case(
    "307 Temporary Redirect",
    "file:///etc/passwd",
    1,
    "redirects (307) to file:///etc/passwd, where"
)]
#[case(
    "307 Temporary Redirect",
    "http://[",
    1,
    "redirects (307) to http://[, where"
)]
#[case("307 Temporary Redirect", "", 4, "redirects (307) to nowhere")]
#[case(
    "301 Moved Permanently",
    "/b",
    1,
    "redirects (301) to /b, where nothing is sent: if that is the hub, make it url"
)]
#[case("302 Found", "/b", 1, "redirects (302) to /b, where")]
#[case("303 See Other", "/b", 1, "redirects (303) to /b, where")]
#[case("300 Multiple Choices", "/b", 1, "redirects (300) to /b, where")]
#[case(
    "304 Not Modified",
    "NONE",
    1,
    "redirects (304) to nowhere: correct url or publish_url"
)]
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
    let place = std::sync::Arc::new(std::sync::OnceLock::new());
    let told = std::sync::Arc::clone(&place);
    let mut hub = Peer::start(move |seen| match (seen.line(), told.get()) {
        ("POST /b HTTP/1.1" | "POST /b?x=1 HTTP/1.1", _) => say("200 OK", "", ""),
        (_, Some(location)) => say(status, &format!("Location: {location}\r\n"), ""),
        (_, None) => say(status, "", ""),
    })
    .await;
    let filled = |text: &str| {
        text.replace("HUB_HOST", &hub.address.to_string())
            .replace("HUB", &hub.url(""))
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
    if location.starts_with("OTHER/publish") {
        let seen = other.next().await;
        assert_eq!(seen.header("Authorization"), ["Bearer other's"]);
        assert_eq!(
            (seen.header("Content-Type"), seen.body.as_slice()),
            (vec!["application/xml"], BODY)
        );
    }
    assert!(hub.seen.try_recv().is_err() && other.seen.try_recv().is_err());
}

//! A secret that a hub repeats does not reach the log.

use websub::answer::Answer;
use websub::publisher::http::Submitter;
use websub::publisher::settings::{HubCredentials, HubHeader, PublishSettings};
use websub::secret::Secret;

use crate::publish::{judged, settings};
use crate::support::{Peer, Say, Seen, notification, say};

const PASSWORD: &str = "hidden pass/word";
/// `user:hidden pass/word`
const BASIC: &str = "dXNlcjpoaWRkZW4gcGFzcy93b3Jk";

fn settings_with_secrets(url: &str, credentials: HubCredentials) -> PublishSettings {
    let header = |name: &str, value: &str, is_public| HubHeader {
        name: name.parse().unwrap(),
        value: Secret::new(value),
        is_public,
    };
    let mut hub = settings(url);
    hub.headers = vec![
        header("x-key", "Token hidden-key", false),
        header("x-plain", "plain", true),
    ];
    hub.credentials = Some(credentials);
    hub
}

async fn submit_to(
    credentials: HubCredentials,
    answer: impl Fn(&Seen) -> Say + Send + Sync + 'static,
) -> Answer {
    let peer = Peer::start(answer).await;
    let url = peer.url("/");
    let publisher = Submitter::new(vec![settings_with_secrets(&url, credentials)]).unwrap();
    publisher.submit(&notification(&url)).await
}

fn bearer() -> HubCredentials {
    HubCredentials::Bearer(Secret::new("hidden-token"))
}

fn basic() -> HubCredentials {
    HubCredentials::Basic {
        username: "user".into(),
        password: Secret::new(PASSWORD),
    }
}

#[tokio::test]
async fn secrets_are_hidden_wherever_a_hub_puts_them_and_however_it_spells_them() {
    let page = format!("{}hidden-token", "x".repeat(490));
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let denial = format!("hub.mode=denied&hub.reason=hidden+pass%2Fword+{BASIC}");
    let otherwise = "hub.mode=denied&hub.reason=%68idden%20pass%2fword\r\n";
    let spelled = format!("\"hidden pass\\/word\" {BASIC} hidden-key");
    let location = "Location: /?t=hidden-token\r\n";
    let [later, kind] = [
        "Retry-After: hidden-token\r\n",
        "Content-Type: hidden-token\r\n",
    ];
    let [token, password] = ["bearer token", "user name or password"]
        .map(|refused| format!("it refuses the {refused} (401)"));
    let (moved, denied) = ("(302) to /?t=***, where", "publication: *** ***");
    let unregistered = "registered first (403)";
    for (credentials, answer, want) in [
        (bearer(), say("400 No", "", &page), "another form (400)"),
        (bearer(), say("302 No", location, ""), moved),
        (bearer(), say("503 No", later, ""), "it now (503)"),
        (bearer(), say("503 No", kind, ""), "it now (503)"),
        (basic(), say("200 OK", form, &denial), denied),
        (basic(), say("200 OK", form, otherwise), "publication: ***"),
        (basic(), say("403 No", "", &spelled), unregistered),
        (bearer(), say("401 No", "", ""), &token),
        (basic(), say("401 No", "", ""), &password),
    ] {
        let answer = submit_to(credentials, move |_| answer.clone()).await;
        let told = format!("{answer:?} {}", judged(&answer));
        assert!(told.contains(want), "{told}");
        assert!(!told.contains("hidden") && !told.contains(BASIC), "{told}");
    }
    for credentials in [bearer(), basic()] {
        let answer = submit_to(credentials, |seen| say("403 Forbidden", "", &seen.head)).await;
        let Answer::Status { excerpt, .. } = &answer else {
            panic!("{answer:?}")
        };
        let is_hidden = !excerpt.contains("hidden") && !excerpt.contains(BASIC);
        assert!(is_hidden, "{excerpt}");
        for kept in ["Authorization: ***", "X-Key: ***", "X-Plain: plain"] {
            assert!(excerpt.contains(kept), "{kept}: {excerpt}");
        }
    }
}

#[tokio::test]
async fn a_hub_that_is_redirected_to_hides_the_secrets_of_the_first() {
    let second = Peer::start(|seen| say("400 Bad Request", "", seen.line())).await;
    let location = format!("Location: {}?stolen=hidden-token\r\n", second.url("/in"));
    let first = Peer::start(move |_| say("307 Temporary Redirect", &location, "")).await;
    let url = first.url("/");
    let hubs = vec![
        settings_with_secrets(&url, bearer()),
        settings(&second.url("/in")),
    ];
    let publisher = Submitter::new(hubs).unwrap();
    let answer = publisher.submit(&notification(&url)).await;
    let told = format!("{answer:?}");
    assert!(told.contains("POST /in?stolen=*** HTTP"), "{told}");
}

#[tokio::test]
async fn keys_in_an_address_that_is_not_advertised_are_hidden_where_a_hub_repeats_them() {
    let body = "no such key: hidden-path, hidden key, hidden%20key, hidden+key; see /publish/";
    let location = "Location: https://elsewhere.example/hidden-path?key=hidden%20key\r\n";
    let hidden = "no such key: ***, ***, ***, ***; see /publish/";
    let moved = "https://elsewhere.example/***?key=***";
    for (status, header, want) in [("400 No", "", hidden), ("302 Found", location, moved)] {
        let peer = Peer::start(move |_| say(status, header, body)).await;
        let mut hub = settings(&peer.url("/advertised"));
        hub.publish_url = peer
            .url("/publish/hidden-path?key=hidden%20key")
            .parse()
            .unwrap();
        let name = hub.hub.clone();
        let publisher = Submitter::new(vec![hub]).unwrap();
        let answer = publisher.submit(&notification(name.as_str())).await;
        let told = format!("{answer:?} {}", judged(&answer));
        assert!(told.contains(want), "{told}");
        assert!(!told.contains("hidden"), "{told}");
    }
}

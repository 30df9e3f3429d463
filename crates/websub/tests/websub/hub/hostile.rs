//! Malicious subscribers and name servers.

use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use websub::hub::address::parse_network;
use websub::hub::http::EmbeddedHubSettings;
use websub::hub::request::CallbackPolicy;

use crate::hub::{Restored, heard, look_up, start_with, willing};
use crate::support::{Peer, Say, Seen, say};

/// Answers of hostile subscribers to a challenge, each in the manner of its path. `elsewhere` is the callback of another.
fn evil(seen: &Seen, elsewhere: &str) -> Say {
    let challenge = seen.parameter("hub.challenge").unwrap_or_default();
    let target = seen.line().split(' ').nth(1).unwrap_or_default().to_owned();
    let endless = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";
    let redirect = |to: &str| say("302 Found", &format!("Location: {to}\r\n"), &challenge);
    let path = seen.line().split(['/', '?', ' ']).nth(2);
    match path.unwrap().parse().unwrap() {
        0 => Say::Hang(String::new()),
        1 => Say::Hang(format!("{endless}{challenge}")),
        2 => drip("HTTP/1.1 200 OK\r\nX: "),
        3 => drip(endless),
        4 => flood(&format!("{endless}{challenge}")),
        5 => flood("HTTP/1.1 200 OK\r\nX: "),
        6 => Say::Reset(String::new()),
        7 => Say::Last(String::new()),
        8 => Say::Last(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{challenge}"
        )),
        9 => redirect(&target),
        10 => redirect(elsewhere),
        11 => say("307 Elsewhere", &format!("Location: {elsewhere}\r\n"), ""),
        12 => say("200 OK", "", &format!("<html>{challenge}</html>")),
        13 => say("200 OK", "", &format!("{challenge}\n")),
        14 => say("200 OK", "", &challenge.to_uppercase()),
        15 => say("404 Not Found", "", &challenge),
        16 => Say::Last("SSH-2.0-OpenSSH_9.2\r\n".to_owned()),
        manner => panic!("{manner}"),
    }
}

/// A byte now and then, for longer than anybody waits.
fn drip(head: &str) -> Say {
    let pause = Duration::from_millis(50);
    Say::Drip(head.to_owned(), "x".repeat(10_000), pause)
}

/// An endless answer.
fn flood(head: &str) -> Say {
    Say::Endless(head.to_owned(), "x".repeat(4_096))
}

const MANNERS: usize = 17;

/// WebSub 5.3.1.
#[tokio::test]
async fn a_callback_that_does_not_repeat_the_challenge_is_not_subscribed() {
    let mut elsewhere = Peer::start(willing).await;
    let other = elsewhere.url("/stolen");
    // The first question to each path is answered badly, the one after it well.
    let peer = Peer::start(move |seen| match seen.parameter("hub.lease_seconds") {
        Some(lease) if lease == "400" => evil(seen, &other),
        _ => willing(seen),
    })
    .await;
    let mut running = start_with(Restored::default(), |settings| {
        settings.verification_attempts = 1;
        settings.limits.verifications.per_host = 1_000;
        settings.limits.verifications.per_address = 1_000;
    })
    .await;
    for manner in 0..MANNERS {
        let callback = peer.url(&format!("/{manner}"));
        for lease in [
            "&hub.lease_seconds=400",
            "&hub.lease_seconds=500&hub.secret=s",
        ] {
            let answer = running.ask("subscribe", &callback, lease).await;
            assert_eq!(answer, (202, String::new()), "{manner}");
        }
    }
    // Questions to one callback are asked in order: subscribers that were verified first are reported first.
    for _ in 0..MANNERS {
        let subscription = running.subscribed().await;
        let callback = subscription.callback.as_str();
        assert!(subscription.secret.is_some(), "{callback} was believed");
    }
    assert!(elsewhere.unseen().is_none(), "a redirection was followed");
}

/// WebSub 7: nor is a redirection followed.
#[tokio::test]
async fn bad_subscribers_delay_no_others() {
    let mut elsewhere = Peer::start(willing).await;
    let other = elsewhere.url("/stolen");
    let bad = Peer::start(move |seen| match seen.parameter("hub.challenge") {
        Some(_) => willing(seen),
        None => evil(seen, &other),
    })
    .await;
    // Far longer than anything here may take: whatever waits for one that hangs, misses its deadline.
    let mut running = start_with(Restored::default(), |settings| {
        settings.timeout = Duration::from_secs(120);
        settings.concurrent_verifications = 2;
    })
    .await;
    for manner in 0..MANNERS {
        running.subscribe(&bad.url(&format!("/{manner}"))).await;
    }
    // They hang while others are asked, and while others are told.
    let hanging = Peer::start_at("127.0.0.2:0", |_| Say::Hang(String::new())).await;
    for n in 0..10 {
        let callback = hanging.url(&format!("/{n}"));
        assert_eq!(running.ask("subscribe", &callback, "").await.0, 202);
    }
    let mut good = Peer::start(willing).await;
    // A new subscriber, and its renewal.
    for _ in 0..2 {
        running.subscribe(&good.url("/c")).await;
        good.next().await;
    }
    for seq in 1..=5 {
        running.send(running.notification(seq)).unwrap();
        assert_eq!(good.next().await.body, &*running.notification(seq).body);
    }
    assert!(elsewhere.unseen().is_none(), "a redirection was followed");
}

/// A policy for one address, and names that stand for what the steps say, such as `127.0.0.1+127.0.0.2, nowhere`, the last
/// of them from then on.
fn moving(settings: &mut EmbeddedHubSettings, steps: &'static str) {
    settings.policy = CallbackPolicy {
        ports: vec![1..=u16::MAX],
        allowed: vec![parse_network("127.0.0.1").unwrap()],
        ..CallbackPolicy::default()
    };
    settings.verification_attempts = 1;
    let asked = AtomicUsize::new(0);
    look_up(settings, move |_| {
        let steps = steps
            .split(", ")
            .take(asked.fetch_add(1, Ordering::SeqCst) + 1);
        let addresses = steps.last().unwrap().split('+');
        addresses
            .filter(|address| *address != "nowhere")
            .map(|address| address.parse().unwrap())
            .collect()
    });
}

/// A peer that lets each connection be made anew, and another one at an address that is not permitted.
async fn peer_and_victim() -> (Peer, Peer) {
    let closing = |seen: &Seen| {
        let challenge = seen.parameter("hub.challenge").unwrap_or_default();
        say("200 OK", "Connection: close\r\n", &challenge)
    };
    let peer = Peer::start(closing).await;
    let address = format!("127.0.0.2:{}", peer.address.port());
    (peer, Peer::start_at(&address, closing).await)
}

#[tokio::test]
async fn a_name_that_moves_inside_is_followed_nowhere() {
    let (mut peer, mut victim) = peer_and_victim().await;
    let mut running = start_with(Restored::default(), |settings| {
        // One that is permitted excuses none that is not.
        let steps = "127.0.0.1, 127.0.0.2, 127.0.0.1+127.0.0.2, 127.0.0.1";
        moving(settings, steps);
    })
    .await;
    let callback = format!("http://moving.example:{}/c", peer.address.port());
    let subscription = running.subscribe(&callback).await;
    peer.next().await;
    let sent = running.send(running.notification(1)).unwrap();
    for want in 1..=2 {
        assert_eq!(running.progress().await.attempts, want);
    }
    assert_eq!(running.record().await, heard(&subscription, sent.id));
    assert_eq!(peer.next().await.body, &*running.notification(1).body);
    assert!(peer.unseen().is_none() && victim.unseen().is_none());
}

#[tokio::test]
async fn a_name_of_the_inside_is_answered_like_any_other_and_never_called() {
    let (peer, mut victim) = peer_and_victim().await;
    let mut running = start_with(Restored::default(), |settings| {
        moving(settings, "127.0.0.2, nowhere, 127.0.0.1");
    })
    .await;
    let callback = format!("http://inside.example:{}/c", peer.address.port());
    // Inside, nowhere, and where it may be called: the answer is the same.
    for more in ["", "", "&hub.secret=s"] {
        let answer = running.ask("subscribe", &callback, more).await;
        assert_eq!(answer, (202, String::new()));
    }
    let verified = running.subscribed().await;
    assert!(verified.secret.is_some(), "the last is verified");
    assert!(victim.unseen().is_none());
}

#[tokio::test]
async fn a_name_of_this_system_is_called_where_that_is_allowed() {
    if ("localhost", 0).to_socket_addrs().is_err() {
        eprintln!("not tried: localhost is unknown");
        return;
    }
    let mut peer = Peer::start(willing).await;
    let mut running = start_with(Restored::default(), |_| {}).await;
    let callback = format!("http://localhost:{}/c", peer.address.port());
    running.subscribe(&callback).await;
    let host = format!("localhost:{}", peer.address.port());
    assert_eq!(peer.next().await.header("Host"), [host]);
}

//! The hub's status and counters: each request, verification and attempt counts once, by its outcome.

use jiff::Timestamp;
use resourcesync::uri::Topic;
use websub::counts::{DeliveryCounts, RequestCounts, VerificationCounts};
use websub::hub::subscriptions::view::HubStatus;
use websub::hub::{Callback, DeliveryProgress};

use crate::hub::{
    Restored, TOPIC, key, saved_relay, start, start_with, subscription, unsubscribed, willing,
};
use crate::support::{Peer, Say, Seen, ask, post_form, say};

#[tokio::test]
async fn requests_and_verifications_count_by_what_comes_of_them() {
    let peer = Peer::start(|seen| match seen.line() {
        line if line.contains("/liar") => say("200 OK", "", "of course"),
        _ => willing(seen),
    })
    .await;
    let running = start_with(Restored::default(), |settings| {
        settings.verification_attempts = 1;
        settings.limits.subscriptions.in_all = 1;
    })
    .await;
    let nobody = "http://127.0.0.1:1/c";
    for (callback, failed, refused) in [(nobody, 1, 0), (&peer.url("/liar"), 1, 1)] {
        assert_eq!(running.ask("subscribe", callback, "").await.0, 202);
        let verified = |status: &HubStatus| {
            let verifications = status.counts.verifications;
            (verifications.failed, verifications.refused) == (failed, refused)
        };
        running.until(verified).await;
    }
    let callback = peer.url("/c");
    assert_eq!(running.ask("subscribe", &callback, "").await.0, 202);
    running.until(|status| status.subscriptions == 1).await;
    assert_eq!(running.ask("subscribe", &callback, "").await.0, 202);
    let (status, words) = running.ask("subscribe", &peer.url("/more"), "").await;
    assert_eq!((status, &*words), (503, "too many subscriptions in all\n"));
    let (status, _) = post_form(running.address, "/hub", "hub.mode=no").await;
    assert_eq!(status, 400);
    // Who only looks asks for nothing.
    ask(running.address, "GET", "/hub", "").await;
    let status = running
        .until(|status| status.counts.verifications.confirmed == 2)
        .await;
    let want = RequestCounts {
        answered: 4,
        not_modified: 0,
        refused: 1,
        limited: 1,
    };
    assert_eq!(status.counts.requests, want);
    let want = VerificationCounts {
        confirmed: 2,
        refused: 1,
        failed: 1,
    };
    assert_eq!(status.counts.verifications, want);
    assert_eq!(status.topics, [(Topic::new(TOPIC), 1)]);
}

/// Answers by what the path says. The body of an acknowledgement means nothing (WebSub 7).
fn in_its_way(seen: &Seen) -> Say {
    let path = seen.line();
    match () {
        () if path.contains("/taken") => say("200 OK", "", "hub.mode=denied"),
        () if path.contains("/gone") => say("410 Gone", "", ""),
        () if path.contains("/broken") => Say::Last(String::new()),
        () => say("503 Busy", "Retry-After: 600\r\n", ""),
    }
}

#[tokio::test]
async fn tries_count_by_what_comes_of_them_and_latency_from_when_it_was_relayed() {
    let peer = Peer::start(in_its_way).await;
    let restored = |(path, attempts): (&str, u32)| {
        let progress = DeliveryProgress {
            attempts,
            ..DeliveryProgress::default()
        };
        (subscription(peer.url(path), 300), progress)
    };
    let paths = [
        ("/taken", 0),
        ("/busy", 0),
        ("/spent", 99),
        ("/gone", 0),
        ("/broken", 0),
    ];
    let running = start(Restored {
        subscriptions: paths.map(restored).to_vec(),
        relays: vec![saved_relay(1)],
    })
    .await;
    let want = DeliveryCounts {
        delivered: 1,
        refused: 1,
        failed: 0,
        abandoned: 1,
        retries: 0,
        gone: 1,
        cut_off: 0,
    };
    // The broken one is tried again, how often depends on time.
    let without_failed = |status: &HubStatus| DeliveryCounts {
        failed: 0,
        retries: 0,
        ..status.counts.deliveries
    };
    let status = running
        .until(|status| without_failed(status) == want && status.counts.deliveries.failed > 0)
        .await;
    // It was relayed by an earlier run.
    assert_eq!(status.counts.latency.count(), 0);

    running.send(running.notification(2)).unwrap();
    let want = DeliveryCounts {
        delivered: 2,
        refused: 2,
        ..want
    };
    let status = running
        .until(|status| without_failed(status) == want && status.failing == 3)
        .await;
    let latency = status.counts.latency;
    assert!(latency.count() == 1 && latency.sum < 30.0, "{latency:?}");
    // What is owed to the busy and the broken is two, to the spent one.
    assert_eq!((status.subscriptions, status.owed), (4, 5));
    let (_, busy) = running
        .hub
        .with_subscriptions(|subscriptions| {
            let name = Callback::new(peer.url("/busy")).digest();
            subscriptions.find(&name, None, Timestamp::now(), &|_, _| None)
        })
        .unwrap();
    assert_eq!((busy.attempts, busy.last.unwrap().status), (1, Some(503)));
}

/// WebSub 5.2.
#[tokio::test]
async fn a_removed_subscriber_is_notified_and_receives_nothing_more() {
    let mut peer = Peer::start(willing).await;
    let mut running = start(Restored::default()).await;
    let callback = peer.url("/c?k=1");
    running.subscribe(&callback).await;
    peer.next().await;
    running
        .hub
        .end_subscription(key(&callback), "it was removed");
    assert_eq!(running.record().await, unsubscribed(&callback));
    let told = peer.next().await;
    let line = told.line();
    let is_denied = line.starts_with("GET /c?k=1&hub.mode=denied&hub.topic=");
    assert!(is_denied, "{line}");
    let reason = Some("it was removed".to_owned());
    assert_eq!(told.parameter("hub.reason"), reason);
    assert_eq!(running.send(running.notification(1)), None);
    assert_eq!(running.hub.status(Timestamp::now()).subscriptions, 0);
}

//! Deliveries: form, order and end (S2, S4).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use resourcesync::uri::Topic;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use websub::hub::delivery::signature;
use websub::hub::{DeliveryProgress, HubRecord, Relay, RelayId};
use websub::secret::Secret;

use crate::hub::{
    Restored, TOPIC, TOPIC_IN_FORM, heard, saved_relay, start, start_with, subscriber,
    subscription, unsubscribed, willing,
};
use crate::support::{BODY, Peer, say, to_relay};

/// WebSub 5.3, 7, 7.1 and 8; Framework Notification 4.3.
#[tokio::test]
async fn a_delivery_arrives_as_the_specification_says() {
    let mut peer = Peer::start(willing).await;
    let mut running = start(Restored::default()).await;
    let callback = peer.url("/c%41?k=%20x");
    let (answered, _) = running.ask("subscribe", &callback, "&hub.secret=s").await;
    assert_eq!(answered, 202);
    let verification = peer.next().await;
    let challenge = verification.parameter("hub.challenge").unwrap();
    let line = format!(
        "GET /c%41?k=%20x&hub.mode=subscribe&hub.topic={TOPIC_IN_FORM}\
         &hub.challenge={challenge}&hub.lease_seconds=864000 HTTP/1.1"
    );
    assert_eq!(verification.line(), line);
    assert_eq!(challenge.len(), 36);
    running.record().await;
    running.ask("subscribe", &callback, "&hub.secret=s").await;
    let another = peer.next().await.parameter("hub.challenge");
    assert_ne!(another, Some(challenge));
    running.record().await;

    let hub = &running.url;
    let links = format!(
        "<{TOPIC}>; rel=\"self\", <{hub}>; rel=\"hub\", <https://e.org/set1/cl.xml>; rel=\"resourcesync\""
    );
    // The second is sent and signed part by part.
    let large = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    for (seq, body) in [(1, BODY.to_vec()), (2, large)] {
        running.send(Relay {
            body: body.clone().into(),
            ..to_relay(seq)
        });
        let seen = peer.next().await;
        assert_eq!(seen.line(), "POST /c%41?k=%20x HTTP/1.1");
        assert_eq!(seen.header("Content-Type"), ["application/xml"]);
        assert_eq!(seen.header("Content-Length"), [body.len().to_string()]);
        assert_eq!(seen.header("Link"), [&*links]);
        let signed = signature(&Secret::new("s"), &body);
        assert_eq!(seen.header("X-Hub-Signature"), [signed]);
        assert!(seen.body == body, "{seq}");
    }
}

/// WebSub 7; Framework Notification 4.3.
#[tokio::test]
async fn order_is_kept_across_failures_and_nothing_accepted_is_dropped() {
    let tried = AtomicUsize::new(0);
    let mut peer = subscriber(move || match tried.fetch_add(1, Ordering::SeqCst) {
        0 => say("503 Busy", "Retry-After: 1\r\n", ""),
        _ => say("204 No Content", "", ""),
    })
    .await;
    let mut running = start(Restored::default()).await;
    let subscription = running.subscribe(&peer.url("/c")).await;
    peer.next().await;
    // More than a thousand, and more than 16 MiB.
    let notification = |seq: u64| {
        let mut body = vec![b' '; 16 * 1024];
        body.extend(seq.to_string().into_bytes());
        Relay {
            body: body.into(),
            ..to_relay(seq)
        }
    };
    // From a thread that is not of the runtime.
    let send =
        || Vec::from_iter((1..=1_100).map(|seq| running.send(notification(seq)).unwrap().id));
    let ids = std::thread::scope(|scope| scope.spawn(send).join()).unwrap();
    assert_eq!(peer.next().await.body, &*notification(1).body);
    for seq in 1..=1_100 {
        assert_eq!(peer.next().await.body, &*notification(seq).body);
    }
    let tried = running.progress().await;
    assert_eq!((tried.heard < ids[0], tried.attempts), (true, 1));
    assert!(tried.next_try.unwrap() <= Timestamp::now());
    for id in ids {
        assert_eq!(running.record().await, heard(&subscription, id));
        let ended = HubRecord::Ended(Topic::new(TOPIC), id);
        assert_eq!(running.record().await, ended);
    }
}

#[tokio::test]
async fn the_subscriber_that_is_owed_most_is_cut_off_when_the_backlog_is_full() {
    let mut dead = subscriber(|| say("503 Busy", "", "")).await;
    let mut quick = Peer::start(willing).await;
    let mut running = start_with(Restored::default(), |settings| {
        settings.limits.backlog_bytes = 2_000;
    })
    .await;
    let callback = dead.url("/dead");
    running.subscribe(&callback).await;
    dead.next().await;
    running.subscribe(&quick.url("/c")).await;
    quick.next().await;
    let mut sent = 0;
    while running.hub.status(Timestamp::now()).subscriptions == 2 {
        sent += 1;
        running.send(running.notification(sent)).unwrap();
        assert_eq!(quick.next().await.body, &*running.notification(sent).body);
    }
    // A notification of 18 bytes counts 274.
    assert_eq!(sent, 8);
    let mut told = dead.next().await;
    while told.parameter("hub.mode").as_deref() != Some("denied") {
        told = dead.next().await;
    }
    let reason = Some("too many notifications were pending".to_owned());
    assert_eq!(told.parameter("hub.reason"), reason);
    let status = running.hub.status(Timestamp::now());
    assert_eq!(status.counts.deliveries.cut_off, 1);
    let records = std::iter::from_fn(|| running.records.try_recv().ok());
    assert!(Vec::from_iter(records).contains(&unsubscribed(&callback)));
    running.send(running.notification(100)).unwrap();
    assert_eq!(quick.next().await.body, &*running.notification(100).body);
}

/// WebSub 7.
#[tokio::test]
async fn a_callback_that_is_gone_ends_its_subscription() {
    let peer = subscriber(|| say("410 Gone", "", "")).await;
    let mut running = start(Restored::default()).await;
    let callback = peer.url("/c");
    running.subscribe(&callback).await;
    let relays = [1, 2].map(|seq| running.hub.number_relay(running.notification(seq)).unwrap());
    running.dispatch(relays.to_vec());
    assert_eq!(running.record().await, unsubscribed(&callback));
    let ended = HubRecord::Ended(Topic::new(TOPIC), relays[1].id);
    assert_eq!(running.record().await, ended);
    assert_eq!(running.hub.number_relay(running.notification(3)), None);
}

/// WebSub 5.3.1.
#[tokio::test]
async fn what_was_owed_before_a_restart_is_sent_although_a_lease_ended_meanwhile() {
    let mut peer = Peer::start(willing).await;
    let progress = |heard: u64| DeliveryProgress {
        heard: RelayId(heard),
        attempts: 3,
        next_try: Some(Timestamp::now()),
    };
    let live = subscription(peer.url("/live"), 300);
    let ended = subscription(peer.url("/ended"), -1);
    let restored = Restored {
        subscriptions: vec![
            (live.clone(), progress(6)),
            (ended.clone(), progress(6)),
            (subscription(peer.url("/ahead"), 300), progress(8)),
        ],
        // As a table without order yields them; and one that everybody has heard.
        relays: [8, 5, 7].map(saved_relay).to_vec(),
    };
    let mut running = start(restored).await;
    let obsolete = HubRecord::Ended(Topic::new(TOPIC), RelayId(6));
    assert_eq!(running.record().await, obsolete);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let post = peer.next().await;
        seen.push(format!("{} {}", post.line(), post.body.escape_ascii()));
    }
    seen.sort();
    let expected = ["ended", "live"]
        .map(|path| ["7", "8"].map(|body| format!("POST /{path} HTTP/1.1 {body}")));
    assert_eq!(seen, expected.as_flattened());
    let ids = [7, 8].map(RelayId);
    let of_both = |id| [&live, &ended].map(|subscription| heard(subscription, id));
    let mut unheard: Vec<HubRecord> = ids.into_iter().flat_map(of_both).collect();
    while !unheard.is_empty() {
        let record = running.record().await;
        unheard.retain(|expected| *expected != record);
    }
    let next = running.hub.number_relay(running.notification(10)).unwrap();
    assert_eq!(next.id, RelayId(9), "a number of its own");
}

/// A subscriber that confirms, and then takes 256 KiB of a body every 100 ms until it has so many bytes.
async fn slow_reader(most: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut head = vec![0; 4096];
                let read = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                if let Some((_, challenge)) = head.split_once("hub.challenge=") {
                    let challenge = &challenge[..36];
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: 36\r\n\r\n{challenge}");
                    return stream.write_all(answer.as_bytes()).await.unwrap();
                }
                let mut part = vec![0; 256 * 1024];
                let mut taken = 0;
                while taken < most {
                    taken += stream.read_exact(&mut part).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
                tokio::time::sleep(Duration::from_secs(60)).await;
            });
        }
    });
    format!("http://{address}/c")
}

#[tokio::test]
async fn a_subscriber_that_takes_a_large_body_slowly_has_time_for_it() {
    const SIZE: usize = 16 << 20;
    let callback = slow_reader(SIZE - (512 << 10)).await;
    let mut running = start_with(Restored::default(), |settings| {
        settings.timeout = Duration::from_secs(1);
    })
    .await;
    let subscription = running.subscribe(&callback).await;
    let begun = Instant::now();
    let large = Relay {
        body: vec![b' '; SIZE].into(),
        ..to_relay(1)
    };
    let relay = running.send(large).unwrap();
    assert_eq!(running.record().await, heard(&subscription, relay.id));
    assert!(begun.elapsed() > Duration::from_secs(2));
}

#[tokio::test]
async fn a_subscriber_that_stops_taking_a_body_fails_soon() {
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let callback = format!("http://{}/c", hanging.local_addr().unwrap());
    let restored = Restored {
        subscriptions: vec![(subscription(callback, 300), DeliveryProgress::default())],
        relays: vec![Relay {
            body: vec![b' '; 16 << 20].into(),
            ..saved_relay(1)
        }],
    };
    let mut running = start_with(restored, |settings| {
        settings.timeout = Duration::from_secs(1);
    })
    .await;
    let progress = running.progress().await;
    assert_eq!((progress.heard, progress.attempts), (RelayId(0), 1));
}

//! Many strangers: whatever they do, others are served.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use resourcesync::uri::Topic;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use websub::http::Hook;
use websub::hub::address::parse_network;
use websub::hub::http::settings::EmbeddedHubSettings;
use websub::hub::{
    Callback, DeliveryProgress, HubRecord, Relay, RelayHeaders, RelayId, Subscription,
};

use crate::hub::{Restored, Running, TOPIC, form, start_with, subscriber, willing};
use crate::support::{Peer, Say, allow_many_files, exchange, form_request, say, soon, status};

/// The deadline for serving the others, on a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// Far longer than that: whatever waits for one that hangs is late.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Takes what it is sent and answers nothing.
async fn hanging(address: &str) -> u16 {
    let listener = TcpListener::bind(address).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut scratch = [0; 1_024];
                while stream.read(&mut scratch).await.is_ok_and(|read| read > 0) {}
            });
        }
    });
    port
}

fn subscribed(callback: String) -> (Subscription, DeliveryProgress) {
    let subscription = Subscription {
        topic: Topic::new(TOPIC),
        callback: Callback::new(callback),
        secret: None,
        expires: Timestamp::now() + SignedDuration::from_hours(1),
        requester: None,
    };
    (subscription, DeliveryProgress::default())
}

fn restored(subscriptions: Vec<(Subscription, DeliveryProgress)>) -> Restored {
    Restored {
        subscriptions,
        relays: Vec::new(),
    }
}

/// Waits until so many requests have come.
async fn heard(peers: &mut [Peer], since: Instant) {
    for peer in peers {
        peer.next().await;
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    }
}

async fn honest(count: usize) -> Vec<Peer> {
    let mut peers = Vec::new();
    for n in 0..count {
        let address = format!("127.0.1.{}:0", n + 1);
        peers.push(Peer::start_at(&address, willing).await);
    }
    peers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_hanging_callbacks_on_ten_hosts_delay_no_others() {
    allow_many_files();
    let mut subscriptions = Vec::new();
    for host in 0..10 {
        let port = hanging(&format!("127.0.2.{}:0", host + 1)).await;
        let of_host = (0..1_000).map(|n| format!("http://127.0.2.{}:{port}/{n}", host + 1));
        subscriptions.extend(of_host.map(subscribed));
    }
    let mut peers = honest(20).await;
    subscriptions.extend(peers.iter().map(|peer| subscribed(peer.url("/c"))));
    let running = start_with(restored(subscriptions), |settings| {
        settings.timeout = TIMEOUT;
    })
    .await;
    // The first, and one after it while the others are tried again.
    for seq in 1..=2 {
        let begun = Instant::now();
        running.send(running.notification(seq)).unwrap();
        heard(&mut peers, begun).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_server_that_does_not_answer_delays_no_others() {
    let mut peers = honest(20).await;
    let names = (0..1_000).map(|n| format!("http://n{n}.silent.example/c"));
    let mut subscriptions: Vec<_> = names.map(subscribed).collect();
    let callback =
        |(n, peer): (usize, &Peer)| format!("http://honest{n}.example:{}/c", peer.address.port());
    subscriptions.extend(peers.iter().enumerate().map(callback).map(subscribed));
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let running = start_with(restored(subscriptions), move |settings| {
        let asked = Arc::clone(&counted);
        settings.resolver = Some(Arc::new(Hook(Box::new(move |name: &str| {
            if name.ends_with(".silent.example") {
                asked.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_secs(5)); // as a resolver does that hears nothing
                return Vec::new();
            }
            let number: u8 = name["honest".len()..name.len() - ".example".len()]
                .parse()
                .unwrap();
            vec![IpAddr::from([127, 0, 1, number + 1])]
        }))));
    })
    .await;
    for seq in 1..=2 {
        let begun = Instant::now();
        running.send(running.notification(seq)).unwrap();
        heard(&mut peers, begun).await;
    }
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked <= 64, "{asked} lookups below one name");
}

/// Behind a proxy that says who asks.
fn behind_a_proxy(settings: &mut EmbeddedHubSettings) {
    settings.trusted_proxies = vec![parse_network("127.0.0.0/8").unwrap()];
}

impl Running {
    async fn subscribe_as(&self, callback: &str, address: &str) -> u16 {
        let header = format!("X-Forwarded-For: {address}\r\n");
        let request = form_request("/hub", &form("subscribe", callback, ""), &header);
        let (head, _) = exchange(self.address, &request).await;
        status(&head)
    }

    /// Waits until a callback is subscribed, or its subscription renewed.
    async fn until_subscribed(&mut self, callback: &str) {
        loop {
            if let HubRecord::Subscribed(subscription, _) = self.record().await
                && subscription.callback.as_str() == callback
            {
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_ipv6_prefix_does_not_close_the_hub() {
    let mut peers = honest(2).await;
    let (known, new) = (peers[0].url("/known"), peers[1].url("/new"));
    let restored = restored(vec![subscribed(known.clone())]);
    let mut running = start_with(restored, |settings| {
        behind_a_proxy(settings);
        settings.timeout = TIMEOUT;
    })
    .await;
    let mut ports = Vec::new();
    for host in 0..34 {
        ports.push(hanging(&format!("127.0.3.{}:0", host + 1)).await);
    }
    for n in 0..30 {
        for (host, port) in ports.iter().enumerate() {
            let callback = format!("http://127.0.3.{}:{port}/{n}", host + 1);
            let address = format!("2a00:1:2:{host:x}::{n:x}");
            let status = running.subscribe_as(&callback, &address).await;
            assert!(matches!(status, 202 | 429), "{status}");
        }
    }
    let begun = Instant::now();
    assert_eq!(running.subscribe_as(&known, "9.9.9.1").await, 202);
    assert_eq!(running.subscribe_as(&new, "9.9.9.2").await, 202);
    heard(&mut peers, begun).await;
    running.until_subscribed(&new).await;
}

#[tokio::test]
async fn names_of_one_address_make_no_more_requests_to_it_than_one_host_may() {
    let victim = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&victim);
    let peer = Peer::start(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        say("404 Not Found", "", "")
    })
    .await;
    let running = start_with(Restored::default(), |settings| {
        behind_a_proxy(settings);
        settings.limits.set_requests_per_minute(50);
        settings.resolver = Some(Arc::new(Hook(Box::new(|_| {
            vec![IpAddr::from([127, 0, 0, 1])]
        }))));
    })
    .await;
    let begun = Instant::now();
    for n in 0..400 {
        let callback = format!("http://n{n}.example:{}/c", peer.address.port());
        let address = format!("9.9.9.{}", n % 10);
        assert_eq!(running.subscribe_as(&callback, &address).await, 202);
    }
    // All that are asked at once have been when the last of them is answered.
    let deadline = Instant::now() + Duration::from_secs(10);
    while victim.load(Ordering::SeqCst) < 50 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await; // poll: the peer counts
    }
    tokio::time::sleep(Duration::from_millis(200)).await; // time for what must not come
    let most = 51 + begun.elapsed().as_secs() as usize;
    let asked = victim.load(Ordering::SeqCst);
    assert!(asked <= most, "{asked} requests");
}

#[tokio::test]
async fn what_waits_for_the_limit_of_one_address_closes_the_queue_to_nobody() {
    let victim = Peer::start(|_| say("404 Not Found", "", "")).await;
    let mut peers = honest(1).await;
    let mut running = start_with(Restored::default(), |settings| {
        behind_a_proxy(settings);
        settings.limits.set_requests_per_minute(10);
        settings.limits.verifications.in_all = 40;
        settings.resolver = Some(Arc::new(Hook(Box::new(|_| {
            vec![IpAddr::from([127, 0, 0, 1])]
        }))));
    })
    .await;
    // Ten are verified at once, and more wait than the queue holds: one is refused, or some gave up waiting.
    let mut was_full = false;
    for n in 0..60 {
        let callback = format!("http://n{n}.example:{}/c", victim.address.port());
        match running.subscribe_as(&callback, &format!("9.9.{n}.1")).await {
            503 => {
                was_full = true;
                break;
            }
            status => assert_eq!(status, 202, "{n}"),
        }
    }
    let counts = running.hub.status(Timestamp::now()).counts;
    was_full |= counts.verifications.failed > 0;
    assert!(was_full, "the queue never was full");
    let begun = Instant::now();
    let callback = peers[0].url("/c");
    while running.subscribe_as(&callback, "8.8.8.8").await != 202 {
        assert!(begun.elapsed() < Duration::from_secs(3), "still full");
        tokio::time::sleep(Duration::from_millis(400)).await; // poll: fewer than the requester may
    }
    heard(&mut peers, begun).await;
    running.until_subscribed(&callback).await;
}

#[tokio::test]
async fn while_the_queue_is_full_a_verification_is_tried_once() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    for (in_all, most) in [(1, 1), (100, 3)] {
        let tried = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tried);
        let running = start_with(Restored::default(), |settings| {
            let counted = Arc::clone(&counted);
            settings.limits.verifications.in_all = in_all;
            settings.resolver = Some(Arc::new(Hook(Box::new(move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
                vec![IpAddr::from([127, 0, 0, 1])]
            }))));
        })
        .await;
        let callback = format!("http://nobody.example:{port}/c");
        assert_eq!(running.ask("subscribe", &callback, "").await.0, 202);
        let deadline = Instant::now() + Duration::from_secs(30);
        while running
            .hub
            .status(Timestamp::now())
            .counts
            .verifications
            .failed
            == 0
        {
            assert!(Instant::now() < deadline, "it never was given up");
            tokio::time::sleep(Duration::from_millis(5)).await; // poll: the hub counts
        }
        assert_eq!(tried.load(Ordering::SeqCst), most, "of {in_all}");
    }
}

#[tokio::test]
async fn three_hundred_subscriptions_may_come_at_once() {
    let peer = Peer::start(willing).await;
    let mut running = start_with(Restored::default(), |_| {}).await;
    for n in 0..300 {
        let (status, words) = running
            .ask("subscribe", &peer.url(&format!("/{n}")), "")
            .await;
        assert_eq!(status, 202, "{n}: {words}");
    }
    for _ in 0..300 {
        let record = running.record().await;
        assert!(matches!(record, HubRecord::Subscribed(..)), "{record:?}");
    }
}

#[tokio::test]
async fn a_subscriber_that_is_verified_again_gets_pending_deliveries_at_once() {
    let mut peer = Peer::start(willing).await;
    let (subscription, _) = subscribed(peer.url("/c"));
    let later = Timestamp::now() + SignedDuration::from_mins(15);
    let progress = DeliveryProgress {
        attempts: 9,
        next_try: Some(later),
        ..DeliveryProgress::default()
    };
    let restored = Restored {
        subscriptions: vec![(subscription, progress)],
        relays: vec![relay()],
    };
    let mut running = start_with(restored, |_| {}).await;
    let begun = Instant::now();
    assert_eq!(running.ask("subscribe", &peer.url("/c"), "").await.0, 202);
    assert!(
        soon(peer.seen.recv())
            .await
            .unwrap()
            .line()
            .starts_with("GET ")
    );
    assert_eq!(peer.next().await.body, b"1");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    // It is saved too that nothing has to be waited for.
    running.until_subscribed(&peer.url("/c")).await;
    let HubRecord::Progressed(_, progress) = running.record().await else {
        panic!("it is due")
    };
    assert_eq!(progress, DeliveryProgress::default());
}

#[tokio::test]
async fn an_answer_that_comes_before_the_request_was_read_is_not_lost() {
    let running = start_with(Restored::default(), |settings| {
        settings.limits.set_requests_per_minute(1);
    })
    .await;
    let long = "&x=".to_owned() + &"x".repeat(200_000);
    for want in [413, 429, 429, 429] {
        // All of it is sent before anything is read.
        let request = form_request("/hub", &form("subscribe", "http://127.0.0.1/", &long), "");
        let (head, body) = exchange(running.address, &request).await;
        assert_eq!(status(&head), want);
        assert!(!body.is_empty());
    }
}

#[tokio::test]
async fn an_attempt_that_hangs_during_a_renewal_is_not_judged_with_the_failures_before() {
    let mut peer = subscriber(|| Say::Hang(String::new())).await;
    let (subscription, _) = subscribed(peer.url("/c"));
    let progress = DeliveryProgress {
        attempts: 99,
        ..DeliveryProgress::default()
    };
    let restored = Restored {
        subscriptions: vec![(subscription, progress)],
        relays: vec![relay()],
    };
    let mut running = start_with(restored, |_| {}).await;
    assert_eq!(peer.next().await.body, b"1");
    running.ask("subscribe", &peer.url("/c"), "").await;
    running.until_subscribed(&peer.url("/c")).await;
    let HubRecord::Progressed(_, renewed) = running.record().await else {
        panic!("it is due")
    };
    assert_eq!(renewed, DeliveryProgress::default());
    let HubRecord::Progressed(_, failed) = running.record().await else {
        panic!("it is tried again")
    };
    assert_eq!((failed.heard, failed.attempts), (RelayId(0), 1));
}

/// Two hang, the third waits, and there is one slot.
#[tokio::test]
async fn what_the_hub_itself_cuts_off_is_not_given_up() {
    let mut subscriptions = Vec::new();
    for host in 1..=3 {
        let port = hanging(&format!("127.0.4.{host}:0")).await;
        let (subscription, progress) = subscribed(format!("http://127.0.4.{host}:{port}/c"));
        let attempts = 99;
        subscriptions.push((
            subscription,
            DeliveryProgress {
                attempts,
                ..progress
            },
        ));
    }
    let restored = Restored {
        subscriptions,
        relays: vec![relay()],
    };
    let mut running = start_with(restored, |settings| {
        settings.timeout = TIMEOUT;
        settings.concurrent_deliveries = 1;
    })
    .await;
    let HubRecord::Progressed(_, cut_off) = running.record().await else {
        panic!("it is tried again")
    };
    assert_eq!((cut_off.heard, cut_off.attempts), (RelayId(0), 100));
}

fn relay() -> Relay {
    Relay {
        id: RelayId(1),
        topic: Topic::new(TOPIC),
        seq: 1,
        body: b"1".as_slice().into(),
        headers: RelayHeaders::default(),
    }
}

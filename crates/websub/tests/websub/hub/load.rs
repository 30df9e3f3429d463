//! Many strangers: limits hold, and whatever they do, others are served.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::net::{UnixListener, UnixStream};
use websub::http::server::Listener;
use websub::hub::address::parse_network;
use websub::hub::subscriptions::view::HubStatus;
use websub::hub::{DeliveryProgress, HubRecord, RelayId, Subscription};
use websub::topics::http::Topics;

use crate::hub::{
    Restored, Running, form, look_up, saved_relay, start_with, subscriber, subscription,
    unsubscribed, willing,
};
use crate::support::{
    Peer, Say, exchange, exchange_on, form_request, free_address, say, serve_at, status,
};

/// The deadline for serving the others, on a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// Far longer than that: whatever waits for one that hangs is late.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn hanging(address: &str) -> Peer {
    Peer::start_at(address, |_| Say::Hang(String::new())).await
}

fn subscribed(callback: String) -> (Subscription, DeliveryProgress) {
    (subscription(callback, 3_600), DeliveryProgress::default())
}

/// A state in which one notification is pending, and was tried so often.
fn pending(callback: String, progress: DeliveryProgress) -> Restored {
    Restored {
        subscriptions: vec![(subscription(callback, 3_600), progress)],
        relays: vec![saved_relay(1)],
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
async fn a_name_server_that_does_not_answer_delays_no_others() {
    let mut peers = honest(20).await;
    let names = (0..1_000).map(|n| format!("http://n{n}.silent.example/c"));
    let mut subscriptions: Vec<_> = names.map(subscribed).collect();
    let callback =
        |(n, peer): (usize, &Peer)| format!("http://honest{n}.example:{}/c", peer.address.port());
    subscriptions.extend(peers.iter().enumerate().map(callback).map(subscribed));
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let restored = Restored {
        subscriptions,
        ..Restored::default()
    };
    let running = start_with(restored, move |settings| {
        let asked = Arc::clone(&counted);
        look_up(settings, move |name| {
            if name.ends_with(".silent.example") {
                asked.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_secs(5)); // as a resolver does that hears nothing
                return Vec::new();
            }
            let number: u8 = name["honest".len()..name.len() - ".example".len()]
                .parse()
                .unwrap();
            vec![IpAddr::from([127, 0, 1, number + 1])]
        });
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_with_hanging_callbacks_delay_no_others() {
    let mut subscriptions = Vec::new();
    for host in 1..=2 {
        let hanging = hanging(&format!("127.0.2.{host}:0")).await;
        let of_host = (0..50).map(|n| hanging.url(&format!("/{n}")));
        subscriptions.extend(of_host.map(subscribed));
    }
    let mut peers = honest(5).await;
    subscriptions.extend(peers.iter().map(|peer| subscribed(peer.url("/c"))));
    let restored = Restored {
        subscriptions,
        ..Restored::default()
    };
    let running = start_with(restored, |settings| {
        settings.timeout = TIMEOUT;
        settings.concurrent_deliveries = 4;
    })
    .await;
    // The first, and one after it while the others are tried again.
    for seq in 1..=2 {
        let begun = Instant::now();
        running.send(running.notification(seq)).unwrap();
        heard(&mut peers, begun).await;
    }
}

impl Running {
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

#[tokio::test]
async fn what_waits_for_the_limit_of_one_address_closes_the_queue_to_nobody() {
    let mut victim = Peer::start(|_| say("404 Not Found", "", "")).await;
    let mut peers = honest(1).await;
    let mut running = start_with(Restored::default(), |settings| {
        // Behind a proxy that says who asks.
        settings.trusted_proxies = vec![parse_network("127.0.0.0/8").unwrap()];
        settings.limits.set_requests_per_minute(10);
        settings.limits.verifications.in_all = 40;
        look_up(settings, |_| vec![IpAddr::from([127, 0, 0, 1])]);
    })
    .await;
    let begun = Instant::now();
    // Ten are verified at once, and more wait than the queue holds: one is refused, or some gave up waiting.
    let mut was_full = false;
    for n in 0..60 {
        let callback = callback(&victim, &format!("n{n}"), "/c");
        match running
            .ask_as(&callback, &by(&format!("9.9.{n}.1")))
            .await
            .0
        {
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
    let late = Instant::now();
    let callback = peers[0].url("/c");
    while running.ask_as(&callback, &by("8.8.8.8")).await.0 != 202 {
        assert!(late.elapsed() < Duration::from_secs(3), "still full");
        tokio::time::sleep(Duration::from_millis(400)).await; // poll: fewer than the requester may
    }
    heard(&mut peers, late).await;
    running.until_subscribed(&callback).await;
    // Names of one address make as many requests to it as one host may, and no more.
    for _ in 0..10 {
        victim.next().await;
    }
    let asked = 10 + std::iter::from_fn(|| victim.unseen()).count() as u64;
    assert!(asked <= 11 + begun.elapsed().as_secs() / 6, "{asked}");
}

#[tokio::test]
async fn while_the_queue_is_full_a_verification_is_tried_once() {
    let port = free_address().await.port();
    for (in_all, most) in [(1, 1), (100, 3)] {
        let tried = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tried);
        let running = start_with(Restored::default(), |settings| {
            let counted = Arc::clone(&counted);
            settings.limits.verifications.in_all = in_all;
            look_up(settings, move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
                vec![IpAddr::from([127, 0, 0, 1])]
            });
        })
        .await;
        let callback = format!("http://nobody.example:{port}/c");
        assert_eq!(running.ask("subscribe", &callback, "").await.0, 202);
        let is_given_up = |status: &HubStatus| status.counts.verifications.failed > 0;
        running.until(is_given_up).await;
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
        running.subscribed().await;
    }
}

#[tokio::test]
async fn a_subscriber_that_is_verified_again_gets_pending_deliveries_at_once() {
    let mut peer = Peer::start(willing).await;
    let progress = DeliveryProgress {
        attempts: 9,
        next_try: Some(Timestamp::now() + SignedDuration::from_mins(15)),
        ..DeliveryProgress::default()
    };
    let mut running = start_with(pending(peer.url("/c"), progress), |_| {}).await;
    let begun = Instant::now();
    assert_eq!(running.ask("subscribe", &peer.url("/c"), "").await.0, 202);
    assert!(peer.next().await.line().starts_with("GET "));
    assert_eq!(peer.next().await.body, b"1");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    // It is saved too that nothing has to be waited for.
    running.until_subscribed(&peer.url("/c")).await;
    assert_eq!(running.progress().await, DeliveryProgress::default());
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
    let progress = DeliveryProgress {
        attempts: 99,
        ..DeliveryProgress::default()
    };
    let mut running = start_with(pending(peer.url("/c"), progress), |_| {}).await;
    assert_eq!(peer.next().await.body, b"1");
    running.ask("subscribe", &peer.url("/c"), "").await;
    running.until_subscribed(&peer.url("/c")).await;
    assert_eq!(running.progress().await, DeliveryProgress::default());
    let failed = running.progress().await;
    assert_eq!((failed.heard, failed.attempts), (RelayId(0), 1));
}

/// Two hang, the third waits, and there is one slot.
#[tokio::test]
async fn what_the_hub_itself_cuts_off_is_not_given_up() {
    let mut subscriptions = Vec::new();
    for host in 1..=3 {
        let hanging = hanging(&format!("127.0.4.{host}:0")).await;
        let (subscription, mut progress) = subscribed(hanging.url("/c"));
        progress.attempts = 99;
        subscriptions.push((subscription, progress));
    }
    let restored = Restored {
        subscriptions,
        relays: vec![saved_relay(1)],
    };
    let mut running = start_with(restored, |settings| {
        settings.timeout = TIMEOUT;
        settings.concurrent_deliveries = 1;
    })
    .await;
    let cut_off = running.progress().await;
    assert_eq!((cut_off.heard, cut_off.attempts), (RelayId(0), 100));
}

/// A callback at a host of its own.
fn callback(peer: &Peer, host: &str, path: &str) -> String {
    format!("http://{host}.example:{}{path}", peer.address.port())
}

/// The header of a proxy that names the client.
fn by(address: &str) -> String {
    format!("X-Forwarded-For: {address}\r\n")
}

impl Running {
    /// The status, what follows `Retry-After`, and the body.
    async fn ask_as(&self, callback: &str, header: &str) -> (u16, Option<u64>, String) {
        let request = form_request("/hub", &form("subscribe", callback, ""), header);
        read(exchange(self.address, &request).await)
    }
}

fn read((head, body): (String, Vec<u8>)) -> (u16, Option<u64>, String) {
    let retry_after = head.to_lowercase();
    let retry_after = retry_after
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "));
    let retry_after = retry_after.map(|seconds| seconds.parse().unwrap());
    (status(&head), retry_after, String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn subscriptions_of_a_host_those_of_an_earlier_run_too_are_bounded_and_may_be_renewed_and_ended()
 {
    let peer = Peer::start(willing).await;
    let earlier = callback(&peer, "a", "/1");
    let restored = Restored {
        subscriptions: vec![(subscription(&earlier, 300), DeliveryProgress::default())],
        relays: Vec::new(),
    };
    let mut running = start_with(restored, |settings| {
        look_up(settings, |_| vec![IpAddr::from([127, 0, 0, 1])]);
        settings.limits.subscriptions.per_host = 2;
    })
    .await;
    let second = callback(&peer, "a", "/2");
    running.subscribe(&second).await;
    let third = callback(&peer, "A", "/3");
    let words = "too many subscriptions for callbacks on this host\n".to_owned();
    assert_eq!(running.ask_as(&third, "").await, (429, Some(3_600), words));
    running.subscribe(&callback(&peer, "b", "/1")).await;
    // Those there are may be renewed, and ended; that makes room.
    running.subscribe(&earlier).await;
    assert_eq!(running.ask("unsubscribe", &second, "").await.0, 202);
    assert_eq!(running.record().await, unsubscribed(&second));
    running.subscribe(&third).await;
}

#[tokio::test]
async fn a_client_that_asks_too_often_must_wait_and_a_trusted_proxy_names_it() {
    let bad = "http://10.0.0.1/";
    let running = start_with(Restored::default(), |settings| {
        settings.trusted_proxies = vec![parse_network("127.0.0.0/8").unwrap()];
        settings.limits.requests_per_minute = 2;
    })
    .await;
    // What a stranger writes before the proxy does makes it no other stranger.
    for (header, want) in [
        (by("9.9.9.9"), 403),
        (by("8.8.8.8, 9.9.9.9"), 403),
        (by("7.7.7.7, 9.9.9.9"), 429),
        (by("8.8.8.8"), 403),
        ("Forwarded: for=9.9.9.9\r\n".to_owned(), 429),
    ] {
        let (status, retry_after, words) = running.ask_as(bad, &header).await;
        assert_eq!(status, want, "{header}");
        let is_told = words == "too many requests from your address\n";
        assert_eq!(
            [is_told, retry_after.is_some()],
            [want == 429; 2],
            "{words}"
        );
    }
    // What a proxy says that is not trusted is not believed: all are one client.
    let running = start_with(Restored::default(), |settings| {
        settings.trusted_proxies = vec![parse_network("10.0.0.0/8").unwrap()];
        settings.limits.requests_per_minute = 2;
    })
    .await;
    for (address, want) in [("9.9.9.9", 403), ("8.8.8.8", 403), ("7.7.7.7", 429)] {
        assert_eq!(running.ask_as(bad, &by(address)).await.0, want);
    }
}

#[tokio::test]
async fn behind_a_unix_socket_the_proxy_names_the_client() {
    let running = start_with(Restored::default(), |settings| {
        settings.limits.requests_per_minute = 1;
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http.sock");
    let listener = Listener::Unix(UnixListener::bind(&path).unwrap());
    serve_at(listener, &Topics::new(|_| {}), Some(running.hub.clone()));
    for (header, want) in [
        (by("9.9.9.9"), 403),
        (by("9.9.9.9"), 429),
        (by("8.8.8.8"), 403),
        // One that does not say holds nobody back.
        (String::new(), 403),
        (String::new(), 403),
    ] {
        let stream = UnixStream::connect(&path).await.unwrap();
        let request = form_request("/hub", &form("subscribe", "http://10.0.0.1/", ""), &header);
        let (status, _, _) = read(exchange_on(stream, &request).await);
        assert_eq!(status, want, "{header}");
    }
}

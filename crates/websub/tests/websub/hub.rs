//! The embedded hub against callbacks that confirm, refuse, hang and lie. Tests here and beside the decisions name the
//! clauses of the WebSub Recommendation of 2018-01-23 that they try.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use resourcesync::uri::{Hub, Topic};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use websub::http::BoxedFn;
use websub::http::server::Listener;
use websub::hub::delivery::http::RelayStore;
use websub::hub::http::{EmbeddedHub, EmbeddedHubSettings, HubSetup};
use websub::hub::published_topics::BodyDigest;
use websub::hub::published_topics::http::HubTopics;
use websub::hub::request::CallbackPolicy;
use websub::hub::subscriptions::view::HubStatus;
use websub::hub::{
    Callback, DeliveryProgress, HubRecord, Relay, RelayId, RelaySize, SavedHub, SavedTopicRelays,
    Subscription, SubscriptionKey,
};
use websub::subscriber::{CallbackKey, HttpSubscriber, SignatureCheck};
use websub::topics::http::Topics;

use crate::support::{
    Peer, Say, Seen, ask, exchange, form_request, page, post_form, say, serve_at, soon, status,
    to_relay,
};

const TOPIC: &str = "https://e.org/set1/framework/";
const TOPIC_IN_FORM: &str = "https%3A%2F%2Fe.org%2Fset1%2Fframework%2F";

mod delivery;
mod hostile;
mod load;
mod watching;

/// A running hub at `/hub`, and its records.
struct Running {
    hub: Arc<EmbeddedHub>,
    url: Hub,
    address: std::net::SocketAddr,
    records: mpsc::UnboundedReceiver<HubRecord>,
    saved: Saved,
}

/// The notifications of the state file.
type Saved = Arc<Mutex<BTreeMap<RelayId, Relay>>>;

/// The state of an earlier run.
#[derive(Default)]
struct Restored {
    subscriptions: Vec<(Subscription, DeliveryProgress)>,
    relays: Vec<Relay>,
}

impl Restored {
    fn saved(self) -> (SavedHub, Saved) {
        let relays = self.relays.into_iter();
        let relays = BTreeMap::from_iter(relays.map(|relay| (relay.id, relay)));
        let pending = relays.values().map(|relay| RelaySize {
            id: relay.id,
            size: relay.body.len() as u64,
        });
        let last = relays.values().next_back();
        let topics = last.map(|last| SavedTopicRelays {
            topic: last.topic.clone(),
            relays: pending.collect(),
            last: BodyDigest::of(&last.body),
        });
        let saved = SavedHub {
            subscriptions: self.subscriptions,
            topics: topics.into_iter().collect(),
        };
        (saved, Arc::new(Mutex::new(relays)))
    }
}

async fn start(restored: Restored) -> Running {
    start_with(restored, |_| {}).await
}

async fn start_with(restored: Restored, set: impl Fn(&mut EmbeddedHubSettings)) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = Hub::new(format!("http://{address}/hub"));
    let topics = Topics::new(|_| {});
    topics.serve_page(page(TOPIC, b""));
    let (sender, records) = mpsc::unbounded_channel();
    let mut settings = EmbeddedHubSettings::new(url.clone());
    settings.policy = CallbackPolicy::on_this_machine();
    settings.timeout = Duration::from_secs(3);
    set(&mut settings);
    let record = move |records: Vec<HubRecord>| {
        for record in records {
            let _ = sender.send(record);
        }
    };
    let prepared = HubSetup::new(settings).unwrap();
    let (restored, saved) = restored.saved();
    let hub = EmbeddedHub::start(
        prepared,
        restored,
        RelayStore::in_memory(&saved),
        HubTopics::Served(topics.clone()),
        websub::http::Clock::start(None),
        record,
    );
    serve_at(Listener::Tcp(listener), &topics, Some(hub.clone()));
    Running {
        hub,
        url,
        address,
        records,
        saved,
    }
}

impl Running {
    async fn ask(&self, mode: &str, callback: &str, more: &str) -> (u16, String) {
        post_form(self.address, "/hub", &form(mode, callback, more)).await
    }

    async fn subscribe(&mut self, callback: &str) -> Subscription {
        let answer = self.ask("subscribe", callback, "").await;
        assert_eq!(answer, (202, String::new()));
        self.subscribed().await
    }

    /// Waits for the record of a subscription.
    async fn subscribed(&mut self) -> Subscription {
        match self.record().await {
            HubRecord::Subscribed(subscription, _) => subscription,
            other => panic!("{other:?}"),
        }
    }

    async fn record(&mut self) -> HubRecord {
        soon(self.records.recv()).await.expect("the hub lives")
    }

    /// Waits for the record of an attempt.
    async fn progress(&mut self) -> DeliveryProgress {
        match self.record().await {
            HubRecord::Progressed(_, progress) => progress,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the hub stands as wanted.
    async fn until(&self, is_wanted: impl Fn(&HubStatus) -> bool) -> HubStatus {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let status = self.hub.status(Timestamp::now());
            if is_wanted(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{status:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await; // poll: how the hub stands is told to who asks
        }
    }

    fn send(&self, notification: Relay) -> Option<Relay> {
        let relay = self.hub.number_relay(notification);
        self.dispatch(relay.iter().cloned().collect());
        relay
    }

    fn dispatch(&self, relays: Vec<Relay>) {
        let saved = relays.iter().map(|relay| (relay.id, relay.clone()));
        self.saved.lock().unwrap().extend(saved);
        self.hub.dispatch(relays);
    }

    fn notification(&self, seq: u64) -> Relay {
        Relay {
            body: format!("<urlset>{seq}</urlset>").into_bytes().into(),
            ..to_relay(seq)
        }
    }
}

fn form(mode: &str, callback: &str, more: &str) -> String {
    let callback = url::form_urlencoded::byte_serialize(callback.as_bytes()).collect::<String>();
    format!("hub.mode={mode}&hub.topic={TOPIC_IN_FORM}&hub.callback={callback}{more}")
}

/// Confirms every verification and accepts every delivery.
fn willing(seen: &Seen) -> Say {
    let challenge = seen.parameter("hub.challenge").unwrap_or_default();
    say("200 OK", "", &challenge)
}

/// Starts a subscriber that confirms every verification, and answers each delivery so.
async fn subscriber(delivered: impl Fn() -> Say + Send + Sync + 'static) -> Peer {
    Peer::start(move |seen| match seen.parameter("hub.challenge") {
        Some(_) => willing(seen),
        None => delivered(),
    })
    .await
}

/// Looks names up with this.
fn look_up(
    settings: &mut EmbeddedHubSettings,
    addresses: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static,
) {
    settings.resolver = Some(Arc::new(BoxedFn(Box::new(addresses))));
}

/// A subscription that an earlier run saved, with the seconds that are left of its lease.
fn subscription(callback: impl AsRef<str>, seconds: i64) -> Subscription {
    Subscription {
        topic: Topic::new(TOPIC),
        callback: Callback::new(callback.as_ref()),
        secret: None,
        expires: Timestamp::now() + SignedDuration::from_secs(seconds),
        requester: None,
    }
}

/// A notification that an earlier run saved, whose body is its number.
fn saved_relay(id: u64) -> Relay {
    Relay {
        id: RelayId(id),
        body: id.to_string().into_bytes().into(),
        ..to_relay(id)
    }
}

/// The record that a subscriber has received a notification.
fn heard(subscription: &Subscription, heard: RelayId) -> HubRecord {
    let progress = DeliveryProgress {
        heard,
        ..DeliveryProgress::default()
    };
    HubRecord::Progressed(subscription.key(), progress)
}

fn key(callback: &str) -> SubscriptionKey {
    SubscriptionKey {
        topic: Topic::new(TOPIC),
        callback: Callback::new(callback),
    }
}

fn unsubscribed(callback: &str) -> HubRecord {
    HubRecord::Unsubscribed(key(callback))
}

/// A request that was answered with 202 is verified, if not by this run then by the next.
#[tokio::test]
async fn requests_that_a_run_did_not_verify_are_verified_by_the_next() {
    let asked = AtomicUsize::new(0);
    let mut peer = Peer::start(move |seen| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Say::Hang(String::new()),
        _ => willing(seen),
    })
    .await;
    let mut running = start(Restored::default()).await;
    let callback = peer.url("/c");
    assert_eq!(running.ask("subscribe", &callback, "").await.0, 202);
    peer.next().await;
    running.hub.drain().await;
    // It is served until the other work of the process has ended.
    assert_eq!(running.ask("unsubscribe", &callback, "").await.0, 202);
    running.hub.save_unverified();
    let HubRecord::Unverified(mut unverified) = running.record().await else {
        panic!("they are recorded");
    };
    assert_eq!(unverified.len(), 2);
    // A topic that the next run does not have.
    let (mut gone, request) = unverified[0].clone();
    gone.topic = Topic::new("https://e.org/gone");
    unverified.insert(0, (gone, request));

    let mut next = start(Restored::default()).await;
    next.hub.resume_verifications(unverified);
    assert_eq!(next.record().await, HubRecord::Unverified(Vec::new()));
    let (mut told, denied) = (peer.next().await, Some("denied".to_owned()));
    while told.parameter("hub.mode") != denied {
        told = peer.next().await;
    }
    let gone = Some("https://e.org/gone".to_owned());
    assert_eq!(told.parameter("hub.topic"), gone);
    assert_eq!(next.subscribed().await.key(), key(&callback));
    assert_eq!(next.record().await, unsubscribed(&callback));
}

/// WebSub 5.1 and 5.3.1; Framework Notification 4.4.
#[tokio::test]
async fn a_subscriber_receives_what_is_relayed_until_it_unsubscribes() {
    let mut running = start(Restored::default()).await;
    let subscriber = HttpSubscriber::bind("127.0.0.1:0".parse().unwrap(), None)
        .await
        .unwrap();
    let topic = Topic::new(TOPIC);
    let lease = Duration::from_secs(600);
    let key = CallbackKey::random();
    let (mut ours, mut received) = subscriber.open_callback(&key, &topic);
    subscriber.serve();
    let granted = soon(subscriber.subscribe(&mut ours, &running.url, &topic, lease))
        .await
        .unwrap();
    assert_eq!(granted, Some(lease));
    let subscription = running.subscribed().await;
    let callback = format!("http://{}/{}", subscriber.address, key.id);
    assert_eq!(subscription.callback.as_str(), callback);
    let left = subscription.expires.duration_since(Timestamp::now());
    assert!((595..=600).contains(&left.as_secs()), "{left}");

    for seq in 1..=3 {
        let relay = running.send(running.notification(seq)).unwrap();
        let Some(SignatureCheck::Notification(notification)) = soon(received.recv()).await else {
            panic!("it is signed")
        };
        assert_eq!(notification.self_uri, Some(topic.clone()));
        assert_eq!(notification.body, &*running.notification(seq).body);
        notification.acknowledge();
        assert_eq!(running.record().await, heard(&subscription, relay.id));
        let ended = HubRecord::Ended(topic.clone(), relay.id);
        assert_eq!(running.record().await, ended);
    }

    soon(subscriber.unsubscribe(&mut ours, &running.url, &topic))
        .await
        .unwrap();
    assert_eq!(running.record().await, unsubscribed(&callback));
    assert_eq!(running.hub.number_relay(running.notification(4)), None);
}

/// WebSub 5.1 and 5.1.2.
#[tokio::test]
async fn requests_that_cannot_be_meant_are_refused_in_plain_text() {
    let running = start(Restored::default()).await;
    let unknown =
        "hub.mode=subscribe&hub.topic=http%3A%2F%2Fx&hub.callback=http%3A%2F%2F127.0.0.1%2F";
    let inside = &form("subscribe", "http://10.0.0.1/", "");
    let (ping, long) = ("hub.mode=publish&hub.topic=t", &*"x".repeat(20_000));
    let not_there = "hub.callback is at an address that this hub does not deliver to";
    let own_only =
        "this hub relays the notifications of its own Source only; it takes none from others";
    for (form, want, words) in [
        (unknown, 404, "hub.topic is not a topic of this hub"),
        ("hub.mode=subscribe", 400, "hub.topic is missing"),
        (inside, 403, not_there),
        (ping, 403, own_only),
        (long, 413, "the body is too large"),
    ] {
        let (head, body) = exchange(running.address, &form_request("/hub", form, "")).await;
        let words = format!("{words}\n");
        assert_eq!((status(&head), &*body), (want, words.as_bytes()));
        let is_plain = head.to_lowercase().contains("content-type: text/plain");
        assert!(is_plain, "{head}");
    }
    let (head, _) = ask(running.address, "GET", "/hub", "").await;
    assert_eq!(status(&head), 405);
    assert!(head.to_lowercase().contains("allow: post"), "{head}");
    let (head, _) = ask(running.address, "POST", "/hub", "Content-Length: 0\r\n").await;
    assert_eq!(status(&head), 415);
}

/// WebSub 5.1.1, 5.1.2 and 5.3.
#[tokio::test]
async fn a_topic_that_is_spelt_otherwise_is_found_and_echoed_even_after_a_broken_connection() {
    let asked = AtomicUsize::new(0);
    let mut peer = Peer::start(move |seen| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Say::Last(String::new()),
        _ => willing(seen),
    })
    .await;
    let mut running = start(Restored::default()).await;
    let topic = "https%3A%2F%2Fe.org%2Fset1%2F%2566ramework%2F";
    let callback = format!("hub.callback=http%3A%2F%2F{}%2Fc", peer.address);
    let form = format!("hub.mode=subscribe&hub.topic={topic}&{callback}");
    assert_eq!(post_form(running.address, "/hub", &form).await.0, 202);
    for _ in 0..2 {
        let asked = peer.next().await.parameter("hub.topic");
        assert_eq!(asked.as_deref(), Some("https://e.org/set1/%66ramework/"));
    }
    let subscription = running.subscribed().await;
    assert_eq!(subscription.topic, Topic::new(TOPIC));
}

/// WebSub 5.1 and 5.3.
#[tokio::test]
async fn what_a_subscriber_has_stays_until_it_confirms_otherwise() {
    let asked = AtomicUsize::new(0);
    let peer = Peer::start(move |seen| match asked.fetch_add(1, Ordering::SeqCst) {
        0 | 5 => willing(seen),
        _ => say("404 Not Found", "", ""),
    })
    .await;
    let mut running = start(Restored::default()).await;
    let callback = peer.url("/c");
    let first = running.subscribe(&callback).await;
    // Forged: the subscriber did not ask for these.
    for _ in 0..2 {
        for (mode, more) in [("unsubscribe", ""), ("subscribe", "&hub.secret=forged")] {
            assert_eq!(running.ask(mode, &callback, more).await.0, 202);
        }
    }
    assert!(running.hub.number_relay(running.notification(1)).is_some());
    // In order behind the forged ones, so none of those was believed if this is the next record.
    let renewed = running.subscribe(&callback).await;
    assert_eq!(renewed.secret, None);
    assert!(renewed.expires > first.expires);
    assert_eq!(renewed.key(), first.key(), "it replaced the first");
}

//! Discovery and subscriptions as `listen` makes them, with hubs of other makes.

use std::time::Duration;

use resourcesync::uri::{Hub, Topic, Uri};
use websub::hub::delivery::signature;
use websub::secret::Secret;
use websub::subscriber::retrieve::{AllowedOrigins, RetrieveError, Retriever, discover};
use websub::subscriber::{
    CallbackKey, HttpSubscriber, HubDecision, SignatureCheck, SubscribeError, SubscriptionHandle,
};
use websub::topics::http::Topics;

use crate::support::{
    BODY, Peer, Say, exchange, free_address, page, parameter, public, say, soon, status,
};

#[tokio::test]
async fn our_own_topics_are_discovered() {
    let topics = Topics::new(|_| {});
    let address = public(&topics, None).await;
    let topic = format!("http://{address}/t?a=%41");
    topics.serve_page(page(&topic, BODY));
    let found = discover(&Topic::new(topic.as_str())).await.unwrap();
    assert_eq!(found.self_uri, Topic::new(topic));
    let hubs = ["https://hub1.org/", "https://hub2.org/?k=1"].map(Hub::new);
    assert_eq!(found.hubs, hubs);
    let list = Uri::parse("https://e.org/set1/cl.xml").ok();
    assert_eq!(found.capability_list, list);
}

#[tokio::test]
async fn documents_are_retrieved_whole_and_only_from_permitted_origins() {
    let other = Peer::start(|_| say("200 OK", "", "other")).await;
    let elsewhere = other.url("/list");
    let location = format!("Location: {elsewhere}\r\n");
    let peer = Peer::start(move |seen| match seen.line() {
        "GET /moved HTTP/1.1" => say("302 Found", "Location: /list\r\n", ""),
        "GET /away HTTP/1.1" => say("302 Found", &location, ""),
        "GET /none HTTP/1.1" => say("404 Not Found", "", ""),
        _ => say("200 OK", "", "<urlset/>"),
    })
    .await;
    let topic = peer.url("/t");
    let retriever = Retriever::new(AllowedOrigins::of([topic.as_str()])).unwrap();
    for path in ["/list", "/moved"] {
        assert_eq!(retriever.get(&peer.url(path)).await.unwrap(), b"<urlset/>");
    }
    for path in ["/none", "/away"] {
        let error = retriever.get(&peer.url(path)).await.unwrap_err();
        assert!(matches!(error, RetrieveError::Status { .. }), "{error}");
        assert!(!error.is_temporary(), "{error}");
    }
    let error = retriever.get(&elsewhere).await.unwrap_err();
    let is_of_origin = matches!(error, RetrieveError::OtherOrigin { .. });
    assert!(is_of_origin, "{error}");
}

#[tokio::test]
async fn a_server_that_dislikes_head_is_asked_by_get_and_what_is_no_topic_says_why() {
    let mut peer = Peer::start(|seen| match seen.line() {
        "GET /t HTTP/1.1" => say(
            "200 OK",
            "Link: </hub> ; rel=hub\r\nLink: <https://E.org/%7et>;rel=\"self up\"\r\n",
            "",
        ),
        "HEAD /none HTTP/1.1" | "GET /none HTTP/1.1" => say("404 Not Found", "", ""),
        "HEAD /t HTTP/1.1" | "GET /head-only HTTP/1.1" => say("405 Method Not Allowed", "", ""),
        _ => say("200 OK", "Link: <http://e.org/t>; rel=self\r\n", ""),
    })
    .await;
    for (path, self_uri, hubs) in [
        // Byte for byte.
        ("/t", "https://E.org/%7et", vec![Hub::new(peer.url("/hub"))]),
        ("/page", "http://e.org/t", Vec::new()),
        ("/head-only", "http://e.org/t", Vec::new()),
    ] {
        let found = discover(&Topic::new(peer.url(path))).await.unwrap();
        assert_eq!(found.self_uri, Topic::new(self_uri), "{path}");
        assert_eq!(found.hubs, hubs, "{path}");
    }
    assert_eq!(peer.next().await.line(), "HEAD /t HTTP/1.1");
    let error = discover(&Topic::new(peer.url("/none"))).await.unwrap_err();
    assert!(matches!(error, RetrieveError::Status { .. }), "{error}");
    let nobody = Topic::new(format!("http://{}/", free_address().await));
    let error = discover(&nobody).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

/// A subscriber with a callback.
struct Subscribing {
    destination: HttpSubscriber,
    subscription: SubscriptionHandle,
    received: tokio::sync::mpsc::Receiver<SignatureCheck>,
    hub: Hub,
    topic: Topic,
}

impl Subscribing {
    /// With a hub that answers each request so.
    async fn new(answer: Say) -> (Subscribing, Peer) {
        let peer = Peer::start(move |_| answer.clone()).await;
        let hub = Hub::new(peer.url("/hub"));
        let address = "127.0.0.1:0".parse().unwrap();
        let destination = HttpSubscriber::bind(address, None).await.unwrap();
        let topic = Topic::new("http://e.org/t");
        let key = CallbackKey {
            id: "unguessable".to_owned(),
            secret: Secret::new("shared"),
        };
        let (subscription, received) = destination.open_callback(&key, &topic);
        destination.serve();
        let subscribing = Subscribing {
            destination,
            subscription,
            received,
            hub,
            topic,
        };
        (subscribing, peer)
    }

    fn callback(&self) -> String {
        format!("http://{}/unguessable", self.destination.address)
    }

    async fn subscribe(&mut self) -> Result<Option<Duration>, SubscribeError> {
        let lease = Duration::from_secs(3600);
        let (hub, topic) = (&self.hub, &self.topic);
        let subscribing = self
            .destination
            .subscribe(&mut self.subscription, hub, topic, lease);
        subscribing.await
    }
}

/// Sends what a hub would to a callback.
async fn call(callback: &str, verb: &str, query: &str, header: &str, body: &str) -> (u16, String) {
    let url = url::Url::parse(callback).unwrap();
    let address = url.socket_addrs(|| None).unwrap()[0];
    let request = format!(
        "{verb} {}{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}Content-Length: {}\r\n\r\n{body}",
        url.path(),
        body.len()
    );
    let (head, body) = exchange(address, &request).await;
    (status(&head), String::from_utf8(body).unwrap())
}

const TOPIC: &str = "hub.topic=http%3A%2F%2Fe.org%2Ft";

#[tokio::test]
async fn only_what_was_asked_for_is_confirmed() {
    let (mut this, mut requests) = Subscribing::new(say("202 Accepted", "", "")).await;
    let callback = this.callback();
    let as_a_hub = async {
        let form = requests.next().await.body;
        let value = |name| parameter(&form, name);
        assert_eq!(value("hub.mode").as_deref(), Some("subscribe"));
        assert_eq!(value("hub.topic").as_deref(), Some("http://e.org/t"));
        assert_eq!(value("hub.lease_seconds").as_deref(), Some("3600"));
        assert_eq!(value("hub.secret").as_deref(), Some("shared"));
        assert_eq!(value("hub.callback").as_deref(), Some(callback.as_str()));
        let about = format!("{TOPIC}&hub.challenge=42&hub.lease_seconds=60");
        for (callback, query) in [
            (callback.clone(), format!("?hub.mode=unsubscribe&{about}")),
            (
                callback.clone(),
                "?hub.mode=subscribe&hub.topic=other&hub.challenge=42".into(),
            ),
            (callback.clone(), format!("?hub.mode=subscribe&{TOPIC}")),
            (
                callback.clone() + "x",
                format!("?hub.mode=subscribe&{about}"),
            ),
        ] {
            let (status, _) = call(&callback, "GET", &query, "", "").await;
            assert_eq!(status, 404, "{query}");
        }
        let query = format!("?hub.mode=subscribe&{about}");
        let answered = call(&callback, "GET", &query, "", "").await;
        assert_eq!(answered, (200, "42".to_owned()));
    };
    let (granted, ()) = soon(async { tokio::join!(this.subscribe(), as_a_hub) }).await;
    assert_eq!(granted.unwrap(), Some(Duration::from_secs(60)));
}

#[tokio::test]
async fn only_signed_notifications_are_accepted_and_acknowledged_only_by_their_receiver() {
    let (mut this, _) = Subscribing::new(say("202 Accepted", "", "")).await;
    let callback = this.callback();
    let signed = signature(&Secret::new("shared"), b"<urlset/>");
    for (signature, want) in [
        ("", None),
        ("X-Hub-Signature: sha1=00\r\n", Some("sha1=00".to_owned())),
    ] {
        // Acknowledged without effect, as WebSub section 7.1.2 permits.
        let answered = call(&callback, "POST", "", signature, "<urlset/>").await;
        assert_eq!(answered.0, 202, "{signature}");
        let Some(SignatureCheck::BadSignature { signature }) = soon(this.received.recv()).await
        else {
            panic!("{signature}")
        };
        assert_eq!(signature, want);
    }
    let header = format!("X-Hub-Signature: {signed}\r\nLink: <http://e.org/t> ; rel=self\r\n");
    let delivering = call(&callback, "POST", "", &header, "<urlset/>");
    let receiving = async {
        let Some(SignatureCheck::Notification(delivery)) = this.received.recv().await else {
            panic!("it is signed")
        };
        assert_eq!(delivery.self_uri, Some(Topic::new("http://e.org/t")));
        assert_eq!(&*delivery.body, b"<urlset/>");
        delivery.acknowledge();
    };
    let (answered, ()) = soon(async { tokio::join!(delivering, receiving) }).await;
    assert_eq!(answered.0, 200);
    let unknown = callback.clone() + "x";
    let unknown = call(&unknown, "POST", "", &header, "<urlset/>").await;
    assert_eq!(unknown.0, 410);

    let header = format!("X-Hub-Signature: {signed}\r\n");
    let delivering = call(&callback, "POST", "", &header, "<urlset/>");
    let dropping = async {
        let Some(SignatureCheck::Notification(bare)) = this.received.recv().await else {
            panic!("it is signed, and needs no links")
        };
        assert_eq!(bare.self_uri, None);
    };
    let (answered, ()) = soon(async { tokio::join!(delivering, dropping) }).await;
    assert_eq!(answered.0, 503);
    drop(this.received);
    let answered = call(&callback, "POST", "", &header, "<urlset/>").await;
    assert_eq!(answered.0, 503);
}

#[tokio::test]
async fn a_hub_that_refuses_or_denies_is_reported() {
    let (mut this, _) = Subscribing::new(say("400 Bad Request", "", "no such shared topic")).await;
    let error = this.subscribe().await.unwrap_err();
    let SubscribeError::Refused {
        status, excerpt, ..
    } = error
    else {
        panic!("{error}")
    };
    // The secret is masked.
    assert_eq!((status, &*excerpt), (400, "no such *** topic"));

    let (mut this, mut requests) = Subscribing::new(say("204 No Content", "", "")).await;
    let callback = this.callback();
    let query = format!("?hub.mode=denied&{TOPIC}&hub.reason=too+many");
    let as_a_hub = async {
        requests.next().await;
        assert_eq!(call(&callback, "GET", &query, "", "").await.0, 200);
    };
    let (answered, ()) = soon(async { tokio::join!(this.subscribe(), as_a_hub) }).await;
    let Err(SubscribeError::Denied { reason, .. }) = answered else {
        panic!("{answered:?}")
    };
    assert_eq!(reason, "too many");

    // At any time later too.
    assert_eq!(call(&callback, "GET", &query, "", "").await.0, 200);
    let decision = soon(this.subscription.decisions.recv()).await;
    assert_eq!(decision, Some(HubDecision::Denied("too many".to_owned())));
}

#[tokio::test]
async fn the_public_callback_is_told_and_a_closed_subscriber_stops_listening() {
    let mut peer = Peer::start(|_| say("503 Service Unavailable", "", "")).await;
    let hub = Hub::new(peer.url("/hub"));
    let public = "https://me.org/in".parse().unwrap();
    let bound = HttpSubscriber::bind("127.0.0.1:0".parse().unwrap(), Some(public)).await;
    let destination = bound.unwrap();
    let topic = Topic::new("http://e.org/t");
    let key = CallbackKey::random();
    let (mut subscription, _received) = destination.open_callback(&key, &topic);
    destination.serve();
    let lease = Duration::from_secs(1);
    let subscribing = destination.subscribe(&mut subscription, &hub, &topic, lease);
    assert!(subscribing.await.unwrap_err().is_temporary());
    let callback = parameter(&peer.next().await.body, "hub.callback").unwrap();
    let is_ours = callback.starts_with("https://me.org/in/") && callback.len() > 40;
    assert!(is_ours, "{callback}");
    soon(destination.close()).await;
    let refused = tokio::net::TcpStream::connect(destination.address).await;
    assert!(refused.is_err(), "it does not listen any more");
}

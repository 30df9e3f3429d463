//! Discovery and subscriptions as `listen` makes them, with hubs of other makes.

use std::time::Duration;

use rsnotify::http::secret::Secret;
use rsnotify::hub::relay::signature;
use rsnotify::resourcesync::uri::{Hub, Topic, Uri};
use rsnotify::websub::discover::{DiscoverError, discover, document};
use rsnotify::websub::subscribe::{Destination, SubscribeError};
use rsnotify::websub::topics::Topics;

use crate::support::{BODY, Peer, Say, exchange, page, public, say, soon, status};

#[tokio::test]
async fn our_own_topics_are_discovered() {
    let topics = Topics::new(|_| {});
    let address = public(&topics, None).await;
    let topic = format!("http://{address}/t?a=%41");
    topics.serve(page(&topic, BODY));
    let found = discover(&Topic::new(topic.as_str())).await.unwrap();
    assert_eq!(found.self_uri, Topic::new(topic));
    assert_eq!(
        found.hubs,
        [
            Hub::new("https://hub1.org/"),
            Hub::new("https://hub2.org/?k=1")
        ]
    );
    assert_eq!(
        found.capability_list,
        Uri::parse("https://e.org/set1/cl.xml").ok()
    );
}

#[tokio::test]
async fn a_capability_list_that_is_taken_for_a_topic_is_known_as_one() {
    let list = "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
                xmlns:rs=\"http://www.openarchives.org/rs/terms/\"><rs:md capability=\"capabilitylist\"/>\
                <url><loc>https://e.org/t</loc><rs:md capability=\"framework-notification\"/></url></urlset>";
    let peer = Peer::start(move |seen| match seen.line().contains("/cl.xml") {
        true => say("200 OK", "Content-Type: application/xml\r\n", list),
        false => say("200 OK", "", "<html></html>"),
    })
    .await;
    let found = document(&Topic::new(peer.url("/cl.xml"))).await.unwrap();
    assert_eq!(found.channels[0].topic, Topic::new("https://e.org/t"));
    assert_eq!(document(&Topic::new(peer.url("/other"))).await, None);
}

#[tokio::test]
async fn a_server_that_dislikes_head_is_asked_by_get() {
    let mut peer = Peer::start(|seen| match seen.line() {
        "GET /t HTTP/1.1" => say(
            "200 OK",
            "Link: </hub> ; rel=hub\r\nLink: <https://E.org/%7et>;rel=\"self up\"\r\n",
            "",
        ),
        _ => say("405 Method Not Allowed", "", ""),
    })
    .await;
    let found = discover(&Topic::new(peer.url("/t"))).await.unwrap();
    assert_eq!(
        found.self_uri,
        Topic::new("https://E.org/%7et"),
        "byte for byte"
    );
    assert_eq!(found.hubs, [Hub::new(peer.url("/hub"))]);
    assert_eq!(peer.next().await.line(), "HEAD /t HTTP/1.1");
}

#[tokio::test]
async fn a_topic_that_names_no_hub_is_a_topic() {
    let peer = Peer::start(|seen| match seen.line() {
        "GET /head-only HTTP/1.1" => say("405 Method Not Allowed", "", ""),
        _ => say("200 OK", "Link: <http://e.org/t>; rel=self\r\n", ""),
    })
    .await;
    for path in ["/page", "/head-only"] {
        let found = discover(&Topic::new(peer.url(path))).await.unwrap();
        assert_eq!(found.self_uri, Topic::new("http://e.org/t"), "{path}");
        assert_eq!(found.hubs, [], "{path}");
    }
}

#[tokio::test]
async fn what_is_no_topic_says_why() {
    let peer = Peer::start(|seen| match seen.line().contains("/none") {
        true => say("404 Not Found", "", ""),
        false => say("200 OK", "", ""),
    })
    .await;
    let why = |path| {
        let topic = Topic::new(peer.url(path));
        async move { discover(&topic).await.unwrap_err() }
    };
    assert!(matches!(why("/none").await, DiscoverError::Status { .. }));
    let free = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let error = discover(&Topic::new(format!("http://{free}/")))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

/// A subscriber and a hub that answers the request so; also what the hub was told.
async fn subscribing(
    answer: impl Fn() -> Say + Send + Sync + 'static,
) -> (
    Destination,
    Peer,
    Hub,
    tokio::sync::mpsc::Receiver<rsnotify::websub::subscribe::Received>,
) {
    let hub = Peer::start(move |_| answer()).await;
    let url = Hub::new(hub.url("/hub"));
    let address = "127.0.0.1:0".parse().unwrap();
    let (subscriber, received) = Destination::bind(address, None).await.unwrap();
    (subscriber, hub, url, received)
}

fn parameter(form: &[u8], wanted: &str) -> Option<String> {
    url::form_urlencoded::parse(form)
        .find(|(name, _)| name == wanted)
        .map(|(_, value)| value.into_owned())
}

/// Sends what a hub would to a callback.
async fn call(
    callback: &str,
    method: &str,
    query: &str,
    header: &str,
    body: &str,
) -> (u16, String) {
    let url = url::Url::parse(callback).unwrap();
    let address = url.socket_addrs(|| None).unwrap()[0];
    let request = format!(
        "{method} {}{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}Content-Length: {}\r\n\r\n{body}",
        url.path(),
        body.len()
    );
    let (head, body) = exchange(address, &request).await;
    (status(&head), String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn only_what_was_asked_for_is_confirmed_and_only_what_is_signed_is_believed() {
    let (subscriber, mut hub, url, mut received) =
        subscribing(|| say("202 Accepted", "", "")).await;
    let topic = Topic::new("http://e.org/t");
    let lease = Some(Duration::from_secs(3600));
    let secret = Secret::new("shared");
    let subscribing = subscriber.subscribe(&url, &topic, lease, Some(secret.clone()));
    let as_a_hub = async {
        let form = hub.next().await.body;
        let value = |name| parameter(&form, name);
        assert_eq!(value("hub.mode").as_deref(), Some("subscribe"));
        assert_eq!(value("hub.topic").as_deref(), Some("http://e.org/t"));
        assert_eq!(value("hub.lease_seconds").as_deref(), Some("3600"));
        assert_eq!(value("hub.secret").as_deref(), Some("shared"));
        let callback = value("hub.callback").unwrap();
        let about = "hub.topic=http%3A%2F%2Fe.org%2Ft&hub.challenge=42&hub.lease_seconds=60";
        for (callback, query) in [
            (callback.clone(), format!("?hub.mode=unsubscribe&{about}")),
            (
                callback.clone(),
                "?hub.mode=subscribe&hub.topic=other&hub.challenge=42".into(),
            ),
            (
                callback.clone(),
                "?hub.mode=subscribe&hub.topic=http%3A%2F%2Fe.org%2Ft".into(),
            ),
            (
                callback.clone() + "x",
                format!("?hub.mode=subscribe&{about}"),
            ),
        ] {
            assert_eq!(
                call(&callback, "GET", &query, "", "").await.0,
                404,
                "{query}"
            );
        }
        let answered = call(
            &callback,
            "GET",
            &format!("?hub.mode=subscribe&{about}"),
            "",
            "",
        )
        .await;
        assert_eq!(answered, (200, "42".to_owned()));
        callback
    };
    let (granted, callback) = soon(async { tokio::join!(subscribing, as_a_hub) }).await;
    assert_eq!(granted.unwrap(), Some(Duration::from_secs(60)));

    let signed = format!("X-Hub-Signature: {}\r\n", signature(&secret, b"<urlset/>"));
    let forged = signed.replace("sha256", "sha1");
    for (header, want) in [("", 403), (forged.as_str(), 403), (signed.as_str(), 200)] {
        let header = format!("{header}Link: <http://e.org/t> ; rel=self\r\n");
        assert_eq!(
            call(&callback, "POST", "", &header, "<urlset/>").await.0,
            want,
            "{header}"
        );
    }
    let notification = soon(received.recv()).await.unwrap();
    assert_eq!(
        (notification.self_uri, &*notification.body),
        (Some(topic), b"<urlset/>".as_slice())
    );
    assert!(received.try_recv().is_err());
    assert_eq!(
        call(&(callback + "x"), "POST", "", "", "<urlset/>").await.0,
        410
    );
}

#[tokio::test]
async fn a_hub_that_refuses_or_denies_is_reported() {
    let (subscriber, _hub, url, _received) =
        subscribing(|| say("400 Bad Request", "", "no such topic")).await;
    let topic = Topic::new("http://e.org/t");
    let error = subscriber
        .subscribe(&url, &topic, None, None)
        .await
        .unwrap_err();
    let SubscribeError::Refused {
        status: 400,
        excerpt,
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!(excerpt, "no such topic");

    let (subscriber, mut hub, url, _received) = subscribing(|| say("204 No Content", "", "")).await;
    let subscribing = subscriber.subscribe(&url, &topic, None, None);
    let as_a_hub = async {
        let callback = parameter(&hub.next().await.body, "hub.callback").unwrap();
        let query = "?hub.mode=denied&hub.topic=http%3A%2F%2Fe.org%2Ft&hub.reason=too+many";
        assert_eq!(call(&callback, "GET", query, "", "").await.0, 200);
    };
    let (answered, ()) = soon(async { tokio::join!(subscribing, as_a_hub) }).await;
    let Err(SubscribeError::Denied { reason, .. }) = answered else {
        panic!("{answered:?}")
    };
    assert_eq!(reason, "too many");
}

#[tokio::test]
async fn the_public_callback_is_told_and_a_dropped_subscriber_stops_listening() {
    let mut hub = Peer::start(|_| say("503 Service Unavailable", "", "")).await;
    let url = Hub::new(hub.url("/hub"));
    let public = "https://me.org/in".parse().unwrap();
    let bound = Destination::bind("127.0.0.1:0".parse().unwrap(), Some(public)).await;
    let (subscriber, _received) = bound.unwrap();
    let topic = Topic::new("http://e.org/t");
    subscriber
        .subscribe(&url, &topic, None, None)
        .await
        .unwrap_err();
    let callback = parameter(&hub.next().await.body, "hub.callback").unwrap();
    assert!(
        callback.starts_with("https://me.org/in/") && callback.len() > 40,
        "{callback}"
    );
    let mut received = _received;
    drop(subscriber);
    assert_eq!(soon(received.recv()).await, None, "the listener has ended");
}

//! The hub's limits, over the real listener.

use std::net::IpAddr;

use tokio::net::{UnixListener, UnixStream};
use websub::http::server::Listener;
use websub::hub::DeliveryProgress;
use websub::hub::address::parse_network;
use websub::topics::http::Topics;

use crate::hub::{
    Restored, Running, form, look_up, start_with, subscription, unsubscribed, willing,
};
use crate::support::{Peer, exchange, exchange_on, form_request, serve_at, status};

/// A callback at a host of its own.
fn callback(peer: &Peer, host: &str, path: &str) -> String {
    format!("http://{host}.example:{}{path}", peer.address.port())
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
    let by = |address: &str| format!("X-Forwarded-For: {address}\r\n");
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
        ("X-Forwarded-For: 9.9.9.9\r\n", 403),
        ("X-Forwarded-For: 9.9.9.9\r\n", 429),
        ("X-Forwarded-For: 8.8.8.8\r\n", 403),
        // One that does not say holds nobody back.
        ("", 403),
        ("", 403),
    ] {
        let stream = UnixStream::connect(&path).await.unwrap();
        let request = form_request("/hub", &form("subscribe", "http://10.0.0.1/", ""), header);
        let (status, _, _) = read(exchange_on(stream, &request).await);
        assert_eq!(status, want, "{header}");
    }
}

//! Hubs behind a proxy.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use websub::publisher::http::Submitter;
use websub::publisher::settings::{HubProxy, PublishSettings};

use crate::publish::tls::Authority;
use crate::publish::{judged, with_token};
use crate::support::{BODY, Peer, free_address, notification, say, soon};

/// A tunnel to `target`, whatever it is asked to connect to; tells the heads of the requests.
async fn tunnel(target: SocketAddr) -> (HubProxy, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                sender.send(String::from_utf8(head).unwrap()).unwrap();
                let mut target = TcpStream::connect(target).await.unwrap();
                let connected = b"HTTP/1.1 200 Connected\r\n\r\n";
                stream.write_all(connected).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut target).await;
            });
        }
    });
    (HubProxy::Through(url.parse().unwrap()), asked)
}

fn through(proxy: HubProxy, url: &str) -> PublishSettings {
    let mut settings = with_token(url, "hidden");
    settings.proxy = proxy;
    settings
}

#[tokio::test]
async fn a_plain_hub_is_asked_for_by_its_whole_address() {
    // What the proxy answers is what the hub did.
    let mut proxy = Peer::start(|_| say("200 OK", "", "")).await;
    let url = "http://hub.invalid/publish?k=1";
    let address = HubProxy::Through(proxy.url("").parse().unwrap());
    let publisher = Submitter::new(vec![through(address, url)]).unwrap();
    let answer = publisher.submit(&notification(url)).await;
    assert_eq!(judged(&answer), "accepted");
    let seen = proxy.next().await;
    assert_eq!(seen.line(), "POST http://hub.invalid/publish?k=1 HTTP/1.1");
    assert_eq!(seen.header("Host"), ["hub.invalid"]);
    assert_eq!(seen.header("Authorization"), ["Bearer hidden"]);
    assert_eq!(seen.header("Content-Length"), [BODY.len().to_string()]);
    assert_eq!(seen.body, BODY);
}

#[tokio::test]
async fn a_hub_with_tls_is_asked_for_by_its_name_and_trusts_nobody_between() {
    let authority = Authority::new("Us");
    let mut hub = authority.hub(&["hub.invalid"]).start().await;
    let (proxy, mut asked) = tunnel(hub.address).await;
    let url = "https://hub.invalid/publish";
    let mut settings = through(proxy, url);
    settings.ca_pem = Some(authority.pem().into());
    let publisher = Submitter::new(vec![settings]).unwrap();
    let answer = publisher.submit(&notification(url)).await;
    assert_eq!(judged(&answer), "accepted");
    let head = soon(asked.recv()).await.unwrap();
    let is_by_name = head.starts_with("CONNECT hub.invalid:443 HTTP/1.1\r\n");
    let is_silent = !head.contains("Authorization") && !head.contains("hidden");
    assert!(is_by_name && is_silent, "{head}");
    let seen = hub.next().await;
    assert_eq!(seen.header("Authorization"), ["Bearer hidden"]);
    assert_eq!(seen.body, BODY);
}

#[tokio::test]
async fn a_proxy_that_fails_is_no_answer_and_one_that_refuses_is_named() {
    let gone = format!("http://{}", free_address().await);
    let gone = HubProxy::Through(gone.parse().unwrap());
    let strict = Peer::start(|_| say("407 HubProxy Authentication Required", "", "")).await;
    let strict = HubProxy::Through(strict.url("").parse().unwrap());
    for (proxy, url, want) in [
        (
            &gone,
            "http://hub.invalid/",
            "in 8 s: no answer: cannot connect: ",
        ),
        (
            &gone,
            "https://hub.invalid/",
            "in 8 s: no answer: cannot connect through the proxy: failed to create underlying connection: ",
        ),
        (
            &strict,
            "http://hub.invalid/",
            "in 900 s, by an operator: the proxy wants credentials (407)",
        ),
        (
            &strict,
            "https://hub.invalid/",
            "in 8 s: no answer: cannot connect through the proxy: proxy authorization required",
        ),
    ] {
        let mut settings = through(proxy.clone(), url);
        // No system's certificates are needed to find that out.
        settings.ca_pem = Some(Authority::new("Us").pem().into());
        let publisher = Submitter::new(vec![settings]).unwrap();
        let judged = judged(&publisher.submit(&notification(url)).await);
        assert!(judged.starts_with(want), "{url}: {judged}");
    }
}

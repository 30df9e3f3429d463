//! A Destination that finds its hub by the topic's `Link` headers and accepts deliveries.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use resourcesync::payload::Payload;
use tokio::runtime::Runtime;
use url::form_urlencoded;

use crate::support::DEADLINE;
use crate::support::documents::URL;

/// A hub's request at the callback.
enum Asked {
    Intent,
    Delivery(Delivery),
}

/// One notification, as the hub relayed it.
#[derive(Debug)]
pub struct Delivery {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Delivery {
    /// The notification's changes, such as `updated changelist a/changelist.xml`, in order.
    pub fn changes(&self) -> Vec<String> {
        let payload = Payload::parse(&self.body).unwrap();
        let changes = payload.entries.iter().map(|entry| {
            let path = entry.uri.as_str().strip_prefix(URL).unwrap();
            format!("{} {} {path}", entry.change, entry.capability)
        });
        changes.collect()
    }

    pub fn header(&self, name: &str) -> Vec<&str> {
        let values = self.headers.get_all(name).iter();
        values.map(|value| value.to_str().unwrap()).collect()
    }
}

/// A callback on loopback.
pub struct Subscriber {
    runtime: Runtime,
    callback: String,
    asked: Receiver<Asked>,
}

impl Subscriber {
    pub fn start() -> Subscriber {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.unwrap();
        let callback = format!("http://{}/callback", listener.local_addr().unwrap());
        let (sender, asked) = channel();
        let router = Router::new().fallback(call_back).with_state(sender);
        runtime.spawn(async { axum::serve(listener, router).await });
        Subscriber {
            runtime,
            callback,
            asked,
        }
    }

    /// Subscribes to a topic as its headers say, and waits until the hub has asked whether that is meant.
    pub fn subscribe(&self, url: &str) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let page = self.runtime.block_on(client.get(url).send()).unwrap();
        let links = page.headers()["link"].to_str().unwrap();
        let [topic, hub] = ["self", "hub"].map(|relation| {
            let end = format!(">; rel=\"{relation}\"");
            let link = links.split(", ").find_map(|link| link.strip_suffix(&end));
            link.unwrap_or_else(|| panic!("a link {relation} in {links}"))
                .trim_start_matches('<')
        });
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("hub.mode", "subscribe")
            .append_pair("hub.topic", topic)
            .append_pair("hub.callback", &self.callback)
            .finish();
        let request = client.post(hub).body(form);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let answer = self.runtime.block_on(request.send()).unwrap();
        assert_eq!(answer.status(), 202);
        assert!(matches!(
            self.asked.recv_timeout(DEADLINE),
            Ok(Asked::Intent)
        ));
    }

    /// The next notification.
    pub fn delivery(&self) -> Delivery {
        match self.asked.recv_timeout(DEADLINE) {
            Ok(Asked::Delivery(delivery)) => delivery,
            Ok(Asked::Intent) => panic!("it was asked twice whether it means it"),
            Err(error) => panic!("nothing was delivered in time: {error}"),
        }
    }

    /// Takes notifications until each of `wanted` was said, and gives the last one.
    pub fn deliveries_until(&self, wanted: &[String]) -> Delivery {
        let mut left: BTreeSet<&String> = wanted.iter().collect();
        let deadline = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < deadline, "nothing was said of {left:?}");
            let delivery = self.delivery();
            for change in delivery.changes() {
                left.remove(&change);
            }
            if left.is_empty() {
                return delivery;
            }
        }
    }
}

/// Means every subscription, and takes every delivery.
async fn call_back(
    State(asked): State<Sender<Asked>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> String {
    let query = uri.query().unwrap_or_default();
    let challenge = form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == "hub.challenge")
        .map(|(_, challenge)| challenge.into_owned());
    let body = body.into();
    // A test that has ended hears no more.
    let _ = asked.send(match challenge {
        Some(_) => Asked::Intent,
        None => Asked::Delivery(Delivery { headers, body }),
    });
    challenge.unwrap_or_default()
}

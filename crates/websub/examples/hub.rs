//! A topic with a hub, both in memory, the least that somebody can subscribe to: `cargo run --example hub -- 127.0.0.1:8400
//! https://example.org/capabilitylist.xml` publishes each line of its input at `/topic/`, and delivers it to the subscribers
//! at `/hub`, which have their callbacks on this machine.

use std::collections::BTreeMap;
use std::error::Error;
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resourcesync::uri::{Hub, Topic, Uri};
use tokio::net::TcpListener;
use tokio::sync::watch;
use websub::http::Clock;
use websub::http::server::{Listener, ServerLimits};
use websub::hub::delivery::http::RelayStore;
use websub::hub::http::{EmbeddedHub, EmbeddedHubSettings, HubSetup};
use websub::hub::published_topics::http::HubTopics;
use websub::hub::request::CallbackPolicy;
use websub::hub::request::http::serve_public;
use websub::hub::{Callback, HubRecord, Relay, RelayHeaders, RelayId, SavedHub};
use websub::topics::TopicPage;
use websub::topics::http::Topics;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(list)) = (arguments.next(), arguments.next()) else {
        return Err("usage: hub ADDRESS CAPABILITY_LIST".into());
    };
    let listener = TcpListener::bind(address).await?;
    let policy = CallbackPolicy::on_this_machine();
    let mut hub = TopicHub::start(listener, Uri::parse(&list)?, policy, |callback| {
        println!("{callback} subscribed")
    })?;
    println!("lines are published at {}", hub.topic());
    for line in std::io::stdin().lines() {
        hub.publish(line?.into_bytes());
    }
    Ok(())
}

/// A topic with a hub of its own. What it delivers and to whom is in memory, and is forgotten when the program ends.
#[derive(Debug)]
pub struct TopicHub {
    page: TopicPage,
    topics: Arc<Topics>,
    hub: Arc<EmbeddedHub>,
    relays: Arc<Mutex<BTreeMap<RelayId, Relay>>>,
    seq: u64,
}

impl TopicHub {
    /// Serves the topic of a set at `/topic/` and its hub at `/hub`, within a tokio runtime. Calls `subscribed` with the
    /// callback of each subscription that is verified.
    pub fn start(
        listener: TcpListener,
        capability_list: Uri,
        policy: CallbackPolicy,
        subscribed: impl Fn(Callback) + Send + Sync + 'static,
    ) -> io::Result<TopicHub> {
        let base = format!("http://{}", listener.local_addr()?);
        let url = Hub::new(format!("{base}/hub"));
        let page = TopicPage {
            topic: Topic::new(format!("{base}/topic/")),
            capability_list,
            hubs: vec![url.clone()],
            body: Arc::default(),
            report_fetches: false,
        };
        let topics = Topics::new(|_| {});
        topics.serve_page(page.clone());
        let mut settings = EmbeddedHubSettings::new(url);
        settings.policy = policy;
        let relays = Arc::new(Mutex::new(BTreeMap::new()));
        let delivered = Arc::clone(&relays);
        let hub = EmbeddedHub::start(
            HubSetup::new(settings).map_err(io::Error::other)?,
            SavedHub::default(),
            RelayStore::in_memory(&relays),
            HubTopics::Served(topics.clone()),
            Clock::start(None),
            move |records| {
                for record in records {
                    match record {
                        HubRecord::Subscribed(subscription, _) => subscribed(subscription.callback),
                        HubRecord::Ended(topic, last) => {
                            lock(&delivered).retain(|id, relay| relay.topic != topic || *id > last)
                        }
                        _ => {}
                    }
                }
            },
        );
        let hubs = watch::channel(Some(hub.clone())).1;
        let (listener, limits) = (Listener::Tcp(listener), ServerLimits::default());
        let served = serve_public(listener, topics.clone(), hubs, limits, pending());
        tokio::spawn(served);
        Ok(TopicHub {
            page,
            topics,
            hub,
            relays,
            seq: 0,
        })
    }

    /// Returns the topic.
    pub fn topic(&self) -> &Topic {
        &self.page.topic
    }

    /// Serves a notification at the topic, and delivers it to the subscribers.
    pub fn publish(&mut self, body: impl Into<Arc<[u8]>>) {
        self.seq += 1;
        self.page.body = body.into();
        self.topics.serve_page(self.page.clone());
        let notification = Relay {
            id: RelayId::default(),
            topic: self.page.topic.clone(),
            seq: self.seq,
            body: Arc::clone(&self.page.body),
            headers: RelayHeaders::default(),
        };
        if let Some(relay) = self.hub.number_relay(notification) {
            lock(&self.relays).insert(relay.id, relay.clone());
            self.hub.dispatch(vec![relay]);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

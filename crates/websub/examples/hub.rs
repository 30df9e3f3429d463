//! A topic with a hub: `cargo run --example hub -- 127.0.0.1:8400 https://example.org/capabilitylist.xml` publishes each
//! line of its input at `/topic/`, and delivers it to the subscribers at `/hub`. They are in memory, and have their
//! callbacks on this machine.

use std::collections::BTreeMap;
use std::future::pending;
use std::io::BufRead;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resourcesync::uri::{Hub, Topic, Uri};
use tokio::net::TcpListener;
use tokio::sync::watch;
use websub::http::clock::Clock;
use websub::http::server::{Listener, ServerLimits};
use websub::hub::callback::CallbackPolicy;
use websub::hub::delivery::bodies::RelayFile;
use websub::hub::http::EmbeddedHub;
use websub::hub::http::public::serve_public;
use websub::hub::http::settings::{EmbeddedHubSettings, PreparedHub};
use websub::hub::published_topics::directory::HubTopics;
use websub::hub::subscriptions::NotificationToRelay;
use websub::hub::{Callback, HubRecord, Relay, RelayHeaders, RelayId, SavedHub};
use websub::topics::TopicPage;
use websub::topics::http::Topics;

type Relays = Arc<Mutex<BTreeMap<RelayId, Relay>>>;
type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(list)) = (arguments.next(), arguments.next()) else {
        return Err("usage: hub ADDRESS CAPABILITY_LIST".into());
    };
    let listener = TcpListener::bind(address).await?;
    let publisher = Publisher::start(listener, Uri::parse(&list)?, |callback| {
        println!("{callback} subscribed")
    })?;
    println!("lines are published at {}", publisher.page.topic);
    for (line, seq) in std::io::stdin().lock().lines().zip(1..) {
        publisher.publish(seq, line?.into_bytes().into());
    }
    Ok(())
}

#[derive(Debug)]
pub struct Publisher {
    pub page: TopicPage,
    topics: Topics,
    hub: EmbeddedHub,
    relays: Relays,
}

impl Publisher {
    /// Starts the hub, within a tokio runtime.
    pub fn start(
        listener: TcpListener,
        capability_list: Uri,
        subscribed: impl Fn(Callback) + Send + Sync + 'static,
    ) -> Result<Publisher, Failure> {
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
        topics.serve(page.clone());
        let mut settings = EmbeddedHubSettings::new(url);
        settings.policy = CallbackPolicy::on_this_machine();
        let relays = Relays::default();
        let delivered = Arc::clone(&relays);
        let hub = EmbeddedHub::start(
            PreparedHub::new(settings)?,
            SavedHub::default(),
            RelayFile::in_memory(&relays),
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
        let (listener, limits) = (Listener::Tcp(listener), ServerLimits::default());
        let hubs = watch::channel(Some(hub.clone())).1;
        tokio::spawn(serve_public(
            listener,
            topics.clone(),
            hubs,
            limits,
            pending(),
        ));
        Ok(Publisher {
            page,
            topics,
            hub,
            relays,
        })
    }

    /// Publishes the notification with this number.
    pub fn publish(&self, seq: u64, body: Arc<[u8]>) {
        self.topics.serve(TopicPage {
            body: Arc::clone(&body),
            ..self.page.clone()
        });
        let notification = NotificationToRelay {
            topic: self.page.topic.clone(),
            seq,
            body,
            headers: RelayHeaders::default(),
        };
        if let Some(relay) = self.hub.relay(notification) {
            lock(&self.relays).insert(relay.id, relay.clone());
            self.hub.dispatch(vec![relay]);
        }
    }
}

fn lock(relays: &Relays) -> MutexGuard<'_, BTreeMap<RelayId, Relay>> {
    relays.lock().unwrap_or_else(PoisonError::into_inner)
}

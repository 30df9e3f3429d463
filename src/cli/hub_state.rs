//! Answers of commands from the state of `rsnotify hub`, where none runs.

use websub::http::clock::Clock;
use websub::hub::published_topics::PublishedTopics;
use websub::hub::publisher_counts::{PublisherCounts, views};
use websub::hub::subscriptions::Subscriptions;

use crate::announce::state::Save;
use crate::config::hub_config::HubConfig;
use crate::config::publisher;
use crate::control::{ControlReply, ControlRequest};
use crate::daemon::{ask_subscriptions, no_sources};
use crate::report;
use crate::store::Store;

/// Answers a request from the state, if there is one. A subscription that ends is removed from it.
pub fn answer(
    config: &HubConfig,
    store: Option<Store>,
    request: ControlRequest,
) -> anyhow::Result<ControlReply> {
    let clock = store.as_ref().map(Store::load_clock).transpose()?;
    let now = Clock::start(clock.flatten()).now();
    let saved = store.as_ref().map(Store::load_hub).transpose()?;
    let (mut subscriptions, _) = Subscriptions::restore(saved.unwrap_or_default());
    match request {
        ControlRequest::Status => {
            let topics = store.as_ref().map(Store::load_published_topics);
            let topics = PublishedTopics::restore(topics.transpose()?.unwrap_or_default());
            let publishers = publisher::plan(&config.publishers);
            let uncounted = publishers
                .iter()
                .map(|publisher| (publisher, PublisherCounts::default()));
            let mut status = report::of_hub(now);
            status.embedded_hub = Some(subscriptions.status(now));
            status.publishers = views(uncounted, &topics);
            Ok(ControlReply::Status(Box::new(status)))
        }
        ControlRequest::Subscriptions(about) => {
            let (answer, ended) = ask_subscriptions(&subscriptions, about, now, store.as_ref());
            if let (Some(key), Some(mut store)) = (ended, store) {
                let records = subscriptions.unsubscribe(&key);
                let save = Save {
                    clock: Some(now),
                    ..Save::default()
                };
                store.save(&save, &records, &[])?;
            }
            Ok(answer)
        }
        _ => Ok(no_sources()),
    }
}

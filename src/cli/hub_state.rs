//! Answers of commands from the state of `rsnotify hub`, where none runs.

use websub::http::clock::Clock;
use websub::hub::published_topics::PublishedTopics;
use websub::hub::publisher_counts::{PublisherCounts, views};
use websub::hub::subscriptions::Subscriptions;

use crate::cli::daemon_client::{OpenState, about_subscriptions};
use crate::config::hub_config::HubConfig;
use crate::config::publisher;
use crate::control::{ControlReply, ControlRequest};
use crate::daemon::no_sources;
use crate::report;
use crate::state::open::in_memory;
use crate::state::{Db, hub, last_time_saved};

/// Answers a request from the state, if there is one. A subscription that ends is removed from it.
pub fn answer(
    config: &HubConfig,
    state: Option<OpenState>,
    request: ControlRequest,
) -> anyhow::Result<ControlReply> {
    let (_lock, state) = match state {
        Some((file, state)) => (Some(file), state),
        None => (None, in_memory()?),
    };
    let db = Db(&state);
    let now = Clock::start(last_time_saved(&state)?).now();
    let (mut subscriptions, _) = Subscriptions::restore(hub::load(db)?);
    match request {
        ControlRequest::Status => {
            let topics = PublishedTopics::restore(hub::load_published_topics(db)?);
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
            about_subscriptions(&mut subscriptions, about, now, db)
        }
        _ => Ok(no_sources()),
    }
}

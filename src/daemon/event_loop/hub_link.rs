//! The embedded hub as the loop uses it: opened and closed by reloads, drained by a shutdown (`EventLoop::stop`). Each change of it is saved
//! by the loop, which delivers what it owes.

use std::sync::Arc;

use announce::state::StatementError;
use announce::state::hub::{SavedRelayReader, next_relay, relay_part};
use tokio::sync::watch;
use tracing::warn;
use websub::http::BoxedFn;
use websub::hub::delivery::http::RelayStore;
use websub::hub::http::{EmbeddedHub, HubSetup};
use websub::hub::published_topics::http::HubTopics;
use websub::hub::{HubRecord, SavedHub};

use crate::daemon::event_loop::{Input, LoopParts};
use crate::daemon::failpoints::Failpoint;
use crate::daemon::log::error_chain;

/// The embedded hub, if there ever was one in this process.
#[derive(Default)]
pub struct EmbeddedHubLink {
    /// A hub that takes no subscriptions any more finishes what it has begun.
    pub linked: Option<Arc<EmbeddedHub>>,
    /// The hub while it takes subscriptions, for those who follow that it is opened and closed.
    pub open: watch::Sender<Option<Arc<EmbeddedHub>>>,
    pub is_draining: bool,
}

impl EmbeddedHubLink {
    /// Links a hub that takes subscriptions; without one, the hub of before takes no more.
    pub fn link(&mut self, open: Option<Arc<EmbeddedHub>>) {
        if open.is_some() {
            self.linked.clone_from(&open);
        }
        self.open.send_replace(open);
    }
}

impl<I: Send + 'static> LoopParts<I> {
    /// Changes the settings of the hub, or starts it with what is `saved`; without settings, it takes no more
    /// subscriptions.
    pub fn change_hub(&mut self, settings: Option<HubSetup>, saved: SavedHub, topics: HubTopics) {
        let open = settings.map(|settings| match &self.hub.linked {
            Some(hub) => {
                hub.apply_settings(settings);
                hub.clone()
            }
            None => self.start_hub(settings, saved, topics),
        });
        self.hub.link(open);
    }

    /// Starts a hub whose changes are saved by the loop.
    pub fn start_hub(
        &self,
        settings: HubSetup,
        saved: SavedHub,
        topics: HubTopics,
    ) -> Arc<EmbeddedHub> {
        let (inputs, failpoints) = (self.inputs.clone(), self.failpoints.clone());
        let records = move |changed: Vec<HubRecord>| {
            let is_relayed = |record: &&HubRecord| matches!(record, HubRecord::Progressed(..));
            for _ in changed.iter().filter(is_relayed) {
                failpoints.pass(Failpoint::Relayed);
            }
            let _ = inputs.send(Input::HubRecords(changed));
        };
        let relays = Arc::new(SavedRelayReader::new(self.saver.file.path.clone()));
        let in_words = |error: StatementError| error_chain(&error);
        let unverified = relays.unverified_requests().unwrap_or_else(|error| {
            warn!(
                "requests that were not verified cannot be read: {}",
                in_words(error)
            );
            Vec::new()
        });
        let parts = Arc::clone(&relays);
        let relays = RelayStore {
            next: BoxedFn(Box::new(move |topic, heard| {
                let next = relays.read_or_reopen(|db| next_relay(db, topic, heard));
                next.map_err(in_words)
            })),
            part: BoxedFn(Box::new(move |id, number| {
                let part = parts.read_or_reopen(|db| relay_part(db, id, number));
                part.map_err(in_words)
            })),
        };
        let hub = EmbeddedHub::start(settings, saved, relays, topics, self.clock, records);
        hub.resume_verifications(unverified);
        hub
    }
}

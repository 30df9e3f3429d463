//! The end of the loop: nothing more is begun, and what is under way gets some time.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::daemon::event_loop::{EventLoop, Input};
use crate::tree::Tree;

impl EventLoop {
    /// Takes no more events of the trees, and begins nothing. Told twice, it waits for nothing either.
    pub(super) fn stop(&mut self, grace: Duration) {
        if self.stop_by.is_some() {
            self.stop_by = Some(Instant::now());
            return;
        }
        info!("stopping");
        self.service_manager.stopping();
        self.stop_by = Some(Instant::now() + grace);
        // What they have reported and nobody has taken yet comes too late as well.
        self.last_watching.0 += 1;
        self.watching = self.last_watching;
        leave(std::mem::take(&mut self.trees));
        if let Some(hub) = self.hub.clone() {
            self.is_hub_draining = true;
            let inputs = self.inputs.clone();
            self.runtime.spawn(async move {
                hub.rest().await;
                let _ = inputs.send(Input::HubDrained);
            });
        }
    }

    /// Whether nothing is under way any more.
    pub(super) fn is_done(&self) -> bool {
        self.under_way.is_empty() && self.accepted.is_empty() && !self.is_hub_draining
    }

    pub(super) fn tell_unanswered(&self) {
        let requests = self.under_way.len();
        if requests > 0 {
            warn!(
                requests,
                "shutdown timeout: hubs did not answer in time; unanswered notifications are retried at the next start"
            );
        }
        if self.is_hub_draining {
            warn!(
                "shutdown timeout: subscribers did not answer in time; unanswered deliveries are retried at the next start"
            );
        }
    }
}

/// Watches these trees no longer. A thread on a dead mount is waited for elsewhere.
pub(super) fn leave(trees: Vec<Tree>) {
    // Without a thread for it, it happens here.
    let _ = std::thread::Builder::new().spawn(move || drop(trees));
}

//! The end of the loop: nothing more is begun, and work that is under way gets some time.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::daemon::event_loop::EventLoop;

impl EventLoop {
    /// Begins to shut down: takes no more reports of the trees, and begins nothing. A second call ends the wait.
    pub(super) fn stop(&mut self, grace: Duration) {
        if self.stop_by.is_some() {
            self.stop_by = Some(Instant::now());
            return;
        }
        info!("stopping");
        self.reporter.stopping();
        self.stop_by = Some(Instant::now() + grace);
        self.trees.stop();
        self.hub.drain(&self.runtime, &self.inputs);
    }

    /// Returns true if nothing is under way any more.
    pub(super) fn is_done(&self) -> bool {
        self.submissions.under_way().is_empty()
            && self.hub.accepted().is_empty()
            && !self.hub.is_draining()
    }

    pub(super) fn log_unanswered(&self) {
        let requests = self.submissions.under_way().len();
        if requests > 0 {
            warn!(
                requests,
                "shutdown timeout: hubs did not answer in time; unanswered notifications are retried at the next start"
            );
        }
        if self.hub.is_draining() {
            warn!(
                "shutdown timeout: subscribers did not answer in time; unanswered deliveries are retried at the next start"
            );
        }
    }
}

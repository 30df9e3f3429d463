//! What the loop lets others know of itself at the end of each turn: those who probe it, and the service manager.

use tracing::info;

use crate::announce::summary::{Doing, Summary};
use crate::daemon::turns::Turns;
use crate::tree::Report;

impl Turns {
    /// Notes how far the sweeps have come that keep us from being ready.
    pub(super) fn note_sweep(&mut self, reported: &Report) {
        if let Report::Sweeping { mount, files } | Report::Swept { mount, files, .. } = reported {
            self.sweeps.insert(*mount, *files);
        }
    }

    /// Tells probes and the service manager how the turn that ends leaves us.
    pub(super) fn tell_health(&mut self, is_saved: bool) {
        let is_settled = self.engine.is_settled();
        // What was looked through under the plan before is known.
        self.health.turned(is_saved, is_settled || self.was_settled);
        if is_saved && is_settled && !self.is_ready {
            self.is_ready = true;
            self.steps.ready();
            info!("ready");
            self.supervisor.ready();
        }
        if is_settled {
            self.began = None;
            self.was_settled = false;
            self.sweeps.clear();
        }
        if self.stop_by.is_some() {
            return;
        }
        self.supervisor.say(|| match &self.trouble {
            Some(trouble) => Doing::Waiting {
                trouble: trouble.clone(),
            },
            None if is_settled => Doing::Watching(Summary {
                refused: self
                    .configuration
                    .refused
                    .as_ref()
                    .map(|own| own.error.clone()),
                ..self.engine.summary()
            }),
            None => Doing::Sweeping {
                files: self.sweeps.values().sum(),
            },
        });
    }
}

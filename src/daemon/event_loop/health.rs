//! What the loop lets others know of itself: those who ask, those who probe it, and the service manager.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tracing::info;

use crate::announce::plan::{MountPlan, Plan};
use crate::daemon::event_loop::EventLoop;
use crate::report::figures::{Figures, Hints};
use crate::report::status::Status;
use crate::report::summary::{Doing, Summary};
use crate::tree::TreeReport;

impl EventLoop {
    /// Notes how far the sweeps have come that keep us from being ready.
    pub(super) fn note_sweep(&mut self, reported: &TreeReport) {
        if let TreeReport::Sweeping { mount, files } | TreeReport::Swept { mount, files, .. } =
            reported
        {
            self.sweeps.insert(*mount, *files);
        }
    }

    /// Tells probes and the service manager how the turn that ends leaves us.
    pub(super) fn tell_health(&mut self, is_saved: bool) {
        let is_settled = self.engine.is_settled();
        // What was looked through under the plan before is known.
        self.readiness
            .update(is_saved, is_settled || self.was_settled);
        if is_saved && is_settled && !self.is_ready {
            self.is_ready = true;
            self.failpoints.ready();
            info!("ready");
            self.service_manager.ready();
        }
        if is_settled {
            self.began = None;
            self.was_settled = false;
            self.sweeps.clear();
        }
        if self.stop_by.is_some() {
            return;
        }
        self.service_manager.say(|| match &self.trouble {
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

    /// Adds what the engine does not know.
    pub(super) fn complete(&self, status: &mut Status) {
        let hub = self.hub.as_ref().filter(|_| self.is_hub_open);
        status.embedded_hub = hub.map(|hub| hub.status(status.at));
        status.configuration = Some(self.configuration.clone());
    }

    /// Adds what others counted.
    pub(super) fn count_up(&self, figures: &mut Figures) {
        figures.hints = self.hints();
        figures.attempts = self.publisher.took();
        figures.topics = self.topics.requests();
        figures.counts = self.counts.clone();
    }

    /// What each source's tree was told since the daemon began, whatever trees there were.
    fn hints(&self) -> BTreeMap<String, Hints> {
        let told = self.engine.plan().sources.iter().zip(&self.trees);
        told.map(|(source, tree)| {
            let before = self.counts.hints.get(&source.name).copied();
            let hints = before.unwrap_or_default().and(tree.hints());
            (source.name.clone(), hints)
        })
        .collect()
    }

    /// What was counted stays so, but for what another plan no longer looks at.
    pub(super) fn keep_counts(&mut self, plan: &Plan) {
        let hints = self.hints();
        self.counts.hints.extend(hints);
        self.counts.mounts.retain(|(source, directory), _| {
            let mut sources = plan.sources.iter().filter(|own| own.name == *source);
            let is_there = |own: &MountPlan| own.directory.to_string_lossy() == *directory;
            sources.any(|own| own.mounts.iter().any(is_there))
        });
    }

    pub(super) fn count(&mut self, report: &TreeReport) {
        if let TreeReport::Swept {
            mount,
            complete: true,
            files,
            took,
            unwatched,
        } = report
            && let Some((_, source)) = self.engine.plan().source_of(*mount)
            && let Some(mount) = source.mounts.iter().find(|own| own.id == *mount)
        {
            let directory = mount.directory.to_string_lossy().into_owned();
            let sweeps = self.counts.mounts.entry((source.name.clone(), directory));
            let now = Timestamp::now();
            sweeps.or_default().ended(*took, *files, *unwatched, now);
        }
    }
}

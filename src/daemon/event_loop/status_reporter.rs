//! Health of the loop, as reported to probes, the service manager, and requests for the status.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tracing::info;

use crate::admin::Readiness;
use crate::announce::changes::round::{TakeOutcome, TakeRequest};
use crate::announce::event::Fact;
use crate::announce::plan::{MountPlan, Plan};
use crate::announce::time::earlier;
use crate::daemon::event_loop::EventLoop;
use crate::daemon::service_manager::ServiceManager;
use crate::report;
use crate::report::last_day::{IntervalView, LastDay, Totals};
use crate::report::status::{
    ConfigurationStatus, Detail, FellBehindView, RefusedConfiguration, Status,
};
use crate::report::summary::{Doing, Summary};
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::uri::Topic;
use crate::tree::TreeReport;

/// Time for which the status shows that a hub fell behind.
const FELL_BEHIND_FOR: Duration = Duration::from_secs(24 * 3600);

/// The least time between two additions to the counts of the last day.
const NOTED_EACH: Duration = Duration::from_secs(60);

/// Readiness, the service manager, and the configuration that the status shows.
pub struct StatusReporter {
    readiness: Readiness,
    service_manager: ServiceManager,
    configuration: ConfigurationStatus,
    is_ready: bool,
    last_day: LastDay,
    /// The time of the last addition to it.
    noted: Option<Instant>,
}

impl StatusReporter {
    pub fn new(readiness: Readiness, configuration: ConfigurationStatus) -> StatusReporter {
        let mut service_manager = ServiceManager::from_environment();
        service_manager.status_may_differ();
        StatusReporter {
            readiness,
            service_manager,
            configuration,
            is_ready: false,
            last_day: LastDay::default(),
            noted: None,
        }
    }

    /// Returns the effective configuration and the last one that was refused.
    pub fn configuration(&self) -> &ConfigurationStatus {
        &self.configuration
    }

    /// Adds to the counts of the last day, if the last time was a while ago.
    pub fn note_totals(&mut self, totals: impl FnOnce() -> Totals) {
        if self.noted.is_none_or(|noted| noted.elapsed() >= NOTED_EACH) {
            self.noted = Some(Instant::now());
            self.last_day.note(Timestamp::now(), totals());
        }
    }

    /// Returns the counts of the last day, with `totals` added to them.
    pub fn last_day(&self, now: Timestamp, totals: Totals) -> Vec<IntervalView> {
        let mut last_day = self.last_day.clone();
        last_day.note(now, totals);
        last_day.view()
    }

    /// Takes note of a configuration that was loaded.
    pub fn loaded(&mut self, configuration: ConfigurationStatus) {
        self.configuration = configuration;
        self.service_manager.status_may_differ();
    }

    /// Takes note of a configuration that was refused; the previous one stays effective.
    pub fn refused(&mut self, refused: RefusedConfiguration) {
        self.configuration.refused = Some(refused);
        self.service_manager.status_may_differ();
    }

    /// Returns when the loop must step for the service manager's sake.
    pub fn wake(&self) -> Option<Instant> {
        self.service_manager.wake()
    }

    /// Returns true if the service manager's watchdog is to be answered at the end of this step.
    pub fn is_ping_due(&self) -> bool {
        self.service_manager.is_ping_due()
    }

    /// Answers the service manager's watchdog: the loop has stepped, and the store has answered.
    pub fn ping(&mut self) {
        self.service_manager.ping();
    }

    /// Tells the service manager that the daemon stops.
    pub fn stopping(&mut self) {
        self.service_manager.stopping();
    }

    /// Reports the end of a step to probes. Returns true if the daemon became ready with it.
    pub fn stepped(&mut self, is_saved: bool, is_settled: bool, was_settled: bool) -> bool {
        // Mounts that were swept under the plan before are known.
        self.readiness.update(is_saved, is_settled || was_settled);
        let is_ready_now = is_saved && is_settled && !self.is_ready;
        if is_ready_now {
            self.is_ready = true;
            info!("ready");
            self.service_manager.ready();
        }
        is_ready_now
    }

    /// Tells the service manager what the daemon does.
    pub fn report_activity(&mut self, activity: impl FnOnce(&ConfigurationStatus) -> Doing) {
        let configuration = &self.configuration;
        self.service_manager
            .report_status(|| activity(configuration));
    }
}

impl EventLoop {
    /// Tells probes and the service manager the outcome of a step.
    pub(super) fn report_health(&mut self, is_saved: bool) {
        let EventLoop {
            engine,
            saver,
            trees,
            reporter,
            failpoints,
            hub,
            counts,
            ..
        } = self;
        let is_settled = engine.sources().are_settled();
        if reporter.stepped(is_saved, is_settled, trees.was_settled()) {
            failpoints.ready();
        }
        if is_settled {
            trees.settled();
        }
        if self.stop_by.is_some() {
            return;
        }
        reporter.note_totals(|| {
            let pending = report::summary(engine).pending;
            let hub = hub.linked().map(|hub| hub.status(Timestamp::now()));
            report::totals(counts, pending, hub.as_ref())
        });
        reporter.report_activity(|configuration| match saver.trouble() {
            Some(trouble) => Doing::Waiting {
                trouble: trouble.to_owned(),
            },
            None if is_settled => Doing::Watching(Summary {
                refused: configuration
                    .refused
                    .as_ref()
                    .map(|refused| refused.error.clone()),
                ..report::summary(engine)
            }),
            None => Doing::Sweeping {
                files: trees.files_met(),
            },
        });
    }

    /// Returns the status with the figures that others counted.
    pub(super) fn status(&self, detail: Detail) -> Status {
        let now = Timestamp::now();
        let mut status = match detail {
            Detail::Everything => report::status(&self.engine, now),
            Detail::Figures => report::outline(&self.engine, now),
        };
        status.unsaved = self.saver.trouble().map(str::to_owned);
        self.complete(&mut status);
        let figures = &mut status.figures;
        figures.hints = self.trees.hints(self.engine.plan(), &self.counts.hints);
        figures.attempts = self.submissions.durations();
        figures.topics = self.topics.requests();
        figures.counts = self.counts.clone();
        status
    }

    /// Adds to a status what the engine does not know.
    pub(super) fn complete(&self, status: &mut Status) {
        status.embedded_hub = self.hub.open().map(|hub| hub.status(status.at));
        status.configuration = Some(self.reporter.configuration().clone());
        let hubs = status.channels.iter().flat_map(|channel| &channel.hubs);
        let pending = hubs.map(|hub| hub.due).sum();
        let hub = self.hub.linked().map(|hub| hub.status(status.at));
        let totals = report::totals(&self.counts, pending, hub.as_ref());
        status.last_day = self.reporter.last_day(status.at, totals);
        let fell_behind = self.counts.fell_behind.iter();
        let lately = earlier(status.at, FELL_BEHIND_FOR);
        let lately = fell_behind.filter(|(_, behind)| behind.last > lately);
        let views = lately.map(|((hub, topic), behind)| FellBehindView {
            hub: hub.clone(),
            topic: topic.clone(),
            changes: behind.changes,
            last: behind.last,
        });
        status.fell_behind = views.collect();
    }

    /// Carries the counts over to another plan, but for mounts that it does not have.
    pub(super) fn carry_counts_over(&mut self, plan: &Plan) {
        let hints = self.trees.hints(self.engine.plan(), &self.counts.hints);
        self.counts.hints.extend(hints);
        self.counts.mounts.retain(|(source, directory), _| {
            let is_same = |mount: &MountPlan| mount.directory.to_string_lossy() == *directory;
            let mut sources = plan.sources.iter().filter(|plan| plan.name == *source);
            sources.any(|source| source.mounts.iter().any(is_same))
        });
    }

    /// Counts a fact that the operator is told.
    pub(super) fn count_fact(&mut self, fact: &Fact) {
        let channels = self.engine.channels();
        let kind = |topic: &Topic| {
            let channel = channels.of_topic(topic).and_then(|id| channels.get(id));
            channel.map_or_else(ChannelKind::default, |channel| channel.row.kind)
        };
        self.counts.tell(fact, kind, Timestamp::now());
    }

    pub(super) fn count_read(
        &mut self,
        request: &TakeRequest,
        outcome: &TakeOutcome,
        took: Duration,
    ) {
        let known = self.engine.change_sets().get(&request.set);
        let source = known.and_then(|known| self.engine.plan().sources.get(known.source()));
        if let Some(source) = source {
            self.counts
                .read_changes(&source.name, request, outcome, took);
        }
    }

    pub(super) fn count_sweep(&mut self, report: &TreeReport) {
        if let TreeReport::Swept {
            mount,
            complete: true,
            files,
            took,
            unwatched,
        } = report
            && let Some((_, source)) = self.engine.plan().source_of(*mount)
            && let Some(mount) = source.mounts.iter().find(|plan| plan.id == *mount)
        {
            let directory = mount.directory.to_string_lossy().into_owned();
            let sweeps = self.counts.mounts.entry((source.name.clone(), directory));
            let now = Timestamp::now();
            sweeps.or_default().ended(*took, *files, *unwatched, now);
        }
    }
}

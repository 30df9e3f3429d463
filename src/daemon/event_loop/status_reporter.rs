//! Health of the loop, as reported to probes, the service manager, and requests for the status.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::system::uname;
use tracing::info;

use crate::admin::Readiness;
use crate::daemon::event_loop::last_day::LastDay;
use crate::daemon::service_manager::ServiceManager;
use crate::report::status::{ConfigurationStatus, DaemonView, IntervalView};
use crate::report::summary::DaemonActivity;

/// Minimum time between two additions to the counts of the last day.
const NOTED_EACH: Duration = Duration::from_secs(60);

/// Whether every present mount was swept, and its Change Lists were read; `rsnotify hub` has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// Some were not yet.
    Partial,
    /// Some were not yet since the configuration changed; before, all were.
    CompleteBefore,
    Complete,
}

/// Readiness, the service manager, and the configuration that the status shows.
pub struct StatusReporter {
    pub readiness: Readiness,
    pub service_manager: ServiceManager,
    pub configuration: ConfigurationStatus,
    pub daemon: DaemonView,
    is_ready: bool,
    pub last_day: LastDay,
    /// The time of the last addition to it.
    noted: Option<Instant>,
}

impl StatusReporter {
    pub fn new(
        configuration: ConfigurationStatus,
        began: Timestamp,
        last_day: LastDay,
    ) -> StatusReporter {
        let mut service_manager = ServiceManager::from_environment();
        service_manager.status_may_differ();
        StatusReporter {
            readiness: Readiness::default(),
            service_manager,
            configuration,
            daemon: DaemonView {
                host: uname().nodename().to_string_lossy().into_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                began,
            },
            is_ready: false,
            last_day,
            noted: None,
        }
    }

    /// Adds to the counts of the last day, if the last time was a while ago.
    pub fn note_totals(&mut self, totals: impl FnOnce() -> IntervalView) {
        if self.noted.is_none_or(|noted| noted.elapsed() >= NOTED_EACH) {
            self.noted = Some(Instant::now());
            self.last_day.note(totals());
        }
    }

    /// Reports the end of a step to probes. Returns true if the daemon became ready with it.
    pub fn stepped(&mut self, is_saved: bool, knowledge: Knowledge) -> bool {
        // Mounts that were swept under the plan before are known.
        self.readiness
            .update(is_saved, knowledge != Knowledge::Partial);
        let is_ready_now = is_saved && knowledge == Knowledge::Complete && !self.is_ready;
        if is_ready_now {
            self.is_ready = true;
            info!("ready");
            self.service_manager.ready();
        }
        is_ready_now
    }

    /// Tells the service manager what the daemon does. `activity` takes the reason why a configuration was refused.
    pub fn report_activity(&mut self, activity: impl FnOnce(Option<&str>) -> DaemonActivity) {
        let refused = self.configuration.refused.as_ref();
        let refused = refused.map(|refused| refused.error.as_str());
        self.service_manager.report_status(|| activity(refused));
    }
}

//! The service manager, such as systemd: readiness, one line of status, and the watchdog.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tracing::warn;

/// Shortest time between two status lines: nobody reads more, and each makes the loop go through all channels.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The service manager that started this process, if there is one.
#[derive(Debug)]
pub struct ServiceManager {
    is_present: bool,
    /// Interval of the pings that prove that work gets done, and the time of the next one.
    watchdog: Option<(Duration, Instant)>,
    /// Status line that was sent last.
    line: String,
    next_line: Instant,
    /// True if the status may differ from the line that was sent last.
    is_outdated: bool,
}

impl ServiceManager {
    /// Finds the service manager through the environment.
    pub fn from_environment() -> ServiceManager {
        let now = Instant::now();
        let is_present = std::env::var_os("NOTIFY_SOCKET").is_some();
        ServiceManager {
            is_present,
            watchdog: sd_notify::watchdog_enabled()
                .filter(|timeout| !timeout.is_zero())
                // As sd_watchdog_enabled(3) recommends.
                .map(|timeout| (timeout / 2, now)),
            line: String::new(),
            next_line: now,
            is_outdated: is_present,
        }
    }

    /// Reports that the daemon is ready.
    pub fn report_ready(&mut self) {
        self.notify(NotifyState::Ready);
        self.next_line = Instant::now();
    }

    /// Reports that the daemon shuts down.
    pub fn report_stopping(&mut self) {
        self.notify(NotifyState::Stopping);
        self.next_line = Instant::now();
        self.report_status(|| "stopping".to_owned());
    }

    /// Sends the status line, if it differs from the last one and that is not too recent. It has no control characters.
    pub fn report_status(&mut self, line: impl FnOnce() -> String) {
        let now = Instant::now();
        self.is_outdated = self.is_present && now < self.next_line;
        if !self.is_present || self.is_outdated {
            return;
        }
        self.next_line = now + STATUS_INTERVAL;
        let line = line();
        if line != self.line {
            self.notify(NotifyState::Status(&line));
            self.line = line;
        }
    }

    /// Takes note that the status may have changed outside a step of the loop.
    pub fn mark_outdated(&mut self) {
        self.is_outdated = self.is_present;
    }

    /// Returns true if the watchdog wants a ping. A step that begins so ends with [`ServiceManager::ping`], once the
    /// store has answered in it.
    pub fn is_ping_due(&self) -> bool {
        self.watchdog
            .is_some_and(|(_, next)| next <= Instant::now())
    }

    /// Pings the watchdog: the loop has stepped, and the store has answered. An error is an answer too: no restart makes
    /// room on a disk. A store that does not answer keeps the loop from coming here.
    pub fn ping(&mut self) {
        if let Some((interval, next)) = &mut self.watchdog {
            *next = Instant::now() + *interval;
            self.notify(NotifyState::Watchdog);
        }
    }

    /// Returns when the loop must step for the service manager's sake.
    pub fn wake_time(&self) -> Option<Instant> {
        let line = self.is_outdated.then_some(self.next_line);
        let ping = self.watchdog.map(|(_, next)| next);
        line.into_iter().chain(ping).min()
    }

    fn notify(&self, state: NotifyState) {
        if let Err(error) = sd_notify::notify(&[state]) {
            warn!(%error, "cannot notify the service manager: {error}");
        }
    }
}

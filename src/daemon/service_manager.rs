//! Tells the service manager how we are: once that we are ready, in one line what we do, and as long as work gets
//! done that it does.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tracing::warn;

use crate::report::summary::Doing;

/// Nobody reads more lines than this, and each costs the loop a look at all channels.
const LINES_APART: Duration = Duration::from_secs(1);

/// The service manager, if there is one.
#[derive(Debug)]
pub struct ServiceManager {
    is_there: bool,
    pings: Option<Pings>,
    line: String,
    next_line: Instant,
    /// Something may have changed since the last line.
    is_behind: bool,
}

impl ServiceManager {
    /// The one that started this process.
    pub fn from_environment() -> ServiceManager {
        let now = Instant::now();
        ServiceManager {
            is_there: std::env::var_os("NOTIFY_SOCKET").is_some(),
            pings: sd_notify::watchdog_enabled()
                .filter(|patience| !patience.is_zero())
                .map(|patience| Pings {
                    // What the manager recommends.
                    apart: patience / 2,
                    next: now,
                }),
            line: String::new(),
            next_line: now,
            is_behind: false,
        }
    }

    /// We do what we are there for.
    pub fn ready(&mut self) {
        self.tell(NotifyState::Ready);
        self.next_line = Instant::now();
    }

    pub fn stopping(&mut self) {
        self.tell(NotifyState::Stopping);
        self.next_line = Instant::now();
        self.say(|| Doing::Stopping);
    }

    /// Says what we do, if that is not what was said last, and not too often.
    pub fn say(&mut self, doing: impl FnOnce() -> Doing) {
        let now = Instant::now();
        self.is_behind = self.is_there && now < self.next_line;
        if !self.is_there || self.is_behind {
            return;
        }
        self.next_line = now + LINES_APART;
        let line = doing().line();
        if line != self.line {
            self.tell(NotifyState::Status(&line));
            self.line = line;
        }
    }

    /// What we do changed outside a turn.
    pub fn hurry(&mut self) {
        self.is_behind = self.is_there;
    }

    /// Whether it is time to prove that work gets done. A turn that begins so ends with [`ServiceManager::ping`],
    /// once the store has answered in it.
    pub fn wants_proof(&self) -> bool {
        let now = Instant::now();
        self.pings.as_ref().is_some_and(|pings| pings.next <= now)
    }

    /// The loop has turned, and the store has answered. That the answer may be an error is on purpose: no
    /// restart makes room on a disk. A store that does not answer keeps the loop from coming here.
    pub fn ping(&mut self) {
        if let Some(pings) = &mut self.pings {
            pings.next = Instant::now() + pings.apart;
            self.tell(NotifyState::Watchdog);
        }
    }

    /// When the loop has to turn for the manager's sake.
    pub fn wake(&self) -> Option<Instant> {
        let line = self.is_behind.then_some(self.next_line);
        let ping = self.pings.as_ref().map(|pings| pings.next);
        line.into_iter().chain(ping).min()
    }

    fn tell(&self, state: NotifyState) {
        if let Err(error) = sd_notify::notify(&[state]) {
            warn!(%error, "cannot notify the service manager: {error}");
        }
    }
}

/// When to prove that work gets done.
#[derive(Debug)]
struct Pings {
    apart: Duration,
    next: Instant,
}

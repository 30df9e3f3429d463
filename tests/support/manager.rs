//! A service manager for tests: it starts a daemon as systemd does, and records its messages.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::DEADLINE;
use super::daemon::{Daemon, started_by};

/// A notification of a daemon, such as `READY=1`, and its time.
pub type Message = (Instant, String);

pub struct FakeManager {
    directory: TempDir,
    told: Receiver<Message>,
}

impl FakeManager {
    pub fn start() -> FakeManager {
        let directory = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        let (sender, told) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(length) = socket.recv(&mut buffer) {
                let message = String::from_utf8(buffer[..length].to_vec()).unwrap();
                let message = message.trim_end().to_owned();
                if sender.send((Instant::now(), message)).is_err() {
                    return;
                }
            }
        });
        FakeManager { directory, told }
    }

    /// Starts a daemon that must show signs of life.
    pub fn launch(&self, mut run: Command, patience: Duration) -> Daemon {
        run.env("NOTIFY_SOCKET", self.directory.path().join("notify"));
        run.env("WATCHDOG_USEC", patience.as_micros().to_string());
        let mut shell = Command::new("sh");
        shell.args(["-c", "WATCHDOG_PID=$$ exec \"$@\"", "sh"]);
        Daemon::spawn(started_by(shell, &run))
    }

    /// The next message that begins so, and all that came before it.
    pub fn await_message(&self, beginning: &str) -> (Message, Vec<Message>) {
        let deadline = Instant::now() + DEADLINE;
        let mut before = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.told.recv_timeout(left) {
                Ok(message) if message.1.starts_with(beginning) => return (message, before),
                Ok(message) => before.push(message),
                Err(error) => panic!("no {beginning}: {error}; the daemon told {before:#?}"),
            }
        }
    }

    /// The next sign of life.
    pub fn await_ping(&self) -> Instant {
        self.await_message("WATCHDOG=1").0.0
    }

    /// Returns everything received so far, without waiting.
    pub fn heard(&self) -> Vec<String> {
        self.told.try_iter().map(|(_, message)| message).collect()
    }
}

//! The hub of Flask-WebSub, run by `hub.py`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::interop::front::Front;
use crate::support::python::python;

const RUNNER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/interop/hub.py");

/// The time at which the hub fetches a topic that it was told of.
#[derive(Debug, Clone, Copy)]
pub enum Fetches {
    /// After its answer.
    Later,
    /// Before it answers; it delivers before that, too.
    AtOnce,
}

/// A hub that can be stopped and keeps its subscriptions.
pub struct RealHub {
    python: &'static Path,
    fetches: Fetches,
    kept: TempDir,
    front: Front,
    process: Option<Child>,
}

impl RealHub {
    /// Nothing where it cannot be installed.
    pub fn start(fetches: Fetches) -> Option<RealHub> {
        let mut hub = RealHub {
            python: python()?,
            fetches,
            kept: TempDir::new().unwrap(),
            front: Front::start(),
            process: None,
        };
        hub.resume();
        Some(hub)
    }

    pub fn url(&self) -> String {
        format!("{}hub", self.front.url())
    }

    /// Starts it where it was, with what it kept.
    pub fn resume(&mut self) {
        let log = self.kept.path().join("log");
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(self.python);
        command.arg(RUNNER).arg(self.kept.path()).arg("0");
        command.arg(match self.fetches {
            Fetches::Later => "queue",
            Fetches::AtOnce => "eager",
        });
        // All that it asks is on loopback.
        command.env("no_proxy", "*");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut process = command.spawn().unwrap();
        let mut port = String::new();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        said.read_line(&mut port).unwrap();
        self.process = Some(process);
        let port: u16 = port.trim().parse().expect("the port of a hub that started");
        self.front.leads_to(Some(([127, 0, 0, 1], port).into()));
    }

    /// As a service manager stops it.
    pub fn stop(&mut self) {
        self.front.leads_to(None);
        if let Some(mut process) = self.process.take() {
            kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for RealHub {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.kept.path().join("log"));
            eprintln!("{}", log.unwrap_or_default());
        }
        if let Some(mut process) = self.process.take() {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

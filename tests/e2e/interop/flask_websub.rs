//! The hub of Flask-WebSub, run by `hub.py`, at an address that stays.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

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
        if thread::panicking() {
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

/// A fixed address, as that of a web server: passes connections on to the server behind it, and closes them while there is
/// none.
pub struct Front {
    pub address: SocketAddr,
    behind: Arc<Mutex<Option<SocketAddr>>>,
}

impl Front {
    pub fn start() -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let behind = Arc::new(Mutex::new(None::<SocketAddr>));
        let shared = Arc::clone(&behind);
        thread::spawn(move || {
            for client in listener.incoming() {
                let server = shared.lock().unwrap().map(TcpStream::connect);
                if let (Ok(client), Some(Ok(server))) = (client, server) {
                    pass_on(&client, &server);
                    pass_on(&server, &client);
                }
            }
        });
        Front { address, behind }
    }

    pub fn leads_to(&self, server: Option<SocketAddr>) {
        *self.behind.lock().unwrap() = server;
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// Copies until one side ends, and tells the other.
fn pass_on(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        // A side that is killed ends in the middle.
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}

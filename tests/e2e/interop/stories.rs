//! A hub written by others, that of Flask-WebSub as `hub.py` runs it, is pinged, fetches the topic and delivers to a
//! subscriber.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::interop::subscribe;
use crate::support::daemon::{Daemon, Setup, TOPICS};
use crate::support::documents::{Site, list};
use crate::support::hub::FakeHub;
use crate::support::listener::Listener;
use crate::support::python::python;

const PATH: &str = "topics/main/a/capabilitylist/";

/// Change Lists of the set besides its first.
const DOCUMENTS: usize = 60;

fn path(number: usize) -> String {
    format!("a/changelist-{number}.xml")
}

/// A tree whose changes a hub is told of, and the address that its topics are reached at, whichever daemon runs.
struct Source {
    site: Site,
    setup: Setup,
    front: Front,
}

impl Source {
    fn new(hub: &RealHub) -> Source {
        let site = Site::new();
        for number in 0..DOCUMENTS {
            site.write(&path(number), &list("a", "changelist", "1"));
        }
        let front = Front::start();
        let hub = format!("[[hub]]\nurl = \"{}\"\nmode = \"ping\"\n", hub.url());
        let mut setup = Setup::with_source(&site, "", &hub);
        setup.replace(TOPICS, &front.url());
        Source { site, setup, front }
    }

    fn start(&self) -> Daemon {
        let daemon = self.setup.start();
        self.front.leads_to(Some(daemon.public));
        daemon
    }

    fn topic(&self) -> String {
        format!("{}{PATH}", self.front.url())
    }

    /// Writes a new version of a document that has not changed before, and says what is to be heard of it.
    fn update(&self, number: usize) -> String {
        let path = path(number);
        self.site.write(&path, &list("a", "changelist", "2"));
        format!("updated changelist {path}")
    }
}

/// A hub, a source that pings it, and a subscriber of its topic.
fn started(fetches: Fetches) -> Option<(RealHub, Source, Daemon, FakeHub)> {
    let hub = RealHub::start(fetches)?;
    let source = Source::new(&hub);
    let daemon = source.start();
    let subscriber = FakeHub::start();
    subscribe(&subscriber, source.front.address, &format!("/{PATH}"));
    Some((hub, source, daemon, subscriber))
}

/// Waits until the hub has fetched the topic after its last ping.
fn await_fetch_confirmed(daemon: &Daemon) {
    daemon.await_status(|status| {
        let hub = &status["channels"][0]["hubs"][0];
        hub["fetch_confirmed"] == true && hub["in_flight"].is_null()
    });
}

#[rstest]
#[case(Fetches::Later)]
#[case(Fetches::AtOnce)]
fn what_the_topic_serves_reaches_a_subscriber(#[case] fetches: Fetches) {
    let Some((hub, source, daemon, subscriber)) = started(fetches) else {
        return;
    };

    let first = source.update(0);
    subscriber.assert_told([&*first]);
    await_fetch_confirmed(&daemon);

    let second = source.update(1);
    let delivery = subscriber.notification();
    assert_eq!(delivery.changes(), [first, second]);
    let (head, body) = daemon.get(&format!("/{PATH}"));
    assert_eq!(String::from_utf8_lossy(&delivery.body), body);
    assert_eq!(delivery.headers["content-type"], "application/xml");
    let links = head.lines().find_map(|line| line.strip_prefix("link: "));
    assert_eq!(delivery.headers["link"], links.unwrap());
    let wanted = format!(
        "<{}>; rel=\"self\", <{}>; rel=\"hub\", \
         <https://source.example/a/capabilitylist.xml>; rel=\"resourcesync\"",
        source.topic(),
        hub.url()
    );
    assert_eq!(links, Some(&*wanted));
    await_fetch_confirmed(&daemon);
}

#[rstest]
#[case(Fetches::Later)]
#[case(Fetches::AtOnce)]
fn changes_in_quick_succession_all_reach_a_subscriber(#[case] fetches: Fetches) {
    let Some((_hub, source, daemon, subscriber)) = started(fetches) else {
        return;
    };

    let mut wanted = Vec::new();
    for round in 1..=3 {
        // They are cut, pinged and fetched while the others are being written.
        for _ in 0..DOCUMENTS / 3 {
            wanted.push(source.update(wanted.len()));
        }
        daemon.await_log(&format!("cut notification {round}"));
    }
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    subscriber.changes_until(&wanted);
    await_fetch_confirmed(&daemon);
}

#[test]
fn a_daemon_that_is_killed_in_between_loses_nothing() {
    let Some((mut hub, source, daemon, subscriber)) = started(Fetches::Later) else {
        return;
    };

    // With the ping on its way, or just arrived.
    let first = source.update(0);
    daemon.await_log("cut notification 1");
    daemon.kill();
    let second = source.update(1);
    let daemon = source.start();
    subscriber.changes_until(&[&first, &second]);
    await_fetch_confirmed(&daemon);

    // With a ping that its hub was not there for.
    hub.stop();
    let third = source.update(2);
    daemon.await_log("did not accept notification");
    daemon.kill();
    hub.resume();
    let daemon = source.start();
    subscriber.changes_until(&[&third]);
    await_fetch_confirmed(&daemon);
}

#[test]
fn our_own_listener_receives_from_another_hub() {
    let Some(hub) = RealHub::start(Fetches::Later) else {
        return;
    };
    let source = Source::new(&hub);
    let _daemon = source.start();
    let listener = Listener::start(&source.topic());
    source.update(0);
    let line = listener.line();
    let told: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    let list = "https://source.example/a/changelist-0.xml";
    assert_eq!(told, ["updated", "changelist", list], "{line}");
}

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

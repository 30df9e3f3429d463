//! The topic server under load: a slow disk, many clients.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::support::DEADLINE;
use crate::support::daemon::{Daemon, Setup, assert_contains, body_of, get, started_by};
use crate::support::documents::Site;
use crate::support::listener::Listener;

/// Most connections to the admin listener at a time.
const ADMIN_CONNECTIONS: usize = 64;

const TARGET: &str = "/topics/main/a/capabilitylist/";

/// A reader that keeps its connection, and what it was answered last.
struct Reader {
    stream: BufReader<TcpStream>,
    etag: String,
}

impl Reader {
    fn new(address: SocketAddr) -> Reader {
        let stream = TcpStream::connect_timeout(&address, DEADLINE).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Reader {
            stream: BufReader::new(stream),
            etag: "\"none\"".to_owned(),
        }
    }

    /// The topic's body, if it is another than the last time.
    fn news(&mut self) -> Option<Vec<u8>> {
        let etag = &self.etag;
        let asked =
            format!("GET {TARGET} HTTP/1.1\r\nHost: e.org\r\nIf-None-Match: {etag}\r\n\r\n");
        self.stream.get_mut().write_all(asked.as_bytes()).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.stream.read_line(&mut head).unwrap(), 0, "{head}");
        }
        let header = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {head}"))
                .to_owned()
        };
        if head.starts_with("HTTP/1.1 304 ") {
            assert_eq!(header("etag: "), self.etag);
            return None;
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        self.etag = header("etag: ");
        let mut body = vec![0; header("content-length: ").parse().unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        Some(body)
    }
}

fn change(site: &Site, version: usize) {
    site.write_list("a", "changelist", &version.to_string());
}

#[test]
fn a_topic_answers_what_was_saved_while_nothing_can_be() {
    let (site, hub, setup, daemon) = Setup::start_announcing("");
    change(&site, 2);
    let saved = hub.notification().body;
    let mut reader = Reader::new(daemon.public);
    assert_eq!(reader.news(), Some(saved));

    let state = Connection::open(setup.state.path().join("state/state.sqlite")).unwrap();
    state.execute_batch("BEGIN IMMEDIATE").unwrap();
    change(&site, 3);
    // The loop waits for the lock meanwhile.
    for _ in 0..500 {
        assert_eq!(reader.news(), None);
    }
    daemon.await_log("cannot save");
    // The step that cuts it waits, and is tried again every second.
    let stall = Instant::now() + Duration::from_secs(2);
    while Instant::now() < stall {
        assert_eq!(reader.news(), None);
    }
    assert!(hub.heard().is_empty());
    state.execute_batch("ROLLBACK").unwrap();
    let sent = hub.notification().body;
    assert_eq!(reader.news(), Some(sent));
}

#[test]
fn readers_see_whole_notifications_that_are_sent_and_no_others() {
    const READERS: usize = 8;
    const CHANGES: usize = 50;
    let (site, hub, _setup, daemon) = Setup::start_announcing("");
    let first = Reader::new(daemon.public).news().unwrap();
    let is_over = AtomicBool::new(false);
    let (sent, seen) = std::thread::scope(|scope| {
        let read_on = || {
            let mut reader = Reader::new(daemon.public);
            let mut seen = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                seen.extend(reader.news());
            }
            seen.extend(reader.news());
            seen
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read_on)).collect();
        let mut sent = Vec::new();
        for version in 2..2 + CHANGES {
            change(&site, version);
            sent.push(hub.notification().body);
        }
        is_over.store(true, Ordering::Relaxed);
        let seen: Vec<_> = readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect();
        (sent, seen)
    });
    let last = sent.last().unwrap();
    for seen in seen {
        assert!(seen.contains(last));
        for body in seen {
            let text = String::from_utf8_lossy(&body);
            assert!(body == first || sent.contains(&body), "{text}");
        }
    }
}

#[test]
fn a_burst_of_clients_is_met_even_if_nobody_accepts_them_at_once() {
    let (_site, _setup, daemon) = Setup::start_embedding("");
    // More than usually may wait, unless the system allows no more.
    let allowed = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    let burst = allowed.trim().parse().unwrap_or(128).min(400);
    daemon.signal(Signal::STOP);
    let mut readers: Vec<Reader> = (0..burst).map(|_| Reader::new(daemon.public)).collect();
    daemon.signal(Signal::CONT);
    for reader in &mut readers {
        assert_eq!(reader.news(), Some(Vec::new()));
    }
}

/// Returns the number of connections this process may have besides those of other tests: up to 10,000.
fn max_connections() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, all).unwrap();
    let spare = maximum.map_or(usize::MAX, |all| usize::try_from(all).unwrap()) / 10 * 9;
    if spare < 10_000 {
        eprintln!("only {spare} connections: this process may not have more files open");
    }
    spare.min(10_000)
}

#[test]
fn ten_thousand_idle_connections_hold_nobody_up_whatever_the_limit() {
    // One that may be raised, and one that may not.
    for (limit, is_raised) in [("ulimit -Sn 128", true), ("ulimit -n 256", false)] {
        hold_nobody_up(limit, is_raised);
    }
}

fn hold_nobody_up(limit: &str, is_raised: bool) {
    let (site, mut setup) = Setup::embedding("");
    // They come from one address.
    setup.config += "max_requests_per_minute = 1000000\n";
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")]);
    let daemon = Daemon::ready(started_by(shell, &setup.run()));
    let sent = [
        "",
        "GET /",
        "POST /hub HTTP/1.1\r\nContent-Length: 9\r\n\r\nhub",
        &format!("GET {TARGET} HTTP/1.1\r\nHost: e.org\r\n\r\n"),
    ];
    let clients: Vec<TcpStream> = (0..max_connections())
        .map(|number| {
            let mut stream = TcpStream::connect(daemon.public).unwrap();
            stream.write_all(sent[number % 4].as_bytes()).unwrap();
            stream
        })
        .collect();
    body_of(daemon.get(TARGET));
    // It discovers the topic, subscribes, and is verified and delivered to.
    let topic = format!("http://{}{TARGET}", daemon.public);
    let listener = Listener::start(&topic);
    // Having asked, the hub still has to hear the answer.
    daemon.await_log("subscribed to");
    change(&site, 2);
    let line = listener.line();
    assert_contains(&line, "updated  changelist");
    assert!(get(daemon.public, TARGET).1.contains("a/changelist.xml"));
    drop((clients, listener));
    let (status, log) = daemon.stop_and_tell();
    assert!(status.success());
    let raised = log
        .iter()
        .any(|line| line.contains("files may be open instead of 128"));
    assert_eq!(raised, is_raised, "{log:#?}");
}

#[test]
fn connections_that_ask_nothing_do_not_keep_a_probe_from_its_answer() {
    let (_site, _setup, daemon) = Setup::start_embedding("");
    let connect = || TcpStream::connect_timeout(&daemon.admin, DEADLINE).unwrap();
    let mut idle: Vec<TcpStream> = (0..ADMIN_CONNECTIONS).map(|_| connect()).collect();
    body_of(daemon.get_admin("/healthz"));
    // The connection that was idle for longest made room: all that wait so long for nothing end much later.
    idle[0]
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    assert_eq!(idle[0].read(&mut [0]).unwrap(), 0);
}

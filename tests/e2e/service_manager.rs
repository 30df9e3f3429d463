//! The service manager: readiness, status, the watchdog only as long as work gets done, and sockets that it opened before
//! the daemon, with clients already waiting.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::Signal;

use crate::reload::reload;
use crate::support::DEADLINE;
use crate::support::daemon::{Daemon, Setup, assert_contains, fail, get, output, started_by};
use crate::support::documents::Site;
use crate::support::hub::{FakeHub, Manner};
use crate::support::manager::FakeManager;

/// Longer than any test.
const PATIENT: Duration = Duration::from_secs(600);
const IMPATIENT: Duration = Duration::from_secs(2);

fn readyz(daemon: &Daemon) -> String {
    daemon.get_admin("/readyz").0[..12].to_owned()
}

#[test]
fn ready_is_told_once_and_when_probes_are_told_so() {
    let (site, hub, manager) = (Site::new(), FakeHub::start(), FakeManager::start());
    // The site was just written, and is waited for; this tree is as old as the checkout.
    let old = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/tree");
    let old = format!(
        "[[hub]]\nurl = \"{}\"\n[[source]]\nname = \"old\"\n\
         mount = [{{ path = \"{old}\", url = \"https://old.example/\" }}]\n",
        hub.url()
    );
    let mut setup = Setup::with_source(&site, "", &old);
    setup.replace("settle = \"50ms\"", "settle = \"6s\"");
    let daemon = manager.launch(setup.run(), PATIENT);
    assert_eq!(readyz(&daemon), "HTTP/1.1 503");
    let (_, mut told) = manager.await_message("STATUS=sweeping 12 files");
    assert_eq!(readyz(&daemon), "HTTP/1.1 503");
    let (_, meanwhile) = manager.await_message("READY=1");
    assert_eq!(readyz(&daemon), "HTTP/1.1 200");
    told.extend(meanwhile);
    let others = told
        .iter()
        .filter(|(_, message)| !message.starts_with("STATUS=sweeping"));
    assert_eq!(
        others
            .map(|(_, message)| message.as_str())
            .collect::<Vec<_>>(),
        ["WATCHDOG=1"]
    );
    manager.await_message("STATUS=NOTHING IS SENT of 2 sets, see `rsnotify status`; 1 channel");

    assert!(daemon.stop().success());
    let (_, before) = manager.await_message("STATUS=stopping");
    let before: Vec<&str> = before.iter().map(|(_, message)| message.as_str()).collect();
    assert_eq!(before, ["STOPPING=1"]);
}

#[test]
fn the_status_says_what_is_pending_refused_and_in_trouble() {
    let (site, hub, manager) = (Site::new(), FakeHub::start(), FakeManager::start());
    let mut setup = Setup::new(&site, &[hub.url()], "");
    let good = setup.config.clone();
    let daemon = manager.launch(setup.run(), PATIENT);
    manager.await_message("STATUS=1 channel, 0 pending");
    setup.config += "[[sourc]]\n";
    reload(&daemon, &setup);
    manager.await_message("STATUS=configuration not reloaded, keeping the previous one: ");
    setup.config = good;
    reload(&daemon, &setup);
    manager.await_message("STATUS=1 channel, 0 pending");
    hub.behave(Manner::Refuse(400));
    site.write_list("a", "changelist", "2");
    let ((_, status), _) = manager.await_message("STATUS=1 hub in trouble");
    let want = format!(
        "STATUS=1 hub in trouble: {}: it wants the notification in another form (400): \
         try another mode; 1 channel, 1 pending",
        hub.url()
    );
    assert_eq!(status, want);
    hub.behave(Manner::Accept);
    let mut retry = setup.command("outbox");
    assert_eq!(output(retry.arg("retry")).0, Some(0));
    manager.await_message("STATUS=1 channel, 0 pending");
    assert!(daemon.stop().success());
}

#[test]
fn signs_of_life_come_as_often_as_is_asked_for_idle_and_busy() {
    let (site, hub, manager) = (Site::new(), FakeHub::start(), FakeManager::start());
    let setup = Setup::new(&site, &[hub.url()], "");
    let daemon = manager.launch(setup.run(), IMPATIENT);
    manager.await_message("READY=1");
    let pings = |while_waiting: &mut dyn FnMut()| {
        let first = manager.await_ping();
        let mut last = first;
        let mut count = 0;
        while count < 3 {
            while_waiting();
            last = manager.await_ping();
            count += 1;
        }
        assert!(last - first >= IMPATIENT, "{:?}", last - first);
    };
    pings(&mut || {});
    let mut version = 1;
    // Each of these is one step of the event loop or several.
    pings(&mut || {
        for _ in 0..50 {
            version += 1;
            site.write_list("a", "changelist", &version.to_string());
            daemon.get_admin("/status.json");
        }
    });
    hub.notification();

    daemon.signal(Signal::STOP);
    std::thread::sleep(IMPATIENT); // stall: nothing comes of a stopped process
    manager.heard();
    std::thread::sleep(IMPATIENT); // stall: as above, with what was under way gone
    assert_eq!(manager.heard(), [""; 0]);
    daemon.signal(Signal::CONT);
    manager.await_ping();
}

#[test]
fn a_sign_of_life_waits_for_the_store_to_answer_and_an_error_is_an_answer() {
    let (site, hub, manager) = (Site::new(), FakeHub::start(), FakeManager::start());
    let setup = Setup::new(&site, &[hub.url()], "");
    let daemon = manager.launch(setup.run(), IMPATIENT);
    manager.await_message("READY=1");
    let state = Connection::open(setup.state.path().join("state/state.sqlite")).unwrap();
    state.execute_batch("BEGIN IMMEDIATE").unwrap();
    let locked = Instant::now();
    // The store waits five seconds for the lock, and the manager as long for the next sign; one was under way.
    let ((said, status), before) =
        manager.await_message("STATUS=cannot save, nothing is sent: cannot write");
    assert_contains(&status, "locked");
    assert!(said - locked > 2 * IMPATIENT, "{:?}", said - locked);
    let pings = before.iter().filter(|(_, message)| message == "WATCHDOG=1");
    assert!(pings.count() <= 1, "{before:?}");
    manager.await_ping();
    manager.await_ping();
    assert_eq!(readyz(&daemon), "HTTP/1.1 503");
    state.execute_batch("ROLLBACK").unwrap();
    manager.await_message("STATUS=1 channel, 0 pending");
    assert_eq!(readyz(&daemon), "HTTP/1.1 200");
}

const TOPIC: &str = "/topics/main/a/capabilitylist/";
const REQUEST: &str =
    "GET /topics/main/a/capabilitylist/ HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\r\n";

/// Returns the command that starts the daemon with a socket as its first one, under this name.
fn activated(socket: impl Into<OwnedFd>, name: &str, setup: &Setup) -> Command {
    activated_by(Command::new("env"), socket, name, setup)
}

fn activated_by(
    mut program: Command,
    socket: impl Into<OwnedFd>,
    name: &str,
    setup: &Setup,
) -> Command {
    let script =
        format!("exec 3>&1 >/dev/null; export LISTEN_PID=$$ LISTEN_FDS=1 {name}; exec \"$@\"");
    program.args(["sh", "-c", &script, "sh"]);
    let mut command = started_by(program, &setup.run());
    // Any stream does to pass it.
    command.stdout(Stdio::from(socket.into()));
    command
}

#[test]
fn a_client_that_came_before_the_daemon_is_answered() {
    let (_site, _hub, mut setup) = Setup::announcing("");
    // It could not listen there.
    setup.replace(
        "[server]\nlisten = \"127.0.0.1:0\"",
        "[server]\nlisten = \"unix:/nowhere/public.sock\"",
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    client.write_all(REQUEST.as_bytes()).unwrap();
    // What systemd calls a socket that its unit does not name.
    let daemon = Daemon::spawn(activated(
        listener,
        "LISTEN_FDNAMES=rsnotify.socket",
        &setup,
    ));
    assert_eq!(daemon.public, address);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    daemon.await_log("ready");

    crate::reload::change_window(&mut setup);
    setup.replace("/nowhere/public", "/nowhere/else");
    setup.file();
    daemon.signal(Signal::HUP);
    daemon.await_log(
        "server.listen is ignored: the socket passed by the service manager stays in use",
    );
    daemon.await_log("reloaded the configuration");
    assert!(daemon.get(TOPIC).0.starts_with("HTTP/1.1 200"));
    assert!(daemon.stop().success());
}

#[test]
fn a_passed_socket_is_reached_at_its_own_address() {
    let (_site, setup) = Setup::embedding("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let daemon = Daemon::ready(activated(listener, "LISTEN_FDNAMES=public", &setup));
    let (head, _) = daemon.get(TOPIC);
    assert_contains(&head, &format!("<http://{address}{TOPIC}>; rel=\"self\""));
}

#[test]
fn a_socket_that_is_named_admin_is_for_that() {
    let (_site, _hub, setup) = Setup::announcing("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let daemon = Daemon::ready(activated(listener, "LISTEN_FDNAMES=admin", &setup));
    assert_eq!(daemon.admin, address);
    assert!(get(address, "/readyz").0.starts_with("HTTP/1.1 200"));
    assert!(daemon.get(TOPIC).0.starts_with("HTTP/1.1 200"));
}

#[test]
fn the_file_of_a_passed_unix_socket_stays() {
    let (_site, _hub, setup) = Setup::announcing("");
    let path = setup.state.path().join("passed.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut process = activated(listener, "", &setup)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(REQUEST.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    let pid = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(process.wait().unwrap().success());
    assert!(path.exists());
}

#[test]
fn a_socket_that_cannot_be_used_is_reported() {
    let (_site, setup) = Setup::embedding("");
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let (connected, _other) = UnixStream::pair().unwrap();
    for (socket, code, words) in [
        (
            OwnedFd::from(everywhere),
            78,
            "server.public_url: nobody can reach 0.0.0.0:",
        ),
        (OwnedFd::from(connected), 1, "needs Accept=no"),
    ] {
        let mut bounded = Command::new("timeout");
        bounded.arg(DEADLINE.as_secs().to_string());
        let said = fail(&mut activated_by(bounded, socket, "", &setup), code);
        assert_contains(&said, words);
    }
}

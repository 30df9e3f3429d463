//! Socket activation: sockets that a service manager opened before the daemon, with clients already waiting.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::DEADLINE;
use crate::support::daemon::{Daemon, Setup, assert_contains, get, output, started_by};
use crate::support::documents::Site;
use crate::support::hub::FakeHub;

const TOPIC: &str = "/topics/main/a/capabilitylist/";

/// Returns the command that starts the daemon with a socket as its first one, under this name.
fn activated(socket: impl Into<OwnedFd>, name: &str, setup: &Setup) -> Command {
    activated_by(Command::new("env"), socket, name, setup)
}

/// As `activated`, of a daemon that is to end by itself.
fn refused(socket: impl Into<OwnedFd>, setup: &Setup) -> (Option<i32>, String, String) {
    let mut bounded = Command::new("timeout");
    bounded.arg(DEADLINE.as_secs().to_string());
    output(&mut activated_by(bounded, socket, "", setup))
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

/// A setup that could not listen where it says.
fn without_address(site: &Site) -> Setup {
    let mut setup = Setup::new(site, &[FakeHub::start().url()], "");
    setup.replace(
        "[server]\nlisten = \"127.0.0.1:0\"",
        "[server]\nlisten = \"unix:/nowhere/public.sock\"",
    );
    setup
}

#[test]
fn a_client_that_came_before_the_daemon_is_answered() {
    let site = Site::new();
    let mut setup = without_address(&site);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(
        client,
        "GET {TOPIC} HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
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
fn an_address_that_nobody_can_reach_is_a_mistake_in_the_configuration() {
    let (_site, setup) = Setup::embedding("");
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let (code, _, said) = refused(listener, &setup);
    assert_eq!(code, Some(78), "{said}");
    assert_contains(&said, "server.public_url: nobody can reach 0.0.0.0:");
}

#[test]
fn a_socket_that_is_named_admin_is_for_that() {
    let site = Site::new();
    let setup = Setup::new(&site, &[FakeHub::start().url()], "");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let daemon = Daemon::ready(activated(listener, "LISTEN_FDNAMES=admin", &setup));
    assert_eq!(daemon.admin, address);
    assert!(get(address, "/readyz").0.starts_with("HTTP/1.1 200"));
    assert!(daemon.get(TOPIC).0.starts_with("HTTP/1.1 200"));
}

#[test]
fn the_file_of_a_passed_unix_socket_stays() {
    let site = Site::new();
    let setup = Setup::new(&site, &[FakeHub::start().url()], "");
    let path = setup.state.path().join("passed.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut process = activated(listener, "", &setup)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(
        stream,
        "GET {TOPIC} HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
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
    let (connected, _other) = UnixStream::pair().unwrap();
    let (code, _, said) = refused(connected, &setup);
    assert_eq!(code, Some(1), "{said}");
    assert_contains(&said, "needs Accept=no");
}

//! Socket activation: sockets that a service manager opened before the daemon, with clients already waiting.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::DEADLINE;
use crate::support::daemon::{Daemon, Setup, assert_contains, fail, get, started_by};

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

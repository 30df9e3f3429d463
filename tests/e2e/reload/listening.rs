//! Listeners that move: the new address is open before the old one is closed, and unchanged ones stay open.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::reload::reload;
use crate::support::DEADLINE;
use crate::support::daemon::{Daemon, Setup, get};

const TOPIC: &str = "/topics/main/a/capabilitylist/";

/// Returns the address on which it logs that it listens.
fn moved(daemon: &Daemon, setup: &Setup) -> String {
    setup.file();
    daemon.signal(rustix::process::Signal::HUP);
    let listening = daemon.await_log("listening");
    daemon.await_log("reloaded the configuration");
    listening["address"].as_str().unwrap().to_owned()
}

#[test]
fn a_listener_that_moved_answers_there_and_no_longer_here() {
    let (_site, _hub, mut setup, daemon) = Setup::start_announcing("");
    // Kept open by its client, it is closed when nothing is asked on it.
    let mut client = TcpStream::connect(daemon.public).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    setup.replace(
        "[server]\nlisten = \"127.0.0.1:0\"",
        "[server]\nlisten = \"127.0.0.2:0\"",
    );
    let public: SocketAddr = moved(&daemon, &setup).parse().unwrap();
    assert!(get(public, TOPIC).0.starts_with("HTTP/1.1 200"));
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert!(TcpStream::connect(daemon.public).is_err());
    assert!(daemon.status()["configuration"]["refused"].is_null());

    setup.replace(
        "admin_listen = \"127.0.0.1:0\"",
        "admin_listen = \"127.0.0.2:0\"",
    );
    let admin: SocketAddr = moved(&daemon, &setup).parse().unwrap();
    assert!(get(admin, "/readyz").0.starts_with("HTTP/1.1 200"));
    assert!(get(public, TOPIC).0.starts_with("HTTP/1.1 200"));
    assert!(TcpStream::connect(daemon.admin).is_err());
    assert!(daemon.stop().success());
}

#[test]
fn a_unix_socket_goes_when_it_is_left() {
    let (_site, _hub, mut setup, daemon) = Setup::start_announcing("");
    let (first, second) = (
        setup.state.path().join("first.sock"),
        setup.state.path().join("second.sock"),
    );
    let mut before = "[server]\nlisten = \"127.0.0.1:0\"".to_owned();
    for path in [&first, &second] {
        let after = format!("[server]\nlisten = \"unix:{}\"", path.display());
        setup.replace(&before, &after);
        before = after;
        moved(&daemon, &setup);
        let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        let request = format!("GET {TOPIC} HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(!first.exists());
    assert!(daemon.stop().success());
    assert!(!second.exists());
}

#[test]
fn a_client_stays_connected_through_a_reload() {
    let (_site, _hub, mut setup, daemon) = Setup::start_announcing("");
    let mut client = TcpStream::connect(daemon.public).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    for _ in 0..3 {
        crate::reload::change_window(&mut setup);
        reload(&daemon, &setup);
        write!(client, "HEAD {TOPIC} HTTP/1.1\r\nHost: e\r\n\r\n").unwrap();
        let mut beginning = [0; 12];
        client.read_exact(&mut beginning).unwrap();
        assert_eq!(&beginning, b"HTTP/1.1 200");
        // The rest of the head.
        let mut last = Vec::new();
        while !last.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            last.extend(byte);
        }
    }
}

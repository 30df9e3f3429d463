//! `health` as a container runtime calls it: an exit code and a line, whatever answers.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rstest::rstest;

use crate::support::daemon::{Daemon, Setup, assert_contains, output};
use crate::support::documents::Site;

/// The command without anything around it: no home, no state directory, and a proxy that leads nowhere.
fn health(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
    command
        .env_clear()
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .arg("health");
    output(command.args(arguments))
}

/// Starts a server that answers every request in this way, in pieces with a pause after each. Returns its address.
fn impostor(answer: &'static str, rest: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            for byte in answer.bytes() {
                if stream.write_all(&[byte]).is_err() {
                    break;
                }
                thread::sleep(rest); // stall: it answers as slowly as the test says
            }
        }
    });
    address
}

#[test]
fn a_running_daemon_is_alive_and_ready() {
    let site = Site::new();
    let daemon = Setup::new(&site, &[], "").start();
    let address = daemon.admin.to_string();
    let said = |line: &str| (Some(0), format!("{line}\n"), String::new());
    assert_eq!(health(&["--admin-listen", &address]), said("alive"));
    assert_eq!(
        health(&["--ready", "--admin-listen", &address]),
        said("ready")
    );
}

#[test]
fn a_daemon_at_a_socket_is_found_by_its_file_although_its_secret_is_gone() {
    let site = Site::new();
    let token = site.path("token");
    fs::write(&token, "secret\n").unwrap();
    let hub = format!(
        "[[hub]]\nurl = \"http://127.0.0.1:9/\"\nbearer_token_file = \"{}\"\n",
        token.display()
    );
    let setup = Setup::with_source(&site, "", &hub);
    let admin = "admin_listen = \"127.0.0.1:0\"";
    assert!(setup.config.contains(admin));
    let setup = Setup {
        config: setup
            .config
            .replace(admin, "admin_listen = \"unix:admin.sock\""),
        ..setup
    };
    let daemon = setup.start();
    fs::remove_file(&token).unwrap();
    let file = setup.file();
    let arguments = ["--ready", "--config", file.to_str().unwrap()];
    assert_eq!(
        health(&arguments),
        (Some(0), "ready\n".into(), String::new())
    );

    assert!(daemon.stop().success());
    let (code, _, stderr) = health(&arguments);
    assert_eq!(code, Some(1));
    assert_contains(&stderr, "/admin.sock for /readyz: No such file");
}

#[test]
fn a_daemon_that_still_looks_at_its_tree_is_alive_and_not_ready() {
    let (_site, setup) = Setup::embedding("");
    let setup = Setup {
        config: setup.config.replace("settle = \"50ms\"", "settle = \"1h\""),
        ..setup
    };
    let daemon: Daemon = setup.launch();
    let address = daemon.admin.to_string();
    let (code, stdout, _) = health(&["--admin-listen", &address]);
    assert_eq!((code, stdout.as_str()), (Some(0), "alive\n"));
    let (code, stdout, stderr) = health(&["--admin-listen", &address, "--ready"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    let said = format!(
        "rsnotify: {address} answers /readyz with 503 Service Unavailable: not every mount was swept yet, or its Change Lists were not read\n"
    );
    assert_eq!(stderr, said);
}

#[test]
fn a_daemon_that_does_not_run_is_unhealthy() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (code, stdout, stderr) = health(&["--admin-listen", &address.to_string()]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    let said =
        format!("rsnotify: cannot ask {address} for /healthz: Connection refused (os error 111)\n");
    assert_eq!(stderr, said);
}

#[test]
fn a_server_that_takes_too_long_is_unhealthy() {
    // It accepts connections, and nobody takes them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = impostor(
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nalive\n",
        Duration::from_millis(100),
    );
    for address in [silent.local_addr().unwrap().to_string(), slow] {
        let (code, stdout, stderr) = health(&["--timeout", "300ms", "--admin-listen", &address]);
        assert_eq!((code, stdout.as_str()), (Some(1), ""));
        let said = format!("rsnotify: no answer from {address} to /healthz within 300ms\n");
        assert_eq!(stderr, said);
    }
}

#[rstest]
#[case(
    "HTTP/1.1 500 Oh\r\nContent-Length: 9\r\n\r\n\u{1b}[2Jno\nyes",
    "answers /healthz with 500 Internal Server Error:  [2Jno"
)]
#[case("SSH-2.0-OpenSSH_9.2p1\r\n", "cannot ask ")]
#[case(
    "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
    "answers /healthz with 302 Found"
)]
fn an_impostor_is_not_well(#[case] answer: &'static str, #[case] said: &str) {
    let address = impostor(answer, Duration::ZERO);
    let (code, stdout, stderr) = health(&["--admin-listen", &address]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert_contains(&stderr, said);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn an_address_that_cannot_be_asked_is_the_operators_to_put_right() {
    let (code, _, stderr) = health(&["--admin-listen", "localhost:8401"]);
    assert_eq!(code, Some(78));
    assert_contains(&stderr, "has a host name");
    let (code, _, stderr) = health(&["--admin-listen", "127.0.0.1:0"]);
    assert_eq!(code, Some(1));
    assert_contains(&stderr, "give it one in server.admin_listen");
}

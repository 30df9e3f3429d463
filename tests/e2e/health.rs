//! `health` as a container runtime calls it: an exit code and a line, whatever answers.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::daemon::{Setup, assert_contains, output};
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
    let mut setup = Setup::with_source(&site, "", &hub);
    setup.replace(
        "admin_listen = \"127.0.0.1:0\"",
        "admin_listen = \"unix:admin.sock\"",
    );
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
    let (_site, mut setup) = Setup::embedding("");
    setup.replace("settle = \"50ms\"", "settle = \"1h\"");
    let daemon = setup.launch();
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
fn what_is_no_daemon_is_unhealthy_in_one_line() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    // It accepts connections, and nobody takes them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let alive = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nalive\n";
    let loud = "HTTP/1.1 500 Oh\r\nContent-Length: 9\r\n\r\n\u{1b}[2Jno\nyes";
    let moved = "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n";
    let at_once = |answer| impostor(answer, Duration::ZERO);
    for (address, code, words) in [
        (
            nobody.unwrap().to_string(),
            1,
            "cannot ask ADDRESS for /healthz: Connection refused (os error 111)",
        ),
        (
            silent.local_addr().unwrap().to_string(),
            1,
            "no answer from ADDRESS to /healthz within 300ms",
        ),
        (
            impostor(alive, Duration::from_millis(100)),
            1,
            "no answer from ADDRESS to /healthz within 300ms",
        ),
        (
            at_once(loud),
            1,
            "ADDRESS answers /healthz with 500 Internal Server Error:  [2Jno",
        ),
        (
            at_once("SSH-2.0-OpenSSH_9.2p1\r\n"),
            1,
            "cannot ask ADDRESS",
        ),
        (at_once(moved), 1, "ADDRESS answers /healthz with 302 Found"),
        // These are the operator's to put right.
        ("localhost:8401".to_owned(), 78, "has a host name"),
        (
            "127.0.0.1:0".to_owned(),
            1,
            "give it one in server.admin_listen",
        ),
    ] {
        let (ended, stdout, stderr) = health(&["--timeout", "300ms", "--admin-listen", &address]);
        assert_eq!((ended, &*stdout), (Some(code), ""), "{words}: {stderr}");
        assert_contains(&stderr, &words.replace("ADDRESS", &address));
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

//! The socket for commands to a running daemon: closed to other users, and never blocked by a client. Commands reach it even
//! if its configuration file is wrong at the moment.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::DEADLINE;
use crate::support::daemon::{
    Daemon, Setup, assert_contains, body_of, exit_with, fail, json, output, succeed,
};
use crate::support::documents::{Site, URL, list};
use crate::support::hub::FakeHub;

/// A running daemon whose source is suspended, and would be for half an hour without that.
fn suspended() -> (Site, Setup, Daemon) {
    let site = Site::new();
    for number in 0..20 {
        let path = format!("a/{number:02}.xml");
        site.write(&path, &list("a", "changelist", "1"));
    }
    let hub = FakeHub::start();
    let setup = Setup::with_source(&site, "deletion_grace = \"30m\"", &hub.table(""));
    let daemon = setup.start();
    fs::rename(site.path("a"), site.path(".a")).unwrap();
    daemon.await_log("deletions are suspended");
    (site, setup, daemon)
}

fn socket(setup: &Setup) -> PathBuf {
    setup.state.path().join("state/control.sock")
}

/// Returns the answer to these bytes.
fn answer(setup: &Setup, bytes: &[u8]) -> Value {
    let mut stream = UnixStream::connect(socket(setup)).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // It may be answered, and closed, before all of it was taken.
    let _ = stream.write_all(bytes);
    let mut line = Vec::new();
    let _ = stream.read_to_end(&mut line);
    assert_eq!(line.last(), Some(&b'\n'), "{line:?}");
    serde_json::from_slice(&line).unwrap()
}

fn accept(setup: &Setup) -> Command {
    let mut command = setup.command("accept");
    command.arg("main");
    command
}

#[test]
fn a_request_is_a_line_and_so_is_its_answer() {
    let (_site, setup, daemon) = suspended();
    let request = b"{\"version\":1,\"command\":\"accept\",\"source\":\"main\"}\n";
    let accepted = json!({ "version": 1, "accepted": { "source": "main", "documents": 23 } });
    assert_eq!(answer(&setup, request), accepted);
    daemon.await_log("were accepted as deleted");
    let unknown = b"{\"version\":1,\"command\":\"accept\",\"source\":\"x\"}\n";
    let error = "no source is named \"x\"; there is main";
    assert_eq!(
        answer(&setup, unknown),
        json!({ "version": 1, "error": error })
    );
    let (code, out, _) = output(accept(&setup).arg("--json"));
    let said: Value = serde_json::from_str(&out).unwrap();
    // They are missing until the grace is over.
    let wanted = json!({ "version": 1, "source": "main", "accepted": 23, "running": true });
    assert_eq!((code, said), (Some(0), wanted));
}

#[test]
fn a_dry_run_says_what_would_be_accepted_and_accepts_nothing() {
    let (site, setup, daemon) = suspended();
    let directory = site.path("a").display().to_string();
    let out = succeed(accept(&setup).arg("--dry-run"));
    let wanted = format!(
        "23 missing documents of main would be accepted as deleted:\n  23 of 23 in {directory}\n"
    );
    assert_eq!(out, wanted);
    let (code, out, _) = output(accept(&setup).args(["--dry-run", "--json"]));
    let said: Value = serde_json::from_str(&out).unwrap();
    let wanted = json!({
        "version": 1,
        "source": "main",
        "dry_run": true,
        "accepted": 0,
        "missing": 23,
        "directories": [{ "directory": directory, "missing": 23, "of": 23 }],
        "absent": [],
        "running": true,
    });
    assert_eq!((code, said), (Some(0), wanted));
    // They still are suspended, and everybody says where.
    let (_, out, _) = output(&mut setup.command("status"));
    let suspended = "23 of 24 documents of main are missing: their deletions are suspended";
    assert_contains(&out, suspended);
    assert_contains(&out, &format!("\n    23 of 23 in {directory}\n"));
    let (out, _) = exit_with(&mut setup.command("check"), 1);
    assert_contains(&out, &format!("missing: 23 of 23 in {directory}\n"));
    let status = json(&mut setup.command("status"));
    let missing = &status["sources"][0]["missing_in"];
    assert_eq!(
        missing,
        &json!([{ "directory": directory, "missing": 23, "of": 23 }])
    );
    // Where no daemon runs, the state is asked.
    assert!(daemon.stop().success());
    let said = json(accept(&setup).arg("--dry-run"));
    assert_eq!(
        (&said["missing"], &said["running"]),
        (&json!(23), &json!(false))
    );
    let err = fail(setup.command("accept").args(["other", "--dry-run"]), 1);
    assert_contains(&err, "no source is named \"other\"; there is main");
}

#[test]
fn only_its_owner_may_connect_and_it_goes_with_its_daemon() {
    let (_site, setup, daemon) = suspended();
    let mode = fs::metadata(socket(&setup)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    // What a killed daemon left is replaced.
    daemon.kill();
    assert!(socket(&setup).exists());
    fs::create_dir_all(setup.state.path().join("state/.control")).unwrap();
    fs::write(setup.state.path().join("state/.control/control.sock"), "").unwrap();
    let daemon = setup.start();
    let out = succeed(&mut accept(&setup));
    assert_eq!(out, "accepted 23 missing documents of main as deleted\n");
    assert!(daemon.stop().success());
    let left = fs::read_dir(setup.state.path().join("state")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    let is_of_control = |name: &std::ffi::OsString| name.to_string_lossy().contains("control");
    assert!(!left.iter().any(is_of_control), "{left:?}");
}

#[test]
fn a_second_daemon_does_not_take_it() {
    let (_site, setup, _daemon) = suspended();
    let err = fail(&mut setup.command("run"), 1);
    assert_contains(&err, "another rsnotify uses the state directory");
    succeed(&mut accept(&setup));
    // A lock without a socket.
    fs::remove_file(socket(&setup)).unwrap();
    assert_contains(&fail(&mut accept(&setup), 1), "retry in a moment");
}

#[test]
fn what_is_no_request_is_answered_with_an_error() {
    let (_site, setup, daemon) = suspended();
    let endless = vec![b'x'; 1 << 20];
    for (bytes, error) in [
        (&b"accept main\n"[..], "malformed message"),
        (&endless, "the request is too long"),
        // The line does not end.
        (b"{\"version\":1", "no request received within"),
    ] {
        let answer = answer(&setup, bytes);
        let said = answer["error"].as_str().unwrap();
        assert_contains(said, error);
    }
    assert!(daemon.stop().success());
}

#[test]
fn clients_that_neither_write_nor_read_stop_nobody() {
    let (_site, setup, daemon) = suspended();
    let connect = || UnixStream::connect(socket(&setup)).unwrap();
    let silent: Vec<UnixStream> = (0..50).map(|_| connect()).collect();
    let mut deaf: Vec<UnixStream> = (0..50).map(|_| connect()).collect();
    for stream in &mut deaf {
        let request = b"{\"version\":1,\"command\":\"accept\",\"source\":\"other\"}\n";
        stream.write_all(request).unwrap();
    }
    let out = succeed(&mut accept(&setup));
    assert_eq!(out, "accepted 23 missing documents of main as deleted\n");
    assert!(daemon.stop().success());
    drop((silent, deaf));
}

#[test]
fn a_state_directory_with_a_long_path_has_one_too() {
    let (_site, setup, daemon) = suspended();
    assert!(daemon.stop().success());
    let long = setup.state.path().join("d".repeat(120));
    fs::rename(setup.state.path().join("state"), &long).unwrap();
    let with = |command: &str| {
        let mut command = setup.command(command);
        command.arg("--state-dir").arg(&long);
        command
    };
    let mut run = with("run");
    run.args(["--log-format", "json", "--log-level", "debug"]);
    let _daemon = Daemon::ready(run);
    let out = succeed(with("accept").arg("main"));
    assert_eq!(out, "accepted 23 missing documents of main as deleted\n");
}

/// A command that knows nothing but this.
fn with(command: &[&str], flag: &str, path: &Path) -> Command {
    let mut process = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
    process.args(command).arg(flag).arg(path);
    process.env_remove("STATE_DIRECTORY");
    process.env("HOME", "/nonexistent");
    process
}

/// One that knows the file, and no state directory but the one that the file names.
fn with_file(setup: &Setup, command: &[&str]) -> Command {
    with(command, "--config", &setup.state.path().join("config.toml"))
}

fn with_state(setup: &Setup, command: &[&str]) -> Command {
    with(command, "--state-dir", &setup.state.path().join("state"))
}

const QUESTIONS: [&[&str]; 4] = [
    &["status"],
    &["outbox", "list"],
    &["subscriptions", "list"],
    &["accept", "main"],
];

#[test]
fn a_file_that_is_wrong_at_the_moment_keeps_nobody_from_asking() {
    let (_site, mut setup) = Setup::embedding("");
    setup.config = format!("state_dir = \"state\"\n{}", setup.config);
    let daemon = setup.start();
    let path = setup.file();
    for (wrong, named) in [
        ("quite = \"2s\"\n", "quite: there is no such key"),
        ("[[hub]]\nurl = \"no URI\"\n", "hub.url: "),
        ("[[hub]\nurl =\n", "config.toml:"),
    ] {
        fs::write(&path, format!("state_dir = \"state\"\n{wrong}")).unwrap();
        for question in QUESTIONS {
            let (_, err) = exit_with(&mut with_file(&setup, question), 0);
            assert_contains(&err, "configuration is invalid");
            assert_contains(&err, named);
        }
    }
    drop(daemon);
    // Where no daemon runs, its configuration says what its state means.
    fail(&mut with_file(&setup, &["status"]), 78);
}

#[test]
fn the_state_directory_alone_is_enough_to_ask() {
    let (_site, setup, daemon) = Setup::start_embedding("");
    for question in QUESTIONS {
        let (code, out, err) = output(&mut with_state(&setup, question));
        assert_eq!((code, err.as_str()), (Some(0), ""), "{question:?}: {out}");
    }
    drop(daemon);
    let err = fail(&mut with_state(&setup, &["status"]), 78);
    assert_contains(&err, "no rsnotify is running with");
}

#[test]
fn advertise_asks_the_daemon_what_it_listens_on() {
    let (site, setup) = Setup::embedding("");
    let root = site.root.path().display().to_string();
    // Nothing says which port: it took a free one.
    let tree: [&str; 4] = ["--root", &root, "--url", URL];
    let err = fail(setup.command("advertise").args(tree), 1);
    assert_contains(&err, "start rsnotify, or set server.public_url");
    let daemon = setup.start();
    let out = succeed(&mut with_state(
        &setup,
        &["advertise", "--json", "--root", &root, "--url", URL],
    ));
    let said: Value = serde_json::from_str(&out).unwrap();
    let topic = said["sets"][0]["topic"].as_str().unwrap();
    let address = daemon.public;
    assert_eq!(
        topic,
        format!("http://{address}/topics/main/a/capabilitylist/")
    );
    body_of(daemon.get(topic.strip_prefix(&format!("http://{address}")).unwrap()));
}

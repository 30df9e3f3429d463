//! Commands reach a running daemon even if its configuration file is wrong at the moment.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::daemon::{Setup, assert_contains, body_of, exit_with, fail, output, succeed};
use crate::support::documents::URL;

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

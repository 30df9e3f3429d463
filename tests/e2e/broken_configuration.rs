//! Commands reach a running daemon even if its configuration file is wrong at the moment.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::daemon::{Setup, output};
use crate::support::documents::{Site, URL};

/// A command that knows the file and no state directory but the one that the file names.
fn with_file(setup: &Setup, command: &[&str]) -> Command {
    let mut process = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
    process.args(command).arg("--config");
    process.arg(setup.state.path().join("config.toml"));
    process.env_remove("STATE_DIRECTORY");
    process.env("HOME", "/nonexistent");
    process
}

/// A command that knows nothing but the state directory.
fn with_state(setup: &Setup, command: &[&str]) -> Command {
    let mut process = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
    process.args(command).arg("--state-dir");
    process.arg(setup.state.path().join("state"));
    process.env_remove("STATE_DIRECTORY");
    process.env("HOME", "/nonexistent");
    process
}

const QUESTIONS: [&[&str]; 4] = [
    &["status"],
    &["outbox", "list"],
    &["subscriptions", "list"],
    &["accept", "main"],
];

#[test]
fn a_file_that_is_wrong_at_the_moment_keeps_nobody_from_asking() {
    let site = Site::new();
    let mut setup = Setup::new(&site, &[], "");
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
            let (code, out, err) = output(&mut with_file(&setup, question));
            assert_eq!(code, Some(0), "{wrong}{question:?}: {out}{err}");
            assert!(
                err.contains("configuration is invalid") && err.contains(named),
                "{err}"
            );
        }
    }
    drop(daemon);
    // Where no daemon runs, its configuration says what its state means.
    let (code, _, err) = output(&mut with_file(&setup, &["status"]));
    assert_eq!(code, Some(78), "{err}");
}

#[test]
fn the_state_directory_alone_is_enough_to_ask() {
    let site = Site::new();
    let setup = Setup::new(&site, &[], "");
    let daemon = setup.start();
    for question in QUESTIONS {
        let (code, out, err) = output(&mut with_state(&setup, question));
        assert_eq!((code, err.as_str()), (Some(0), ""), "{question:?}: {out}");
    }
    drop(daemon);
    let (code, _, err) = output(&mut with_state(&setup, &["status"]));
    assert_eq!(code, Some(78), "{err}");
    assert!(err.contains("no rsnotify is running with"), "{err}");
}

#[test]
fn advertise_asks_the_daemon_what_it_listens_on() {
    let site = Site::new();
    let setup = Setup::new(&site, &[], "");
    let root = site.root.path().display().to_string();
    // Nothing says which port: it took a free one.
    let tree: [&str; 4] = ["--root", &root, "--url", URL];
    let (code, _, err) = output(setup.command("advertise").args(tree));
    assert_eq!(code, Some(1), "{err}");
    assert!(
        err.contains("start rsnotify, or set server.public_url"),
        "{err}"
    );
    let daemon = setup.start();
    let (code, out, err) = output(&mut with_state(
        &setup,
        &["advertise", "--json", "--root", &root, "--url", URL],
    ));
    assert_eq!(code, Some(0), "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    let topic = said["sets"][0]["topic"].as_str().unwrap();
    let address = daemon.public;
    assert_eq!(
        topic,
        format!("http://{address}/topics/main/a/capabilitylist/")
    );
    let (head, _) = daemon.get(topic.strip_prefix(&format!("http://{address}")).unwrap());
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

#[test]
fn a_state_directory_inside_a_mount_is_refused() {
    let site = Site::new();
    let root = site.root.path().display().to_string();
    let state = site.path("state").display().to_string();
    for command in ["run", "check", "scan"] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
        process.args([
            command,
            "--root",
            &root,
            "--url",
            URL,
            "--state-dir",
            &state,
        ]);
        let (code, _, err) = output(&mut process);
        assert_eq!(code, Some(78), "{command}: {err}");
        assert!(err.contains("lies inside the mount"), "{err}");
        assert!(!site.path("state").exists());
    }
}

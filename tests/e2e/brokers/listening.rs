//! `listen --broker` and `check`, with a broker that does as it is told.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use messaging::frame::Frame;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::brokers::{Story, broker};
use crate::support::DEADLINE;
use crate::support::daemon::{Setup, assert_contains, fail, json, succeed};
use crate::support::stomp::{FakeBroker, Manner};

/// A running `listen`; killed when dropped.
pub struct Listener {
    child: Child,
    lines: Receiver<Value>,
}

impl Listener {
    /// Listens to the broker `repository`, and waits until it has subscribed.
    pub fn start(setup: &Setup, flags: &[&str]) -> Listener {
        let mut command = setup.command("listen");
        command
            .args(["--broker", "repository", "--json"])
            .args(flags);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        let listener = Listener { child, lines };
        assert_eq!(listener.next()["event"], "subscribed");
        listener
    }

    #[track_caller]
    pub fn next(&self) -> Value {
        self.lines.recv_timeout(DEADLINE).unwrap()
    }

    /// Returns what it has printed since, without waiting.
    pub fn printed(&self) -> impl Iterator<Item = Value> {
        self.lines.try_iter()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_message_is_a_line_of_json_and_acknowledged_once_it_is_printed() {
    let (fake, mut story) = Story::with_broker("");
    let listener = Listener::start(&story.setup, &[]);
    let daemon = story.start();
    story.change();
    let line = listener.next();
    let message = &fake.messages(1)[0];
    for (name, value) in [
        ("event", "notification"),
        ("format", "resourcesync"),
        ("kind", "change"),
        ("source", "main"),
        ("destination", "/topic/main.changes"),
        ("messageId", message.header("messageId").unwrap()),
        ("topic", message.header("topic").unwrap()),
    ] {
        assert_eq!(line[name], value, "{line}");
    }
    assert_eq!(line["seq"], 1);
    let entry = &line["entries"][0];
    assert_eq!(entry["loc"], "https://source.example/a/0.txt");
    assert_eq!(entry["change"], "updated");
    fake.await_acknowledged(1);
    drop(daemon);
}

#[test]
fn a_command_that_fails_is_run_again_before_the_message_is_acknowledged() {
    let (fake, mut story) = Story::with_broker("");
    let directory = tempfile::tempdir().unwrap();
    let (tried, got) = (directory.path().join("tried"), directory.path().join("got"));
    let command = format!(
        "test -e {0} || {{ touch {0}; exit 3; }}; cat >>{1}",
        tried.display(),
        got.display()
    );
    let listener = Listener::start(&story.setup, &["--exec", &command]);
    let daemon = story.start();
    story.change();
    assert_eq!(listener.next()["event"], "command_failed");
    assert_eq!(fake.acknowledged(), 0);
    fake.await_acknowledged(1);
    let got = std::fs::read_to_string(got).unwrap();
    let line: Value = serde_json::from_str(&got).unwrap();
    assert_eq!(line["entries"][0]["loc"], "https://source.example/a/0.txt");
    drop(daemon);
}

#[test]
fn a_damaged_message_is_reported_and_the_next_one_is_read() {
    for flags in [&[][..], &["--strict"]] {
        let (fake, story) = Story::with_broker("");
        let listener = Listener::start(&story.setup, flags);
        let message = || Frame::new("MESSAGE").with("destination", "/topic/main.changes");
        let long = vec![b'x'; (1 << 20) + 1];
        fake.offer(Frame {
            body: long,
            ..message()
        });
        fake.offer(message().with("wide", "x".repeat(70_000)));
        fake.offer(message().with("last", "yes"));
        for _ in 0..2 {
            let line = listener.next();
            assert_eq!(line["event"], "invalid", "{line}");
            assert_eq!(line["topic"], "/topic/main.changes");
        }
        assert_eq!(listener.next()["headers"]["last"], "yes");
        let acknowledged = if flags.is_empty() { 3 } else { 1 };
        fake.await_acknowledged(acknowledged);
        assert_eq!(fake.acknowledged(), acknowledged);
    }
}

#[test]
fn after_a_signal_a_command_has_time_to_end_and_is_acknowledged() {
    for (then, acknowledged) in [("true", 1), ("sleep 1000 & sleep 1000", 0)] {
        let (fake, mut story) = Story::with_broker("");
        let directory = tempfile::tempdir().unwrap();
        let [started, go] = ["started", "go"].map(|name| directory.path().join(name));
        let command = format!(
            "touch {}; while ! test -e {}; do sleep 0.01; done; {then}",
            started.display(),
            go.display()
        );
        let mut listener = Listener::start(&story.setup, &["--exec", &command]);
        let daemon = story.start();
        story.change();
        let deadline = Instant::now() + DEADLINE;
        while !started.exists() {
            assert!(Instant::now() < deadline, "the command runs");
            std::thread::sleep(Duration::from_millis(5)); // a poll, up to the deadline
        }
        kill_process(Pid::from_child(&listener.child), Signal::TERM).unwrap();
        std::fs::write(&go, "").unwrap();
        assert!(listener.child.wait().unwrap().success());
        fake.await_acknowledged(acknowledged);
        assert_eq!(fake.acknowledged(), acknowledged, "{then}");
        // The output is closed once no process has it any more.
        while listener.lines.recv_timeout(DEADLINE).is_ok() {}
        let closed = listener.lines.recv_timeout(DEADLINE);
        assert_eq!(closed.unwrap_err(), RecvTimeoutError::Disconnected);
        drop(daemon);
    }
}

#[test]
fn a_consumer_elsewhere_needs_no_source() {
    let (fake, mut story) = Story::with_broker("");
    let config = broker(fake.address, "sources = [\"main\"]");
    story.setup.config = config.replace("/topic/{source}.changes", "/topic/all");
    let subscribed = Listener::start(&story.setup, &[]);
    drop(subscribed);
    story.setup.config = broker(fake.address, "");
    Listener::start(&story.setup, &["--destination", "/topic/all"]);
    let mut unnamed = story.setup.command("listen");
    let error = fail(unnamed.args(["--broker", "repository"]), 78);
    assert_contains(&error, "name it with --destination");
}

#[test]
fn listening_to_what_is_not_there_says_so() {
    let (fake, story) = Story::with_broker("");
    let mut unknown = story.setup.command("listen");
    let error = fail(unknown.args(["--broker", "other"]), 1);
    assert_contains(&error, "no broker is named \"other\"; there is repository");
    fake.behave(Manner::RefuseLogin("User name [a] or password is invalid."));
    let mut refused = story.setup.command("listen");
    let error = fail(refused.args(["--broker", "repository"]), 69);
    assert_contains(&error, "password is invalid");
}

#[test]
fn check_connects_and_says_what_the_broker_answers() {
    let (fake, story) = Story::with_broker("");
    let check = || {
        let mut check = story.setup.command("check");
        let answer = json(&mut check);
        let texts = |key: &str| -> String {
            let texts = answer[key].as_array().unwrap().iter();
            let texts = texts.map(|text| text.as_str().unwrap());
            texts
                .filter(|text| text.starts_with("repository: "))
                .collect()
        };
        (texts("findings"), texts("notes"))
    };
    let (findings, notes) = check();
    assert_eq!(findings, "");
    assert_eq!(
        notes,
        format!("repository: connected to fake/1 at {}", fake.address)
    );
    fake.behave(Manner::RefuseLogin("User name [a] or password is invalid."));
    let (findings, notes) = check();
    assert_contains(&findings, "password is invalid");
    assert_eq!(notes, "");
    assert_eq!(fake.messages(0).len(), 0);
}

#[test]
fn a_dry_run_prints_the_messages_and_sends_none() {
    let fake = FakeBroker::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "hunter2").unwrap();
    let headers = format!(
        "headers = {{ priority = \"7\", key = {{ file = \"{}\" }} }}",
        file.display()
    );
    let mut story = Story::new(&broker(fake.address, &headers));
    assert!(story.start().stop().success());
    story.change();
    let mut dry_run = story.setup.command("run");
    let printed = succeed(dry_run.arg("--dry-run"));
    for line in [
        "SEND",
        "destination: /topic/main.changes",
        "kind: change",
        "priority: 7",
        "key: ***",
    ] {
        assert!(
            printed.lines().any(|printed| printed == line),
            "{line}: {printed}"
        );
    }
    assert_contains(&printed, "https://source.example/a/0.txt");
    assert_eq!(fake.messages(0).len(), 0);
}

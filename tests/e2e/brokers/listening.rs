//! `listen --broker` and `check`, with a broker that does as it is told.

use messaging::frame::Frame;
use serde_json::Value;

use crate::brokers::{Story, broker};
use crate::support::daemon::{Setup, assert_contains, fail, json, succeed};
use crate::support::listener::Listener;
use crate::support::stomp::{FakeBroker, Manner};
use crate::support::until;

/// Listens to the broker `repository`, and waits until it has subscribed.
pub fn listen(setup: &Setup, flags: &[&str]) -> Listener {
    let mut command = setup.command("listen");
    command.args(["--broker", "repository", "--json"]);
    let listener = Listener::of(command.args(flags));
    assert_eq!(listener.json()["event"], "subscribed");
    listener
}

#[test]
fn each_message_is_a_line_of_json_and_acknowledged_once_it_is_printed() {
    let (fake, mut story) = Story::with_broker("");
    let listener = listen(&story.setup, &["--selector", "seq > 0"]);
    assert_eq!(fake.selector().as_deref(), Some("seq > 0"));
    let daemon = story.start();
    story.change();
    let line = listener.json();
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
    let listener = listen(&story.setup, &["--exec", &command]);
    let daemon = story.start();
    story.change();
    assert_eq!(listener.json()["event"], "command_failed");
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
        let listener = listen(&story.setup, flags);
        let message = || Frame::new("MESSAGE").with("destination", "/topic/main.changes");
        let long = vec![b'x'; (1 << 20) + 1];
        fake.offer(Frame {
            body: long,
            ..message()
        });
        fake.offer(message().with("wide", "x".repeat(70_000)));
        fake.offer(message().with("last", "yes"));
        for _ in 0..2 {
            let line = listener.json();
            assert_eq!(line["event"], "invalid", "{line}");
            assert_eq!(line["topic"], "/topic/main.changes");
        }
        assert_eq!(listener.json()["headers"]["last"], "yes");
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
        let listener = listen(&story.setup, &["--exec", &command]);
        let daemon = story.start();
        story.change();
        until(|| started.exists());
        listener.signal();
        std::fs::write(&go, "").unwrap();
        // No process has its output any more.
        assert_eq!(listener.finish(), Some(0));
        fake.await_acknowledged(acknowledged);
        assert_eq!(fake.acknowledged(), acknowledged, "{then}");
        drop(daemon);
    }
}

#[test]
fn a_consumer_elsewhere_needs_no_source() {
    let (fake, mut story) = Story::with_broker("");
    let config = broker(fake.address, "sources = [\"main\"]");
    story.setup.config = config.replace("/topic/{source}.changes", "/topic/all");
    drop(listen(&story.setup, &[]));
    story.setup.config = broker(fake.address, "");
    listen(&story.setup, &["--destination", "/topic/all"]);
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

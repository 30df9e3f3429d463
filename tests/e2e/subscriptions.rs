//! The commands for subscriptions at the embedded hub: with a running daemon, and on the state that a stopped one left.

use std::process::Command;

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;

use crate::embedded::subscribe;
use crate::support::daemon::{
    Daemon, Setup, assert_contains, assert_ends_with, assert_lacks, assert_starts_with, body_of,
    count_of, keys, output,
};
use crate::support::documents::Site;
use crate::support::hub::{FakeHub, Manner};

/// Secret parts of a callback, which appear in no log.
const SECRET: &str = "capability-to-write-here";

pub fn topic(daemon: &Daemon, set: &str) -> String {
    let public = daemon.public;
    format!("http://{public}/topics/main/{set}/capabilitylist/")
}

/// Subscribes, and waits until the hub knows.
pub fn join(daemon: &Daemon, subscriber: &FakeHub, set: &str) -> String {
    let callback = format!("http://{}/{SECRET}", subscriber.address);
    subscribe(daemon.public, &topic(daemon, set), &callback);
    let logged = daemon.await_log(" subscribed to ");
    assert!(subscriber.request().challenge().is_some());
    let shown = logged["callback"].as_str().unwrap();
    let (origin, digest) = shown.split_once("/…(").unwrap();
    assert_eq!(origin, format!("http://{}", subscriber.address));
    digest.strip_suffix(')').unwrap().to_owned()
}

/// A daemon whose only subscriber was sent a change, and waits with its answer.
pub fn delivering() -> (Site, Setup, Daemon, FakeHub) {
    let (site, setup, daemon) = Setup::start_embedding("");
    let subscriber = FakeHub::start();
    join(&daemon, &subscriber, "a");
    subscriber.behave(Manner::Wait);
    site.write_list("a", "changelist", "2");
    let change = "updated changelist a/changelist.xml";
    assert_eq!(subscriber.request().changes(), [change]);
    (site, setup, daemon, subscriber)
}

fn subscriptions(setup: &Setup, arguments: &[&str]) -> Command {
    let mut command = setup.command("subscriptions");
    command.args(arguments);
    command
}

/// Returns the output of a command, which must not contain a callback.
fn said(command: &mut Command, code: i32) -> String {
    let (ended, out, err) = output(command);
    assert_eq!(ended, Some(code), "{out}{err}");
    assert!(!format!("{out}{err}").contains(SECRET), "{out}{err}");
    match code {
        0 => out,
        _ => out + &err,
    }
}

fn json(command: &mut Command, code: i32) -> Value {
    let answer: Value = serde_json::from_str(&said(command.arg("--json"), code)).unwrap();
    assert_eq!(answer["version"], 1);
    answer
}

/// Waits until the hub has these numbers of subscriptions.
fn until(daemon: &Daemon, subscribed: u64, owed: u64, failing: u64) {
    daemon.await_status(|status| {
        let hub = &status["embedded_hub"];
        hub["subscriptions"] == subscribed && hub["owed"] == owed && hub["failing"] == failing
    });
}

fn stop(daemon: &Daemon) {
    daemon.signal(Signal::TERM);
    daemon.await_log("everything is saved");
}

#[test]
fn failing_subscriptions_come_first_and_no_callback_is_shown_while_the_daemon_runs_and_after() {
    let (site, setup, daemon) = Setup::start_embedding("");
    let listed = said(&mut subscriptions(&setup, &["list"]), 0);
    assert_eq!(listed, "nobody has subscribed\n");
    let (willing, failing) = (FakeHub::start(), FakeHub::start());
    let fine = join(&daemon, &willing, "a");
    let bad = join(&daemon, &failing, "a");
    failing.behave(Manner::Refuse(503));
    site.write_list("a", "changelist", "2");
    let retried = daemon.await_log("will retry: answered 503");
    assert_eq!(retried["level"], "DEBUG");
    until(&daemon, 2, 1, 1);

    let (_, metrics) = daemon.get_admin("/metrics");
    for line in [
        "rsnotify_subscriptions 2",
        &format!(
            "rsnotify_topic_subscriptions{{topic=\"{}\"}} 2",
            topic(&daemon, "a")
        ),
        "rsnotify_owed_deliveries 1",
        "rsnotify_failing_subscriptions 1",
        "rsnotify_subscription_requests_total{answer=\"accepted\"} 2",
        "rsnotify_verifications_total{outcome=\"confirmed\"} 2",
        "rsnotify_deliveries_total{outcome=\"delivered\"} 1",
        "rsnotify_delivery_seconds_count 1",
    ] {
        assert_contains(&metrics, &format!("\n{line}\n"));
    }
    assert!(!metrics.contains(SECRET));

    for is_running in [true, false] {
        let answer = json(&mut subscriptions(&setup, &["list"]), 0);
        assert_eq!(
            keys(&answer),
            ["more", "running", "subscriptions", "version"]
        );
        assert_eq!(answer["running"], is_running);
        assert_eq!(answer["more"], 0);
        let [worst, best] = &answer["subscriptions"].as_array().unwrap()[..] else {
            panic!("{answer}")
        };
        assert_eq!(worst["digest"], bad);
        assert_eq!(best["digest"], fine);
        assert_eq!((&worst["owed"], &best["owed"]), (&1.into(), &0.into()));
        assert_eq!((&worst["next"], &best["next"]), (&1.into(), &Value::Null));
        assert!(worst["attempts"].as_u64() > Some(0), "{worst}");
        let on_a = topic(&daemon, "a");
        let shown = json(&mut subscriptions(&setup, &["show", &bad, &on_a]), 0);
        assert_eq!(
            keys(&shown),
            [
                "attempts", "callback", "digest", "expires", "last", "next", "next_try", "owed",
                "running", "signed", "topic", "version"
            ]
        );
        assert_eq!(shown["topic"], on_a);
        assert_eq!(shown["signed"], false);
        // What came of the last try is not kept across a restart.
        let status = shown["last"].as_object().map(|last| last["status"].clone());
        assert_eq!(status, is_running.then(|| 503.into()));
        let text = said(&mut subscriptions(&setup, &["list"]), 0);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_starts_with(lines[0], "STATE    OWED  TRIES  NEXT TRY");
        assert_starts_with(lines[1], "failing     1");
        assert_contains(lines[1], &bad);
        assert_starts_with(lines[2], "fine        0");
        assert_contains(lines[2], "in 9 d");
        let text = said(&mut subscriptions(&setup, &["show", &bad]), 0);
        assert_contains(&text, "owed       1 notification, number 1 first\n");
        assert_eq!(text.contains(": answered 503\n"), is_running, "{text}");
        let status = said(&mut setup.command("status"), 0);
        let words = if is_running {
            "fails: answered 503"
        } else {
            "fails"
        };
        assert_contains(&status, &format!("\n ! 1 subscription {words}\n"));
        if is_running {
            let (_, page) = daemon.get_admin("/");
            let alert = "<a href=\"/subscriptions\">1 subscription fails: answered 503</a>";
            assert_contains(&page, alert);
            let page = body_of(daemon.get_admin("/subscriptions"));
            let shown = [&*bad, &*fine].map(|digest| page.find(digest));
            assert!(shown[0] < shown[1] && shown[0].is_some(), "{page}");
        }
        let words = "embedded hub: 2 subscriptions, 1 failing, deliveries owed: 1\n";
        assert_contains(&status, words);
        let status = json(&mut setup.command("status"), 0);
        assert_eq!(
            keys(&status["embedded_hub"]),
            ["failing", "failure", "owed", "subscriptions"]
        );
        if is_running {
            stop(&daemon);
        }
    }
    let (_, log) = daemon.stop_and_tell();
    let told = log.iter().find(|line| line.contains(SECRET));
    assert_eq!(told, None);
}

#[test]
fn a_removed_subscription_is_gone_for_good_and_its_subscriber_is_told() {
    let (_site, setup, daemon) = Setup::start_embedding("");
    let subscriber = FakeHub::start();
    let digest = join(&daemon, &subscriber, "a");
    let asked = said(&mut subscriptions(&setup, &["remove", &digest]), 1);
    assert_ends_with(&asked, "nothing was removed; --yes removes it\n");
    let asked = json(&mut subscriptions(&setup, &["remove", &digest]), 1);
    assert_eq!(keys(&asked), ["found", "removed", "running", "version"]);
    assert_eq!(asked["removed"], Value::Null);
    assert_eq!(asked["found"]["owed"], 0);
    until(&daemon, 1, 0, 0);

    let removed = json(&mut subscriptions(&setup, &["remove", &digest, "--yes"]), 0);
    assert_eq!(keys(&removed), ["removed", "running", "version"]);
    assert_eq!(removed["removed"]["digest"], digest);
    let told = subscriber.request();
    assert_eq!(told.method, "GET");
    let words = format!("/{SECRET}?hub.mode=denied&hub.topic=");
    assert!(told.target.starts_with(&words), "{}", told.target);
    let logged = daemon.await_log("has ended: removed by the hub's operator");
    assert_eq!(logged["level"], "INFO");
    // It was answered once it was saved.
    daemon.kill();
    let listed = said(&mut subscriptions(&setup, &["list"]), 0);
    assert_eq!(listed, "nobody has subscribed\n");
}

#[test]
fn a_subscription_is_removed_from_the_state_that_a_daemon_left() {
    let (_site, setup, daemon) = Setup::start_embedding("");
    let (one, other) = (FakeHub::start(), FakeHub::start());
    let digest = join(&daemon, &one, "a");
    join(&daemon, &other, "a");
    daemon.stop();
    let text = said(&mut subscriptions(&setup, &["remove", &digest, "--yes"]), 0);
    let words =
        "with 0 notifications owed; rsnotify is not running, so its subscriber is not notified\n";
    assert!(text.ends_with(words), "{text}");
    let again = said(&mut subscriptions(&setup, &["remove", &digest, "--yes"]), 1);
    assert_contains(
        &again,
        &format!("no subscription has the callback \"{digest}\""),
    );
    let daemon = setup.start();
    until(&daemon, 1, 0, 0);
    assert!(one.heard().is_empty());
}

#[test]
fn what_cannot_be_saved_is_not_reported_as_removed() {
    let (_site, setup, daemon) = Setup::start_embedding("");
    let digest = join(&daemon, &FakeHub::start(), "a");
    // The subscription is saved before this can be answered.
    said(&mut subscriptions(&setup, &["list"]), 0);
    let path = setup.state.path().join("state/state.sqlite");
    let database = Connection::open(path).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let told = said(&mut subscriptions(&setup, &["remove", &digest, "--yes"]), 1);
    assert_contains(&told, "takes effect once the state can be saved");
    database.execute_batch("ROLLBACK").unwrap();
    daemon.await_log("the state can be saved again");
    daemon.kill();
    let listed = said(&mut subscriptions(&setup, &["list"]), 0);
    assert_eq!(listed, "nobody has subscribed\n");
}

#[test]
fn each_beginning_and_end_of_a_subscription_is_one_line_of_the_log() {
    let (site, _setup, daemon) = Setup::start_embedding("");
    let subscriber = FakeHub::start();
    let digest = join(&daemon, &subscriber, "a");
    let callback = format!("http://{}/{SECRET}", subscriber.address);
    let on_a = topic(&daemon, "a");
    subscribe(daemon.public, &on_a, &callback);
    let renewed = daemon.await_log("renewed its subscription");
    assert_eq!(renewed["level"], "DEBUG");
    subscriber.request();
    subscriber.behave(Manner::Refuse(410));
    site.write_list("a", "changelist", "2");
    let ended = daemon.await_log("has ended: it is gone (410)");
    assert_eq!(ended["level"], "INFO");
    assert_eq!(ended["topic"], on_a);
    let shown = ended["callback"].as_str().unwrap();
    assert!(shown.ends_with(&format!("/…({digest})")), "{shown}");
    subscriber.behave(Manner::Accept);
    assert_eq!(subscriber.request().method, "POST");
    assert_eq!(join(&daemon, &subscriber, "a"), digest);
    let (_, log) = daemon.stop_and_tell();
    let lines = |words: &str| count_of(&log, words);
    assert_eq!(
        (lines(" subscribed to "), lines("has ended")),
        (2, 1),
        "{log:#?}"
    );
}

#[test]
fn where_other_hubs_are_told_there_are_no_subscriptions_to_show() {
    let (_site, _hub, mut setup) = Setup::announcing("");
    setup.cut_at("[embedded_hub]");
    let daemon = setup.start();
    for _ in 0..2 {
        let told = said(&mut subscriptions(&setup, &["list"]), 1);
        assert_contains(&told, "no embedded hub is configured");
        let status = json(&mut setup.command("status"), 0);
        assert_eq!(status["embedded_hub"], Value::Null);
        if status["running"] == true {
            let (_, metrics) = daemon.get_admin("/metrics");
            assert_lacks(&metrics, "rsnotify_subscriptions");
            stop(&daemon);
        }
    }
}

//! `listen` as a Destination: nothing that was delivered is lost, whatever fails, and what was missed is caught up.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::daemon::{assert_contains, assert_ends_with, assert_starts_with};
use crate::support::listener::Listener;
use crate::support::source::{Attitude, FakeSource, LEASE, Request};
use crate::support::until;

const NAMESPACES: &str = "xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
                          xmlns:rs=\"http://www.openarchives.org/rs/terms/\"";

const DESCRIPTION: &str = "/.well-known/resourcesync";

/// A document with this root-level `rs:md` and entries.
fn document(md: &str, entries: &str) -> String {
    format!("<urlset {NAMESPACES}><rs:md {md}/>{entries}</urlset>")
}

/// An entry such as `1 10:05:00`: an update of `https://e.org/1` at that time; or `1`, without a time.
fn entry(change: &str) -> String {
    let (name, time) = change.split_once(' ').unwrap_or((change, ""));
    let datetime = match time {
        "" => String::new(),
        time => format!("datetime=\"2026-11-20T{time}Z\" "),
    };
    format!(
        "<url><loc>https://e.org/{name}</loc><rs:md change=\"updated\" {datetime}length=\"8876\" \
         type=\"text/plain\"/></url>"
    )
}

/// Publishes a document with this capability and entries, under the name of the capability.
fn publish(source: &FakeSource, capability: &str, entries: &str) {
    publish_at(source, &format!("/{capability}.xml"), capability, entries);
}

fn publish_at(source: &FakeSource, path: &str, capability: &str, entries: &str) {
    let md = format!("capability=\"{capability}\"");
    source.publish(path, &document(&md, entries));
}

/// An entry for a document of the Source with this capability.
fn link_to(path: &str, capability: &str) -> String {
    format!("<url><loc>SOURCE{path}</loc><rs:md capability=\"{capability}\"/></url>")
}

/// A framework notification that a Capability List was updated.
fn update_of(list: &str, datetime: &str) -> String {
    let md = "change=\"updated\" capability=\"capabilitylist\"";
    let entry = format!("<url><loc>{list}</loc><rs:md {md}{datetime}/></url>");
    document("capability=\"framework-notification\"", &entry)
}

/// Starts `listen` with JSON and a state file in a directory.
fn with_state(url: &str, directory: &TempDir) -> Listener {
    let state = directory.path().join("state.json").display().to_string();
    Listener::with(&[url, "--state", &state, "--json"])
}

/// As `with_state`, with the command that is given each notification.
fn with_command(url: &str, directory: &TempDir, command: &str) -> Listener {
    let state = directory.path().join("state.json").display().to_string();
    Listener::with(&[url, "--state", &state, "--exec", command])
}

/// Asserts that the next notification has these resources, by their names. Returns it.
#[track_caller]
fn assert_hears(listener: &Listener, names: &[&str]) -> serde_json::Value {
    let notification = listener.event("notification");
    let entries = notification["entries"].as_array().unwrap().iter();
    let resources: Vec<&str> = entries
        .map(|entry| entry["loc"].as_str().unwrap())
        .collect();
    let wanted: Vec<String> = names
        .iter()
        .map(|name| format!("https://e.org/{name}"))
        .collect();
    assert_eq!(resources, wanted);
    notification
}

/// Asserts how `listen` with these arguments ends by itself.
#[track_caller]
fn assert_ends(arguments: &[&str], code: i32, words: &str) {
    let (exit, said) = Listener::with(arguments).ended();
    assert_eq!(exit, Some(code), "{said}");
    assert_contains(&said, words);
}

/// A notification of one change, which comes first in most stories.
fn first_notification(source: &FakeSource) -> String {
    notification(source, "10:00:00", "10:05:00", &["1 10:05:00"])
}

fn entries(changes: &[&str]) -> String {
    changes.iter().map(|change| entry(change)).collect()
}

/// A change notification of an interval. Its Capability List is that of the Source.
fn notification(source: &FakeSource, from: &str, until: &str, changes: &[&str]) -> String {
    notification_below(&source.url("/"), from, until, changes)
}

/// Delivers a notification of an interval, which is acknowledged.
#[track_caller]
fn notify(to: &Request, from: &str, until: &str, changes: &[&str]) -> String {
    let source = url::Url::parse(&to.topic).unwrap().join("/").unwrap();
    let body = notification_below(source.as_str(), from, until, changes);
    assert_eq!(to.deliver(&body), Some(200));
    body
}

/// Delivers the notification that comes first in most stories.
#[track_caller]
fn notify_first(to: &Request) {
    notify(to, "10:00:00", "10:05:00", &["1 10:05:00"]);
}

fn notification_below(source: &str, from: &str, until: &str, changes: &[&str]) -> String {
    document(
        &format!(
            "capability=\"change-notification\" from=\"2026-11-20T{from}Z\" until=\"2026-11-20T{until}Z\""
        ),
        &format!(
            "<rs:ln rel=\"up\" href=\"{source}capabilitylist.xml\"/>{}",
            entries(changes)
        ),
    )
}

/// Publishes the Capability List and its Change List, which is in an index.
fn publish_changes(source: &FakeSource, changes: &[&str]) {
    let lists = link_to("/changelists.xml", "changelist");
    publish(source, "capabilitylist", &lists);
    source.publish(
        "/changelists.xml",
        &format!(
            "<sitemapindex {NAMESPACES}><rs:md capability=\"changelist\"/>\
             <sitemap><loc>SOURCE/changelist.xml</loc></sitemap></sitemapindex>"
        ),
    );
    publish(source, "changelist", &entries(changes));
}

/// Publishes a Capability List with its Change List and the channel of a topic.
fn publish_channel(source: &FakeSource, topic: &str, changes: &[&str]) {
    publish_changes(source, changes);
    let lists = link_to("/changelists.xml", "changelist");
    let channel = link_to(topic, "change-notification");
    publish(source, "capabilitylist", &(lists + &channel));
}

/// A Source with one topic, without content.
fn source() -> FakeSource {
    let source = FakeSource::start();
    source.publish_topic("/topic", "");
    source
}

/// The last segment of a callback: what makes it the same one.
fn path(request: &Request) -> &str {
    request.callback.rsplit('/').next().unwrap()
}

/// A command that appends its input to the file `log`, and then runs `then`.
fn appending(directory: &TempDir, then: &str) -> String {
    format!("cat >> {}/log; {then}", directory.path().display())
}

/// A command that says that it has begun, and waits until it may end.
fn waiting(started: &Path, go: &Path) -> String {
    let (started, go) = (started.display(), go.display());
    format!("touch {started}; while ! test -e {go}; do sleep 0.01; done")
}

/// Each JSON line in the file `log`, by its `until`.
fn handed_over(directory: &TempDir) -> Vec<String> {
    let log = fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    log.lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["until"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn changes_are_printed_and_forgeries_gaps_and_repeats_are_reported() {
    let source = source();
    let listener = Listener::start(&source.url("/topic"));
    let subscription = source.request();
    assert_eq!(subscription.lease, "3600");
    assert!(subscription.secret.len() >= 64, "{subscription:?}");
    let forged = notification(&source, "10:00:00", "10:05:00", &["forged 10:05:00"]);
    let status = subscription.deliver_signed(&forged, "sha256=00");
    assert_eq!(status, Some(202));
    assert_contains(&listener.says(), "its signature sha256=00 is wrong");

    let first = notify(&subscription, "10:00:00", "10:05:00", &["1.txt 10:05:00"]);
    assert_eq!(
        listener.line(),
        "2026-11-20T10:05:00Z  updated  https://e.org/1.txt  8876 text/plain"
    );
    assert_eq!(subscription.deliver(&first), Some(200));
    assert_eq!(
        listener.says(),
        format!(
            "rsnotify: repeat: the notification of {} until 2026-11-20T10:05:00Z was delivered again",
            subscription.topic
        )
    );
    notify(&subscription, "10:05:00", "10:06:00", &["2.txt 10:06:00"]);
    assert!(listener.line().contains("/2.txt"));
    notify(&subscription, "10:07:00", "10:08:00", &["3.txt 10:08:00"]);
    assert_eq!(
        listener.says(),
        format!(
            "rsnotify: gap: notifications of {} from 2026-11-20T10:06:00Z to 2026-11-20T10:07:00Z are missing",
            subscription.topic
        )
    );
    assert!(listener.line().contains("/3.txt"));
}

#[test]
fn json_has_one_object_per_notification_and_event() {
    let source = source();
    let topic = source.url("/topic");
    let listener = Listener::with(&[&topic, "--json"]);
    let subscribed = listener.event("subscribed");
    assert_eq!(subscribed["topic"], topic);
    assert_eq!(subscribed["lease_seconds"], LEASE);
    let subscription = source.request();
    let changes = ["1 10:04:00", "2 10:05:00"];
    let first = notify(&subscription, "10:00:00", "10:05:00", &changes);
    let received = assert_hears(&listener, &["1", "2"]);
    assert_eq!(received["topic"], topic);
    assert_eq!(received["kind"], "change");
    assert_eq!(received["until"], "2026-11-20T10:05:00Z");
    assert_eq!(received["up"], source.url("/capabilitylist.xml"));
    assert_eq!(subscription.deliver(&first), Some(200));
    assert_eq!(listener.event("repeat")["until"], "2026-11-20T10:05:00Z");
    notify(&subscription, "10:06:00", "10:07:00", &["3 10:07:00"]);
    assert_eq!(listener.event("gap")["from"], "2026-11-20T10:06:00Z");
    assert!(listener.event("notification")["caught_up"].is_null());
}

#[test]
fn a_failing_command_is_given_the_notification_again_and_a_successful_one_once() {
    let source = source();
    let directory = TempDir::new().unwrap();
    let counter = directory.path().join("counter");
    let command = appending(
        &directory,
        &format!(
            "printf x >> {0}; test \"$RSNOTIFY_TOPIC $RSNOTIFY_KIND $RSNOTIFY_FROM $RSNOTIFY_UNTIL\" = \
             \"{1} change 2026-11-20T10:00:00Z 2026-11-20T10:05:00Z\" && test $(wc -c < {0}) -ge 3",
            counter.display(),
            source.url("/topic")
        ),
    );
    let listener = Listener::with(&[&source.url("/topic"), "--exec", &command]);
    listener.says();
    let subscription = source.request();
    let body = first_notification(&source);
    let answers = subscription.deliver_until_acknowledged(&body);
    assert_eq!(answers, [Some(503), Some(503)]);
    let said = listener.says();
    assert_starts_with(&said, "rsnotify: the command failed for a notification of ");
    assert_eq!(subscription.deliver(&body), Some(200), "a repeat");
    assert_eq!(handed_over(&directory).len(), 3);
}

#[test]
fn a_crash_between_receipt_and_the_end_of_the_command_loses_nothing() {
    let source = source();
    let directory = TempDir::new().unwrap();
    let started = directory.path().join("started");
    let arguments = |command: &str| with_command(&source.url("/topic"), &directory, command);
    let command = format!("touch {}; exec sleep 1000", started.display());
    let listener = arguments(&command);
    let subscription = source.request();
    let body = first_notification(&source);
    let delivering = subscription.deliver_aside(&body);
    until(|| started.exists());
    listener.crash();
    assert_eq!(delivering.join().unwrap(), None, "it is not acknowledged");

    let _listener = arguments(&appending(&directory, "true"));
    let again = source.request();
    assert_eq!(again, subscription, "the same subscriber");
    again.deliver_until_acknowledged(&body);
    assert_eq!(handed_over(&directory), ["2026-11-20T10:05:00Z"]);
}

#[test]
fn a_restart_is_the_same_subscriber_and_gets_what_it_missed() {
    let source = source();
    let directory = TempDir::new().unwrap();
    let topic = source.url("/topic");
    let listener = with_state(&topic, &directory);
    listener.event("subscribed");
    let subscription = source.request();
    notify_first(&subscription);
    listener.event("notification");
    assert_eq!(listener.terminate(), Some(0));
    assert_eq!(source.requests(), [], "it does not unsubscribe");

    // Meanwhile there were two notifications. The topic has the second one, and the list a change of the next.
    let (told, due) = (
        ["1 10:05:00", "2 10:05:00"],
        ["3 10:06:00", "4 10:08:00", "5 10:09:00"],
    );
    publish_changes(&source, &[&told[..], &due].concat());
    let missed = notification(&source, "10:07:00", "10:08:00", &["4 10:08:00"]);
    source.publish_topic("/topic", &missed);
    let listener = with_state(&topic, &directory);
    let again = source.request();
    assert_eq!(again, subscription, "callback and secret are the same");
    let gap = listener.event("gap");
    assert_eq!(gap["until"], "2026-11-20T10:05:00Z");
    assert_eq!(listener.event("caught_up")["changes"], 2);
    let of_list = assert_hears(&listener, &["2", "3"]);
    assert_eq!(of_list["caught_up"], true);
    assert_eq!(of_list["from"], "2026-11-20T10:05:00Z");
    assert_eq!(of_list["until"], "2026-11-20T10:07:00Z");
    let of_topic = listener.event("notification");
    assert_eq!(of_topic["caught_up"], true);
    assert_eq!(of_topic["until"], "2026-11-20T10:08:00Z");

    // The hub tries again what it could not deliver, and goes on.
    let both = ["2 10:05:00", "3 10:06:00"];
    notify(&again, "10:05:00", "10:07:00", &both);
    assert_eq!(again.deliver(&missed), Some(200));
    for until in ["2026-11-20T10:07:00Z", "2026-11-20T10:08:00Z"] {
        assert_eq!(listener.event("repeat")["until"], until);
    }
    notify(&again, "10:08:00", "10:09:00", &["5 10:09:00"]);
    let received = listener.event("notification");
    assert_eq!(received["entries"][0]["loc"], "https://e.org/5");
    assert!(received["caught_up"].is_null(), "{received}");
}

#[test]
fn what_a_command_missed_is_given_again_until_it_succeeds() {
    let source = source();
    let directory = TempDir::new().unwrap();
    let topic = source.url("/topic");
    let command = appending(&directory, "true");
    let listener = with_command(&topic, &directory, &command);
    let first = first_notification(&source);
    source.request().deliver_until_acknowledged(&first);
    listener.terminate();

    let missed = notification(&source, "10:05:00", "10:06:00", &["2 10:06:00"]);
    source.publish_topic("/topic", &missed);
    let allowed = directory.path().join("allowed");
    let command = appending(&directory, &format!("test -e {}", allowed.display()));
    let listener = with_command(&topic, &directory, &command);
    assert!(listener.says().starts_with("listening to "));
    assert!(listener.says().contains("the command failed"));
    let next = notification(&source, "10:06:00", "10:07:00", &["3 10:07:00"]);
    let again = source.request();
    // It waits for the missed one.
    assert_eq!(again.deliver(&next), Some(503));
    fs::write(&allowed, "").unwrap();
    again.deliver_until_acknowledged(&next);
    let handed = handed_over(&directory);
    assert_eq!(
        handed[handed.len() - 2..],
        ["2026-11-20T10:06:00Z", "2026-11-20T10:07:00Z"]
    );
}

#[test]
fn after_a_signal_a_command_has_time_to_end_and_nothing_else_is_run() {
    let source = source();
    publish_changes(&source, &["1 10:05:00", "2 10:07:00", "3 10:15:00"]);
    let directory = TempDir::new().unwrap();
    let [started, go] = ["started", "go"].map(|name| directory.path().join(name));
    let command = appending(&directory, &waiting(&started, &go));
    let topic = source.url("/topic");
    let listener = with_command(&topic, &directory, &command);
    listener.says();
    let subscription = source.request();
    let deliver = |from: &str, until: &str, changes: &[&str]| {
        subscription.deliver_aside(&notification(&source, from, until, changes))
    };
    let first = deliver("10:00:00", "10:05:00", &["1 10:05:00"]);
    until(|| started.exists());
    fs::write(&go, "").unwrap();
    assert_eq!(first.join().unwrap(), Some(200));
    for file in [&started, &go] {
        fs::remove_file(file).unwrap();
    }
    // What was missed is handed over by a run of its own.
    let second = deliver("10:10:00", "10:15:00", &["3 10:15:00"]);
    until(|| started.exists());
    listener.signal();
    fs::write(&go, "").unwrap();
    assert_ne!(second.join().unwrap(), Some(200));
    let handed = ["2026-11-20T10:05:00Z", "2026-11-20T10:10:00Z"];
    assert_eq!(handed_over(&directory), handed);
}

#[test]
fn a_command_that_hangs_is_ended_with_all_that_it_started_in_time_or_by_a_signal() {
    for (signals, limit) in [(0, "200ms"), (1, "1h"), (2, "1h")] {
        let source = source();
        let directory = TempDir::new().unwrap();
        let started = directory.path().join("started");
        let command = format!("touch {}; sleep 1000 & sleep 1000", started.display());
        let (topic, limit) = (source.url("/topic"), ["--exec-timeout", limit]);
        let listener = Listener::with(&[&[&topic, "--exec", &command], &limit[..]].concat());
        listener.says();
        let subscription = source.request();
        let body = first_notification(&source);
        let delivering = subscription.deliver_aside(&body);
        until(|| started.exists());
        if signals == 0 {
            let why = ": it was killed, because it did not end within 200ms";
            assert_ends_with(&listener.says(), why);
        }
        for _ in 1..signals {
            listener.signal();
            // It unsubscribes at the first one.
            assert_eq!(source.request().mode, "unsubscribe");
        }
        let signalled_at = Instant::now();
        assert_eq!(listener.terminate(), Some(0));
        let answered = delivering.join().unwrap();
        match signals {
            0 | 1 => assert_eq!(answered, Some(503)),
            _ => assert!(signalled_at.elapsed().as_secs() < 5, "at once"),
        }
    }
}

#[test]
fn a_reader_that_pauses_stops_neither_renewals_nor_signals() {
    let source = source();
    let mut child = Command::new(env!("CARGO_BIN_EXE_rsnotify"))
        .args(["listen", &source.url("/topic"), "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let subscription = source.request();
    let changes = vec!["1 10:05:00"; 5_000];
    let body = notification(&source, "10:00:00", "10:05:00", &changes);
    let delivering = subscription.deliver_aside(&body);
    // The rest fills the pipe.
    let mut lines = BufReader::with_capacity(1, child.stdout.take().unwrap());
    let (mut subscribed, mut begun) = (String::new(), [0]);
    lines.read_line(&mut subscribed).unwrap();
    lines.read_exact(&mut begun).unwrap();
    assert_eq!(subscription.deny(), Some(200));
    assert_eq!(source.request(), subscription, "it subscribes again");

    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut status = None;
    until(|| {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
    assert_eq!(delivering.join().unwrap(), Some(503));
}

#[test]
fn waiting_notifications_are_handed_over_together_if_asked() {
    let source = source();
    let directory = TempDir::new().unwrap();
    let [started, go, runs] = ["started", "go", "runs"].map(|name| directory.path().join(name));
    let noting = format!(
        "echo \"$RSNOTIFY_FROM $RSNOTIFY_UNTIL\" >> {}; ",
        runs.display()
    );
    let command = appending(&directory, &(noting + &waiting(&started, &go)));
    let listener = Listener::with(&[&source.url("/topic"), "--exec", &command, "--exec-batch"]);
    listener.says();
    let subscription = source.request();
    let deliver = |from: &str, until: &str| {
        subscription.deliver_aside(&notification(&source, from, until, &[]))
    };
    let mut deliveries = vec![deliver("10:00:00", "10:01:00")];
    until(|| started.exists());
    for (from, until) in [("10:01:00", "10:02:00"), ("10:02:00", "10:03:00")] {
        deliveries.push(deliver(from, until));
        std::thread::sleep(std::time::Duration::from_millis(200)); // its place in the queue is decided unseen: no event
    }
    fs::write(&go, "").unwrap();
    for delivery in deliveries {
        assert_eq!(delivery.join().unwrap(), Some(200));
    }
    assert_eq!(
        fs::read_to_string(runs).unwrap(),
        "2026-11-20T10:00:00Z 2026-11-20T10:01:00Z\n2026-11-20T10:01:00Z 2026-11-20T10:03:00Z\n"
    );
    assert_eq!(handed_over(&directory).len(), 3);
}

#[test]
fn a_denial_is_reported_and_in_the_middle_of_a_lease_the_subscription_requested_again() {
    let source = source();
    let topic = source.url("/topic");
    let listener = Listener::with(&[&topic, "--json"]);
    listener.event("subscribed");
    let subscription = source.request();
    source.behave(Attitude::Refuse(503));
    assert_eq!(subscription.deny(), Some(200));
    let denied = listener.event("denied");
    assert_eq!(denied["reason"], "not any more");
    assert_eq!(source.request(), subscription);
    assert_eq!(listener.event("not_subscribed")["topic"], topic);
    source.behave(Attitude::Verify);
    assert_eq!(listener.event("subscribed")["topic"], topic);
    drop(listener);
    // The first one ends it.
    source.behave(Attitude::Deny);
    let listener = Listener::with(&[&topic, "--json"]);
    assert_eq!(listener.event("denied")["reason"], "not any more");
    assert_eq!(listener.event("not_subscribed")["topic"], topic);
    assert_eq!(listener.ended().0, Some(77));
}

#[test]
fn what_is_no_topic_is_told_with_where_the_topic_is() {
    let source = FakeSource::start();
    publish_at(&source, "/list.xml", "capabilitylist", "");
    publish_at(&source, "/changes.xml", "changelist", "");
    for (path, words) in [
        (
            "/list.xml",
            "and no topic; it advertises none, so ask its Source",
        ),
        (
            "/changes.xml",
            "is a changelist, and no topic; the Capability List that it belongs to",
        ),
    ] {
        assert_contains(&Listener::spawn(&source.url(path)).says(), words);
    }
}

#[test]
fn a_source_description_stands_for_all_channels_of_the_kind() {
    let source = FakeSource::start();
    for path in ["/a/framework", "/a/change", "/b/change", "/other"] {
        source.publish_topic(path, "");
    }
    publish_description(&source);
    let channel = |path: &str, kind: &str| {
        format!(
            "<url><loc>SOURCE{path}</loc><rs:md capability=\"{kind}-notification\"/>\
             <rs:ln rel=\"hub\" href=\"SOURCE/hub\"/></url>"
        )
    };
    let of_a = channel("/a/framework", "framework") + &channel("/a/change", "change");
    for (path, channels) in [("/a.xml", of_a), ("/b.xml", channel("/b/change", "change"))] {
        publish_at(&source, path, "capabilitylist", &channels);
    }
    let description = source.url(DESCRIPTION);
    let other = source.url("/other");
    let subscribed = |arguments: &[&str], paths: &[&str]| {
        let listener = Listener::with(arguments);
        let requests = requests(&source, paths.len());
        for (request, path) in requests.iter().zip(paths) {
            assert_starts_with(&listener.says(), "listening to ");
            assert_eq!(request.topic, source.url(path));
        }
        (listener, requests)
    };
    let all = ["/a/change", "/a/framework", "/b/change", "/other"];
    let (listener, requests) = subscribed(&[&description, &other], &all);
    let callbacks: std::collections::BTreeSet<&str> = requests.iter().map(path).collect();
    assert_eq!(callbacks.len(), 4, "each has its own");
    let body = first_notification(&source);
    assert_eq!(requests[2].deliver(&body), Some(200));
    assert!(listener.line().contains("https://e.org/1"));
    assert_eq!(listener.terminate(), Some(0));
    (0..4).for_each(|_| assert_eq!(source.request().mode, "unsubscribe"));

    // A host alone stands for its Source Description.
    for url in [&description, &source.url("/")] {
        subscribed(&[url, "--kind", "change"], &["/a/change", "/b/change"]);
    }
    for path in ["/a.xml", "/b.xml"] {
        publish_at(&source, path, "capabilitylist", "");
    }
    assert_contains(&Listener::spawn(&source.url("/")).says(), &description);
}

/// Returns the next requests to the hub, by topic.
fn requests(source: &FakeSource, count: usize) -> Vec<Request> {
    let mut requests: Vec<Request> = (0..count).map(|_| source.request()).collect();
    requests.sort_by(|a, b| a.topic.cmp(&b.topic));
    requests
}

/// Publishes a Source Description of two sets, `/a` and `/b`.
fn publish_description(source: &FakeSource) {
    let lists = ["/a.xml", "/b.xml"].map(|path| link_to(path, "capabilitylist"));
    publish_at(source, DESCRIPTION, "description", &lists.concat());
}

/// Publishes a Source Description of two sets, `/a` and `/b`, with a channel each.
fn publish_two_sets(source: &FakeSource) {
    publish_description(source);
    publish_set(source, "a");
    publish_set(source, "b");
}

/// Publishes the Capability List and the topic of a set.
fn publish_set(source: &FakeSource, name: &str) {
    source.publish_topic(&format!("/{name}"), "");
    publish(source, "changelist", "");
    let lists = link_to("/changelist.xml", "changelist");
    let channel = link_to(&format!("/{name}"), "change-notification");
    let path = format!("/{name}.xml");
    publish_at(source, &path, "capabilitylist", &(lists + &channel));
}

#[test]
fn a_capability_list_that_cannot_be_read_is_reported_and_the_others_go_on() {
    let source = FakeSource::start();
    publish_two_sets(&source);
    source.withdraw("/b.xml");
    let description = source.url(DESCRIPTION);
    let listener = Listener::with(&[&description, "--json"]);
    let unread = listener.event("no_channel");
    assert_eq!(unread["topic"], source.url("/b.xml"));
    assert_eq!(unread["retry_seconds"], 60);
    assert_contains(unread["reason"].as_str().unwrap(), "404");
    assert_eq!(listener.event("subscribed")["topic"], source.url("/a"));

    source.publish("/a.xml", "<urlset");
    assert_ends(&[&description], 1, "a.xml");
    source.postpone("/b.xml");
    // What may pass is the reason.
    assert_ends(&[&description], 75, "b.xml answers 503");
}

#[test]
fn a_list_that_advertises_nothing_any_more_is_no_failure_of_its_subscription() {
    let source = FakeSource::start();
    source.publish_topic("/topic", "");
    let advertise = |entries: &str| publish_at(&source, "/list.xml", "capabilitylist", entries);
    advertise(&link_to("/topic", "framework-notification"));
    let list = source.url("/list.xml");
    let listener = Listener::start(&list);
    let subscription = source.request();
    advertise("");
    let told = update_of(&list, "");
    assert_eq!(subscription.deliver(&told), Some(200));
    let said = listener.says();
    let words = format!(
        "rsnotify: no channel found at {list}, looking again in 60 s; subscriptions go on: "
    );
    assert!(said.starts_with(&words), "{said}");
    assert_eq!(subscription.deliver(&told), Some(200));
}

#[test]
fn known_subscriptions_go_on_whatever_cannot_be_read() {
    let source = FakeSource::start();
    publish_two_sets(&source);
    let directory = TempDir::new().unwrap();
    let description = source.url(DESCRIPTION);
    let subscribed = |url: &str, count: usize| {
        let listener = with_state(url, &directory);
        (0..count).for_each(|_| drop(listener.event("subscribed")));
        let requests = requests(&source, count);
        assert_eq!(listener.terminate(), Some(0));
        requests
    };
    let of_list = subscribed(&source.url("/a.xml"), 1);
    // The Source Description leads to it from now on.
    let both = subscribed(&description, 2);
    assert_eq!(both[0], of_list[0]);
    source.withdraw("/b.xml");
    assert_eq!(subscribed(&description, 2), both);
    source.publish("/a.xml", "<urlset");
    assert_eq!(subscribed(&description, 2), both);
    source.withdraw(DESCRIPTION);
    assert_eq!(subscribed(&description, 2), both);
    publish_two_sets(&source);
    publish_at(&source, "/b.xml", "capabilitylist", "");
    let left = subscribed(&description, 1);
    assert_eq!(left[0], both[0], "the other one is not advertised any more");
}

#[test]
fn each_failure_to_subscribe_has_its_exit_code() {
    let source = source();
    let topic = source.url("/topic");
    source.behave(Attitude::Refuse(400));
    assert_ends(&[&topic], 69, "refuses with 400");
    for (flag, value, words) in [
        ("--callback", "me.org/in", "not a URL"),
        ("--callback-listen", "8500", "not an address such as"),
        ("--exec-timeout", "0s", "longer than 0s"),
    ] {
        assert_ends(&[&topic, "--exec", "true", flag, value], 2, words);
    }
    assert_ends(&[&source.url("/none")], 1, "answers 404");
    assert_ends(&["http://127.0.0.1:1/"], 75, "refused");
}

#[test]
fn a_channel_whose_topic_moved_goes_on_where_it_was() {
    let source = FakeSource::start();
    source.publish_topic("/topic", "");
    source.publish_topic("/moved", "");
    publish_channel(&source, "/topic", &[]);
    let directory = TempDir::new().unwrap();
    let list = source.url("/capabilitylist.xml");
    let listener = with_state(&list, &directory);
    listener.event("subscribed");
    let subscription = source.request();
    let told = first_notification(&source).replace("2026-11-20", "2999-11-20");
    assert_eq!(subscription.deliver(&told), Some(200));
    listener.event("notification");
    listener.terminate();

    publish_channel(&source, "/moved", &[]);
    let changes = entries(&["1 10:05:00", "2 10:06:00"]).replace("2026-11-20", "2999-11-20");
    publish(&source, "changelist", &changes);
    let listener = with_state(&list, &directory);
    assert_eq!(listener.event("subscribed")["topic"], source.url("/moved"));
    assert_hears(&listener, &["2"]);
}

#[test]
fn one_refused_topic_does_not_stop_the_others_and_a_busy_hub_is_waited_for() {
    let (source, refusing) = (source(), source());
    refusing.behave(Attitude::Refuse(403));
    let listener = Listener::with(&[&source.url("/topic"), &refusing.url("/topic"), "--json"]);
    let failed = listener.event("not_subscribed");
    assert_eq!(failed["topic"], refusing.url("/topic"));
    assert!(failed["retry_seconds"].is_null(), "{failed}");
    let given_up = refusing.request();
    assert_eq!(given_up.verification(), Some(404), "nobody would renew it");
    let body = first_notification(&source);
    assert_eq!(given_up.deliver(&body), Some(410));
    assert_eq!(source.request().deliver(&body), Some(200));
    listener.event("notification");

    // With the wait that it asks for; alone, it ends.
    refusing.behave(Attitude::Busy);
    let listener = Listener::with(&[&source.url("/topic"), &refusing.url("/topic"), "--json"]);
    let wait = listener.event("not_subscribed")["retry_seconds"].as_u64();
    assert!((3_000..=3_600).contains(&wait.unwrap()), "{wait:?}");
    let alone = Listener::with(&[&refusing.url("/topic"), "--json"]);
    let failed = alone.event("not_subscribed");
    assert!(failed["retry_seconds"].is_null(), "{failed}");
    let (code, said) = alone.ended();
    assert_eq!(code, Some(75));
    assert_contains(&said, "503");
}

/// A listener that was told up to 10:05:00, and a notification that leaves a gap up to 10:10:00.
fn with_a_gap(source: &FakeSource, directory: &TempDir) -> (Listener, Request, String) {
    let topic = source.url("/topic");
    let listener = with_state(&topic, directory);
    listener.event("subscribed");
    let subscription = source.request();
    notify_first(&subscription);
    listener.event("notification");
    let later = notification(source, "10:10:00", "10:15:00", &["3 10:15:00"]);
    (listener, subscription, later)
}

/// A list may be missing while it is rewritten; a Source may ask for more patience than the hub has.
#[test]
fn what_follows_a_gap_waits_while_a_list_cannot_be_read() {
    type Hide = fn(&FakeSource, &str);
    let cases: [(&str, Hide, &str); 2] = [
        ("/changelist.xml", FakeSource::remove, "answers 404"),
        ("/capabilitylist.xml", FakeSource::postpone, "answers 503"),
    ];
    for (list, hide, reason) in cases {
        let source = source();
        let changes = ["1 10:05:00", "2 10:07:00", "3 10:15:00"];
        publish_changes(&source, &changes);
        let directory = TempDir::new().unwrap();
        let (listener, subscription, later) = with_a_gap(&source, &directory);
        hide(&source, list);
        let asked_at = Instant::now();
        assert_eq!(subscription.deliver(&later), Some(503));
        assert!(asked_at.elapsed().as_secs() < 5);
        let reported = listener.event("not_caught_up")["reason"].to_string();
        assert_contains(&reported, &format!("{list} {reason}"));
        source.withdraw("/topic");
        publish_changes(&source, &changes);
        subscription.deliver_until_acknowledged(&later);
        // The lists have what the notification has.
        assert_hears(&listener, &["2", "3"]);
    }
}

#[test]
fn what_was_missed_is_read_from_archived_and_compressed_lists_too() {
    let source = source();
    let lists = ["changelist", "changelist-archive"]
        .map(|capability| link_to(&format!("/{capability}.xml"), capability));
    publish(&source, "capabilitylist", &lists.concat());
    publish(&source, "changelist", &entries(&["3 10:15:00"]));
    // The first ended before: it is not even asked for.
    let archive = [("/ended.xml", "10:04:00"), ("/old.xml", "10:08:00")].map(|(path, until)| {
        link_to(path, "changelist").replace(
            "/></url>",
            &format!(" until=\"2026-11-20T{until}Z\"/></url>"),
        )
    });
    publish(&source, "changelist-archive", &archive.concat());
    let old = entries(&["1 10:05:00", "2 10:07:00"]);
    let old = document("capability=\"changelist\"", &old);
    source.publish_compressed("/old.xml", &old);
    let directory = TempDir::new().unwrap();
    let (listener, subscription, later) = with_a_gap(&source, &directory);
    assert_eq!(subscription.deliver(&later), Some(200));
    for name in ["2", "3"] {
        assert_hears(&listener, &[name]);
    }
}

#[test]
fn a_page_of_several_notifications_gives_what_is_new_after_a_restart() {
    let source = source();
    let directory = TempDir::new().unwrap();
    publish_changes(&source, &["1 10:05:00"]);
    let (listener, subscription, _) = with_a_gap(&source, &directory);
    assert_eq!(listener.terminate(), Some(0));
    let page = ["0 10:04:00", "1 10:05:00", "2 10:05:00", "3 10:06:00"];
    let page = notification(&source, "10:00:00", "10:06:00", &page);
    source.publish_topic("/topic", &page);
    let listener = with_state(&source.url("/topic"), &directory);
    assert_eq!(source.request(), subscription);
    assert_hears(&listener, &["2", "3"]);
}

#[test]
fn a_channel_that_is_advertised_later_is_subscribed_to() {
    let source = FakeSource::start();
    for path in ["/framework", "/change"] {
        source.publish_topic(path, "");
    }
    let advertise = |kinds: &[&str]| {
        let channels = kinds
            .iter()
            .map(|kind| link_to(&format!("/{kind}"), &format!("{kind}-notification")));
        publish(&source, "capabilitylist", &channels.collect::<String>());
    };
    advertise(&["framework"]);
    let list = source.url("/capabilitylist.xml");
    let listener = Listener::with(&[&list, "--json"]);
    let subscribed = listener.event("subscribed");
    assert_eq!(subscribed["topic"], source.url("/framework"));
    let subscription = source.request();
    advertise(&["framework", "change"]);
    let told = update_of(&list, "");
    source.behave(Attitude::Refuse(403));
    assert_eq!(subscription.deliver(&told), Some(200));
    let refused = listener.event("not_subscribed");
    assert_eq!(refused["topic"], source.url("/change"));
    assert!(refused["retry_seconds"].is_u64(), "{refused}");
    source.request();
    source.behave(Attitude::Verify);
    assert_eq!(listener.event("subscribed")["topic"], source.url("/change"));
    let subscription = source.request();
    notify_first(&subscription);
    assert_eq!(listener.event("notification")["kind"], "change");
}

#[test]
fn a_channel_that_cannot_be_saved_is_found_again_later() {
    let source = FakeSource::start();
    publish_two_sets(&source);
    publish_at(&source, "/b.xml", "capabilitylist", "");
    let directory = TempDir::new().unwrap();
    let listener = with_state(&source.url(DESCRIPTION), &directory);
    listener.event("subscribed");
    let subscription = source.request();
    notify_first(&subscription);
    // Nothing can be written beside the file.
    let obstacle = directory.path().join("state.json.new");
    fs::create_dir(&obstacle).unwrap();
    publish_set(&source, "b");
    let deliver = |datetime: &str| {
        let datetime = format!(" datetime=\"{datetime}\"");
        let told = update_of(&source.url("/b.xml"), &datetime);
        assert_eq!(subscription.deliver(&told), Some(200));
    };
    deliver("2026-11-20T10:00:00Z");
    while listener.event("not_saved")["topic"] != source.url("/b") {}
    fs::remove_dir(&obstacle).unwrap();
    deliver("2026-11-20T10:01:00Z");
    assert_eq!(listener.event("subscribed")["topic"], source.url("/b"));
}

#[test]
fn what_was_listed_before_the_first_start_was_not_missed() {
    let source = FakeSource::start();
    source.publish_topic("/topic", "");
    publish_channel(&source, "/topic", &["1", "2"]);
    let directory = TempDir::new().unwrap();
    let list = source.url("/capabilitylist.xml");
    let start = || with_state(&list, &directory);
    let listener = start();
    listener.event("subscribed");
    assert_eq!(listener.terminate(), Some(0));

    publish_channel(&source, "/topic", &["1", "2", "3"]);
    let listener = start();
    let missed = assert_hears(&listener, &["3"]);
    assert!(missed["until"].is_null(), "it is our own time");
    notify(&source.request(), "10:00:00", "10:05:00", &["3", "4"]);
    assert_hears(&listener, &["4"]);
}

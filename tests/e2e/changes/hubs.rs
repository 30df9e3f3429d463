//! Delivery of changes to hubs of every mode, together and alone (C21, C23, C24, C25).

use resourcesync::change_payload::ChangePayload;

use crate::changes::story::{Story, in_set, until};
use crate::support::changes::{Destination, Heard, topic};
use crate::support::daemon::{Daemon, body_of, succeed};
use crate::support::hub::{FakeHub, Manner};

const TOPIC: &str = "/changes/main/a/capabilitylist/";

fn table(hub: &FakeHub, mode: &str) -> String {
    format!("[[hub]]\nurl = \"{}\"\nmode = \"{mode}\"\n", hub.url())
}

/// A running daemon with another hub, which has learned what is listed.
fn with(hub: &FakeHub, mode: &str) -> Story {
    let mut story = Story::new(&table(hub, mode));
    story.resume();
    story.await_learned(1);
    story
}

/// Hears what a hub accepts on the channel of changes, until so many were told.
fn listen(hub: &FakeHub, changes: usize) -> Destination {
    let mut heard = Destination::default();
    heard.listen(hub, &topic("a"), changes);
    heard
}

#[test]
fn a_hub_that_takes_the_topic_in_the_query_is_sent_the_same_bytes() {
    let query = FakeHub::start();
    let mut story = with(&query, "content-query");
    story.add(&["created 1.txt 10:00:00", "updated 1.txt 10:00:01"]);
    let of_changes = |hub: &FakeHub| loop {
        let request = hub.notification();
        if request.topic() == topic("a") {
            return request;
        }
    };
    let (one, other) = (of_changes(&story.hub), of_changes(&query));
    assert_eq!(one.body, other.body);
    let target = "/publish?hub.mode=publish&hub.topic=https%3A%2F%2Ftopics.example%2Fchanges%2F";
    assert!(other.target.starts_with(target), "{}", other.target);
    assert_eq!(other.headers["content-type"], "application/xml");
}

/// Waits for a ping of the channel of changes.
fn ping(hub: &FakeHub) {
    loop {
        let request = hub.notification();
        if String::from_utf8_lossy(&request.body).contains("%2Fchanges%2F") {
            return;
        }
    }
}

fn served(daemon: &Daemon) -> ChangePayload {
    let body = body_of(daemon.get(TOPIC));
    ChangePayload::parse(body.as_bytes()).unwrap_or_else(|| panic!("{body}"))
}

#[test]
fn a_hub_that_is_pinged_finds_all_that_was_told_lately_as_one_interval() {
    let pinged = FakeHub::start();
    let mut story = with(&pinged, "ping");
    story.add(&["created 1.txt 10:00:00"]);
    story.hears(&["created 1.txt"]);
    ping(&pinged);
    let first = served(story.daemon());
    assert_eq!(first.entries.len(), 1);
    story.add(&["updated 1.txt 10:05:00"]);
    story.hears(&["updated 1.txt"]);
    ping(&pinged);
    let both = served(story.daemon());
    assert_eq!(
        (both.from, Some(both.until)),
        (first.from, story.heard.until())
    );
    let told: Vec<String> = crate::support::changes::told(&both);
    assert_eq!(told, in_set(&["created 1.txt", "updated 1.txt"]));
    story.ends();
}

#[test]
fn a_hub_that_was_down_is_told_the_same_notifications_in_order() {
    let down = FakeHub::start();
    let mut story = with(&down, "content");
    down.behave(Manner::Refuse(503));
    let changes: Vec<String> = (0..5)
        .map(|minute| format!("updated 1.txt 10:0{minute}:00"))
        .collect();
    let mut bodies = Vec::new();
    for change in &changes {
        story.add(&[change]);
        let request = loop {
            let request = story.hub.notification();
            if request.topic() == topic("a") {
                break request;
            }
        };
        bodies.push(request.body);
    }
    down.behave(Manner::Accept);
    let mut heard = Vec::new();
    while heard.len() < bodies.len() {
        let request = down.notification();
        if request.topic() == topic("a") {
            heard.push(request.body);
        }
    }
    assert_eq!(heard, bodies);
    let mut destination = Destination::default();
    for body in &heard {
        assert_eq!(destination.hear(body), Heard::Next);
    }
}

#[test]
fn a_hub_to_which_a_notification_is_too_large_has_it_in_parts() {
    let small = FakeHub::start();
    let mut story = with(&small, "content");
    small.behave(Manner::AtMost(5));
    let entries: Vec<String> = (0..10)
        .map(|one| format!("created {one}.txt 10:0{one}:00"))
        .collect();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    story.add(&entries);
    let whole = listen(&story.hub, 10);
    let parts = listen(&small, 10);
    assert_eq!(whole.sizes, [10]);
    assert_eq!(parts.sizes, [5, 5]);
    assert_eq!(parts.told, whole.told);
    assert_eq!((parts.gaps, parts.until()), (0, whole.until()));
    // All in one again.
    small.behave(Manner::Accept);
    story.add(&["created 10.txt 10:10:00"]);
    assert_eq!(listen(&small, 1).told, ["created a/10.txt"]);
}

#[test]
fn what_an_operator_drops_is_a_gap_that_shows() {
    let mut story = Story::start();
    story.add(&["created 1.txt 10:00:00"]);
    story.hears(&["created 1.txt"]);
    story.hub_is_down();
    story.add(&["updated 1.txt 10:05:00"]);
    story.await_count("SELECT count(*) FROM change_log WHERE seq = 2", 1);
    let (topic, hub) = (topic("a"), story.hub.url());
    let mut drop = story.setup.command("outbox");
    succeed(drop.args(["drop", &topic, &hub, "--yes"]));
    story.hub.behave(Manner::Accept);
    story.add(&["deleted 1.txt 10:10:00"]);
    story.hears(&["deleted 1.txt"]);
    assert_eq!(story.heard.gaps, 1);
    story.ends();
}

#[test]
fn the_embedded_hub_passes_changes_on_to_its_subscribers() {
    let subscriber = FakeHub::start();
    let mut story = Story::with_embedded_hub();
    story.resume();
    story.await_learned(1);
    subscribe(story.daemon(), &topic("a"), &subscriber);
    until(|| story.has_subscriber());
    story.add(&["created 1.txt 10:00:00"]);
    story.add(&["created 1.txt 10:00:00", "deleted 1.txt 10:00:01"]);
    let relayed = listen(&subscriber, 3);
    story.heard.listen(&story.hub, &topic("a"), 3);
    assert_eq!(relayed.told, story.heard.told);
    assert_eq!(relayed.until(), story.heard.until());
}

/// Subscribes to a topic of the embedded hub.
pub fn subscribe(daemon: &Daemon, topic: &str, subscriber: &FakeHub) {
    let callback = format!("http://{}/callback", subscriber.address);
    crate::embedded::subscribe(daemon.public, topic, &callback);
}

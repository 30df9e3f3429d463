//! Content change messages: `payload = "atom"` and `listen --broker`, with a broker that does as it is told (F4, F5,
//! F6).

use std::collections::{HashMap, HashSet};

use messaging::frame::Frame;
use resourcesync::feed::{ObjectFeed, change_term};
use rstest::rstest;
use serde_json::json;

use crate::brokers::listening::listen;
use crate::brokers::{Story, broker};
use crate::support::changes::change_list;
use crate::support::daemon::Daemon;
use crate::support::documents::URL;
use crate::support::stomp::FakeBroker;
use crate::support::until;

pub const ATOM: &str = "payload = \"atom\"\n";

fn feed(message: &Frame) -> ObjectFeed {
    ObjectFeed::parse(&message.body).unwrap()
}

/// Returns the changes of messages, such as `ADD a/1.txt`, of which a repeat counts once.
pub fn told(messages: &[Frame]) -> Vec<String> {
    let mut ids = HashSet::new();
    let messages = messages.iter();
    let new = messages.filter(|message| ids.insert(message.header("messageId").unwrap()));
    new.flat_map(|message| items(&feed(message))).collect()
}

fn items(feed: &ObjectFeed) -> Vec<String> {
    let items = feed.items.iter().map(|item| {
        let change = item.change.map_or("STATE", change_term);
        format!("{change} {}", item.item.strip_prefix(URL).unwrap())
    });
    items.collect()
}

/// Adds entries such as `created 1.txt 10:00:00`, in one version of the Change List.
pub fn publish(story: &mut Story, entries: &[impl AsRef<str>]) {
    let entries = entries.iter().map(|entry| entry.as_ref().to_owned());
    story.entries.extend(entries);
    story.write();
}

#[test]
fn the_changes_of_an_object_are_one_message_with_properties() {
    let fake = FakeBroker::start();
    let more = "payload = \"atom\"\nobject = \"directory\"\nidentifiers = \"info:fedora\"\n\
                location = { from = \"https://source.example/\", to = \"https://repo.example.org/\" }";
    let mut story = Story::new(&broker(fake.address, more));
    let daemon = story.start();
    publish(
        &mut story,
        &[
            "created x/1.txt 10:00:00",
            "updated y/2.txt 10:00:01",
            "updated x/1.txt 10:00:02",
            "deleted x/3.txt 10:00:03",
        ],
    );
    let messages = fake.messages(2);
    for (name, want) in [
        ("format", "atom"),
        ("changeTypes", "ADD,DELETE,UPDATE"),
        ("objectUri", "info:fedora/a/x"),
        ("itemCount", "3"),
        ("JMSXGroupID", "info:fedora/a/x"),
    ] {
        assert_eq!(messages[0].header(name), Some(want), "{name}");
    }
    assert_eq!(messages[1].header("objectUri"), Some("info:fedora/a/y"));
    let first = &feed(&messages[0]).items[0];
    assert_eq!(first.item, "info:fedora/a/x/1.txt");
    let location = &first.content.as_ref().unwrap().src;
    assert_eq!(location, "https://repo.example.org/a/x/1.txt");
    // Both are of one transaction.
    assert_eq!(
        messages[0].header("transaction"),
        messages[1].header("transaction")
    );
    assert!(daemon.stop().success());
}

#[test]
fn an_entry_has_the_datetime_of_its_change_also_outside_the_interval() {
    let (fake, mut story) = Story::with_broker(ATOM);
    let daemon = story.start();
    publish(&mut story, &["updated 1.txt 10:00:00"]);
    fake.messages(1);
    publish(&mut story, &["updated 2.txt 09:00:00"]);
    let ahead = "updated 3.txt 10:00:01";
    story.entries.push(ahead.to_owned());
    let list =
        change_list("a", &story.entries).replace("2024-11-20T10:00:01Z", "2999-01-01T00:00:00Z");
    fake.messages(2);
    story.site.write("a/changelist.xml", &list);
    let messages = fake.messages(3);
    for (message, want) in messages.iter().zip([
        "2024-11-20T10:00:00Z",
        "2024-11-20T09:00:00Z",
        "2999-01-01T00:00:00Z",
    ]) {
        let feed = feed(message);
        assert_eq!(feed.items[0].updated.to_string(), want);
    }
    assert!(daemon.stop().success());
}

#[test]
fn a_listener_prints_an_object_of_json_for_each_feed() {
    let (fake, mut story) = Story::with_broker(ATOM);
    let listener = listen(&story.setup, &[]);
    let daemon = story.start();
    publish(&mut story, &["created 1.txt 10:00:00"]);
    let line = listener.json();
    let message = &fake.messages(1)[0];
    for (name, want) in [
        ("event", json!("notification")),
        ("format", json!("atom")),
        ("messageId", json!(message.header("messageId"))),
        ("seq", json!(1)),
        ("objectUri", json!("https://source.example/a/1.txt")),
        ("parentUri", json!("https://source.example/a/")),
        ("changeTypes", json!(["ADD"])),
        ("itemCount", json!(1)),
        ("initial", json!(false)),
    ] {
        assert_eq!(line[name], want, "{line}");
    }
    let item = &line["items"][0];
    assert_eq!(item["change"], "ADD");
    assert_eq!(item["stateAfter"], "ACTIVE");
    assert_eq!(item["content"]["src"], "https://source.example/a/1.txt");
    fake.await_acknowledged(1);
    drop(daemon);
}

/// `kill -9` of the daemon at failpoints: a consumer that discards by `messageId` hears each change once.
#[rstest]
fn each_change_is_one_feed_wherever_the_daemon_dies(
    #[values("LoggedSaved", "Answered", "Told")] failpoint: &str,
) {
    let (fake, mut story) = Story::with_broker(ATOM);
    let mut run = story.setup.run();
    run.env("RSNOTIFY_FAILPOINT", format!("{failpoint}:2"));
    let mut daemon = Daemon::spawn(run);
    // The first passing may be that of learning what is listed already.
    daemon.await_log("not announcing");
    let mut is_dead = false;
    while !is_dead {
        assert!(story.entries.len() < 10, "{failpoint} is not passed");
        story.change();
        until(|| {
            is_dead = daemon.ended().is_some();
            is_dead || told(&fake.messages(0)).len() == story.entries.len()
        });
    }
    story.change();
    let daemon = story.setup.start();
    story.change();
    let made: Vec<String> = story
        .changes()
        .iter()
        .map(|change| change.replace("updated", "UPDATE"))
        .collect();
    until(|| told(&fake.messages(0)).len() >= made.len());
    assert!(daemon.stop().success());
    let messages = fake.messages(0);
    assert_eq!(told(&messages), made);
    let mut bodies = HashMap::new();
    for message in &messages {
        let id = message.header("messageId").unwrap();
        let first = bodies.entry(id).or_insert(&message.body);
        assert_eq!(*first, &message.body, "a repeat is the same");
    }
    let repeats = messages.len() - bodies.len();
    let may_repeat = ["Answered", "Told"].contains(&failpoint);
    assert!(repeats <= usize::from(may_repeat), "{repeats} repeats");
}

//! Changes while no daemon runs, across kills, and while the state cannot be saved.

use std::collections::BTreeSet;

use crate::changes::story::{LIST, Story};
use crate::support::changes::{change_list, topic};
use crate::support::documents::capability_list;

/// C10: nothing that is published once the daemon says that it is ready counts as known.
#[test]
fn what_is_published_once_the_daemon_is_ready_is_told() {
    let mut story = Story::new("");
    let sets: Vec<String> = (0..64).map(|set| format!("s{set}")).collect();
    let mut entries: Vec<String> = (0..1_000)
        .map(|one| format!("updated {one}.txt 09:00:00"))
        .collect();
    for set in &sets {
        story.site.add_set(set);
        let path = format!("{set}/changelist.xml");
        story.site.write(&path, &change_list(set, &entries));
    }
    story.resume();
    entries.push("created new.txt 10:00:00".to_owned());
    for set in sets.iter().rev() {
        let path = format!("{set}/changelist.xml");
        story.site.write(&path, &change_list(set, &entries));
    }
    let mut topics: BTreeSet<String> = sets.iter().map(|set| topic(set)).collect();
    while !topics.is_empty() {
        let request = story.hub.notification();
        topics.remove(&request.topic());
    }
}

#[test]
fn changes_of_the_downtime_are_told_in_order_of_time() {
    let mut story = Story::start();
    story.add(&["created 1.txt 10:00:00"]);
    story.hears(&["created 1.txt"]);
    story.stop();
    // Three lists, closed meanwhile, the latest of which comes first by name.
    let lists = [
        (
            "changelist-c",
            ["created 2.txt 11:00:00", "updated 2.txt 11:30:00"],
        ),
        (
            "changelist-b",
            ["created 3.txt 12:00:00", "updated 2.txt 12:30:00"],
        ),
        (
            "changelist-a",
            ["deleted 3.txt 13:00:00", "deleted 2.txt 13:30:00"],
        ),
    ];
    for (name, entries) in &lists {
        story
            .site
            .write(&format!("a/{name}.xml"), &change_list("a", entries));
    }
    let mut names = lists.map(|(name, _)| name).to_vec();
    names.extend(["changelist", "resourcelist"]);
    let list = capability_list("a", &names);
    story.site.write("a/capabilitylist.xml", &list);
    story.resume();
    story.hears(&[
        "created 2.txt",
        "updated 2.txt",
        "created 3.txt",
        "updated 2.txt",
        "deleted 3.txt",
        "deleted 2.txt",
    ]);
    assert_eq!(story.heard.gaps, 0);
    story.ends();
}

#[test]
fn a_hub_that_was_down_across_restarts_receives_everything() {
    let mut story = Story::start();
    story.hub_is_down();
    for minute in 0..3 {
        let change = format!("updated 1.txt 10:0{minute}:00");
        story.add(&[&change]);
        story.await_count(
            "SELECT coalesce(sum(entries), 0) FROM change_log",
            minute + 1,
        );
        story.kill();
        story.resume();
    }
    story.hub.behave(crate::support::hub::Manner::Accept);
    story.hears(&["updated 1.txt"; 3]);
    assert_eq!((story.heard.gaps, story.heard.repeats), (0, 0));
    assert_eq!(
        story.heard.sizes,
        [1, 2],
        "what was in flight does not grow (C20)"
    );
    story.ends();
}

#[test]
fn while_the_state_cannot_be_saved_no_change_is_sent() {
    let mut story = Story::start();
    let path = story.setup.state.path().join("state/state.sqlite");
    let database = rusqlite::Connection::open(path).unwrap();
    // Another program that writes to it.
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    story.add(&["created 1.txt 10:00:00"]);
    story.daemon().await_log("cannot save");
    let told = story.hub.heard();
    assert!(told.is_empty(), "{told:?}");
    database.execute_batch("ROLLBACK").unwrap();
    story.hears(&["created 1.txt"]);
    story.ends();
}

#[test]
fn a_list_of_very_many_changes_is_told_in_bounded_notifications_and_memory() {
    const MANY: usize = 60_000;
    let mut story = Story::start();
    let mut entries = vec!["updated before.txt 09:00:00".to_owned()];
    entries.extend((0..MANY).map(|one| {
        let (minute, second) = (one / 1_000, one / 17 % 60);
        format!("created {one}.txt 10:{minute:02}:{second:02}")
    }));
    story.site.write(LIST, &change_list("a", &entries));
    story.heard.listen(&story.hub, &topic("a"), MANY);
    assert_eq!(story.heard.told.len(), MANY);
    let each_once: std::collections::BTreeSet<&String> = story.heard.told.iter().collect();
    assert_eq!(each_once.len(), MANY);
    assert!(story.heard.sizes.iter().all(|size| *size <= 1_000));
    assert_eq!(story.heard.gaps, 0);
    let peak = story.daemon().peak_memory();
    assert!(peak < 150 << 20, "{peak} bytes");
}

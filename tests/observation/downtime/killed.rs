//! `kill -9` at any moment: each change is announced at least once, and repetitions are unchanged (R22).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, list};
use crate::support::hub::{Manner, Request};

const SETS: usize = 8;
const UPDATED: &str = "updated changelist a/changelist.xml";

/// A daemon over eight sets, and the paths of their documents with what they are changed to.
fn eight_sets(watch: Watch) -> (Story, Vec<(String, String)>) {
    let site = Site::new();
    let sets: Vec<String> = (0..SETS).map(|n| format!("s{n}")).collect();
    for set in &sets {
        site.add_set(set);
    }
    let story = Story::begin(watch, site, "");
    let text = |set: &String| {
        let path = format!("{set}/changelist.xml");
        (path, list(set, "changelist", "2"))
    };
    (story, sets.iter().map(text).collect())
}

/// After a kill the hub hears the rest: nothing is missing, nothing is invented, and what is said again is said
/// in the same bytes.
fn hears_the_rest(mut story: Story, documents: &[(String, String)], mut requests: Vec<Request>) {
    let told = |(path, _): &(String, String)| format!("updated changelist {path}");
    let wanted: BTreeSet<String> = documents.iter().map(told).collect();
    let mut heard: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    loop {
        for request in requests.drain(..) {
            for change in request.changes() {
                assert!(wanted.contains(&change), "{change} was invented");
                let before = heard.entry(change).or_insert(request.body.clone());
                assert_eq!(*before, request.body, "repeated, but not unchanged");
            }
        }
        if heard.len() == wanted.len() {
            break;
        }
        requests.push(story.hub.request());
    }
    story.stop();
    for request in story.hub.heard() {
        let is_known = |change: &String| heard.get(change) == Some(&request.body);
        assert!(request.changes().iter().all(is_known));
    }
    story.resume();
    story.ends();
}

#[rstest]
fn killed_after_any_notification_of_a_burst(
    #[values(Inotify, Notify, Poll)] watch: Watch,
    #[values(1, 2, 4)] heard_before: usize,
) {
    let (mut story, documents) = eight_sets(watch);
    for (path, text) in &documents {
        story.site.write(path, text);
    }
    let requests: Vec<_> = (0..heard_before).map(|_| story.hub.request()).collect();
    story.kill();
    story.resume();
    hears_the_rest(story, &documents, requests);
}

#[rstest]
fn killed_at_any_moment_of_a_burst(
    #[values(Inotify, Poll)] watch: Watch,
    #[values(0, 5, 20, 80, 200)] milliseconds: u64,
) {
    let (mut story, documents) = eight_sets(watch);
    let root = story.site.root.path().to_owned();
    std::thread::scope(|scope| {
        let documents = &documents;
        scope.spawn(move || {
            for (path, text) in documents {
                // In place, so that it may be killed while a file is empty.
                fs::write(root.join(path), text).unwrap();
                std::thread::sleep(Duration::from_millis(20)); // stall: a burst takes a while
            }
        });
        std::thread::sleep(Duration::from_millis(milliseconds)); // stall: until the moment that is tried
        story.kill();
        story.resume();
    });
    hears_the_rest(story, &documents, Vec::new());
}

/// The hub accepts and the daemon does not live to hear it, again and again.
#[rstest]
fn killed_three_times_before_the_answer(#[values(Inotify, Poll)] watch: Watch) {
    let (mut story, documents) = eight_sets(watch);
    story.hub.behave(Manner::Hang);
    let mut requests = Vec::new();
    for round in documents.chunks(3) {
        for (path, text) in round {
            story.site.write(path, text);
        }
        requests.push(story.hub.request());
        story.kill();
        story.resume();
    }
    story.hub.behave(Manner::Accept);
    story.kill();
    story.resume();
    hears_the_rest(story, &documents, requests);
}

/// Files of SQLite beside the state file: it restores `-shm`, and without `-wal` the state is an older one,
/// from which the same changes are found again.
#[rstest]
fn what_lies_beside_the_state_file_is_lost(#[values("shm", "wal", "shm and wal")] what: &str) {
    let mut story = Story::start(Inotify);
    story.stop(); // the baseline is in the state file itself
    story.resume();
    story.update("a/changelist.xml", "2");
    assert_eq!(story.hub.request().changes(), [UPDATED]);
    if what == "shm" {
        story.stays_silent(); // the answer is saved before the marker is sent
    }
    story.kill();
    for suffix in what.split(" and ") {
        let name = format!("state.sqlite-{suffix}");
        fs::remove_file(story.state_file().with_file_name(name)).unwrap();
    }
    story.update("a/resourcelist.xml", "2");
    story.resume();
    let mut wanted = vec!["updated resourcelist a/resourcelist.xml"];
    if what != "shm" {
        wanted.push(UPDATED);
    }
    story.ends_hearing(&wanted);
}

//! Mass deletion: deletions of an emptied tree are suspended until an operator confirms them.

use std::fs;
use std::time::Duration;

use rstest::rstest;
use tempfile::TempDir;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::daemon::{assert_contains, exit_with, output, succeed};
use crate::support::documents::{Site, list};

/// Short, but longer than it takes to remove a tree.
const GRACE: Duration = Duration::from_secs(1);
pub const KEYS: &str = "deletion_grace = \"1s\"";
/// Changes that a hub receives when everything below the site is gone.
const DELETED: [&str; 3] = [
    "deleted capabilitylist a/capabilitylist.xml",
    "deleted description .well-known/resourcesync",
    "deleted description .well-known/resourcesync",
];

/// A set of 23 documents, a Source Description, and beside them the marker's two.
fn large() -> Site {
    let site = Site::new();
    for number in 0..20 {
        let path = format!("a/{number:02}.xml");
        site.write(&path, &list("a", "changelist", "1"));
    }
    site
}

fn is_suspended(story: &Story) -> bool {
    story.daemon().status()["sources"][0]["suspended"] == true
}

/// Nothing tells that a grace is over in which nothing may happen.
pub fn outlast_the_grace() {
    std::thread::sleep(GRACE + Duration::from_millis(200)); // the grace's deadline, with what is slow
}

/// The hub hears nothing, not even once the grace of a deletion is over.
#[track_caller]
pub fn stays_silent_for_good(story: &mut Story) {
    outlast_the_grace();
    story.stays_silent();
}

#[track_caller]
pub fn accepts(story: &Story, said: &str) {
    let out = succeed(story.setup.command("accept").arg("main"));
    assert_eq!(out.trim_end(), said);
}

#[rstest]
fn an_emptied_tree_is_suspended_until_it_is_accepted(
    #[values(Inotify, Notify, Poll)] watch: Watch,
) {
    let mut story = Story::begin(watch, large(), KEYS);
    for name in ["a", ".well-known"] {
        fs::remove_dir_all(story.site.path(name)).unwrap();
    }
    let entry = story.await_log("deletions are suspended");
    assert_eq!(entry["level"], "ERROR");
    assert_contains(&entry.to_string(), "run `rsnotify accept main`");
    outlast_the_grace();
    everyone_says_so(&story);

    story.site.add_set("b");
    story.site.write("a/00.xml", &list("a", "changelist", "2"));
    story.hears(&[
        "created capabilitylist b/capabilitylist.xml",
        "created changelist b/changelist.xml",
        "created resourcelist b/resourcelist.xml",
        "updated changelist a/00.xml",
    ]);

    accepts(&story, "accepted 23 missing documents of main as deleted");
    // A Source Description's deletion is heard on the new channel too.
    story.hears(&[&DELETED[..], &DELETED[2..]].concat());
    accepts(&story, "no document of main is missing");
    story.ends();
}

/// `scan`, `check`, the status and the metrics.
fn everyone_says_so(story: &Story) {
    let remedy = "24 of 26 documents of main are missing: their deletions are suspended until enough are back, \
                  or until you run `rsnotify accept main`";
    assert_contains(&exit_with(&mut story.setup.command("check"), 1).0, remedy);
    let (_, out, err) = output(&mut story.setup.command("scan"));
    assert_contains(&err, remedy);
    let missing = out.lines().filter(|line| line.starts_with("missing "));
    assert_eq!(missing.count(), 24);
    let documents = story.setup.scan();
    let missing = documents.iter().filter(|document| {
        let reason = document["reason"].as_str().unwrap_or_default();
        document["state"] == "missing" && reason.contains("`rsnotify accept main`")
    });
    assert_eq!(missing.count(), 24);
    assert!(is_suspended(story));
    assert_eq!(story.daemon().status()["sources"][0]["suspension"], remedy);
    let (_, metrics) = story.daemon().get_admin("/metrics");
    assert_contains(&metrics, "rsnotify_suspended{source=\"main\"} 1\n");
}

#[rstest]
fn deletions_accepted_while_no_daemon_runs_are_sent_by_the_next(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let mut story = Story::begin(watch, large(), KEYS);
    story.stop();
    let away = TempDir::new().unwrap();
    for name in ["a", ".well-known"] {
        fs::rename(story.site.path(name), away.path().join(name)).unwrap();
    }
    accepts(
        &story,
        "no document of main was missing when rsnotify last looked, and it is not running",
    );
    story.resume();
    assert!(is_suspended(&story));
    stays_silent_for_good(&mut story);
    story.stop();
    accepts(
        &story,
        "accepted 24 missing documents of main as deleted; rsnotify is not running, and announces it when it \
         is started",
    );
    story.resume();
    story.ends_hearing(&DELETED);
}

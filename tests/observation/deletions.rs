//! Mass deletion: deletions of an emptied tree are suspended until an operator confirms them.

use std::fs;
use std::time::Duration;

use rstest::rstest;
use tempfile::TempDir;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::daemon::{get, output};
use crate::support::documents::{Site, URL, capability_list, list};
use crate::support::hub::Manner;

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

/// Takes the whole content of the site elsewhere.
fn take_away(site: &Site) -> TempDir {
    let away = TempDir::new().unwrap();
    for name in ["a", ".well-known"] {
        fs::rename(site.path(name), away.path().join(name)).unwrap();
    }
    away
}

fn bring_back(site: &Site, away: &TempDir) {
    for name in ["a", ".well-known"] {
        fs::rename(away.path().join(name), site.path(name)).unwrap();
    }
}

/// A running daemon over a site that was emptied, which it has noticed.
fn emptied(watch: Watch) -> (Story, TempDir) {
    let story = Story::begin(watch, large(), KEYS);
    let away = take_away(&story.site);
    story.await_log("deletions are suspended");
    (story, away)
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

fn accept(story: &Story, source: &str) -> (Option<i32>, String, String) {
    output(story.setup.command("accept").arg(source))
}

#[track_caller]
pub fn accepts(story: &Story, said: &str) {
    let (code, out, err) = accept(story, "main");
    assert_eq!((code, out.trim_end()), (Some(0), said), "{err}");
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
    assert!(
        entry.to_string().contains("run `rsnotify accept main`"),
        "{entry}"
    );
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
    let (code, out, _) = output(&mut story.setup.command("check"));
    assert_eq!(code, Some(1));
    assert!(out.contains(remedy), "{out}");
    let (_, out, err) = output(&mut story.setup.command("scan"));
    assert!(err.contains(remedy), "{err}");
    assert_eq!(
        out.lines()
            .filter(|line| line.starts_with("missing "))
            .count(),
        24
    );
    let documents = story.setup.scan();
    let missing = documents.iter().filter(|document| {
        let reason = document["reason"].as_str().unwrap_or_default();
        document["state"] == "missing" && reason.contains("`rsnotify accept main`")
    });
    assert_eq!(missing.count(), 24);
    assert!(is_suspended(story));
    assert_eq!(story.daemon().status()["sources"][0]["suspension"], remedy);
    let (_, metrics) = get(story.daemon().admin, "/metrics");
    assert!(metrics.contains("rsnotify_suspended{source=\"main\"} 1\n"));
}

#[rstest]
fn a_tree_emptied_while_nobody_looked_is_suspended(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::begin(watch, large(), KEYS);
    story.stop();
    let away = take_away(&story.site);
    accepts(
        &story,
        "no document of main was missing when rsnotify last looked, and it is not running",
    );
    story.resume();
    assert!(is_suspended(&story));
    stays_silent_for_good(&mut story);
    bring_back(&story.site, &away);
    story.await_log("are no longer suspended");
    story.ends();
}

#[rstest]
fn deletions_accepted_while_no_daemon_runs_are_sent_by_the_next(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let (mut story, _away) = emptied(watch);
    story.stop();
    accepts(
        &story,
        "accepted 24 missing documents of main as deleted; rsnotify is not running, and announces it when it \
         is started",
    );
    story.resume();
    story.ends_hearing(&DELETED);
}

#[rstest]
fn a_crash_after_an_acceptance_undoes_nothing(#[values(Inotify, Poll)] watch: Watch) {
    let (mut story, _away) = emptied(watch);
    story.hub.behave(Manner::Refuse(503));
    accepts(&story, "accepted 24 missing documents of main as deleted");
    story.kill();
    story.resume();
    story.hub.behave(Manner::Accept);
    let mut heard = story.hub.changes_until(&DELETED);
    heard.sort();
    assert_eq!(heard, DELETED);
    story.ends_silent();
}

#[rstest]
fn nothing_is_suspended_where_mass_deletion_is_never(#[values(Inotify, Poll)] watch: Watch) {
    let keys = format!("{KEYS}\nmass_deletion = \"never\"");
    let story = Story::begin(watch, large(), &keys);
    take_away(&story.site);
    story.ends_hearing(&DELETED);
}

#[rstest]
fn one_source_is_suspended_and_the_other_goes_on(#[values(Inotify, Poll)] watch: Watch) {
    const OTHER: &str = "https://other.example/";
    let other = Site::empty();
    let write = |path: &str, content: &str| other.write(path, &content.replace(URL, OTHER));
    for set in ["b", "c"] {
        let path = format!("{set}/capabilitylist.xml");
        write(&path, &capability_list(set, &["changelist"]));
    }
    write("b/changelist.xml", &list("b", "changelist", "1"));
    let mut story = Story::over(watch, large(), KEYS);
    let (_, keys) = story.setup.config.split_once("settle").unwrap();
    let source = format!(
        "[[source]]\nname = \"other\"\nmount = [{{ path = \"{}\", url = \"{OTHER}\" }}]\nsettle{keys}",
        other.root.path().display()
    );
    story.setup.config.push_str(&source);
    story.resume();
    let _away = take_away(&story.site);
    story.await_log("deletions are suspended");
    write("b/changelist.xml", &list("b", "changelist", "2"));
    other.remove("c/capabilitylist.xml");
    story.hears(&[
        "updated changelist https://other.example/b/changelist.xml",
        "deleted capabilitylist https://other.example/c/capabilitylist.xml",
    ]);
    let (code, out, _) = accept(&story, "other");
    assert_eq!(
        (code, out.as_str()),
        (Some(0), "no document of other is missing\n")
    );
    stays_silent_for_good(&mut story);
    let (code, _, err) = accept(&story, "another");
    assert_eq!(code, Some(1));
    assert!(
        err.contains("no source is named \"another\"; there is main, other"),
        "{err}"
    );
    accepts(&story, "accepted 24 missing documents of main as deleted");
    story.ends_hearing(&DELETED);
}

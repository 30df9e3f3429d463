//! Roots that are replaced, appear late, disappear or are mounted over.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rstest::rstest;

use crate::links::{swap, write_set};
use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, list, replace};
use crate::support::namespace::was_run_again;
use crate::tools::run;

const UPDATED: &str = "updated changelist b/changelist.xml";

/// Writes a tree with one set, `b/`.
fn write_tree(directory: &Path, version: &str) {
    write_set(&directory.join("b"), version);
}

/// A story whose mount is `www` in the site's directory, whether that is there or not.
fn below(watch: Watch, site: Site, keys: &str) -> Story {
    let root = site.root.path().display().to_string();
    let mut story = Story::over(watch, site, keys);
    let (whole, part) = (format!("\"{root}\""), format!("\"{root}/www\""));
    story.edit(&whole, &part);
    story
}

fn change(story: &Story, below: &str, version: &str) {
    let path = story.site.path(below).join("b/changelist.xml");
    replace(&path, &list("b", "changelist", version));
}

#[rstest]
fn a_link_that_is_swapped(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let site = Site::empty();
    for release in ["1", "2", "3"] {
        write_tree(&site.path(release), release);
    }
    write_tree(&site.path("4"), "3");
    replace(
        &site.path("2/b/changedump.xml"),
        &list("b", "changedump", "1"),
    );
    symlink("1", site.path("www")).unwrap();
    let mut story = below(watch, site, "deletion_grace = \"5m\"");
    story.resume();
    swap("2", &story.site.path("www"));
    story.hears(&[UPDATED, "created changedump b/changedump.xml"]);
    change(&story, "1", "unpublished");
    story.stays_silent();
    // Not in one step.
    fs::remove_file(story.site.path("www")).unwrap();
    symlink("3", story.site.path("www")).unwrap();
    story.hears(&[UPDATED]);
    swap("4", &story.site.path("www"));
    story.stays_silent();
    // No mount was ever away.
    let log = story.stop_and_tell();
    let warnings: Vec<&String> = log.iter().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings, [&""; 0]);
    story.resume();
    change(&story, "www", "last");
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn late_and_gone_for_a_while(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = below(watch, Site::empty(), "");
    story.resume();
    let (root, away) = (story.site.path("www"), story.site.path("away"));
    write_tree(&away, "1");
    // Long enough for the tree to be older than `settle` when it is moved.
    story.stays_silent();
    fs::rename(&away, &root).unwrap();
    // R13: what the first look finds is taken as known.
    story.await_log("baseline of main complete");
    story.stays_silent();
    fs::rename(&root, &away).unwrap();
    story.await_log("a mount of main is missing");
    story.stays_silent();
    fs::rename(&away, &root).unwrap();
    story.stays_silent();
    fs::rename(&root, &away).unwrap();
    change(&story, "away", "2");
    story.stays_silent();
    fs::rename(&away, &root).unwrap();
    story.hears(&[UPDATED]);
    change(&story, "www", "last");
    story.ends_hearing(&[UPDATED]);
}

/// `watch = "auto"`, and every sweep that it falls back to is soon.
fn left_to_decide(story: &mut Story) {
    let auto = "watch = \"auto\"\npoll_interval = \"100ms\"";
    story.edit("watch = \"inotify\"", auto);
}

#[test]
fn without_watches_it_polls_and_says_so_once() {
    let few = "echo 10 > /proc/sys/user/max_inotify_watches && exec \"$@\"";
    if was_run_again(&format!("unshare --map-root-user sh -c '{few}' sh")) {
        return;
    }
    let site = Site::new();
    for set in 0..20 {
        site.add_set(&format!("sets/{set}"));
    }
    let mut story = Story::over(Inotify, site, "");
    left_to_decide(&mut story);
    story.launch();
    let remedy = "sysctl -w user.max_inotify_watches=";
    story.await_log(remedy);
    story.await_log("ready");
    for version in ["2", "3"] {
        for set in ["sets/0", "sets/19"] {
            story.update(&format!("{set}/changelist.xml"), version);
        }
        story.site.add_set(&format!("new/{version}"));
        story.hears(&[
            "updated changelist sets/0/changelist.xml",
            "updated changelist sets/19/changelist.xml",
            &format!("created capabilitylist new/{version}/capabilitylist.xml"),
            &format!("created changelist new/{version}/changelist.xml"),
            &format!("created resourcelist new/{version}/resourcelist.xml"),
        ]);
    }
    assert_eq!(story.stop_and_count(remedy), 1, "said once");
}

/// No file system in which an ordinary user can write is unknown to be local; but one can be mounted over a
/// directory of such a system, which makes no promise for it.
#[cfg(target_os = "linux")]
#[test]
fn what_is_not_known_to_be_local_is_polled_and_says_so_once() {
    if was_run_again("unshare --map-root-user --mount") {
        return;
    }
    let site = Site::empty();
    site.add_set("epoll");
    let mut story = Story::over(Inotify, site, "");
    left_to_decide(&mut story);
    let root = story.site.root.path().to_owned();
    run("mount --bind $1 /proc/sys/fs/epoll", &[&root.join("epoll")]);
    let (whole, part) = (format!("\"{}\"", root.display()), "\"/proc/sys/fs\"");
    story.edit(&whole, part);
    story.resume();
    for version in ["2", "3"] {
        story.update("epoll/changelist.xml", version);
        story.hears(&["updated changelist epoll/changelist.xml"]);
    }
    story.site.add_set("epoll/new");
    story.hears(&[
        "created capabilitylist epoll/new/capabilitylist.xml",
        "created changelist epoll/new/changelist.xml",
        "created resourcelist epoll/new/resourcelist.xml",
    ]);
    let words = "polling /proc/sys/fs every 0.1 s";
    assert_eq!(story.stop_and_count(words), 1, "said once");
}

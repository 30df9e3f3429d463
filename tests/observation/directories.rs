//! Directories that are created, removed, moved and filled at once.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::Instant;

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, component, index, list};
use crate::support::namespace::was_run_again;
use crate::tools::run;

const ALL_PARTS: &str = "announce_all_components = true";

/// A site with a set `i/`, whose Change List is an index of these documents below it.
fn indexed(site: &Site, parts: &[impl AsRef<str>]) {
    let members = parts.iter().map(|part| format!("i/{}", part.as_ref()));
    let index = index("i", "changelist", &Vec::from_iter(members));
    site.write("i/changelist.xml", &index);
    site.write_capability_list("i", &["changelist"]);
}

fn part(content: &str) -> String {
    component("i", "changelist", "i/changelist.xml", content)
}

/// A running daemon over a set `i/` that lists `listed`; those of `written` are there.
fn over_parts(watch: Watch, keys: &str, listed: &[&str], written: &[&str]) -> Story {
    let site = Site::new();
    indexed(&site, listed);
    for below in written {
        site.write(&format!("i/{below}"), &part(below));
    }
    Story::begin(watch, site, keys)
}

fn created(set: &str) -> [String; 3] {
    ["capabilitylist", "changelist", "resourcelist"]
        .map(|capability| format!("created {capability} {set}/{capability}.xml"))
}

/// These parts were created.
fn told(parts: &[String]) -> Vec<String> {
    let told = |below| format!("created changelist i/{below}");
    parts.iter().map(told).collect()
}

/// The directory is watched still, or anew.
#[track_caller]
fn ends_with_a_change_of(story: Story, path: &str, text: &str) {
    story.site.write(path, text);
    story.ends_hearing(&[&format!("updated changelist {path}")]);
}

#[rstest]
fn two_hundred_sets_made_and_filled_in_one_breath(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    for set in 0..200 {
        story.site.add_set(&format!("sets/{set}"));
    }
    let wanted: Vec<String> = (0..200)
        .flat_map(|set| created(&format!("sets/{set}")))
        .collect();
    story.hears(&wanted);
    let text = list("sets/199", "changelist", "2");
    ends_with_a_change_of(story, "sets/199/changelist.xml", &text);
}

#[rstest]
fn moved_out_and_in_again(#[values(Inotify, Poll)] watch: Watch) {
    let site = Site::new();
    site.add_set("b");
    let mut story = Story::begin(watch, site, "");
    let elsewhere = Site::empty();
    fs::rename(story.site.path("b"), elsewhere.path("b")).unwrap();
    story.hears(&["deleted capabilitylist b/capabilitylist.xml"]);
    elsewhere.write("b/resourcelist.xml", &list("b", "resourcelist", "2"));
    story.stays_silent();
    fs::rename(elsewhere.path("b"), story.site.path("b")).unwrap();
    story.hears(&created("b"));
    ends_with_a_change_of(story, "b/changelist.xml", &list("b", "changelist", "2"));
}

#[rstest]
fn unmounted_below_the_root(#[values(Inotify, Poll)] watch: Watch) {
    if was_run_again("unshare --map-root-user --mount") {
        return;
    }
    let site = Site::new();
    let part_of = |content| site.write("i/x/part.xml", &part(content));
    indexed(&site, &["x/part.xml"]);
    part_of("beneath");
    let place = site.path("i/x");
    run("mount -t tmpfs none $2", &[site.root.path(), &place]);
    part_of("above");
    let mut story = Story::begin(watch, site, "");
    // No event tells the parent. What is open in it for a moment does not hold it.
    run("umount --lazy $2", &[story.site.root.path(), &place]);
    story.hears(&["updated changelist i/x/part.xml"]);
    ends_with_a_change_of(story, "i/x/part.xml", &part("new"));
}

#[rstest]
fn renamed_while_files_are_written_in_it(#[values(Inotify, Poll)] watch: Watch) {
    let parts: Vec<String> = (0..20).map(|n| format!("y/{n}.xml")).collect();
    let listed: Vec<&str> = parts.iter().map(String::as_str).collect();
    let mut story = over_parts(watch, ALL_PARTS, &listed, &[]);
    fs::create_dir(story.site.path("i/x")).unwrap();
    let text = part("1");
    let (begin, end) = text.split_at(text.len() / 2);
    let mut files = Vec::new();
    for n in 0..20 {
        let path = story.site.path(&format!("i/x/{n}.xml"));
        let mut file = OpenOptions::new().write(true).create_new(true).open(path);
        file.as_mut().unwrap().write_all(begin.as_bytes()).unwrap();
        files.push(file.unwrap());
    }
    fs::rename(story.site.path("i/x"), story.site.path("i/y")).unwrap();
    let moment = Instant::now();
    for mut file in files {
        file.write_all(end.as_bytes()).unwrap();
    }
    let wanted = told(&parts);
    story.hears_after(moment, &wanted);
    ends_with_a_change_of(story, "i/y/0.xml", &part("2"));
}

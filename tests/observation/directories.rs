//! Directories that are created, removed, moved and filled at once.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;
use std::time::Instant;

use rstest::rstest;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, capability_list, component, index, list};
use crate::support::namespace::was_run_again;

const ALL_PARTS: &str = "announce_all_components = true";

/// A site with a set `i/`, whose Change List is an index of these documents below it.
fn indexed(site: &Site, parts: &[&str]) {
    let members: Vec<String> = parts.iter().map(|part| format!("i/{part}")).collect();
    site.write("i/changelist.xml", &index("i", "changelist", &members));
    site.write(
        "i/capabilitylist.xml",
        &capability_list("i", &["changelist"]),
    );
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

#[track_caller]
fn hears_all(story: &mut Story, wanted: &[String]) {
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    story.hears(&wanted);
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
    hears_all(&mut story, &wanted);
    let text = list("sets/199", "changelist", "2");
    ends_with_a_change_of(story, "sets/199/changelist.xml", &text);
}

#[rstest]
fn two_hundred_directories_of_one_index(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::begin(watch, Site::new(), ALL_PARTS);
    let parts: Vec<String> = (0..200).map(|n| format!("{n}/part.xml")).collect();
    for below in &parts {
        story.site.write(&format!("i/{below}"), &part(below));
    }
    indexed(
        &story.site,
        &parts.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let mut wanted: Vec<String> = parts
        .iter()
        .map(|below| format!("created changelist i/{below}"))
        .collect();
    wanted.push("created capabilitylist i/capabilitylist.xml".to_owned());
    hears_all(&mut story, &wanted);
    ends_with_a_change_of(story, "i/199/part.xml", &part("new"));
}

#[rstest]
fn moved_in(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    let staging = Site::empty();
    staging.add_set("b");
    fs::rename(staging.path("b"), story.site.path("b")).unwrap();
    hears_all(&mut story, &created("b"));
    ends_with_a_change_of(story, "b/changelist.xml", &list("b", "changelist", "2"));
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
    hears_all(&mut story, &created("b"));
    ends_with_a_change_of(story, "b/changelist.xml", &list("b", "changelist", "2"));
}

#[rstest]
fn moved_within_the_tree(#[values(Inotify, Poll)] watch: Watch) {
    let keys = "announce_all_deletions = true";
    let mut story = over_parts(watch, keys, &["old/part.xml"], &["old/part.xml"]);
    fs::rename(story.site.path("i/old"), story.site.path("i/new")).unwrap();
    indexed(&story.site, &["new/part.xml"]);
    story.hears(&[
        "created changelist i/new/part.xml",
        "deleted changelist i/old/part.xml",
    ]);
    ends_with_a_change_of(story, "i/new/part.xml", &part("new"));
}

#[rstest]
fn swapped(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let parts = ["x/part.xml", "y/part.xml"];
    let mut story = over_parts(watch, ALL_PARTS, &parts, &parts);
    for _ in 0..2 {
        let (x, y) = (story.site.path("i/x"), story.site.path("i/y"));
        renameat_with(CWD, x, CWD, y, RenameFlags::EXCHANGE).unwrap();
        story.hears(&[
            "updated changelist i/x/part.xml",
            "updated changelist i/y/part.xml",
        ]);
    }
    story.site.write("i/x/part.xml", &part("new"));
    story.hears(&["updated changelist i/x/part.xml"]);
    ends_with_a_change_of(story, "i/y/part.xml", &part("newer"));
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
    let run = |command: &mut Command| assert!(command.status().unwrap().success());
    run(Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(&place));
    part_of("above");
    let mut story = Story::begin(watch, site, "");
    // No event tells the parent. What is open in it for a moment does not hold it.
    run(Command::new("umount").arg("--lazy").arg(&place));
    story.hears(&["updated changelist i/x/part.xml"]);
    ends_with_a_change_of(story, "i/x/part.xml", &part("new"));
}

#[rstest]
fn removed_and_made_again(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let site = Site::new();
    site.add_set("b");
    let mut story = Story::begin(watch, site, "deletion_grace = \"5m\"");
    fs::remove_dir_all(story.site.path("b")).unwrap();
    story.stays_silent();
    story.site.add_set("b");
    story.stays_silent();
    fs::remove_dir_all(story.site.path("b")).unwrap();
    story.site.add_set("b");
    story.update("b/changelist.xml", "2");
    story.hears(&["updated changelist b/changelist.xml"]);
    ends_with_a_change_of(story, "b/changelist.xml", &list("b", "changelist", "3"));
}

#[rstest]
fn a_file_that_becomes_a_directory_and_back(#[values(Inotify, Poll)] watch: Watch) {
    let parts = ["part.xml", "part.xml/inner.xml"];
    let mut story = over_parts(watch, "", &parts, &["part.xml"]);
    story.site.remove("i/part.xml");
    story.site.write("i/part.xml/inner.xml", &part("inner"));
    story.hears(&["created changelist i/part.xml/inner.xml"]);
    story.site.write("i/part.xml/inner.xml", &part("inner 2"));
    story.hears(&["updated changelist i/part.xml/inner.xml"]);
    fs::remove_dir_all(story.site.path("i/part.xml")).unwrap();
    story.site.write("i/part.xml", &part("part.xml"));
    story.hears(&["created changelist i/part.xml"]);
    ends_with_a_change_of(story, "i/part.xml", &part("part 2"));
}

#[rstest]
fn sixty_levels_deep(#[values(Inotify, Poll)] watch: Watch) {
    let deep = format!("{}part.xml", "d/".repeat(60));
    let mut story = over_parts(watch, "", &[&deep], &[]);
    let path = format!("i/{deep}");
    story.site.write(&path, &part("1"));
    story.hears(&[&format!("created changelist {path}")]);
    ends_with_a_change_of(story, &path, &part("2"));
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
    let wanted: Vec<String> = parts
        .iter()
        .map(|below| format!("created changelist i/{below}"))
        .collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    story.hears_after(moment, &wanted);
    ends_with_a_change_of(story, "i/y/0.xml", &part("2"));
}

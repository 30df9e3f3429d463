//! Documents that are put into place completely: renamed, linked, exchanged.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use rstest::rstest;
use rustix::fs::{CWD, RenameFlags};

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, archive, list};
use crate::writing::{PATH, UPDATED, long_list, write_with_a_stall};

/// A site whose Capability List has these Change Lists, of which only those with a content are there yet.
fn numbered(watch: Watch, contents: &[Option<&str>]) -> Story {
    let site = Site::new();
    let path = |number: usize| format!("a/changelist-{number}.xml");
    let mut listed = vec![PATH.to_owned(), "a/resourcelist.xml".to_owned()];
    for (number, content) in contents.iter().enumerate() {
        listed.push(path(number));
        if let Some(content) = content {
            site.write(&path(number), &list("a", "changelist", content));
        }
    }
    site.write(
        "a/capabilitylist.xml",
        &archive("a", "capabilitylist", &listed),
    );
    Story::begin(watch, site, "deletion_grace = \"60s\"")
}

/// The new version, whole, where nobody looks.
fn beside(story: &Story) -> PathBuf {
    let path = story.site.path("a/changelist.tmp");
    fs::write(&path, long_list("2")).unwrap();
    path
}

#[rstest]
fn renamed_over(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    let beside = beside(&story);
    story.stays_silent();
    fs::rename(beside, story.site.path(PATH)).unwrap();
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn renamed_over_from_another_directory(#[values(Inotify, Poll)] watch: Watch) {
    let story = Story::start(watch);
    let beside = beside(&story);
    let elsewhere = story.site.path("staging");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(beside, elsewhere.join("changelist.txt")).unwrap();
    fs::rename(elsewhere.join("changelist.txt"), story.site.path(PATH)).unwrap();
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn renamed_while_it_is_open_and_written_on(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let story = Story::start(watch);
    let text = long_list("2");
    let temporary = story.site.path("a/changelist.tmp");
    let mut file = File::create(&temporary).unwrap();
    file.write_all(&text.as_bytes()[..3000]).unwrap();
    fs::rename(&temporary, story.site.path(PATH)).unwrap();
    write_with_a_stall(story, file, &text[3000..], 2000);
}

#[rstest]
fn two_documents_exchanged(#[values(Inotify, Poll)] watch: Watch) {
    let story = numbered(watch, &[Some("one"), Some("other")]);
    let one = story.site.path("a/changelist-0.xml");
    let other = story.site.path("a/changelist-1.xml");
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
    story.ends_hearing(&[
        "updated changelist a/changelist-0.xml",
        "updated changelist a/changelist-1.xml",
    ]);
}

/// As logs are rotated.
#[rstest]
fn a_chain_of_renames(#[values(Inotify, Poll)] watch: Watch) {
    let story = numbered(watch, &[Some("zero"), Some("one"), Some("two")]);
    let path = |number: usize| format!("a/changelist-{number}.xml");
    for number in [1, 0] {
        let (from, to) = (path(number), path(number + 1));
        fs::rename(story.site.path(&from), story.site.path(&to)).unwrap();
    }
    story
        .site
        .write(&path(0), &list("a", "changelist", "newest"));
    story.ends_hearing(&[
        "updated changelist a/changelist-0.xml",
        "updated changelist a/changelist-1.xml",
        "updated changelist a/changelist-2.xml",
    ]);
}

/// The name in between is listed nowhere, so that it would be held until it is (R17).
#[rstest]
fn a_document_renamed_twice(#[values(Inotify, Poll)] watch: Watch) {
    let story = numbered(watch, &[Some("zero"), None]);
    let names = ["a/changelist-0.xml", "a/between.xml", "a/changelist-1.xml"];
    let [first, between, last] = names.map(|name| story.site.path(name));
    fs::rename(first, &between).unwrap();
    fs::rename(between, last).unwrap();
    story.ends_hearing(&["created changelist a/changelist-1.xml"]);
}

#[rstest]
fn replaced_by_a_hard_link(#[values(Inotify, Poll)] watch: Watch) {
    let story = Story::start(watch);
    let beside = beside(&story);
    let link = story.site.path("a/.changelist.link");
    fs::hard_link(beside, &link).unwrap();
    fs::rename(link, story.site.path(PATH)).unwrap();
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn created_as_a_hard_link(#[values(Inotify, Poll)] watch: Watch) {
    let story = numbered(watch, &[None]);
    let beside = beside(&story);
    fs::hard_link(beside, story.site.path("a/changelist-0.xml")).unwrap();
    story.ends_hearing(&["created changelist a/changelist-0.xml"]);
}

/// The old version becomes the backup, and the new one is written in its place.
#[rstest]
fn as_an_editor_saves(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = numbered(watch, &[]);
    let (place, backup) = (story.site.path(PATH), story.site.path("a/changelist.xml~"));
    fs::rename(&place, &backup).unwrap();
    fs::write(&place, long_list("2")).unwrap();
    story.hears(&[UPDATED]);
    fs::remove_file(backup).unwrap();
    story.ends_silent();
}

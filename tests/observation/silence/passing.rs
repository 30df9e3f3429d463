//! Changes that are reverted before they were announced.

use std::fs;

use rstest::rstest;
use serde_json::Value;

use crate::silence::PATH;
use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, list};

/// A story whose deletions are not believed while it lasts.
fn patient(watch: Watch) -> Story {
    Story::begin(watch, Site::new(), "deletion_grace = \"60s\"")
}

/// Returns the number of pending changes of a hub.
fn due(status: &Value) -> u64 {
    let channels = status["channels"].as_array().unwrap();
    let hubs = channels
        .iter()
        .flat_map(|it| it["hubs"].as_array().unwrap());
    hubs.map(|hub| hub["due"].as_u64().unwrap()).sum()
}

#[rstest]
fn another_version_and_the_first_again(
    #[values(Inotify, Notify, Poll)] watch: Watch,
    #[values(true, false)] in_place: bool,
) {
    let mut story = Story::over(watch, Site::new(), "");
    // The window closes when the other version has been seen and has gone, however long that takes.
    let (short, long) = ("quiet = \"20ms\"", "quiet = \"1h\"\nmax_wait = \"2h\"");
    story.edit(short, long);
    story.resume();
    let first = fs::read_to_string(story.site.path(PATH)).unwrap();
    let write = |story: &Story, text: &str| match in_place {
        true => story.site.write_in_place(PATH, text),
        false => story.site.write(PATH, text),
    };
    write(&story, &list("a", "changelist", "2"));
    story.daemon().await_status(|status| due(status) == 1);
    write(&story, &first);
    story.daemon().await_status(|status| due(status) == 0);
    story.edit(long, short);
    story.ends();
}

#[rstest]
fn another_version_and_the_first_again_within_a_window(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::over(watch, Site::new(), "");
    let (short, long) = ("quiet = \"20ms\"", "quiet = \"1s\"");
    story.edit(short, long);
    story.resume();
    let first = fs::read_to_string(story.site.path(PATH)).unwrap();
    story.update(PATH, "2");
    story.site.write(PATH, &first);
    story.stays_silent();
    story.edit(long, short);
    story.ends();
}

/// The other version was never complete.
#[rstest]
fn a_version_that_its_writer_took_back(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    let first = fs::read_to_string(story.site.path(PATH)).unwrap();
    let other = list("a", "changelist", "2");
    story.site.write_in_place(PATH, &other[..other.len() - 10]);
    story.stays_silent();
    story.site.write_in_place(PATH, &first);
    story.ends_silent();
}

#[rstest]
fn deleted_and_created_again(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = patient(watch);
    for path in [PATH, "a/capabilitylist.xml", ".well-known/resourcesync"] {
        let text = fs::read_to_string(story.site.path(path)).unwrap();
        story.site.remove(path);
        story.await_missing(1);
        story.stays_silent();
        story.site.write_in_place(path, &text);
        story.await_missing(0);
        story.stays_silent();
    }
    story.ends();
}

#[rstest]
fn deleted_and_created_again_in_one_breath(#[values(Inotify, Poll)] watch: Watch) {
    let story = patient(watch);
    let text = fs::read_to_string(story.site.path(PATH)).unwrap();
    for _ in 0..50 {
        story.site.remove(PATH);
        story.site.write_in_place(PATH, &text);
    }
    story.ends_silent();
}

/// Under the other name it is a document that is listed nowhere, and would wait to be (R17).
#[rstest]
fn renamed_away_and_back(
    #[values(Inotify, Poll)] watch: Watch,
    #[values("a/changelist.bak", "a/changelist-old.xml", ".hidden.xml")] away: &str,
) {
    let mut story = patient(watch);
    let (place, away) = (story.site.path(PATH), story.site.path(away));
    fs::rename(&place, &away).unwrap();
    story.await_missing(1);
    story.stays_silent();
    fs::rename(&away, &place).unwrap();
    story.ends_silent();
}

#[rstest]
fn a_directory_renamed_away_and_back(#[values(Inotify, Poll)] watch: Watch) {
    let story = patient(watch);
    let (place, away) = (story.site.path("a"), story.site.path(".away"));
    fs::rename(&place, &away).unwrap();
    story.await_missing(3);
    fs::rename(&away, &place).unwrap();
    story.ends_silent();
}

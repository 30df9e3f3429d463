//! Indexes, written before or after their components.

mod odd;

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, component, index, list};

const INDEX: &str = "a/resourcelist.xml";

fn part(number: usize) -> String {
    format!("a/part-{number}.xml")
}

fn write_part(site: &Site, number: usize, content: &str) {
    let text = component("a", "resourcelist", INDEX, content);
    site.write(&part(number), &text);
}

fn write_index(site: &Site, parts: usize) {
    let members: Vec<String> = (0..parts).map(part).collect();
    site.write(INDEX, &index("a", "resourcelist", &members));
}

/// A site whose Resource List is an index of this many parts.
fn indexed(parts: usize) -> Site {
    let site = Site::new();
    (0..parts).for_each(|number| write_part(&site, number, "1"));
    write_index(&site, parts);
    site
}

fn with_hold(watch: Watch, site: Site, hold: &str, keys: &str) -> Story {
    let mut story = Story::over(watch, site, keys);
    let window = format!("[window]\nhold = \"{hold}\"\n");
    story.setup.config = story.setup.config.replace("[window]\n", &window);
    story.resume();
    story
}

#[rstest]
fn a_component_waits_for_its_index(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = with_hold(watch, indexed(1), "10m", "");
    write_part(&story.site, 1, "1");
    story.stays_silent();
    write_index(&story.site, 2);
    let requests = story.hears(&["created resourcelist a/part-1.xml"]);
    let is_linked = requests.iter().any(|request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        body.contains("rel=\"index\"") && body.contains(INDEX)
    });
    assert!(is_linked, "the notification names the index");
    story.ends();
}

#[rstest]
fn a_component_after_its_index_is_announced(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = with_hold(watch, indexed(1), "10m", "");
    write_index(&story.site, 2);
    story.stays_silent();
    write_part(&story.site, 1, "1");
    story.ends_hearing(&["created resourcelist a/part-1.xml"]);
}

#[rstest]
fn a_component_is_announced_once_though_its_index_comes_late(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let mut story = with_hold(watch, indexed(1), "200ms", "");
    write_part(&story.site, 1, "1");
    story.hears(&["created resourcelist a/part-1.xml"]);
    story.await_log("still not listed anywhere");
    write_index(&story.site, 2);
    story.ends_silent();
}

#[rstest]
fn of_components_that_change_at_once_the_newest_is_announced(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let mut story = Story::begin(watch, indexed(3), "");
    story.stop();
    for number in 0..3 {
        write_part(&story.site, number, "2");
        // The times of files tick more slowly than they are written: a stall sets them apart.
        std::thread::sleep(std::time::Duration::from_millis(20)); // the generator's stall
    }
    story.resume();
    story.ends_hearing(&["updated resourcelist a/part-2.xml"]);
}

#[rstest]
fn each_component_is_announced_if_asked_for(#[values(Inotify, Poll)] watch: Watch) {
    let story = Story::begin(watch, indexed(2), "announce_all_components = true");
    write_part(&story.site, 0, "2");
    write_part(&story.site, 1, "2");
    story.ends_hearing(&[
        "updated resourcelist a/part-0.xml",
        "updated resourcelist a/part-1.xml",
    ]);
}

#[rstest]
fn a_component_that_is_removed_with_its_entry_is_not_announced(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let story = Story::begin(watch, indexed(2), "");
    write_index(&story.site, 1);
    story.site.remove(&part(1));
    story.ends_silent();
}

#[rstest]
fn a_list_that_becomes_an_index_and_a_list_again(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    write_part(&story.site, 0, "2");
    write_index(&story.site, 1);
    story.hears(&["created resourcelist a/part-0.xml"]);
    story.site.write(INDEX, &list("a", "resourcelist", "3"));
    story.ends_hearing(&["created resourcelist a/resourcelist.xml"]);
}

//! Indexes, written before or after their components, and components that have two.

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, URL, component, index, list};
use crate::support::hub::Request;

const INDEX: &str = "a/resourcelist.xml";
const PART: &str = "a/part.xml";
const UPDATED: &str = "updated changelist a/part.xml";

/// Returns true if the notifications name this document as the index of their changes.
fn names_index(requests: &[Request], path: &str) -> bool {
    let link = format!("rel=\"index\" href=\"{URL}{path}\"");
    let bodies = requests.iter().map(|request| &request.body);
    bodies
        .map(|body| String::from_utf8_lossy(body))
        .any(|body| body.contains(&link))
}

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
    story.edit("[window]\n", &window);
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
    assert!(names_index(&requests, INDEX));
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
fn a_component_that_is_removed_with_its_entry_is_not_announced(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let story = Story::begin(watch, indexed(2), "");
    write_index(&story.site, 1);
    story.site.remove(&part(1));
    story.ends_silent();
}

#[rstest]
fn a_component_that_goes_is_announced_if_asked_for(#[values(Inotify, Poll)] watch: Watch) {
    let story = Story::begin(watch, indexed(2), "announce_all_deletions = true");
    write_index(&story.site, 1);
    story.site.remove(&part(1));
    story.ends_hearing(&["deleted resourcelist a/part-1.xml"]);
}

#[rstest]
fn of_two_indexes_the_one_that_is_named_counts_or_else_the_first(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let site = Site::new();
    for name in ["a/one.xml", "a/two.xml"] {
        site.write(name, &index("a", "changelist", &[PART.to_owned()]));
    }
    site.write(PART, &component("a", "changelist", "a/two.xml", "1"));
    let mut story = Story::begin(watch, site, "");
    let named = component("a", "changelist", "a/two.xml", "2");
    story.site.write(PART, &named);
    assert!(names_index(&story.hears(&[UPDATED]), "a/two.xml"));
    story.site.write(PART, &list("a", "changelist", "3"));
    assert!(names_index(&story.hears(&[UPDATED]), "a/one.xml"));
    story.ends();
}

#[rstest]
fn an_index_of_indexes_is_not_announced_either(#[values(Inotify, Poll)] watch: Watch) {
    let site = Site::new();
    let below = ["a/below.xml".to_owned()];
    site.write("a/top.xml", &index("a", "changelist", &below));
    site.write("a/below.xml", &index("a", "changelist", &[]));
    let mut story = with_hold(watch, site, "10m", "");
    let text = component("a", "changelist", "a/below.xml", "1");
    story.site.write(PART, &text);
    story.stays_silent();
    let members = [PART.to_owned()];
    story
        .site
        .write("a/below.xml", &index("a", "changelist", &members));
    let heard = story.hears(&["created changelist a/part.xml"]);
    assert!(names_index(&heard, "a/below.xml"));
    story.ends();
}

//! Malformed indexes, and components that have two, or none.

use rstest::rstest;

use crate::indexes::{INDEX, indexed, part, with_hold, write_index, write_part};
use crate::story::Story;
use crate::story::Watch::{self, Inotify, Poll};
use crate::support::documents::{Site, URL, component, index, list};
use crate::support::hub::Request;

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

/// A document that says of no other what it is to it.
fn without_up(text: &str) -> String {
    text.replace("rel=\"up\"", "rel=\"related\"")
}

#[rstest]
fn a_change_of_the_index_alone_announces_nothing(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::begin(watch, indexed(2), "");
    let members = [part(0), part(1)];
    let dated = index("a", "resourcelist", &members)
        .replace("</loc>", "</loc><lastmod>2026-11-01</lastmod>");
    story.site.write(INDEX, &dated);
    story.stays_silent();
    write_index(&story.site, 2);
    story.ends_silent();
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
fn an_index_brings_its_components_into_its_set(#[values(Inotify, Poll)] watch: Watch) {
    let site = Site::new();
    site.write("a/index.xml", &index("a", "changelist", &[PART.to_owned()]));
    site.write(PART, &without_up(&list("a", "changelist", "1")));
    let mut story = Story::begin(watch, site, "");
    story
        .site
        .write(PART, &without_up(&list("a", "changelist", "2")));
    assert!(names_index(&story.hears(&[UPDATED]), "a/index.xml"));
    story.ends();
}

#[rstest]
fn a_component_whose_index_is_in_another_set_is_announced_in_both(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let site = Site::new();
    site.add_set("b");
    site.write("b/index.xml", &index("b", "changelist", &[PART.to_owned()]));
    site.write(PART, &component("a", "changelist", "b/index.xml", "1"));
    let story = Story::begin(watch, site, "");
    let changed = component("a", "changelist", "b/index.xml", "2");
    story.site.write(PART, &changed);
    story.ends_hearing(&[UPDATED, UPDATED]);
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

#[rstest]
fn an_index_that_is_deleted_and_written_anew_is_not_announced(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let mut story = Story::begin(watch, indexed(1), "deletion_grace = \"10m\"");
    story.site.remove(INDEX);
    story.stays_silent();
    write_index(&story.site, 1);
    story.stays_silent();
    story.site.remove(INDEX);
    story.stays_silent();
    write_part(&story.site, 1, "1");
    write_index(&story.site, 2);
    story.ends_hearing(&["created resourcelist a/part-1.xml"]);
}

#[rstest]
fn a_component_that_goes_is_announced_if_asked_for(#[values(Inotify, Poll)] watch: Watch) {
    let story = Story::begin(watch, indexed(2), "announce_all_deletions = true");
    write_index(&story.site, 1);
    story.site.remove(&part(1));
    story.ends_hearing(&["deleted resourcelist a/part-1.xml"]);
}

/// R5: what is written as a list is one, and no index to those that call it theirs.
#[rstest]
fn an_index_that_is_written_as_a_list_is_announced_as_one(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = with_hold(watch, Site::new(), "200ms", "");
    write_part(&story.site, 0, "1");
    let as_list = list("a", "resourcelist", "1").replace("a/resource-1", &part(0));
    story.site.write(INDEX, &as_list);
    let heard = story.hears(&[
        "created resourcelist a/part-0.xml",
        "updated resourcelist a/resourcelist.xml",
    ]);
    assert!(!names_index(&heard, INDEX));
    story.ends();
}

/// As the reference library's command leaves them when a list shrinks.
#[rstest]
fn parts_that_stay_behind_are_announced_when_they_change(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = with_hold(watch, indexed(2), "200ms", "");
    story.site.write(INDEX, &list("a", "resourcelist", "2"));
    story.hears(&["created resourcelist a/resourcelist.xml"]);
    write_part(&story.site, 0, "2");
    let heard = story.hears(&["updated resourcelist a/part-0.xml"]);
    assert!(!names_index(&heard, INDEX));
    story.ends();
}

#[rstest]
fn a_component_whose_index_never_comes_is_announced_once_and_logged_once(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let mut story = with_hold(watch, Site::new(), "200ms", "");
    let text = component("a", "changelist", "a/never.xml", "1");
    story.site.write(PART, &text);
    story.hears(&["created changelist a/part.xml"]);
    // R17: a hold expires once for each document.
    let text = component("a", "changelist", "a/never.xml", "2");
    story.site.write(PART, &text);
    story.hears(&[UPDATED]);
    assert_eq!(story.stop_and_count("still not listed anywhere"), 1);
}

//! Documents that are replaced by something else, and files that are almost documents.

use std::fs;
use std::process::Command;

use rstest::rstest;

use crate::oddities::{PATH, SIBLING, UPDATED};
use crate::story::Story;
use crate::story::Watch::{self, Inotify, Poll};
use crate::support::documents::{Site, component, description, index};
use crate::support::needs;

const PLAIN: &str = "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"/>";

#[rstest]
fn a_document_that_becomes_a_plain_sitemap_has_ended(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.site.write(PATH, PLAIN);
    story.stays_silent();
    story.update(PATH, "1");
    story.ends_hearing(&["created changelist a/changelist.xml"]);
}

#[rstest]
fn a_directory_in_a_documents_place_is_gone_again_without_a_trace(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let mut story = Story::begin(watch, Site::new(), "deletion_grace = \"10m\"");
    for (version, heard) in [("1", &[][..]), ("2", &[UPDATED])] {
        story.site.remove(PATH);
        fs::create_dir(story.site.path(PATH)).unwrap();
        fs::write(story.site.path(PATH).join("within.xml"), "<other/>").unwrap();
        story.stays_silent();
        fs::remove_dir_all(story.site.path(PATH)).unwrap();
        story.update(PATH, version);
        story.hears(heard);
    }
    story.ends();
}

/// As DSpace writes an index of Change Lists.
#[rstest]
fn a_changelistindex_is_an_index(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.site.write(
        "a/part.xml",
        &component("a", "changelist", "a/index.xml", "1"),
    );
    story.stays_silent();
    let text = index("a", "changelistindex", &["a/part.xml".to_owned()]);
    story.site.write("a/index.xml", &text);
    story.ends_hearing(&["created changelist a/part.xml"]);
}

#[rstest]
fn a_directory_where_the_source_description_should_be_is_none(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let site = Site::empty();
    site.add_set("a");
    let well_known = site.path(".well-known/resourcesync");
    fs::create_dir_all(&well_known).unwrap();
    fs::write(well_known.join("index.html"), "<html/>").unwrap();
    let mut story = Story::begin(watch, site, "");
    story.update(PATH, "2");
    story.hears(&[UPDATED]);
    fs::remove_dir_all(&well_known).unwrap();
    story
        .site
        .write(".well-known/resourcesync", &description(&["a"]));
    const CREATED: &str = "created description .well-known/resourcesync";
    story.ends_hearing(&[CREATED, CREATED]);
}

#[rstest]
fn a_device_is_left_alone(#[values(Inotify, Poll)] watch: Watch) {
    let story = Story::start(watch);
    let made = Command::new("mknod")
        .arg(story.site.path("a/zero.xml"))
        .args(["c", "1", "5"])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        needs::skip(
            "devices cannot be made here: this takes root, and no container",
            "",
        );
        return;
    }
    story.update("a/resourcelist.xml", "2");
    story.ends_hearing(&[SIBLING]);
}

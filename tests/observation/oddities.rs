//! Files that cannot or should not be read, and unusual names.

mod becoming;
mod findings;
mod large;
mod names;
pub mod permissions;

use std::fs;

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, list};

const PATH: &str = "a/changelist.xml";
const UPDATED: &str = "updated changelist a/changelist.xml";
const SIBLING: &str = "updated resourcelist a/resourcelist.xml";

/// Files that a broken generator may leave in place of a document.
fn broken(how: &str) -> Vec<u8> {
    let good = list("a", "changelist", "broken");
    let text = match how {
        "an external entity" => {
            let doctype = "?>\n<!DOCTYPE urlset [<!ENTITY a SYSTEM \"file:///dev/zero\">]>\n";
            good.replace("?>\n", doctype)
                .replace("resource-broken", "&a;")
        }
        "nothing" => String::new(),
        "half of it" => good[..good.len() / 2].to_owned(),
        _ => unreachable!("{how}"),
    };
    text.into_bytes()
}

#[rstest]
fn what_is_broken_is_not_announced_and_what_is_good_again_is(
    #[values(Inotify, Notify, Poll)] watch: Watch,
    #[values("an external entity", "nothing", "half of it")] how: &str,
) {
    let mut story = Story::start(watch);
    fs::write(story.site.path(PATH), broken(how)).unwrap();
    story.stays_silent();
    story.update(PATH, "2");
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn another_encoding_that_is_declared_is_read(#[values(Inotify, Poll)] watch: Watch) {
    let story = Story::start(watch);
    let text = list("a", "changelist", "\u{e9}").replace("UTF-8", "UTF-16");
    let units = [0xfeff].into_iter().chain(text.encode_utf16());
    let bytes: Vec<u8> = units.flat_map(u16::to_le_bytes).collect();
    fs::write(story.site.path(PATH), bytes).unwrap();
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn what_is_not_of_resourcesync_is_not_announced(
    #[values(Inotify, Poll)] watch: Watch,
    #[values("framework-notification", "change-notification", "unheard-of")] capability: &str,
) {
    let mut story = Story::over(watch, Site::new(), "");
    // Nothing is silent here for being held.
    let window = "[window]\nhold = \"0s\"\n";
    story.edit("[window]\n", window);
    story.resume();
    for content in ["1", "2"] {
        story
            .site
            .write("a/other.xml", &list("a", capability, content));
        let plain = format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"><!--{content}--></urlset>"
        );
        story.site.write("sitemap.xml", &plain);
        for name in [
            "a/.new.xml",
            "a/new.xml~",
            "a/new.xml.tmp",
            "a/.new.xml.Xa81bc",
        ] {
            fs::write(story.site.path(name), list("a", "changelist", content)).unwrap();
        }
        story.stays_silent();
    }
    story.ends();
}

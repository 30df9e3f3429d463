//! Files that cannot or should not be read, and unusual names.

mod becoming;
mod findings;
mod large;
mod names;
pub mod permissions;

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;

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
    let doctype =
        |subset: &str| good.replace("?>\n", &format!("?>\n<!DOCTYPE urlset [{subset}]>\n"));
    let text = match how {
        "an entity bomb" => {
            doctype("<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;&a;&a;\"><!ENTITY c \"&b;&b;&b;&b;\">")
                .replace("resource-broken", "&c;")
        }
        "an external entity" => {
            doctype("<!ENTITY a SYSTEM \"file:///dev/zero\">").replace("resource-broken", "&a;")
        }
        "two roots" => format!("{good}<urlset/>"),
        "trailing text" => format!("{good}and more"),
        "zeros" => good.replace("</url>", "\0\0\0\0"),
        "nothing" => String::new(),
        "half of it" => good[..good.len() / 2].to_owned(),
        _ => unreachable!("{how}"),
    };
    text.into_bytes()
}

#[rstest]
fn what_is_broken_is_not_announced_and_what_is_good_again_is(
    #[values(Inotify, Notify, Poll)] watch: Watch,
    #[values(
        "an entity bomb",
        "an external entity",
        "two roots",
        "trailing text",
        "zeros",
        "nothing",
        "half of it"
    )]
    how: &str,
) {
    let mut story = Story::start(watch);
    fs::write(story.site.path(PATH), broken(how)).unwrap();
    story.stays_silent();
    story.update(PATH, "2");
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn every_encoding_that_is_declared_is_read(
    #[values(Inotify, Poll)] watch: Watch,
    #[values("UTF-16LE", "UTF-16BE", "UTF-8", "ISO-8859-1")] encoding: &str,
) {
    let story = Story::start(watch);
    let text = list("a", "changelist", "\u{e9}")
        .replace("UTF-8", encoding.trim_end_matches(['L', 'B', 'E']));
    let bytes: Vec<u8> = match encoding {
        "UTF-16LE" => [0xfeff]
            .into_iter()
            .chain(text.encode_utf16())
            .flat_map(u16::to_le_bytes)
            .collect(),
        "UTF-16BE" => [0xfeff]
            .into_iter()
            .chain(text.encode_utf16())
            .flat_map(u16::to_be_bytes)
            .collect(),
        "UTF-8" => format!("\u{feff}{text}").into_bytes(),
        _ => text
            .chars()
            .map(|letter| u8::try_from(letter).unwrap())
            .collect(),
    };
    fs::write(story.site.path(PATH), bytes).unwrap();
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn what_is_no_regular_file_keeps_nobody_waiting(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    let pipe = story.site.path("a/pipe.xml");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let _socket = UnixListener::bind(story.site.path("a/socket.xml")).unwrap();
    fs::create_dir(story.site.path("a/directory.xml")).unwrap();
    story.update("a/resourcelist.xml", "2");
    story.hears(&[SIBLING]);
    story.update(PATH, "2");
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
    story.setup.config = story.setup.config.replace("[window]\n", window);
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

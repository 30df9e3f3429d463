//! A document of fifty megabytes is announced like others.

use std::fmt::Write;

use rstest::rstest;

use crate::oddities::SIBLING;
use crate::story::Story;
use crate::story::Watch::{self, Inotify, Poll};
use crate::support::documents::{Site, list};

fn large(content: &str) -> String {
    let mut entries = String::with_capacity(51 << 20);
    let mut number = 0;
    while entries.len() < 50 << 20 {
        number += 1;
        let name = format!("{content}-{number}").repeat(8);
        let entry = "<url><loc>https://source.example/a/";
        writeln!(entries, "{entry}{name}</loc></url>").unwrap();
    }
    list("a", "resourcelist", content).replace("</urlset>", &format!("{entries}</urlset>"))
}

#[rstest]
fn fifty_megabytes_are_announced_once(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::alone(watch, Site::new(), "");
    story.resume();
    story.site.write("a/resourcelist.xml", &large("2"));
    story.hears(&[SIBLING]);
    let text = large("3");
    story.ends_hearing_after(&[SIBLING], |site| {
        site.write_in_place("a/resourcelist.xml", &text)
    });
}

//! Files that are broken, in the wrong place, very large, or may not be read.

pub mod permissions;

use std::fmt::Write;

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::daemon::{assert_contains, count_of, exit_with};
use crate::support::documents::{Site, component, list};

const PATH: &str = "a/changelist.xml";
const UPDATED: &str = "updated changelist a/changelist.xml";
const SIBLING: &str = "updated resourcelist a/resourcelist.xml";

#[rstest]
fn what_is_broken_is_not_announced_and_what_is_good_again_is(
    #[values(Inotify, Notify, Poll)] watch: Watch,
) {
    let good = list("a", "changelist", "broken");
    let doctype = "?>\n<!DOCTYPE urlset [<!ENTITY a SYSTEM \"file:///dev/zero\">]>\n";
    let entity = good.replace("?>\n", doctype);
    let entity = entity.replace("resource-broken", "&a;");
    let mut story = Story::start(watch);
    for (version, broken) in (2..).zip([&entity, "", &good[..good.len() / 2]]) {
        story.site.write_in_place(PATH, broken);
        story.stays_silent();
        story.update(PATH, &version.to_string());
        story.hears(&[UPDATED]);
    }
    story.ends();
}

/// Three files that nobody can be told of rightly.
fn write_oddities(site: &Site, content: &str) {
    let orphan = list("a", "changelist", content).replace("rel=\"up\"", "rel=\"related\"");
    site.write("orphan.xml", &orphan);
    let misled = component("a", "changelist", "a/resourcelist.xml", content);
    site.write("a/misled.xml", &misled);
    let foreign = list("a", "change-notification", content);
    site.write("a/foreign.xml", &foreign);
}

const SAID: [&str; 3] = [
    "orphan.xml (changelist) belongs to no set of resources",
    "a/misled.xml names https://source.example/a/resourcelist.xml as its index, which is not an index",
    "a/foreign.xml has the capability \\\"change-notification\\\", which is none that is announced",
];

#[test]
fn findings_are_logged_once_and_checked() {
    let mut story = Story::over(Inotify, Site::new(), "broken_after = \"100ms\"");
    story.edit("[window]\n", "[window]\nhold = \"0s\"\n");
    story.resume();
    for (content, change) in [("1", "created"), ("2", "updated")] {
        write_oddities(&story.site, content);
        story.hears(&[format!("{change} changelist a/misled.xml")]);
        let mut left = if content == "1" {
            SAID.to_vec()
        } else {
            Vec::new()
        };
        while !left.is_empty() {
            let entry = story.await_log(".xml").to_string();
            left.retain(|said| !entry.contains(said));
        }
    }
    let log = story.stop_and_tell();
    let (out, _) = exit_with(&mut story.setup.command("check"), 1);
    for said in SAID {
        assert_eq!(count_of(&log, said), 1, "{said}: {log:#?}");
        assert_contains(&out, &said.replace('\\', ""));
    }
}

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

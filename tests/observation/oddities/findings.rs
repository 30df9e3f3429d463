//! Problems in a tree are logged once, and reported by each command.

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Poll};
use crate::support::daemon::output;
use crate::support::documents::{Site, component, list};

/// Three files that nobody can be told of rightly, and words of what is said of each.
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

#[rstest]
fn findings_are_logged_once(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::over(watch, Site::new(), "broken_after = \"100ms\"");
    let window = "[window]\nhold = \"0s\"\n";
    story.edit("[window]\n", window);
    story.launch();
    story.await_log("ready");
    write_oddities(&story.site, "1");
    story.hears(&["created changelist a/misled.xml"]);
    let mut left = SAID.to_vec();
    while !left.is_empty() {
        let entry = story.await_log(".xml").to_string();
        left.retain(|said| !entry.contains(said));
    }
    write_oddities(&story.site, "2");
    story.hears(&["updated changelist a/misled.xml"]);
    let log = story.stop_and_tell();
    for said in SAID {
        let times = log.iter().filter(|line| line.contains(said)).count();
        assert_eq!(times, 1, "{said}: {log:#?}");
    }
    let (code, out, _) = output(&mut story.setup.command("check"));
    assert_eq!(code, Some(1));
    for said in SAID {
        assert!(out.contains(&said.replace('\\', "")), "{said}: {out}");
    }
}

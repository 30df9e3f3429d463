//! Changes while no daemon runs.

mod killed;
mod starting;

use std::fs;
use std::time::Duration;

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, capability_list, list};
use crate::support::hub::{FakeHub, Manner};
use crate::support::ports;

const UPDATED: &str = "updated changelist a/changelist.xml";
const LISTED: &str = "updated capabilitylist a/capabilitylist.xml";

#[rstest]
fn changes_while_it_is_down(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let site = Site::new();
    site.add_set("b");
    let mut story = Story::begin(watch, site, "");
    story.stop();
    let site = &story.site;
    site.write_list("a", "changelist", "22");
    site.write_list("a", "changedump", "1");
    let all = ["resourcelist", "changelist", "changedump"];
    site.write("a/capabilitylist.xml", &capability_list("a", &all));
    site.remove("a/resourcelist.xml");
    fs::remove_dir_all(site.path("b")).unwrap();
    story.resume();
    story.ends_hearing(&[
        UPDATED,
        LISTED,
        "created changedump a/changedump.xml",
        "deleted capabilitylist b/capabilitylist.xml",
    ]);
}

#[rstest]
fn renamed_while_it_is_down(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.stop();
    let site = &story.site;
    fs::rename(site.path("a/changelist.xml"), site.path("a/moved.xml")).unwrap();
    let text = capability_list("a", &["resourcelist", "changelist"]);
    let text = text.replace("a/changelist.xml", "a/moved.xml");
    site.write("a/capabilitylist.xml", &text);
    story.resume();
    story.hears(&[LISTED, "created changelist a/moved.xml"]);
    story
        .site
        .write("a/moved.xml", &list("a", "changelist", "2"));
    story.ends_hearing(&["updated changelist a/moved.xml"]);
}

#[rstest]
fn a_change_of_the_same_size_and_time_while_it_is_down(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.stop();
    let path = story.site.path("a/changelist.xml");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, list("a", "changelist", "2")).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(modified).unwrap();
    story.resume();
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn half_written_when_it_starts(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.stop();
    let text = list("a", "changelist", "2");
    let half = &text[..text.len() / 2];
    story.site.write_in_place("a/changelist.xml", half);
    story.resume();
    story.stays_silent();
    story.ends_hearing_after(&[UPDATED], |site| {
        site.write_in_place("a/changelist.xml", &text)
    });
}

#[rstest]
fn a_missing_state_file_is_a_baseline(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.stop();
    story.update("a/changelist.xml", "2");
    std::thread::sleep(Duration::from_millis(10)); // stall: the file is older than the daemon, for R13
    let state = story.state_file();
    fs::remove_file(&state).unwrap();
    story.resume();
    story.ends_silent();
}

#[rstest]
fn started_while_the_hub_is_out_of_order(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.stop();
    story.update("a/changelist.xml", "2");
    story.hub.behave(Manner::CutOff);
    story.resume();
    let failed = story.hub.request();
    assert_eq!(failed.changes(), [UPDATED]);
    story.hub.behave(Manner::Accept);
    let accepted = story.hub.notification();
    assert_eq!(accepted.body, failed.body, "repeated, but not unchanged");
    story.ends_silent();
}

/// R13: a configuration announces nothing; what it excludes is forgotten, not deleted.
#[rstest]
fn excluded_between_two_runs(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.stop();
    let keys = "deletion_grace = \"0s\"\nexclude = [\"a/changelist.xml\"]";
    story.edit("deletion_grace = \"0s\"", keys);
    story.resume();
    story.update("a/changelist.xml", "2");
    story.ends_silent();
}

/// R13: what is included from now on was there before.
#[rstest]
fn included_between_two_runs(
    #[values(Inotify, Poll)] watch: Watch,
    #[values(true, false)] is_excluded_first: bool,
) {
    let (before, after) = match is_excluded_first {
        true => ("exclude = [\"a/changelist.xml\"]", ""),
        false => (
            "",
            "include = [\"**/*.xml\", \"**/*.list\", \"**/.well-known/resourcesync\"]",
        ),
    };
    let path = match is_excluded_first {
        true => "a/changelist.xml",
        false => "a/changedump.list",
    };
    let site = Site::new();
    let all = ["resourcelist", "changelist", "changedump"];
    let listed = capability_list("a", &all).replace("changedump.xml", "changedump.list");
    site.write("a/capabilitylist.xml", &listed);
    site.write("a/changedump.list", &list("a", "changedump", "1"));
    let mut story = Story::begin(watch, site, &format!("# keys\n{before}"));
    story.stays_silent();
    story.stop();
    let (of_before, of_after) = (format!("# keys\n{before}"), format!("# keys\n{after}"));
    story.edit(&of_before, &of_after);
    story.resume();
    story.stays_silent();
    let capability = path[2..].split('.').next().unwrap();
    story.site.write(path, &list("a", capability, "2"));
    story.ends_hearing(&[&format!("updated {capability} {path}")]);
}

#[rstest]
fn started_while_nobody_listens_where_the_hub_was(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::over(watch, Site::new(), "");
    let address = ports::reserved();
    let url = format!("http://{address}/publish");
    story.edit(&story.hub.url(), &url);
    story.resume();
    story.update("a/changelist.xml", "2");
    story.await_log("Connection refused");
    story.stop();
    story.resume();
    story.await_log("Connection refused");
    story.hub = FakeHub::start_at(address);
    story.ends_hearing(&[UPDATED]);
}

/// Pending changes are lost with the state file: a baseline, and nothing from before.
#[rstest]
fn the_state_file_is_lost_while_a_notification_is_in_flight(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.hub.behave(Manner::Refuse(503));
    story.update("a/changelist.xml", "2");
    assert_eq!(story.hub.request().changes(), [UPDATED]);
    story.stop();
    let _ = story.hub.heard();
    fs::remove_file(story.state_file()).unwrap();
    story.hub.behave(Manner::Accept);
    story.resume();
    story.stays_silent();
    story.update("a/changelist.xml", "3");
    story.ends_hearing(&[UPDATED]);
}

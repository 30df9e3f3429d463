//! What happens while no daemon runs, or while one is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use rstest::rstest;

use crate::documents::{Site, capability_list, list};
use crate::hub::Manner;
use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};

const UPDATED: &str = "updated changelist a/changelist.xml";
const LISTED: &str = "updated capabilitylist a/capabilitylist.xml";

#[rstest]
fn changes_while_it_is_down(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.stop();
    let site = &story.site;
    site.write("a/changelist.xml", &list("a", "changelist", "22"));
    site.write("a/changedump.xml", &list("a", "changedump", "1"));
    let all = ["resourcelist", "changelist", "changedump"];
    site.write("a/capabilitylist.xml", &capability_list("a", &all));
    site.remove("a/resourcelist.xml");
    story.resume();
    story.hears(&[UPDATED, LISTED, "created changedump a/changedump.xml"]);
    story.ends();
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
    story.hears(&[UPDATED]);
    story.ends();
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
    let moment = Instant::now();
    story.site.write_in_place("a/changelist.xml", &text);
    story.hears_after(moment, &[UPDATED]);
    story.ends();
}

#[rstest]
fn a_missing_or_empty_state_file_is_a_baseline(
    #[values(Inotify, Poll)] watch: Watch,
    #[values(true, false)] is_missing: bool,
) {
    let mut story = Story::start(watch);
    story.stop();
    let changed = list("a", "changelist", "2");
    story.site.write("a/changelist.xml", &changed);
    std::thread::sleep(Duration::from_millis(10)); // stall: the file is older than the daemon, for R13
    let state = story.setup.state.path().join("state/state.sqlite");
    match is_missing {
        true => fs::remove_file(&state).unwrap(),
        false => fs::write(&state, "").unwrap(),
    }
    story.resume();
    story.stays_silent();
    story.ends();
}

/// A notification that was accepted and not recorded is heard again, byte for byte (R22).
#[rstest]
fn killed_after_any_notification_of_a_burst(
    #[values(Inotify, Notify, Poll)] watch: Watch,
    #[values(1, 2, 4)] heard_before: usize,
) {
    let site = Site::new();
    let sets: Vec<String> = (0..8).map(|n| format!("s{n}")).collect();
    for set in &sets {
        site.add_set(set);
    }
    let mut story = Story::over(watch, site, "");
    story.resume();
    for set in &sets {
        let text = list(set, "changelist", "2");
        story.site.write(&format!("{set}/changelist.xml"), &text);
    }
    let mut requests: Vec<_> = (0..heard_before).map(|_| story.hub.request()).collect();
    story.kill();
    story.resume();
    let told = |set: &String| format!("updated changelist {set}/changelist.xml");
    let wanted: BTreeSet<String> = sets.iter().map(told).collect();
    let mut heard: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    loop {
        for request in requests.drain(..) {
            for change in request.changes() {
                assert!(wanted.contains(&change), "{change} was invented");
                let before = heard.entry(change).or_insert(request.body.clone());
                assert_eq!(*before, request.body, "repeated, but not unchanged");
            }
        }
        if heard.len() == wanted.len() {
            break;
        }
        requests.push(story.hub.request());
    }
    story.stop();
    for request in story.hub.heard() {
        let is_known = |change: &String| heard.get(change) == Some(&request.body);
        assert!(request.changes().iter().all(is_known));
    }
    story.resume();
    story.ends();
}

#[rstest]
fn started_while_the_hub_is_out_of_order(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.stop();
    let changed = list("a", "changelist", "2");
    story.site.write("a/changelist.xml", &changed);
    story.hub.behave(Manner::CutOff);
    story.resume();
    let failed = story.hub.request();
    assert_eq!(failed.changes(), [UPDATED]);
    story.hub.behave(Manner::Accept);
    let accepted = story.hub.notification();
    assert_eq!(accepted.body, failed.body, "repeated, but not unchanged");
    story.stays_silent();
    story.ends();
}

/// R13: a configuration announces nothing; what it excludes is forgotten, not deleted.
#[rstest]
fn excluded_between_two_runs(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.stop();
    let keys = "deletion_grace = \"0s\"\nexclude = [\"a/changelist.xml\"]";
    story.setup.config = story.setup.config.replace("deletion_grace = \"0s\"", keys);
    story.resume();
    let changed = list("a", "changelist", "2");
    story.site.write("a/changelist.xml", &changed);
    story.stays_silent();
    story.ends();
}

/// R13: what changed since the process began is a change, although nothing was known yet.
#[rstest]
fn changed_during_the_first_sweep(#[values(Inotify, Poll)] watch: Watch) {
    let site = Site::new();
    for n in 0..2_000 {
        let below = site.path(&format!("b/{}/{n}", n % 20));
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join("other.xml"), "<other/>").unwrap();
    }
    let mut story = Story::over(watch, site, "");
    story.launch();
    let changed = list("a", "changelist", "2");
    story.site.write("a/changelist.xml", &changed);
    story.daemon().await_log("ready");
    story.hears(&[UPDATED]);
    story.ends();
}

//! Changes while no daemon runs, and while one starts.

use std::fs;
use std::path::Path;
use std::time::Duration;

use announce::state::open::StateFile;
use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, capability_list, list, replace};
use crate::support::until;

const UPDATED: &str = "updated changelist a/changelist.xml";
const LISTED: &str = "updated capabilitylist a/capabilitylist.xml";
const SETS: usize = 40;

#[rstest]
fn changes_while_it_is_down(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let site = Site::new();
    for set in ["b", "c"] {
        site.add_set(set);
    }
    let mut story = Story::begin(watch, site, "");
    story.stop();
    let site = &story.site;
    site.write_list("a", "changelist", "22");
    site.write_list("a", "changedump", "1");
    let all = ["resourcelist", "changelist", "changedump"];
    site.write("a/capabilitylist.xml", &capability_list("a", &all));
    site.remove("a/resourcelist.xml");
    fs::remove_dir_all(site.path("b")).unwrap();
    // Of the same size and time; and under another name.
    let path = site.path("c/resourcelist.xml");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, list("c", "resourcelist", "2")).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(modified).unwrap();
    fs::rename(site.path("c/changelist.xml"), site.path("c/moved.xml")).unwrap();
    let text = capability_list("c", &["resourcelist", "changelist"]);
    let text = text.replace("c/changelist.xml", "c/moved.xml");
    site.write("c/capabilitylist.xml", &text);
    story.resume();
    story.ends_hearing(&[
        UPDATED,
        LISTED,
        "created changedump a/changedump.xml",
        "deleted capabilitylist b/capabilitylist.xml",
        "updated capabilitylist c/capabilitylist.xml",
        "updated resourcelist c/resourcelist.xml",
        "created changelist c/moved.xml",
    ]);
}

/// Files of SQLite beside the state file: it restores `-shm`, and without `-wal` the state is an older one,
/// from which the same changes are found again.
#[rstest]
fn what_lies_beside_the_state_file_is_lost(#[values("shm", "wal", "shm and wal")] what: &str) {
    let mut story = Story::start(Inotify);
    story.stop(); // the baseline is in the state file itself
    story.resume();
    story.update("a/changelist.xml", "2");
    assert_eq!(story.hub.request().changes(), [UPDATED]);
    if what == "shm" {
        story.stays_silent(); // the answer is saved before the marker is sent
    }
    story.kill();
    for suffix in what.split(" and ") {
        let name = format!("state.sqlite-{suffix}");
        fs::remove_file(story.state_file().with_file_name(name)).unwrap();
    }
    story.update("a/resourcelist.xml", "2");
    story.resume();
    let mut wanted = vec!["updated resourcelist a/resourcelist.xml"];
    if what != "shm" {
        wanted.push(UPDATED);
    }
    story.ends_hearing(&wanted);
}

/// A site of many sets and 20,000 other files, which take a while to sweep.
fn large_site() -> Site {
    let site = Site::new();
    for set in 0..SETS {
        site.add_set(&format!("s{set}"));
    }
    for n in 0..20_000 {
        let below = site.path(&format!("b/{}", n % 200));
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join(format!("{n}.xml")), "<other/>").unwrap();
    }
    site
}

/// Changes one document after the other.
fn change_all(root: &Path, content: &str) {
    for set in (0..SETS).map(|n| format!("s{n}")) {
        let path = root.join(&set).join("changelist.xml");
        replace(&path, &list(&set, "changelist", content));
        std::thread::sleep(Duration::from_millis(20)); // stall: the changes are spread over the sweep
    }
}

/// R13: those since the process began are announced.
#[rstest]
fn changed_during_the_first_sweep_and_that_after_a_restart(#[values(Inotify, Poll)] watch: Watch) {
    let told = |n| format!("updated changelist s{n}/changelist.xml");
    let wanted: Vec<String> = (0..SETS).map(told).collect();
    let mut story = Story::over(watch, large_site(), "");
    for content in ["2", "3"] {
        story.launch();
        change_all(story.site.root.path(), content);
        story.hears(&wanted);
        story.kill();
    }
    story.resume();
    story.ends();
}

/// The daemon has begun, and waits for its state file, which somebody has locked.
#[rstest]
fn changed_before_any_tree_is_watched(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::over(watch, Site::new(), "");
    let state = story.setup.state.path().join("state");
    fs::create_dir(&state).unwrap();
    // Without a row, as before a first start.
    let (file, locked) = StateFile::open(&state).unwrap();
    drop(file);
    // It is there again once the daemon has begun.
    fs::remove_file(state.join("lock")).unwrap();
    locked.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let document = story.site.path("a/changelist.xml");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            until(|| state.join("lock").exists());
            std::thread::sleep(Duration::from_millis(20)); // stall: the clock of files goes in ticks
            replace(&document, &list("a", "changelist", "2"));
            locked.execute_batch("ROLLBACK").unwrap();
        });
        story.resume();
    });
    story.ends_hearing(&[UPDATED]);
}

//! Changes while the daemon starts: those since the process began are announced (R13).

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use announce::state::open::StateFile;
use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Poll};
use crate::support::DEADLINE;
use crate::support::documents::{Site, list, replace};

const UPDATED: &str = "updated changelist a/changelist.xml";
const SETS: usize = 40;

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
fn change_all(root: &Path) {
    for set in (0..SETS).map(|n| format!("s{n}")) {
        let path = root.join(&set).join("changelist.xml");
        replace(&path, &list(&set, "changelist", "2"));
        std::thread::sleep(Duration::from_millis(20)); // stall: the changes are spread over the sweep
    }
}

fn ends_hearing_all(story: Story) {
    let told = |n| format!("updated changelist s{n}/changelist.xml");
    let wanted: Vec<String> = (0..SETS).map(told).collect();
    story.ends_hearing(&wanted);
}

#[rstest]
fn changed_during_the_first_sweep(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::over(watch, large_site(), "");
    story.launch();
    change_all(story.site.root.path());
    ends_hearing_all(story);
}

#[rstest]
fn changed_during_the_sweep_after_a_restart(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::begin(watch, large_site(), "");
    story.kill();
    story.launch();
    change_all(story.site.root.path());
    ends_hearing_all(story);
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
            let deadline = Instant::now() + DEADLINE;
            while !state.join("lock").exists() {
                assert!(Instant::now() < deadline, "it did not begin");
                std::thread::sleep(Duration::from_millis(1)); // polls for the lock file, until the deadline
            }
            std::thread::sleep(Duration::from_millis(20)); // stall: the clock of files goes in ticks
            replace(&document, &list("a", "changelist", "2"));
            locked.execute_batch("ROLLBACK").unwrap();
        });
        story.resume();
    });
    story.ends_hearing(&[UPDATED]);
}

/// A service manager may stop it before it is ready.
#[rstest]
fn stopped_as_soon_as_it_listens(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::over(watch, Site::new(), "");
    for _ in 0..10 {
        story.launch();
        story.stop();
    }
    story.resume();
    story.ends_silent();
}

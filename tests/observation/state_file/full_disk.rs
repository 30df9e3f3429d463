//! A full disk: nothing is sent that is not saved, and nothing is lost.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::state_file::refuses;
use crate::story::Story;
use crate::story::Watch::Inotify;
use crate::support::DEADLINE;
use crate::support::documents::Site;
use crate::support::namespace::was_run_again;
use crate::tools::run;

const UPDATED: [&str; 2] = [
    "updated changelist a/changelist.xml",
    "updated resourcelist a/resourcelist.xml",
];
const NAMESPACE: &str = "unshare --map-root-user --mount";

/// A story whose state lies on a small disk of its own.
fn small_disk() -> (Story, PathBuf) {
    let story = Story::over(Inotify, Site::new(), "");
    let directory = story.setup.state.path().join("state");
    fs::create_dir(&directory).unwrap();
    run(
        "mount -t tmpfs -o size=4m none $2",
        &[Path::new("/"), &directory],
    );
    (story, directory.join("filler"))
}

/// Writes until nothing more fits.
fn fill(filler: &Path) {
    let mut file = File::create(filler).unwrap();
    for size in [1 << 16, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

fn change(story: &Story) {
    for capability in ["changelist", "resourcelist"] {
        story.site.write_list("a", capability, "2");
    }
}

/// The log line comes within a step of the event loop, readiness changes at its end.
pub(super) fn await_readiness(story: &Story, status: &str) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let (head, body) = story.daemon().get_admin("/readyz");
        if head.starts_with(&format!("HTTP/1.1 {status}")) {
            return;
        }
        assert!(Instant::now() < deadline, "{head}\n{body}");
        std::thread::sleep(Duration::from_millis(5)); // polls until the deadline
    }
}

#[test]
fn what_changed_while_the_disk_was_full_is_announced_once_it_is_not() {
    if was_run_again(NAMESPACE) {
        return;
    }
    let (mut story, filler) = small_disk();
    story.resume();
    story.stays_silent();
    fill(&filler);
    change(&story);
    story.await_log("cannot save the state; nothing is sent until it can be saved");
    await_readiness(&story, "503");
    std::thread::sleep(Duration::from_millis(1_500)); // stall: saving is tried again after a second
    assert!(story.hub.heard().is_empty());
    fs::remove_file(&filler).unwrap();
    story.await_log("the state can be saved again");
    story.hears(&UPDATED);
    await_readiness(&story, "200");
    story.ends();
}

#[test]
fn a_disk_that_is_full_at_the_start_is_an_error_that_names_the_state() {
    if was_run_again(NAMESPACE) {
        return;
    }
    let (mut story, filler) = small_disk();
    let directory = filler.parent().unwrap().to_str().unwrap();
    fill(&filler);
    refuses(&story, &[directory]);
    fs::remove_file(&filler).unwrap();
    story.resume();
    story.stays_silent();
    story.stop();
    fill(&filler);
    change(&story);
    refuses(&story, &[directory]);
    fs::remove_file(&filler).unwrap();
    story.resume();
    story.ends_hearing(&UPDATED);
}

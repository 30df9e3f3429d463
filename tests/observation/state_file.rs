//! An unusable state file or a full disk: an error that names the file and the remedy, nothing is announced that is not
//! saved, and nothing is lost.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use rstest::rstest;
use rusqlite::Connection;

use crate::oddities::was_run_without_power;
use crate::story::Watch::Inotify;
use crate::story::{Story, run};
use crate::support::DEADLINE;
use crate::support::daemon::{assert_contains, output};
use crate::support::documents::Site;
use crate::support::namespace::was_run_again;
use crate::support::until;

const NAMESPACE: &str = "unshare --map-root-user --mount";

/// Even root cannot make a directory below a file; and a daemon should run without root's power.
#[test]
fn a_state_directory_that_cannot_be_written_is_refused_with_its_name() {
    if was_run_without_power() {
        return;
    }
    let story = Story::over(Inotify, Site::new(), "");
    let directory = story.setup.state.path().join("state");
    fs::write(&directory, "").unwrap();
    refuses(&story, &["set state_dir to one that can be written"]);
    fs::remove_file(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o500)).unwrap();
    refuses(&story, &[directory.to_str().unwrap()]);
    fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
}

/// Until it is told what to do, nothing that it sends could be remembered.
#[rstest]
fn a_state_directory_that_is_deleted_while_it_runs_is_noticed_and_loses_nothing(
    #[values(true, false)] is_idle: bool,
) {
    let mut story = Story::begin(Inotify, Site::new(), "");
    story.stays_silent();
    let directory = story.setup.state.path().join("state");
    fs::remove_dir_all(&directory).unwrap();
    if !is_idle {
        story.update("a/changelist.xml", "2");
    }
    let entry = story.await_log("cannot save the state; nothing is sent");
    assert_contains(entry["message"].as_str().unwrap(), "state.sqlite is gone");
    assert_eq!(entry["level"], "ERROR", "{entry}");
    await_readiness(&story, "503");
    let (_, metrics) = story.daemon().get_admin("/metrics");
    assert_contains(&metrics, "rsnotify_unsaved 1");
    assert_contains(&metrics, "rsnotify_ready 0");
    if is_idle {
        story.update("a/changelist.xml", "2");
    }
    assert_eq!(story.stop_and_count("has been restored"), 1);
    assert!(story.hub.heard().is_empty());
    story.resume();
    story.ends_hearing(&["updated changelist a/changelist.xml"]);
}

#[test]
fn a_large_state_file_shrinks_while_nothing_waits() {
    let mut story = Story::begin(Inotify, Site::new(), "");
    story.stays_silent();
    let path = story.state_file();
    let operator = Connection::open(&path).unwrap();
    operator
        .execute_batch(
            "CREATE TABLE large AS WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number LIMIT 16000)
             SELECT randomblob(1000) FROM number;
             DROP TABLE large;
             PRAGMA wal_checkpoint(TRUNCATE);",
        )
        .unwrap();
    let size = || fs::metadata(&path).unwrap().len();
    assert!(size() > 16_000_000, "{}", size());
    until(|| size() <= 5_000_000);
    story.update("a/changelist.xml", "2");
    story.ends_hearing(&["updated changelist a/changelist.xml"]);
}

/// A daemon refuses to run with an error that has these words, and sends nothing.
#[track_caller]
fn refuses(story: &Story, words: &[&str]) {
    let mut command = story.setup.command("run");
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(output(&mut command)));
    let (code, _, error) = ended.recv_timeout(DEADLINE).expect("it ends");
    assert_eq!(code, Some(1), "{error}");
    assert!(words.iter().all(|it| error.contains(it)), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    assert!(story.hub.heard().is_empty());
}

const UPDATED: [&str; 2] = [
    "updated changelist a/changelist.xml",
    "updated resourcelist a/resourcelist.xml",
];

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
#[track_caller]
fn await_readiness(story: &Story, status: &str) {
    until(|| {
        let (head, _) = story.daemon().get_admin("/readyz");
        head.starts_with(&format!("HTTP/1.1 {status}"))
    });
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

//! File systems below a root: each that goes is reported before what is missing with it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use announce::observation::Found;
use rsnotify::tree::WatchMode::{self, Inotify, Notify, Poll};
use rstest::rstest;

use crate::harness::{Watched, path, put};
use crate::namespace::was_run_again;

const AGAIN: &str = "unshare --map-root-user --mount";
const NONE: [&str; 0] = [];

pub fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

fn mount_tmpfs(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    run(Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(directory));
}

fn bind(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    run(Command::new("mount").arg("--bind").args([from, to]));
}

fn unmount(directory: &Path) {
    run(Command::new("umount").arg("--lazy").arg(directory));
}

/// Returns the file systems that were known when a path was reported as missing.
#[track_caller]
fn nested_when_missing<'a>(it: &'a Watched, below: &str) -> &'a [String] {
    let nested = it.nested_when_missing[below.as_bytes()].as_ref();
    nested.expect("file systems were reported before what is missing")
}

#[rstest]
fn one_of_two_file_systems_that_goes_is_reported_before_what_is_missing_with_it(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
    #[values(false, true)] is_bound: bool,
) {
    if was_run_again(AGAIN) {
        return;
    }
    // Below the place, a directory that is bound lies on the same device.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut it = Watched::start_on(watch, |root| {
        for name in ["d", "e"] {
            match is_bound {
                true => {
                    let from = elsewhere.path().join(name);
                    fs::create_dir(&from).unwrap();
                    bind(&from, &root.join(name));
                }
                false => mount_tmpfs(&root.join(name)),
            }
            fs::create_dir(root.join(name).join("sub")).unwrap();
            put(root.join(name).join("sub/a.xml"), 1);
            put(root.join(name).join("a.xml"), 1);
        }
        put(root.join("ordinary/a.xml"), 1);
    });
    assert_eq!(it.nested, [["d", "e"]]);
    let kept = it.place.path().join("kept");
    bind(&it.root.join("d"), &kept);
    for round in 0..2 {
        unmount(&it.root.join("d"));
        it.wait_for_missing("d/a.xml");
        it.wait_for_missing("d/sub/a.xml");
        for name in ["d/a.xml", "d/sub/a.xml"] {
            assert_eq!(nested_when_missing(&it, name), ["e"], "{round}");
        }
        bind(&kept, &it.root.join("d"));
        it.wait_for("d/a.xml", 1);
        it.wait_for("d/sub/a.xml", 1);
        it.wait("the file system", |it| {
            it.nested.last().unwrap() == &["d", "e"]
        });
    }
    // What is deleted on it, or beside it, is missing from what is there.
    fs::remove_file(it.root.join("d/a.xml")).unwrap();
    fs::remove_dir_all(it.root.join("ordinary")).unwrap();
    for name in ["d/a.xml", "ordinary/a.xml"] {
        it.wait_for_missing(name);
        assert_eq!(nested_when_missing(&it, name), ["d", "e"]);
    }
    let is_missing = |below: &str| it.looks_at(below).contains(&Found::Missing);
    assert!(!is_missing("e/a.xml") && !is_missing("e/sub/a.xml"));
}

#[rstest]
fn a_tree_is_swept_again_when_a_file_system_goes_and_not_because_one_is_there_at_its_start(
    #[values(Inotify, Notify)] watch: WatchMode,
) {
    if was_run_again(AGAIN) {
        return;
    }
    let mut it = Watched::start_on(watch, |root| {
        put(root.join("d/a.xml"), 7);
        mount_tmpfs(&root.join("d"));
        put(root.join("d/a.xml"), 1);
    });
    assert_eq!(it.nested, [["d"]]);
    std::thread::sleep(Duration::from_millis(1_500)); // a second sweep would begin: no event, so no deadline
    it.wait_for_quiet();
    assert_eq!(it.sweeps, 2, "the first, and the one that was asked for");
    unmount(&it.root.join("d"));
    it.wait("a sweep of what is there", |it| it.sweeps > 2);
    it.wait_for("d/a.xml", 7);
}

#[rstest]
fn a_file_that_is_asked_for_is_missing_after_the_report_of_its_file_system(
    #[values(Inotify, Poll)] watch: WatchMode,
) {
    if was_run_again(AGAIN) {
        return;
    }
    // No event tells that it is unmounted.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut it = Watched::start_on(watch, |root| {
        bind(elsewhere.path(), &root.join("d"));
        put(root.join("d/a.xml"), 1);
    });
    it.wait_for("d/a.xml", 1);
    unmount(&it.root.join("d"));
    it.tree().request_looks(vec![path("d/a.xml")]);
    it.wait_for_missing("d/a.xml");
    assert_eq!(nested_when_missing(&it, "d/a.xml"), NONE);
}

#[rstest]
fn a_tree_that_is_watched_before_its_file_system_is_mounted_says_that_there_is_none(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    if was_run_again(AGAIN) {
        return;
    }
    let mut it = Watched::start_on(watch, |root| {
        mount_tmpfs(&root.join("d"));
        put(root.join("d/a.xml"), 1);
    });
    let known = it.known(&["d/a.xml"], |stat| stat.changed);
    let kept = it.place.path().join("kept");
    bind(&it.root.join("d"), &kept);
    unmount(&it.root.join("d"));
    let mut it = Watched::start_in(it.stop(), watch, known);
    it.wait_for_missing("d/a.xml");
    assert_eq!(nested_when_missing(&it, "d/a.xml"), NONE);
    bind(&kept, &it.root.join("d"));
    it.wait_for("d/a.xml", 1);
    assert_eq!(it.nested.last().unwrap(), &["d"]);
}

#[rstest]
fn a_link_to_another_file_system_is_reported(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    if was_run_again(AGAIN) {
        return;
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let volume = elsewhere.path().join("volume");
    mount_tmpfs(&volume);
    for release in ["1", "2"] {
        put(volume.join(release).join("a.xml"), 1);
    }
    let mut it = Watched::start_on(watch, |root| {
        put(root.join("own/a.xml"), 1);
        symlink(volume.join("1"), root.join("current")).unwrap();
    });
    assert_eq!(it.nested, [["current"]]);
    let swap = |it: &Watched, target: &Path| {
        symlink(target, it.root.join("next")).unwrap();
        fs::rename(it.root.join("next"), it.root.join("current")).unwrap();
    };
    swap(&it, Path::new("own"));
    it.wait("the swap", |it| it.nested.last().unwrap().is_empty());
    swap(&it, &volume.join("2"));
    it.wait("the swap back", |it| {
        it.nested.last().unwrap() == &["current"]
    });
    it.wait_for_quiet();
    assert!(!it.looks_at("current/a.xml").contains(&Found::Missing));
    unmount(&volume);
    it.wait_for_missing("current/a.xml");
    assert_eq!(nested_when_missing(&it, "current/a.xml"), NONE);
}

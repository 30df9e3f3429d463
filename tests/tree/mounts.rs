//! The root of a mount: missing, late, replaced, gone for a while. None of this makes a file missing.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rsnotify::tree::WatchMode::{self, Inotify, Notify, Poll};
use rsnotify::tree::{KnownFiles, TreeHandle, TreeNotice};
use rstest::rstest;

use crate::harness::{DEADLINE, Watched, put, settings};
use crate::namespace::was_run_again;
use crate::nested::run;

#[rstest]
fn a_mount_that_comes_late_is_found(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start_in(tempfile::tempdir().unwrap(), watch, KnownFiles::default());
    it.wait("the loss", |it| it.lost.len() == 1);
    fs::create_dir(&it.root).unwrap();
    it.write_and_wait("a.xml", 1);
    assert_eq!(it.found.len(), 1);
}

#[rstest]
fn a_root_gone_a_while_makes_nothing_missing(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    fs::create_dir(it.root.join("d")).unwrap();
    it.write("a.xml", 1);
    it.write("d/b.xml", 1);
    it.wait_for("a.xml", 1);
    it.wait_for("d/b.xml", 1);
    let away = it.place.path().join("away");
    fs::rename(&it.root, &away).unwrap();
    it.wait("the loss", |it| it.lost.len() == 1);
    put(away.join("a.xml"), 2);
    fs::rename(&away, &it.root).unwrap();
    it.wait_for("a.xml", 2);
    it.wait("the sweep", |it| it.sweeps > 1);
    assert!(!it.is_missing_ever());
    it.write_and_wait("d/b.xml", 2);
}

#[rstest]
fn a_root_that_is_replaced_is_another_tree(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    it.write("a.xml", 1);
    it.write("b.xml", 1);
    it.wait_for("a.xml", 1);
    it.wait_for("b.xml", 1);
    let next = it.place.path().join("next");
    put(next.join("a.xml"), 2);
    let away = it.place.path().join("away");
    fs::rename(&it.root, &away).unwrap();
    fs::rename(&next, &it.root).unwrap();
    it.wait_for("a.xml", 2);
    it.wait_for_missing("b.xml");
    assert_eq!(it.found.len(), 2);
    assert_ne!(it.found[0], it.found[1]);
    let before = it.looks_at("a.xml").len();
    put(away.join("a.xml"), 3);
    it.wait_for_quiet();
    assert_eq!(it.looks_at("a.xml").len(), before, "no removed file");
    it.write_and_wait("a.xml", 4);
}

#[rstest]
fn a_root_that_is_a_link_is_followed_when_it_is_swapped(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let place = tempfile::tempdir().unwrap();
    for release in 1..=2 {
        let directory = place.path().join(format!("releases/{release}/d"));
        put(directory.join("a.xml"), release);
    }
    symlink("releases/1", place.path().join("root")).unwrap();
    let mut it = Watched::start_in(place, watch, KnownFiles::default());
    it.wait_for("d/a.xml", 1);
    symlink("releases/2", it.place.path().join("next")).unwrap();
    fs::rename(it.place.path().join("next"), &it.root).unwrap();
    it.wait_for("d/a.xml", 2);
    assert!(!it.is_missing_ever());
    it.write_and_wait("d/a.xml", 3);
    // Not in one step.
    fs::remove_file(&it.root).unwrap();
    symlink("releases/1", &it.root).unwrap();
    it.wait_for("d/a.xml", 1);
    let directory = it.root.clone();
    assert!(it.notices.contains(&TreeNotice::Replaced { directory }));
    assert_eq!(it.lost, [""; 0], "it was there all the time");
}

#[rstest]
fn a_root_removed_and_made_again_is_found(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    for round in 1..4 {
        it.write_and_wait("a.xml", round);
        fs::remove_dir_all(&it.root).unwrap();
        it.wait("the loss", |it| it.lost.len() >= round);
        fs::create_dir(&it.root).unwrap();
    }
    it.write_and_wait("a.xml", 9);
}

#[rstest]
fn a_file_in_the_place_of_a_root_is_no_mount(#[values(Inotify, Poll)] watch: WatchMode) {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("root"), "").unwrap();
    let lost = format!(
        "{}: it is not a directory",
        place.path().join("root").display()
    );
    let mut it = Watched::start_in(place, watch, KnownFiles::default());
    it.wait("the loss", |it| it.lost == [lost.as_str()]);
}

#[rstest]
fn a_root_that_is_mounted_over_is_another_tree_until_it_is_unmounted(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    if was_run_again("unshare --map-root-user --mount") {
        return;
    }
    let mut it = Watched::start(watch);
    it.write_and_wait("a.xml", 1);
    let over = it.place.path().join("over");
    put(over.join("a.xml"), 2);
    run(Command::new("mount").arg("--bind").args([&over, &it.root]));
    it.wait_for("a.xml", 2);
    it.write_and_wait("a.xml", 3);
    run(Command::new("umount").arg(&it.root));
    it.wait_for("a.xml", 1);
    assert!(!it.is_missing_ever());
    assert_eq!(it.found.len(), 3);
}

#[test]
fn a_tree_at_rest_costs_next_to_nothing() {
    if was_run_again("") {
        return;
    }
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let mut it = Watched::start(Inotify);
    it.write_and_wait("a.xml", 1);
    let before = used();
    // Rest is what is measured: there is nothing to await.
    std::thread::sleep(std::time::Duration::from_secs(2)); // rest, not an event: no deadline
    let took = used() - before;
    assert!(took.tv_sec == 0 && took.tv_nsec < 20_000_000, "{took:?}");
}

#[test]
fn a_tree_that_hangs_is_left_behind() {
    let place = tempfile::tempdir().unwrap();
    let (hung, hangs) = channel();
    let tree = TreeHandle::watch(
        settings(place.path(), Poll),
        KnownFiles::default(),
        move |_| {
            hung.send(()).unwrap();
            loop {
                std::thread::park();
            }
        },
    )
    .unwrap();
    hangs.recv_timeout(DEADLINE).unwrap();
    let (dropped, drops) = channel();
    std::thread::spawn(move || {
        drop(tree);
        dropped.send(()).unwrap();
    });
    let has_ended = drops.recv_timeout(Duration::from_secs(20));
    assert!(has_ended.is_ok(), "dropping it took too long");
}

#[test]
fn the_parent_of_a_root_is_watched_for_names_that_come_and_go_alone() {
    if was_run_again("") {
        return;
    }
    const MODIFY_CLOSE_WRITE_ATTRIB: u32 = 0x2 | 0x8 | 0x4;
    let masks_of = |directory: &std::path::Path| -> Vec<u32> {
        let inode = fs::metadata(directory).unwrap().ino();
        let wanted = format!(" ino:{inode:x} ");
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc/self/fdinfo").unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            let lines = text.lines().filter(|line| line.contains(&wanted));
            found.extend(lines.filter_map(|line| {
                let (_, mask) = line.split_once(" mask:")?;
                u32::from_str_radix(mask.split(' ').next()?, 16).ok()
            }));
        }
        // One queue may have two descriptors.
        found.dedup();
        found
    };
    let mut it = Watched::start(Inotify);
    let parent = masks_of(it.place.path());
    assert_eq!(parent.len(), 1);
    assert_eq!(parent[0] & MODIFY_CLOSE_WRITE_ATTRIB, 0, "{parent:x?}");
    let root = masks_of(&it.root);
    assert_eq!(
        root[0] & MODIFY_CLOSE_WRITE_ATTRIB,
        MODIFY_CLOSE_WRITE_ATTRIB
    );
    // A link that ends beside the root needs more, for as long as it is there.
    put(it.place.path().join("beside.txt"), 1);
    symlink("../beside.txt", it.root.join("a.xml")).unwrap();
    it.wait_for("a.xml", 1);
    let before = it.looks_at("a.xml").len();
    put(it.place.path().join("beside.txt"), 2);
    it.wait_for("a.xml", 2);
    assert!(it.looks_at("a.xml").len() > before);
    fs::remove_file(it.root.join("a.xml")).unwrap();
    it.wait_for_missing("a.xml");
    let end = Instant::now() + DEADLINE;
    while masks_of(it.place.path()) != parent {
        assert!(
            Instant::now() < end,
            "the parent is watched for more than it needs"
        );
        std::thread::sleep(Duration::from_millis(20)); // asked again, with a deadline
    }
    // A root that is exchanged is noticed as before.
    fs::rename(&it.root, it.place.path().join("away")).unwrap();
    it.wait("the loss", |it| !it.lost.is_empty());
}

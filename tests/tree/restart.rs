//! Files that an earlier run has read are not read again unless they changed; known ones that are gone are missing.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use announce::event::Event;
use announce::observation::{Found, Stat};
use jiff::Timestamp;
use rsnotify::tree::WatchMode::{self, Inotify, Notify, Poll};
use rsnotify::tree::{KnownFiles, TreeHandle, TreeReport, TreeSettings, sweep_once};
use rstest::rstest;

use crate::harness::{DEADLINE, Watched, excluding, path, place, put, settings, version_of};
use crate::namespace::was_run_again;
use crate::nested::run;

#[rstest]
fn known_files_are_read_only_if_they_changed(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start_on(watch, |root| {
        fs::create_dir(root.join("d")).unwrap();
        for name in ["same.xml", "d/changed.xml", "d/gone.xml", "late.xml"] {
            put(root.join(name), 1);
        }
    });
    // As if they had been read long after they were written.
    let read_at = |_: &Stat| Timestamp::now() + Duration::from_secs(60);
    let known = it.known(&["same.xml", "d/changed.xml", "d/gone.xml"], read_at);
    let place = it.stop();
    put(place.path().join("root/d/changed.xml"), 2);
    fs::remove_file(place.path().join("root/d/gone.xml")).unwrap();
    let mut it = Watched::start_in(place, watch, known);
    it.wait_for("d/changed.xml", 2);
    it.wait_for("late.xml", 1);
    it.wait_for_missing("d/gone.xml");
    it.wait("the sweep", |it| it.sweeps > 0);
    assert!(it.looks_at("same.xml").is_empty());
}

#[rstest]
fn what_is_excluded_is_not_missing(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let names = ["a.xml", "d/e/b.xml", "c.xml.part"];
    let mut it = Watched::start_on(watch, |root| {
        fs::create_dir_all(root.join("d/e")).unwrap();
        for name in names {
            put(root.join(name), 1);
        }
        put(root.join("sentinel.xml"), 1);
    });
    it.wait_for("sentinel.xml", 1);
    let Some(Found::Document { stat, .. }) = it.last("sentinel.xml") else {
        panic!("it was a document");
    };
    let mut known = KnownFiles::default();
    for name in names {
        known.add(path(name), stat, Timestamp::now());
    }
    let root = it.root.clone();
    let mut settings = settings(&root, watch);
    settings.candidates = excluding(&["a.xml", "d/**"]);
    let mut it = Watched::start_knowing(it.stop(), settings, known);
    it.wait("the first sweep", |it| it.sweeps > 0);
    it.tree().request_looks(names.map(path).into());
    it.wait_for_quiet();
    it.wait_for_quiet();
    it.looks.remove(&b"sentinel.xml"[..]);
    assert!(it.looks.is_empty(), "{:?}", it.looks);
}

#[rstest]
fn known_files_of_absent_mounts_are_not_missing(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    it.write("a.xml", 1);
    let known = it.known(&["a.xml"], |_| Timestamp::now());
    let place = it.stop();
    fs::rename(place.path().join("root"), place.path().join("away")).unwrap();
    let mut it = Watched::start_in(place, watch, known);
    it.wait("the loss", |it| it.lost.len() == 1);
    assert!(it.looks.is_empty());
    fs::create_dir(&it.root).unwrap();
    it.wait_for_missing("a.xml");
}

#[rstest]
fn a_sweep_that_is_asked_for_or_follows_lost_events_finds_what_no_event_told(
    #[values(Inotify, Notify)] watch: WatchMode,
) {
    let mut it = Watched::start(watch);
    it.write_and_wait("a.xml", 1);
    // A hard link outside is written: no event names the file in the tree.
    let outside = it.place.path().join("outside.xml");
    fs::hard_link(it.root.join("a.xml"), &outside).unwrap();
    put(&outside, 2);
    it.tree().request_sweep();
    it.wait_for("a.xml", 2);
    put(&outside, 3);
    it.tree().hints.merge(|batch| batch.add_overflow());
    it.wait_for("a.xml", 3);
    assert!(it.notices.contains(&rsnotify::tree::TreeNotice::Overflow));
}

#[test]
fn a_survey_sees_every_candidate_and_ends() {
    let (_place, root) = place();
    put(root.join("d/old.xml"), 1);
    fs::write(root.join("d/other.xml"), "<other/>").unwrap();
    std::thread::sleep(crate::harness::SETTLE); // lets old.xml settle: there is no event, so no deadline
    put(root.join("new.xml"), 2);
    let mut looks = Vec::new();
    let mut swept = false;
    sweep_once(settings(&root, Inotify), |report| {
        match report {
            TreeReport::Event(Event::Observed(batch)) => looks.extend(batch),
            TreeReport::Swept {
                complete, files, ..
            } => swept = complete && files == 3,
            _ => {}
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(swept);
    let look = |name: &str| &looks.iter().find(|it| it.path == path(name)).unwrap().look;
    assert_eq!(version_of(look("d/old.xml")), Some(1));
    assert!(matches!(look("d/other.xml"), Found::Other { .. }));
    // It waits for what has just been written.
    assert_eq!(version_of(look("new.xml")), Some(2));
}

/// The times of `ramfs` are never sharp, those of what it is mounted in may be (R4).
#[test]
#[cfg(target_os = "linux")]
fn each_directory_has_the_times_of_its_own_file_system() {
    if was_run_again("unshare --map-root-user --mount") {
        return;
    }
    let mut it = Watched::start_on(Poll, |root| {
        fs::create_dir(root.join("d")).unwrap();
        let mount = ["-t", "ramfs", "none"];
        run(Command::new("mount").args(mount).arg(root.join("d")));
        put(root.join("d/e/a.xml"), 1);
        symlink("d/e/a.xml", root.join("link.xml")).unwrap();
    });
    let names = ["d/e/a.xml", "link.xml"];
    // They may have been written again in the same instant.
    let known = it.known(&names, |stat| stat.changed);
    let mut it = Watched::start_in(it.stop(), Poll, known);
    for name in names {
        it.wait_for(name, 1);
    }
    run(Command::new("umount").arg(it.root.join("d")));
}

#[rstest]
fn what_is_written_during_the_first_sweep_waits_alone(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    const SETTLE: Duration = Duration::from_secs(3);
    let (_place, root) = place();
    put(root.join("d/old.xml"), 1);
    std::thread::sleep(SETTLE); // lets old.xml settle: there is no event, so no deadline
    let settings = TreeSettings {
        settle: SETTLE,
        ..settings(&root, watch)
    };
    let (sender, reports) = channel();
    let begun = Instant::now();
    let new = root.join("d/new.xml");
    let _tree = TreeHandle::watch(settings, KnownFiles::default(), move |report| {
        // Nothing is watched yet, so that no event tells of this.
        if matches!(report, TreeReport::Event(Event::MountFound { .. })) {
            std::thread::sleep(Duration::from_millis(50)); // lets the kernel's clock go on: no event, so no deadline
            put(&new, 2);
        }
        match sender.send(report) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })
    .unwrap();
    let (mut seen, mut swept) = (Vec::new(), None);
    while seen.len() < 2 {
        match reports.recv_timeout(DEADLINE).unwrap() {
            TreeReport::Event(Event::Observed(batch)) => {
                seen.extend(batch.iter().filter_map(|it| version_of(&it.look)));
            }
            TreeReport::Swept { complete: true, .. } if swept.is_none() => {
                swept = Some((begun.elapsed(), seen.clone()));
            }
            _ => {}
        }
    }
    let (took, before) = swept.unwrap();
    assert_eq!((before, seen), (vec![1], vec![1, 2]));
    assert!(took < SETTLE, "the sweep waited: {took:?}");
    assert!(begun.elapsed() >= SETTLE);
}

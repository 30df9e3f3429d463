//! Directories: created and filled at once, moved, swapped, removed and created again.

use std::fs;

use announce::observation::Found;
use rsnotify::tree::WatchMode::{self, Inotify, Notify, Poll};
use rstest::rstest;

use crate::harness::{Watched, put};

#[rstest]
fn directories_made_and_filled_in_one_breath_are_never_missed(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let mut it = Watched::start(watch);
    for n in 0..100 {
        let below = format!("d{n}/e/f");
        fs::create_dir_all(it.root.join(&below)).unwrap();
        it.write(&format!("{below}/a.xml"), n);
        it.write(&format!("d{n}/a.xml"), n);
    }
    for n in 0..100 {
        it.wait_for(format!("d{n}/e/f/a.xml"), n);
        it.wait_for(format!("d{n}/a.xml"), n);
    }
    // They are watched from here on.
    for n in 0..100 {
        it.write(&format!("d{n}/e/f/a.xml"), 1000 + n);
    }
    for n in 0..100 {
        it.wait_for(format!("d{n}/e/f/a.xml"), 1000 + n);
    }
}

#[rstest]
fn directories_moved_in_and_out_are_followed(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    let outside = it.place.path().join("outside");
    fs::create_dir_all(outside.join("d/e")).unwrap();
    put(outside.join("d/e/a.xml"), 1);
    fs::rename(outside.join("d"), it.root.join("d")).unwrap();
    it.wait_for("d/e/a.xml", 1);
    fs::create_dir(it.root.join("x")).unwrap();
    fs::rename(it.root.join("d"), it.root.join("x/d")).unwrap();
    it.wait_for("x/d/e/a.xml", 1);
    it.wait_for_missing("d/e/a.xml");
    it.write_and_wait("x/d/e/a.xml", 2);
    fs::rename(it.root.join("x/d"), outside.join("d")).unwrap();
    it.wait_for_missing("x/d/e/a.xml");
    let before = it.looks_at("x/d/e/a.xml").len();
    put(outside.join("d/e/a.xml"), 3);
    it.wait_for_quiet();
    assert_eq!(it.looks_at("x/d/e/a.xml").len(), before, "no removed file");
}

#[rstest]
fn a_directory_made_again_stays_watched(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    for round in 0..20 {
        it.write_and_wait("d/e/a.xml", round);
        fs::remove_dir_all(it.root.join("d")).unwrap();
        if round % 2 == 0 {
            it.wait_for_missing("d/e/a.xml");
        }
    }
}

#[rstest]
fn two_directories_that_are_swapped_swap_their_documents(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let mut it = Watched::start(watch);
    for (name, version) in [("a", 1), ("b", 2)] {
        fs::create_dir_all(it.root.join(name).join("below")).unwrap();
        it.write(&format!("{name}/below/x.xml"), version);
        it.wait_for(format!("{name}/below/x.xml"), version);
    }
    fs::rename(it.root.join("a"), it.root.join("c")).unwrap();
    fs::rename(it.root.join("b"), it.root.join("a")).unwrap();
    fs::rename(it.root.join("c"), it.root.join("b")).unwrap();
    it.wait_for("a/below/x.xml", 2);
    it.wait_for("b/below/x.xml", 1);
    it.write("a/below/x.xml", 3);
    it.write("b/below/x.xml", 4);
    it.wait_for("a/below/x.xml", 3);
    it.wait_for("b/below/x.xml", 4);
}

#[rstest]
fn sixty_levels_are_watched(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    let below = vec!["level"; 60].join("/");
    fs::create_dir_all(it.root.join(&below)).unwrap();
    let document = format!("{below}/a.xml");
    for version in 1..3 {
        it.write_and_wait(&document, version);
    }
}

#[rstest]
fn many_removed_directories_do_not_delay_a_change(#[values(Inotify, Poll)] watch: WatchMode) {
    let mut it = Watched::start_on(watch, |root| {
        for n in 0..1000 {
            fs::create_dir_all(root.join(format!("d/{n}"))).unwrap();
        }
        put(root.join("d/999/a.xml"), 1);
    });
    it.wait_for("d/999/a.xml", 1);
    fs::remove_dir_all(it.root.join("d")).unwrap();
    it.write_and_wait("b.xml", 1);
    it.wait_for_missing("d/999/a.xml");
    assert!(matches!(it.last("b.xml"), Some(Found::Document { .. })));
}

#[rstest]
fn a_directory_is_entered_whatever_it_is_called(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start_on(watch, |root| fs::create_dir(root.join("4913")).unwrap());
    it.write_and_wait("4913/a.xml", 1);
    it.write_and_wait("new.part/a.xml", 1);
    fs::rename(it.root.join("new.part"), it.root.join("old~")).unwrap();
    it.wait_for("old~/a.xml", 1);
    it.wait_for_missing("new.part/a.xml");
}

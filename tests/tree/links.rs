//! Symbolic links: followed, swapped, looping, dangling.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use announce::event::Event;
use announce::observation::{Found, Stat};
use jiff::Timestamp;
use rsnotify::tree::WatchMode::{self, Inotify, Notify, Poll};
use rsnotify::tree::{KnownFiles, TreeNotice, TreeReport, sweep_once};
use rstest::rstest;

use crate::harness::{Watched, path, put, settings};

/// Points `link` elsewhere in one step.
fn swap(target: impl AsRef<Path>, link: &Path) {
    let next = link.with_file_name("..next");
    symlink(target, &next).unwrap();
    fs::rename(next, link).unwrap();
}

#[rstest]
fn a_release_link_that_is_swapped_changes_all_beneath_it(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let mut it = Watched::start_on(watch, |root| {
        for release in 1..=2 {
            let below = root.join(format!(".releases/{release}/d"));
            put(below.join("a.xml"), release);
            put(below.join(format!("only-{release}.xml")), release);
        }
        symlink(".releases/1", root.join("current")).unwrap();
    });
    it.wait_for("current/d/a.xml", 1);
    swap(".releases/2", &it.root.join("current"));
    it.wait_for("current/d/a.xml", 2);
    it.wait_for("current/d/only-2.xml", 2);
    it.wait_for_missing("current/d/only-1.xml");
    assert!(!it.looks_at("current/d/a.xml").contains(&Found::Missing));
    put(it.root.join(".releases/2/d/a.xml"), 3);
    it.wait_for("current/d/a.xml", 3);
}

#[rstest]
fn a_kubernetes_volume_that_is_swapped_changes_its_files(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let mut it = Watched::start_on(watch, |root| {
        for version in 1..=2 {
            let below = root.join(format!("..2026_{version}"));
            put(below.join("a.xml"), version);
        }
        symlink("..2026_1", root.join("..data")).unwrap();
        symlink("..data/a.xml", root.join("a.xml")).unwrap();
    });
    it.wait_for("a.xml", 1);
    swap("..2026_2", &it.root.join("..data"));
    fs::remove_dir_all(it.root.join("..2026_1")).unwrap();
    it.wait_for("a.xml", 2);
    assert!(!it.is_missing_ever());
    put(it.root.join("..2026_2/a.xml"), 3);
    it.wait_for("a.xml", 3);
}

#[rstest]
fn a_swap_outside_the_tree_is_noticed(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    let outside = it.place.path().join("outside");
    for release in 1..=2 {
        fs::create_dir_all(outside.join(format!("{release}/d"))).unwrap();
        put(outside.join(format!("{release}/d/a.xml")), release);
    }
    symlink("1", outside.join("current")).unwrap();
    symlink(outside.join("current"), it.root.join("link")).unwrap();
    it.wait_for("link/d/a.xml", 1);
    swap("2", &outside.join("current"));
    it.wait_for("link/d/a.xml", 2);
}

#[rstest]
fn a_document_behind_a_link_is_watched_there(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    let target = it.place.path().join("list.of.changes");
    put(&target, 1);
    symlink(&target, it.root.join("a.xml")).unwrap();
    it.wait_for("a.xml", 1);
    put(&target, 2);
    it.wait_for("a.xml", 2);
    put(target.with_extension("new"), 3);
    fs::rename(target.with_extension("new"), &target).unwrap();
    it.wait_for("a.xml", 3);
    fs::remove_file(&target).unwrap();
    it.wait_for_missing("a.xml");
    put(&target, 4);
    it.wait_for("a.xml", 4);
    // A plain file takes the link's place.
    fs::remove_file(it.root.join("a.xml")).unwrap();
    it.write_and_wait("a.xml", 5);
}

#[rstest]
fn loops_are_cut_and_logged_once(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start_on(watch, |root| {
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("../..", root.join("a/b/up")).unwrap();
        symlink("itself", root.join("itself")).unwrap();
        symlink(".", root.join("here.xml")).unwrap();
    });
    it.write_and_wait("a/b/x.xml", 1);
    it.wait_for_quiet();
    let is_loop = |notice: &TreeNotice| matches!(notice, TreeNotice::Loop { .. });
    assert_eq!(it.noticed(is_loop), 2);
    assert_eq!(it.paths(), ["a/b/x.xml"]);
}

#[rstest]
fn a_directory_that_stands_above_itself_is_cut_wherever_the_link_is(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let mut it = Watched::start_on(watch, |root| {
        let beside = root.with_file_name("beside");
        fs::create_dir_all(root.join("a/b")).unwrap();
        put(beside.join("s.xml"), 7);
        put(root.join("a/b/x.xml"), 1);
        symlink("..", root.join("up")).unwrap();
        // Through a link that lies outside of the tree.
        fs::create_dir(beside.join("d")).unwrap();
        symlink("../../root", beside.join("d/back")).unwrap();
        symlink("../../beside/d", root.join("a/d")).unwrap();
    });
    it.wait_for("a/b/x.xml", 1);
    it.wait_for("up/beside/s.xml", 7);
    it.wait_for_quiet();
    let is_circle = |notice: &TreeNotice| matches!(notice, TreeNotice::Circle { .. });
    assert_eq!(it.noticed(is_circle), 1);
    assert_eq!(it.paths(), ["a/b/x.xml", "up/beside/s.xml"]);
}

#[rstest]
fn a_circle_that_is_none_any_more_is_entered(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start_on(watch, |root| symlink("../over", root.join("up")).unwrap());
    let over = it.place.path().join("over");
    fs::create_dir(&over).unwrap();
    symlink("../root", over.join("d")).unwrap();
    it.write_and_wait("x.xml", 1);
    it.wait_for_quiet();
    let plain = it.place.path().join("plain");
    put(plain.join("y.xml"), 2);
    fs::remove_file(over.join("d")).unwrap();
    fs::rename(&plain, over.join("d")).unwrap();
    it.wait_for("up/d/y.xml", 2);
    // And one that becomes a circle loses what was in it.
    fs::remove_dir_all(over.join("d")).unwrap();
    symlink("../root", over.join("d")).unwrap();
    it.wait_for_missing("up/d/y.xml");
    it.wait_for_quiet();
    assert!(it.looks_at("up/d/x.xml").is_empty());
}

#[rstest]
fn a_dangling_link_is_seen_with_its_target(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start_on(watch, |root| {
        symlink("../later/d", root.join("d")).unwrap();
        symlink("../later/a.xml", root.join("a.xml")).unwrap();
    });
    let later = it.place.path().join("later");
    fs::create_dir_all(later.join("d")).unwrap();
    put(later.join("d/b.xml"), 1);
    put(later.join("a.xml"), 2);
    it.wait_for("d/b.xml", 1);
    it.wait_for("a.xml", 2);
    fs::remove_dir_all(&later).unwrap();
    it.wait_for_missing("d/b.xml");
    it.wait_for_missing("a.xml");
}

#[rstest]
fn a_directory_reached_by_two_paths_is_watched_at_both(#[values(Inotify, Poll)] watch: WatchMode) {
    let mut it = Watched::start_on(watch, |root| {
        fs::create_dir(root.join("d")).unwrap();
        symlink("d", root.join("e")).unwrap();
    });
    for version in 1..3 {
        it.write_and_wait("d/a.xml", version);
        it.wait_for("e/a.xml", version);
    }
    fs::remove_file(it.root.join("e")).unwrap();
    it.wait_for_missing("e/a.xml");
    it.write_and_wait("d/a.xml", 3);
}

#[rstest]
fn links_are_followed_four_deep_and_no_file_behind_is_missing(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let place = tempfile::tempdir().unwrap();
    let directory = |depth: usize| place.path().join(format!("{depth}"));
    for depth in 0..7 {
        fs::create_dir(directory(depth)).unwrap();
        put(directory(depth).join("a.xml"), depth);
        symlink(directory(depth + 1), directory(depth).join("n")).unwrap();
    }
    fs::rename(directory(0), place.path().join("root")).unwrap();
    let stat = Stat {
        size: 0,
        modified: Timestamp::MIN,
        changed: Timestamp::MIN,
        inode: 0,
    };
    let mut known = KnownFiles::default();
    known.add(path("n/n/n/n/n/a.xml"), &stat, Timestamp::MIN);
    let mut it = Watched::start_in(place, watch, known);
    it.write("sentinel.xml", 1);
    it.wait_for("n/n/n/n/a.xml", 4);
    it.wait_for_quiet();
    it.tree().request_looks(vec![path("n/n/n/n/n/a.xml")]);
    it.wait_for_quiet();
    it.wait_for_quiet();
    let behind = it.looks_at("n/n/n/n/n/a.xml");
    let is_incomplete = |look: &Found| matches!(look, Found::Incomplete(_));
    assert!(behind.len() > 1 && behind.iter().all(is_incomplete));
    assert!(it.looks_at("n/n/n/n/n/n/a.xml").is_empty());
    let link = it.root.join("n/n/n/n/n");
    assert!(it.notices.contains(&TreeNotice::LinkTooDeep { link }));
    assert_eq!(it.noticed(TreeNotice::is_warning), 1);
}

#[test]
fn links_into_each_other_do_not_multiply_without_bound() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    for one in 0..12 {
        fs::create_dir(root.join(format!("{one}"))).unwrap();
        put(root.join(format!("{one}/a.xml")), one);
        for other in 0..12 {
            symlink(
                format!("../{other}"),
                root.join(format!("{one}/to-{other}")),
            )
            .unwrap();
        }
    }
    std::thread::sleep(Duration::from_millis(300)); // lets the files settle: no event, so no deadline
    let (mut looks, mut notices) = (0, Vec::new());
    sweep_once(settings(root, Poll), |report| {
        match report {
            TreeReport::Event(Event::Observed(batch)) => looks += batch.len(),
            TreeReport::Notice(notice @ TreeNotice::TooManyLinked { .. }) => notices.push(notice),
            _ => {}
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((looks, notices.len()), (12 + 10_000, 1));
}

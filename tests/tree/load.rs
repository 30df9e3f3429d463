//! Load: bursts that overflow every queue lose no change.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rsnotify::tree::TreeNotice;
use rsnotify::tree::WatchMode::{self, Auto, Inotify, Notify, Poll};
use rstest::rstest;
use websub::http::lock;

use crate::harness::{Watched, document, put};
use crate::namespace::was_run_again;

#[rstest]
fn twenty_thousand_files_in_new_directories_are_all_seen_and_two_thousand_that_are_rewritten(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let mut it = Watched::start(watch);
    let text = document(1);
    let begun = Instant::now();
    for directory in 0..200 {
        let below = it.root.join(format!("{}/{directory}", directory % 10));
        fs::create_dir_all(&below).unwrap();
        for file in 0..100 {
            fs::write(below.join(format!("{file}.xml")), &text).unwrap();
        }
    }
    let written = begun.elapsed();
    it.wait("all of them", |it| {
        it.looks.len() == 20_000 && it.looks.keys().all(|name| it.version(name) == Some(1))
    });
    println!(
        "{watch:?}: written in {written:?}, all seen after {:?}",
        begun.elapsed()
    );
    let rewritten: Vec<String> = (0..2_000)
        .map(|n| format!("{}/{}/{}.xml", n % 10, n % 200, n / 200))
        .collect();
    for name in &rewritten {
        it.write(name, 2);
    }
    it.wait("all that were rewritten", |it| {
        rewritten.iter().all(|name| it.version(name) == Some(2))
    });
}

#[rstest]
fn a_large_file_that_is_replaced_all_the_time_delays_no_sweep(
    #[values(Inotify, Notify)] watch: WatchMode,
) {
    let entry = "<url><loc>https://e.org/resource</loc></url>";
    let large = document(1).replace("</urlset>", &format!("{}</urlset>", entry.repeat(50_000)));
    assert!(large.len() > 2 << 20);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut replacing = None;
    let mut it = Watched::start_on(watch, |root| {
        for n in 0..500 {
            put(root.join(format!("{n}.xml")), 1);
        }
        let (root, is_over) = (root.to_owned(), Arc::clone(&is_over));
        replacing = Some(std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                fs::write(root.join("next"), &large).unwrap();
                fs::rename(root.join("next"), root.join("large.xml")).unwrap();
            }
        }));
    });
    let is_seen = |it: &Watched| (0..500).all(|n| it.version(format!("{n}.xml")) == Some(1));
    it.wait("the others", is_seen);
    is_over.store(true, Ordering::Relaxed);
    replacing.unwrap().join().unwrap();
}

fn names(notice: &TreeNotice, sysctl: &str) -> bool {
    matches!(notice, TreeNotice::WatchesRanOut { limit, .. } if limit.sysctl == sysctl)
}

#[rstest]
fn when_watches_run_out_the_tree_is_polled_and_the_sysctl_named(
    #[values(Auto, Inotify, Notify)] watch: WatchMode,
) {
    let few = "unshare --map-root-user sh -c \
               'echo 10 > /proc/sys/user/max_inotify_watches && exec \"$@\"' sh";
    if was_run_again(few) {
        return;
    }
    let mut it = Watched::start_on(watch, |root| {
        for n in 0..50 {
            fs::create_dir(root.join(format!("{n}"))).unwrap();
        }
    });
    for version in 1..3 {
        for n in 0..50 {
            it.write(&format!("{n}/a.xml"), version);
        }
        for n in 0..50 {
            it.wait_for(format!("{n}/a.xml"), version);
        }
    }
    assert_eq!(
        it.noticed(|notice| names(notice, "user.max_inotify_watches")),
        1
    );
    it.wait_for_quiet();
    assert!(it.is_unwatched);
}

#[test]
fn without_inotify_instances_auto_polls_and_names_the_sysctl() {
    let none = "unshare --map-root-user sh -c \
                'echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"' sh";
    if was_run_again(none) {
        return;
    }
    let mut it = Watched::start(Auto);
    it.write_and_wait("a.xml", 1);
    assert_eq!(
        it.noticed(|notice| names(notice, "user.max_inotify_instances")),
        1
    );
    it.wait_for_quiet();
    assert!(it.is_unwatched);
}

#[rstest]
fn hints_and_overflows_are_counted(#[values(Inotify, Notify, Poll)] watch: WatchMode) {
    let mut it = Watched::start(watch);
    it.write_and_wait("a.xml", 1);
    it.wait_for_quiet();
    assert!(!it.is_unwatched, "one that is to be polled lacks nothing");
    let hints = lock(&it.tree().hints.pending).counted;
    assert_eq!((hints.taken > 0, hints.overflows), (watch != Poll, 0));
    it.tree().hints.merge(|batch| batch.add_overflow());
    assert_eq!(lock(&it.tree().hints.pending).counted.overflows, 1);
}

//! Load: bursts that overflow every queue lose nothing.

use std::fs;
use std::time::Instant;

use rsnotify::tree::WatchMode::{self, Inotify, Notify, Poll};
use rstest::rstest;

use crate::harness::{Watched, document};

#[rstest]
fn twenty_thousand_files_in_new_directories_are_all_seen(
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
}

#[rstest]
fn two_thousand_documents_rewritten_are_all_seen(
    #[values(Inotify, Notify, Poll)] watch: WatchMode,
) {
    let names: Vec<String> = (0..2000).map(|n| format!("{}/{n}.xml", n % 100)).collect();
    let mut it = Watched::start_on(watch, |root| {
        for name in &names {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), document(1)).unwrap();
        }
    });
    for name in &names {
        it.write(name, 2);
    }
    let last = names.len();
    it.wait("all of them", |it| {
        names
            .iter()
            .filter(|name| it.version(name) == Some(2))
            .count()
            == last
    });
}

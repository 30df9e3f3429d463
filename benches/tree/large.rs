//! Cost of a large tree: a sweep in which nothing changed, hints, and memory for each watched directory.

use std::fs;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

use rsnotify::tree::{KnownFiles, TreeNotice, TreeReport};

use crate::{document, processor_time, ratio, resident, shell, swept, watch};

/// A million files, every tenth of them a document, none of them changed.
pub fn tenth() {
    const FILES: usize = 1_000_000;
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path();
    for n in 0..1_000 {
        fs::create_dir(root.join(format!("set{n}"))).expect("a directory");
    }
    let text = document(0, 1);
    for n in 0..FILES {
        let directory = root.join(format!("set{}", n % 1_000));
        match n / 1_000 % 10 {
            0 => fs::write(directory.join(format!("list{n}.xml")), &text).expect("a document"),
            _ => drop(fs::File::create(directory.join(format!("file{n}.pdf"))).expect("a file")),
        }
    }
    let (tree, reports) = watch(root, KnownFiles::default());
    let (known, documents) = swept(&reports);
    let mut took: Vec<Duration> = (0..5)
        .map(|_| {
            let begun = Instant::now();
            tree.request_sweep();
            let (_, observed) = swept(&reports);
            assert_eq!(observed, 0, "nothing changed");
            begun.elapsed()
        })
        .collect();
    took.sort();
    let sweep = took[2];
    println!("tenth: {FILES} files, {documents} of them documents, unchanged: swept in {sweep:?}");
    for find in [
        "find . > /dev/null",
        "find . -name '*.xml' > /dev/null",
        "find . -name '*.xml' -size +1M > /dev/null",
    ] {
        if let Some(walk) = shell(root, find) {
            println!(
                "  {find}: {walk:?}, ratio {:.2} (goal 1.5)",
                ratio(sweep, walk)
            );
        }
    }
    drop(tree);
    let begun = Instant::now();
    let (_tree, reports) = watch(root, known);
    let (_, observed) = swept(&reports);
    println!(
        "  restart, watches set anew: {:?}, {observed} files read again",
        begun.elapsed()
    );
}

/// Counts the events that are taken while documents are touched at full speed.
pub fn hints() {
    const EVENTS: u32 = 1_000_000;
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path();
    let files: Vec<fs::File> = (0..1_000)
        .map(|n| {
            let path = root.join(format!("list{n}.xml"));
            fs::write(&path, document(n, 1)).expect("a document");
            fs::File::options().write(true).open(path).expect("a file")
        })
        .collect();
    let (tree, reports) = watch(root, KnownFiles::default());
    swept(&reports);
    let before = processor_time();
    let begun = Instant::now();
    for event in 0..EVENTS {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(event));
        let file = &files[event as usize % files.len()];
        file.set_modified(time).expect("a time");
    }
    let touched = begun.elapsed();
    // What was lost is made up for by a sweep, and said.
    tree.request_sweep();
    let overflows = overflows_until_swept(&reports);
    println!(
        "hints: {EVENTS} events made in {touched:?}, {:.0} taken in a second; {overflows} overflows; \
         processor time of both sides {:?}",
        f64::from(EVENTS) / begun.elapsed().as_secs_f64(),
        processor_time().saturating_sub(before)
    );
}

fn overflows_until_swept(reports: &Receiver<TreeReport>) -> usize {
    let mut overflows = 0;
    loop {
        match reports.recv().expect("a tree that goes on") {
            TreeReport::Notice(TreeNotice::Overflow) => overflows += 1,
            TreeReport::Swept { .. } => return overflows,
            _ => {}
        }
    }
}

/// Memory for each directory that is watched, besides what the kernel keeps.
pub fn directories() {
    const DIRECTORIES: u64 = 100_000;
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path();
    build_directories(root, DIRECTORIES);
    let before = resident();
    let (_tree, reports) = watch(root, KnownFiles::default());
    let begun = Instant::now();
    let mut is_watched = true;
    loop {
        match reports.recv().expect("a tree that goes on") {
            TreeReport::Notice(TreeNotice::WatchesRanOut { .. }) => is_watched = false,
            TreeReport::Swept { .. } => break,
            _ => {}
        }
    }
    let memory = resident().saturating_sub(before) * 1_024;
    let watched = if is_watched {
        ""
    } else {
        " (not all could be watched: raise fs.inotify.max_user_watches)"
    };
    println!(
        "directories: {DIRECTORIES} watched in {:?}, {} bytes each{watched}",
        begun.elapsed(),
        memory / DIRECTORIES
    );
}

fn build_directories(root: &Path, directories: u64) {
    for above in 0..directories / 100 {
        let above = root.join(format!("set-{above}"));
        fs::create_dir(&above).expect("a directory");
        for below in 1..100 {
            fs::create_dir(above.join(format!("part-{below}"))).expect("a directory");
        }
    }
}

//! Change channels: from the rename of a Change List to the POST with what is new in it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::hub::Hub;
use crate::stage::{Daemon, Stage, current_memory_mib, peak_memory_mib, replace};

/// Entries of a list that is as large as the protocol permits.
const FULL: usize = 50_000;
/// Entries that are added to it.
const ADDED: usize = 1_000;
const LISTS: usize = 20;

/// Entries of a Change List, numbered over all lists.
#[derive(Clone, Copy)]
pub struct Entries {
    first: usize,
    count: usize,
    /// The value of an attribute that is no part of an entry's identity.
    hash: usize,
}

impl Entries {
    /// Entries of one of several lists.
    pub fn of(list: usize, count: usize) -> Entries {
        Entries {
            first: list * 10 * FULL,
            count,
            hash: 0,
        }
    }
}

/// A short list that grows by an entry, without a quiet time.
pub fn small() {
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(1, 2);
    write(&stage, (0, 1), Entries::of(0, 100));
    let daemon = start(&stage, &[hub.table("")]);
    let mut times: Vec<f64> = (101..301)
        .map(|count| {
            let staged = staged(&stage, Entries::of(0, count));
            let begin = Instant::now();
            replace(&staged, &stage.document(0, 1));
            hub.next().duration_since(begin).as_secs_f64() * 1e3
        })
        .collect();
    drop(daemon);
    times.sort_by(f64::total_cmp);
    println!(
        "changes_small: a list of 100 to 300 entries grows by one, rename to POST: median {:.2} ms, p95 {:.2} ms (target 10 ms)",
        times[times.len() / 2],
        times[times.len() * 95 / 100],
    );
}

/// A full list that grows by 1,000 entries, and one that is rewritten with other metadata.
pub fn large() {
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(1, 2);
    let mut count = FULL - 5 * ADDED;
    write(&stage, (0, 1), Entries::of(0, count));
    let daemon = start(&stage, &[hub.table("")]);
    let mut times = Vec::new();
    for _ in 0..5 {
        count += ADDED;
        times.push(grown(&stage, &hub, 1, Entries::of(0, count)));
    }
    let mut rewritten = Vec::new();
    for hash in 1..6 {
        let entries = Entries {
            hash,
            count: count + hash,
            ..Entries::of(0, 0)
        };
        let staged = staged(&stage, entries);
        let begin = Instant::now();
        replace(&staged, &stage.document(0, 1));
        assert_eq!(hub.await_changes(1), 1, "only the added entry is new");
        rewritten.push(begin.elapsed());
    }
    println!(
        "changes_large: {FULL} entries grow by {ADDED}, rename to the last POST: median {:.0} ms (target 60 ms); all rewritten \
         and one added: {:.0} ms (target 150 ms); peak memory {:.0} MiB (target 60 MB)",
        median(times),
        median(rewritten),
        peak_memory_mib(daemon.id()),
    );
}

/// A million entries in 20 lists, one of which grows.
pub fn many_lists() {
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(1, LISTS + 1);
    for list in 1..=LISTS {
        write(&stage, (0, list), Entries::of(list, FULL));
    }
    let daemon = start(&stage, &[hub.table("")]);
    std::thread::sleep(Duration::from_secs(20)); // what the lists had is learned
    let learned = peak_memory_mib(daemon.id());
    let mut count = FULL;
    let mut times = Vec::new();
    for _ in 0..5 {
        count += ADDED;
        times.push(grown(&stage, &hub, 7, Entries::of(7, count)));
    }
    println!(
        "changes_many_lists: {} entries in {LISTS} lists, one grows by {ADDED}, rename to the last POST: median {:.0} ms \
         (target 120 ms); memory {:.0} MiB, {learned:.0} at its peak (target 60 MB)",
        LISTS * FULL,
        median(times),
        current_memory_mib(daemon.id()),
    );
}

/// A million entries that are new, to one hub and to ten.
pub fn fresh() {
    for hubs in [1, 10] {
        let hubs: Vec<Hub> = (0..hubs).map(|_| Hub::start(Duration::ZERO)).collect();
        let stage = Stage::new(1, LISTS + 1);
        for list in 1..=LISTS {
            write(&stage, (0, list), Entries::of(list, 1));
        }
        let tables: Vec<String> = hubs.iter().map(|hub| hub.table("")).collect();
        let daemon = start(&stage, &tables);
        let files: Vec<PathBuf> = (1..=LISTS)
            .map(|list| staged_as(&stage, list, Entries::of(list, FULL)))
            .collect();
        let begin = Instant::now();
        for (staged, list) in files.iter().zip(1..) {
            replace(staged, &stage.document(0, list));
        }
        let total = LISTS * (FULL - 1);
        let heard: Vec<usize> = hubs.iter().map(|hub| hub.await_changes(total)).collect();
        let seconds = begin.elapsed().as_secs_f64();
        let target = if hubs.len() == 1 { 50_000 } else { 20_000 };
        println!(
            "changes_fresh: {total} new entries to {} hubs in {seconds:.1} s, {:.0} a second (target {target}); heard {} to {}; \
             peak memory {:.0} MiB (target 60 MB)",
            hubs.len(),
            total as f64 / seconds,
            heard.iter().min().unwrap_or(&0),
            heard.iter().max().unwrap_or(&0),
            peak_memory_mib(daemon.id()),
        );
    }
}

/// Starts the daemon with change channels that have no quiet time. Changes of documents wait beyond the end.
fn start(stage: &Stage, hubs: &[String]) -> Daemon {
    stage.age();
    let window = "quiet = \"1h\"\nmax_wait = \"1h\"\nchange_quiet = \"0s\"";
    let daemon = stage
        .launch_with_changes(window, &hubs.concat())
        .await_ready();
    std::thread::sleep(Duration::from_secs(2)); // the lists are learned
    daemon
}

/// Returns the time until the hub has heard what is new in a list.
fn grown(stage: &Stage, hub: &Hub, list: usize, entries: Entries) -> Duration {
    let staged = staged(stage, entries);
    let begin = Instant::now();
    replace(&staged, &stage.document(0, list));
    assert_eq!(hub.await_changes(ADDED), ADDED, "every new entry is heard");
    begin.elapsed()
}

/// Writes a list of a set, both by number.
pub fn write(stage: &Stage, (set, list): (usize, usize), entries: Entries) {
    replace(&staged(stage, entries), &stage.document(set, list));
}

fn staged(stage: &Stage, entries: Entries) -> PathBuf {
    staged_as(stage, 0, entries)
}

fn staged_as(stage: &Stage, number: usize, entries: Entries) -> PathBuf {
    let path = stage.root().with_file_name(format!("staged-list-{number}"));
    let file = File::create(&path).expect("a file");
    write_list(BufWriter::new(file), entries).expect("room");
    path
}

fn write_list(mut file: impl Write, entries: Entries) -> std::io::Result<()> {
    file.write_all(
        b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
          xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n\
          <rs:ln rel=\"up\" href=\"https://source.example/s0/d0.xml\"/>\n<rs:md capability=\"changelist\"/>\n",
    )?;
    let Entries { first, count, hash } = entries;
    for entry in 0..count {
        // A second for each entry, from the first of January on.
        let (day, second) = (1 + entry / 86_400, entry % 86_400);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let number = first + entry;
        writeln!(
            file,
            "<url><loc>https://source.example/resources/{number}.html</loc>\
             <rs:md change=\"updated\" datetime=\"2026-01-{day:02}T{hour:02}:{minute:02}:{second:02}Z\" \
             hash=\"md5:{hash:032}\" length=\"8876\" type=\"text/html\"/></url>"
        )?;
    }
    file.write_all(b"</urlset>\n")?;
    file.flush()
}

/// In milliseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

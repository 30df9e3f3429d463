//! Speed of sweeping, watching and catching up with a tree: figures and ratios, printed.
//!
//! `cargo bench --bench tree` runs all; `-- NAME` only those whose name contains it. Nothing is asserted.

#[path = "tree/large.rs"]
mod large;

use std::collections::HashSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use announce::candidates::CandidateGlobs;
use announce::event::Event;
use announce::observation::{Found, MountId};
use announce::plan::{DEFAULT_INCLUDE, MountPlan};
use jiff::Timestamp;
use resourcesync::uri::Uri;
use rsnotify::tree::{KnownFiles, ListKeyCache, TreeHandle, TreeReport, TreeSettings, WatchMode};

const DOCUMENTS: usize = 10_000;

/// Number of other files that the first sweep meets.
const UNRELATED: usize = 1_000_000;

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with('-'))
        .collect();
    let benches: [(&str, fn()); 4] = [
        ("first", first),
        ("tenth", large::tenth),
        ("hints", large::hints),
        ("directories", large::directories),
    ];
    for (name, bench) in benches {
        if wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            bench();
        }
    }
}

/// A tree that is met for the first time, again, and after a restart; then one file, and all of them.
fn first() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path();
    build(root);
    let find = "find . -name '*.xml' -print0 | xargs -0 b3sum > /dev/null";
    let find = [find, &find.replace("b3sum", "sha256sum")]
        .into_iter()
        .find_map(|command| Some((command.to_owned(), shell(root, command)?)));
    let walk = shell(root, "find . -name '*.xml' > /dev/null").unwrap_or_default();

    let memory = resident();
    let begun = Instant::now();
    let (tree, reports) = watch(root, KnownFiles::default());
    let (known, _) = swept(&reports);
    let cold = begun.elapsed();
    println!("first sweep, {UNRELATED} unrelated files, {DOCUMENTS} documents: {cold:?}");
    if let Some((command, took)) = find {
        println!("  {command}: {took:?}, ratio {:.2}", ratio(cold, took));
    }
    println!(
        "  memory: {} KiB for all of it",
        resident().saturating_sub(memory)
    );

    let begun = Instant::now();
    tree.request_sweep();
    swept(&reports);
    let again = begun.elapsed();
    println!("sweep of the same, unchanged: {again:?}");
    println!(
        "  find -name alone: {walk:?}, ratio {:.2}",
        ratio(again, walk)
    );
    drop(tree);

    let begun = Instant::now();
    let (tree, reports) = watch(root, known);
    let (_, observed) = swept(&reports);
    println!(
        "restart: {:?}, {observed} files read again",
        begun.elapsed()
    );

    let mut took: Vec<Duration> = (0..1000).map(|n| rename(root, &reports, n)).collect();
    took.sort();
    println!(
        "rename to report: median {:?}, 99 % {:?}",
        took[500], took[990]
    );

    let (begun, before) = (Instant::now(), processor_time());
    for n in 0..DOCUMENTS {
        fs::write(root.join(name(n)), document(n, 2)).expect("a document");
    }
    let written = begun.elapsed();
    let mut left: HashSet<String> = (0..DOCUMENTS).map(name).collect();
    while !left.is_empty() {
        let Ok(TreeReport::Event(Event::Observed(batch))) =
            reports.recv_timeout(Duration::from_secs(30))
        else {
            panic!("{} documents were missed", left.len());
        };
        for it in batch {
            if version(&it.look) == Some(2) {
                left.remove(&*String::from_utf8_lossy(&it.path.below));
            }
        }
    }
    println!(
        "{DOCUMENTS} documents rewritten in {written:?}: all seen after {:?}, processor time {:?}",
        begun.elapsed(),
        processor_time().saturating_sub(before)
    );
    drop(tree);
}

fn name(n: usize) -> String {
    format!("set{}/list{n}.xml", n % 1000)
}

fn document(n: usize, version: usize) -> String {
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
         <rs:md capability=\"changelist\" from=\"{version}\"/>{}</urlset>\n",
        format!("<url><loc>https://example.org/resource/{n}</loc></url>").repeat(10)
    )
}

fn version(look: &Found) -> Option<usize> {
    match look {
        Found::Document { parsed, .. } => parsed.span.from.as_ref()?.parse().ok(),
        _ => None,
    }
}

fn build(root: &Path) {
    for n in 0..1000 {
        fs::create_dir(root.join(format!("set{n}"))).expect("a directory");
    }
    for n in 0..DOCUMENTS {
        fs::write(root.join(name(n)), document(n, 1)).expect("a document");
    }
    for n in 0..UNRELATED {
        fs::File::create(root.join(format!("set{}/file{n}.pdf", n % 1000))).expect("a file");
    }
    std::thread::sleep(Duration::from_secs(1)); // stall: what was written has to settle
}

fn watch(root: &Path, known: KnownFiles) -> (TreeHandle, Receiver<TreeReport>) {
    let (sender, reports) = channel();
    let settings = TreeSettings {
        mounts: vec![MountPlan {
            id: MountId(0),
            directory: root.to_owned(),
            prefix: Uri::parse("https://example.org/").expect("a URI"),
            aliases: Vec::new(),
        }],
        candidates: CandidateGlobs::new(DEFAULT_INCLUDE.map(str::to_owned).into(), Vec::new())
            .expect("globs"),
        watch: WatchMode::Auto,
        rescan_interval: Duration::from_secs(3600),
        poll_interval: Duration::from_secs(10),
        settle: Duration::from_secs(1),
        open_writer: Duration::from_secs(30),
        recent_keys: ListKeyCache::default(),
    };
    let tree = TreeHandle::watch(settings, known, move |report| {
        let _ = sender.send(report);
        ControlFlow::Continue(())
    });
    (tree.expect("a tree that can be watched"), reports)
}

/// Waits for the end of a sweep; what it read, and how much it reported.
fn swept(reports: &Receiver<TreeReport>) -> (KnownFiles, usize) {
    let (mut known, mut observed) = (KnownFiles::default(), 0);
    loop {
        match reports.recv().expect("a tree that goes on") {
            TreeReport::Event(Event::Observed(batch)) => {
                observed += batch.len();
                for it in batch {
                    if let Found::Document { stat, .. } = it.look {
                        known.add(it.path, &stat, Timestamp::now());
                    }
                }
            }
            TreeReport::Swept { .. } => return (known, observed),
            _ => {}
        }
    }
}

fn rename(root: &Path, reports: &Receiver<TreeReport>, n: usize) -> Duration {
    let next = root.join("set0/next");
    fs::write(&next, document(n, 1000 + n)).expect("a document");
    let begun = Instant::now();
    fs::rename(&next, root.join(name(0))).expect("a rename");
    loop {
        if let TreeReport::Event(Event::Observed(batch)) =
            reports.recv().expect("a tree that goes on")
            && batch.iter().any(|it| version(&it.look) == Some(1000 + n))
        {
            return begun.elapsed();
        }
    }
}

fn shell(root: &Path, command: &str) -> Option<Duration> {
    let run = || {
        let mut shell = Command::new("bash");
        let status = shell
            .args(["-o", "pipefail", "-c", command])
            .current_dir(root)
            .status();
        status.is_ok_and(|status| status.success())
    };
    run().then(|| {
        let begun = Instant::now();
        run();
        begun.elapsed()
    })
}

fn ratio(ours: Duration, theirs: Duration) -> f64 {
    ours.as_secs_f64() / theirs.as_secs_f64()
}

/// Resident memory, in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

//! The whole process, from a change in a real tree to the POST at a local hub: figures beside their targets.
//!
//! `cargo bench --bench process` runs all; `-- NAME` only those whose name contains it. Nothing is asserted.

#[cfg(target_os = "linux")]
#[path = "process/bare.rs"]
mod bare;
#[path = "process/broker.rs"]
mod broker;
#[path = "../tests/support/brokers.rs"]
#[expect(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests need other parts of it"
)]
mod brokers;
#[path = "process/callbacks.rs"]
mod callbacks;
#[path = "process/changes.rs"]
mod changes;
#[path = "process/delivery.rs"]
mod delivery;
#[path = "process/fan_out.rs"]
mod fan_out;
#[path = "process/hub.rs"]
mod hub;
#[path = "process/memory.rs"]
mod memory;
#[path = "../tests/support/needs.rs"]
mod needs;
#[path = "../tests/support/ports.rs"]
#[expect(clippy::unwrap_used, reason = "the tests share it")]
mod ports;
#[path = "process/stage.rs"]
#[expect(dead_code, reason = "another bench needs other parts of it")]
mod stage;
#[path = "../tests/support/stomp.rs"]
#[expect(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests need other parts of it"
)]
mod stomp;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::fan_out::{fan_out, hanging_callbacks, hanging_hosts};
use crate::hub::Hub;
use crate::stage::{Stage, cpu_seconds, peak_memory_mib, replace};

/// Longest wait for a broker.
const DEADLINE: Duration = Duration::from_secs(180);

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with('-'))
        .collect();
    let benches: [(&str, fn()); 23] = [
        ("latency", latency),
        ("burst", burst),
        ("cold_start", cold_start),
        ("many_documents", many_documents),
        ("many_sets", many_sets),
        ("restart", restart),
        ("large_list", large_list),
        ("memory_10000", || memory::documents(10_000, 35)),
        ("memory_100000", || memory::documents(100_000, 110)),
        ("memory_large_lists", memory::large_lists),
        ("slow_hub", slow_hub),
        ("hanging_callbacks", hanging_callbacks),
        ("hanging_hosts", hanging_hosts),
        ("fan_out_1000", || fan_out(1_000)),
        ("fan_out_10000", || fan_out(10_000)),
        ("fan_out_100000", || fan_out(100_000)),
        ("hub_rate", delivery::hub_rate),
        ("dead_hub", delivery::dead_hub),
        ("changes_small", changes::small),
        ("changes_large", changes::large),
        ("changes_many_lists", changes::many_lists),
        ("changes_fresh", changes::fresh),
        ("broker", broker::receipts),
    ];
    for (name, bench) in benches {
        if wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            bench();
        }
    }
}

/// From the rename of a changed Change List to the POST's arrival, beside a loop that does nothing else.
fn latency() {
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(1, 2);
    let times = || {
        let mut times: Vec<f64> = (0..300)
            .map(|version| {
                let staged = stage.stage(0, 1, &format!("v{version}"));
                let begin = Instant::now();
                fs::rename(&staged, stage.document(0, 1)).expect("a rename");
                hub.next().duration_since(begin).as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        [50, 95].map(|part| times[times.len() * part / 100])
    };
    let bare = bare_loop(&stage, &hub);
    let [peer, _] = times();
    drop(bare);
    let daemon = stage.start(&hub);
    let [median, p95] = times();
    drop(daemon);
    println!(
        "latency: rename to POST, saved in between: median {median:.2} ms, p95 {p95:.2} ms; a bare inotify loop with one \
         prepared request: {peer:.2} ms: ratio {:.1} (target 3.5)",
        median / peer
    );
}

#[cfg(target_os = "linux")]
fn bare_loop(stage: &Stage, hub: &Hub) -> bare::Bare {
    bare::Bare::start(&stage.root(), hub.address())
}

/// There is none to compare with.
#[cfg(not(target_os = "linux"))]
fn bare_loop(_: &Stage, _: &Hub) {}

/// 10,000 documents over 1,000 sets, rewritten as fast as they can be.
fn burst() {
    const SETS: usize = 1_000;
    const DOCUMENTS: usize = 11;
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(SETS, DOCUMENTS);
    let total = SETS * (DOCUMENTS - 1);
    let write = |version: &str| {
        for number in 1..DOCUMENTS {
            for set in 0..SETS {
                let staged = stage.stage(set, number, version);
                fs::rename(&staged, stage.document(set, number)).expect("a rename");
            }
        }
    };
    let bare = bare_loop(&stage, &hub);
    let begin = Instant::now();
    write("bare");
    hub.await_changes(total);
    let peer = begin.elapsed();
    drop(bare);
    let daemon = stage.start(&hub);
    let cpu_before = cpu_seconds(daemon.id());
    let begin = Instant::now();
    write("burst");
    let writing = begin.elapsed();
    let heard = hub.await_changes(total);
    let done = begin.elapsed();
    println!(
        "burst: {heard} of {total} changes heard (none may be missing), written in {:.2} s, done in {:.2} s; \
         a bare inotify loop with one prepared request: {:.2} s: ratio {:.2} (target 1.3); {:.2} s of CPU (target 1.8), peak memory {:.0} MiB (target 100 MB)",
        writing.as_secs_f64(),
        done.as_secs_f64(),
        peer.as_secs_f64(),
        done.as_secs_f64() / peer.as_secs_f64(),
        cpu_seconds(daemon.id()) - cpu_before,
        peak_memory_mib(daemon.id()),
    );
}

/// A first start on a tree of 1,000,000 unrelated files and 10,000 documents.
fn cold_start() {
    let unrelated: usize = std::env::var("COLD_START_FILES")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(1_000_000);
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(1_000, 10);
    stage.add_unrelated(unrelated);
    stage.age();
    let find = || {
        let begin = Instant::now();
        let status = Command::new("sh")
            .arg("-c")
            .arg("find . -name '*.xml' -print0 | xargs -0 b3sum > /dev/null")
            .current_dir(stage.root())
            .status();
        status
            .is_ok_and(|status| status.success())
            .then(|| begin.elapsed())
    };
    find();
    let peer = find();
    let begin = Instant::now();
    let daemon = stage.launch(&hub);
    let daemon = daemon.await_ready();
    let ready = begin.elapsed();
    drop(daemon);
    // A change while it starts, at a different moment in each of several starts, is announced every time.
    let mut heard = 0;
    const STARTS: u32 = 10;
    for start in 0..STARTS {
        stage.forget();
        let daemon = stage.launch(&hub);
        std::thread::sleep(ready * (start + 1) / (STARTS + 1)); // the moment is what is varied
        let staged = stage.stage(7, 3, &format!("start-{start}"));
        fs::rename(staged, stage.document(7, 3)).expect("a rename");
        heard += hub.await_changes(1);
        drop(daemon);
    }
    match peer {
        Some(peer) => println!(
            "cold_start: {unrelated} unrelated files and 10,000 documents: ready in {:.2} s; find | b3sum {:.2} s: \
             ratio {:.2} (target 2)",
            ready.as_secs_f64(),
            peer.as_secs_f64(),
            ready.as_secs_f64() / peer.as_secs_f64()
        ),
        None => println!(
            "cold_start: {unrelated} unrelated files and 10,000 documents: ready in {:.2} s; b3sum is not installed",
            ready.as_secs_f64()
        ),
    }
    println!(
        "cold_start: {heard} of {STARTS} changes made during start-up announced (target: all)"
    );
}

/// A first start on a tree of 100,000 documents.
fn many_documents() {
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(1_000, 100);
    stage.age();
    let find = || {
        let begin = Instant::now();
        let find = "find . -name '*.xml' -print0 | xargs -0 b3sum > /dev/null";
        let mut shell = Command::new("sh");
        let status = shell.arg("-c").arg(find).current_dir(stage.root()).status();
        status
            .is_ok_and(|status| status.success())
            .then(|| begin.elapsed().as_secs_f64())
    };
    find();
    let peer = find();
    let begin = Instant::now();
    let daemon = stage.launch(&hub).await_ready();
    let ready = begin.elapsed().as_secs_f64();
    drop(daemon);
    match peer {
        Some(peer) => println!(
            "many_documents: 100,000: ready in {ready:.2} s; find | b3sum {peer:.2} s: ratio {:.2} (target 1.3)",
            ready / peer
        ),
        None => println!("many_documents: 100,000: ready in {ready:.2} s; b3sum is not installed"),
    }
}

/// A first start over more and more sets of two documents each.
fn many_sets() {
    for sets in [1_000, 4_000, 16_000] {
        let hub = Hub::start(Duration::ZERO);
        let stage = Stage::new(sets, 2);
        stage.age();
        std::thread::sleep(Duration::from_millis(1_200)); // lets the files settle
        let begin = Instant::now();
        let daemon = stage.launch(&hub).await_ready();
        let ready = begin.elapsed().as_secs_f64();
        println!("many_sets: {sets}: ready in {ready:.2} s (target for 16,000: 1 s)");
        drop(daemon);
    }
}

/// A restart after 1,000 changes made while down.
fn restart() {
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(1_000, 10);
    stage.age();
    drop(stage.start(&hub));
    for set in 0..1_000 {
        replace(&stage.stage(set, 3, "while-down"), &stage.document(set, 3));
    }
    stage.age();
    std::thread::sleep(Duration::from_millis(1_200)); // ctime cannot be set back: let the files settle
    let begin = Instant::now();
    let daemon = stage.launch(&hub);
    let heard = hub.await_changes(1_000);
    println!(
        "restart: {heard} of 1,000 changes made while down delivered in {:.3} s (target 0.3 s)",
        begin.elapsed().as_secs_f64()
    );
    drop(daemon);
}

/// A Resource List of 50 MB, replaced.
fn large_list() {
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(1, 2);
    let daemon = stage.start(&hub);
    let before = peak_memory_mib(daemon.id());
    let mut times = Vec::new();
    for version in 0..5 {
        let staged = stage.stage_large(0, version);
        let begin = Instant::now();
        fs::rename(&staged, stage.document(0, 1)).expect("a rename");
        times.push(hub.next().duration_since(begin));
    }
    times.sort();
    println!(
        "large_list: 50 MB replaced, rename to POST: median {:.0} ms (target 120 ms, goal 80 ms); \
         {:.0} MiB more memory at its peak (target 32 MiB)",
        times[2].as_secs_f64() * 1e3,
        peak_memory_mib(daemon.id()) - before,
    );
}

/// A hub that takes 50 ms to answer, and 500 changed documents in 500 sets.
fn slow_hub() {
    let hub = Hub::start(Duration::from_millis(50));
    let stage = Stage::new(500, 2);
    let daemon = stage.start(&hub);
    let begin = Instant::now();
    for set in 0..500 {
        replace(&stage.stage(set, 1, "slow"), &stage.document(set, 1));
    }
    let heard = hub.await_changes(500);
    println!(
        "slow_hub: {heard} of 500 notifications to a hub that takes 50 ms each: {:.2} s (target 3 s; one by one: 25 s)",
        begin.elapsed().as_secs_f64()
    );
    drop(daemon);
}

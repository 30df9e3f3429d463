//! Delivery alone: how fast notifications follow one another, and what a dead hub costs a living one.

use std::time::{Duration, Instant};

use crate::hub::Hub;
use crate::stage::{Stage, replace, written_kib};

/// 10,000 notifications, ten after one another on each of 1,000 channels, each saved before it is sent: all changes
/// were made while no daemon ran, and a notification holds one.
pub fn hub_rate() {
    const SETS: usize = 1_000;
    const DOCUMENTS: usize = 11;
    const ONE_BY_ONE: &str = "quiet = \"0s\"\nmax_entries = 1";
    let hub = Hub::start(Duration::ZERO);
    let stage = Stage::new(SETS, DOCUMENTS);
    stage.age();
    drop(stage.start(&hub));
    for set in 0..SETS {
        for number in 1..DOCUMENTS {
            let staged = stage.stage(set, number, "while-down");
            replace(&staged, &stage.document(set, number));
        }
    }
    stage.age();
    let held = hub.hold();
    let daemon = stage.launch_with(ONE_BY_ONE, &hub.table(""));
    let daemon = daemon.await_ready();
    let written = written_kib(daemon.id());
    let begin = Instant::now();
    drop(held);
    let total = SETS * (DOCUMENTS - 1);
    let heard = hub.await_changes(total);
    let took = begin.elapsed().as_secs_f64();
    println!(
        "hub_rate: {heard} of {total} notifications on {SETS} channels, each saved before it is sent, in {took:.2} s: \
         {:.0} a second, over {} connections, {:.1} KiB written for each",
        heard as f64 / took,
        hub.connections(),
        (written_kib(daemon.id()) - written) / heard as f64,
    );
}

/// 1,000 channels with two hubs, one of which takes every request and never answers: what the other hears later for
/// that.
pub fn dead_hub() {
    let alone = delays(false);
    let beside = delays(true);
    let milliseconds =
        |times: &[Duration], part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3;
    for (what, alone, beside) in [
        ("one change at a time", &alone.single, &beside.single),
        ("1,000 channels at once", &alone.burst, &beside.burst),
    ] {
        let [median, p95] =
            [50, 95].map(|part| (milliseconds(alone, part), milliseconds(beside, part)));
        println!(
            "dead_hub: {what}, rename to POST: median {:.2} ms alone and {:.2} ms beside a dead hub, p95 {:.2} ms and \
             {:.2} ms: {:.2} ms and {:.2} ms are added",
            median.0,
            median.1,
            p95.0,
            p95.1,
            median.1 - median.0,
            p95.1 - p95.0,
        );
    }
}

/// Returns the delays between the renames and their notifications, in ascending order.
struct Delays {
    single: Vec<Duration>,
    burst: Vec<Duration>,
}

fn delays(has_dead_hub: bool) -> Delays {
    const SETS: usize = 1_000;
    let hub = Hub::start(Duration::ZERO);
    let dead = Hub::dead();
    let stage = Stage::new(SETS, 2);
    stage.age();
    let mut hubs = hub.table("");
    if has_dead_hub {
        hubs += &dead.table("timeout = \"1s\"");
    }
    let daemon = stage.launch_with("quiet = \"0s\"", &hubs).await_ready();
    // From here on something is on its way to the dead hub on every channel.
    let burst = |version: &str| {
        let staged: Vec<_> = (0..SETS).map(|set| stage.stage(set, 1, version)).collect();
        let begin = Instant::now();
        for (set, staged) in staged.iter().enumerate() {
            replace(staged, &stage.document(set, 1));
        }
        let mut times: Vec<Duration> = (0..SETS).map(|_| hub.next() - begin).collect();
        times.sort();
        times
    };
    burst("first");
    let mut single: Vec<Duration> = (0..300)
        .map(|number| {
            let set = number * 3;
            let staged = stage.stage(set, 1, &format!("v{number}"));
            let begin = Instant::now();
            replace(&staged, &stage.document(set, 1));
            hub.next() - begin
        })
        .collect();
    single.sort();
    let burst = burst("last");
    drop(daemon);
    Delays { single, burst }
}

//! The embedded hub: how fast a notification reaches its subscribers, and what it costs everything else.

use std::fs;
use std::time::{Duration, Instant};

use crate::callbacks::Callbacks;
use crate::stage::{Stage, current_memory_mib, peak_memory_mib, replace};

/// The set whose subscribers are counted, and one that has a single subscriber.
const CROWDED: usize = 0;
const QUIET: usize = 1;
/// So many changes make a notification of about 3 KB.
const CHANGES: usize = 18;

pub fn fan_out(subscribers: usize) {
    let callbacks = Callbacks::start();
    let single = Callbacks::start();
    let stage = Stage::new(2, 1 + CHANGES);
    let address = stage.reserve_address();
    drop(stage.start_with_embedded_hub(address));
    stage.subscribe(address, CROWDED, callbacks.address, subscribers);
    stage.subscribe(address, QUIET, single.address, 1);
    let daemon = stage.start_with_embedded_hub(address);
    let idle = current_memory_mib(daemon.id());

    let alone = latency(&stage, &single, 50, "alone");

    // Connections are made with the first notification, and kept for the second.
    for (round, version) in ["first", "second"].into_iter().enumerate() {
        for number in 1..=CHANGES {
            let staged = stage.stage(CROWDED, number, version);
            replace(&staged, &stage.document(CROWDED, number));
        }
        let begin = Instant::now();
        let first = callbacks.next(Duration::from_secs(60)).expect("a delivery");
        let beside = match round {
            0 => None,
            _ => Some(latency(&stage, &single, 10, "beside")),
        };
        let mut last = first;
        let mut heard = 1;
        while heard < subscribers {
            let Some(at) = callbacks.next(Duration::from_secs(30)) else {
                break;
            };
            last = last.max(at);
            heard += 1;
        }
        let rate = heard as f64 / last.duration_since(first).as_secs_f64();
        println!(
            "fan_out: {version} notification to {heard} of {subscribers} subscribers: first after {:.1} ms (100 of it the \
             window), last after {:.1} ms: {rate:.0}/s (target 3,000)",
            first.duration_since(begin).as_secs_f64() * 1e3,
            last.duration_since(begin).as_secs_f64() * 1e3,
        );
        if let Some(beside) = beside {
            println!(
                "fan_out: another channel, rename to POST (100 ms of it the window): median {:.1} ms alone, {:.1} ms (worst \
                 {:.1} ms) during it",
                middle(&alone),
                middle(&beside),
                beside.last().copied().unwrap_or_default(),
            );
        }
    }
    println!(
        "fan_out: {subscribers} subscriptions: {idle:.0} MiB at rest, {:.0} MiB after, {:.0} MiB at most",
        current_memory_mib(daemon.id()),
        peak_memory_mib(daemon.id()),
    );
}

/// Measures the delay for a subscriber when 20 others of its topic hang.
pub fn hanging_callbacks() {
    let times = |hanging: usize| {
        let (single, others) = (Callbacks::start(), Callbacks::hanging());
        let stage = Stage::new(2, 1 + CHANGES);
        let address = stage.reserve_address();
        drop(stage.start_with_embedded_hub(address));
        stage.subscribe(address, QUIET, others.address, hanging);
        stage.subscribe(address, QUIET, single.address, 1);
        let _daemon = stage.start_with_embedded_hub(address);
        latency(&stage, &single, 50, "hanging")
    };
    let (alone, beside) = (times(0), times(20));
    let worst = |times: &[f64]| times.last().copied().unwrap_or_default();
    println!(
        "hanging_callbacks: rename to POST (100 ms of it the window): median {:.1} ms, worst {:.1} ms; beside 20 that \
         hang {:.1} ms, worst {:.1} ms (target: 50 ms more)",
        middle(&alone),
        worst(&alone),
        middle(&beside),
        worst(&beside),
    );
}

/// 10,000 callbacks that hang, on ten hosts, and 20 that answer: when the last of the 20 has heard of each change.
pub fn hanging_hosts() {
    let hosts = [
        "127.0.1.1",
        "127.0.2.1",
        "127.0.3.1",
        "127.0.4.1",
        "127.0.5.1",
        "127.0.6.1",
        "127.0.7.1",
        "127.0.8.1",
        "127.0.9.1",
        "127.0.10.1",
    ];
    let hanging = hosts.map(|host| Callbacks::at(host, false));
    let honest = Callbacks::at("127.0.11.1", true);
    let stage = Stage::new(2, 1 + CHANGES);
    let address = stage.reserve_address();
    drop(stage.start_with_embedded_hub(address));
    for callbacks in &hanging {
        stage.subscribe(address, QUIET, callbacks.address, 1_000);
    }
    stage.subscribe(address, QUIET, honest.address, 20);
    let _daemon = stage.start_with_embedded_hub(address);
    for round in 1..=3 {
        let staged = stage.stage(QUIET, 1, &format!("hosts-{round}"));
        let begin = Instant::now();
        fs::rename(&staged, stage.document(QUIET, 1)).expect("a rename");
        let arrivals = (0..20).map_while(|_| honest.next(Duration::from_secs(60)));
        let arrivals: Vec<Instant> = arrivals.collect();
        let last = arrivals.last().copied().unwrap_or_else(Instant::now);
        println!(
            "hanging_hosts: change {round}: {} of 20 that answer heard of it within {:.2} s (target 2 s), beside \
             10,000 callbacks on ten hosts that hang",
            arrivals.len(),
            last.duration_since(begin).as_secs_f64()
        );
    }
}

/// Times from the rename of a document of the quiet set to its delivery, in milliseconds and in order.
fn latency(stage: &Stage, single: &Callbacks, rounds: usize, name: &str) -> Vec<f64> {
    let mut times = Vec::new();
    for round in 0..rounds {
        let staged = stage.stage(QUIET, 1, &format!("{name}-{round}"));
        let begin = Instant::now();
        fs::rename(&staged, stage.document(QUIET, 1)).expect("a rename");
        let at = single.next(Duration::from_secs(60)).expect("a delivery");
        times.push(at.duration_since(begin).as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    times
}

fn middle(times: &[f64]) -> f64 {
    times.get(times.len() / 2).copied().unwrap_or_default()
}

//! Message brokers: from the end of the window to the last receipt, 500 notifications at once, and feeds for 5,000 changes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::brokers::{ActiveMq, PASSWORD, RabbitMq, USER};
use crate::changes::{Entries, write};
use crate::stage::{Daemon, Stage};
use crate::stomp::FakeBroker;

/// Notifications at once, each of another set.
const NOTIFICATIONS: usize = 500;
/// Notifications one after another.
const ONE_BY_ONE: usize = 200;
/// Changes at once, each of another object.
const CHANGES: usize = 5_000;
/// Changes of one notification.
const MAX_ENTRIES: usize = 1_000;

/// A broker that takes everything at once, and those that are installed.
pub fn receipts() {
    let fake = FakeBroker::start();
    measure(
        "a broker that only counts",
        &table(fake.address, "", "/topic/{source}"),
    );
    match ActiveMq::start() {
        Some(broker) => {
            let login = login(USER, PASSWORD);
            measure(
                "ActiveMQ",
                &table(broker.stomp, &login, "/topic/open.{source}"),
            );
        }
        None => println!("broker: activemq is not installed"),
    }
    match RabbitMq::start() {
        Some(broker) => {
            let login = login("guest", "guest");
            measure("RabbitMQ", &table(broker.stomp, &login, "/queue/{source}"));
        }
        None => println!("broker: rabbitmq-server is not installed"),
    }
}

fn measure(name: &str, table: &str) {
    let stage = Stage::new(1, 2);
    let change =
        |stage: &Stage, set: usize, count: usize| write(stage, (set, 1), Entries::of(0, count));
    change(&stage, 0, 1);
    let daemon = start(&stage, table);
    let mut times: Vec<f64> = (0..ONE_BY_ONE)
        .map(|number| {
            change(&stage, 0, number + 2);
            daemon.delivered().as_secs_f64() * 1e3
        })
        .collect();
    drop(daemon);
    times.sort_by(f64::total_cmp);
    println!(
        "broker: {name}: window closed to receipt, saved in between: median {:.2} ms, p95 {:.2} ms (target 10 ms)",
        times[times.len() / 2],
        times[times.len() * 95 / 100],
    );
    let stage = Stage::new(NOTIFICATIONS, 2);
    for set in 0..NOTIFICATIONS {
        change(&stage, set, 1);
    }
    let daemon = start(&stage, table);
    let begin = Instant::now();
    for set in 0..NOTIFICATIONS {
        change(&stage, set, 2);
    }
    for _ in 0..NOTIFICATIONS {
        daemon.delivered();
    }
    println!(
        "broker: {name}: {NOTIFICATIONS} notifications of as many sets, written and taken in {:.2} s (target 2 s)",
        begin.elapsed().as_secs_f64()
    );
    feeds(name, table);
}

/// From the rename of a Change List to the last receipt of a feed for each of its new entries.
fn feeds(name: &str, table: &str) {
    let stage = Stage::new(1, 2);
    write(&stage, (0, 1), Entries::of(0, 1));
    let daemon = start(&stage, &format!("{table}payload = \"atom\"\n"));
    let begin = Instant::now();
    write(&stage, (0, 1), Entries::of(0, 1 + CHANGES));
    for _ in 0..CHANGES / MAX_ENTRIES {
        daemon.delivered();
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "broker: {name}: {CHANGES} changes, a feed each, listed to the last receipt in {seconds:.2} s: {:.0} changes per second",
        CHANGES as f64 / seconds
    );
}

fn start(stage: &Stage, table: &str) -> Daemon {
    stage.age();
    let window = "quiet = \"1h\"\nmax_wait = \"1h\"\nchange_quiet = \"0s\"";
    let daemon = stage.launch_with_changes(window, table).await_ready();
    std::thread::sleep(Duration::from_secs(2)); // the lists are learned
    daemon
}

fn table(address: SocketAddr, login: &str, destination: &str) -> String {
    format!(
        "[[hub]]\nurl = \"http://127.0.0.1:9/\"\n[[broker]]\nname = \"broker\"\nurl = \"stomp://{address}\"\n\
         destination = \"{destination}\"\n{login}"
    )
}

fn login(user: &str, password: &str) -> String {
    let file = std::env::temp_dir().join(format!("rsnotify-bench-{user}-{}", std::process::id()));
    std::fs::write(&file, password).expect("a file");
    format!(
        "username = \"{user}\"\npassword_file = \"{}\"\n",
        file.display()
    )
}

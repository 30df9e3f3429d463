//! Hubs that fail and recover.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::daemon::{Setup, assert_contains};
use crate::support::documents::{Site, list};
use crate::support::hub::{FakeHub, Manner};

#[test]
fn forty_channels_of_a_failing_hub_are_one_trouble_and_told_as_soon_as_it_is_back() {
    const SETS: usize = 40;
    let site = Site::empty();
    let sets: Vec<String> = (0..SETS).map(|number| format!("s{number:02}")).collect();
    for set in &sets {
        site.add_set(set);
    }
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    let daemon = setup.start();
    hub.behave(Manner::Refuse(503));
    for set in &sets {
        let name = format!("{set}/changelist.xml");
        site.write(&name, &list(set, "changelist", "2"));
    }
    // At most 15 in 30 s (R23), but for the two of the beginning.
    let attempts = 5;
    let first = (0..attempts).map(|_| hub.request().at).min().unwrap();
    assert!(first.elapsed() > Duration::from_secs(5));
    assert_eq!(daemon.status()["failing_hubs"][0]["hub"], hub.url());
    let (_, metrics) = daemon.get_admin("/metrics");
    let gauge = format!("rsnotify_hub_failing{{hub=\"{}\"}} 1", hub.url());
    assert_contains(&metrics, &gauge);

    hub.behave(Manner::Accept);
    let returned = Instant::now();
    let told = (0..SETS).map(|_| hub.notification().at).max().unwrap();
    let took = told.saturating_duration_since(returned);
    // 3 s on a machine that has nothing else to do.
    assert!(took < Duration::from_secs(6), "{took:?}");
    daemon.await_log("recovered");
    let count = |status: &Value, what: &str| -> u64 {
        let intervals = status["last_day"].as_array().unwrap().iter();
        intervals.map(|one| one[what].as_u64().unwrap()).sum()
    };
    let status = daemon.await_status(|status| count(status, "delivered") == SETS as u64);
    assert!(count(&status, "failed") >= attempts, "{status}");
    let (_, log) = daemon.stop_and_tell();
    let refused = |line: &&String| line.contains("did not accept");
    let lines = log
        .iter()
        .filter(refused)
        .filter(|line| !line.contains("\"DEBUG\""));
    assert!(
        lines.count() <= 2,
        "a line for the hub, not for each channel"
    );
}

#[test]
fn slow_answers_are_waited_for_side_by_side() {
    let site = Site::empty();
    let sets: Vec<String> = (0..40).map(|set| format!("s{set}")).collect();
    for set in &sets {
        site.add_set(set);
    }
    let hub = FakeHub::start();
    hub.behave(Manner::AcceptAfter(Duration::from_millis(500)));
    let setup = Setup::new(&site, &[hub.url()], "");
    let _daemon = setup.start();
    for set in &sets {
        site.write_list(set, "changelist", "2");
    }
    let first = hub.notification().at;
    let last = (1..sets.len())
        .map(|_| hub.notification().at)
        .max()
        .unwrap();
    // One after the other, they would take 20 seconds.
    assert!(last - first < Duration::from_secs(10));
}

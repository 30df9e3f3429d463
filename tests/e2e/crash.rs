//! `kill -9` at any moment loses nothing and invents nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::DEADLINE;
use crate::daemon::Setup;
use crate::documents::{Site, list};
use crate::hub::FakeHub;

#[test]
fn every_change_is_delivered_at_least_once_across_kills_and_none_is_invented() {
    const SETS: usize = 10;
    const CHANGES: usize = 200;
    let site = Site::empty();
    for set in 0..SETS {
        site.add_set(&format!("s{set}"));
    }
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    let mut daemon = setup.start();
    let mut written: BTreeMap<String, usize> = BTreeMap::new();
    let mut random = 88_172_645_463_325_252_u64;
    for change in 0..CHANGES {
        let set = format!("s{}", change % SETS);
        let path = format!("{set}/changelist.xml");
        site.write(
            &path,
            &list(&set, "changelist", &format!("change-{change}")),
        );
        *written
            .entry(format!("updated changelist {path}"))
            .or_default() += 1;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if random.is_multiple_of(12) {
            daemon.kill();
            // Half of the time the next change comes before the daemon does.
            daemon = if random & 16 == 0 {
                setup.start()
            } else {
                setup.launch()
            };
        }
    }
    // Every set's last state is told: nothing is due any more, and a last change is heard alone.
    let deadline = Instant::now() + DEADLINE;
    let mut heard: BTreeMap<String, usize> = BTreeMap::new();
    loop {
        for request in hub.heard() {
            for change in request.changes() {
                *heard.entry(change).or_default() += 1;
            }
        }
        let pending = setup
            .scan()
            .iter()
            .filter(|document| document["state"] == "pending")
            .count();
        if pending == 0 && heard.len() == SETS {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{pending} pending; heard {heard:?}"
        );
        std::thread::sleep(Duration::from_millis(50)); // polls until the deadline
    }
    for (change, count) in &heard {
        assert!(
            written.contains_key(change),
            "{change} was invented, {count} times"
        );
    }
    assert_eq!(
        heard.keys().collect::<Vec<_>>(),
        written.keys().collect::<Vec<_>>()
    );
    drop(daemon);
    let _daemon = setup.start();
    site.write("s0/resourcelist.xml", &list("s0", "resourcelist", "last"));
    let last = hub.changes_until(&["updated resourcelist s0/resourcelist.xml"]);
    // What was accepted, but not yet known to be when the daemon died, may come once more.
    assert!(
        last.iter()
            .all(|change| written.contains_key(change) || change.contains("s0/resourcelist"))
    );
}

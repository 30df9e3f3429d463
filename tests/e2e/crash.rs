//! `kill -9` at any moment loses no change and announces nothing false.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use resourcesync::payload::Payload;

use crate::support::DEADLINE;
use crate::support::daemon::Setup;
use crate::support::documents::{Site, capability_list, list};
use crate::support::hub::FakeHub;

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
    // Every second change makes a document that must be heard of, whatever comes after; the others rewrite
    // one, whose last version must be heard of.
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let mut rewritten: BTreeMap<String, Timestamp> = BTreeMap::new();
    let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut random = 88_172_645_463_325_252_u64;
    for change in 0..CHANGES {
        let set = format!("s{}", change % SETS);
        if change == CHANGES - 2 * SETS {
            // Sets the last rewrites apart from those before by more than the file system's clock ticks.
            std::thread::sleep(5 * TICK); // no wait for an event, so no deadline
        }
        if (change / SETS).is_multiple_of(2) {
            let path = format!("{set}/changelist.xml");
            rewritten.insert(format!("updated changelist {path}"), Timestamp::now());
            site.write(
                &path,
                &list(&set, "changelist", &format!("change-{change}")),
            );
        } else {
            let name = format!("changedump-{change}");
            let members = members.entry(set.clone()).or_default();
            members.push(name.clone());
            let names: Vec<&str> = members.iter().map(String::as_str).collect();
            let dump = list(&set, "changedump", &format!("change-{change}"));
            site.write(&format!("{set}/{name}.xml"), &dump);
            site.write(
                &format!("{set}/capabilitylist.xml"),
                &capability_list(&set, &names),
            );
            wanted.insert(format!("created changedump {set}/{name}.xml"));
            rewritten.insert(
                format!("updated capabilitylist {set}/capabilitylist.xml"),
                Timestamp::UNIX_EPOCH,
            );
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if random.is_multiple_of(12) {
            daemon.kill();
            // Half of the time the next change comes before the daemon is ready.
            daemon = if random & 16 == 0 {
                setup.start()
            } else {
                setup.launch()
            };
        }
    }
    let deadline = Instant::now() + DEADLINE;
    let mut heard: BTreeMap<String, Timestamp> = BTreeMap::new();
    let is_told = |heard: &BTreeMap<String, Timestamp>| {
        let all_made = wanted.iter().all(|change| heard.contains_key(change));
        let is_last = |(change, written): (&String, &Timestamp)| {
            heard.get(change).is_some_and(|at| *at + TICK >= *written)
        };
        all_made && rewritten.iter().all(is_last)
    };
    while !is_told(&heard) {
        for request in hub.heard() {
            let payload = Payload::parse(&request.body).unwrap();
            for (change, entry) in request.changes().into_iter().zip(payload.entries) {
                assert!(
                    wanted.contains(&change) || rewritten.contains_key(&change),
                    "{change} was invented"
                );
                let at = heard.entry(change).or_insert(Timestamp::MIN);
                *at = entry.datetime.unwrap().max(*at);
            }
        }
        if Instant::now() >= deadline {
            let unheard: Vec<_> = wanted
                .iter()
                .filter(|change| !heard.contains_key(*change))
                .collect();
            let late: Vec<_> = rewritten
                .iter()
                .map(|(change, at)| (change, at, heard.get(change)))
                .filter(|(_, at, heard)| heard.is_none_or(|heard| *heard + TICK < **at))
                .collect();
            panic!("not heard of {unheard:?}, nor of the last of {late:?}");
        }
        std::thread::sleep(Duration::from_millis(20)); // polls until the deadline
    }
    drop(daemon);
}

/// Largest delay of a file's times behind the clock.
const TICK: Duration = Duration::from_millis(10);

#[test]
fn a_daemon_that_has_just_begun_can_be_stopped() {
    let setup = Setup::new(&Site::new(), &["http://h.example/".to_owned()], "");
    for _ in 0..5 {
        assert!(setup.launch().stop().success());
    }
}

//! A reload during deliveries: each change is announced once, and nothing waits for a hub that hangs.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::reload::{CHANGE, another_hub, change, change_window, reload};
use crate::support::daemon::{Daemon, Setup, assert_ends_with, assert_none_contains};
use crate::support::documents::{Site, capability_list};
use crate::support::hub::{FakeHub, Manner};

/// Starts the daemon, whose hub refuses a change with this status.
fn start_refused(site: &Site, hub: &FakeHub, setup: &Setup, status: u16) -> Daemon {
    hub.behave(Manner::Refuse(status));
    let daemon = setup.start();
    change(site, "2");
    hub.request();
    daemon
}

#[test]
fn a_new_hub_starts_at_now() {
    let (site, hub, other) = (Site::new(), FakeHub::start(), FakeHub::start());
    let mut setup = Setup::new(&site, &[hub.url()], "");
    let daemon = setup.start();
    change(&site, "2");
    hub.notification();
    setup.config += &another_hub(&other);
    let said = reload(&daemon, &setup);
    assert_ends_with(&said, &format!("hub {} added", other.url()));
    change(&site, "3");
    other.assert_told([CHANGE]);
    hub.assert_told([CHANGE]);
    daemon.stop();
    assert!(hub.heard().is_empty() && other.heard().is_empty());
}

#[test]
fn changes_due_to_a_removed_hub_are_dropped_and_logged() {
    let (site, hub, other) = (Site::new(), FakeHub::start(), FakeHub::start());
    let mut setup = Setup::new(&site, &[hub.url()], "");
    let without = setup.config.clone();
    setup.config += &another_hub(&other);
    let with = setup.config.clone();
    let daemon = setup.start();
    other.behave(Manner::Wait);
    change(&site, "2");
    hub.notification();
    other.request();
    setup.config = without;
    reload(&daemon, &setup);
    let dropped = daemon.await_log("is no longer configured");
    assert_eq!(dropped["hub"], other.url(), "{dropped}");
    // The answer to what was under way means nothing any more, and what comes later is not for it.
    other.behave(Manner::Accept);
    change(&site, "3");
    hub.notification();
    setup.config = with;
    reload(&daemon, &setup);
    change(&site, "4");
    other.assert_told([CHANGE]);
    hub.notification();
    daemon.stop();
    assert!(hub.heard().is_empty() && other.heard().is_empty());
}

#[test]
fn a_rotated_secret_is_in_the_next_request() {
    let (site, hub, mut setup) = Setup::announcing("");
    setup.replace("[[hub]]\n", "[[hub]]\nbearer_token_file = \"token\"\n");
    let token = setup.state.path().join("token");
    std::fs::write(&token, "first-token").unwrap();
    let daemon = setup.start();
    change(&site, "2");
    let authorization = |hub: &FakeHub| hub.notification().headers["authorization"].clone();
    assert_eq!(authorization(&hub), "Bearer first-token");
    std::fs::write(&token, "second-token").unwrap();
    let said = reload(&daemon, &setup);
    let want = format!("reloaded the configuration: hub {} changed", hub.url());
    assert_eq!(said, want);
    change(&site, "3");
    assert_eq!(authorization(&hub), "Bearer second-token");
    let (_, log) = daemon.stop_and_tell();
    assert_none_contains(&log, "-token\"");
}

#[test]
fn a_burst_of_changes_is_told_once_through_many_reloads() {
    let (site, hub) = (Site::new(), FakeHub::start());
    let sets: Vec<String> = (0..30).map(|number| format!("set{number}")).collect();
    for set in &sets {
        site.write(
            &format!("{set}/capabilitylist.xml"),
            &capability_list(set, &["changelist"]),
        );
        site.write_list(set, "changelist", "1");
    }
    let mut setup = Setup::new(&site, &[hub.url()], "");
    let daemon = setup.start();
    hub.answer_after(Duration::from_millis(50));
    for (at, set) in sets.iter().enumerate() {
        site.write_list(set, "changelist", "2");
        if at % 3 == 0 {
            change_window(&mut setup);
            reload(&daemon, &setup);
        }
    }
    let wanted: Vec<String> = sets
        .iter()
        .map(|set| format!("updated changelist {set}/changelist.xml"))
        .collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let told = hub.changes_until(&wanted);
    assert!(daemon.stop().success());
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let late = hub.heard();
    let late = late.iter().flat_map(|request| request.changes());
    for change in told.into_iter().chain(late) {
        *counts.entry(change).or_default() += 1;
    }
    assert_eq!(counts.len(), wanted.len(), "{counts:#?}");
    assert!(counts.values().all(|count| *count == 1), "{counts:#?}");
}

#[test]
fn what_is_under_way_is_not_sent_again_and_its_answer_counts() {
    let (site, hub, slow) = (Site::new(), FakeHub::start(), FakeHub::start());
    let mut setup = Setup::new(&site, &[hub.url(), slow.url()], "");
    let daemon = setup.start();
    slow.behave(Manner::Wait);
    change(&site, "2");
    assert_eq!(slow.request().changes(), [CHANGE]);
    hub.notification();
    // Neither a reload nor another hub waits for the one that does not answer.
    for content in ["3", "4"] {
        change_window(&mut setup);
        reload(&daemon, &setup);
        change(&site, content);
        hub.assert_told([CHANGE]);
    }
    assert!(slow.heard().is_empty(), "it has one request, not answered");
    slow.behave(Manner::Accept);
    let next = slow.request();
    assert_eq!(next.changes(), [CHANGE], "the difference since then");
    daemon.await_status(|now| {
        let hubs = now["channels"][0]["hubs"].as_array().unwrap();
        hubs.iter().all(|hub| hub["due"] == 0)
    });
    daemon.stop();
    assert!(slow.heard().is_empty() && hub.heard().is_empty());
}

#[test]
fn a_hub_that_replaces_another_receives_what_that_was_due() {
    let (site, hub, other) = (Site::new(), FakeHub::start(), FakeHub::start());
    let mut setup = Setup::new(&site, &[hub.url()], "");
    let daemon = start_refused(&site, &hub, &setup, 503);
    setup.replace(&hub.url(), &other.url());
    reload(&daemon, &setup);
    let replaced = daemon.await_log("takes over its pending changes");
    assert_eq!(replaced["hub"], hub.url(), "{replaced}");
    assert_eq!(replaced["by"], other.url(), "{replaced}");
    other.assert_told([CHANGE]);
    daemon.stop();
}

#[test]
fn a_hub_that_replaces_another_and_takes_nothing_over_starts_now() {
    let (site, hub, other) = (Site::new(), FakeHub::start(), FakeHub::start());
    let mut setup = Setup::new(&site, &[hub.url()], "");
    let daemon = start_refused(&site, &hub, &setup, 503);
    setup.replace(&hub.url(), &other.url());
    setup.replace("[[hub]]\n", "[[hub]]\nreplaces = \"nothing\"\n");
    reload(&daemon, &setup);
    let dropped = daemon.await_log("is no longer configured");
    let words = dropped["message"].as_str().unwrap();
    assert!(words.contains("`replaces`"), "{dropped}");
    site.write_list("a", "resourcelist", "2");
    other.assert_told(["updated resourcelist a/resourcelist.xml"]);
    daemon.stop();
}

#[test]
fn a_hub_that_names_the_one_it_replaces_among_several_hears_what_that_was_due() {
    let (site, hub) = (Site::new(), FakeHub::start());
    let (stays, other) = (FakeHub::start(), FakeHub::start());
    let mut setup = Setup::new(&site, &[hub.url(), stays.url()], "");
    let daemon = start_refused(&site, &hub, &setup, 503);
    stays.assert_told([CHANGE]);
    let replacing = format!("url = \"{}\"\nreplaces = \"{}\"", other.url(), hub.url());
    setup.replace(&format!("url = \"{}\"", hub.url()), &replacing);
    reload(&daemon, &setup);
    other.assert_told([CHANGE]);
    daemon.stop();
}

#[test]
fn what_waited_for_another_address_is_tried_at_once() {
    let (site, hub, other) = (Site::new(), FakeHub::start(), FakeHub::start());
    let mut setup = Setup::new(&site, &["https://hub.example/".to_owned()], "");
    let address = format!("publish_url = \"{}\"", hub.url());
    setup.replace("[[hub]]\n", &format!("[[hub]]\n{address}\n"));
    let daemon = start_refused(&site, &hub, &setup, 403);
    daemon.await_log("did not accept notification");
    setup.replace(&hub.url(), &other.url());
    reload(&daemon, &setup);
    other.assert_told([CHANGE]);
    daemon.stop();
}

#[test]
fn what_waited_in_another_mode_is_tried_at_once() {
    let (site, hub, mut setup) = Setup::announcing("");
    let daemon = start_refused(&site, &hub, &setup, 403);
    daemon.await_log("did not accept notification");
    hub.behave(Manner::Accept);
    setup.replace("mode = \"content\"", "mode = \"ping\"");
    reload(&daemon, &setup);
    let ping = hub.request();
    assert_eq!(
        ping.headers["content-type"],
        "application/x-www-form-urlencoded"
    );
    daemon.stop();
}

#[test]
fn what_waited_for_other_credentials_is_tried_at_once() {
    let (site, hub, mut setup) = Setup::announcing("");
    setup.replace("[[hub]]\n", "[[hub]]\nbearer_token_file = \"token\"\n");
    let token = setup.state.path().join("token");
    std::fs::write(&token, "first-token").unwrap();
    let daemon = start_refused(&site, &hub, &setup, 401);
    daemon.await_log("did not accept notification");
    hub.behave(Manner::Accept);
    std::fs::write(&token, "second-token").unwrap();
    reload(&daemon, &setup);
    let request = hub.notification();
    assert_eq!(request.headers["authorization"], "Bearer second-token");
    daemon.stop();
}

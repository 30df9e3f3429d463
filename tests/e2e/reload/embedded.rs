//! The embedded hub during a reload: subscriptions stay, deliveries are made once, new settings apply at once.

use rustix::process::Signal;

use crate::embedded::subscribe;
use crate::own_hub::setup::ask_to_subscribe;
use crate::reload::{CHANGE, assert_reloaded, change, change_window, reload};
use crate::subscriptions::{delivering, join, topic};
use crate::support::daemon::{Daemon, Setup};
use crate::support::documents::Site;
use crate::support::hub::{FakeHub, Manner};

fn status_of_subscribing(daemon: &Daemon) -> u16 {
    let (topic, callback) = (topic(daemon, "a"), "http://127.0.0.1:9/c");
    ask_to_subscribe(daemon.public, &topic, callback, &[]).status
}

#[test]
fn a_delivery_under_way_is_made_once_and_the_next_follows() {
    let (site, mut setup, daemon, subscriber) = delivering();
    change_window(&mut setup);
    reload(&daemon, &setup);
    site.write_list("a", "resourcelist", "2");
    daemon.await_log("delivered notification 2");
    assert!(subscriber.heard().is_empty());
    subscriber.behave(Manner::Accept);
    let next = subscriber.request().changes();
    assert_eq!(next, ["updated resourcelist a/resourcelist.xml"]);
    assert!(daemon.stop().success());
    assert!(subscriber.heard().is_empty());
}

#[test]
fn other_networks_hold_from_the_next_request_on() {
    let (_site, mut setup) = Setup::embedding("");
    let open = setup.config.clone();
    let daemon = setup.start();
    let status = || status_of_subscribing(&daemon);
    assert_eq!(status(), 202);
    setup.config = open.replace("\"127.0.0.0/8\", ", "");
    assert_reloaded(&daemon, &setup, "embedded hub /hub changed");
    assert_eq!(status(), 403);
    setup.config = open;
    reload(&daemon, &setup);
    assert_eq!(status(), 202);
}

#[test]
fn subscribers_stay_while_the_hub_is_away_and_it_takes_others_when_it_is_back() {
    let (site, hub) = (Site::new(), FakeHub::start());
    let mut setup = Setup::new(&site, &[], "");
    let embedded = setup.config.clone();
    let daemon = setup.start();
    let subscriber = FakeHub::start();
    join(&daemon, &subscriber, "a");
    setup.config = format!("{embedded}{}", hub.table(""))
        .replace("[embedded_hub]", "[embedded_hub]\nenabled = false");
    let said = reload(&daemon, &setup);
    assert!(said.ends_with("embedded hub /hub removed"), "{said}");
    assert_eq!(status_of_subscribing(&daemon), 404);
    change(&site, "2");
    hub.assert_told([CHANGE]);
    setup.config = embedded;
    reload(&daemon, &setup);
    change(&site, "3");
    // What came while it was away was for others: a hub starts at now.
    assert_eq!(subscriber.request().changes(), [CHANGE]);
    join(&daemon, &FakeHub::start(), "a");
    assert!(daemon.stop().success());
    assert!(subscriber.heard().is_empty() && hub.heard().is_empty());
}

#[test]
fn a_hub_that_is_new_takes_subscriptions_to_the_topics_of_a_new_public_url() {
    let (site, hub, mut setup, daemon) = Setup::start_announcing("");
    setup.config = setup
        .config
        .replace("[embedded_hub]", "[embedded_hub]\nenabled = true")
        .replace("topics.example", "topics.example:8443");
    reload(&daemon, &setup);
    daemon.await_log("opened channel https://topics.example:8443/");
    let subscriber = FakeHub::start();
    let topic = "https://topics.example:8443/topics/main/a/capabilitylist/";
    subscribe(
        daemon.public,
        topic,
        &format!("http://{}/c", subscriber.address),
    );
    daemon.await_log(" subscribed to ");
    assert!(subscriber.request().challenge().is_some());
    change(&site, "2");
    assert_eq!(subscriber.request().changes(), [CHANGE]);
    hub.assert_told([CHANGE]);
}

#[test]
fn what_a_hub_that_is_away_has_begun_may_end_before_the_daemon_does() {
    let (_site, mut setup, daemon, subscriber) = delivering();
    let hub = FakeHub::start();
    setup.config = format!("{}{}", setup.config, hub.table(""))
        .replace("[embedded_hub]", "[embedded_hub]\nenabled = false");
    reload(&daemon, &setup);
    daemon.signal(Signal::TERM);
    daemon.await_log("stopping");
    // It is there as long as it waits for the subscriber.
    for _ in 0..20 {
        daemon.status();
    }
    subscriber.behave(Manner::Accept);
    daemon.await_log("stopped; everything is saved");
    assert!(daemon.stop().success());
    assert!(subscriber.heard().is_empty());
}

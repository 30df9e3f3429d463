//! A reload during deliveries: each change is announced once, and nothing waits for a hub that hangs.

use rstest::rstest;

use crate::reload::{CHANGE, change, change_window, reload};
use crate::support::daemon::{Daemon, Setup};
use crate::support::documents::Site;
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

/// The part of a hub's settings that a reload changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Corrected {
    Address,
    Mode,
    Credentials,
}

#[rstest]
fn what_a_hub_refused_is_tried_at_once_when_its_settings_are_corrected(
    #[values(Corrected::Address, Corrected::Mode, Corrected::Credentials)] corrected: Corrected,
) {
    let (site, hub, other) = (Site::new(), FakeHub::start(), FakeHub::start());
    let mut setup = Setup::new(&site, &["https://hub.example/".to_owned()], "");
    let publish_url = format!("publish_url = \"{}\"", hub.url());
    let keys = format!("[[hub]]\n{publish_url}\nbearer_token_file = \"token\"\n");
    setup.replace("[[hub]]\n", &keys);
    let token = setup.state.path().join("token");
    std::fs::write(&token, "first").unwrap();
    let (status, told, content_type, bearer) = match corrected {
        Corrected::Address => (403, &other, "application/xml", "first"),
        Corrected::Mode => (403, &hub, "application/x-www-form-urlencoded", "first"),
        Corrected::Credentials => (401, &hub, "application/xml", "second"),
    };
    let daemon = start_refused(&site, &hub, &setup, status);
    daemon.await_log("did not accept notification");
    hub.behave(Manner::Accept);
    match corrected {
        Corrected::Address => setup.replace(&hub.url(), &other.url()),
        Corrected::Mode => setup.replace("mode = \"content\"", "mode = \"ping\""),
        Corrected::Credentials => std::fs::write(&token, "second").unwrap(),
    }
    reload(&daemon, &setup);
    let request = told.notification();
    assert_eq!(request.headers["content-type"], content_type);
    let authorization = format!("Bearer {bearer}");
    assert_eq!(request.headers["authorization"], authorization);
    daemon.stop();
}

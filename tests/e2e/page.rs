//! The status page over HTTP: permitted hosts, headers, and the targets of its links.

use std::net::SocketAddr;

use serde_json::Value;

use crate::support::daemon::{Daemon, Setup, assert_contains, assert_starts_with, exchange};
use crate::support::documents::Site;
use crate::support::hub::FakeHub;

const PAGES: &str = "/ /channels /channel?topic= /subscriptions /payload /configuration";

fn told() -> (Site, FakeHub, Setup, Daemon) {
    let (site, hub, setup, daemon) = Setup::start_announcing("");
    site.write_list("a", "changelist", "2");
    daemon.await_log("delivered notification 1");
    (site, hub, setup, daemon)
}

/// The answer to a request without a body.
fn ask(address: SocketAddr, method: &str, target: &str, host: &str) -> String {
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    exchange(address, request).unwrap()
}

#[test]
fn the_pages_only_answer_under_their_own_name_and_change_and_load_nothing() {
    let (_site, _hub, _setup, daemon) = told();
    for page in PAGES.split(' ') {
        let answer = ask(daemon.admin, "GET", page, "rebound.example");
        assert!(answer.starts_with("HTTP/1.1 421 "), "{page}: {answer}");
        for method in ["POST", "PUT", "DELETE"] {
            let answer = ask(daemon.admin, method, page, "localhost");
            assert_starts_with(&answer, "HTTP/1.1 405 ");
            assert_contains(&answer, "\r\nallow: GET,HEAD\r\n");
        }
    }
    // A browser is told to run, load and keep nothing.
    for (page, content_type) in [("/", "text/html"), ("/configuration", "text/plain")] {
        let (head, _) = daemon.get_admin(page);
        for header in [
            "content-security-policy: default-src 'none'; style-src 'sha256-",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "referrer-policy: no-referrer",
            &format!("content-type: {content_type}; charset=utf-8"),
        ] {
            assert_contains(&head, header);
        }
    }
}

#[test]
fn the_last_day_outlives_the_daemon_and_has_its_starts() {
    let (_site, _hub, setup, daemon) = told();
    let sum = |status: &Value, what: &str| -> u64 {
        let intervals = status["last_day"].as_array().unwrap().iter();
        intervals.map(|one| one[what].as_u64().unwrap()).sum()
    };
    let status = daemon.await_status(|status| sum(status, "delivered") == 1);
    assert_eq!(sum(&status, "starts"), 1, "{status}");
    assert_eq!(status["daemon"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(daemon.stop().success());
    // The second is killed: its start was saved when it was ready.
    setup.start().kill();
    let daemon = setup.start();
    let status = daemon.status();
    assert_eq!((sum(&status, "delivered"), sum(&status, "starts")), (1, 3));
    let (_, page) = daemon.get_admin("/");
    let host = status["daemon"]["host"].as_str().unwrap();
    let header = format!("{host}, version {}, up ", env!("CARGO_PKG_VERSION"));
    for part in [header.as_str(), "starts of rsnotify: 3"] {
        assert_contains(&page, part);
    }
}

#[test]
fn a_payload_is_served_as_it_was_sent_and_what_is_not_there_is_not_found() {
    let (_site, hub, _setup, daemon) = told();
    let sent = hub.notification().body;
    let topic = "topic=https%3A%2F%2Ftopics.example%2Ftopics%2Fmain%2Fa%2Fcapabilitylist%2F";
    let (head, body) = daemon.get_admin(&format!("/payload?{topic}&seq=1"));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(body.as_bytes(), sent);
    let (_, page) = daemon.get_admin("/");
    assert_contains(&page, &format!("/payload?{topic}&#38;seq=1"));
    for missing in [
        format!("/payload?{topic}&seq=2"),
        "/payload?seq=1".to_owned(),
        "/channel?topic=https://nowhere.example/".to_owned(),
        "/channel".to_owned(),
    ] {
        let (head, _) = daemon.get_admin(&missing);
        assert!(head.starts_with("HTTP/1.1 404 "), "{missing}: {head}");
    }
}

//! SIGTERM: no new requests, those in progress may end, and everything is saved.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::subscriptions::delivering;
use crate::support::DEADLINE;
use crate::support::daemon::{Daemon, Setup};
use crate::support::documents::Site;
use crate::support::hub::Manner;
use crate::support::until;

const TOPIC: &str = "/topics/main/a/capabilitylist/";
/// Time that requests have to end.
const GRACE: Duration = Duration::from_secs(10);
const CHANGE: &str = "updated changelist a/changelist.xml";

fn change(site: &Site, content: &str) {
    site.write_list("a", "changelist", content);
}

fn terminate(daemon: &Daemon) {
    daemon.signal(Signal::TERM);
    daemon.await_log("stopping");
}

/// Waits for the end of a daemon that was told to stop before.
fn end(daemon: Daemon) {
    daemon.await_log("stopped; everything is saved");
    // One signal more means nothing by then.
    assert!(daemon.stop().success());
}

#[test]
fn a_request_to_a_hub_ends_and_what_happens_meanwhile_waits_for_the_next_start() {
    let (site, hub, setup, daemon) = Setup::start_announcing("");
    hub.behave(Manner::Wait);
    change(&site, "2");
    hub.request();
    terminate(&daemon);
    change(&site, "3");
    // A hub that was pinged fetches the topic before it answers.
    assert!(daemon.get(TOPIC).0.starts_with("HTTP/1.1 200"));
    hub.behave(Manner::Accept);
    end(daemon);
    assert!(hub.heard().is_empty());
    let daemon = setup.start();
    hub.assert_told([CHANGE]);
    daemon.stop();
    assert!(
        hub.heard().is_empty(),
        "what was answered is not sent again"
    );
}

#[test]
fn a_hub_that_never_answers_is_not_waited_for_and_is_told_at_the_next_start() {
    let (site, hub, setup, daemon) = Setup::start_announcing("");
    hub.behave(Manner::Hang);
    change(&site, "2");
    let first = hub.request();
    terminate(&daemon);
    daemon.await_log("hubs did not answer in time");
    end(daemon);
    let daemon = setup.start();
    assert_eq!(hub.request().body, first.body);
    // Told twice, it waits for nothing.
    terminate(&daemon);
    let told = Instant::now();
    daemon.signal(Signal::INT);
    end(daemon);
    assert!(told.elapsed() < GRACE);
    hub.behave(Manner::Accept);
    let _daemon = setup.start();
    assert_eq!(hub.notification().body, first.body);
}

#[test]
fn a_delivery_to_a_subscriber_ends_and_is_not_made_again() {
    let (site, mut setup, daemon, subscriber) = delivering();
    terminate(&daemon);
    // It is there as long as it waits for the subscriber.
    (0..20).for_each(|_| drop(daemon.status()));
    subscriber.behave(Manner::Accept);
    let public = daemon.public.to_string();
    end(daemon);
    setup.config = setup.config.replacen("127.0.0.1:0", &public, 1);
    let daemon = setup.start();
    site.write_list("a", "resourcelist", "2");
    let next = subscriber.request().changes();
    assert_eq!(next, ["updated resourcelist a/resourcelist.xml"]);
    daemon.stop();
    assert!(subscriber.heard().is_empty());
}

#[test]
fn a_request_to_the_public_listener_is_answered() {
    let (_site, _setup, daemon) = Setup::start_embedding("");
    let mut client = TcpStream::connect(daemon.public).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    let form = "hub.mode=subscribe";
    write!(
        client,
        "POST /hub HTTP/1.1\r\nHost: e\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n",
        form.len()
    )
    .unwrap();
    // The body is wanted: so the request has begun.
    let mut wanted = [0; 25];
    client.read_exact(&mut wanted).unwrap();
    assert_eq!(&wanted, b"HTTP/1.1 100 Continue\r\n\r\n");
    terminate(&daemon);
    // Nobody else is let in by then.
    until(|| TcpStream::connect(daemon.public).is_err());
    client.write_all(form.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    end(daemon);
}

#[test]
fn a_daemon_that_has_just_begun_can_be_stopped() {
    let setup = Setup::new(&Site::new(), &["http://h.example/".to_owned()], "");
    for _ in 0..5 {
        assert!(setup.launch().stop().success());
    }
}

//! SIGHUP: the new configuration is applied, or the previous one kept and the reason told; nothing is lost or announced
//! twice, also during deliveries, and nothing waits for a hub that hangs. A listener that moves is open at its new address
//! before the old one is closed. The embedded hub keeps its subscriptions, and delivers once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;

use crate::embedded::subscribe;
use crate::own_hub::setup::ask_to_subscribe;
use crate::subscriptions::{delivering, join, topic};
use crate::support::daemon::{Daemon, Setup, assert_contains, assert_lacks, body_of, get, output};
use crate::support::documents::{Site, capability_list};
use crate::support::hub::{FakeHub, Manner};
use crate::support::{DEADLINE, until};

/// Asks the daemon to look at what is configured now; what it says of it.
pub fn reload(daemon: &Daemon, setup: &Setup) -> String {
    setup.file();
    daemon.signal(Signal::HUP);
    let said = daemon.await_log("configuration");
    said["message"].as_str().unwrap().to_owned()
}

/// Asserts what a reload changes.
#[track_caller]
pub fn assert_reloaded(daemon: &Daemon, setup: &Setup, changes: &str) {
    let wanted = format!("reloaded the configuration: {changes}");
    assert_eq!(reload(daemon, setup), wanted);
}

/// Another window: a change that the engine hears of.
pub fn change_window(setup: &mut Setup) {
    let (before, after) = match setup.config.contains("quiet = \"20ms\"") {
        true => ("quiet = \"20ms\"", "quiet = \"21ms\""),
        false => ("quiet = \"21ms\"", "quiet = \"20ms\""),
    };
    setup.replace(before, after);
}

fn change(site: &Site, content: &str) {
    site.write_list("a", "changelist", content);
}

const CHANGE: &str = "updated changelist a/changelist.xml";

fn another_source(site: &Site, name: &str) -> String {
    let root = site.root.path().display();
    format!(
        "[[source]]\nname = \"{name}\"\nsettle = \"50ms\"\n\
         mount = [{{ path = \"{root}\", url = \"https://{name}.example/\" }}]\n"
    )
}

#[test]
fn what_did_not_change_goes_on_untouched() {
    let (site, hub, mut setup, daemon) = Setup::start_announcing("");
    let before = daemon.status()["configuration"]["loaded"].clone();
    assert_reloaded(&daemon, &setup, "nothing changed");
    let after = daemon.status()["configuration"]["loaded"].clone();
    assert!(before.as_str() < after.as_str(), "{before} {after}");
    change(&site, "2");
    hub.assert_told([CHANGE]);
    // A stop waits for no reload.
    change_window(&mut setup);
    setup.file();
    daemon.signal(Signal::HUP);
    assert!(daemon.stop().success());
    assert!(hub.heard().is_empty());
}

#[test]
fn a_command_reloads_and_says_what_came_of_it() {
    let (_site, _hub, mut setup) = Setup::announcing("");
    let ask = |setup: &Setup| output(&mut setup.command("reload"));
    let (code, _, said) = ask(&setup);
    assert_eq!(code, Some(1));
    assert_contains(&said, "no rsnotify is running with ");
    let daemon = setup.start();
    change_window(&mut setup);
    let (code, said, _) = ask(&setup);
    assert_eq!(code, Some(0));
    assert_eq!(said, "reloaded the configuration: window changed\n");
    let good = setup.config.clone();
    setup.config = good.replace("quiet", "quite");
    let (code, out, said) = ask(&setup);
    assert_eq!((code, &*out), (Some(1), ""));
    assert_contains(&said, "not reloaded, the daemon keeps the previous one: ");
    assert_contains(&said, "config.toml:");
    assert_contains(&said, "did you mean \"quiet\"?");
    let refused = &daemon.status()["configuration"]["refused"]["error"];
    assert!(refused.as_str().unwrap().contains("quite"), "{refused}");
    let away =
        "[[source]]\nname = \"away\"\npath = \"/no/where\"\nurl = \"https://away.example/\"\n";
    setup.config = format!("{good}{away}");
    let (code, said, _) = ask(&setup);
    let words = "reloaded the configuration: source away added; /no/where is missing, and nothing \
                 below it counts as deleted: No such file or directory (os error 2)\n";
    assert_eq!((code, said.as_str()), (Some(0), words));
    setup.config = good;
    assert_eq!(ask(&setup).0, Some(0));
    daemon.stop();
}

#[test]
fn what_waited_in_a_long_window_is_told_in_the_short_one() {
    let (site, hub, mut setup) = Setup::announcing("");
    let short = "quiet = \"20ms\"";
    setup.replace(short, "quiet = \"1h\"\nmax_wait = \"1h\"");
    let daemon = setup.start();
    change(&site, "2");
    daemon.await_status(|now| now["channels"][0]["hubs"][0]["due"] == 1);
    setup.replace("quiet = \"1h\"\nmax_wait = \"1h\"", short);
    assert_reloaded(&daemon, &setup, "window changed");
    hub.assert_told([CHANGE]);
}

#[test]
fn a_new_source_is_known_and_a_removed_one_forgotten() {
    let (site, other, hub) = (Site::new(), Site::new(), FakeHub::start());
    let mut setup = Setup::new(&site, &[hub.url()], "");
    let without = setup.config.clone();
    let daemon = setup.start();
    let topic = "/topics/other/a/capabilitylist/";
    setup.config += &another_source(&other, "other");
    assert_reloaded(&daemon, &setup, "source other added");
    daemon.await_log("baseline of other complete: 4 existing documents");
    // Its links are those of the first site; only this document of it knows its set.
    let list = "a/capabilitylist.xml";
    other.write(list, &capability_list("a", &["resourcelist"]));
    let changed = format!("updated capabilitylist https://other.example/{list}");
    hub.assert_told([changed]);
    assert!(daemon.get(topic).0.starts_with("HTTP/1.1 200"));
    let metrics = || daemon.get_admin("/metrics").1;
    let swept = "rsnotify_last_sweep_files{source=\"other\"";
    assert_contains(&metrics(), swept);

    setup.config = without;
    assert_reloaded(&daemon, &setup, "source other removed");
    // No metric has a directory that is left.
    assert_lacks(&metrics(), swept);
    until(|| daemon.get(topic).0.starts_with("HTTP/1.1 404"));
    other.write(list, &capability_list("a", &["changelist"]));
    change(&site, "2");
    hub.assert_told([CHANGE]);
    daemon.stop();
    assert!(hub.heard().is_empty());
}

#[test]
fn readiness_and_topics_outlast_a_reload() {
    let (site, hub, mut setup) = Setup::announcing("");
    setup.replace("settle = \"50ms\"", "settle = \"1s\"");
    let daemon = setup.start();
    let (is_done, done) = std::sync::mpsc::channel::<()>();
    let (public, admin) = (daemon.public, daemon.admin);
    let watching = std::thread::spawn(move || {
        let mut asked = 0;
        while done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            for (address, path) in [
                (admin, "/readyz"),
                (admin, "/healthz"),
                (public, "/topics/main/a/capabilitylist/"),
            ] {
                let (head, body) = crate::support::daemon::get(address, path);
                assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}\n{body}");
                asked += 1;
            }
        }
        asked
    });
    for content in ["2", "3"] {
        // A sweep waits for what has just been written.
        change(&site, content);
        change_window(&mut setup);
        reload(&daemon, &setup);
        daemon.await_log("swept");
        hub.notification();
    }
    drop(is_done);
    assert!(watching.join().unwrap() > 0);
}

#[test]
fn many_reloads_in_a_row_end_with_the_last() {
    let (site, hub, mut setup, daemon) = Setup::start_announcing("");
    for _ in 0..100 {
        change_window(&mut setup);
        setup.file();
        daemon.signal(Signal::HUP);
    }
    setup.config += &another_source(&Site::new(), "last");
    setup.file();
    daemon.signal(Signal::HUP);
    daemon.await_status(|now| now["sources"].as_array().unwrap().len() == 2);
    change(&site, "2");
    hub.assert_told([CHANGE]);
    assert!(daemon.stop().success());
    assert!(hub.heard().is_empty());
}

#[test]
fn a_reload_before_everything_is_known_announces_nothing() {
    let (site, hub, mut setup) = Setup::announcing("");
    // Nothing in it is read before it is so old.
    setup.replace("settle = \"50ms\"", "settle = \"2s\"");
    let daemon = setup.launch();
    change_window(&mut setup);
    assert_reloaded(&daemon, &setup, "window changed");
    daemon.await_log("ready");
    change(&site, "2");
    hub.assert_told([CHANGE]);
    daemon.stop();
    assert!(hub.heard().is_empty());
}

fn is_refused(daemon: &Daemon, setup: &Setup, why: &str) {
    let said = reload(daemon, setup);
    assert!(said.starts_with("configuration not reloaded"), "{said}");
    assert_contains(&said, why);
    let refused = &daemon.status()["configuration"]["refused"];
    assert_contains(refused["error"].as_str().unwrap(), why);
}

#[test]
fn a_refused_configuration_is_reported_and_the_previous_one_is_kept() {
    let (site, hub, mut setup) = Setup::announcing("");
    let good = setup.config.clone();
    let daemon = setup.start();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n";
    std::fs::write(setup.state.path().join("none.pem"), pem).unwrap();
    let listening = "listen = \"127.0.0.1:0\"\nadmin_listen";
    let in_hub = |key: &str| good.replace("[[hub]]\n", &format!("[[hub]]\n{key}\n"));
    for (config, why) in [
        (good.replace("[[hub]]", "[[hub"), "unclosed array table"),
        (
            in_hub("ca_file = \"none.pem\""),
            "cannot use the certificates",
        ),
        (
            format!("state_dir = \"/nowhere\"\n{good}"),
            " to /nowhere: restart rsnotify",
        ),
        (
            good.replace(listening, &format!("listen = \"{taken}\"\nadmin_listen")),
            "is another program there?",
        ),
    ] {
        setup.config = config;
        is_refused(&daemon, &setup, why);
        assert!(daemon.get_admin("/readyz").0.starts_with("HTTP/1.1 200"));
    }
    change(&site, "2");
    hub.assert_told([CHANGE]);
    setup.config = good;
    assert_reloaded(&daemon, &setup, "nothing changed");
    assert_eq!(daemon.status()["configuration"]["refused"], Value::Null);
}

#[test]
fn a_listener_is_not_moved_where_the_other_cannot_be() {
    let (_site, _hub, mut setup, daemon) = Setup::start_announcing("");
    let socket = setup.state.path().join("public.sock");
    setup.replace(
        "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"",
        &format!(
            "listen = \"unix:{}\"\nadmin_listen = \"unix:/nowhere/admin.sock\"",
            socket.display()
        ),
    );
    is_refused(&daemon, &setup, "cannot listen on unix:/nowhere/admin.sock");
    assert!(!socket.exists(), "what was bound in vain is gone");
    body_of(daemon.get("/topics/main/a/capabilitylist/"));
}

const TOPIC: &str = "/topics/main/a/capabilitylist/";

/// Returns the address on which it logs that it listens.
fn moved(daemon: &Daemon, setup: &Setup) -> String {
    setup.file();
    daemon.signal(Signal::HUP);
    let listening = daemon.await_log("listening");
    daemon.await_log("reloaded the configuration");
    listening["address"].as_str().unwrap().to_owned()
}

#[test]
fn a_listener_that_moved_answers_there_and_no_longer_here() {
    let (_site, _hub, mut setup, daemon) = Setup::start_announcing("");
    // Kept open by its client, it is closed when nothing is asked on it.
    let mut client = TcpStream::connect(daemon.public).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    setup.replace(
        "[server]\nlisten = \"127.0.0.1:0\"",
        "[server]\nlisten = \"127.0.0.2:0\"",
    );
    let public: SocketAddr = moved(&daemon, &setup).parse().unwrap();
    assert!(get(public, TOPIC).0.starts_with("HTTP/1.1 200"));
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert!(TcpStream::connect(daemon.public).is_err());
    assert!(daemon.status()["configuration"]["refused"].is_null());

    setup.replace(
        "admin_listen = \"127.0.0.1:0\"",
        "admin_listen = \"127.0.0.2:0\"",
    );
    let admin: SocketAddr = moved(&daemon, &setup).parse().unwrap();
    assert!(get(admin, "/readyz").0.starts_with("HTTP/1.1 200"));
    assert!(get(public, TOPIC).0.starts_with("HTTP/1.1 200"));
    assert!(TcpStream::connect(daemon.admin).is_err());
    assert!(daemon.stop().success());
}

#[test]
fn a_unix_socket_goes_when_it_is_left() {
    let (_site, _hub, mut setup, daemon) = Setup::start_announcing("");
    let [first, second] = ["first", "second"].map(|it| setup.state.path().join(it));
    let mut before = "[server]\nlisten = \"127.0.0.1:0\"".to_owned();
    for path in [&first, &second] {
        let after = format!("[server]\nlisten = \"unix:{}\"", path.display());
        setup.replace(&before, &after);
        before = after;
        moved(&daemon, &setup);
        let mut stream = UnixStream::connect(path).unwrap();
        let request = format!("GET {TOPIC} HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(!first.exists());
    assert!(daemon.stop().success());
    assert!(!second.exists());
}

#[test]
fn a_client_stays_connected_through_a_reload() {
    let (_site, _hub, mut setup, daemon) = Setup::start_announcing("");
    let mut client = TcpStream::connect(daemon.public).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    for _ in 0..3 {
        change_window(&mut setup);
        reload(&daemon, &setup);
        write!(client, "HEAD {TOPIC} HTTP/1.1\r\nHost: e\r\n\r\n").unwrap();
        let mut beginning = [0; 12];
        client.read_exact(&mut beginning).unwrap();
        assert_eq!(&beginning, b"HTTP/1.1 200");
        // The rest of the head.
        let mut last = Vec::new();
        while !last.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            last.extend(byte);
        }
    }
}

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

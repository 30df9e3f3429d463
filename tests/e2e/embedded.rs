//! The embedded hub, with `listen` as its Destination.

use std::net::SocketAddr;

use serde_json::Value;

use crate::own_hub::setup::ask_to_subscribe;
use crate::subscriptions::topic;
use crate::support::daemon::{Daemon, Setup, assert_contains, output, run_without_config};
use crate::support::documents::Site;
use crate::support::hub::{FakeHub, Manner};
use crate::support::is_localhost_known;
use crate::support::listener::Listener;

#[test]
fn a_dry_run_shows_what_subscribers_would_be_sent() {
    let (site, mut setup, daemon) = Setup::start_embedding("");
    let public = daemon.public;
    let topic = topic(&daemon, "a");
    let listener = Listener::start(&topic);
    site.write_list("a", "changelist", "2");
    listener.line();
    daemon.stop();
    setup.config = setup.config.replacen("127.0.0.1:0", &public.to_string(), 1);
    site.write_list("a", "changelist", "3");
    let (_, printed, _) = output(setup.command("run").arg("--dry-run"));
    let title = format!("notification 2 of {topic}, to the subscriber http://127.0.0.1:");
    assert_contains(&printed, &title);
    let links = format!("Link: <{topic}>; rel=\"self\", <http://{public}/hub>; rel=\"hub\"");
    assert_contains(&printed, &links);
    assert_contains(&printed, "change=\"updated\"");
}

#[test]
fn a_trial_needs_no_configuration_to_call_back_on_this_machine() {
    let site = Site::new();
    let state = tempfile::tempdir().unwrap();
    let daemon = Daemon::ready(run_without_config(&site, state.path(), "127.0.0.1:0"));
    let topic = topic(&daemon, "a");
    // A page in a browser cannot subscribe.
    let hub = daemon.public;
    for (name, value, status) in [
        ("Host", format!("evil.example:{}", hub.port()), 421),
        ("Origin", "null".to_owned(), 421),
        ("Origin", format!("http://{hub}"), 202),
    ] {
        let header = [(name, value.as_str())];
        let answer = ask_to_subscribe(hub, &topic, "http://127.0.0.1:9/c", &header);
        assert_eq!(answer.status, status, "{header:?}");
    }
    let listener = Listener::start(&topic);
    site.write_list("a", "changelist", "2");
    let line = listener.line();
    assert_contains(&line, "updated  changelist");
    assert_contains(&line, "https://source.example/a/changelist.xml");
}

#[test]
fn a_proxy_variable_leads_no_callback_elsewhere() {
    let (site, setup) = Setup::embedding("");
    let mut command = setup.command("run");
    command.args(["--log-format", "json"]);
    command.env_remove("no_proxy").env_remove("NO_PROXY");
    for variable in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        // Nobody is there.
        command.env(variable, "http://127.0.0.1:9");
    }
    let daemon = Daemon::ready(command);
    let listener = Listener::start(&topic(&daemon, "a"));
    site.write_list("a", "changelist", "2");
    listener.line();
}

#[test]
fn an_installed_hub_calls_nobody_inside_unless_it_is_allowed() {
    if !is_localhost_known() {
        return;
    }
    let (_site, mut setup) = Setup::embedding("");
    setup.cut_at("allow_callback_networks");
    let daemon = setup.start();
    let topic = topic(&daemon, "a");
    let told = Listener::spawn(&topic).says();
    let words = "hub.callback is at an address that this hub does not deliver to";
    assert_contains(&told, words);
    // What a name stands for is not told to who asks, but to the operator.
    for n in 0..100 {
        subscribe(daemon.public, &topic, &format!("http://localhost:8000/{n}"));
    }
    let logged = daemon.await_log("callback at localhost not called");
    assert_eq!(logged["host"], "localhost");
    assert_contains(
        logged["message"].as_str().unwrap(),
        "allow_callback_networks",
    );
    // Those of the first ten seconds, and perhaps those after them; the rest is a sum.
    let mut lines = 1;
    let sum = loop {
        match daemon.await_log("not called")["count"].as_u64() {
            Some(sum) => break sum,
            None => lines += 1,
        }
    };
    assert!(lines <= 20 && sum >= 80, "{lines} lines, and {sum}");
}

/// Subscribes, which the hub must accept.
#[track_caller]
pub fn subscribe(hub: SocketAddr, topic: &str, callback: &str) {
    assert_eq!(ask_to_subscribe(hub, topic, callback, &[]).status, 202);
}

#[test]
fn subscriptions_of_strangers_are_some_lines_and_a_sum() {
    const MANY: u64 = 120;
    let (site, subscriber) = (Site::new(), FakeHub::start());
    let mut setup = Setup::new(&site, &[], "");
    // What is not logged at this level is in the sums.
    setup.config += "max_requests_per_minute = 1000\n";
    let daemon = Daemon::spawn({
        let mut run = setup.command("run");
        run.args(["--log-format", "json", "--log-level", "info"]);
        run
    });
    daemon.await_log("ready");
    let topic = topic(&daemon, "a");
    for n in 0..MANY {
        let callback = format!("http://{}/{n}", subscriber.address);
        subscribe(daemon.public, &topic, &callback);
    }
    daemon.await_status(|status| status["embedded_hub"]["subscriptions"] == MANY);
    subscriber.behave(Manner::Refuse(410));
    site.write_list("a", "changelist", "2");
    let (mut begun, mut ended, mut summed_up) = (0, 0, [0, 0]);
    while begun + summed_up[0] < MANY || ended + summed_up[1] < MANY {
        let line = daemon.await_log("subscri");
        match (line["begun"].as_u64(), line["ended"].as_u64(), &line["why"]) {
            (Some(more_begun), Some(more_ended), _) => {
                summed_up[0] += more_begun;
                summed_up[1] += more_ended;
            }
            (_, _, Value::Null) => begun += 1,
            _ => ended += 1,
        }
    }
    assert_eq!([begun + summed_up[0], ended + summed_up[1]], [MANY, MANY]);
    // Those of the first ten seconds, and perhaps those after them.
    for lines in [begun, ended] {
        assert!((1..=100).contains(&lines), "{lines} lines");
    }
}

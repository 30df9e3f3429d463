//! The commands for a hub that does not accept: with a running daemon, and on the state that a stopped one left.

use std::process::Command;

use serde_json::Value;

use crate::support::daemon::{
    Daemon, Setup, answered, assert_contains, exit_with, fail, keys, output, succeed,
};
use crate::support::documents::{Site, capability_list};
use crate::support::hub::{FakeHub, Manner};

const TOPIC: &str = "https://topics.example/topics/main/a/capabilitylist/";
const LIST: &str = "https://source.example/a/capabilitylist.xml";
const UPDATE: &str = "updated changelist a/changelist.xml";

/// A daemon whose hub refuses a change of the set's Change List.
fn refused() -> (Site, FakeHub, Setup, Daemon) {
    let (site, hub, setup, daemon) = Setup::start_announcing("");
    hub.behave(Manner::Refuse(403));
    site.write_list("a", "changelist", "2");
    daemon.await_log("did not accept notification 1");
    hub.request();
    (site, hub, setup, daemon)
}

fn outbox(setup: &Setup, arguments: &[&str]) -> Command {
    let mut command = setup.command("outbox");
    command.args(arguments);
    command
}

/// The first account in the outbox.
fn first_row(setup: &Setup) -> Value {
    answered(&mut outbox(setup, &["list"]))["outbox"][0].take()
}

/// The value of a metric of this hub, or of the only one with other labels.
fn metric(daemon: &Daemon, name: &str) -> Option<String> {
    let (_, body) = daemon.get_admin("/metrics");
    let line = body
        .lines()
        .find(|line| line.starts_with(&format!("rsnotify_{name}{{")))?;
    Some(line.rsplit(' ').next().unwrap().to_owned())
}

#[test]
fn a_refusal_is_shown_with_the_hub_s_answer_while_the_daemon_runs_and_after() {
    let (_site, hub, setup, daemon) = refused();
    assert_eq!(metric(&daemon, "needs_person").as_deref(), Some("1"));
    let (_, metrics) = daemon.get_admin("/metrics");
    let wanted = format!(
        "rsnotify_refused_notifications{{hub=\"{}\",kind=\"framework\",reason=\"not_allowed\"}} 1\n",
        hub.url()
    );
    assert_contains(&metrics, &wanted);
    for is_running in [true, false] {
        let answer = answered(&mut outbox(&setup, &["list"]));
        assert_eq!(keys(&answer), ["outbox", "running", "version"]);
        assert_eq!(answer["running"], is_running);
        let row = &answer["outbox"][0];
        assert_eq!(row["topic"], TOPIC);
        assert_eq!(row["set"], LIST);
        assert_eq!(row["hub"], hub.url());
        assert_eq!(row["state"], "needs_person");
        assert_eq!(row["attempts"], 1);
        assert_eq!(row["last"]["status"], 403);
        assert_eq!(row["last"]["excerpt"], "not now");
        assert_eq!(row["last"]["refusal"]["kind"], "not_allowed");
        assert_eq!(row["retired"], Value::Null);
        let shown = answered(&mut outbox(&setup, &["show", LIST, &hub.url()]));
        assert_eq!(shown["notification"]["seq"], 1);
        assert_eq!(shown["notification"]["payload"], Value::Null);
        let change = &shown["notification"]["changes"][0];
        assert_eq!(
            keys(change),
            ["capability", "change", "datetime", "index", "uri"]
        );
        assert_eq!(change["uri"], "https://source.example/a/changelist.xml");
        let out = succeed(&mut outbox(&setup, &["list"]));
        assert_eq!(out.lines().count(), 2, "{out}");
        assert_contains(&out, "\naction required  ");
        let out = succeed(&mut outbox(
            &setup,
            &["show", TOPIC, &hub.url(), "--payload"],
        ));
        for words in [
            "notification 1: answered 403",
            "it said: not now",
            "usually: its credentials are missing",
            "updated  changelist        https://source.example/a/changelist.xml",
            "<rs:md change=\"updated\"",
            // A start tries everything at once.
            if is_running {
                "tried 1 time, next try in 14 min"
            } else {
                "tried 1 time, next try now"
            },
        ] {
            assert_contains(&out, words);
        }
        let status = answered(&mut setup.command("status"));
        assert_eq!(status["running"], is_running);
        assert_eq!(status["unsaved"], Value::Null);
        let configuration = &status["configuration"];
        assert_eq!(configuration["loaded"].is_string(), is_running);
        assert_eq!(configuration["refused"], Value::Null);
        assert_eq!(status["channels"][0]["hubs"][0]["state"], "needs_person");
        let out = succeed(&mut setup.command("status")); // what is in trouble is no failure of this command
        let begins = if is_running {
            "rsnotify is running\n"
        } else {
            "rsnotify is not running"
        };
        assert!(out.starts_with(begins), "{out}");
        assert_contains(&out, "1 action required");
        let advice = "\n   it said: not now; usually: its credentials are missing";
        assert_contains(&out, advice);
        if is_running {
            daemon.signal(rustix::process::Signal::TERM);
            daemon.await_log("everything is saved");
        }
    }
}

#[test]
fn the_status_page_and_the_command_say_the_same() {
    let (_site, _hub, setup, daemon) = refused();
    let mut page = daemon.status();
    let mut answer = answered(&mut setup.command("status"));
    for status in [&mut page, &mut answer] {
        status["at"].take();
    }
    answer.as_object_mut().unwrap().remove("running");
    assert_eq!(page, answer);
}

#[test]
fn a_retry_asks_at_once_a_hub_that_had_a_quarter_of_an_hour_or_when_the_daemon_starts() {
    let (site, hub, setup, daemon) = refused();
    hub.behave(Manner::Accept);
    let retry = answered(&mut outbox(&setup, &["retry", TOPIC, &hub.url()]));
    assert_eq!(retry["tried"], 1);
    assert_eq!(retry["running"], true);
    hub.assert_told([UPDATE]);
    hub.behave(Manner::Refuse(403));
    site.write_list("a", "changelist", "3");
    daemon.await_log("did not accept notification 2");
    assert!(daemon.stop().success());
    hub.behave(Manner::Accept);
    let out = succeed(&mut outbox(&setup, &["retry"]));
    assert_contains(&out, "it retries 1 notification as soon as it is started");
    let _daemon = setup.start();
    hub.assert_told([UPDATE]);
}

#[test]
fn what_is_dropped_is_not_told_with_a_daemon_or_without() {
    for is_running in [true, false] {
        let (site, hub, setup, daemon) = refused();
        let mut daemon = Some(daemon);
        if !is_running {
            assert!(daemon.take().unwrap().stop().success());
        }
        let drop = ["drop", LIST, &hub.url()];
        let (out, _) = exit_with(&mut outbox(&setup, &drop), 1);
        assert_contains(&out, "updated  changelist");
        assert_contains(&out, "nothing was dropped; --yes drops it");
        assert_eq!(first_row(&setup)["due"], 1);

        let dropped = answered(outbox(&setup, &drop).arg("--yes"));
        assert_eq!(dropped["dropped"], 1);
        assert_eq!(dropped["running"], is_running);
        let row = first_row(&setup);
        assert_eq!((&row["due"], &row["state"]), (&0.into(), &"fine".into()));
        let out = succeed(&mut outbox(&setup, &drop)); // nothing is left to drop
        assert_contains(&out, "nothing is due");

        hub.behave(Manner::Accept);
        if !is_running {
            daemon = Some(setup.start());
        }
        site.write_list("a", "resourcelist", "2");
        let later = hub.notification();
        assert_eq!(later.changes(), ["updated resourcelist a/resourcelist.xml"]);
        assert!(daemon.unwrap().stop().success());
    }
}

#[test]
fn the_list_can_be_of_some_states_only_and_a_misspelt_name_is_answered_with_what_there_is() {
    let (_site, hub, setup, daemon) = refused();
    for (states, count) in [
        ("needs_person", 1),
        ("failing,needs_person", 1),
        ("fine,due", 0),
    ] {
        let answer = answered(&mut outbox(&setup, &["list", "--state", states]));
        let rows = answer["outbox"].as_array().unwrap();
        assert_eq!(rows.len(), count, "{states}: {answer}");
    }
    let out = succeed(&mut outbox(&setup, &["list", "--state", "fine"]));
    assert_eq!(out, "no hub is in this state on any channel\n");

    let url = hub.url();
    let cases = [
        (["show", "https://topics.example/", &url], TOPIC),
        (["retry", TOPIC, "embedded"], &*url),
        (["drop", "a", "b"], TOPIC),
    ];
    let check = || {
        for (arguments, known) in &cases {
            let err = fail(&mut outbox(&setup, arguments), 1);
            assert_contains(&err, &format!("there is {known}"));
        }
    };
    check();
    assert!(daemon.stop().success());
    check();
}

#[test]
fn commands_before_the_first_start_leave_nothing_behind() {
    let setup = Setup::new(&Site::new(), &["http://h.example/".to_owned()], "");
    let out = succeed(&mut outbox(&setup, &["list"]));
    assert_eq!(out, "no channel has a hub yet\n");
    let status = answered(&mut setup.command("status"));
    assert_eq!(status["channels"], Value::Array(Vec::new()));
    let err = fail(&mut outbox(&setup, &["drop", TOPIC, "h", "--yes"]), 1);
    assert_contains(&err, "there is none");
    let out = succeed(setup.command("accept").arg("main"));
    assert_contains(&out, "it is not running");
    let err = fail(setup.command("accept").arg("other"), 1);
    assert_contains(&err, "there is main");
    assert!(!setup.state.path().join("state").exists());
}

#[test]
fn the_embedded_hub_answers_to_its_name() {
    let (site, mut setup) = Setup::embedding("");
    setup.replace(
        "[server]\n",
        "[server]\npublic_url = \"https://topics.example/\"\n",
    );
    let daemon = setup.start();
    site.write_list("a", "changelist", "2");
    daemon.await_log("delivered notification 1");
    let shown = answered(&mut outbox(&setup, &["show", TOPIC, "embedded"]));
    assert_eq!(shown["mode"], "embedded");
    assert_eq!(shown["last"]["status"], 202);
    assert_eq!(shown["last"]["refusal"], Value::Null);
}

#[test]
fn a_topic_that_is_not_fetched_after_a_ping_is_told_everywhere_until_it_is() {
    let site = Site::new();
    let hub = FakeHub::start();
    let setup = Setup::with_source(&site, "", &hub.table("mode = \"ping\""));
    let daemon = setup.start();
    site.write_list("a", "changelist", "2");
    daemon.await_log("delivered notification 1");
    assert_eq!(metric(&daemon, "hub_fetch_confirmed").as_deref(), Some("1"));
    assert!(daemon.stop().success());
    // The minute passes.
    let database =
        rusqlite::Connection::open(setup.state.path().join("state/state.sqlite")).unwrap();
    let long_ago = "UPDATE account SET pinged = 0, ping_due = 0";
    assert_eq!(database.execute(long_ago, []).unwrap(), 1);
    drop(database);
    let daemon = setup.start();
    assert_eq!(metric(&daemon, "hub_fetch_confirmed").as_deref(), Some("0"));
    assert_eq!(metric(&daemon, "unfetched_topics").as_deref(), Some("1"));
    let row = first_row(&setup);
    assert_eq!(row["state"], "unfetched");
    assert_eq!(row["fetch_confirmed"], false);
    let (_, out, _) = output(&mut setup.command("status"));
    assert_contains(&out, "did not fetch the topic");
    daemon.get("/topics/main/a/capabilitylist/");
    daemon.await_log("is fetched again");
    assert_eq!(metric(&daemon, "hub_fetch_confirmed").as_deref(), Some("1"));
    let (status, log) = daemon.stop_and_tell();
    assert!(status.success());
    let told = log.iter().filter(|line| line.contains("has not fetched"));
    assert_eq!(told.count(), 1);
}

#[test]
fn what_cannot_be_saved_is_not_reported_as_dropped() {
    let (_site, hub, setup, daemon) = refused();
    let path = setup.state.path().join("state/state.sqlite");
    let database = rusqlite::Connection::open(path).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let err = fail(&mut outbox(&setup, &["drop", LIST, &hub.url(), "--yes"]), 1);
    assert_contains(&err, "takes effect once the state can be saved");
    // What is refused does not wait to be saved.
    let err = fail(setup.command("accept").arg("other"), 1);
    assert_contains(&err, "no source is named \"other\"");
    let status = answered(&mut setup.command("status"));
    let unsaved = status["unsaved"].as_str().unwrap();
    assert_contains(unsaved, "cannot write the state file");
    let (_, out, _) = output(&mut setup.command("status"));
    assert_contains(&out, "!! NOTHING IS SENT: cannot write");
    database.execute_batch("ROLLBACK").unwrap();
    daemon.await_log("the state can be saved again");
    daemon.kill();
    assert_eq!(first_row(&setup)["due"], 0);
}

#[test]
fn a_set_of_which_nothing_is_sent_is_told_as_loudly_as_a_hub_in_trouble() {
    let (site, hub) = (Site::new(), FakeHub::start());
    let entry = format!(
        "<url><loc>{TOPIC}</loc><rs:md capability=\"framework-notification\"/>\
         <rs:ln rel=\"hub\" href=\"https://old.example/hub/\"/></url>\n</urlset>"
    );
    let advertising = capability_list("a", &["resourcelist", "changelist"]);
    site.write(
        "a/capabilitylist.xml",
        &advertising.replace("</urlset>", &entry),
    );
    let setup = Setup::new(&site, &[hub.url()], "");
    let daemon = setup.start();
    let (_, status, _) = output(&mut setup.command("status"));
    let why = "advertises only hubs that are not configured";
    let alert = format!("\n!! NOTHING IS SENT of {LIST}: it {why}: https://old.example/hub/\n");
    assert_contains(&status, &alert);
    let (_, list, _) = output(&mut outbox(&setup, &["list"]));
    let line = format!("!! NOTHING IS SENT on {TOPIC}: {LIST} {why}\n");
    assert!(list.ends_with(&line), "{list}");
    let (_, page) = daemon.get_admin("/");
    assert_contains(&page, "NOTHING IS SENT of ");
    let (_, metrics) = daemon.get_admin("/metrics");
    assert_contains(&metrics, "rsnotify_muted_sets{source=\"main\"} 1\n");
    assert_eq!(setup.state_of("a/changelist.xml"), "unrouted");
}

#[test]
fn what_there_is_one_of_needs_no_name() {
    let (site, hub, mut setup, daemon) = Setup::start_announcing("");
    let shown = answered(&mut outbox(&setup, &["show"]));
    assert_eq!(shown["hub"], hub.url());
    let said = fail(&mut outbox(&setup, &["show", "--kind", "change"]), 1);
    assert_contains(&said, "no channel has a hub");
    assert!(daemon.stop().success());
    let other = FakeHub::start();
    setup.config = Setup::new(&site, &[hub.url(), other.url()], "").config;
    let daemon = setup.start();
    let said = fail(&mut outbox(&setup, &["show"]), 1);
    assert_contains(&said, "there are several: name ");
    assert!(daemon.stop().success());
}

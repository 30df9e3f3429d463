//! Operators see what is due on change channels: in the commands, in metrics, and in a dry run.

use serde_json::Value;

use crate::support::daemon::{
    Daemon, Setup, answered, assert_contains, fail, json, output, succeed,
};
use crate::support::documents::{Site, URL};
use crate::support::hub::{FakeHub, Manner};

const LIST: &str = "https://source.example/a/capabilitylist.xml";
const TOPIC: &str = "https://topics.example/changes/main/a/capabilitylist/";

/// A Change List with an update of each of so many resources, one a second.
fn change_list(entries: usize) -> String {
    let entries = (0..entries).map(|number| {
        format!(
            "<url><loc>{URL}a/{number}.txt</loc>\
             <rs:md change=\"updated\" datetime=\"2026-11-01T00:00:{number:02}Z\"/></url>\n"
        )
    });
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n\
         <rs:ln rel=\"up\" href=\"{LIST}\"/><rs:md capability=\"changelist\"/>\n{}</urlset>\n",
        entries.collect::<String>()
    )
}

/// A daemon that learned one change, and whose hub then refuses two more.
fn refused() -> (Site, FakeHub, Setup, Daemon) {
    let site = Site::new();
    site.write("a/changelist.xml", &change_list(1));
    let hub = FakeHub::start();
    let setup = Setup::with_source(&site, "change_notifications = true", &hub.table(""));
    let daemon = setup.launch();
    // Only then is it ready (C10).
    daemon.await_log("not announcing");
    daemon.await_log("ready");
    hub.behave(Manner::Refuse(403));
    site.write("a/changelist.xml", &change_list(3));
    daemon.await_status(|status| {
        let mut channels = status["channels"].as_array().unwrap().iter();
        channels.any(|channel| channel["kind"] == "change" && channel["hubs"][0]["in_flight"] == 1)
    });
    (site, hub, setup, daemon)
}

fn outbox(setup: &Setup, arguments: &[&str]) -> Value {
    answered(setup.command("outbox").args(arguments))
}

#[test]
fn what_a_hub_is_due_of_a_log_is_shown_while_the_daemon_runs_and_after() {
    let (_site, hub, setup, daemon) = refused();
    let (_, metrics) = daemon.get_admin("/metrics");
    for line in [
        format!("rsnotify_change_backlog_entries{{hub=\"{}\"}} 2", hub.url()),
        format!(
            "rsnotify_due_changes{{hub=\"{}\",kind=\"change\"}} 2",
            hub.url()
        ),
        "rsnotify_changes_taken_total{source=\"main\",change=\"updated\"} 2".to_owned(),
        "rsnotify_change_reads_total{source=\"main\",how=\"learned\"} 1".to_owned(),
    ] {
        assert_contains(&metrics, &line);
    }
    let mut daemon = Some(daemon);
    for is_running in [true, false] {
        if !is_running {
            daemon.take().map(Daemon::stop);
        }
        let listed = outbox(&setup, &["list"]);
        let rows = listed["outbox"].as_array().unwrap();
        let row = rows.iter().find(|row| row["kind"] == "change").unwrap();
        assert_eq!(row["topic"], TOPIC);
        assert_eq!(row["due"], 2);
        let backlog = &row["backlog"];
        assert_eq!(backlog["notifications"], 1);
        assert_eq!(backlog["changes"], 2);
        assert_eq!(backlog["from"], "2026-11-01T00:00:00Z");
        assert_eq!(backlog["until"], "2026-11-01T00:00:02Z");

        let mut command = setup.command("outbox");
        let err = fail(command.args(["show", LIST, &hub.url()]), 1);
        assert_contains(&err, "a channel of each kind");

        let arguments = ["show", LIST, &hub.url(), "--kind", "change", "--payload"];
        let shown = outbox(&setup, &arguments);
        let notification = &shown["notification"];
        let payload = notification["payload"].as_str().unwrap();
        assert!(payload.contains("capability=\"change-notification\""));
        assert_eq!(notification["resources"][1]["uri"], format!("{URL}a/2.txt"));
        let (_, text, _) = output(setup.command("outbox").args(["show", TOPIC, &hub.url()]));
        for words in [
            "(kind change)",
            "updated  2026-11-01T00:00:01Z  https://source.example/a/1.txt",
            "due        2 changes in 1 notification",
        ] {
            assert_contains(&text, words);
        }
        let (_, text, _) = output(&mut setup.command("status"));
        assert_contains(&text, "2 changes in 1 notification to");
    }
}

#[test]
fn a_dry_run_shows_the_first_notification_and_scan_what_was_taken() {
    let (site, hub, setup, daemon) = refused();
    hub.behave(Manner::Accept);
    let retry = output(setup.command("outbox").arg("retry"));
    assert_eq!(retry.0, Some(0), "{}", retry.2);
    daemon.await_status(|status| {
        let channels = status["channels"].as_array().unwrap();
        let mut hubs = channels.iter().map(|channel| &channel["hubs"][0]);
        hubs.all(|hub| hub["due"] == 0)
    });
    daemon.stop();
    site.write("a/changelist.xml", &change_list(5));
    let scanned = setup.scan();
    let list = scanned.iter().find(|document| {
        let uri = document["uri"].as_str().unwrap();
        uri.ends_with("a/changelist.xml")
    });
    let changes = &list.unwrap()["changes"];
    assert_eq!(changes["listed"], 5);
    assert_eq!(changes["taken"], 3);
    let out = succeed(setup.command("run").arg("--dry-run"));
    let mut blocks = out.split("# ");
    let is_of_changes = |block: &&str| block.contains("change-notification");
    let shown = blocks.find(is_of_changes).unwrap();
    assert_contains(shown, TOPIC);
    assert!(shown.contains("from=\"2026-11-01T00:00:02Z\" until=\"2026-11-01T00:00:04Z\""));
    assert!(shown.contains("a/3.txt") && shown.contains("a/4.txt"));
    assert!(blocks.all(|block| !is_of_changes(&block)), "{out}");
}

#[test]
fn sets_whose_changes_are_not_announced_are_noted() {
    let site = Site::new();
    site.write("a/changelist.xml", &change_list(1));
    let setup = Setup::new(&site, &[], "");
    let checked = json(&mut setup.command("check"));
    assert_contains(&checked["notes"].to_string(), "change_notifications = true");
}

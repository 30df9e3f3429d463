//! Change channels with the real binary: what Change Lists report is told once, in order, in consecutive intervals, on
//! channels that are advertised, configured or by default, beside those of documents (C1, C9, C10, C12); commands, metrics and
//! dry runs show what is due.

pub mod story;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::changes::story::{LEARNED, LIST, Story};
use crate::support::changes::{Destination, change_list, topic};
use crate::support::daemon::{
    Daemon, Setup, TOPICS, answered, assert_contains, fail, json, output, succeed,
};
use crate::support::documents::{Site, URL, capability_list};
use crate::support::hub::{FakeHub, Manner, Request};
use crate::support::until;

/// C10: nothing that is published once the daemon says that it is ready counts as known.
#[test]
fn what_is_published_once_the_daemon_is_ready_is_told() {
    let mut story = Story::new("");
    let sets: Vec<String> = (0..64).map(|set| format!("s{set}")).collect();
    let mut entries: Vec<String> = (0..1_000)
        .map(|one| format!("updated {one}.txt 09:00:00"))
        .collect();
    for set in &sets {
        story.site.add_set(set);
        let path = format!("{set}/changelist.xml");
        story.site.write(&path, &change_list(set, &entries));
    }
    story.resume();
    entries.push("created new.txt 10:00:00".to_owned());
    for set in sets.iter().rev() {
        let path = format!("{set}/changelist.xml");
        story.site.write(&path, &change_list(set, &entries));
    }
    let mut topics: BTreeSet<String> = sets.iter().map(|set| topic(set)).collect();
    while !topics.is_empty() {
        let request = story.hub.notification();
        topics.remove(&request.topic());
    }
}

#[test]
fn a_list_of_very_many_changes_is_told_in_bounded_notifications_and_memory() {
    const MANY: usize = 60_000;
    let mut story = Story::start();
    let mut entries = vec![LEARNED.to_owned()];
    entries.extend((0..MANY).map(|one| {
        let (minute, second) = (one / 1_000, one / 17 % 60);
        format!("created {one}.txt 10:{minute:02}:{second:02}")
    }));
    story.site.write(LIST, &change_list("a", &entries));
    story.heard.listen(&story.hub, &topic("a"), MANY);
    assert_eq!(story.heard.told.len(), MANY);
    let each_once: BTreeSet<&String> = story.heard.told.iter().collect();
    assert_eq!(each_once.len(), MANY);
    assert!(story.heard.sizes.iter().all(|size| *size <= 1_000));
    assert_eq!(story.heard.gaps, 0);
    let peak = story.daemon().peak_memory();
    assert!(peak < 150 << 20, "{peak} bytes");
}

#[test]
fn a_packed_list_tells_what_is_new() {
    let mut story = Story::new("");
    let packed = |story: &Story| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(story.list().as_bytes()).unwrap();
        let path = story.site.path("a/changelist.xml.gz");
        let new = path.with_extension("new");
        fs::write(&new, gzip.finish().unwrap()).unwrap();
        fs::rename(&new, &path).unwrap();
    };
    story.site.remove(LIST);
    let config = &mut story.setup.config;
    let include = "include = [\"**/*.xml\", \"**/.well-known/resourcesync\", \"**/*.xml.gz\"]";
    *config = config.replacen("settle =", &format!("{include}\nsettle ="), 1);
    let list = capability_list("a", &["resourcelist", "changelist"]);
    let list = list.replace("changelist.xml", "changelist.xml.gz");
    story.site.write("a/capabilitylist.xml", &list);
    packed(&story);
    story.resume();
    story.await_learned(1);
    story.set_entries(&[LEARNED, "created 1.txt 10:00:00"]);
    packed(&story);
    story.hears(&["created 1.txt"]);
    story.set_entries(&[LEARNED, "created 1.txt 10:00:00", "deleted 1.txt"]);
    packed(&story);
    story.hears(&["deleted 1.txt"]);
}

const ADVERTISED: &str = "https://topics.example/poems/changes/";
const MOVED: &str = "https://topics.example/poems/changes-2/";

/// A Capability List of the set `a` that advertises a channel of changes.
fn advertising(topic: &str, hub: &str) -> String {
    let entry = format!(
        "<url><loc>{topic}</loc><rs:md capability=\"change-notification\"/>\
         <rs:ln rel=\"hub\" href=\"{hub}\"/></url>\n</urlset>"
    );
    capability_list("a", &["resourcelist", "changelist"]).replace("</urlset>", &entry)
}

fn links(topic: &str, hub: &str) -> String {
    format!(
        "<{topic}>; rel=\"self\", <{hub}>; rel=\"hub\", <{URL}a/capabilitylist.xml>; rel=\"resourcesync\""
    )
}

#[test]
fn a_set_has_a_channel_of_its_documents_and_one_of_its_resources() {
    let mut story = Story::start();
    let (head, body) = story.daemon().get("/changes/main/a/capabilitylist/");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_contains(&head, "content-length: 0");
    assert!(body.is_empty(), "{body}");
    story.add(&["updated 1.txt 10:05:00", "deleted 2.txt 10:05:31"]);
    let mut requests = [story.hub.notification(), story.hub.notification()];
    requests.sort_by_key(Request::topic);
    let [of_resources, of_documents] = requests;
    assert_eq!(
        of_documents.topic(),
        format!("{TOPICS}topics/main/a/capabilitylist/")
    );
    assert_eq!(
        of_documents.changes(),
        ["updated changelist a/changelist.xml"]
    );
    let wanted = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
        <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
        xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n  \
        <rs:ln rel=\"up\" href=\"https://source.example/a/capabilitylist.xml\"/>\n  \
        <rs:md capability=\"change-notification\" from=\"2024-11-20T09:00:00Z\" until=\"2024-11-20T10:05:31Z\"/>\n  \
        <url>\n    <loc>https://source.example/a/1.txt</loc>\n    \
        <rs:md change=\"updated\" datetime=\"2024-11-20T10:05:00Z\"/>\n  </url>\n  \
        <url>\n    <loc>https://source.example/a/2.txt</loc>\n    \
        <rs:md change=\"deleted\" datetime=\"2024-11-20T10:05:31Z\"/>\n  </url>\n</urlset>\n";
    assert_eq!(String::from_utf8_lossy(&of_resources.body), wanted);
    assert_eq!(of_resources.headers["content-type"], "application/xml");
    let links = links(&topic("a"), &story.hub.url());
    assert_eq!(of_resources.headers["link"], links);
    let (head, body) = story.daemon().get("/changes/main/a/capabilitylist/");
    assert_contains(&head, "content-type: application/xml\r\n");
    assert_contains(&head, &format!("link: {links}"));
    assert_eq!(body, wanted);
}

#[test]
fn a_channel_of_changes_has_the_topic_that_is_configured_else_that_which_is_advertised() {
    let configured = format!(
        "[[channel]]\ncapability_list = \"{URL}a/capabilitylist.xml\"\nkind = \"change\"\n\
         topic = \"{MOVED}\"\n"
    );
    for (tables, topic) in [("", ADVERTISED), (&configured, MOVED)] {
        let mut story = Story::new(tables);
        story.setup.replace("change_notifications = true\n", "");
        let list = advertising(ADVERTISED, &story.hub.url());
        story.site.write("a/capabilitylist.xml", &list);
        story.resume();
        story.await_learned(1);
        story.add(&["created 1.txt 10:00:00"]);
        let mut heard = Destination::default();
        heard.listen(&story.hub, topic, 1);
        assert_eq!(heard.told, ["created a/1.txt"], "{topic}");
    }
}

#[test]
fn the_embedded_hub_passes_changes_on_to_its_subscribers() {
    let subscriber = FakeHub::start();
    let mut story = Story::with_embedded_hub();
    story.resume();
    story.await_learned(1);
    subscribe(story.daemon(), &topic("a"), &subscriber);
    until(|| story.has_subscriber());
    story.add(&["created 1.txt 10:00:00"]);
    story.add(&["created 1.txt 10:00:00", "deleted 1.txt 10:00:01"]);
    let mut relayed = Destination::default();
    relayed.listen(&subscriber, &topic("a"), 3);
    story.heard.listen(&story.hub, &topic("a"), 3);
    assert_eq!(relayed.told, story.heard.told);
    assert_eq!(relayed.until(), story.heard.until());
}

/// Subscribes to a topic of the embedded hub.
pub fn subscribe(daemon: &Daemon, topic: &str, subscriber: &FakeHub) {
    let callback = format!("http://{}/callback", subscriber.address);
    crate::embedded::subscribe(daemon.public, topic, &callback);
}

const CAPABILITY_LIST: &str = "https://source.example/a/capabilitylist.xml";
const CHANGE_TOPIC: &str = "https://topics.example/changes/main/a/capabilitylist/";

/// A Change List with an update of each of so many resources, one a second.
fn changes_of_set(entries: usize) -> String {
    let entries = (0..entries).map(|number| {
        format!(
            "<url><loc>{URL}a/{number}.txt</loc>\
             <rs:md change=\"updated\" datetime=\"2026-11-01T00:00:{number:02}Z\"/></url>\n"
        )
    });
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n\
         <rs:ln rel=\"up\" href=\"{CAPABILITY_LIST}\"/><rs:md capability=\"changelist\"/>\n{}</urlset>\n",
        entries.collect::<String>()
    )
}

/// A daemon that learned one change, and whose hub then refuses two more.
fn refused() -> (Site, FakeHub, Setup, Daemon) {
    let site = Site::new();
    site.write("a/changelist.xml", &changes_of_set(1));
    let hub = FakeHub::start();
    let setup = Setup::with_source(&site, "change_notifications = true", &hub.table(""));
    let daemon = setup.launch();
    // Only then is it ready (C10).
    daemon.await_log("not announcing");
    daemon.await_log("ready");
    hub.behave(Manner::Refuse(403));
    site.write("a/changelist.xml", &changes_of_set(3));
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
        assert_eq!(row["topic"], CHANGE_TOPIC);
        assert_eq!(row["due"], 2);
        let backlog = &row["backlog"];
        assert_eq!(backlog["notifications"], 1);
        assert_eq!(backlog["changes"], 2);
        assert_eq!(backlog["from"], "2026-11-01T00:00:00Z");
        assert_eq!(backlog["until"], "2026-11-01T00:00:02Z");

        let mut command = setup.command("outbox");
        let err = fail(command.args(["show", CAPABILITY_LIST, &hub.url()]), 1);
        assert_contains(&err, "a channel of each kind");

        let arguments = [
            "show",
            CAPABILITY_LIST,
            &hub.url(),
            "--kind",
            "change",
            "--payload",
        ];
        let shown = outbox(&setup, &arguments);
        let notification = &shown["notification"];
        let payload = notification["payload"].as_str().unwrap();
        assert!(payload.contains("capability=\"change-notification\""));
        assert_eq!(notification["resources"][1]["uri"], format!("{URL}a/2.txt"));
        let (_, text, _) = output(
            setup
                .command("outbox")
                .args(["show", CHANGE_TOPIC, &hub.url()]),
        );
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
    site.write("a/changelist.xml", &changes_of_set(5));
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
    assert_contains(shown, CHANGE_TOPIC);
    assert!(shown.contains("from=\"2026-11-01T00:00:02Z\" until=\"2026-11-01T00:00:04Z\""));
    assert!(shown.contains("a/3.txt") && shown.contains("a/4.txt"));
    assert!(blocks.all(|block| !is_of_changes(&block)), "{out}");
}

#[test]
fn sets_whose_changes_are_not_announced_are_noted() {
    let site = Site::new();
    site.write("a/changelist.xml", &changes_of_set(1));
    let setup = Setup::new(&site, &[], "");
    let checked = json(&mut setup.command("check"));
    assert_contains(&checked["notes"].to_string(), "change_notifications = true");
}

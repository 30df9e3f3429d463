//! The log: the life of a notification by topic and number, and the priorities of the journal.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::fs::fstat;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::daemon::{Daemon, Setup, assert_starts_with};
use crate::support::documents::{Site, list};
use crate::support::hub::{FakeHub, Manner};

const TOPIC: &str = "https://topics.example/topics/main/a/capabilitylist/";

/// The lines about a notification, as an operator would filter them: what each says, and to which hub it was.
fn life(log: &[String], seq: u64) -> Vec<(String, Option<String>)> {
    let lines = log.iter().map(|line| serde_json::from_str(line).unwrap());
    let lines = lines.filter(|line: &Value| line["topic"] == TOPIC && line["seq"] == seq);
    lines
        .map(|line| {
            let said = line["message"].as_str().unwrap().to_owned();
            let hub = line["hub"].as_str().map(str::to_owned);
            assert!(line.get("attempts").is_some() || !said.starts_with("delivered"));
            (said, hub)
        })
        .collect()
}

#[test]
fn the_file_says_what_is_logged_and_a_reload_changes_it() {
    let (site, hub) = (Site::new(), FakeHub::start());
    let log = "[log]\nlevel = \"info\"\nformat = \"json\"\n";
    let mut setup = Setup::new(&site, &[hub.url()], log);
    let daemon = Daemon::spawn(setup.command("run"));
    site.write_list("a", "changelist", "2");
    let mut line = daemon.await_log("");
    while line["message"] != "ready" {
        assert_ne!(line["level"], "DEBUG", "{line}");
        line = daemon.await_log("");
    }
    setup.replace("\"info\"", "\"debug\"");
    setup.file();
    daemon.signal(Signal::HUP);
    daemon.await_log("reloaded the configuration: log changed");
    site.write_list("a", "changelist", "3");
    while daemon.await_log("")["level"] != "DEBUG" {}
    for (before, after, said) in [
        ("\"json\"", "\"human\"", "log.format has changed: restart"),
        (
            "\"human\"",
            "\"json\"",
            "reloaded the configuration: nothing",
        ),
        ("\"debug\"", "\"error\"", "reloaded the configuration: log"),
    ] {
        setup.replace(before, after);
        setup.file();
        daemon.signal(Signal::HUP);
        daemon.await_log(said);
    }
}

#[test]
fn the_life_of_a_notification_can_be_followed_by_topic_and_number() {
    let site = Site::new();
    let [content, pinged] = [(); 2].map(|()| FakeHub::start());
    let hubs = content.table("") + &pinged.table("mode = \"ping\"");
    let setup = Setup::with_source(&site, "", &hubs);
    let daemon = setup.start();
    content.behave(Manner::Refuse(503));
    site.write_list("a", "changelist", "2");
    daemon.await_log("did not accept notification 1: ");
    pinged.notification();
    daemon.get("/topics/main/a/capabilitylist/");
    daemon.await_log("was fetched after the ping of notification 1 ");
    content.behave(Manner::Accept);
    daemon.await_log(&format!("delivered notification 1 to {}", content.url()));
    let (_, log) = daemon.stop_and_tell();

    let life = life(&log, 1);
    let of = |hub: &FakeHub| -> Vec<&str> {
        let events = life
            .iter()
            .filter(|(_, named)| named.as_ref() == Some(&hub.url()));
        events.map(|(said, _)| said.as_str()).collect()
    };
    assert_eq!(life[0], (format!("cut notification 1 of {TOPIC}"), None));
    let changed = "notification 1: updated https://source.example/a/changelist.xml";
    assert_eq!(life[1], (changed.to_owned(), None));
    let hub = content.url();
    let mut said = of(&content);
    assert_eq!(
        said.pop().unwrap(),
        format!("delivered notification 1 to {hub}")
    );
    assert!(said.len() > 2, "it was refused: {said:#?}");
    for (place, words) in said.into_iter().enumerate() {
        let want = match place % 2 {
            0 => format!("submitting notification 1 to {hub}"),
            _ => format!("{hub} did not accept notification 1: "),
        };
        assert_starts_with(words, &want);
    }

    let hub = pinged.url();
    let said: BTreeSet<&str> = of(&pinged).into_iter().collect();
    for sentence in [
        format!("submitting notification 1 to {hub}"),
        format!("delivered notification 1 to {hub}"),
        format!("{TOPIC} was fetched after the ping of notification 1 to {hub}"),
    ] {
        assert!(said.contains(sentence.as_str()), "{sentence}: {said:#?}");
    }
}

#[test]
fn the_journal_is_told_how_grave_each_line_is() {
    let site = Site::new();
    site.write("a/orphan.xml", &list("nowhere", "changelist", "1"));
    let setup = Setup::new(&site, &[], "");
    let mut command = setup.command("run");
    // What systemd sets where standard error leads to the journal: the file behind it.
    let (reader, writer) = std::io::pipe().unwrap();
    let file = fstat(&writer).unwrap();
    command.env("JOURNAL_STREAM", format!("{}:{}", file.st_dev, file.st_ino));
    let mut child = command.stderr(Stdio::from(writer)).spawn().unwrap();
    drop(command);
    let mut seen = BTreeSet::new();
    for line in BufReader::new(reader).lines() {
        let line = line.unwrap();
        let levels = [("<6>", " INFO "), ("<4>", " WARN ")];
        let level = levels
            .into_iter()
            .find(|(prefix, level)| line.starts_with(prefix) && line.contains(level));
        seen.insert(
            level
                .unwrap_or_else(|| panic!("without its priority: {line}"))
                .0,
        );
        if seen.len() == levels.len() {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn lines_that_do_not_go_to_the_journal_have_no_priority() {
    let (_site, setup) = Setup::embedding("");
    let mut command = setup.run();
    // As where systemd started a shell that started us, with a standard error of our own.
    command.env("JOURNAL_STREAM", "1:2");
    Daemon::ready(command);
}

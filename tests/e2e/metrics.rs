//! The metrics of a daemon that has everything: docs/reference.md describes each, and they count correctly.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use crate::embedded::subscribe;
use crate::subscriptions::topic;
use crate::support::daemon::{Daemon, Setup};
use crate::support::documents::{Site, list};
use crate::support::hub::{FakeHub, Manner};
use crate::support::needs;

/// The type of a metric, and the names of its labels.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    kind: String,
    labels: BTreeSet<String>,
}

/// A daemon with a hub of each kind, a subscriber, and something wrong with its tree.
struct Everything {
    daemon: Daemon,
    refusing: FakeHub,
    site: Site,
    _others: (Setup, [FakeHub; 3]),
}

fn everything() -> Everything {
    let site = Site::new();
    site.write("a/orphan.xml", &list("nowhere", "changelist", "1"));
    let [content, pinged, refusing, subscriber] = [(); 4].map(|()| FakeHub::start());
    let hubs = [
        (&content, "content"),
        (&pinged, "ping"),
        (&refusing, "content"),
    ];
    let hubs = hubs.map(|(hub, mode)| hub.table(&format!("mode = \"{mode}\"")));
    let mut setup = Setup::with_source(
        &site,
        "broken_after = \"50ms\"\nchange_notifications = true",
        &hubs.concat(),
    );
    setup.config.push_str("enabled = true\n");
    // The subscriber must reach the topic.
    let public_url = format!("public_url = \"{}\"\n", crate::support::daemon::TOPICS);
    setup.replace(&public_url, "");
    let daemon = setup.start();
    site.write("a/broken.xml", &list("a", "changelist", "1")[..200]);
    daemon.await_log("cannot read a/broken.xml");
    let topic = topic(&daemon, "a");
    let callback = format!("http://{}/callback", subscriber.address);
    subscribe(daemon.public, &topic, &callback);
    daemon.await_log(" subscribed to ");
    subscriber.request();
    refusing.behave(Manner::Refuse(503));
    site.write_list("a", "changelist", "2");
    subscriber.notification();
    content.notification();
    pinged.notification();
    daemon.await_log("did not accept notification 1: ");
    Everything {
        daemon,
        refusing,
        site,
        _others: (setup, [content, pinged, subscriber]),
    }
}

/// Each metric of an exposition, with the labels of its values. Those of a histogram are one.
fn exposed(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            family = name.to_owned();
            let metric = Metric {
                kind: kind.to_owned(),
                labels: BTreeSet::new(),
            };
            assert!(metrics.insert(family.clone(), metric).is_none(), "{line}");
        } else if !line.starts_with('#') {
            let (name, labels) = match line.split_once('{') {
                Some((name, rest)) => (name, rest.rsplit_once('}').unwrap().0),
                None => (line.split_once(' ').unwrap().0, ""),
            };
            assert!(name.starts_with(&family), "{line} is none of {family}");
            let names = labels
                .split("\",")
                .filter_map(|label| label.split_once("=\""));
            let names = names.map(|(name, _)| name.to_owned());
            let metric = metrics.get_mut(&family).unwrap();
            metric.labels.extend(names.filter(|name| name != "le"));
        }
    }
    metrics
}

/// Each metric of the tables in docs/reference.md, without those of `rsnotify hub` alone.
fn documented() -> BTreeMap<String, Metric> {
    let page = include_str!("../../docs/reference.md");
    let (page, _) = page
        .split_once("\n### Metrics of a hub for many Sources\n")
        .unwrap();
    let (_, page) = page.split_once("\n## Metrics\n").unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let metrics = rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, _meaning] = cells[..] else {
            panic!("not three cells: {row}");
        };
        let (kind, labels) = kind.split_once(';').unwrap_or((kind, ""));
        let labels = labels.split('`').skip(1).step_by(2);
        let metric = Metric {
            kind: kind.to_owned(),
            labels: labels.map(str::to_owned).collect(),
        };
        (name.trim_matches('`').to_owned(), metric)
    });
    metrics.collect()
}

/// The value of a line that begins so.
fn value(text: &str, series: &str) -> f64 {
    let begins = format!("{series} ");
    let line = text.lines().find(|line| line.starts_with(&begins));
    let line = line.unwrap_or_else(|| panic!("no {series} in {text}"));
    line[begins.len()..].parse().unwrap()
}

#[test]
fn the_page_has_each_metric_that_is_exposed_and_no_other() {
    let everything = everything();
    let (_, text) = everything.daemon.get_admin("/metrics");
    let (exposed, documented) = (exposed(&text), documented());
    for (name, metric) in &exposed {
        assert_eq!(
            Some(metric),
            documented.get(name),
            "docs/reference.md, {name}\n{text}"
        );
    }
    for name in documented.keys() {
        assert!(
            exposed.contains_key(name),
            "docs/reference.md has {name}:\n{text}"
        );
    }
    lint(&text);
}

/// Checks an exposition with promtool, where there is one.
fn lint(text: &str) {
    let Some(promtool) = needs::program("promtool") else {
        return;
    };
    let mut promtool = Command::new(promtool);
    promtool.args(["check", "metrics"]);
    promtool.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{said}\n{text}");
}

#[test]
fn attempts_retries_and_acceptances_are_counted_for_each_hub() {
    let everything = everything();
    let hub = everything.refusing.url();
    everything.refusing.behave(Manner::Accept);
    everything
        .daemon
        .await_log(&format!("delivered notification 1 to {hub}"));
    let (_, text) = everything.daemon.get_admin("/metrics");
    let of_hub = |name: &str, more: &str| value(&text, &format!("{name}{{hub=\"{hub}\"{more}}}"));
    let attempts = |outcome: &str| {
        let label = format!(",kind=\"framework\",outcome=\"{outcome}\"");
        of_hub("rsnotify_attempts_total", &label)
    };
    let refused = attempts("unavailable");
    assert!(refused >= 1.0, "{text}");
    assert_eq!(attempts("accepted"), 1.0);
    assert_eq!(attempts("no_answer"), 0.0);
    let framework = ",kind=\"framework\"";
    assert_eq!(of_hub("rsnotify_retries_total", framework), refused);
    assert_eq!(of_hub("rsnotify_accepted_changes_total", framework), 1.0);
    assert_eq!(of_hub("rsnotify_attempt_seconds_count", ""), refused + 1.0);
    assert_eq!(
        of_hub("rsnotify_notification_seconds_count", framework),
        1.0
    );
    let waited = of_hub("rsnotify_notification_seconds_sum", framework);
    assert!(
        waited > of_hub("rsnotify_attempt_seconds_sum", ""),
        "{text}"
    );
    assert_eq!(of_hub("rsnotify_oldest_due_seconds", framework), 0.0);
}

#[test]
fn trees_and_topics_are_counted() {
    let everything = everything();
    let daemon = &everything.daemon;
    daemon.get("/topics/main/a/capabilitylist/");
    daemon.get("/topics/main/nowhere/");
    let (_, text) = daemon.get_admin("/metrics");
    let main = "source=\"main\"";
    let documents = format!("documents{{{main},capability=\"changelist\",state=");
    let mount = format!("{main},mount=\"{}\"", everything.site.root.path().display());
    for (series, wanted) in [
        (format!("{documents}\"announced\"}}"), 1.0),
        (format!("{documents}\"unrouted\"}}"), 1.0),
        (format!("broken_documents{{{main}}}"), 1.0),
        (format!("hint_overflows_total{{{main}}}"), 0.0),
        // Three of the set, a Source Description and one of no set: the broken one came later.
        (format!("last_sweep_files{{{mount}}}"), 5.0),
        (format!("mount_present{{{mount}}}"), 1.0),
        ("topic_requests_total{code=\"4xx\"}".to_owned(), 1.0),
        ("ready".to_owned(), 1.0),
        ("unsaved".to_owned(), 0.0),
        ("save_failures_total".to_owned(), 0.0),
    ] {
        let found = value(&text, &format!("rsnotify_{series}"));
        assert_eq!(found, wanted, "{series}");
    }
    let began = value(&text, "process_start_time_seconds");
    for (series, least) in [
        (format!("hints_total{{{main}}}"), 1.0),
        (format!("sweep_seconds_count{{{mount}}}"), 1.0),
        (format!("last_sweep_timestamp_seconds{{{mount}}}"), began),
        ("topic_requests_total{code=\"2xx\"}".to_owned(), 1.0),
    ] {
        let found = value(&text, &format!("rsnotify_{series}"));
        assert!(found >= least, "{series}: {found}");
    }
}

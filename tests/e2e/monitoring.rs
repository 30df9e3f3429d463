//! examples/prometheus can be parsed, names only metrics and headings that exist, and its alerts fire when they should.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::examples::manifest::{text, yaml};
use crate::support::needs;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/prometheus");

fn rules() -> Vec<Value> {
    let file = yaml("examples/prometheus/rsnotify.rules.yml");
    let groups = file["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap().clone());
    rules.collect()
}

/// Every value under a key, however deep.
fn values<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                found.extend(value.as_str().filter(|_| name == key));
                values(value, key, found);
            }
        }
        Value::Array(array) => array.iter().for_each(|value| values(value, key, found)),
        _ => {}
    }
}

/// The metrics of ours in an expression, as the page names them.
fn named(expression: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(|c| !is_name(c));
    let ours = words.filter(|word| word.starts_with("rsnotify_") || word.starts_with("process_"));
    ours.map(|word| {
        let of_histogram = ["_bucket", "_sum", "_count"];
        let mut family = of_histogram.iter().filter_map(|end| word.strip_suffix(end));
        family.next().unwrap_or(word).to_owned()
    })
    .collect()
}

fn assert_known(names: &BTreeSet<String>, place: &str) {
    let reference = text("docs/reference.md");
    for name in names {
        let row = format!("\n| `{name}` | ");
        assert!(reference.contains(&row), "{place} names {name}");
    }
}

#[test]
fn the_rules_name_metrics_that_exist_and_are_all_tried() {
    let tried = text("examples/prometheus/rsnotify.test.yml");
    let rules = rules();
    assert!(!rules.is_empty());
    for rule in &rules {
        let alert = rule["alert"].as_str().unwrap();
        let names = named(rule["expr"].as_str().unwrap());
        assert!(!names.is_empty() || alert == "RsnotifyAbsent", "{alert}");
        assert_known(&names, alert);
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{alert}"
        );
        assert!(rule["annotations"]["summary"].as_str().is_some(), "{alert}");
        assert!(
            tried.contains(alert),
            "rsnotify.test.yml does not try {alert}"
        );
    }
    assert_known(&named(&tried), "rsnotify.test.yml");
}

/// Returns the anchor that GitHub and others make of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    let kept: String = kept.collect();
    kept.trim().to_lowercase().replace(' ', "-")
}

#[test]
fn each_rule_leads_to_a_heading_that_says_what_to_do() {
    let page = text("docs/operations.md");
    let headings = page.lines().filter_map(|line| line.strip_prefix('#'));
    let headings: BTreeSet<String> = headings
        .map(|heading| anchor(heading.trim_start_matches('#')))
        .collect();
    for rule in rules() {
        let description = rule["annotations"]["description"].as_str().unwrap();
        let (_, link) = description.split_once("docs/operations.md#").unwrap();
        assert!(headings.contains(link.trim()), "no heading for {link}");
    }
}

#[test]
fn the_dashboard_is_short_and_names_metrics_that_exist() {
    let dashboard: Value =
        serde_json::from_str(&text("examples/prometheus/grafana-dashboard.json")).unwrap();
    let mut expressions = Vec::new();
    values(&dashboard, "expr", &mut expressions);
    values(&dashboard, "query", &mut expressions);
    for expression in expressions {
        assert_known(&named(expression), expression);
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_u64())
        .collect();
    assert_eq!(ids.len(), panels.len(), "two panels have one id");
    // More are not read when something is wrong.
    assert!(panels.len() <= 12, "{} panels", panels.len());
    for panel in panels {
        let targets = panel["targets"].as_array();
        assert!(
            targets.is_some_and(|targets| !targets.is_empty()),
            "{panel}"
        );
    }
}

#[test]
fn the_scrape_example_asks_where_the_admin_listener_is_by_default() {
    let file = yaml("examples/prometheus/prometheus.yml");
    let job = &file["scrape_configs"][0];
    assert_eq!(job["job_name"], "rsnotify");
    let target = job["static_configs"][0]["targets"][0].as_str().unwrap();
    let default = format!("| `admin_listen` | `\"{target}\"` |");
    assert!(text("docs/configuration.md").contains(&default), "{target}");
    for name in file["rule_files"].as_array().unwrap() {
        let path = Path::new(DIRECTORY).join(name.as_str().unwrap());
        assert!(path.is_file(), "{path:?}");
    }
}

#[test]
fn prometheus_takes_the_examples_and_the_alerts_fire_when_they_should() {
    let Some(program) = needs::program("promtool") else {
        return;
    };
    for arguments in [
        ["check", "rules", "rsnotify.rules.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "rsnotify.test.yml"],
    ] {
        let mut promtool = Command::new(&program);
        promtool.current_dir(DIRECTORY);
        let output = promtool.args(arguments).output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}

//! The configuration, its example file and its reference page agree.

use std::collections::BTreeMap;
use std::fs;

use rsnotify::config::Config;
use rsnotify::config::duration;
use rsnotify::config::overrides::Overrides;

use serde_json::Value;

use crate::{example_in_full, text};

/// The tables of the file with their keys, read from the types that mirror it.
fn keys() -> BTreeMap<&'static str, Vec<String>> {
    let tables = [
        ("File", ""),
        ("Server", "server"),
        ("Source", "source"),
        ("Mount", "mount"),
        ("Window", "window"),
        ("Hub", "hub"),
        ("EmbeddedHub", "embedded_hub"),
        ("Channel", "channel"),
    ];
    let mut keys: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut table = None;
    for line in text("src/config/raw.rs").lines() {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.trim_end_matches(" {");
            let known = tables.iter().find(|(own, _)| *own == name);
            let (_, known) =
                known.unwrap_or_else(|| panic!("this test does not know the table {name}"));
            table = Some(*known);
        } else if let (Some(table), Some(rest)) = (table, line.strip_prefix("    pub ")) {
            let (key, _) = rest.split_once(':').unwrap();
            keys.entry(table).or_default().push(key.to_owned());
        }
    }
    assert_eq!(keys.len(), tables.len(), "{keys:?}");
    keys
}

fn load(text: &str) -> Result<Config, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    fs::write(&path, text).unwrap();
    let mut config =
        Config::load(Some(&path), &Overrides::default()).map_err(|error| error.to_string())?;
    config.file = None;
    Ok(config)
}

#[test]
fn the_example_is_valid_as_it_stands() {
    load(&text("config.example.toml")).unwrap();
}

#[test]
fn the_example_shows_the_defaults() {
    let full = example_in_full();
    let (defaults, _) = full.split_once("# A hub elsewhere.").unwrap();
    let mut shown = load(defaults).unwrap();
    let given = load(&text("config.example.toml")).unwrap();
    shown.state_dir.clone_from(&given.state_dir);
    assert_eq!(shown, given);
}

#[test]
fn the_example_shows_every_key_and_no_other() {
    let full: toml::Table = toml::from_str(&example_in_full()).unwrap();
    let table = |name: &str| match &full[name] {
        toml::Value::Array(tables) => tables[0].as_table().unwrap().clone(),
        value => value.as_table().unwrap().clone(),
    };
    for (name, mut keys) in keys() {
        let shown = match name {
            "" => full.clone(),
            "mount" => table("source")["mount"][0].as_table().unwrap().clone(),
            name => table(name),
        };
        let mut shown: Vec<String> = shown.keys().cloned().collect();
        shown.sort();
        keys.sort();
        assert_eq!(
            shown, keys,
            "[{name}] in config.example.toml beside src/config/raw.rs"
        );
    }
}

#[test]
fn the_reference_page_explains_every_key_and_no_other() {
    let page = text("docs/configuration.md");
    let mut explained: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut table = String::new();
    for line in page.lines() {
        if line.starts_with("## ") || line.starts_with("### ") {
            let name = line
                .trim_start_matches('#')
                .trim()
                .trim_matches(['`', '[', ']']);
            table = if name == "Top level" {
                String::new()
            } else {
                name.to_owned()
            };
        } else if let Some(rest) = line.strip_prefix("| `") {
            let (key, _) = rest.split_once('`').unwrap();
            explained
                .entry(table.clone())
                .or_default()
                .push(key.to_owned());
        }
    }
    for (name, keys) in keys() {
        assert_eq!(
            explained.remove(name),
            Some(keys),
            "[{name}] in docs/configuration.md beside src/config/raw.rs"
        );
    }
    assert!(
        explained.is_empty(),
        "not in src/config/raw.rs: {explained:?}"
    );
}

/// The text without links, and without what opens brackets.
fn unlinked(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().replace('[', "");
    for part in parts {
        let (_, rest) = part.split_once(')').unwrap();
        plain.push_str(&rest.replace('[', ""));
    }
    plain
}

#[test]
fn the_reference_page_says_what_the_schema_says() {
    let schema: Value = serde_json::from_str(&text("config.schema.json")).unwrap();
    let page = text("docs/configuration.md");
    let mut table = &schema;
    let mut compared = 0;
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("## `[") {
            let name = name.trim_matches(['[', ']', '`']);
            table = &schema["properties"][name];
            if let Some(items) = table.get("items") {
                table = items;
            }
        } else if line == "### `mount`" {
            table = &table["properties"]["mount"]["items"];
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", key, default, meaning, ""] = cells[..] else {
            continue;
        };
        let Some(key) = key.strip_prefix('`') else {
            continue;
        };
        let key = &table["properties"][key.trim_end_matches('`')];
        let described = key["description"].as_str().unwrap_or_default();
        let meaning = unlinked(meaning);
        assert!(
            !described.is_empty() && meaning.starts_with(unlinked(described).trim_end_matches('.')),
            "{line}\n{described}"
        );
        if let Some(in_force) = key.get("default").filter(|_| default.contains('`')) {
            let shown: toml::Table = format!("a = {}", default.trim_matches('`'))
                .parse()
                .unwrap();
            assert_eq!(
                canonical(shown["a"].clone()),
                canonical(toml::Value::try_from(in_force).unwrap()),
                "{line}"
            );
        }
        compared += 1;
    }
    assert_eq!(compared, keys().values().flatten().count());
}

/// One spelling of a duration.
fn canonical(value: toml::Value) -> toml::Value {
    match value.as_str().and_then(|text| duration::parse(text).ok()) {
        Some(duration) => toml::Value::from(duration::display(duration)),
        None => value,
    }
}

//! The example file and the reference page are those of the keys' definitions.

use std::{env, fs};

use rsnotify::config::Config;
use rsnotify::config::environment::Overrides;
use rsnotify::config::hub_config::HubConfig;

use crate::generated::{example, hub_example, tables};
use crate::{example_in_full, repository, text};

const RENEW: &str = "run packaging/renew and commit what it writes";

/// Compares a file of the repository with what it is to be; `packaging/renew` has it written.
fn compare(path: &str, want: &str) {
    if env::var_os("RENEW").is_some() {
        fs::write(repository().join(path), want).unwrap();
    }
    assert!(text(path) == want, "{path} is stale: {RENEW}");
}

#[test]
fn the_example_file_is_that_of_the_definitions() {
    compare("config.example.toml", &example());
}

#[test]
fn the_example_file_of_the_hub_is_that_of_the_definitions_and_valid() {
    compare("hub.example.toml", &hub_example());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hub.toml");
    fs::write(&path, hub_example()).unwrap();
    HubConfig::load(Some(&path), &Overrides::default()).unwrap();
}

#[test]
fn the_reference_page_has_the_tables_of_the_definitions() {
    let page = text("docs/configuration.md");
    let mut tables = tables();
    let mut lines: Vec<String> = Vec::new();
    let mut rows = None;
    for line in page.lines() {
        if line.starts_with('#') {
            assert_eq!(rows, None, "{line} follows a heading without its table");
            let table = tables.iter().position(|table| table.heading == line);
            rows = table.map(|position| tables.remove(position).rows);
        }
        if !line.starts_with("| `") {
            lines.push(line.to_owned());
        }
        if line == "|---|---|---|" {
            lines.extend(rows.take().into_iter().flatten());
        }
    }
    assert!(tables.is_empty(), "without a heading: {tables:?}");
    compare("docs/configuration.md", &(lines.join("\n") + "\n"));
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
fn the_example_shows_the_defaults() {
    let full = example_in_full();
    let (defaults, _) = full.split_once("[[hub]]").unwrap();
    let mut shown = load(defaults).unwrap();
    let given = load(&text("config.example.toml")).unwrap();
    shown.state_dir.clone_from(&given.state_dir);
    assert_eq!(shown, given);
}

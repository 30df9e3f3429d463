//! Manifests as their tools read them, the daemon that they start, and the recipe of its image; `tests/container/run` builds
//! and runs it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::{CommandFactory, Parser};
use rsnotify::cli::options::{Command, CommandLine};
use rsnotify::config::Config;
use serde_json::Value;
use tempfile::TempDir;
use yaml_rust2::{Yaml, YamlLoader};

/// The text of a file of this repository.
pub fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The first document of a YAML file.
pub fn yaml(path: &str) -> Value {
    json(&YamlLoader::load_from_str(&text(path)).unwrap()[0])
}

fn json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Array(items) => items.iter().map(json).collect(),
        Yaml::Hash(entries) => {
            let pair =
                |(key, value): (&Yaml, &Yaml)| (key.as_str().unwrap().to_owned(), json(value));
            Value::Object(entries.iter().map(pair).collect())
        }
        Yaml::Integer(number) => (*number).into(),
        Yaml::Boolean(truth) => (*truth).into(),
        Yaml::String(text) => text.as_str().into(),
        Yaml::Null => Value::Null,
        other => panic!("{other:?} is not for a manifest"),
    }
}

/// The texts in a list.
pub fn texts(list: &Value) -> Vec<&str> {
    let list = list
        .as_array()
        .unwrap_or_else(|| panic!("{list} is no list"));
    list.iter().map(|item| item.as_str().unwrap()).collect()
}

/// The only item of a list that has this value under a key.
pub fn named<'a>(list: &'a Value, key: &str, value: &str) -> &'a Value {
    let items = list
        .as_array()
        .unwrap_or_else(|| panic!("{list} is no list"));
    let mut found = items.iter().filter(|item| item[key] == value);
    let item = found
        .next()
        .unwrap_or_else(|| panic!("no {key} {value} in {list}"));
    assert!(found.next().is_none(), "two {key} {value}");
    item
}

/// Returns the effective options of a container's arguments and variables: as if each variable were its flag, which
/// clap then knows or not.
pub fn command(arguments: &[&str], variables: &BTreeMap<String, String>) -> Command {
    let mut line = vec!["rsnotify".to_owned()];
    line.extend(arguments.iter().map(ToString::to_string));
    for (name, value) in variables {
        if let Some(name) = name.strip_prefix("RSNOTIFY_") {
            line.push(format!("--{}", name.to_lowercase().replace('_', "-")));
            line.push(value.clone());
        }
    }
    CommandLine::command().debug_assert();
    match CommandLine::try_parse_from(&line) {
        Ok(options) => options.command,
        Err(error) => panic!("{line:?}: {error}"),
    }
}

/// The configuration that such a daemon has with this file. A secret of its mount is there, with some content.
pub fn configuration(run: &Command, file: &str, secret: Option<&str>) -> Config {
    let Command::Run(run) = run else {
        panic!("{run:?} is no daemon");
    };
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("config.toml");
    let mut text = text(file);
    if let Some(secret) = secret {
        assert!(text.contains(secret), "{file} does not name {secret}");
        let held = directory.path().join("secret");
        fs::write(&held, "a secret\n").unwrap();
        text = text.replace(secret, held.to_str().unwrap());
    }
    fs::write(&path, text).unwrap();
    let mut overrides = run.keys.clone();
    overrides.source.tree.state.state_dir = Some("/var/lib/rsnotify".into());
    Config::load(Some(&path), &overrides).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The name and version under which it is built, and the examples use it.
pub const IMAGE: &str = concat!("localhost/rsnotify:", env!("CARGO_PKG_VERSION"));
/// User that runs in it.
pub const USER: &str = "65532";

/// Returns the arguments of each of these instructions of the recipe.
fn instructions(name: &str) -> Vec<String> {
    let recipe = text("packaging/Containerfile").replace("\\\n", " ");
    let lines = recipe.lines().filter_map(|line| line.strip_prefix(name));
    lines
        .filter_map(|rest| rest.strip_prefix(' '))
        .map(str::to_owned)
        .collect()
}

/// The variables that the image sets.
pub fn variables() -> BTreeMap<String, String> {
    let pairs = instructions("ENV");
    let pairs = pairs.iter().map(|pair| pair.split_once('=').unwrap());
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The ports that it says it listens on.
pub fn ports() -> Vec<String> {
    instructions("EXPOSE")
}

fn list(text: &str) -> Vec<String> {
    let list: Vec<Value> = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"));
    list.iter()
        .map(|item| item.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_image_runs_the_daemon_and_asks_it_whether_it_is_alive() {
    let [entry] = &instructions("ENTRYPOINT")[..] else {
        panic!("one entry point");
    };
    let [run] = &instructions("CMD")[..] else {
        panic!("one command");
    };
    let [check] = &instructions("HEALTHCHECK")[..] else {
        panic!("one health command");
    };
    let entry = list(entry);
    let run = list(run);
    let run: Vec<&str> = run.iter().map(String::as_str).collect();
    assert!(matches!(command(&run, &variables()), Command::Run(_)));

    let (_, check) = check.split_once("CMD ").unwrap();
    let check = list(check);
    assert_eq!(check[..1], entry);
    assert!(matches!(
        command(&[check[1].as_str()], &BTreeMap::new()),
        Command::Health(_)
    ));
}

#[test]
fn the_image_is_of_this_version_and_belongs_to_nobody_else() {
    assert!(instructions("ARG").contains(&format!("VERSION={}", env!("CARGO_PKG_VERSION"))));
    assert_eq!(instructions("USER"), [format!("{USER}:{USER}")]);
    assert!(
        instructions("COPY")
            .iter()
            .any(|copy| copy.contains(&format!("--chown={USER}:{USER} /state/ /var/lib/")))
    );
    assert_eq!(
        instructions("VOLUME"),
        [variables()["STATE_DIRECTORY"].as_str()]
    );
    assert_eq!(instructions("FROM").last().unwrap(), "scratch");
}

//! The recipe of the image; `tests/container/run` builds and runs it.

use std::collections::BTreeMap;

use rsnotify::cli::options::Command;
use serde_json::Value;

use crate::examples::manifest::{command, text};

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

//! The files in the packages of the crates, and the crates that users of the documents alone compile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use crate::source::repository;

/// Names in a package: of its folders, and of files directly in it.
const PACKAGED: &str = ".cargo_vcs_info.json CHANGELOG.md Cargo.lock Cargo.toml Cargo.toml.orig \
    LICENSE-APACHE LICENSE-MIT README.md askama.toml config.example.toml config.schema.json docs \
    hub.example.toml src templates";

#[test]
fn packages_have_what_is_built_and_read_and_nothing_else() {
    for (package, more) in [
        ("announce", None),
        ("destination", None),
        ("messaging", None),
        ("resourcesync", Some("examples")),
        ("websub", Some("examples")),
        ("rsnotify", None),
    ] {
        let listed = Command::new(env!("CARGO"))
            .args([
                "package",
                "--list",
                "--offline",
                "--allow-dirty",
                "--package",
                package,
            ])
            .current_dir(repository())
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&listed.stderr);
        assert!(listed.status.success(), "{package}: {message}");
        let files = String::from_utf8(listed.stdout).unwrap();
        for name in ["LICENSE-MIT", "README.md", "src/lib.rs"] {
            assert!(files.lines().any(|file| file == name), "{package}: {name}");
        }
        let is_other = |file: &&str| {
            let name = file.split('/').next().unwrap();
            !PACKAGED.split(' ').any(|it| it == name) && more != Some(name)
        };
        let others: Vec<&str> = files.lines().filter(is_other).collect();
        assert!(others.is_empty(), "{package}: {others:?}");
    }
}

/// A consumer of documents, notifications and Atom feeds compiles these packages. Those for tests are among them.
#[test]
fn documents_are_read_without_a_database_or_http() {
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let lock: toml::Table = lock.parse().unwrap();
    let needed = lock["package"].as_array().unwrap().iter().map(|package| {
        let needed = package.get("dependencies").and_then(|list| list.as_array());
        let names = needed
            .into_iter()
            .flatten()
            .map(|name| name.as_str().unwrap());
        let names = names.map(|name| name.split(' ').next().unwrap());
        (package["name"].as_str().unwrap(), names.collect::<Vec<_>>())
    });
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, needed) in needed {
        by_name.entry(name).or_default().extend(needed);
    }
    let (mut compiled, mut open) = (BTreeSet::new(), vec!["resourcesync"]);
    while let Some(name) = open.pop() {
        if compiled.insert(name) {
            open.extend(&by_name[name]);
        }
    }
    for other in ["hyper", "libsqlite3-sys", "reqwest", "rsnotify", "tokio"] {
        assert!(by_name.contains_key(other), "{other}");
        assert!(!compiled.contains(other), "{other}");
    }
}

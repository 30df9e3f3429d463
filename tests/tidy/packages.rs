//! What those that use the documents alone compile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::source::repository;

/// A consumer of documents, notifications and Atom feeds compiles these packages. Those for tests are among them.
#[test]
fn documents_are_read_without_a_database_or_http() {
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let lock: toml::Table = lock.parse().unwrap();
    let packages = lock["package"].as_array().unwrap();
    let needed = packages.iter().map(|package| {
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

//! The examples: what one publishes, the other prints.

use std::fs::{self, File};

use resourcesync::document::Form;
use resourcesync::parse::parse;

#[path = "../examples/entries.rs"]
#[expect(dead_code, reason = "its main function")]
mod entries;
#[path = "../examples/publish.rs"]
#[expect(dead_code, reason = "its main function")]
mod publish;

#[test]
fn a_directory_is_published_with_what_a_destination_needs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::create_dir(path.join("rivers")).unwrap();
    fs::write(path.join("rivers/elbe 1.txt"), "It carries ice.").unwrap();
    let now = "2026-11-20T09:00:00Z".parse().unwrap();
    // The documents of the first time are no resources of the second.
    for _ in 0..2 {
        let count = publish::publish(path, "https://example.org/", now).unwrap();
        assert_eq!(count, 1);
    }
    let printed = |name: &str| {
        let mut out = Vec::new();
        entries::print(File::open(path.join(name)).unwrap(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let list = printed("resourcelist.xml");
    let end = "Z\thttps://example.org/rivers/elbe%201.txt\n";
    assert!(
        list.starts_with("resourcelist\t20") && list.ends_with(end),
        "{list}"
    );
    for (name, line) in [
        (
            "capabilitylist.xml",
            "resourcelist\t\thttps://example.org/resourcelist.xml\n",
        ),
        (
            ".well-known/resourcesync",
            "capabilitylist\t\thttps://example.org/capabilitylist.xml\n",
        ),
    ] {
        assert_eq!(printed(name), line);
    }
    let list = File::open(path.join("resourcelist.xml")).unwrap();
    let Ok(list) = parse(list).unwrap() else {
        panic!("it is a document");
    };
    assert_eq!(list.form, Form::List);
    let at = list.span.at.as_deref();
    assert_eq!(at, Some("2026-11-20T09:00:00Z"));
    let up = list.up.unwrap();
    assert_eq!(up.as_str(), "https://example.org/capabilitylist.xml");
}

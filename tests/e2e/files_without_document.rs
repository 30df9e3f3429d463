//! Files that a Capability List names and that are no documents.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::support::daemon::{Setup, exit_with};
use crate::support::documents::{Site, capability_list, list};
use crate::support::hub::FakeHub;

fn packed(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// A set whose Capability List names files of which none is a document.
fn site() -> Site {
    let site = Site::new();
    let whole = list("a", "changelist", "1");
    site.write("a/broken.xml", &whole[..200]);
    site.write(
        "a/plain.xml",
        &whole.replace("<rs:md capability=\"changelist\"/>", ""),
    );
    site.write(
        "a/https.xml",
        &whole.replace("http://www.sitemaps", "https://www.sitemaps"),
    );
    site.write("a/upper.XML", &whole);
    fs::write(site.path("a/packed.xml.gz"), packed(&whole)).unwrap();
    let names = capability_list(
        "a",
        &[
            "resourcelist",
            "changelist",
            "broken",
            "plain",
            "https",
            "absent",
        ],
    );
    let more = "<url><loc>https://source.example/a/upper.XML</loc></url>\n\
                <url><loc>https://source.example/a/packed.xml.gz</loc></url>\n</urlset>";
    site.write("a/capabilitylist.xml", &names.replace("</urlset>", more));
    site
}

const REASONS: [(&str, &str); 6] = [
    ("absent.xml", "no file is there"),
    (
        "broken.xml",
        "the file there is broken: it ends in the middle of an element",
    ),
    (
        "https.xml",
        "its root element urlset is in the namespace \"https://www.sitemaps.org/schemas/sitemap/0.9\": write \
         xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"",
    ),
    (
        "packed.xml.gz",
        r#"write include = ["**/*.xml", "**/.well-known/resourcesync", "**/*.xml.gz"]"#,
    ),
    (
        "plain.xml",
        "it has no root-level rs:md with a capability: add one",
    ),
    (
        "upper.XML",
        r#"write include = ["**/*.xml", "**/.well-known/resourcesync", "**/*.XML"]"#,
    ),
];

#[test]
fn check_says_why_a_file_that_a_list_names_is_no_document() {
    let site = site();
    let setup = Setup::new(&site, &["https://hub.example/".to_owned()], "");
    let (stdout, _) = exit_with(setup.command("check").args(["--json", "--all"]), 1);
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    let findings = answer["findings"].as_array().unwrap().iter();
    let findings: Vec<&str> = findings.map(|finding| finding.as_str().unwrap()).collect();
    for (name, reason) in REASONS {
        let names = format!("names https://source.example/a/{name}, and ");
        let is_it = |finding: &&&str| finding.contains(&names) && finding.contains(reason);
        assert!(
            findings.iter().any(|finding| is_it(&finding)),
            "{name}: {findings:#?}"
        );
    }
    let absent = findings
        .iter()
        .filter(|finding| finding.contains("no file is there"));
    assert_eq!(absent.count(), 1, "{findings:#?}");
}

#[test]
fn the_log_says_why_a_file_that_a_list_names_is_no_document() {
    let hub = FakeHub::start();
    let site = site();
    let setup = Setup::with_source(
        &site,
        "broken_after = \"1s\"",
        &format!("[[hub]]\nurl = \"{}\"\n", hub.url()),
    );
    let daemon = setup.start();
    // Of many findings of one kind the log has three; what lists name comes in order of its name.
    for (_, reason) in &REASONS[..4] {
        daemon.await_log(reason);
    }
    site.write("a/plain.xml", &list("a", "changelist", "1"));
    hub.changes_until(&["created changelist a/plain.xml"]);
}

//! The schema of payloads: it accepts documents of others, and refuses wrong ones.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::interop::readers::{complaints, files_below};

const PAYLOAD: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
  <rs:ln rel="up" href="https://e.org/capabilitylist.xml"/>
  <rs:md capability="framework-notification" until="2026-11-20T10:00:01.000Z"/>
  <url>
    <loc>https://e.org/list.xml</loc>
    <rs:md change="updated" datetime="2026-11-20T10:00:00.000Z" capability="resourcelist"/>
    <rs:ln rel="index" href="https://e.org/index.xml"/>
  </url>
</urlset>
"#;

/// Replacements, each of which makes the payload wrong.
const FAULTS: [(&str, &str); 25] = [
    ("</url>", ""),
    ("<rs:ln rel=\"up\"", "<rs:md/><rs:ln rel=\"up\""),
    ("<urlset", "<urlset xmlns=\"\" xmlns:sm=\"x\""),
    ("schemas/sitemap/0.9", "schemas/sitemap/0.84"),
    (
        "http://www.openarchives.org/rs/terms/",
        "http://www.openarchives.org/rs/",
    ),
    (
        "<rs:md capability=\"framework-notification\"",
        "<rs:md capability=\"notification\"",
    ),
    (
        "capability=\"resourcelist\"",
        "capability=\"resource list\"",
    ),
    ("capability=\"resourcelist\"", "type=\"resourcelist\""),
    ("change=\"updated\"", "change=\"changed\""),
    ("change=\"updated\"", "changed=\"updated\""),
    ("until=\"2026-11-20T10:00:01.000Z\"", "until=\"2026-11-20\""),
    (
        "datetime=\"2026-11-20T10:00:00.000Z\"",
        "datetime=\"2026-11-20T10:00:00.000\"",
    ),
    (
        "datetime=\"2026-11-20T10:00:00.000Z\"",
        "datetime=\"2026-11-31T10:00:00.000Z\"",
    ),
    (
        "datetime=\"2026-11-20T10:00:00.000Z\"",
        "datetime=\"2026-11-20 10:00:00Z\"",
    ),
    ("rel=\"up\" ", ""),
    ("rel=\"up\"", "rel=\"up it is\""),
    (" href=\"https://e.org/index.xml\"", ""),
    ("https://e.org/index.xml", "https://e.org/index[1].xml"),
    ("https://e.org/index.xml", "https://e.org:port/index.xml"),
    ("<loc>https://e.org/list.xml</loc>", ""),
    ("<loc>https://e.org/list.xml</loc>", "<loc>list.xml</loc>"),
    (
        "<loc>https://e.org/list.xml</loc>",
        "<loc>https://e.org/100%.xml</loc>",
    ),
    ("</loc>", "</loc><loc>https://e.org/list.xml</loc>"),
    ("<rs:ln rel=\"index\"", "<rs:link rel=\"index\""),
    ("</urlset>", "<rs:md/></urlset>"),
];

#[test]
fn a_payload_with_a_fault_is_refused() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("payload.xml");
    let said_of = |payload: &str| {
        fs::write(&file, payload).unwrap();
        complaints(std::slice::from_ref(&file))
    };
    let Some(none) = said_of(PAYLOAD) else { return };
    assert!(none.is_empty(), "{none:#?}");
    for (right, wrong) in FAULTS {
        assert!(PAYLOAD.contains(right), "{right}");
        let lines = said_of(&PAYLOAD.replacen(right, wrong, 1)).unwrap();
        assert!(!lines.is_empty(), "{wrong} is taken instead of {right}");
    }
}

#[test]
fn the_example_tree_is_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tree");
    let mut documents = files_below(&examples);
    documents.retain(|path| {
        let is_well_known = path.ends_with(".well-known/resourcesync");
        is_well_known || path.extension().is_some_and(|extension| extension == "xml")
    });
    assert!(documents.len() > 10, "{documents:?}");
    let lines = complaints(&documents).unwrap_or_default();
    assert!(lines.is_empty(), "{lines:#?}");
}

//! Runs the reference library and the validator on a directory of documents. The validator is tried too: it accepts
//! documents of others, and refuses wrong ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use resourcesync::payload::{Entry, Payload};
use resourcesync::uri::Uri;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::support::daemon::finish;
use crate::support::documents::files_below;
use crate::support::needs;
use crate::support::python::python;

/// Reads payloads with the reference library.
pub const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/interop/reader.py");
const SCHEMA: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/e2e/interop/schema/sitemap.xsd"
);

/// A directory with each payload in a file that is named for its place.
pub fn written(bodies: impl Iterator<Item = impl AsRef<[u8]>>) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (place, body) in bodies.enumerate() {
        fs::write(directory.path().join(format!("{place}.xml")), body).unwrap();
    }
    directory
}

/// Has the reference library read payloads, each of which it must understand as it was meant.
pub fn assert_read_as_meant(payloads: &[(Payload, Vec<u8>)]) {
    let Some(python) = python() else { return };
    let directory = written(payloads.iter().map(|(_, body)| body));
    let mut reader = Command::new(python);
    let output = finish(reader.arg(READER).arg(directory.path()));
    let read: Map<String, Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read.len(), payloads.len());
    for (place, (payload, body)) in payloads.iter().enumerate() {
        let body = String::from_utf8_lossy(body);
        assert_eq!(
            read[&format!("{place}.xml")],
            meant(payload),
            "of payload {place}: {body}"
        );
    }
}

/// Returns the output that the library should have for a payload.
fn meant(payload: &Payload) -> Value {
    let link = |relation: &str, target: &Option<Uri>| match target {
        Some(target) => json!([[relation, target.as_str()]]),
        None => json!([]),
    };
    let entry = |entry: &Entry| {
        json!({
            "uri": entry.uri.as_str(),
            "change": entry.change.as_str(),
            "capability": entry.capability.as_str(),
            "datetime": entry.datetime.map(|time| time.as_millisecond()),
            "links": link("index", &entry.index),
        })
    };
    json!({
        "from": payload.from.map(|time| time.as_millisecond()),
        "until": payload.until.map(|time| time.as_millisecond()),
        "described": { "capability": "framework-notification" },
        "links": link("up", &payload.up),
        "entries": payload.entries.iter().map(entry).collect::<Vec<_>>(),
    })
}

/// Has the validator look at payloads, none of which it may refuse.
pub fn assert_valid(bodies: impl Iterator<Item = impl AsRef<[u8]>>) {
    let directory = written(bodies);
    let lines = complaints(&paths_below(directory.path())).unwrap_or_default();
    let first = &lines[..lines.len().min(20)];
    assert!(lines.is_empty(), "{first:#?}");
}

/// Returns the validator's messages about documents; `None` where there is no validator.
fn complaints(files: &[PathBuf]) -> Option<Vec<String>> {
    let mut xmllint = Command::new(needs::program("xmllint")?);
    xmllint.args(["--nonet", "--noout", "--schema", SCHEMA]);
    let output = xmllint.args(files).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let is_praise = |line: &&str| line.ends_with(" validates");
    let praised = said.lines().filter(is_praise).count();
    // Its exit says the same: 0 only if it praised them all.
    assert_eq!(output.status.success(), praised == files.len(), "{said}");
    let complaints = said.lines().filter(|line| !is_praise(line));
    Some(complaints.map(str::to_owned).collect())
}

fn paths_below(directory: &Path) -> Vec<PathBuf> {
    let names = files_below(directory).into_keys();
    names.map(|name| directory.join(name)).collect()
}

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
const FAULTS: &str = r#"
</url> => 
<rs:ln rel="up" => <rs:md/><rs:ln rel="up"
<urlset => <urlset xmlns="" xmlns:sm="x"
schemas/sitemap/0.9 => schemas/sitemap/0.84
http://www.openarchives.org/rs/terms/ => http://www.openarchives.org/rs/
<rs:md capability="framework-notification" => <rs:md capability="notification"
capability="resourcelist" => capability="resource list"
capability="resourcelist" => type="resourcelist"
change="updated" => change="changed"
change="updated" => changed="updated"
until="2026-11-20T10:00:01.000Z" => until="2026-11-20"
datetime="2026-11-20T10:00:00.000Z" => datetime="2026-11-20T10:00:00.000"
datetime="2026-11-20T10:00:00.000Z" => datetime="2026-11-31T10:00:00.000Z"
datetime="2026-11-20T10:00:00.000Z" => datetime="2026-11-20 10:00:00Z"
rel="up"  => 
rel="up" => rel="up it is"
 href="https://e.org/index.xml" => 
https://e.org/index.xml => https://e.org/index[1].xml
https://e.org/index.xml => https://e.org:port/index.xml
<loc>https://e.org/list.xml</loc> => 
<loc>https://e.org/list.xml</loc> => <loc>list.xml</loc>
<loc>https://e.org/list.xml</loc> => <loc>https://e.org/100%.xml</loc>
</loc> => </loc><loc>https://e.org/list.xml</loc>
<rs:ln rel="index" => <rs:link rel="index"
</urlset> => <rs:md/></urlset>
"#;

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
    for fault in FAULTS.trim_matches('\n').lines() {
        let (right, wrong) = fault.split_once(" => ").unwrap();
        assert!(PAYLOAD.contains(right), "{right}");
        let lines = said_of(&PAYLOAD.replacen(right, wrong, 1)).unwrap();
        assert!(!lines.is_empty(), "{wrong} is taken instead of {right}");
    }
}

#[test]
fn the_example_tree_is_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tree");
    let mut documents = paths_below(&examples);
    documents.retain(|path| {
        let is_well_known = path.ends_with(".well-known/resourcesync");
        is_well_known || path.extension().is_some_and(|extension| extension == "xml")
    });
    assert!(documents.len() > 10, "{documents:?}");
    let lines = complaints(&documents).unwrap_or_default();
    assert!(lines.is_empty(), "{lines:#?}");
}

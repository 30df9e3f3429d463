//! Runs the reference library and the validator on a directory of documents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use resourcesync::payload::{Entry, Payload};
use resourcesync::uri::Uri;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::support::daemon::finish;
use crate::support::needs;
use crate::support::python::python;

/// Reads payloads with the reference library.
pub const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/interop/reader.py");
const SCHEMA: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/e2e/interop/schema/sitemap.xsd"
);

/// A directory with each payload in a file that is named for its place.
fn written(payloads: &[(Payload, Vec<u8>)]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (place, (_, body)) in payloads.iter().enumerate() {
        fs::write(directory.path().join(format!("{place}.xml")), body).unwrap();
    }
    directory
}

/// Has the reference library read payloads, each of which it must understand as it was meant.
pub fn assert_read_as_meant(payloads: &[(Payload, Vec<u8>)]) {
    let Some(python) = python() else { return };
    let directory = written(payloads);
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
pub fn assert_valid(payloads: &[(Payload, Vec<u8>)]) {
    let directory = written(payloads);
    let lines = complaints(&files_below(directory.path())).unwrap_or_default();
    let first = &lines[..lines.len().min(20)];
    assert!(lines.is_empty(), "{first:#?}");
}

/// Returns the validator's messages about documents; `None` where there is no validator.
pub fn complaints(files: &[PathBuf]) -> Option<Vec<String>> {
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

/// Every file of a tree.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files_below(&path),
            false => vec![path],
        })
        .collect()
}

//! Content change messages as Atom: a schema of RFC 4287 accepts each, and feedparser reads what was meant.

use std::fs;
use std::process::Command;

use messaging::message::{BrokerNotification, HashedPayload};
use messaging::objects::{AtomRules, atom_messages};
use messaging::objects::{IdentifierForm, ObjectGranularity, TypeRule};
use resourcesync::capability::ChannelKind;
use resourcesync::feed::{FeedEntry, ObjectFeed, change_term};
use serde_json::{Map, Value, json};

use crate::support::daemon::{assert_contains, finish};
use crate::support::needs;
use crate::support::python::python;

const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/interop/atom.py");
const SCHEMA: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/e2e/interop/schema/atom.rng"
);

/// A notification with a change of each kind, with all that an entry may have and with the least.
const NOTIFICATION: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
  <rs:ln rel="up" href="https://e.org/capabilitylist.xml"/>
  <rs:md capability="change-notification" from="2026-11-22T09:00:00Z" until="2026-11-22T09:30:00.5Z"/>
  <url><loc>https://e.org/a/1?x=1&amp;y="2"</loc>
    <rs:md change="created" datetime="2026-11-22T09:10:00.25Z" hash="md5:00" length="7" type="text/html; charset=utf-8"/>
    <rs:ln rel="collection" href="https://e.org/series/7"/><rs:ln rel="author" href="mailto:ada@e.org"/></url>
  <url><loc>https://e.org/a/résumé 文書</loc><rs:md change="updated"/></url>
  <url><loc>https://e.org/b/2</loc><rs:md change="deleted" datetime="2026-11-22"/></url>
  <url><loc>https://e.org/</loc><rs:md change="updated" type="application/pdf"/></url>
</urlset>
"#;

/// Feeds of every form.
fn feeds() -> Vec<ObjectFeed> {
    let notification = BrokerNotification {
        source: "main",
        topic: "https://e.org/changes",
        kind: ChannelKind::Change,
        seq: 1,
        body: HashedPayload::new(NOTIFICATION.as_bytes(), &[]),
    };
    let mut feeds = Vec::new();
    for object in [ObjectGranularity::Resource, ObjectGranularity::Directory] {
        for identifiers in [IdentifierForm::Uri, IdentifierForm::InfoFedora] {
            let form = AtomRules {
                object,
                identifiers,
                location: None,
                types: vec![TypeRule {
                    objects: "https://e.org/**".to_owned(),
                    name: "Report".to_owned(),
                }],
            };
            let messages = atom_messages(&notification, &form).unwrap();
            let read = messages
                .iter()
                .map(|message| ObjectFeed::parse(&message.body));
            feeds.extend(read.map(Result::unwrap));
        }
    }
    // Resources have no states of which lists tell, objects of repositories do.
    let with_state = |feed: &ObjectFeed| ObjectFeed {
        items: feed.items.iter().map(of_state).collect(),
        ..feed.clone()
    };
    feeds.push(with_state(&feeds[0]));
    feeds
}

/// A change of state alone.
fn of_state(item: &FeedEntry) -> FeedEntry {
    FeedEntry {
        content: None,
        change: None,
        state_before: Some("ACTIVE".to_owned()),
        state_after: Some("INACTIVE".to_owned()),
        ..item.clone()
    }
}

#[test]
fn the_schema_of_atom_accepts_each_feed() {
    let Some(xmllint) = needs::program("xmllint") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let validate = |name: &str, body: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, body).unwrap();
        let mut command = Command::new(&xmllint);
        command.args(["--nonet", "--noout", "--relaxng", SCHEMA]);
        let output = command.arg(path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    for (place, feed) in feeds().iter().enumerate() {
        let (is_valid, said) = validate(&format!("{place}.xml"), &feed.render());
        assert!(is_valid, "{said}: {feed:#?}");
    }
    // The schema refuses what RFC 4287 does.
    let whole = String::from_utf8(feeds()[0].render()).unwrap();
    for (part, instead) in [
        ("<author><name>mailto:ada@e.org</name></author>", ""),
        (
            "<updated>2026-11-22T09:10:00.25Z</updated>",
            "<updated>2026-11-22</updated>",
        ),
        ("rel=\"via\"", "rel=\"edit\""),
    ] {
        assert_contains(&whole, part);
        let (is_valid, _) = validate("wrong.xml", whole.replace(part, instead).as_bytes());
        assert!(!is_valid, "without {part}");
    }
}

#[test]
fn feedparser_reads_what_was_meant() {
    let Some(python) = python() else { return };
    let feeds = feeds();
    let directory = tempfile::tempdir().unwrap();
    for (place, feed) in feeds.iter().enumerate() {
        fs::write(directory.path().join(place.to_string()), feed.render()).unwrap();
    }
    let output = finish(Command::new(python).arg(READER).arg(directory.path()));
    let said = String::from_utf8_lossy(&output.stderr);
    let read: Map<String, Value> = serde_json::from_slice(&output.stdout).expect(&said);
    assert_eq!(read.len(), feeds.len());
    for (place, feed) in feeds.iter().enumerate() {
        assert_eq!(read[&place.to_string()], meant(feed), "{feed:#?}");
    }
}

fn meant(feed: &ObjectFeed) -> Value {
    let mut categories = vec![
        json!(["info:fedora/fedora-system:def/view#version", feed.server]),
        json!([
            "http://www.fedora.info/definitions/1/0/types/formatURI",
            feed.format
        ]),
    ];
    categories.extend(
        feed.types
            .iter()
            .map(|term| json!(["changes:OBJECT:TYPE", term])),
    );
    let entries: Vec<Value> = feed.items.iter().map(meant_entry).collect();
    json!({
        "id": feed.id,
        "author": feed.author,
        "title": feed.title,
        "updated": seconds(feed.updated.at()),
        "via": feed.object,
        "related": feed.parent,
        "categories": categories,
        "entries": entries,
    })
}

fn meant_entry(item: &FeedEntry) -> Value {
    let change = item.change.map(change_term);
    let categories = [
        (
            "changes:CONTENT:ITEM:STATEBEFORE",
            item.state_before.as_deref(),
        ),
        (
            "changes:CONTENT:ITEM:STATEAFTER",
            item.state_after.as_deref(),
        ),
        ("changes:ITEM:CHANGE:TYPE", change),
    ];
    let categories = categories.iter().filter(|(_, term)| term.is_some());
    let content = item.content.iter().map(|content| {
        // feedparser's word for content without a type.
        let media_type = content.media_type.as_deref().unwrap_or("text/plain");
        json!([content.src, media_type])
    });
    json!({
        "id": item.id,
        "author": item.author,
        "title": item.title,
        "updated": seconds(item.updated.at()),
        "summary": item.summary,
        "via": [item.item],
        "content": content.collect::<Vec<_>>(),
        "categories": categories.collect::<Vec<_>>(),
    })
}

fn seconds(time: jiff::Timestamp) -> Value {
    let time = time.to_zoned(jiff::tz::TimeZone::UTC);
    json!([
        time.year(),
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    ])
}

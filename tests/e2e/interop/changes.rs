//! Change notifications of whatever a Change List holds, read by the reference library and validated.

use std::fmt::Write;
use std::process::Command;

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use resourcesync::change::Change;
use resourcesync::change_list::{read_changes, read_keys};
use resourcesync::change_payload::ChangePayload;
use resourcesync::uri::Uri;
use serde_json::{Map, Value, json};

use crate::interop::readers::{READER, assert_valid, written};
use crate::support::daemon::finish;
use crate::support::python::python;

/// So many Change Lists are made up by chance, the same each time.
const RANDOM: usize = 1_000;

/// Values that a generator may write, good and bad, by attribute; `|` is between two.
const VALUES: [(&str, &str); 8] = [
    (
        "datetime",
        "2024|2024-11|2024-11-20|2024-11-20T10:05Z|2024-11-20T10:05:00|2024-11-20T10:05:00Z|\
         2024-11-20T19:05:00.123456+09:00|2024-11-20T24:00:00Z|2024-02-30T10:00:00Z|0000-00-00T00:00:00Z|\
         9999-12-31T23:59:59.999999999Z|20241120T100500Z|yesterday|1732096800| |",
    ),
    (
        "hash",
        "md5:1584abdf8ebdc9802ac0c6a7402c03b6|\
         md5:1584 sha-256:854f61290e2e197a11bc91063afce22e43f8ccc655237050ace766adc68dc784|\
         sha-512:AAAA==|1584|md5:|:|md5:15:84|md5 : 15|",
    ),
    (
        "length",
        "0|8876| 8876 |-1|8,876|8876.0|0x1f|\u{661}|99999999999999999999|",
    ),
    (
        "type",
        "text/html|application/ld+json|text/html; charset=\"x\"|text|/|a b/c|",
    ),
    ("encoding", "gzip|gzip, br|,|g z|"),
    ("path", "/a.txt|a.txt"),
    ("modified", "2024-11-20T10:05:00Z|2024|now"),
    ("capability", "resourcelist|x"),
];

const LASTMODS: &str = "2024-11-20T10:05:00Z|2024-11-20T10:05:00.123456Z|2024-11-20|2024|2024-13-01|10:05|\
                        <!-- none -->|";

const CHANGES: &str = "created|updated|deleted| Updated |DELETED|moved|";

const LOCS: [&str; 12] = [
    "https://e.org/a.txt",
    "  https://e.org/b.txt\n",
    "https://e.org/a?x=1&amp;y=%3Cz%3E",
    "https://e.org/&lt;list&gt; [1].txt",
    "https://b\u{fc}cher.example/\u{5217}.txt",
    "https://e.org/a\tb&#13;c.txt",
    "https://e.org/]]&gt;.txt",
    "urn:nbn:de:101:1-20241120",
    "../relative.txt",
    "a.txt",
    "https://e.org/100%.txt",
    "",
];

const LINKS: [&str; 10] = [
    "rel=\"describedby\" href=\"https://e.org/a.meta.xml\" type=\"application/xml\"",
    "rel=\"duplicate\" href=\"https://mirror.example/a\" pri=\"1\" modified=\"2024-11-20T10:05:00Z\"",
    "rel=\"duplicate\" href=\"https://mirror.example/a\" pri=\"0\" modified=\"2024\"",
    "rel=\"duplicate\" href=\"https://mirror.example/a\" pri=\"high\" length=\"long\" hash=\"1\"",
    "rel=\"https://e.org/terms/patch\" href=\"https://e.org/a.patch\" length=\"4\" hash=\"md5:00\"",
    "rel=\"up\"",
    "href=\"https://e.org/\"",
    "rel=\"\" href=\"\"",
    "rel=\"alternate\" href=\"relative.txt\"",
    "rel=\"collection\" href=\"urn:x:y\" profile=\"none\" type=\"x\"",
];

fn one_of(values: &'static str) -> prop::sample::Select<&'static str> {
    prop::sample::select(values.split('|').collect::<Vec<_>>())
}

/// An entry with attributes from the lists above, or without.
fn any_entry() -> impl Strategy<Value = String> {
    let attributes = VALUES.map(|(name, values)| {
        let value = prop::option::of(one_of(values));
        value.prop_map(move |value| {
            let value = value.map(|value| value.replace('"', "&quot;"));
            value.map_or(String::new(), |value| format!(" {name}=\"{value}\""))
        })
    });
    (
        prop::sample::select(LOCS.to_vec()),
        prop::option::of(one_of(LASTMODS)),
        one_of(CHANGES),
        attributes.to_vec(),
        prop::collection::vec(prop::sample::select(LINKS.to_vec()), 0..3),
        any::<bool>(),
    )
        .prop_map(|(loc, lastmod, change, attributes, links, is_twice)| {
            let mut entry = format!("<url><loc>{loc}</loc>");
            if let Some(lastmod) = lastmod {
                write!(entry, "<lastmod>{lastmod}</lastmod>").unwrap();
            }
            for link in &links {
                write!(entry, "<rs:ln {link}/>").unwrap();
            }
            let attributes = attributes.concat();
            write!(entry, "<rs:md change=\"{change}\"{attributes}/>").unwrap();
            if is_twice {
                entry.push_str("<rs:md change=\"updated\"/><changefreq>daily</changefreq>");
            }
            entry + "</url>\n"
        })
}

/// Returns the changes of a Change List that are passed on.
fn passed_on(list: &str) -> Vec<Change> {
    let listed = read_keys(&mut list.as_bytes()).unwrap();
    let positions: Vec<u32> = listed
        .entries
        .iter()
        .map(|entry| entry.place.position)
        .collect();
    let changes = read_changes(&mut list.as_bytes(), &positions).unwrap();
    changes.into_iter().map(|(_, change)| change).collect()
}

/// Notifications of Change Lists, each of which ends with an entry that nothing is wrong with.
fn of_chance() -> Vec<ChangePayload> {
    let last = "<url><loc>https://e.org/last</loc><rs:md change=\"updated\"/></url>";
    let any = prop::collection::vec(any_entry(), 0..8).prop_map(move |entries| {
        let list = format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
             xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n\
             <rs:md capability=\"changelist\"/>\n{}{last}</urlset>",
            entries.concat()
        );
        ChangePayload {
            up: Some(Uri::parse("https://e.org/capabilitylist.xml").unwrap()),
            from: Timestamp::UNIX_EPOCH,
            until: Timestamp::from_microsecond(1_732_096_800_000_001).unwrap(),
            entries: passed_on(&list),
        }
    });
    let mut runner = TestRunner::deterministic();
    let payloads = (0..RANDOM).map(|_| any.new_tree(&mut runner).unwrap().current());
    payloads.collect()
}

/// Returns what the library should make of a change.
fn meant(change: &Change) -> Value {
    let links = change.links.iter();
    json!({
        "uri": &*change.loc,
        "change": change.kind.as_str(),
        "datetime": change.datetime.map(|datetime| datetime.at().as_microsecond()),
        "length": change.length,
        "type": change.mime_type,
        "links": links.map(|link| json!([&*link.rel, &*link.href])).collect::<Vec<_>>(),
    })
}

#[test]
fn the_reference_library_reads_all_changes_whatever_the_list_holds_besides() {
    let Some(python) = python() else { return };
    let payloads = of_chance();
    let directory = written(payloads.iter().map(ChangePayload::render));
    let mut reader = Command::new(python);
    let output = finish(reader.arg(READER).arg(directory.path()).arg("sitemap"));
    let read: Map<String, Value> = serde_json::from_slice(&output.stdout).unwrap();
    for (place, payload) in payloads.iter().enumerate() {
        let entries: Vec<Value> = payload.entries.iter().map(meant).collect();
        let text = String::from_utf8(payload.render()).unwrap();
        let read = &read[&format!("{place}.xml")];
        assert_eq!(
            read["described"]["capability"], "change-notification",
            "{read} of {text}"
        );
        assert_eq!(read["entries"], json!(entries), "of {text}");
    }
}

#[test]
fn every_change_notification_is_valid() {
    let mut payloads = of_chance();
    // A URI is passed on as it is, even if it is none.
    for payload in &mut payloads {
        payload
            .entries
            .retain(|change| Uri::parse(&change.loc).is_ok());
        for change in &mut payload.entries {
            if let Ok(uri) = Uri::parse(&change.loc) {
                change.loc = uri.as_str().into();
            }
        }
    }
    assert_valid(payloads.iter().map(ChangePayload::render));
}

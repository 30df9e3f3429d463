//! Payloads of every possible kind, read by the reference library and validated.

use std::sync::LazyLock;

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use resourcesync::capability::Capability;
use resourcesync::payload::{ChangeKind, Entry, Payload};
use resourcesync::uri::Uri;

use crate::interop::readers::{assert_read_as_meant, assert_valid};

const CHANGES: [ChangeKind; 3] = [
    ChangeKind::Created,
    ChangeKind::Updated,
    ChangeKind::Deleted,
];

/// So many payloads are made up by chance, the same each time.
const RANDOM: usize = 3_000;

/// Texts that generators write as URIs.
const ODD_URIS: [&str; 18] = [
    "HTTPS://E.org:443",
    "http://me:secret@e.org:8080/a.xml",
    "http://[2001:DB8::1]:8080/a.xml",
    "https://b\u{fc}cher.example/\u{fc}ber.xml",
    "https://e.org/\u{5217}\u{8868}\u{1f4d6}.xml?\u{fc}",
    "https://e.org/a%20b%2Fc%e9%7e.xml",
    "https://e.org/100%.xml?5%&%zz",
    "https://e.org/a?set=x&format=rs&amp;from=\"2026\"",
    "https://e.org/it's 'quoted'.xml",
    "https://e.org/<list>.xml",
    "https://e.org/list[1].xml?set[]=a&set[]=b",
    "https://e.org/{set}/^a|b`c\\d.xml",
    "https://e.org/]]>.xml",
    "https://e.org/a\tb\nc\rd.xml",
    "https://e.org/;p=1,2/@x:y!$()*+=-._~",
    "https://e.org//a//b/./c/../.xml?//?",
    "https://e.org?q",
    "file://host/a.xml",
];

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

fn time(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap()
}

fn entry(uri: Uri, change: ChangeKind, capability: Capability, index: Option<Uri>) -> Entry {
    Entry {
        uri,
        change,
        capability,
        datetime: Some(time(1_795_168_800_001)),
        index,
    }
}

fn updated(uri: &Uri) -> Entry {
    let index = Some(uri.clone());
    entry(
        uri.clone(),
        ChangeKind::Updated,
        Capability::ChangeList,
        index,
    )
}

fn payload(up: Option<Uri>, entries: Vec<Entry>) -> Payload {
    Payload {
        up,
        from: Some(time(1_795_168_700_001)),
        until: Some(time(1_795_168_800_123)),
        entries,
    }
}

/// Every capability with every change, with an index and without one.
fn of_every_change() -> Vec<Payload> {
    let up = uri("https://e.org/capabilitylist.xml");
    let above = uri("https://e.org/index.xml");
    let mut entries = Vec::new();
    for capability in Capability::all() {
        for change in CHANGES {
            let document = uri(&format!("https://e.org/{capability}.xml"));
            let above = Some(above.clone());
            entries.push(entry(document.clone(), change, capability, None));
            entries.push(entry(document, change, capability, above));
        }
    }
    let each = entries.iter().cloned();
    let each = each.map(|entry| payload(Some(up.clone()), vec![entry]));
    each.chain([payload(None, entries.clone())]).collect()
}

/// An odd URI wherever there is a place for one.
fn of_odd_uris() -> Vec<Payload> {
    let named = ODD_URIS.iter().map(|text| uri(text));
    // What a file's name yields may hold any byte.
    let bytes: Vec<u8> = (1..=255).collect();
    let name = Uri::below(&uri("https://e.org/"), &bytes);
    let long = uri(&format!(
        "https://e.org/{}.xml?{}",
        "a/".repeat(4_000),
        "%E9".repeat(4_000)
    ));
    let uris = named.chain([name, long]);
    uris.map(|uri| payload(Some(uri.clone()), vec![updated(&uri)]))
        .collect()
}

/// Nothing, and as much as there may be (R21, R25).
fn of_extreme_lengths() -> Vec<Payload> {
    let many = (0..1_000).map(|number| updated(&uri(&format!("https://e.org/{number}.xml"))));
    vec![
        Payload::default(),
        payload(None, Vec::new()),
        payload(None, many.collect()),
    ]
}

fn any_uri() -> impl Strategy<Value = Uri> {
    let authority =
        "([a-z\u{e9}@:%_~$&'()*+,;=\\[\\]\\-]{1,12}|\\[[0-9a-f:.]{1,9}\\])(:[0-9a]{0,5})?";
    let text = (authority, "(/[ -~\\PC\t\n\r]{0,40})?");
    text.prop_filter_map("an absolute URI", |(authority, rest)| {
        Uri::parse(&format!("https://{authority}{rest}")).ok()
    })
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let capabilities: Vec<_> = Capability::all().collect();
    (
        any_uri(),
        prop::sample::select(CHANGES.to_vec()),
        prop::sample::select(capabilities),
        prop::option::of(any_time()),
        prop::option::of(any_uri()),
    )
        .prop_map(|(uri, change, capability, datetime, index)| Entry {
            uri,
            change,
            capability,
            datetime,
            index,
        })
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    (0..4_102_444_800_000_i64).prop_map(time)
}

fn of_chance() -> Vec<Payload> {
    let any = (
        prop::option::of(any_uri()),
        prop::option::of(any_time()),
        prop::option::of(any_time()),
        prop::collection::vec(any_entry(), 0..8),
    );
    let any = any.prop_map(|(up, from, until, entries)| Payload {
        up,
        from,
        until,
        entries,
    });
    let mut runner = TestRunner::deterministic();
    let payloads = (0..RANDOM).map(|_| any.new_tree(&mut runner).unwrap().current());
    payloads.collect()
}

/// Payloads of every kind, each with its rendering.
static OF_EVERY_KIND: LazyLock<Vec<(Payload, Vec<u8>)>> = LazyLock::new(|| {
    let payloads = [
        of_every_change(),
        of_odd_uris(),
        of_extreme_lengths(),
        of_chance(),
    ];
    let rendered = |payload: Payload| {
        let body = payload.render();
        (payload, body)
    };
    payloads.into_iter().flatten().map(rendered).collect()
});

#[test]
fn the_reference_library_reads_every_payload_as_it_was_meant() {
    assert_read_as_meant(&OF_EVERY_KIND);
}

#[test]
fn every_payload_is_valid() {
    assert_valid(OF_EVERY_KIND.iter().map(|(_, body)| body));
}
